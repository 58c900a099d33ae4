"""What an update does about padding: rows that hold several episodes on a CPU, a shorter time axis on an accelerator.

On a CPU a step of a recurrence takes the time of its products, so fewer rows are faster; on an accelerator steps take
the time of starting them, whatever they compute.
"""

from collections.abc import Callable
from typing import Any

import jax

from prism_marl.learners.base import Trajectory
from prism_marl.learners.packed import Packing, over_rows
from prism_marl.learners.shortened import on_shortened


def without_padding(part: Callable[[Trajectory, Packing | None], Any], episodes: Trajectory, axis: str | None) -> Any:
    """Sums over the steps of an episode block [t, b, ...]. ``part`` computes those of some rows, which hold the
    episodes as a packing says, or where it is None as they are."""
    if packs():
        return over_rows(lambda packing: part(episodes, packing), episodes, axis)
    return on_shortened(lambda episodes: part(episodes, None), episodes, axis)


def packs() -> bool:
    """Whether episodes are packed."""
    return jax.default_backend() == "cpu"
