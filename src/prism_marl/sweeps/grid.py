"""Many experiments: a grid of them, a folder for each, and one call that runs those that are not finished.

The experiment decides the name of its folder, so equal experiments share a folder, and calling ``run_sweep`` again
continues an interrupted sweep. An executor (``executors/``) runs the experiments; if one fails, the others continue.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prism_marl.errors import UserError, storage_error
from prism_marl.experiment.experiment import Experiment
from prism_marl.storage.files import refuse_links_out
from prism_marl.sweeps.executors import Event, Executor, Job, make_executor


@dataclass(frozen=True)
class Sweep:
    """Experiments that belong together."""

    name: str
    experiments: tuple[Experiment, ...]


@dataclass(frozen=True)
class Failure:
    """An experiment that did not finish, and the error in one line."""

    folder: Path
    error: str


@dataclass(frozen=True)
class SweepOutcome:
    """The result of every experiment."""

    finished: tuple[Path, ...] = ()  # in this call
    skipped: tuple[Path, ...] = ()  # had been finished before
    failed: tuple[Failure, ...] = ()


def grid(bases: Experiment | Iterable[Experiment], options: Mapping[str, Any]) -> tuple[Experiment, ...]:
    """Every base with every combination of values; the last option changes fastest.

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
    """The run folder of an experiment of a sweep; equal experiments share it."""
    return experiment.folder(Path(runs_dir))


def is_finished(folder: Path) -> bool:
    """Whether the run in this folder has reached its end."""
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
    """Run every experiment that is not finished, each once; interrupted ones continue.

    ``sinks`` are trackers that get a copy of the rows, ``files`` are Python files that every worker executes first
    (they register the user's methods or tasks), ``on_event`` is called for every experiment that starts or ends.
    """
    if isinstance(experiments, Sweep):
        experiments = experiments.experiments
    executor = make_executor(executor) if isinstance(executor, str) else executor
    folders = {folder_of(experiment, runs_dir): experiment for experiment in experiments}
    skipped = tuple(folder for folder in folders if is_finished(folder))
    jobs = [
        Job(experiment, folder, tuple(sinks), tuple(files))
        for folder, experiment in folders.items()
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
            f"stopped; {ended} of {len(folders)} experiments are finished; the same command continues", code=130
        ) from None
    return SweepOutcome(tuple(finished), skipped, tuple(failed))


def _make_folder(folder: Path) -> None:
    """Called before any experiment starts, so that an --out that cannot be used is reported at once."""
    try:
        refuse_links_out(folder)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, "choose another --out") from None


def _choices(path: str, values: Any) -> list[Any]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        return [values]
    if not values:
        raise UserError(f"{path}: the list of values must not be empty")
    return list(values)


def _with(experiment: Experiment, path: str, value: Any) -> Experiment:
    if isinstance(value, str) and not value.isprintable():
        raise UserError(f"{path}: {value!r} has characters that cannot be printed")
    try:
        return experiment.with_option(path, str(value))
    except UserError as error:
        which = f"{experiment.task} with {experiment.sharing.method}"
        raise UserError(f"{error} ({which})", code=error.code) from None
