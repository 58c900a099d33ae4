"""Choosing and looking up discrete actions."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

UNAVAILABLE = -1e7  # below every value a network produces


def explored(
    key: Key[Array, ""], greedy: Int[Array, "*b a"], avail: Bool[Array, "*b a u"], epsilon: Float[Array, ""]
) -> Int[Array, "*b a"]:
    """The greedy actions, each with probability epsilon replaced by a uniform legal one."""
    return replaced(jnp, jax.random.uniform(key, greedy.shape), greedy, avail, epsilon)


def replaced(numpy: Any, draw: Any, greedy: Any, avail: Any, epsilon: Any) -> Any:
    """``explored`` with the uniform numbers given, in jax.numpy or numpy."""
    # One draw serves both decisions: where it is uniform in [0, 1), the part below epsilon is uniform again.
    legal = numpy.cumsum(avail, axis=-1, dtype=numpy.int32)
    number = legal[..., -1]
    rank = numpy.floor(draw / numpy.maximum(epsilon, 1e-9) * number.astype(numpy.float32)).astype(numpy.int32)
    rank = numpy.minimum(rank, number - 1)  # a compiler's division may round up to one
    uniform = numpy.argmax((legal == rank[..., None] + 1) & avail, axis=-1)
    return numpy.where(draw < epsilon, uniform, greedy)


def pick(values: Float[Array, "*b u"], action: Int[Array, "*b"]) -> Float[Array, "*b"]:
    """The value of the chosen action, by a comparison that fuses where a gather would not."""
    chosen = jnp.arange(values.shape[-1]) == action[..., None]
    return jnp.sum(jnp.where(chosen, values, 0.0), axis=-1)
