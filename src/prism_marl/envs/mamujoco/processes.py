"""Processes that work through the rows of a batch, where there are many cores.

Threads share Python's lock, and from about eight of them on they wait for it more than they work. A process has its
own; states lie in memory that all of them see, so that a step of a row costs its number there and back.
"""

import json
import mmap
import os
import select
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from prism_marl.envs.mamujoco import stepping
from prism_marl.errors import UserError

AT_ONCE = 512  # numbers in one message, which the system then keeps in one piece
PATIENCE = 1.0  # seconds without an answer after which somebody looks whether all processes are alive


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
    """Some processes that take rows out of one pipe, as numbers, and give them back through another.

    Whoever is free takes the next row. Reading and writing a few bytes of a pipe is one act of the system, so no number
    is read twice or in halves.
    """

    def __init__(self, engine: Any, model: Any, shared: SharedRows, number: int, **how: Any):
        rows, size = shared.states.shape
        self._numbers, self._moving = np.arange(rows, dtype=stepping.NUMBER), np.zeros(rows, bool)
        self._members: list[subprocess.Popen] = []
        taken, self._orders = os.pipe()
        self._answers, given = os.pipe()
        self._stop = weakref.finalize(self, _dismiss, self._members, [self._orders, self._answers])
        with tempfile.TemporaryDirectory() as folder:
            order = how | {"model": str(Path(folder) / "model.mjb"), "rows": rows, "size": size}
            engine.mj_saveModel(model, order["model"])
            for _ in range(number):
                self._members.append(_member(order, {"memory": shared.file, "orders": taken, "answers": given}))
            os.close(taken)
            os.close(given)
            ready = 0
            while ready < number:  # until all have read the model
                ready += self._answered().size

    def start(self, rows: slice) -> None:
        """Have these rows moved."""
        self._moving[rows] = True
        numbers = self._numbers[rows]
        try:
            for first in range(0, numbers.size, AT_ONCE):
                os.write(self._orders, numbers[first : first + AT_ONCE].tobytes())
        except BrokenPipeError:
            self._complain()

    def wait(self, rows: slice) -> None:
        """Until these rows have moved."""
        while self._moving[rows].any():
            self._moving[self._answered()] = False

    def _answered(self) -> np.ndarray:
        while not select.select([self._answers], [], [], PATIENCE)[0]:
            if any(member.poll() is not None for member in self._members):
                self._complain()
        answer = os.read(self._answers, 2**16)
        if not answer:
            self._complain()
        return np.frombuffer(answer, stepping.NUMBER)

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


def _member(order: dict[str, Any], handed: dict[str, int]) -> subprocess.Popen:
    command = [sys.executable, "-P", stepping.__file__, json.dumps(order | handed)]
    # Its own session: Ctrl-C is for the trainer, which finishes its step and saves. One thread: numpy needs none.
    settings = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, pass_fds=tuple(handed.values()), env=settings, start_new_session=True)


def _dismiss(members: list[subprocess.Popen], ends: list[int]) -> None:
    for end in ends:
        os.close(end)
    for member in members:
        member.wait()
