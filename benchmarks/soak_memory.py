"""Does a run that goes on for a week grow? Many tiny chunks and evaluations, and the memory of the process on the way.

    python benchmarks/soak_memory.py [EVALUATIONS] [TASK ...]

Every evaluation is a chunk of training, greedy episodes, rows, spectra and a checkpoint: all that a run does, so that
an hour of a real run, which evaluates some sixty times, is over in seconds. Prints one JSON row per task: memory
after the first tenth (everything is compiled and every buffer exists by then) and at the end, what each evaluation
added, the arrays that the device holds, threads, descriptors and files, and on a GPU the bytes of arrays. Exit code 1
if a task grows by more than ``ALLOWED`` bytes per evaluation, or on its device at all, or leaves temporary files.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from prism_marl.experiment.experiment import Experiment
from prism_marl.experiment.presets import preset
from prism_marl.monitor import Quiet
from prism_marl.runs import runner
from prism_marl.runs.machine import configure_jax, describe_machine

TASKS = ("lbf/4x4-2p-1f", "reach/2", "reach_jax/2", "lbforaging/5x5-2p-1f", "roles/2")
ALLOWED = 10_000  # bytes per evaluation: a week of evaluations every minute is then 100 MB
CHANGES = {"network.width": "8", "run.envs": "2", "run.eval_episodes": "2", "learner.batch": "4"}
QMIX = {"learner.embed": "4", "learner.hypernet": "4", "learner.buffer": "16"}
FILLING = {"roles/2": {"learner.buffer": "100000"}}  # never full: every checkpoint holds more than the one before
MATD3 = {"learner.buffer": "256", "learner.warmup": "16", "learner.critic_width": "8", "learner.n_step": "1"}


class Memory(Quiet):
    """Looks at the process and the device whenever the progress bar would move."""

    def __init__(self) -> None:
        self.resident: list[int] = []
        self.arrays: list[int] = []
        self.threads: list[int] = []
        self.descriptors: list[int] = []
        self.device: list[int] = []  # stays empty on a CPU, which has no memory of its own

    def progress(self, steps: int, rate: float, text: str) -> None:
        self.resident.append(resident())
        self.arrays.append(len(jax.live_arrays()))
        self.threads.append(len(list(Path("/proc/self/task").iterdir())))
        self.descriptors.append(len(list(Path("/proc/self/fd").iterdir())))
        if stats := jax.local_devices()[0].memory_stats():
            self.device.append(stats["bytes_in_use"])


@contextlib.contextmanager
def temporary_files_in(folder: Path) -> Iterator[Path]:
    """A place of its own for temporary files, in which those that are left behind can be counted."""
    folder.mkdir()
    before, named = tempfile.tempdir, os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    try:
        yield folder
    finally:
        tempfile.tempdir = before
        os.environ.pop("TMPDIR")
        if named is not None:
            os.environ["TMPDIR"] = named


def resident() -> int:
    """Memory of this process in bytes, as the system counts it."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def tiny(task: str, evaluations: int) -> Experiment:
    """Twenty steps and an evaluation, again and again."""
    experiment = preset(task, "prism")
    own = QMIX if experiment.learner.algorithm == "qmix" else MATD3
    schedule = {"run.steps": str(20 * evaluations), "run.eval_every": "20"}
    for path, text in (CHANGES | own | schedule | FILLING.get(task, {})).items():
        experiment = experiment.with_option(path, text)
    return experiment


def measure(task: str, evaluations: int) -> dict[str, Any]:
    """Train, and compare the end with the time when everything was warm."""
    memory = Memory()
    with tempfile.TemporaryDirectory() as root, temporary_files_in(Path(root) / "tmp") as temporary:
        runner.run(tiny(task, evaluations), Path(root) / "run", memory)
        files = sum(1 for path in (Path(root) / "run").rglob("*") if path.is_file())
        left = sum(1 for _ in temporary.rglob("*"))
    settled = len(memory.resident) // 10
    later = np.array(memory.resident[settled:], float)
    slope = np.polynomial.polynomial.polyfit(np.linspace(0, 0.9 * evaluations, later.size), later, 1)[1]
    row: dict[str, Any] = {  # of threads and descriptors the fewest: what is open for a moment is no growth
        "task": task,
        "evaluations": evaluations,
        "settled_mb": round(later[0] / 1e6, 1),
        "end_mb": round(later[-1] / 1e6, 1),
        "bytes_per_evaluation": round(slope),
        "device_arrays_settled": max(memory.arrays[settled : 2 * settled]),
        "device_arrays_end": max(memory.arrays[-settled:]),
        "threads": [min(memory.threads[settled : 2 * settled]), min(memory.threads[-settled:])],
        "descriptors": [min(memory.descriptors[settled : 2 * settled]), min(memory.descriptors[-settled:])],
        "folder_files": files,
        "temporary_files": left,
    }
    if memory.device:
        row["device_mb_settled"] = round(max(memory.device[settled : 2 * settled]) / 1e6, 3)
        row["device_mb_end"] = round(max(memory.device[-settled:]) / 1e6, 3)
    return row


def one(task: str, evaluations: int) -> int:
    """Print the row of one task; 1 if it grew."""
    configure_jax()
    row = measure(task, evaluations)
    print(json.dumps(row), flush=True)
    grown = row["device_arrays_end"] > row["device_arrays_settled"] or row["bytes_per_evaluation"] > ALLOWED
    grown |= row["temporary_files"] > 0
    grown |= any(end > settled for settled, end in (row["threads"], row["descriptors"]))
    return int(grown or row.get("device_mb_end", 0) > row.get("device_mb_settled", 0))


def main() -> int:
    """One row per task, each from a process of its own: memory that another task has let go of would hide growth."""
    evaluations = sys.argv[1] if len(sys.argv) > 1 else "1000"
    tasks = sys.argv[2:] or TASKS
    if len(tasks) == 1:
        return one(tasks[0], int(evaluations))
    print(json.dumps(describe_machine()), flush=True)
    return max(subprocess.run([sys.executable, __file__, evaluations, task]).returncode for task in tasks)


if __name__ == "__main__":
    sys.exit(main())
