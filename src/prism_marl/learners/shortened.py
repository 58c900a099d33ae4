"""Updates that leave out the end of the time axis where no episode of a batch has reached it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from prism_marl.learners.base import Trajectory

SHORTEST = 50  # steps below which cutting a block short saves less than another version costs to compile


def on_shortened(function: Callable[[Trajectory], Any], episodes: Trajectory, axis: str | None) -> Any:
    """The function of an episode block [t, b, ...] without time that no episode in it has reached.

    Shapes are fixed when compiling, so there is one version for the whole horizon, one for its half, and so on. Masks
    leave nothing of what is cut, so all versions mean the same; battles mostly end long before their clock.
    """
    lengths = [len(episodes.valid)]
    while lengths[0] >= 2 * SHORTEST:
        lengths.insert(0, -(-lengths[0] // 2))
    if len(lengths) == 1:
        return function(episodes)
    longest = jnp.max(jnp.sum(episodes.valid, axis=0))
    longest = longest if axis is None else jax.lax.pmax(longest, axis)

    def shortened(length: int) -> Callable[[Trajectory], Any]:
        horizon = lengths[-1]
        return lambda episodes: function(jax.tree.map(lambda leaf: leaf[: len(leaf) - horizon + length], episodes))

    which = jnp.searchsorted(jnp.asarray(lengths), longest)
    return jax.lax.switch(which, [shortened(length) for length in lengths], episodes)
