"""Numbers in a network that do not train. What is floating trains, so they are kept as the bits of their float32."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def as_bits(number: Float[Array, "*n"]) -> Int[Array, "*n"]:
    """Floats as integers of the same bits."""
    return jax.lax.bitcast_convert_type(jnp.asarray(number, jnp.float32), jnp.int32)


def from_bits(bits: Int[Array, "*n"]) -> Float[Array, "*n"]:
    """The floats again."""
    return jax.lax.bitcast_convert_type(bits, jnp.float32)
