"""A learner of one's own: VDN, which adds the agents' values up where QMIX mixes them.

The trainer asks a learner for little: ``init(key)`` makes its state, whose ``online.agent`` and ``target.agent`` are
networks; ``act`` chooses actions; ``epsilon(step)`` is the exploration rate; ``update(state, episodes, step)`` makes
one gradient step and returns metrics; ``empty_episode()`` gives the shapes to store; ``experience(episodes)`` is what
cluster methods look at. A variant inherits what it does not change. The settings class builds the learner, and
``LEARNERS`` finds the settings of a run folder by the name in ``algorithm``, so that resuming works as for QMIX.
"""

import json
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from prism_marl.experiment.presets import preset
from prism_marl.learners import LEARNERS, QMix, QMixLearner
from prism_marl.runs.folder import load_experiment
from prism_marl.runs.runner import run
from prism_marl.sharing import Sharing
from prism_marl.types import EnvSpec


class Sum(eqx.Module):
    """Q_tot = sum of q; the state is not read."""

    def __call__(self, values: Float[Array, "*b a"], state: Float[Array, "*b s"]) -> Float[Array, "*b"]:
        return jnp.sum(values, axis=-1)


@dataclass(frozen=True)
class VDN(QMix):
    """QMIX's settings; ``embed`` and ``hypernet`` have no effect."""

    algorithm: Literal["vdn"] = "vdn"  # pyright: ignore[reportIncompatibleVariableOverride]

    def learner(self, sharing: Sharing, spec: EnvSpec, width: int) -> QMixLearner:
        return VDNLearner(self, sharing, spec, width)


@dataclass(frozen=True)
class VDNLearner(QMixLearner):
    """Targets, exploration, penalties of the sharing method: all inherited."""

    def mixer(self, key: Key[Array, ""]) -> Sum:
        return Sum()


LEARNERS["vdn"] = VDN


def main() -> float:
    """Train FuPS+ID with VDN on ``roles/4`` and print the final return, of which 1 is the most."""
    base = preset("roles/4", "fups_id")
    taken = {field.name: getattr(base.learner, field.name) for field in fields(QMix) if field.name != "algorithm"}
    experiment = base.changed(learner=VDN(**taken)).with_option("run.steps", "2000")
    with tempfile.TemporaryDirectory() as root:
        folder = run(experiment, Path(root) / "run")
        rows = [json.loads(line) for line in (folder / "eval.jsonl").read_text().splitlines()]
        kept = load_experiment(folder)
    print(f"{kept.learner.algorithm}: return {rows[-1]['return']:.2f} after {rows[-1]['step']} steps")
    return rows[-1]["return"]


if __name__ == "__main__":
    main()
