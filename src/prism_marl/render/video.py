"""Frames as a film in one file; if writing fails, there is no file."""

from collections.abc import Callable, Sequence
from pathlib import Path

from PIL import Image

from prism_marl.errors import UserError
from prism_marl.render.draw import as_image
from prism_marl.render.mp4 import save_mp4
from prism_marl.scene import PAPER, Scene
from prism_marl.storage.files import replacing

GIF_COLOURS = 64  # enough for the palette and its soft edges
REST = 1500  # milliseconds that a GIF, which repeats, shows its last frame

Frame = Scene | Image.Image


def write_film(frames: Sequence[Frame], path: str | Path, *, fps: float = 5.0) -> Path:
    """Write the frames in the format given by the file's ending. If this fails, an older file stays as it was."""
    path = Path(path)
    save = SAVERS.get(path.suffix.lower())
    if save is None:
        raise UserError(f"render: cannot write '{path.name}'; known endings: {known_endings()}; try '{path.stem}.gif'")
    if not frames:
        raise UserError("render: there is no frame to write; play at least one step")
    if not fps > 0:
        raise UserError(f"render: fps must be positive, not {fps}; try 5")
    try:
        with replacing(path) as temporary:
            save(frames, temporary, fps)
    except OSError as error:
        raise UserError(f"render: cannot write '{path}': {error.strerror or error}; choose another file") from None
    return path


def known_endings() -> str:
    """The endings that a film's name may have, for error messages."""
    return ", ".join(SAVERS)


def _save_gif(frames: Sequence[Frame], path: Path, fps: float) -> None:
    # One palette for all frames, made from a few of them side by side, so that colours do not flicker.
    some = [as_image(frame) for frame in frames[:: max(1, len(frames) // 6)]]
    sheet = Image.new("RGB", (sum(f.width for f in some), max(f.height for f in some)), PAPER)
    for k, frame in enumerate(some):
        sheet.paste(frame, (sum(f.width for f in some[:k]), 0))
    palette = sheet.quantize(GIF_COLOURS, dither=Image.Dither.NONE)
    flat = [as_image(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    pause = max(20, round(1000 / fps))  # milliseconds; viewers slow down anything below 20
    pauses = [pause] * (len(flat) - 1) + [max(pause, REST)]
    flat[0].save(path, "GIF", save_all=True, append_images=flat[1:], duration=pauses, loop=0, optimize=True)


SAVERS: dict[str, Callable[[Sequence[Frame], Path, float], None]] = {".gif": _save_gif, ".mp4": save_mp4}
