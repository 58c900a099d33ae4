"""The nine unit types of the battles, one row each, as StarCraft II's data files state them.

Numbers are per "normal" game second of 16 loops. Sources: health, shields, armor, speed, radius, sight, attributes and
regeneration are from the unit data in SMAC's map ``32x32_flat``; weapons and the differences of the enemy's stock units
from the API dump of sc2-techtree; splash shapes and healing from smaclite; that healing does not add up, and that a
baneling bursts however it dies, from the players' wikis. SMACv2's code masks and scales by ``range``, ``sight`` and
``state_cooldown``.
"""

from dataclasses import dataclass, replace
from typing import Literal

LOOPS = 16  # loops of the game in one second
SUBSTEPS = 8  # loops in one step of the environment
MAP = 32.0  # side of the square map

JITTER = (-1, 0, 1, 2)  # loops by which a weapon's cooldown varies from shot to shot
LEAST_DAMAGE = 0.5  # of a hit, whatever the armor
SHIELD_WAIT = 10.0  # seconds without damage until shields recover
SHIELD_RATE = 2.0  # shield points per second
LINE_LENGTH, LINE_WIDTH = 2.8, 0.3  # area of a colossus' attack, across its aim
BURST_RADIUS = 2.2  # of a baneling
HEAL_RATE, HEAL_PER_ENERGY = 9.0, 3.0  # health points per second, and for one point of energy
ENERGY_START, ENERGY_MOST, ENERGY_RATE = 50.0, 200.0, 0.5625

Class = Literal["light", "armored", "none"]
Shot = Literal["single", "line", "burst", "heal"]


@dataclass(frozen=True)
class Unit:
    """One unit type."""

    name: str
    health: float
    shield: float
    armor: float
    damage: float  # of one hit
    bonus: float  # added to each hit against units of class ``against``
    against: Class
    hits: int  # in one attack
    cooldown: float  # seconds between attacks
    range: float  # from edge to edge
    speed: float  # cells per second
    radius: float
    sight: float
    body: Class
    state_cooldown: float  # SMACv2 divides the cooldown (a medivac's energy) by this in the state
    regeneration: float = 0.0  # health points per second
    shot: Shot = "single"
    flies: bool = False
    hits_air: bool = False
    enemy_health: float | None = None  # if the enemy's stock unit differs
    enemy_speed: float | None = None

    def as_enemy(self) -> "Unit":
        """The same type as the enemy has it: StarCraft's stock unit instead of SMAC's customised copy."""
        return replace(self, health=self.enemy_health or self.health, speed=self.enemy_speed or self.speed)


# fmt: off
# ruff: noqa: E501 - a table reads best with one unit a row
#                 name        health shield armor damage bonus against   hits cooldown range speed radius  sight body    scale
MARINE    = Unit("marine",       45,    0,    0,     6,    0, "none",     1,  0.861, 5.0,  2.25,  0.375,   9, "light",    15, hits_air=True)
MARAUDER  = Unit("marauder",    125,    0,    1,    10,   10, "armored",  1,  1.5,   6.0,  2.25,  0.5625, 10, "armored",  25)
MEDIVAC   = Unit("medivac",     150,    0,    1,     0,    0, "none",     0,  0.0,   4.0,  2.75,  0.75,   11, "armored", 200, shot="heal", flies=True, enemy_speed=2.5)
STALKER   = Unit("stalker",      80,   80,    1,    13,    5, "armored",  1,  1.87,  6.0,  2.953, 0.625,  10, "armored",  35, hits_air=True)
ZEALOT    = Unit("zealot",      100,   50,    1,     8,    0, "none",     2,  1.2,   0.1,  2.25,  0.5,     9, "light",    22)
COLOSSUS  = Unit("colossus",    200,  150,    1,    10,    5, "light",    2,  1.5,   7.0,  2.25,  1.0,    10, "armored",  24, shot="line")
ZERGLING  = Unit("zergling",     35,    0,    0,     5,    0, "none",     1,  0.696, 0.1,  2.953, 0.375,   8, "light",    11, 0.273)
HYDRALISK = Unit("hydralisk",    80,    0,    0,    12,    0, "none",     1,  0.825, 5.0,  2.25,  0.625,   9, "light",    10, 0.273, hits_air=True, enemy_health=90)
BANELING  = Unit("baneling",     30,    0,    0,    20,   15, "light",    1,  0.0,   0.25, 2.5,   0.375,   8, "none",      1, 0.273, shot="burst")
# fmt: on


@dataclass(frozen=True)
class Race:
    """Three unit types, in the order of the type bits in SMACv2's observations."""

    name: str
    units: tuple[Unit, Unit, Unit]
    weights: tuple[float, float, float] = (0.45, 0.45, 0.1)
    never_alone: int | None = None  # this type may not make up a whole team

    @property
    def ranks(self) -> tuple[int, ...]:
        """Rank of each type in the order of StarCraft's unit ids, which is alphabetical; agents are sorted by it."""
        names = sorted(unit.name for unit in self.units)
        return tuple(names.index(unit.name) for unit in self.units)

    @property
    def shielded(self) -> bool:
        return any(unit.shield for unit in self.units)

    def fights_with(self, shot: Shot) -> bool:
        """Whether any type has this kind of attack; rules that no type needs are not compiled."""
        return any(unit.shot == shot for unit in self.units)


RACES: dict[str, Race] = {
    "terran": Race("terran", (MARINE, MARAUDER, MEDIVAC), never_alone=2),
    "protoss": Race("protoss", (STALKER, ZEALOT, COLOSSUS)),
    "zerg": Race("zerg", (ZERGLING, HYDRALISK, BANELING), never_alone=2),
}


MOST_HITS = max(unit.hits for race in RACES.values() for unit in race.units)


def hit(attacker: Unit, target: Unit) -> float:
    """Damage of one hit before shields and armor; 0 where the attacker cannot reach the target's layer."""
    if attacker.shot == "heal" or (target.flies and not attacker.hits_air):
        return 0.0
    return attacker.damage + (attacker.bonus if attacker.against == target.body != "none" else 0.0)
