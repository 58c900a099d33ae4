"""Copies of the rows for experiment trackers. The JSON lines in the run folder stay the record.

A tracker reads the row files from where it stopped reading, so a run that continues sends its history first. Each
tracker needs an extra package, which is imported only if the tracker is used. No tracker changes a number or the name
of a folder, and nothing leaves the machine unless the user names a tracker that sends it.
"""

import abc
import contextlib
import importlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from prism_marl.errors import UserError, install_command, nearest
from prism_marl.experiment.experiment import Experiment
from prism_marl.monitor import Monitor, Quiet, Several
from prism_marl.runs.rows import BOOKKEEPING

FILES = ("eval", "train", "diversity")


class Tracker(Quiet, abc.ABC):
    """Receives every evaluation once. A new tracker is a subclass with ``evaluation`` and a line in ``TRACKERS``."""

    package: ClassVar[str]  # what must be installed

    def __init__(self, experiment: Experiment, folder: Path):
        self.experiment, self.folder = experiment, folder
        self._read: dict[str, int] = dict.fromkeys(FILES, 0)
        self.delivered = False

    def recorded(self, folder: Path) -> None:
        by_evaluation: dict[int, list[tuple[str, dict[str, Any]]]] = {}
        for name in FILES:
            for row in self._new_rows(name):
                by_evaluation.setdefault(row["evaluation"], []).append((name, row))
        for number, rows in sorted(by_evaluation.items()):
            self.evaluation(number, rows)
            self.delivered = True

    def _new_rows(self, name: str) -> Iterator[dict[str, Any]]:
        path = self.folder / f"{name}.jsonl"
        if path.exists():
            with path.open("rb") as file:
                file.seek(self._read[name])
                for line in file:
                    self._read[name] += len(line)
                    yield json.loads(line)

    @abc.abstractmethod
    def evaluation(self, number: int, rows: list[tuple[str, dict[str, Any]]]) -> None:
        """All rows of one evaluation, each with the name of its file."""

    def close(self) -> None:
        """Called after the last evaluation."""


class TensorBoard(Tracker):
    """Event files in ``tensorboard/seed-N`` of the run folder, written again from the rows whenever a run starts."""

    package = "tensorboardX"

    def __init__(self, experiment: Experiment, folder: Path):
        super().__init__(experiment, folder)
        self._writers: dict[int, Any] = {}

    def evaluation(self, number: int, rows: list[tuple[str, dict[str, Any]]]) -> None:
        if not self._writers:
            shutil.rmtree(self.folder / "tensorboard", ignore_errors=True)
        for name, row in rows:
            writer = self._writer(row["seed"])
            for metric, value in measured(row).items():
                writer.add_scalar(f"{name}/{metric}", value, row["step"])
        for writer in self._writers.values():
            writer.flush()

    def _writer(self, seed: int) -> Any:
        if seed not in self._writers:
            path = self.folder / "tensorboard" / f"seed-{seed}"
            self._writers[seed] = load(self).SummaryWriter(str(path))
        return self._writers[seed]

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


class WandB(Tracker):
    """One run of Weights & Biases for each experiment; its steps are the evaluations. WANDB_MODE, WANDB_PROJECT and the
    other variables of wandb work as usual."""

    package = "wandb"

    def __init__(self, experiment: Experiment, folder: Path):
        super().__init__(experiment, folder)
        self._run: Any = None

    def evaluation(self, number: int, rows: list[tuple[str, dict[str, Any]]]) -> None:
        run = self._start()
        if number < run.step:  # already sent before the run was interrupted
            return
        values = {}
        for name, row in rows:
            for metric, value in (measured(row) | {"step": row["step"]}).items():
                values[f"{name}/{metric}/seed-{row['seed']}"] = value
        run.log(values, step=number)

    def _start(self) -> Any:
        if self._run is None:
            name = self.experiment.folder(Path()).name
            self._run = load(self).init(
                dir=str(self.folder),
                id=name,
                name=f"{self.experiment.task} {name}",
                group=self.experiment.task,
                config=json.loads(self.experiment.to_json()),
                resume="allow",
            )
        return self._run

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()


TRACKERS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "wandb": WandB}
SINKS_HELP = f"also send all metrics to these trackers, separated by commas: {', '.join(TRACKERS)}"


def check_sinks(text: str | None) -> tuple[str, ...]:
    """The trackers named on the command line. Raises if one is unknown or not installed, before anything starts."""
    names = tuple(dict.fromkeys(word.strip() for word in (text or "").split(",") if word.strip()))
    for name in names:
        if name not in TRACKERS:
            raise UserError(f"--sinks: there is no '{name}'; {nearest(name, TRACKERS)}")
        load(TRACKERS[name])
    return names


class Guarded(Quiet):
    """A tracker whose failure does not stop a run. If it fails at its first evaluation, the run stops with a sentence,
    before time is spent; if it fails later, it gets no more rows and the run continues."""

    def __init__(self, tracker: Tracker, monitor: Monitor):
        self._tracker, self._monitor = tracker, monitor
        self._broken = False

    def recorded(self, folder: Path) -> None:
        if not self._broken:
            with self._guard():
                self._tracker.recorded(folder)

    def close(self) -> None:
        with self._guard():
            self._tracker.close()

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except UserError:
            raise
        except Exception as error:  # a package of other people may raise anything
            self._broken = True
            said = (str(error).strip().splitlines() or [""])[0]
            trouble = f"--sinks: {self._tracker.package} failed ({type(error).__name__}: {said})"
            if not self._tracker.delivered:
                raise UserError(f"{trouble}; correct its settings or leave it out") from error
            self._monitor.note(f"{trouble}; it gets no more metrics; the run continues, and its own files are complete")


@contextlib.contextmanager
def tracked(monitor: Monitor, names: Sequence[str], experiment: Experiment, folder: Path) -> Iterator[Monitor]:
    """A monitor that also sends the rows to trackers, which are closed in any case."""
    with contextlib.ExitStack() as stack:
        trackers = [Guarded(TRACKERS[name](experiment, folder), monitor) for name in names]
        for tracker in trackers:
            stack.enter_context(contextlib.closing(tracker))
        yield Several([monitor, *trackers])


def measured(row: dict[str, Any]) -> dict[str, float]:
    """The measurements of a row that are numbers."""
    return {k: v for k, v in row.items() if k not in BOOKKEEPING and isinstance(v, int | float)}


def load(tracker: Tracker | type[Tracker]) -> Any:
    """Import the package that a tracker needs."""
    try:
        return importlib.import_module(tracker.package)
    except ImportError:
        names = [name for name, known in TRACKERS.items() if known.package == tracker.package]
        command = install_command(extra=names[0]) if names else install_command(tracker.package)
        raise UserError(f"--sinks: {tracker.package} is not installed: {command}") from None
