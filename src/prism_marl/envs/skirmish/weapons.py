"""Attacks and their effects: shots, lines of fire, bursts, shields, armor and healing."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from prism_marl.envs.skirmish.geometry import Pairs
from prism_marl.envs.skirmish.state import Traits
from prism_marl.envs.skirmish.units import (
    BURST_RADIUS,
    HEAL_PER_ENERGY,
    HEAL_RATE,
    LEAST_DAMAGE,
    LINE_LENGTH,
    LINE_WIDTH,
    LOOPS,
    MOST_HITS,
)


def line(between: Pairs, aim: Bool[Array, "u u"], traits: Traits) -> Bool[Array, "u u"]:
    """Opponents whose bodies touch the line of fire of a colossus: through its target, across its aim."""
    tx, ty = (jnp.sum(jnp.where(aim, part, 0.0), axis=1)[:, None] for part in (between.dx, between.dy))
    length = jnp.maximum(jnp.sqrt(tx**2 + ty**2), 1e-6)
    ox, oy = between.dx - tx, between.dy - ty
    along, across = jnp.abs(ox * tx + oy * ty) / length, jnp.abs(ox * ty - oy * tx) / length
    radius = traits.radius[None, :]
    return (along <= LINE_WIDTH / 2 + radius) & (across <= LINE_LENGTH / 2 + radius) & (traits.damage > 0)


def burst(between: Pairs, bursting: Bool[Array, " u"], traits: Traits) -> Bool[Array, "u u"]:
    """Opponents whose bodies are in reach of a bursting baneling."""
    return bursting[:, None] & (between.distance - traits.radius[None, :] <= BURST_RADIUS) & (traits.damage > 0)


def harm(
    struck: Bool[Array, "u u"], health: Float[Array, " u"], shield: Float[Array, " u"], traits: Traits, shielded: bool
) -> tuple[Float[Array, " u"], Float[Array, " u"]]:
    """Health and shields after these attacks, which all happen at once.

    Shields take whole hits, and armor does not reduce these; it reduces the rest of each hit that goes through to the
    health. Attackers come in the order of their index, which matters only for the hit that empties the shields.
    """
    if not shielded:
        return health - jnp.sum(jnp.where(struck, traits.through, 0.0), axis=0), shield
    damage = jnp.where(struck, traits.damage, 0.0)
    attack = damage * traits.hits[:, None]
    earlier = jnp.cumsum(attack, axis=0) - attack  # what has come before the row's attacker
    lost = jnp.zeros_like(attack)
    for number in range(MOST_HITS):
        left = jnp.maximum(shield - earlier - number * damage, 0.0)
        broken = jnp.maximum(damage - left, 0.0)  # of this hit
        counts = (broken > 0) & (number < traits.hits)[:, None]
        lost = lost + jnp.where(counts, jnp.maximum(broken - traits.armor, LEAST_DAMAGE), 0.0)
    return health - jnp.sum(lost, axis=0), jnp.maximum(shield - jnp.sum(attack, axis=0), 0.0)


def mend(
    reached: Bool[Array, "u u"], health: Float[Array, " u"], energy: Float[Array, " u"], traits: Traits
) -> tuple[Float[Array, " u"], Float[Array, " u"]]:
    """Health and energy after one loop of healing. Only the first medivac in reach heals a unit; healing does not add
    up."""
    able = reached & traits.heals & (health > 0)[None, :] & (energy > 0)[:, None]
    first = able & (jnp.argmax(able, axis=0)[None, :] == np.arange(health.size)[:, None])
    missing = jnp.maximum(traits.health - health, 0.0)
    most = jnp.minimum(HEAL_RATE / LOOPS, energy * HEAL_PER_ENERGY)
    given = jnp.where(first, jnp.minimum(most[:, None], missing[None, :]), 0.0)
    return health + jnp.sum(given, axis=0), energy - jnp.sum(given, axis=1) / HEAL_PER_ENERGY
