"""What an executor gets, what it tells, and how a job is done inside a worker.

A job travels to its worker as JSON and so does its result; nothing is pickled.
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
LOG = "log.txt"  # in the run folder: what a worker said, and the traceback of an unexpected error


@dataclass(frozen=True)
class Job:
    """One experiment and where it goes."""

    experiment: Experiment
    folder: Path
    sinks: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()  # Python files of the user's, executed first: they may register methods and tasks

    def to_json(self) -> str:
        """One line."""
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
        """Rebuilt in the worker; the user's files are executed on the way, since the experiment may need them."""
        data = json.loads(text)
        files = tuple(Path(file) for file in data["files"])
        for file in files:
            load_file(file)
        experiment = Experiment.from_json(data["experiment"])
        return Job(experiment, Path(data["folder"]), tuple(data["sinks"]), files)


@dataclass(frozen=True)
class Event:
    """A change in the life of a job."""

    job: Job
    state: State
    error: str = ""  # of a failed one, in one line


class Executor(Protocol):
    """Runs jobs somewhere, several at a time."""

    def run(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        """Tell of each job when it starts and when it ends; one that fails stops nobody else. Closed or interrupted,
        the generator stops its workers, which save what they have."""
        ...


def do_job(text: str) -> str:
    """Train one experiment in this process. Returns its error in one line, empty when it finished.

    A wish to stop (Ctrl-C, SIGTERM) is no failure of the experiment: it comes out as ``KeyboardInterrupt``.
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
            run(job.experiment, job.folder, monitor, cache)
        return ""
    except UserError as error:
        if error.code == 130:
            raise KeyboardInterrupt from None
        return str(error)
    except Exception as error:
        return unexpected(folder, error)


def unexpected(folder: Path, error: BaseException) -> str:
    """One line about an error that is not the user's; the rest goes to the log of the run."""
    text = "".join(traceback.format_exception(error))
    try:
        with (folder / LOG).open("a", encoding="utf-8") as log:
            log.write(text)
    except OSError:
        return one_line(f"{type(error).__name__}: {error}")
    return one_line(f"{type(error).__name__}: {error}; see {folder / LOG}")


def one_line(text: str) -> str:
    """Text that came from outside, fit for a line of a table."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
