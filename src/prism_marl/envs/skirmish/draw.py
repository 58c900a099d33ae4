"""A battle as a drawing: discs are agents, squares are enemies, letters are unit types, bars are health and shields."""

import math
from typing import Any

from prism_marl.envs.scene import NOBODY, Scene, Shape
from prism_marl.envs.skirmish.state import State
from prism_marl.envs.skirmish.units import MAP, Race, Unit

LETTERS = {
    "marine": "M",
    "marauder": "R",
    "medivac": "+",
    "stalker": "S",
    "zealot": "Z",
    "colossus": "C",
    "zergling": "L",
    "hydralisk": "H",
    "baneling": "B",
}
ENEMY, SHIELD = -1, 3  # colours: what the agents are after, and light blue
BAR, THIN = 0.18, 0.07  # thickness


def draw(race: Race, state: State, mirror: bool, horizon: int) -> Scene:
    """One moment; north is up. A thin line runs to whom a unit attacks or heals, a circle shows an agent's range."""
    plain: Any = (leaf.tolist() for leaf in state)
    s: Any = State(*plain)
    n = len(s.last_action)
    theirs = race.units if mirror else tuple(unit.as_enemy() for unit in race.units)
    under: list[Shape] = []
    bodies: list[Shape] = []
    bars: list[Shape] = []
    for index, kind in enumerate(s.kind):
        if s.health[index] <= 0:
            continue
        agent = index < n
        unit = (race.units if agent else theirs)[kind]
        x, y, colour = s.x[index], MAP - s.y[index], index if agent else ENEMY
        target = s.target[index]
        acts = target >= 0 and s.health[target] > 0
        if acts:
            line = (s.x[target] - x, MAP - s.y[target] - y)
            under.append(Shape("bar", x, y, THIN, colour, glyph="", dx=line[0], dy=line[1]))
        if agent:
            under.append(Shape("circle", x, y, 2 * (unit.range + unit.radius), colour, glyph=""))
        letter = LETTERS[unit.name]
        shape, glyph = ("disc", letter) if agent else ("square", letter.lower())
        size = 2 * unit.radius
        bodies.append(Shape(shape, x, y, max(size, 0.9), colour, letter, glyph, ring=acts and _reaches(unit, index, s)))
        bars += _bars(x, y - max(unit.radius, 0.45) - 0.35, s.health[index] / unit.health, colour)
        if unit.shield:
            bars += _bars(x, y - max(unit.radius, 0.45) - 0.6, s.shield[index] / unit.shield, SHIELD)
    left = sum(health > 0 for health in s.health[:n]), sum(health > 0 for health in s.health[n:])
    caption = f"step {s.clock}/{horizon}, {left[0]} against {left[1]}"
    numbers = {"step": float(s.clock), "agents alive": float(left[0]), "enemies alive": float(left[1])}
    return Scene(MAP, MAP, (*under, *bodies, *bars), grid=False, caption=caption, extra=numbers)


def _bars(x: float, y: float, share: float, colour: int) -> list[Shape]:
    """A full bar in grey under the part that is left."""
    full = Shape("bar", x - 0.6, y, BAR, NOBODY, glyph="", dx=1.2)
    return [full, Shape("bar", x - 0.6, y, BAR, colour, glyph="", dx=1.2 * min(max(share, 0.0), 1.0))]


def _reaches(unit: Unit, index: int, s: Any) -> bool:
    """Whether the target is in range, for a ring around those who fight."""
    target = s.target[index]
    return math.hypot(s.x[target] - s.x[index], s.y[target] - s.y[index]) <= unit.range + 2 * unit.radius
