"""Films that other programs can read: GIF and MP4, whole or not at all."""

import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prism_marl.cli import filming
from prism_marl.errors import UserError
from prism_marl.render import mp4
from prism_marl.render.video import write_film
from prism_marl.scene import Scene, Shape


def frame(x: float = 0.5) -> Scene:
    return Scene(
        5.0, 2.0, (Shape("disc", x, 0.5, 0.8, 0, "2", "A", ring=True),), caption=f"at {x}", legend="A: an agent"
    )


def program(folder: Path, body: str) -> Path:
    """An ffmpeg of our own making."""
    path = folder / "ffmpeg"
    path.write_text(f"#!{sys.executable}\nimport os, sys\n{body}")
    path.chmod(0o755)
    return path


@pytest.fixture
def only(tmp_path, monkeypatch):
    """Put a program first, and leave the extra away."""

    def put(body: str) -> None:
        (tmp_path / "bin").mkdir()
        program(tmp_path / "bin", body)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        monkeypatch.setattr(mp4, "_bundled", lambda: None)

    return put


def test_a_gif_has_all_frames_and_rests_on_the_last(tmp_path: Path):
    path = write_film([frame(0.5), frame(1.5), frame(2.5)], tmp_path / "new" / "play.gif", fps=10.0)
    with Image.open(path) as gif:
        pauses = []
        for k in range(getattr(gif, "n_frames", 1)):
            gif.seek(k)
            pauses.append(gif.info["duration"])
    assert pauses == [100, 100, 1500] and path.stat().st_size < 60_000
    assert [p.name for p in path.parent.iterdir()] == ["play.gif"]


def test_an_mp4_comes_back_frame_by_frame(tmp_path: Path):
    """Decoded again: every frame, even sides, the disc where it was drawn, and a format that browsers play."""
    places = [0.5, 1.5, 2.5, 3.5]
    path = write_film([frame(x) for x in places], tmp_path / "new" / "-play.MP4", fps=10.0)
    assert [p.name for p in path.parent.iterdir()] == ["-play.MP4"]
    head = path.read_bytes()
    assert head.index(b"moov") < head.index(b"mdat")  # a browser can start before it has the whole file
    ffmpeg = mp4.find_ffmpeg()
    told = subprocess.run([ffmpeg, "-i", str(path)], capture_output=True, text=True, stdin=subprocess.DEVNULL).stderr
    assert re.search(r"Video: h264 .*yuv420p.* 402x210.* 10 fps", told) and "Duration: 00:00:00.40" in told
    raw = [ffmpeg, "-loglevel", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1"]
    played = subprocess.run(raw, capture_output=True, stdin=subprocess.DEVNULL, check=True).stdout
    film = np.frombuffer(played, np.uint8).reshape(-1, 210, 402, 3).astype(int)
    assert len(film) == len(places)
    for picture, x in zip(film, places, strict=True):
        assert picture.mean() > 200  # paper, not black
        blue = np.abs(picture - [0x00, 0x72, 0xB2]).sum(axis=-1) < 60
        assert blue[:160].nonzero()[1].mean() == pytest.approx(80 * x, abs=8)


def test_what_cannot_be_written_is_one_sentence(tmp_path: Path):
    with pytest.raises(UserError, match=r"known endings: \.gif, \.mp4; try 'play\.gif'"):
        write_film([frame()], tmp_path / "play.avi")
    with pytest.raises(UserError, match="no frame"):
        write_film([], tmp_path / "play.gif")
    with pytest.raises(UserError, match="fps must be positive"):
        write_film([frame()], tmp_path / "play.gif", fps=0.0)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot write") as error:
        write_film([frame()], tmp_path / "file" / "play.gif")
    assert "\n" not in str(error.value)
    for name in ("folder.gif", "folder.mp4"):
        (tmp_path / name).mkdir()
        with pytest.raises(UserError, match="cannot write"):
            write_film([frame()], tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder.gif", "folder.mp4"]


FAILS = """
if "-encoders" in sys.argv:
    print(" V....D libx264  H.264")
    sys.exit()
open(sys.argv[-1], "w").write("half a film")
print("noise\\n" * 50_000 + "No space left on device", file=sys.stderr)
sys.exit(1)
"""


def test_an_ffmpeg_that_fails_leaves_the_old_film_and_says_why(only, tmp_path):
    only(FAILS)
    old = tmp_path / "play.mp4"
    old.write_text("the old film")
    with pytest.raises(UserError, match=r"^render: ffmpeg failed \(No space left on device\)") as error:
        write_film([frame()] * 200, old)
    assert error.value.code == 1 and "\n" not in str(error.value)
    assert old.read_text() == "the old film" and sorted(path.name for path in tmp_path.iterdir()) == ["bin", "play.mp4"]


def test_ctrl_c_while_encoding_ends_ffmpeg_and_leaves_nothing(only, tmp_path, monkeypatch):
    """Also one that has much left to do."""
    only(FAILS.replace("sys.exit(1)", "import time; time.sleep(60)"))
    started = time.monotonic()

    def stop(frame):
        if stop.calls:
            raise KeyboardInterrupt
        stop.calls += 1
        return Image.new("RGB", (4, 4))

    stop.calls = 0
    monkeypatch.setattr(mp4, "as_image", stop)
    with pytest.raises(KeyboardInterrupt):
        write_film([frame()], tmp_path / "play.mp4")
    assert [path.name for path in tmp_path.iterdir()] == ["bin"] and time.monotonic() - started < 50


@pytest.mark.parametrize("body", ["sys.exit(1)", "print('V libopenh264')"])
def test_without_an_ffmpeg_that_encodes_one_sentence_names_the_extra(only, body):
    only(body)
    with pytest.raises(UserError, match=r"pip install .*'prism-marl\[video\]'") as error:
        filming.check_target("play.mp4")
    assert error.value.code == 2 and "\n" not in str(error.value)


def test_an_ffmpeg_without_h264_gives_way_to_the_one_of_the_extra(only, monkeypatch):
    bundled = mp4._bundled
    only("print('V libopenh264')")
    monkeypatch.setattr(mp4, "_bundled", bundled)
    assert mp4.find_ffmpeg() == bundled()
