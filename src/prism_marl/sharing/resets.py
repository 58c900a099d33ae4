"""New directions for a factorised layer whose old ones nobody uses."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key


def fresh_directions(
    key: Key[Array, ""], factor: Float[Array, "d r"], chosen: Bool[Array, " r"]
) -> Float[Array, "d r"]:
    """Replace the chosen columns by random unit vectors orthogonal to all others and to each other.

    QR orthogonalises from left to right, so the kept columns go first and leave their span to none of the new ones.
    The kept columns themselves stay exactly as they are.
    """
    order = jnp.argsort(chosen)  # False before True; stable
    mixed = jnp.where(chosen, jax.random.normal(key, factor.shape), factor)
    orthonormal, _ = jnp.linalg.qr(mixed[:, order])
    return jnp.where(chosen, orthonormal[:, jnp.argsort(order)], factor)
