"""A learner of one's own in one file: hysteretic Q-learning, in which every agent learns its own action values and
forgives its team.

While all explore, a good action often earns little because of what the others did. A hysteretic learner takes good
news at full strength and bad news at a fraction (Matignon et al., 2007; with networks: Omidshafiei et al., 2017).

A learner is two classes. The settings, a frozen dataclass, are what a user can change; the comment beside a field is
its help text. The learner is a set of pure functions; this one inherits all of them from ``ValueLearner`` and only says
how bad news counts. ``register`` makes it known, here and in

    prism-marl train roles/4 --sharing fups_id --learner hysteretic --module examples/add_learner.py
"""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import jax.numpy as jnp

from prism_marl.errors import UserError
from prism_marl.experiment.presets import preset
from prism_marl.learners import register
from prism_marl.learners.iql import IQLLearner
from prism_marl.learners.value_settings import ValueSettings
from prism_marl.runs.folder import load_experiment
from prism_marl.runs.runner import run
from prism_marl.sharing import Sharing
from prism_marl.types import EnvSpec


@register
@dataclass(frozen=True)
class Hysteretic(ValueSettings):
    """Settings of hysteretic Q-learning: those of IQL and one more."""

    label: ClassVar[str] = "Hysteretic"

    algorithm: Literal["hysteretic"] = "hysteretic"
    leniency: float = 0.4  # weight of an error that says a value was too high; 1 = IQL

    def learner(self, sharing: Sharing, spec: EnvSpec, *, width: int, rows: int = 1, steps: int = 0):
        del steps  # how long training will take is of no account
        return HystereticLearner(self, sharing, spec, width, rows)

    def validate(self, spec: EnvSpec, envs: int) -> None:
        super().validate(spec, envs)
        if not 0 <= self.leniency <= 1:
            near = min(max(self.leniency, 0), 1)
            raise UserError(f"learner.leniency: {self.leniency} is outside [0, 1]; the nearest valid value is {near}")


@dataclass(frozen=True)
class HystereticLearner(IQLLearner):
    """Exploration, targets, replay and the terms of the sharing method: all inherited."""

    def cost(self, error):
        """An error is a value minus its target: above 0, the value was too high, which is bad news."""
        return jnp.where(error > 0, self.settings.leniency, 1.0) * error**2


def main() -> float:
    """Train FuPS+ID on ``roles/4`` and print the final return, of which 1 is the most."""
    experiment = preset("roles/4", "fups_id", learner="hysteretic").with_option("run.steps", "2000")
    with tempfile.TemporaryDirectory() as root:
        folder = run(experiment, Path(root) / "run")
        rows = [json.loads(line) for line in (folder / "eval.jsonl").read_text().splitlines()]
        kept = load_experiment(folder)
    print(f"{kept.learner.algorithm}: return {rows[-1]['return']:.2f} after {rows[-1]['step']} steps")
    return rows[-1]["return"]


if __name__ == "__main__":
    main()
