"""The protocol of executors, their jobs and events, and how a worker does a job.

A job is sent to its worker as JSON, and its result is returned as JSON; nothing is pickled.
"""

import json
import traceback
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from prism_marl.errors import UserError
from prism_marl.experiment.experiment import Experiment
from prism_marl.experiment.plugins import load_file

State = Literal["running", "waiting", "finished", "failed"]
LEAVING = 60.0  # seconds for the worker of a sweep that was killed: it still saves, and then lets go of the folder
LOG = "log.txt"  # in the run folder: the output of a worker, and the traceback of an unexpected error


@dataclass(frozen=True)
class Job:
    """One experiment and its run folder."""

    experiment: Experiment
    folder: Path
    sinks: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()  # the user's Python files, executed first: they may register methods and tasks

    def to_json(self) -> str:
        """The job as one line."""
        return json.dumps(
            {
                "experiment": self.experiment.to_json(),
                "folder": str(self.folder.resolve()),
                "sinks": self.sinks,
                "files": [str(file.resolve()) for file in self.files],
            }
        )

    @staticmethod
    def from_json(text: str) -> "Job":
        """The inverse of ``to_json``, for the worker. Executes the user's files, which the experiment may need."""
        data = json.loads(text)
        files = tuple(Path(file) for file in data["files"])
        for file in files:
            load_file(file)
        experiment = Experiment.from_json(data["experiment"])
        return Job(experiment, Path(data["folder"]), tuple(data["sinks"]), files)


@dataclass(frozen=True)
class Event:
    """A job has changed its state."""

    job: Job
    state: State
    error: str = ""  # of a failed job, in one line


class Executor(Protocol):
    """Runs jobs somewhere, several at a time."""

    def run(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        """Yield an event when a job starts and when it ends; a job that fails does not stop the others. If the
        generator is closed or interrupted, it stops its workers, which save a checkpoint."""
        ...


def do_job(text: str) -> str:
    """Train one experiment in this process. Returns its error in one line, or an empty text when it has finished.

    Raises ``KeyboardInterrupt`` if it was asked to stop (Ctrl-C, SIGTERM), which is not an error of the experiment.
    """
    from prism_marl.runs.machine import configure_jax
    from prism_marl.runs.progress import ProgressFile
    from prism_marl.runs.runner import run
    from prism_marl.runs.trackers import tracked

    folder = Path(json.loads(text)["folder"])
    try:
        job = Job.from_json(text)
        cache = configure_jax()
        progress = ProgressFile(job.folder, job.experiment.run.steps)
        with tracked(progress, job.sinks, job.experiment, job.folder) as monitor:
            run(job.experiment, job.folder, monitor, cache, patience=LEAVING)
        return ""
    except UserError as error:
        if error.code == 130:
            raise KeyboardInterrupt from None
        return str(error)
    except Exception as error:
        return unexpected(folder, error)


def unexpected(folder: Path, error: BaseException) -> str:
    """One line about an error that is not a ``UserError``; the traceback goes to the log of the run."""
    text = "".join(traceback.format_exception(error))
    try:
        with (folder / LOG).open("a", encoding="utf-8") as log:
            log.write(text)
    except OSError:
        return one_line(f"{type(error).__name__}: {error}")
    return one_line(f"{type(error).__name__}: {error}; see {folder / LOG}")


def one_line(text: str) -> str:
    """Text from another program as one printable line."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
