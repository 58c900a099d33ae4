"""Distances between units, and how overlapping bodies are pushed apart."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from prism_marl.envs.skirmish.state import Traits
from prism_marl.envs.skirmish.units import MAP

NUDGE = 1e-3  # units at exactly the same position are pushed apart along x, by index


class Pairs(NamedTuple):
    """From the unit of the row to the unit of the column."""

    dx: Float[Array, "u u"]
    dy: Float[Array, "u u"]
    distance: Float[Array, "u u"]  # between centres
    gap: Float[Array, "u u"]  # between edges; negative where bodies overlap


def pairs(x: Float[Array, " u"], y: Float[Array, " u"], radius: Float[Array, " u"]) -> Pairs:
    """All distances between units."""
    dx, dy = x[None, :] - x[:, None], y[None, :] - y[:, None]
    distance = jnp.sqrt(dx**2 + dy**2)
    return Pairs(dx, dy, distance, distance - (radius[None, :] + radius[:, None]))


def part(
    between: Pairs, alive: Bool[Array, " u"], walking: Bool[Array, " u"], traits: Traits
) -> tuple[Float[Array, " u"], Float[Array, " u"]]:
    """How far overlapping bodies are pushed: a walking unit gives way to a standing one, else both move half."""
    touching = traits.collides & alive[:, None] & alive[None, :]
    way = walking.astype(jnp.float32)
    share = 0.5 + 0.5 * (way[:, None] - way[None, :])
    push = jnp.where(touching, jnp.maximum(-between.gap, 0.0) * share, 0.0) / jnp.maximum(between.distance, NUDGE)
    index = np.arange(alive.size)
    aside = NUDGE * np.sign(index[None, :] - index[:, None]).astype(np.float32)
    return -jnp.sum(push * (between.dx + aside), axis=1), -jnp.sum(push * between.dy, axis=1)


def inside(x: Float[Array, " u"], radius: Float[Array, " u"]) -> Float[Array, " u"]:
    """Keep bodies on the map."""
    return jnp.clip(x, radius, MAP - radius)


def settle(
    x: Float[Array, " u"],
    y: Float[Array, " u"],
    alive: Bool[Array, " u"],
    walking: Bool[Array, " u"],
    traits: Traits,
) -> tuple[Float[Array, " u"], Float[Array, " u"]]:
    """Push overlapping bodies apart once, and keep them on the map."""
    px, py = part(pairs(x, y, traits.radius), alive, walking, traits)
    return inside(x + px, traits.radius), inside(y + py, traits.radius)
