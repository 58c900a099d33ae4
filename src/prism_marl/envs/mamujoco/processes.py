"""Processes that step the rows of a batch, for machines with many cores.

Threads share Python's lock, and more than about eight threads wait for it more than they work. Each process has its
own lock. The states are in shared memory, so for a step only the number of the row is sent and returned.
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

AT_ONCE = 512  # numbers in one write, which the system then does not split
CHECK = 1.0  # seconds without an answer after which we check that all processes are alive
PATIENCE = 60.0  # seconds without an answer after which the processes count as lost; a step takes milliseconds
TRIES = 3  # to step the same rows with new processes
LEAVING = 5.0  # seconds in which a process must end by itself before it is killed


class _LostError(Exception):
    """A process died or does not answer; the message says which."""


class SharedRows:
    """The states of all rows and the positions that the reward needs, in shared memory."""

    def __init__(self, rows: int, size: int):
        self.file = os.memfd_create("robots") if hasattr(os, "memfd_create") else _unnamed_file()
        os.truncate(self.file, 8 * rows * (size + 1))
        self.states, self.reached = stepping.shared_arrays(mmap.mmap(self.file, 0), rows, size)
        weakref.finalize(self, os.close, self.file)


def _unnamed_file() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Processes:
    """Processes that read numbers of rows from one pipe and write them to another one when the rows have been stepped.

    A process that is free takes the next row. Reads and writes of a few bytes of a pipe are atomic, so no number is
    read twice or split. If a process is lost, all are replaced, and the pending rows are stepped again from their
    states before the step. A step depends on nothing else, so the numbers are the same.
    """

    def __init__(self, engine: Any, model: Any, shared: SharedRows, number: int, **how: Any):
        rows, size = shared.states.shape
        self._engine, self._model, self._shared, self._number = engine, model, shared, number
        self._order = how | {"rows": rows, "size": size}
        self._numbers, self._pending = np.arange(rows, dtype=stepping.NUMBER), np.zeros(rows, bool)
        self._before = shared.states.copy()  # of pending rows: their states before the step
        self._losses = 0  # since rows were last finished
        self._members: list[subprocess.Popen] = []
        self._ends: list[int] = []  # our ends of both pipes: orders, answers
        self._stop = weakref.finalize(self, _end, self._members, self._ends)
        try:
            self._start_members()
        except _LostError as lost:
            self._replace(lost)

    def start(self, rows: slice) -> None:
        """Start to step these rows."""
        self._before[rows] = self._shared.states[rows]
        self._pending[rows] = True
        try:
            self._send(self._numbers[rows])
        except _LostError as lost:
            self._replace(lost)

    def wait(self, rows: slice) -> None:
        """Wait until these rows are stepped."""
        while self._pending[rows].any():
            try:
                self._pending[self._receive()] = False
            except _LostError as lost:
                self._replace(lost)
        self._losses = 0

    def close(self) -> None:
        """End the processes; also done when this object is garbage."""
        self._stop()

    def _start_members(self) -> None:
        """Start all processes, and wait until each has read the model."""
        orders_read, orders = os.pipe()
        answers, answers_write = os.pipe()
        self._ends[:] = [orders, answers]
        with tempfile.TemporaryDirectory() as folder:
            model = str(Path(folder) / "model.mjb")
            self._engine.mj_saveModel(self._model, model)
            try:
                for _ in range(self._number):
                    descriptors = {"memory": self._shared.file, "orders": orders_read, "answers": answers_write}
                    self._members.append(_start_member(self._order | {"model": model}, descriptors))
            finally:
                os.close(orders_read)
                os.close(answers_write)
            ready = 0
            while ready < self._number:
                ready += self._receive().size

    def _send(self, numbers: np.ndarray) -> None:
        try:
            for first in range(0, numbers.size, AT_ONCE):
                os.write(self._ends[0], numbers[first : first + AT_ONCE].tobytes())
        except BrokenPipeError:
            raise self._ended() from None

    def _receive(self) -> np.ndarray:
        """Wait for numbers of rows that have been stepped."""
        answers, until = self._ends[1], time.monotonic() + PATIENCE
        while not select.select([answers], [], [], CHECK)[0]:
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
        if codes == [None] * len(codes):  # the pipes close a moment before a process has an exit code
            codes = [member.wait(LEAVING) for member in self._members[:1]]
        return _LostError(f"ended (exit code {next(code for code in codes if code is not None)})")

    def _replace(self, lost: _LostError) -> None:
        """Start new processes and step the pending rows again, also those whose answers were not read yet."""
        while True:
            self._losses += 1
            if self._losses > TRIES:
                raise UserError(
                    f"task: a physics process {lost}, {self._losses} times in a row; the last checkpoint is valid, "
                    "start the run again",
                    code=1,
                ) from None
            warnings.warn(f"a physics process {lost}; its rows are stepped again by new processes", stacklevel=2)
            for member in self._members:
                member.kill()  # so that none writes to the shared memory any more
            _end(self._members, self._ends)
            self._shared.states[self._pending] = self._before[self._pending]
            try:
                self._start_members()
                return self._send(self._numbers[self._pending])
            except _LostError as again:
                lost = again


def _start_member(order: dict[str, Any], descriptors: dict[str, int]) -> subprocess.Popen:
    command = [sys.executable, "-P", stepping.__file__, json.dumps(order | descriptors)]
    # Its own session: Ctrl-C reaches only the trainer, which finishes its step and saves. numpy needs one thread.
    settings = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, pass_fds=tuple(descriptors.values()), env=settings, start_new_session=True)


def _end(members: list[subprocess.Popen], ends: list[int]) -> None:
    """Close the pipes, at which a process ends by itself; kill it if it hangs."""
    while ends:
        os.close(ends.pop())
    while members:
        member = members.pop()
        try:
            member.wait(LEAVING)
        except subprocess.TimeoutExpired:
            member.kill()
            member.wait()
