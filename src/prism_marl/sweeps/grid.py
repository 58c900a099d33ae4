"""Many experiments: a grid of them, a folder for each, and one call that runs what is not finished yet.

A folder's name follows from the experiment, so equal experiments share one and the same call continues a sweep that was
interrupted. What runs the experiments is an executor (``executors/``); one that fails does not disturb the others.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prism_marl.errors import UserError, storage_error
from prism_marl.experiment.experiment import Experiment
from prism_marl.files import refuse_links_out
from prism_marl.sweeps.executors import Event, Executor, Job, make_executor


@dataclass(frozen=True)
class Sweep:
    """Experiments that belong together."""

    name: str
    experiments: tuple[Experiment, ...]


@dataclass(frozen=True)
class Failure:
    """An experiment that did not finish, and why, in one line."""

    folder: Path
    error: str


@dataclass(frozen=True)
class SweepOutcome:
    """What became of every experiment."""

    finished: tuple[Path, ...] = ()  # now
    skipped: tuple[Path, ...] = ()  # had been finished before
    failed: tuple[Failure, ...] = ()


def grid(bases: Experiment | Iterable[Experiment], options: Mapping[str, Any]) -> tuple[Experiment, ...]:
    """Every base with every combination of values, the last option changing fastest.

    ``options`` maps dotted fields to values: ``{"learner.lr": [1e-3, 5e-4], "run.seeds": 5}``.
    """
    bases = (bases,) if isinstance(bases, Experiment) else tuple(bases)
    lists = [_choices(path, values) for path, values in options.items()]
    made = []
    for base in bases:
        for values in itertools.product(*lists):
            experiment = base
            for path, value in zip(options, values, strict=True):
                experiment = _with(experiment, path, value)
            made.append(experiment)
    return tuple(dict.fromkeys(made))


def folder_of(experiment: Experiment, runs_dir: Path) -> Path:
    """Where an experiment of a sweep lives; equal experiments share it."""
    return experiment.folder(Path(runs_dir))


def is_finished(folder: Path) -> bool:
    """Whether the experiment of a folder ran to its end."""
    return (Path(folder) / "done").exists()


def run_sweep(
    experiments: Sweep | Iterable[Experiment],
    runs_dir: Path,
    executor: Executor | str = "local",
    *,
    sinks: Sequence[str] = (),
    files: Sequence[Path] = (),
    on_event: Callable[[Event], None] = lambda event: None,
) -> SweepOutcome:
    """Run every experiment that is not finished, each once, continuing those that were interrupted.

    ``sinks`` are trackers that get a copy of the rows, ``files`` Python files that every worker executes first (they
    register methods or tasks of your own), ``on_event`` hears of every experiment that starts or ends.
    """
    if isinstance(experiments, Sweep):
        experiments = experiments.experiments
    executor = make_executor(executor) if isinstance(executor, str) else executor
    places = {folder_of(experiment, runs_dir): experiment for experiment in experiments}
    skipped = tuple(folder for folder in places if is_finished(folder))
    jobs = [
        Job(experiment, folder, tuple(sinks), tuple(files))
        for folder, experiment in places.items()
        if folder not in skipped
    ]
    for job in jobs:
        _make_folder(job.folder)
    finished, failed = [], []
    try:
        with contextlib.closing(executor.run(jobs)) as events:
            for event in events:
                on_event(event)
                if event.state == "finished":
                    finished.append(event.job.folder)
                elif event.state == "failed":
                    failed.append(Failure(event.job.folder, event.error))
    except KeyboardInterrupt:
        ended = len(finished) + len(skipped)
        raise UserError(
            f"stopped; {ended} of {len(places)} experiments are finished; the same command continues", code=130
        ) from None
    return SweepOutcome(tuple(finished), skipped, tuple(failed))


def _make_folder(folder: Path) -> None:
    """Before anything starts: a place that cannot be used is the same for all."""
    try:
        refuse_links_out(folder)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, "choose another --out") from None


def _choices(path: str, values: Any) -> list[Any]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        return [values]
    if not values:
        raise UserError(f"{path}: a list of values to choose from must not be empty")
    return list(values)


def _with(experiment: Experiment, path: str, value: Any) -> Experiment:
    if isinstance(value, str) and not value.isprintable():
        raise UserError(f"{path}: {value!r} holds signs that cannot be printed")
    try:
        return experiment.with_option(path, str(value))
    except UserError as error:
        place = f"{experiment.task} with {experiment.sharing.method}"
        raise UserError(f"{error} ({place})", code=error.code) from None
