"""New directions for a factorised layer, in place of directions that no identity uses."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from prism_marl.sharing.orthonormal import orthonormal


def fresh_directions(
    key: Key[Array, ""], factor: Float[Array, "d r"], chosen: Bool[Array, " r"]
) -> Float[Array, "d r"]:
    """Replace the chosen columns by random unit vectors orthogonal to all others and to each other.

    Columns are orthogonalised from left to right, so the kept columns go first. They stay exactly as they are.
    """
    order = jnp.argsort(chosen)  # False before True; stable
    mixed = jnp.where(chosen, jax.random.normal(key, factor.shape), factor)
    return jnp.where(chosen, orthonormal(mixed[:, order])[:, jnp.argsort(order)], factor)
