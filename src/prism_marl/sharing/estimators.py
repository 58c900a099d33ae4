"""A step function with a straight-through gradient, so that masks of 0 and 1 can be learned."""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

StraightThrough = Literal["tanh", "identity", "sigmoid"]


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def step_function(x: Float[Array, "*f"], backward: StraightThrough = "tanh") -> Float[Array, "*f"]:
    """1 where x > 0, else 0. The gradient passed on is ``tanh`` of the incoming gradient (Kaleidoscope's estimator,
    which bounds it), the incoming gradient itself, or the incoming gradient times the slope of a sigmoid."""
    return (x > 0).astype(x.dtype)


def _forward(x, backward):
    return step_function(x, backward), x


def _backward(backward, x, gradient):
    if backward == "tanh":
        return (jnp.tanh(gradient),)
    if backward == "identity":
        return (gradient,)
    slope = jax.nn.sigmoid(x)
    return (gradient * slope * (1 - slope),)


step_function.defvjp(_forward, _backward)
