"""The state of a battle, and the numbers of each unit that the rules need.

Units are one axis ``u``: first the agents' team of n, then the enemies.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from prism_marl.envs.skirmish.units import LEAST_DAMAGE, LOOPS, Race, Unit, hit


class State(NamedTuple):
    """A battle. A unit with health 0 is dead and keeps its position."""

    kind: Int[Array, " u"]  # index into the race's three types
    x: Float[Array, " u"]
    y: Float[Array, " u"]
    health: Float[Array, " u"]
    shield: Float[Array, " u"]
    energy: Float[Array, " u"]
    cooldown: Float[Array, " u"]  # loops until the weapon is ready
    calm: Float[Array, " u"]  # loops since the last damage
    target: Int[Array, " u"]  # the unit that is attacked or healed; -1: none
    bursting: Bool[Array, " u"]  # banelings that died in the last loop
    last_action: Int[Array, " n"]  # -1 at the start
    spotter: Int[Array, " m"]  # the agent that first saw this enemy, or -1; only the published observations need it
    clock: Int[Array, ""]


class Traits(NamedTuple):
    """The table of units for the units of one battle; constant during the battle."""

    health: Float[Array, " u"]
    shield: Float[Array, " u"]
    radius: Float[Array, " u"]
    speed: Float[Array, " u"]  # cells per loop
    range: Float[Array, " u"]
    cooldown: Float[Array, " u"]  # loops
    hits: Float[Array, " u"]
    armor: Float[Array, " u"]
    regeneration: Float[Array, " u"]  # health points per loop
    mates: Bool[Array, "u u"]  # same side
    damage: Float[Array, "u u"]  # one hit of the row's unit on the column's, before shields and armor
    through: Float[Array, "u u"]  # a whole attack on the column's health, if it has no shields left
    heals: Bool[Array, "u u"]  # whether the row's unit can heal the column's
    collides: Bool[Array, "u u"]  # same layer, not itself


def pick(kind: Int[Array, "*u"], values: Iterable[float]) -> Float[Array, "*u"]:
    """``values[kind]`` for the three types of a race, without a gather."""
    first, second, third = (np.float32(value) for value in values)
    return jnp.where(kind == 0, first, jnp.where(kind == 1, second, third))


def by_side(race: Race, kind: Int[Array, " u"], agents: int, mirror: bool, value: Callable[[Unit], float]):
    """A number of each unit, read from its row of the table: the agents' or the enemy's."""
    theirs = race.units if mirror else [unit.as_enemy() for unit in race.units]
    own, other = [value(unit) for unit in race.units], [value(unit) for unit in theirs]
    if own == other:
        return pick(kind, own)
    return jnp.concatenate([pick(kind[:agents], own), pick(kind[agents:], other)])


def traits(race: Race, kind: Int[Array, " u"], agents: int, mirror: bool) -> Traits:
    """Read all numbers from the table, once per step."""

    def column(value: Callable[[Unit], float]) -> Float[Array, " u"]:
        return by_side(race, kind, agents, mirror, value)

    units = race.units
    side = np.arange(kind.size) < agents
    opposed = side[:, None] != side
    flies = pick(kind, [float(unit.flies) for unit in units])
    medic = pick(kind, [float(unit.shot == "heal") for unit in units])
    per_target = [pick(kind, [hit(attacker, target) for target in units])[None, :] for attacker in units]
    who = kind[:, None]
    damage = jnp.where(who == 0, per_target[0], jnp.where(who == 1, per_target[1], per_target[2]))
    damage = jnp.where(opposed, damage, 0.0)
    armor, hits = column(lambda unit: unit.armor), column(lambda unit: unit.hits)
    through = jnp.where(damage > 0, jnp.maximum(damage - armor[None, :], LEAST_DAMAGE) * hits[:, None], 0.0)
    return Traits(
        health=column(lambda unit: unit.health),
        shield=column(lambda unit: unit.shield),
        radius=column(lambda unit: unit.radius),
        speed=column(lambda unit: unit.speed / LOOPS),
        range=column(lambda unit: unit.range),
        cooldown=column(lambda unit: unit.cooldown * LOOPS),
        hits=hits,
        armor=armor,
        regeneration=column(lambda unit: unit.regeneration / LOOPS),
        mates=jnp.asarray(~opposed),
        damage=damage,
        through=through,
        heals=(medic[:, None] > 0) & (medic[None, :] == 0) & ~opposed,  # of these units only medivacs are machines
        collides=(flies[:, None] == flies[None, :]) & ~np.eye(kind.size, dtype=bool),
    )
