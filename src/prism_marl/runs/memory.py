"""Whether the memory of a machine is enough for a run, asked before anything is allocated."""

import jax

from prism_marl.errors import UserError
from prism_marl.runs.machine import free_bytes
from prism_marl.training.state import TrainState
from prism_marl.training.trainer import Trainer


def check_memory(trainer: Trainer) -> TrainState:
    """Shapes of the training state; it is refused before anything is allocated if it cannot fit."""
    replay, free = trainer.buffer_bytes(), free_bytes()
    if free is not None and replay > free:
        raise UserError(
            f"replay needs {replay / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free: lower learner.buffer or run.seeds"
        )
    state = trainer.shapes()
    needed = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    if free is not None and needed > free:
        raise UserError(
            f"networks and replay need {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free: "
            "lower network.width or other sizes, or run.seeds"
        )
    return state
