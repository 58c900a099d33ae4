"""Experiments that train in a second or two, and what to compare of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from prism_marl.collect.compiled import CompiledCollector
from prism_marl.envs.base import JaxEnv
from prism_marl.experiment.experiment import Experiment
from prism_marl.experiment.presets import preset
from prism_marl.runs import checkpoint
from prism_marl.training.trainer import Trainer

SMALL = {
    "network.width": "8",
    "learner.embed": "4",
    "learner.hypernet": "4",
    "learner.batch": "4",
    "learner.buffer": "16",
    "run.envs": "2",
    "run.eval_episodes": "4",
    "run.measures": "0",  # another program to compile; tests/test_diversity.py measures
}


SMALL_STEPS = {
    "network.width": "8",
    "learner.critic_width": "8",
    "learner.n_critics": "2",
    "learner.batch": "8",
    "learner.buffer": "120",
    "learner.warmup": "20",
    "learner.train_interval": "5",
    "learner.updates": "5",
    "run.envs": "2",
    "run.steps": "200",
    "run.eval_every": "50",
    "run.eval_episodes": "3",
    "run.measures": "0",
}  # MATD3: intervals of ten steps, and a ring that wraps


def small(task: str, method: str, **changes: str) -> Experiment:
    """The task's preset at a tiny size; changes are written ``run__steps="5"``."""
    return _changed(preset(task, method), SMALL, changes)


def small_steps(task: str = "reach/3", method: str = "prism", **changes: str) -> Experiment:
    """The same for tasks that MATD3 learns."""
    return _changed(preset(task, method), SMALL_STEPS, changes)


def _changed(experiment: Experiment, sizes: dict[str, str], changes: dict[str, str]) -> Experiment:
    for path, text in (sizes | {name.replace("__", "."): text for name, text in changes.items()}).items():
        experiment = experiment.with_option(path, text)
    return experiment


def foraging() -> Experiment:
    """Two seeds of Prism with revivals on the smallest field; forty evaluations, so that there is much to interrupt."""
    return small(
        "lbf/4x4-2p-1f",
        "prism",
        run__steps="4000",
        run__seeds="2",
        run__seed="5",
        run__eval_every="100",
        learner__target_interval="5",
        sharing__reset_interval="700",
        sharing__threshold_shift="0",
    )


def long_roles() -> Experiment:
    """Compiles at once and has thirty evaluations to be interrupted at."""
    return small("roles/2", "fups", run__steps="1500", run__eval_every="50", run__seeds="2", run__seed="5")


def rows_of(folder: Path, name: str = "eval") -> list[dict[str, Any]]:
    """The rows of a file of a run folder."""
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def same_result(one: Path, other: Path) -> bool:
    """Equal rows, byte by byte, and equal final states."""
    files = ("config.json", "eval.jsonl", "train.jsonl")
    rows = all((one / name).read_bytes() == (other / name).read_bytes() for name in files)
    return rows and same_arrays(final_state(one), final_state(other))


def record(folder: Path) -> dict[str, bytes]:
    """Every file that must be the same, byte by byte, whenever an experiment is run again."""
    names = ["config.json", "eval.jsonl", "train.jsonl", "replays/seed-5.json"]
    names += sorted(str(path.relative_to(folder)) for path in (folder / "spectra").glob("*"))
    return {name: (folder / name).read_bytes() for name in names}


def final_state(folder: Path) -> dict[str, np.ndarray]:
    """All arrays of the newest checkpoint."""
    return safetensors.numpy.load_file(checkpoint.paths(folder / "checkpoints")[0])


def same_arrays(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """Equal names, types and bits."""
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and one[name].tobytes() == other[name].tobytes() for name in one
    )


def trainer_of(experiment: Experiment, env: JaxEnv) -> Trainer:
    """A trainer of an environment that is no registered task."""
    run = experiment.run
    sizes = {"width": experiment.network.width, "rows": run.envs, "steps": run.steps}
    learner = experiment.learner.learner(experiment.sharing, env.spec, **sizes)
    return Trainer(experiment, learner, CompiledCollector(env, run.seed, run.seeds, run.envs))
