"""A drawing of one environment state that the terminal, a GIF and the web page can all show.

An environment that wants to be watched offers ``scene(state) -> Scene``; everything that draws is written once.
Coordinates run from (0, 0) at the top left to (width, height) at the bottom right.
"""

from dataclasses import dataclass, field

GOAL = -1  # colour of what the agents want more of: food, health
NOBODY = -2  # colour of what belongs to no agent
FOE = -3  # colour of opponents
SHIELD = -4  # colour of what protects, light blue


@dataclass(frozen=True)
class Shape:
    """One thing in the picture."""

    kind: str  # "disc", "square", "cross", "circle" (a thin line) or "bar", which goes from (x, y) to (x + dx, y + dy)
    x: float
    y: float
    size: float  # full width in scene units; of a bar, its thickness
    colour: int  # index into the palette of the drawer: agents use their own index, others a constant above
    label: str = ""  # short text inside the shape
    glyph: str = "?"  # one character for the terminal; none where "" is said
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
    extra: dict[str, float] = field(default_factory=dict)  # numbers worth printing under the picture
    legend: str = ""  # what letters and signs mean, where nobody could guess
