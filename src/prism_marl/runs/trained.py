"""A run folder opened again: its trainer and its newest whole state."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from prism_marl.errors import UserError
from prism_marl.runs import checkpoint
from prism_marl.runs.folder import load_experiment, owner
from prism_marl.training.build import make_trainer
from prism_marl.training.state import TrainState
from prism_marl.training.trainer import Trainer

UNSEEN = 2**31 - 1  # number of an evaluation whose episodes training never played


def load_trained(folder: Path, episodes: int | None = None) -> tuple[Trainer, TrainState, list[str]]:
    """The trainer, the state, and a sentence for each damaged checkpoint that was passed over. The caller closes the
    trainer. ``episodes`` replaces the number of episodes that the run's evaluations have."""
    experiment = load_experiment(folder)
    if episodes is not None:
        experiment = experiment.with_option("run.eval_episodes", str(episodes))
    experiment.validate()
    trainer = make_trainer(experiment)
    try:
        # Nothing is learned here, so the replay, which is most of a checkpoint, is not loaded.
        template = eqx.tree_at(lambda state: state.seeds.buffer, trainer.shapes(), ())
        restored = checkpoint.load_newest(folder / "checkpoints", template, owner(folder), without="seeds.buffer.")
        if restored is None:
            raise UserError(f"{folder} has no checkpoint yet; let `prism-marl train` reach its first evaluation")
    except BaseException:
        trainer.close()
        raise
    state, _, complaints = restored
    return trainer, state, [f"{complaint}; using the one before" for complaint in complaints]


def measured(trainer: Trainer, state: TrainState) -> dict[str, np.ndarray]:
    """Means over greedy episodes that training never played, one number per seed."""
    play = trainer.evaluate if "evaluate" in trainer.eager else jax.jit(trainer.evaluate)
    return {name: np.asarray(value) for name, value in jax.device_get(play(state, jnp.int32(UNSEEN))).items()}
