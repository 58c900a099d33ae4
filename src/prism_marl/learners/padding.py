"""What an update does about padding: rows hold several episodes, in small blocks on a CPU, in one on an accelerator.

On a CPU, blocks that fit its cache are fastest, however many; an accelerator computes one block in the time of its
longest row.
"""

from collections.abc import Callable
from typing import Any

import jax

from prism_marl.learners.base import Trajectory
from prism_marl.learners.packed import Packing, in_fewer_rows, over_rows


def without_padding(part: Callable[[Trajectory, Packing | None], Any], episodes: Trajectory, axis: str | None) -> Any:
    """Sums over the steps of an episode block [t, b, ...]. ``part`` computes those of some rows, which hold the
    episodes as a packing says, or where it is None as they are."""
    lay = over_rows if in_blocks() else in_fewer_rows
    return lay(lambda packing: part(episodes, packing), episodes, axis)


def in_blocks() -> bool:
    """Whether rows are computed in small blocks."""
    return jax.default_backend() == "cpu"
