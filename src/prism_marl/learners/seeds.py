"""Functions of one seed, made functions of all seeds."""

from collections.abc import Callable
from typing import Any

import jax

from prism_marl.learners.base import SEEDS

Axes = int | None | tuple[int | None, ...]


def map_seeds(function: Callable[..., Any], in_axes: Axes = 0, out_axes: Axes = 0) -> Callable[..., Any]:
    """``jax.vmap`` along the axis of seeds, which is named ``SEEDS``; axes are 0, or None for what has no such axis.

    One seed is computed without the axis, which is put back afterwards: a product with a batch axis of length 1 is
    slower on a CPU than one without. The name is bound all the same, so that learners may use collectives.
    """

    def mapped(*arguments: Any) -> Any:
        axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(arguments)
        seeds = _length(axes, arguments)
        if seeds > 1:
            return jax.vmap(function, in_axes, out_axes, axis_name=SEEDS)(*arguments)
        alone = [_each(_without, axis, argument) for axis, argument in zip(axes, arguments, strict=True)]
        result = jax.vmap(function, None, None, axis_name=SEEDS, axis_size=1)(*alone)
        if isinstance(out_axes, tuple):
            return tuple(_each(_with, axis, part) for axis, part in zip(out_axes, result, strict=True))
        return _each(_with, out_axes, result)

    return mapped


def without_axis(tree: Any) -> Any:
    """What belongs to the only seed."""
    return jax.tree.map(_without, tree)


def with_axis(tree: Any) -> Any:
    """The opposite of ``without_axis``."""
    return jax.tree.map(_with, tree)


def _length(axes: tuple[int | None, ...], arguments: tuple[Any, ...]) -> int:
    leaves = jax.tree.leaves([part for axis, part in zip(axes, arguments, strict=True) if axis is not None])
    return leaves[0].shape[0]


def _each(change: Callable[[Any], Any], axis: int | None, tree: Any) -> Any:
    return tree if axis is None else jax.tree.map(change, tree)


def _without(leaf: Any) -> Any:
    return jax.lax.squeeze(leaf, (0,))


def _with(leaf: Any) -> Any:
    return jax.lax.expand_dims(leaf, (0,))
