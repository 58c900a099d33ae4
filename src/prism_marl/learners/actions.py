"""Choosing and looking up discrete actions."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

UNAVAILABLE = -1e7  # below every value a network produces


def explored(
    key: Key[Array, ""], greedy: Int[Array, "*b a"], avail: Bool[Array, "*b a u"], epsilon: Float[Array, ""]
) -> Int[Array, "*b a"]:
    """The greedy actions, each with probability epsilon replaced by a uniform legal one."""
    # One draw serves both decisions: where it is uniform in [0, 1), the part below epsilon is uniform again.
    draw = jax.random.uniform(key, greedy.shape)
    legal = jnp.cumsum(avail, axis=-1)
    rank = jnp.floor(draw / jnp.maximum(epsilon, 1e-9) * legal[..., -1]).astype(legal.dtype)
    rank = jnp.minimum(rank, legal[..., -1] - 1)  # a compiler's division may round up to one
    uniform = jnp.argmax((legal == rank[..., None] + 1) & avail, axis=-1)
    return jnp.where(draw < epsilon, uniform, greedy)


def pick(values: Float[Array, "*b u"], action: Int[Array, "*b"]) -> Float[Array, "*b"]:
    """The value of the chosen action, by a comparison that fuses where a gather would not."""
    chosen = jnp.arange(values.shape[-1]) == action[..., None]
    return jnp.sum(jnp.where(chosen, values, 0.0), axis=-1)
