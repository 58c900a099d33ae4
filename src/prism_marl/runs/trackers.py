"""Copies of the rows for trackers that people already use. The JSON lines in the run folder stay the record.

A tracker reads the row files on from where it stopped, so a run that continues hands over its history first. Each is an
extra, loaded when it is asked for; none changes a number or the name of a folder, and nothing leaves the machine unless
a tracker that does so was asked for by its name.
"""

import abc
import contextlib
import importlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from prism_marl.errors import UserError, nearest
from prism_marl.experiment.experiment import Experiment
from prism_marl.monitor import Monitor, Quiet, Several
from prism_marl.runs.rows import BOOKKEEPING

FILES = ("eval", "train")


class Tracker(Quiet, abc.ABC):
    """Hears of every evaluation once. Your own is a subclass with ``evaluation`` and a line in ``TRACKERS``."""

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
        """All rows of one evaluation, each with the file it stands in."""

    def close(self) -> None:
        """Nothing more will come."""


class TensorBoard(Tracker):
    """Event files in ``tensorboard/seed-N`` of the run folder, written anew from the rows whenever a run starts."""

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
    """One run of Weights & Biases for each experiment, whose steps are the evaluations. Where it goes is its own
    business: WANDB_MODE=offline, WANDB_PROJECT and the rest mean what they always mean."""

    package = "wandb"

    def __init__(self, experiment: Experiment, folder: Path):
        super().__init__(experiment, folder)
        self._run: Any = None

    def evaluation(self, number: int, rows: list[tuple[str, dict[str, Any]]]) -> None:
        run = self._start()
        if number < run.step:  # a run that continues has sent it before
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
SINKS_HELP = f"trackers that get a copy of the rows, separated by commas: {', '.join(TRACKERS)}"


def check_sinks(text: str | None) -> tuple[str, ...]:
    """Names from the command line, each known and installed, before anything starts."""
    names = tuple(dict.fromkeys(word.strip() for word in (text or "").split(",") if word.strip()))
    for name in names:
        if name not in TRACKERS:
            raise UserError(f"--sinks: there is no '{name}'; {nearest(name, TRACKERS)}")
        load(TRACKERS[name])
    return names


class Guarded(Quiet):
    """A tracker that cannot hurt a run. One that does not even start is the user's to mend, before time is spent; one
    that fails later gets no more rows, and the run goes on: it has its record."""

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
        except Exception as error:  # whatever a foreign package raises
            self._broken = True
            said = (str(error).strip().splitlines() or [""])[0]
            trouble = f"--sinks: {self._tracker.package} failed ({type(error).__name__}: {said})"
            if not self._tracker.delivered:
                raise UserError(f"{trouble}; mend its settings or leave it out") from error
            self._monitor.note(f"{trouble}; it gets no more rows, the run goes on and the row files have everything")


@contextlib.contextmanager
def tracked(monitor: Monitor, names: Sequence[str], experiment: Experiment, folder: Path) -> Iterator[Monitor]:
    """A monitor that also feeds trackers; they are closed however the run ends."""
    with contextlib.ExitStack() as stack:
        trackers = [Guarded(TRACKERS[name](experiment, folder), monitor) for name in names]
        for tracker in trackers:
            stack.enter_context(contextlib.closing(tracker))
        yield Several([monitor, *trackers])


def measured(row: dict[str, Any]) -> dict[str, float]:
    """The measurements of a row that are numbers."""
    return {k: v for k, v in row.items() if k not in BOOKKEEPING and isinstance(v, int | float)}


def load(tracker: Tracker | type[Tracker]) -> Any:
    """The package behind a tracker."""
    try:
        return importlib.import_module(tracker.package)
    except ImportError:
        names = [name for name, known in TRACKERS.items() if known.package == tracker.package]
        extra = f"pip install 'prism-marl[{names[0]}]'" if names else f"pip install {tracker.package}"
        raise UserError(f"--sinks: {tracker.package} is not installed; {extra}") from None
