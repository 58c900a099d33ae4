"""Draw a ``Scene``: as text for the terminal, as an animated GIF, or as plain JSON for the web page."""

import contextlib
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from prism_marl.envs.scene import NOBODY, Scene, Shape
from prism_marl.errors import UserError

# Okabe and Ito's palette, which colour-blind readers can tell apart. Green is kept for food (colour -1).
PALETTE = ("#0072B2", "#D55E00", "#CC79A7", "#56B4E9", "#E69F00", "#F0E442", "#666666")
FOOD = "#009E73"
INK, LINE, PAPER, PLAIN = "#222222", "#DDDDDD", "#FFFFFF", "#999999"

LONGEST_SIDE = 400  # pixels of the longer side of the picture
CAPTION = 28  # pixels under the picture
SMOOTH = 3  # drawn this many times larger and shrunk, which gives clean edges
COLOURS = 64  # of the GIF: enough for the palette and its soft edges
TEXT_COLUMNS = 64  # a continuous scene is squeezed into this many characters


def colour_of(shape: Shape) -> str:
    """Hex colour of a shape."""
    if shape.colour == NOBODY:
        return PLAIN
    return FOOD if shape.colour < 0 else PALETTE[shape.colour % len(PALETTE)]


def scene_to_text(scene: Scene) -> str:
    """Rows of aligned cells between two rules, then the caption; '!' marks a shape that acts on something."""
    scale = 1.0 if scene.grid else max(1.0, scene.width / TEXT_COLUMNS)
    columns, lines = max(1, round(scene.width / scale)), max(1, round(scene.height / scale))
    cells = [[""] * columns for _ in range(lines)]
    for shape in scene.shapes:
        if not shape.glyph:
            continue
        if shape.kind == "bar":
            for line, column in _crossed(shape, scale, lines, columns):
                cells[line][column] = shape.glyph
            continue
        line = min(max(int(shape.y / scale), 0), lines - 1)
        column = min(max(int(shape.x / scale), 0), columns - 1)
        if scene.grid:
            cells[line][column] += shape.glyph + shape.label + ("!" if shape.ring else "")
        else:  # one character a cell, whoever comes last
            cells[line][column] = shape.glyph
    empty = "." if scene.grid else " "
    width = max(len(text) for row in cells for text in row) or 1
    body = [(" " if scene.grid else "").join((text or empty).ljust(width) for text in row) for row in cells]
    rule = "-" * len(body[0])
    return "\n".join(line.rstrip() for line in [rule, *body, rule, scene.caption]).rstrip()


def _crossed(bar: Shape, scale: float, lines: int, columns: int) -> list[tuple[int, int]]:
    """The cells under the middle of a bar; what lies outside the picture is left out."""
    points = 1 + 2 * math.ceil(max(abs(bar.dx), abs(bar.dy)) / scale)
    middles = [(k + 0.5) / points for k in range(points)]
    cells = [(math.floor((bar.y + t * bar.dy) / scale), math.floor((bar.x + t * bar.dx) / scale)) for t in middles]
    return [(line, column) for line, column in cells if 0 <= line < lines and 0 <= column < columns]


def scene_to_json(scene: Scene) -> dict[str, Any]:
    """The scene as plain JSON types, with each shape's colour spelled out."""
    plain = dataclasses.asdict(scene)
    for entry, shape in zip(plain["shapes"], scene.shapes, strict=True):
        entry.update(x=float(shape.x), y=float(shape.y), size=float(shape.size))
        entry.update(dx=float(shape.dx), dy=float(shape.dy))
        entry.update(colour=int(shape.colour), ring=bool(shape.ring), fill=colour_of(shape))
    extra = {name: float(value) for name, value in scene.extra.items()}
    return plain | {
        "shapes": list(plain["shapes"]),
        "width": float(scene.width),
        "height": float(scene.height),
        "extra": extra,
    }


