"""A battle as a drawing: discs are agents, squares are enemies, letters are unit types, bars are health and shields."""

import math
from typing import Any

from prism_marl.envs.skirmish.state import State
from prism_marl.envs.skirmish.units import MAP, Race
from prism_marl.scene import FOE, GOAL, NOBODY, SHIELD, Scene, Shape

LETTERS = {
    "marine": "M",
    "marauder": "R",
    "medivac": "V",
    "stalker": "S",
    "zealot": "Z",
    "colossus": "C",
    "zergling": "L",
    "hydralisk": "H",
    "baneling": "B",
}
BAR, THIN = 0.22, 0.07  # thickness
SMALLEST = 0.9  # width of a body, so that its letter is legible
TOUCH = 0.5  # a range smaller than this is not drawn


def battle_scene(race: Race, state: State, mirror: bool, horizon: int) -> Scene:
    """The battle; north is up. A thin line goes to the unit's target, a circle shows an agent's range."""
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
        x, y, colour = s.x[index], MAP - s.y[index], index if agent else FOE
        target = s.target[index]
        acts = target >= 0 and s.health[target] > 0
        if acts:
            line = (s.x[target] - x, MAP - s.y[target] - y)
            under.append(Shape("bar", x, y, THIN, colour, glyph="", dx=line[0], dy=line[1]))
        if agent and unit.range > TOUCH:
            under.append(Shape("circle", x, y, 2 * (unit.range + unit.radius), colour, glyph=""))
        letter = LETTERS[unit.name]
        shape, glyph = ("disc", letter) if agent else ("square", letter.lower())
        size = max(2 * unit.radius, SMALLEST)
        bodies.append(Shape(shape, x, y, size, colour, letter, glyph, ring=acts and _reaches(race, index, s)))
        bars += _bar(x, y + (size - BAR) / 2, size, s.health[index] / unit.health, GOAL)
        if unit.shield:
            bars += _bar(x, y - (size - BAR) / 2, size, s.shield[index] / unit.shield, SHIELD)
    alive = sum(health > 0 for health in s.health[:n]), sum(health > 0 for health in s.health[n:])
    caption = f"step {s.clock}/{horizon}, {alive[0]} against {alive[1]}"
    numbers = {"step": float(s.clock), "agents alive": float(alive[0]), "enemies alive": float(alive[1])}
    shapes = (*under, *bodies, *bars)
    return Scene(MAP, MAP, shapes, grid=False, caption=caption, extra=numbers, legend=_legend(race))


def _bar(x: float, y: float, size: float, share: float, colour: int) -> list[Shape]:
    """The share that is left, in colour on grey, inside the edge of the body, so that it hides no other unit."""
    full = size - BAR  # the ends are round
    lengths = ((NOBODY, full), (colour, full * min(max(share, 0.0), 1.0)))
    return [Shape("bar", x - full / 2, y, BAR, paint, glyph="", dx=length) for paint, length in lengths]


def _legend(race: Race) -> str:
    letters = ", ".join(f"{LETTERS[unit.name]} {unit.name}" for unit in race.units)
    shield = ", blue: shield" if race.shielded else ""
    signs = f"disc: agent, square: enemy; green: health{shield}; line: target, circle: range, ring: in range"
    return f"{letters}; {signs}"


def _reaches(race: Race, index: int, s: Any) -> bool:
    """Whether the target is in range, from edge to edge; such units have a ring."""
    target = s.target[index]
    unit, other = race.units[s.kind[index]], race.units[s.kind[target]]  # both sides have the same bodies and weapons
    apart = math.hypot(s.x[target] - s.x[index], s.y[target] - s.y[index])
    return apart <= unit.range + unit.radius + other.radius
