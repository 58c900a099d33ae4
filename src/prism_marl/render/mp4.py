"""Pictures as an MP4 that every browser plays: raw frames through a pipe into ffmpeg, which encodes them as H.264."""

import contextlib
import importlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from prism_marl.errors import UserError
from prism_marl.render.draw import as_image
from prism_marl.scene import Scene

CODEC = "libx264"
QUALITY = 20  # of x264: thin lines and small letters stay clean; a battle takes some hundred kB
EVEN = "pad=ceil(iw/2)*2:ceil(ih/2)*2:color=white"  # yuv420p halves both sides


def find_ffmpeg() -> str:
    """The user's own ffmpeg if it can write H.264, else the one that the extra brings."""
    for program in (shutil.which("ffmpeg"), _bundled()):
        if program and _encodes(program):
            return program
    raise UserError(
        "--render: an .mp4 needs the program ffmpeg with H.264; pip install 'prism-marl[video]', or choose .gif"
    )


def _bundled() -> str | None:
    try:
        return importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
    except (ImportError, RuntimeError):  # not installed; installed from source, without the program
        return None


def _encodes(program: str) -> bool:
    """Some systems ship an ffmpeg without H.264."""
    try:
        told = subprocess.run(
            [program, "-hide_banner", "-encoders"], stdin=subprocess.DEVNULL, capture_output=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return told.returncode == 0 and CODEC.encode() in told.stdout.split()


def save_mp4(frames: Sequence[Scene | Image.Image], path: Path, fps: float) -> None:
    """All frames, which are of one size, at a steady rate."""
    width, height = as_image(frames[0]).size
    command = [
        find_ffmpeg(), "-nostdin", "-loglevel", "error", "-y",
        "-f", "rawvideo", "-pix_fmt", "rgb24", "-video_size", f"{width}x{height}", "-framerate", f"{fps:.4f}",
        "-i", "pipe:0",
        "-vf", EVEN, "-c:v", CODEC, "-preset", "medium", "-crf", str(QUALITY), "-pix_fmt", "yuv420p",
        "-movflags", "+faststart", "-f", "mp4", str(path.absolute()),
    ]  # fmt: skip
    with tempfile.TemporaryFile() as complaints:  # a pipe that nobody reads could fill up while we write the other
        code = _feed(command, frames, complaints.fileno())
        if code:
            complaints.seek(0)
            said = complaints.read().decode(errors="replace").strip().splitlines() or [f"exit code {code}"]
            raise UserError(f"render: ffmpeg failed ({said[-1].strip()}); choose another file or .gif", code=1)


def _feed(command: list[str], frames: Sequence[Scene | Image.Image], stderr: int) -> int:
    """Write every frame into the program; one that ends early tells why by itself."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=stderr)
    assert process.stdin is not None
    try:
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
            for frame in frames:
                pipe.write(as_image(frame).convert("RGB").tobytes())
    except BaseException:  # Ctrl-C, no memory: nobody would wait for it
        process.kill()
        raise
    finally:
        code = process.wait()
    return code
