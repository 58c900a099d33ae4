"""The plan of a reproduction: its experiments, their memory (computed from shapes) and their expected time."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from prism_marl import envs
from prism_marl.errors import UserError
from prism_marl.experiment.experiment import Experiment
from prism_marl.paper.speeds import Speed, closest, found_in, recorded, seconds_for
from prism_marl.sweeps.grid import Sweep, folder_of, is_finished


@dataclass(frozen=True)
class Estimate:
    """One experiment before it runs."""

    experiment: Experiment
    state: str  # finished, continues, new
    bytes: int
    seconds: float | None
    source: str  # of the seconds, in words


@dataclass(frozen=True)
class Plan:
    """All experiments of a target."""

    estimates: tuple[Estimate, ...]
    impossible: dict[str, str]  # task to the reason why it cannot run here

    @property
    def waiting(self) -> list[Estimate]:
        """The experiments that are not finished and can run here."""
        return [e for e in self.estimates if e.state != "finished" and e.experiment.task not in self.impossible]

    @property
    def seconds(self) -> float:
        """The time of all waiting experiments whose time is known, one after the other."""
        return sum(estimate.seconds or 0.0 for estimate in self.waiting)

    @property
    def unknown(self) -> int:
        """How many waiting experiments have no estimate of their time."""
        return sum(estimate.seconds is None for estimate in self.waiting)


def make_plan(sweep: Sweep, runs_dir: Path, platform: str | None = None) -> Plan:
    """A plan, made without allocating or compiling. Times are from finished runs in the folder or from the package."""
    platform = platform or jax.default_backend()
    own, known = (found_in(runs_dir) if runs_dir.is_dir() else []), recorded()
    estimates = [_estimate(experiment, runs_dir, platform, own, known) for experiment in sweep.experiments]
    tasks = dict.fromkeys(experiment.task for experiment in sweep.experiments)
    return Plan(tuple(estimates), {task: why for task in tasks if (why := why_not(task))})


def _estimate(
    experiment: Experiment, runs_dir: Path, platform: str, own: Sequence[Speed], known: Sequence[Speed]
) -> Estimate:
    folder = folder_of(experiment, runs_dir)
    state = "finished" if is_finished(folder) else "continues" if (folder / "config.json").exists() else "new"
    seconds, source = time_of(experiment, platform, own, known)
    return Estimate(experiment, state, needed_bytes(experiment), seconds, source)


def time_of(
    experiment: Experiment, platform: str, own: Sequence[Speed], known: Sequence[Speed]
) -> tuple[float | None, str]:
    """Seconds and their source in words; None if no similar run has been timed on such a machine."""
    for speeds, where in ((own, "a finished run here"), (known, "measured")):
        speed = closest(experiment, list(speeds), platform)
        if speed is None:
            continue
        same = speed.task == experiment.task and speed.method == experiment.sharing.method
        other = "" if same else f", {speed.method} on {speed.task}"
        source = f"{where}{other}" if where != "measured" else f"measured on {speed.machine}{other}"
        return seconds_for(experiment, speed), source
    return None, f"not known: no similar run was timed on a {platform}"


@functools.lru_cache(maxsize=1024)
def needed_bytes(experiment: Experiment) -> int:
    """The memory of networks, optimisers and replay buffers of all seeds, without that of compiled updates."""
    learner: Any = experiment.learner.learner(
        experiment.sharing, envs.describe(experiment.task), width=experiment.network.width
    )
    parts = jax.eval_shape(lambda: (learner.init(jax.random.key(0)), learner.buffer()))
    return experiment.run.seeds * sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(parts))


@functools.lru_cache(maxsize=64)
def why_not(task: str) -> str:
    """Why a task cannot run here, in one line; empty if it can."""
    try:
        if not envs.is_compiled(task):
            envs.make_rows(task, 1).close()
    except UserError as error:
        return str(error)
    return ""


def in_words(seconds: float | None) -> str:
    """A duration with a suitable unit."""
    if seconds is None or math.isnan(seconds):
        return "?"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}" if seconds < 10 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def size_in_words(number: float) -> str:
    """Bytes as MiB or GiB."""
    return f"{number / 2**30:.1f} GiB" if number >= 2**30 else f"{number / 2**20:.0f} MiB"
