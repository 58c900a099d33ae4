"""Describes every number of an agent's observation; docs/environments.md has the same list."""

from dataclasses import dataclass

from prism_marl.envs.skirmish.env import Skirmish


@dataclass(frozen=True)
class Field:
    """One number of the observation, or one of each of ``count`` units at index, index + stride, ..."""

    index: int
    stride: int
    count: int
    name: str
    low: int
    high: int
    meaning: str


def fields(env: Skirmish) -> tuple[Field, ...]:
    """Every number of one agent's observation, in order. A dead agent observes zeros."""
    names = [unit.name for unit in env.table.units]
    shield = [("shield", 0, "share of the shields that is left")] * env.table.shielded
    body = [("health", 0, "share of the health that is left"), *shield]
    bits = [(f"is_{name}", 0, f"1: a {name}") for name in names]
    position = [
        ("distance", 0, "between centres, over the agent's sight"),
        ("dx", -1, "to the east, over the agent's sight"),
        ("dy", -1, "to the north, over the agent's sight"),
    ]
    mark = "1: legal target now"
    if env.table.fights_with("heal"):
        mark += "; of a medivac, whether it can heal agent k"
    enemy = [("target", 0, mark), *position, *body, *bits]
    ally = [("seen", 0, "1: alive and within sight"), *position, *body, *bits]
    spot = [("x", 0, "own place, 0 west to 1 east"), ("y", 0, "own place, 0 south to 1 north")]
    ways = [("north", 0), ("south", 0), ("east", 0), ("west", 0)]
    moves = [(way, low, f"1: may walk {way}") for way, low in ways]
    out: list[Field] = []
    start = 0
    for owner, count, parts in (
        ("move", 1, moves),
        ("enemy<k>", env.enemies, enemy),
        ("ally<k>", env.agents - 1, ally),
        ("own", 1, [*body, *spot, *bits]),
    ):
        for offset, (name, low, meaning) in enumerate(parts):
            out.append(Field(start + offset, len(parts), count, f"{owner}.{name}", low, 1, meaning))
        start += count * len(parts)
    return tuple(out)
