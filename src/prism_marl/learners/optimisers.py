"""Adam for methods that train one part of a network after another (LoRASA)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from prism_marl.sharing.base import Sharing


class Moments(NamedTuple):
    """Per array: running means of the gradient and of its square, and the number of steps behind them."""

    mean: Any
    square: Any
    count: Any


def adam(lr: float, sharing: Sharing, eps: float = 1e-8) -> optax.GradientTransformation:
    """Adam with PyTorch's constants but for ``eps``; where the method has phases, with a count of steps for each array.

    An array whose gradient is exactly zero is asleep: it stands still and its moments stay as they are. So what a
    method freezes by ``Sharing.constrain`` starts later as under a new optimiser, and does not drift with old momentum.
    One count for all would make the first steps of a late starter several times too long, because Adam would no
    longer correct for moments that begin at zero.
    """
    return _patient_adam(lr, eps=eps) if sharing.phased else optax.adam(lr, eps=eps)


def _patient_adam(lr: float, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> optax.GradientTransformation:
    def init(params) -> Moments:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return Moments(zeros, zeros, jax.tree.map(lambda _: jnp.zeros((), jnp.int32), params))

    def one(gradient, mean, square, count) -> tuple[Array, Array, Array, Array]:
        awake = jnp.any(gradient != 0)
        step = count + 1
        new_mean = b1 * mean + (1 - b1) * gradient
        new_square = b2 * square + (1 - b2) * gradient**2
        size = jnp.sqrt(new_square / (1 - b2**step)) + eps
        moved = (-lr * new_mean / (1 - b1**step) / size, new_mean, new_square, step)
        still = (jnp.zeros_like(gradient), mean, square, count)
        return jax.tree.map(lambda new, old: jnp.where(awake, new, old), moved, still)

    def update(updates, state, params=None):
        del params
        leaves, structure = jax.tree.flatten(updates)
        held = zip(leaves, *(jax.tree.leaves(part) for part in state), strict=True)
        changed = zip(*(one(*parts) for parts in held), strict=True)
        moves, mean, square, count = (structure.unflatten(part) for part in changed)
        return moves, Moments(mean, square, count)

    return optax.GradientTransformation(init, update)
