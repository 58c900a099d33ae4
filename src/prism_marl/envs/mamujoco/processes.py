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
import time
import warnings
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from prism_marl.envs.mamujoco import stepping
from prism_marl.errors import UserError

AT_ONCE = 512  # numbers in one message, which the system then keeps in one piece
LOOK = 1.0  # seconds without an answer after which somebody looks whether all processes are alive
PATIENCE = 60.0  # seconds without an answer after which they count as lost, alive or not; a step takes milliseconds
TRIES = 3  # to move the same rows with new processes
LEAVING = 5.0  # seconds to go home before a process is made to


class _LostError(Exception):
    """Why nobody answers any more."""


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
    is read twice or in halves. When a process is lost with a row, all are replaced and the rows on the way set off
    again from where they stood: a step depends on nothing else, so the numbers are the same.
    """

    def __init__(self, engine: Any, model: Any, shared: SharedRows, number: int, **how: Any):
        rows, size = shared.states.shape
        self._engine, self._model, self._shared, self._number = engine, model, shared, number
        self._order = how | {"rows": rows, "size": size}
        self._numbers, self._moving = np.arange(rows, dtype=stepping.NUMBER), np.zeros(rows, bool)
        self._before = shared.states.copy()  # of rows on the way: where they set off
        self._losses = 0  # since rows last arrived
        self._members: list[subprocess.Popen] = []
        self._ends: list[int] = []  # ours of both pipes: orders, answers
        self._stop = weakref.finalize(self, _dismiss, self._members, self._ends)
        try:
            self._hire()
        except _LostError as lost:
            self._replace(lost)

    def start(self, rows: slice) -> None:
        """Have these rows moved."""
        self._before[rows] = self._shared.states[rows]
        self._moving[rows] = True
        try:
            self._send(self._numbers[rows])
        except _LostError as lost:
            self._replace(lost)

    def wait(self, rows: slice) -> None:
        """Until these rows have moved."""
        while self._moving[rows].any():
            try:
                self._moving[self._answered()] = False
            except _LostError as lost:
                self._replace(lost)
        self._losses = 0

    def close(self) -> None:
        """Send the processes home; also happens when nobody refers to them any more."""
        self._stop()

    def _hire(self) -> None:
        """Start all processes, and wait until each has read the model."""
        taken, orders = os.pipe()
        answers, given = os.pipe()
        self._ends[:] = [orders, answers]
        with tempfile.TemporaryDirectory() as folder:
            model = str(Path(folder) / "model.mjb")
            self._engine.mj_saveModel(self._model, model)
            try:
                for _ in range(self._number):
                    handed = {"memory": self._shared.file, "orders": taken, "answers": given}
                    self._members.append(_member(self._order | {"model": model}, handed))
            finally:
                os.close(taken)
                os.close(given)
            ready = 0
            while ready < self._number:
                ready += self._answered().size

    def _send(self, numbers: np.ndarray) -> None:
        try:
            for first in range(0, numbers.size, AT_ONCE):
                os.write(self._ends[0], numbers[first : first + AT_ONCE].tobytes())
        except BrokenPipeError:
            raise self._ended() from None

    def _answered(self) -> np.ndarray:
        answers, until = self._ends[1], time.monotonic() + PATIENCE
        while not select.select([answers], [], [], LOOK)[0]:
            if any(member.poll() is not None for member in self._members):
                raise self._ended()
            if time.monotonic() > until:
                raise _LostError(f"gave no answer in {PATIENCE:g} seconds")
        answer = os.read(answers, 2**16)
        if not answer:
            raise self._ended()
        return np.frombuffer(answer, stepping.NUMBER)

    def _ended(self) -> _LostError:
        codes = [member.poll() for member in self._members]
        if codes == [None] * len(codes):  # pipes are closed a moment before a process has an exit code
            codes = [member.wait(LEAVING) for member in self._members[:1]]
        return _LostError(f"ended (exit code {next(code for code in codes if code is not None)})")

    def _replace(self, lost: _LostError) -> None:
        """Start anew with the rows that were on the way. Answers that nobody has read yet are given again."""
        while True:
            self._losses += 1
            if self._losses > TRIES:
                raise UserError(
                    f"task: a physics process {lost}, {self._losses} times in a row; the last checkpoint is whole, "
                    "start the run again",
                    code=1,
                ) from None
            warnings.warn(f"a physics process {lost}; its rows are moved again by new ones", stacklevel=2)
            for member in self._members:
                member.kill()  # none may write any more
            _dismiss(self._members, self._ends)
            self._shared.states[self._moving] = self._before[self._moving]
            try:
                self._hire()
                return self._send(self._numbers[self._moving])
            except _LostError as again:
                lost = again


def _member(order: dict[str, Any], handed: dict[str, int]) -> subprocess.Popen:
    command = [sys.executable, "-P", stepping.__file__, json.dumps(order | handed)]
    # Its own session: Ctrl-C is for the trainer, which finishes its step and saves. One thread: numpy needs none.
    settings = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, pass_fds=tuple(handed.values()), env=settings, start_new_session=True)


def _dismiss(members: list[subprocess.Popen], ends: list[int]) -> None:
    """Without an open pipe a process ends by itself, unless it hangs."""
    while ends:
        os.close(ends.pop())
    while members:
        member = members.pop()
        try:
            member.wait(LEAVING)
        except subprocess.TimeoutExpired:
            member.kill()
            member.wait()
