"""A drawing of one environment state as data, which the terminal, a GIF and the web page can show.

An environment with pictures has a method ``scene(state) -> Scene``; ``render`` draws the scenes of all environments.
Coordinates run from (0, 0) at the top left to (width, height) at the bottom right.
"""

import dataclasses
import itertools
import math
from dataclasses import dataclass, field
from typing import Any

from prism_marl.storage.files import number

GOAL = -1  # colour of what agents collect or keep: food, health
NOBODY = -2  # colour of things that belong to no agent
FOE = -3  # colour of opponents
SHIELD = -4  # colour of shields, light blue
MOST_EXTRA = 32  # numbers under a picture that somebody else made
LONGEST_TEXT = 500  # characters of a text in it


@dataclass(frozen=True)
class Shape:
    """One thing in the picture."""

    kind: str  # "disc", "square", "cross", "circle" (a thin line) or "bar", which goes from (x, y) to (x + dx, y + dy)
    x: float
    y: float
    size: float  # full width in scene units; of a bar, its thickness
    colour: int  # index into the palette: an agent's index, or a constant above
    label: str = ""  # short text inside the shape
    glyph: str = "?"  # one character for the terminal; "": not shown there
    ring: bool = False  # drawn with an outline: the agent is acting on something
    dx: float = 0.0  # of a bar
    dy: float = 0.0


@dataclass(frozen=True)
class Scene:
    """One frame."""

    width: float
    height: float
    shapes: tuple[Shape, ...]
    grid: bool = True  # draw cell lines at whole coordinates
    caption: str = ""
    extra: dict[str, float] = field(default_factory=dict)  # numbers shown under the picture
    legend: str = ""  # what letters and signs mean


# Okabe and Ito's palette, which colour-blind readers can tell apart; its green is reserved for GOAL.
PALETTE = ("#0072B2", "#D55E00", "#CC79A7", "#56B4E9", "#E69F00", "#F0E442", "#666666")
FOOD = "#009E73"
INK, LINE, PAPER, PLAIN = "#222222", "#DDDDDD", "#FFFFFF", "#999999"
SPECIAL = {GOAL: FOOD, NOBODY: PLAIN, FOE: INK, SHIELD: "#56B4E9"}


def colour_of(shape: Shape) -> str:
    """Hex colour of a shape."""
    return PALETTE[shape.colour % len(PALETTE)] if shape.colour >= 0 else SPECIAL.get(shape.colour, PLAIN)


def scene_to_json(scene: Scene) -> dict[str, Any]:
    """The scene as plain JSON types; each shape also gets its colour as hex."""
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


def read_scene(raw: dict[str, Any]) -> Scene:
    """The inverse of ``scene_to_json``."""
    width, height = float(raw["width"]), float(raw["height"])
    if not (0 < width < math.inf and 0 < height < math.inf):
        raise ValueError("a scene has a finite, positive size")
    shapes = tuple(_shape(shape) for shape in raw["shapes"])
    some = itertools.islice((raw.get("extra") or {}).items(), MOST_EXTRA)
    extra = {str(key)[:LONGEST_TEXT]: number(value) for key, value in some}
    texts = {key: str(raw.get(key, ""))[:LONGEST_TEXT] for key in ("caption", "legend")}
    return Scene(width, height, shapes, bool(raw.get("grid", True)), extra=extra, **texts)


def _shape(raw: dict[str, Any]) -> Shape:
    numbers = {key: float(raw[key]) for key in ("x", "y", "size")}
    numbers |= {key: float(raw.get(key, 0.0)) for key in ("dx", "dy")}
    known = {field.name: raw[field.name] for field in dataclasses.fields(Shape) if field.name in raw}
    return Shape(**{**known, **numbers, "colour": int(raw["colour"])})
