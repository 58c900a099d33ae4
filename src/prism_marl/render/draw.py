"""Draw a ``Scene``: as text for the terminal, as a picture, or as plain JSON for the web page."""

import math
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from prism_marl.scene import INK, LINE, PAPER, Scene, Shape, colour_of

LONGEST_SIDE = {True: 400, False: 640}  # pixels, with and without a grid: battles and robots have small details
CAPTION = 28  # pixels under the picture
LEGEND = 20  # pixels under the caption
FAINT = 0.4  # opacity of a circle, which shows a range and must not hide other shapes
SMOOTH = 3  # pictures are drawn so many times larger and then shrunk, for smooth edges
TEXT_COLUMNS = 64  # width of a scene without a grid in the terminal


def scene_to_text(scene: Scene) -> str:
    """Lines of aligned cells between two rules, then the caption; '!' marks a shape with a ring."""
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
        else:  # one character per cell, of the last shape
            cells[line][column] = shape.glyph
    empty = "." if scene.grid else " "
    width = max(len(text) for row in cells for text in row) or 1
    body = [(" " if scene.grid else "").join((text or empty).ljust(width) for text in row) for row in cells]
    rule = "-" * len(body[0])
    return "\n".join(line.rstrip() for line in [rule, *body, rule, scene.caption]).rstrip()


def _crossed(bar: Shape, scale: float, lines: int, columns: int) -> list[tuple[int, int]]:
    """The cells under the centre line of a bar, without those outside the picture."""
    points = 1 + 2 * math.ceil(max(abs(bar.dx), abs(bar.dy)) / scale)
    middles = [(k + 0.5) / points for k in range(points)]
    cells = [(math.floor((bar.y + t * bar.dy) / scale), math.floor((bar.x + t * bar.dx) / scale)) for t in middles]
    return [(line, column) for line, column in cells if 0 <= line < lines and 0 <= column < columns]


def as_image(frame: Scene | Image.Image) -> Image.Image:
    """A frame of a film as a picture; a scene is drawn."""
    return frame if isinstance(frame, Image.Image) else scene_to_image(frame)


def scene_to_image(scene: Scene) -> Image.Image:
    """One frame: shapes over a grid, with the caption and the legend underneath."""
    longest = max(scene.width, scene.height)
    unit = max(2, round(LONGEST_SIDE[scene.grid] / longest))  # whole pixels keep the grid even
    width, height = round(scene.width * unit), round(scene.height * unit)
    image = Image.new("RGB", (width + 1, height + 1 + CAPTION + (LEGEND if scene.legend else 0)), PAPER)
    image.paste(_board(scene, width, height, unit), (0, 0))
    _write(image, scene.caption, height + 1, CAPTION, 14)
    if scene.legend:
        _write(image, scene.legend, height + 1 + CAPTION, LEGEND, 12)
    return image


def _board(scene: Scene, width: int, height: int, unit: int) -> Image.Image:
    """The picture without the text under it, into which no shape can reach this way."""
    image = Image.new("RGB", ((width + 1) * SMOOTH, (height + 1) * SMOOTH), PAPER)
    canvas = ImageDraw.Draw(image)
    big = unit * SMOOTH
    right, bottom = width * SMOOTH, height * SMOOTH
    if scene.grid:
        for k in range(int(scene.width) + 1):
            canvas.line([(k * big + SMOOTH // 2, 0), (k * big + SMOOTH // 2, bottom)], LINE, SMOOTH)
        for k in range(int(scene.height) + 1):
            canvas.line([(0, k * big + SMOOTH // 2), (right, k * big + SMOOTH // 2)], LINE, SMOOTH)
    for shape in scene.shapes:
        _draw_shape(canvas, shape, big)
    if not scene.grid:
        canvas.rectangle((0, 0, right + SMOOTH - 1, bottom + SMOOTH - 1), outline=LINE, width=SMOOTH)
    return image.resize((width + 1, height + 1), Image.Resampling.LANCZOS)


def _write(image: Image.Image, text: str, top: int, high: int, size: int) -> None:
    """A line of text in the middle of a strip, smaller if it does not fit."""
    strip = Image.new("RGB", (image.width * SMOOTH, high * SMOOTH), PAPER)
    canvas = ImageDraw.Draw(strip)
    font = _fit(canvas, text, ImageFont.load_default(size * SMOOTH), 0.98 * strip.width)
    canvas.text((strip.width / 2, strip.height / 2), text, INK, font, anchor="mm")
    image.paste(strip.resize((image.width, high), Image.Resampling.LANCZOS), (0, top))


def _draw_shape(canvas: ImageDraw.ImageDraw, shape: Shape, unit: int) -> None:
    x, y, half = shape.x * unit, shape.y * unit, shape.size * unit / 2
    fill, edge = colour_of(shape), max(SMOOTH, round(unit * 0.03))
    box = (x - half, y - half, x + half, y + half)
    if shape.kind == "bar":
        right, down = shape.dx * unit, shape.dy * unit
        canvas.line([(x, y), (x + right, y + down)], fill, max(1, round(2 * half)))
        for left, top in ((x, y), (x + right, y + down)):
            canvas.ellipse((left - half, top - half, left + half, top + half), fill)
        return
    if shape.kind == "circle":
        canvas.ellipse(box, outline=_faint(fill), width=SMOOTH)
        return
    if shape.ring:
        gap = half + 2.5 * edge
        around = (x - gap, y - gap, x + gap, y + gap)
        if shape.kind == "square":
            canvas.rounded_rectangle(around, gap * 0.35, outline=INK, width=edge)
        else:
            canvas.ellipse(around, outline=INK, width=edge)
    if shape.kind == "disc":
        canvas.ellipse(box, fill, PAPER, edge)
    elif shape.kind == "square":
        canvas.rounded_rectangle(box, half * 0.3, fill, PAPER, edge)
    else:
        thick = max(SMOOTH, round(half * 0.4))
        canvas.line([box[:2], box[2:]], fill, thick)
        canvas.line([(box[0], box[3]), (box[2], box[1])], fill, thick)
    if shape.label:
        font = _fit(canvas, shape.label, ImageFont.load_default(max(SMOOTH, half * 1.2)), 1.6 * half)
        canvas.text((x, y), shape.label, _ink_on(fill), font, anchor="mm")


def _fit(canvas: ImageDraw.ImageDraw, text: str, font: Any, width: float) -> Any:
    """The font, made smaller if the text would be wider than ``width``."""
    length = canvas.textlength(text, font)
    return font if length <= width else ImageFont.load_default(max(1.0, font.size * width / length))


def _faint(colour: str) -> tuple[int, ...]:
    """The colour mixed with the background."""
    mixed = zip(_numbers(colour), _numbers(PAPER), strict=True)
    return tuple(round(FAINT * own + (1 - FAINT) * paper) for own, paper in mixed)


def _numbers(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))


def _ink_on(fill: str) -> str:
    """Black or white, whichever is easier to read on the colour."""
    red, green, blue = _numbers(fill)
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else PAPER