def scene_to_image(scene: Scene) -> Image.Image:
    """One frame: shapes over a grid, with the caption underneath."""
    unit = max(2, round(LONGEST_SIDE / max(scene.width, scene.height)))  # whole pixels keep the grid even
    width, height = round(scene.width * unit), round(scene.height * unit)
    image = Image.new("RGB", ((width + 1) * SMOOTH, (height + 1 + CAPTION) * SMOOTH), PAPER)
    draw = ImageDraw.Draw(image)
    big = unit * SMOOTH
    right, bottom = width * SMOOTH, height * SMOOTH
    if scene.grid:
        for k in range(int(scene.width) + 1):
            draw.line([(k * big + SMOOTH // 2, 0), (k * big + SMOOTH // 2, bottom)], LINE, SMOOTH)
        for k in range(int(scene.height) + 1):
            draw.line([(0, k * big + SMOOTH // 2), (right, k * big + SMOOTH // 2)], LINE, SMOOTH)
    else:
        draw.rectangle((0, 0, right, bottom), outline=LINE, width=SMOOTH)
    for shape in scene.shapes:
        _draw_shape(draw, shape, big)
    font = _fit(draw, scene.caption, ImageFont.load_default(14 * SMOOTH), float(right))
    draw.text((right / 2, bottom + CAPTION * SMOOTH / 2), scene.caption, INK, font, anchor="mm")
    return image.resize((width + 1, height + 1 + CAPTION), Image.Resampling.LANCZOS)


def write_gif(scenes: Sequence[Scene | Image.Image], path: str | Path, *, fps: float = 5.0) -> Path:
    """Write the frames as an endless GIF that rests on its last frame; the file appears whole or not at all."""
    path = Path(path)
    if path.suffix.lower() != ".gif":
        raise UserError(f"render: cannot write '{path.name}'; only .gif is supported, try '{path.stem}.gif'")
    if not scenes:
        raise UserError("render: there is no frame to write; play at least one step")
    if not fps > 0:
        raise UserError(f"render: fps must be positive, not {fps}; try 5")
    frames = [scene if isinstance(scene, Image.Image) else scene_to_image(scene) for scene in scenes]
    # One palette for all frames, taken from a few of them side by side: colours must not flicker.
    some = frames[:: max(1, len(frames) // 6)]
    sheet = Image.new("RGB", (sum(f.width for f in some), max(f.height for f in some)), PAPER)
    for k, frame in enumerate(some):
        sheet.paste(frame, (sum(f.width for f in some[:k]), 0))
    palette = sheet.quantize(COLOURS, dither=Image.Dither.NONE)
    flat = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    pause = max(20, round(1000 / fps))  # milliseconds; viewers slow down anything below 20
    pauses = [pause] * (len(flat) - 1) + [max(pause, 1500)]
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        flat[0].save(part, "GIF", save_all=True, append_images=flat[1:], duration=pauses, loop=0, optimize=True)
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise UserError(f"render: cannot write '{path}': {error.strerror or error}; choose another file") from None
    return path


def _draw_shape(draw: ImageDraw.ImageDraw, shape: Shape, unit: int) -> None:
    x, y, half = shape.x * unit, shape.y * unit, shape.size * unit / 2
    fill, edge = colour_of(shape), max(SMOOTH, round(unit * 0.03))
    box = (x - half, y - half, x + half, y + half)
    if shape.kind == "bar":
        right, down = shape.dx * unit, shape.dy * unit
        draw.line([(x, y), (x + right, y + down)], fill, max(1, round(2 * half)))
        for left, top in ((x, y), (x + right, y + down)):
            draw.ellipse((left - half, top - half, left + half, top + half), fill)
        return
    if shape.kind == "circle":
        draw.ellipse(box, outline=fill, width=SMOOTH)
        return
    if shape.ring:
        gap = half + 2.5 * edge
        draw.ellipse((x - gap, y - gap, x + gap, y + gap), outline=INK, width=edge)
    if shape.kind == "disc":
        draw.ellipse(box, fill, PAPER, edge)
    elif shape.kind == "square":
        draw.rounded_rectangle(box, half * 0.3, fill, PAPER, edge)
    else:
        thick = max(SMOOTH, round(half * 0.4))
        draw.line([box[:2], box[2:]], fill, thick)
        draw.line([(box[0], box[3]), (box[2], box[1])], fill, thick)
    if shape.label:
        font = _fit(draw, shape.label, ImageFont.load_default(max(SMOOTH, half * 1.2)), 1.6 * half)
        draw.text((x, y), shape.label, _ink_on(fill), font, anchor="mm")


def _fit(draw: ImageDraw.ImageDraw, text: str, font: Any, width: float) -> Any:
    """The font, made smaller where the text would be wider than ``width``."""
    length = draw.textlength(text, font)
    return font if length <= width else ImageFont.load_default(max(1.0, font.size * width / length))


def _ink_on(fill: str) -> str:
    """Black or white, whichever reads better on the colour."""
    red, green, blue = (int(fill[i : i + 2], 16) for i in (1, 3, 5))
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else PAPER
