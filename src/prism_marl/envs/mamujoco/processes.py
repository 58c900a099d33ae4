"""Processes that work through the rows of a batch, where there are many cores.

Threads share Python's lock, and from about eight of them on they wait for it more than they work. A process has its
own; states lie in memory that all of them see, so that a step costs one byte to each process and one back.
"""

import itertools
import json
import mmap
import os
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from prism_marl.envs.mamujoco import stepping
from prism_marl.errors import UserError


class SharedRows:
    """States of all rows and what the reward needs, in memory that processes can share."""

    def __init__(self, rows: int, size: int):
        self.file = os.memfd_create("robots") if hasattr(os, "memfd_create") else _nameless_file()
        os.truncate(self.file, 8 * rows * (size + 1))
        self.states, self.reached = stepping.shared_arrays(mmap.mmap(self.file, 0), rows, size)
        weakref.finalize(self, os.close, self.file)


def _nameless_file() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Processes:
    """Some processes, each with its own range of rows."""

    def __init__(self, engine: Any, model: Any, shared: SharedRows, number: int, **how: Any):
        rows, size = shared.states.shape
        bounds = np.linspace(0, rows, number + 1).astype(int).tolist()
        self._calls, self._answers, self._members = [], [], []
        with tempfile.TemporaryDirectory() as folder:
            order = how | {"model": str(Path(folder) / "model.mjb"), "memory": shared.file}
            engine.mj_saveModel(model, order["model"])
            for first, end in itertools.pairwise(bounds):
                self._start(order | {"rows": rows, "size": size, "first": first, "end": end})
            self._stop = weakref.finalize(self, _dismiss, self._members, self._calls, self._answers)
            self._wait()  # until the model is read

    def _start(self, order: dict[str, Any]) -> None:
        call, mine = os.pipe()
        theirs, answer = os.pipe()
        words = json.dumps(order | {"call": call, "answer": answer})
        command = [sys.executable, "-P", stepping.__file__, words]
        # Its own session: Ctrl-C is for the trainer, which finishes its step and saves. One thread: numpy needs none.
        settings = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        handed = (order["memory"], call, answer)
        self._members.append(subprocess.Popen(command, pass_fds=handed, env=settings, start_new_session=True))
        os.close(call)
        os.close(answer)
        self._calls.append(mine)
        self._answers.append(theirs)

    def step(self) -> None:
        """Move all rows."""
        for call in self._calls:
            try:
                os.write(call, b".")
            except BrokenPipeError:
                self._complain()
        self._wait()

    def _wait(self) -> None:
        for answer in self._answers:
            if not os.read(answer, 1):
                self._complain()

    def _complain(self) -> None:
        codes = [member.poll() for member in self._members]
        gone = next((code for code in codes if code is not None), "unknown")
        raise UserError(
            f"task: a physics process ended (exit code {gone}); the last checkpoint is whole, start the run again",
            code=1,
        )

    def close(self) -> None:
        """Send the processes home; also happens when nobody refers to them any more."""
        self._stop()


def _dismiss(members: list[subprocess.Popen], calls: list[int], answers: list[int]) -> None:
    for end in (*calls, *answers):
        os.close(end)
    for member in members:
        member.wait()
