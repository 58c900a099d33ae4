"""Measured speeds of experiments, with machine and sizes. Plans use them, or the speeds of runs that they find."""

import importlib.resources
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prism_marl.errors import UserError
from prism_marl.experiment.experiment import Experiment
from prism_marl.reports.load import load_run
from prism_marl.runs.folder import load_experiment
from prism_marl.sweeps.grid import is_finished


@dataclass(frozen=True)
class Speed:
    """The speed of one finished run."""

    task: str
    method: str
    seeds: int
    envs: int
    width: int
    batch: int
    platform: str  # cpu or gpu
    device: str
    cores: int
    steps_per_second: float  # of all seeds together, while training
    compile_seconds: float
    rest_seconds: float | None  # for each evaluation: playing, writing, and its share of the start; None: not known
    date: str
    note: str = ""  # about other load on the machine

    @property
    def machine(self) -> str:
        """The machine in words."""
        return f"{self.cores} CPU cores" if self.platform == "cpu" else self.device


def recorded() -> list[Speed]:
    """The speeds that come with the package."""
    text = importlib.resources.files("prism_marl.paper").joinpath("speeds.json").read_text("utf-8")
    return [Speed(**entry) for entry in json.loads(text)]


def found_in(runs_dir: Path) -> list[Speed]:
    """The speeds of all finished runs below a folder."""
    folders = [path.parent for path in sorted(runs_dir.rglob("timing.jsonl"))]
    return [speed for folder in folders if is_finished(folder) for speed in [measured(folder)] if speed]


def measured(folder: Path, note: str = "") -> Speed | None:
    """The speed of one run from its rows; None if the rows do not contain it."""
    run = load_run(folder, spectra_limit=1, replay_limit=0)
    try:
        experiment = load_experiment(folder)
        seconds, steps = run.timing["seconds"], run.timing["steps"]
        machine = {key: run.machine[key] for key in ("platform", "device", "cores")}
        compiling = float(np.nanmax(run.timing["compile_seconds"]))
        date = str(run.machine["started"])[:10]
    except (UserError, KeyError, ValueError):
        return None
    steady = seconds.size // 2  # without the first half, in which a run fills its buffer and is faster
    rate = float(np.nansum(steps[steady:]) / max(float(np.nansum(seconds[steady:])), 1e-9))
    wall = _wall_seconds(folder)
    evaluations = max((curve.steps.size for curve in run.evaluations), default=1)
    rest = None if wall is None else max(0.0, wall - float(np.nansum(seconds)) - compiling) / evaluations
    return Speed(
        task=experiment.task,
        method=experiment.sharing.method,
        seeds=experiment.run.seeds,
        envs=experiment.run.envs,
        width=experiment.network.width,
        batch=batch_of(experiment),
        **machine,
        steps_per_second=round(rate, 1),
        compile_seconds=round(compiling, 1),
        rest_seconds=None if rest is None else round(rest, 2),
        date=date,
        note=note,
    )


def batch_of(experiment: Experiment) -> int:
    """Items in one update; 0 for learners that do not sample."""
    return int(getattr(experiment.learner, "batch", 0))


def _wall_seconds(folder: Path) -> float | None:
    """Seconds between the first and the last file of a run; wrong for folders that were copied."""
    first, last = folder / "config.json", folder / "done"
    if not (first.exists() and last.exists()):
        return None
    taken = last.stat().st_mtime - first.stat().st_mtime
    return taken if taken > 0 else None


def closest(experiment: Experiment, speeds: list[Speed], platform: str) -> Speed | None:
    """The most similar speed of the same platform, task family and batch; None if there is none."""
    family = experiment.task.partition("/")[0]
    fitting = [
        speed
        for speed in speeds
        if speed.platform == platform and speed.task.partition("/")[0] == family and speed.batch == batch_of(experiment)
    ]

    def differences(speed: Speed) -> tuple[Any, ...]:
        return (
            speed.envs != experiment.run.envs,
            speed.task != experiment.task,
            speed.method != experiment.sharing.method,
            abs(speed.width - experiment.network.width),
            abs(speed.seeds - experiment.run.seeds),
        )

    return min(fitting, key=differences, default=None)


def seconds_for(experiment: Experiment, speed: Speed) -> float:
    """The time of an experiment at a speed. More seeds take no more time on a GPU, and as many times more on a CPU."""
    run = experiment.run
    steps = run.steps + getattr(experiment.learner, "warmup", 0) * getattr(experiment.learner, "warmup_on_top", False)
    side_by_side = speed.seeds if speed.platform == "gpu" else run.seeds
    evaluations = -(-run.steps // run.eval_every) + 1
    return (
        speed.compile_seconds + steps * side_by_side / speed.steps_per_second + evaluations * (speed.rest_seconds or 0)
    )


def as_json(speeds: list[Speed]) -> str:
    """JSON for the package, with one line for each speed."""
    lines = ",\n".join(f"  {json.dumps(asdict(speed))}" for speed in speeds)
    return f"[\n{lines}\n]\n"
