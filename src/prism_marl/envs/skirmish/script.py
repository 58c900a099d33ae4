"""The opponent: SMAC's map script, by which every idle enemy attacks the closest unit until that one is dead."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from prism_marl.envs.skirmish.geometry import Pairs
from prism_marl.envs.skirmish.state import State, Traits
from prism_marl.envs.skirmish.units import Race

FAR = 1e6


def retarget(race: Race, traits: Traits, state: State, between: Pairs) -> Int[Array, " u"]:
    """The target that the script gives each unit; -1: there is none.

    Fighters keep their target while it lives, then take the closest opponent that they can hit. A medivac has no
    weapon: its target is the closest hurt unit of its team, or the closest opponent while no unit is hurt.
    """
    alive = state.health > 0
    prey = (traits.damage > 0) & alive[None, :]
    numbers = jnp.arange(alive.size)
    keep = jnp.any((state.target[:, None] == numbers) & prey, axis=1)
    if race.fights_with("heal"):
        hurt = traits.heals & (alive & (state.health < traits.health))[None, :]
        called = jnp.any(hurt, axis=1) & (state.energy > 0)
        medic = traits.hits == 0
        foes = ~traits.mates & alive[None, :]
        prey = jnp.where(medic[:, None], jnp.where(called[:, None], hurt, foes), prey)
    return jnp.where(keep, state.target, closest(prey, between.distance))


def closest(prey: Bool[Array, "u u"], distance: Float[Array, "u u"]) -> Int[Array, " u"]:
    """The nearest column that is allowed, or -1."""
    best = jnp.argmin(jnp.where(prey, distance, FAR), axis=1)
    return jnp.where(prey.any(axis=1), best, -1).astype(jnp.int32)
