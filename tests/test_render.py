"""Drawings: aligned text, plain JSON, and GIFs that other programs can read."""

import json
from pathlib import Path

import pytest
from PIL import Image

from prism_marl.envs.scene import Scene, Shape
from prism_marl.errors import UserError
from prism_marl.render import FOOD, PALETTE, scene_to_image, scene_to_json, scene_to_text, write_gif


def frame(x: float = 0.5, *, grid: bool = True) -> Scene:
    shapes = (
        Shape("square", 2.5, 1.5, 0.8, -1, "3", "*"),
        Shape("disc", x, 0.5, 0.8, 0, "2", "A", ring=True),
        Shape("cross", 1.5, 1.5, 0.8, 9, "", "x"),
    )
    return Scene(4.0, 2.0, shapes, grid, f"at {x}", {"step": 1.0})


def test_text_is_an_aligned_grid():
    assert scene_to_text(frame()).split("\n") == [
        "---------------",
        "A2! .   .   .",
        ".   x   *3  .",
        "---------------",
        "at 0.5",
    ]


def test_text_names_everybody_on_a_shared_cell():
    shared = Scene(2.0, 1.0, (Shape("disc", 0.4, 0.5, 0.5, 0, "1", "A"), Shape("disc", 0.6, 0.5, 0.5, 1, "2", "B")))
    assert scene_to_text(shared).split("\n")[1] == "A1B2 ."


def test_text_of_a_continuous_scene_has_one_character_a_cell():
    lines = scene_to_text(frame(grid=False)).split("\n")
    assert lines[1:3] == ["A", " x*"]
    wide = Scene(640.0, 320.0, (Shape("disc", 640.0, 320.0, 1.0, 0, glyph="Z"),), grid=False)
    lines = scene_to_text(wide).split("\n")
    assert len(lines[0]) == 64 and len(lines) == 34 and lines[-2].endswith("Z")


def test_json_is_plain_and_complete():
    data = scene_to_json(frame())
    assert json.loads(json.dumps(data)) == data
    assert [shape["fill"] for shape in data["shapes"]] == [FOOD, PALETTE[0], PALETTE[9 % len(PALETTE)]]
    assert data["shapes"][1]["ring"] is True and data["caption"] == "at 0.5" and data["extra"] == {"step": 1.0}


def test_the_picture_shows_the_colours_where_the_shapes_are():
    image = scene_to_image(frame())
    unit = (image.width - 1) // 4
    assert image.getpixel((round(0.25 * unit), round(0.5 * unit))) == (0x00, 0x72, 0xB2)
    assert image.getpixel((round(2.25 * unit), round(1.5 * unit))) == (0x00, 0x9E, 0x73)
    assert image.getpixel((round(3.5 * unit), round(0.5 * unit))) == (255, 255, 255)


def test_a_gif_has_all_frames_and_rests_on_the_last(tmp_path: Path):
    path = write_gif([frame(0.5), frame(1.5), frame(2.5)], tmp_path / "new" / "play.gif", fps=10.0)
    with Image.open(path) as gif:
        pauses = []
        for k in range(getattr(gif, "n_frames", 1)):
            gif.seek(k)
            pauses.append(gif.info["duration"])
    assert pauses == [100, 100, 1500] and path.stat().st_size < 60_000
    assert [p.name for p in path.parent.iterdir()] == ["play.gif"]


def test_what_cannot_be_written_is_one_sentence(tmp_path: Path):
    with pytest.raises(UserError, match=r"only \.gif .* 'play\.gif'"):
        write_gif([frame()], tmp_path / "play.mp4")
    with pytest.raises(UserError, match="no frame"):
        write_gif([], tmp_path / "play.gif")
    with pytest.raises(UserError, match="fps must be positive"):
        write_gif([frame()], tmp_path / "play.gif", fps=0.0)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot write") as error:
        write_gif([frame()], tmp_path / "file" / "play.gif")
    assert "\n" not in str(error.value)
    (tmp_path / "folder.gif").mkdir()
    with pytest.raises(UserError, match="cannot write"):
        write_gif([frame()], tmp_path / "folder.gif")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder.gif"]
