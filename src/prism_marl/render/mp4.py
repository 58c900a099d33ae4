"""Pictures as an MP4 that every browser plays: raw frames go through a pipe to ffmpeg, which encodes them as H.264."""

import contextlib
import importlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from prism_marl.errors import UserError, install_command
from prism_marl.render.draw import as_image
from prism_marl.scene import Scene

CODEC = "libx264"
QUALITY = 20  # of x264: thin lines and small letters stay clean; a battle takes some hundred kB
EVEN = "pad=ceil(iw/2)*2:ceil(ih/2)*2:color=white"  # yuv420p halves both sides


def find_ffmpeg() -> str:
    """The user's own ffmpeg if it can write H.264, else the ffmpeg of the extra ``video``."""
    for program in (shutil.which("ffmpeg"), _bundled()):
        if program and _encodes(program):
            return program
    raise UserError(
        f"--render: an .mp4 needs the program ffmpeg with H.264: {install_command(extra='video')}, or choose .gif"
    )


def _bundled() -> str | None:
    try:
        return importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
    except (ImportError, RuntimeError):  # not installed; installed from source, without the program
        return None


def _encodes(program: str) -> bool:
    """Whether this ffmpeg can write H.264; on some systems it cannot."""
    try:
        listed = subprocess.run(
            [program, "-hide_banner", "-encoders"], stdin=subprocess.DEVNULL, capture_output=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return listed.returncode == 0 and CODEC.encode() in listed.stdout.split()


def save_mp4(frames: Sequence[Scene | Image.Image], path: Path, fps: float) -> None:
    """Write frames of equal size at a constant rate."""
    width, height = as_image(frames[0]).size
    command = [
        find_ffmpeg(), "-nostdin", "-loglevel", "error", "-y",
        "-f", "rawvideo", "-pix_fmt", "rgb24", "-video_size", f"{width}x{height}", "-framerate", f"{fps:.4f}",
        "-i", "pipe:0",
        "-vf", EVEN, "-c:v", CODEC, "-preset", "medium", "-crf", str(QUALITY), "-pix_fmt", "yuv420p",
        "-movflags", "+faststart", "-f", "mp4", str(path.absolute()),
    ]  # fmt: skip
    with tempfile.TemporaryFile() as errors:  # a file: a pipe would block ffmpeg when it is full
        code = _feed(command, frames, errors.fileno())
        if code:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines() or [f"exit code {code}"]
            raise UserError(f"render: ffmpeg failed ({lines[-1].strip()}); choose another file or .gif", code=1)


def _feed(command: list[str], frames: Sequence[Scene | Image.Image], stderr: int) -> int:
    """Write every frame to the program; returns its exit code. If it ends early, its errors say why."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=stderr)
    assert process.stdin is not None
    try:
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
            for frame in frames:
                pipe.write(as_image(frame).convert("RGB").tobytes())
    except BaseException:  # also Ctrl-C: the program must not go on alone
        process.kill()
        raise
    finally:
        code = process.wait()
    return code
