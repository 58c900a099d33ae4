"""The size of a reproduction: the paper's, one for a laptop, or one that only tests that everything works."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from prism_marl.errors import UserError, nearest
from prism_marl.experiment.experiment import Experiment
from prism_marl.paper.target import Curve


@dataclass(frozen=True)
class Scale:
    """Steps and seeds. ``options`` are fields for every family of tasks, by their dotted names."""

    name: str
    about: str
    seeds: int
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    essential: bool = False  # only the most important lines, compiled with few optimisations


_BATTLE_SMOKE = {
    "run.steps": 2_000, "run.eval_every": 1_000, "run.eval_episodes": 4, "learner.batch": 4, "learner.buffer": 32,
}  # fmt: skip
_SMOKE = {
    "lbf": {
        "run.steps": 2_000, "run.eval_every": 500, "run.eval_episodes": 8, "run.envs": 8,
        "learner.batch": 8, "learner.buffer": 64,
    },
    "skirmish": _BATTLE_SMOKE,
    "smacv2": _BATTLE_SMOKE,
    "mamujoco": {
        "run.steps": 2_000, "run.eval_every": 1_000, "run.eval_episodes": 2,
        "learner.batch": 32, "learner.buffer": 3_000, "learner.warmup": 500,
    },
}  # fmt: skip
_BATTLE_LAPTOP = {"run.steps": 50_000, "run.eval_every": 2_500}
_LAPTOP = {
    "lbf": {"run.steps": 300_000, "run.eval_every": 15_000},
    "skirmish": _BATTLE_LAPTOP,
    "smacv2": _BATTLE_LAPTOP,
    "mamujoco": {
        "run.steps": 30_000, "run.eval_every": 3_000, "run.eval_episodes": 10,
        "learner.buffer": 33_000, "learner.warmup": 3_000,
    },
}  # fmt: skip

SCALES = {
    scale.name: scale
    for scale in (
        Scale("smoke", "a few thousand steps, two seeds, the main lines only: shows that it works", 2, _SMOKE, True),
        Scale("laptop", "a tenth to a hundredth of the steps, two seeds, every line: a first look", 2, _LAPTOP),
        Scale("paper", "the paper's steps and five seeds", 5),
    )
}
SHARE = 3  # pretraining and the decrease of epsilon take at most 1/SHARE of a run


def scale_named(name: str) -> Scale:
    """A scale by its name."""
    if name not in SCALES:
        raise UserError(f"--scale: there is no '{name}'; {nearest(name, SCALES)}")
    return SCALES[name]


def at_scale(curves: Iterable[Curve], scale: Scale) -> tuple[Curve, ...]:
    """The curves that belong to a scale, with their experiments at its size."""
    kept = [curve for curve in curves if curve.essential or not scale.essential]
    return tuple(replace(curve, experiment=resized(curve.experiment, scale)) for curve in kept)


def resized(experiment: Experiment, scale: Scale) -> Experiment:
    """The experiment with a scale's steps and seeds; schedules that are too long for it are shortened."""
    options = {"run.seeds": scale.seeds} | scale.options.get(experiment.task.partition("/")[0], {})
    for path, value in options.items():
        experiment = experiment.with_option(path, str(value))
    limit = experiment.run.steps // SHARE
    for part, name in (("sharing", "pretraining"), ("learner", "epsilon_anneal")):
        if getattr(getattr(experiment, part), name, 0) > limit:
            experiment = experiment.with_option(f"{part}.{name}", str(limit))
    return experiment
