"""Threads that work through the rows of a batch. The engine lets go of Python's lock while it computes.

Every thread has one workspace of the engine; what belongs to a row is copied in and out. That keeps the workspace in
the core's cache, and a batch needs memory for its states alone.
"""

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

Job = Callable[[Any, Iterator[int]], None]  # workspace, rows to take until none is left


class Pool:
    """The calling thread and ``threads - 1`` helpers."""

    def __init__(self, workspaces: list[Any]):
        self._own, *others = workspaces
        self._helpers = len(others)
        self._orders: queue.SimpleQueue[tuple[Job, Iterator[int]] | None] = queue.SimpleQueue()
        self._reports: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        for workspace in others:
            order = (workspace, self._orders, self._reports)
            threading.Thread(target=_help, args=order, name="physics", daemon=True).start()
        self._stop = weakref.finalize(self, _dismiss, self._orders, self._helpers)

    def run(self, job: Job, rows: int) -> None:
        """Do the job for every row. Whoever is free takes the next one, so a slow row delays nobody else."""
        remaining = iter(range(rows))
        for _ in range(self._helpers):
            self._orders.put((job, remaining))
        failure = _work(self._own, job, remaining)
        for _ in range(self._helpers):
            failure = self._reports.get() or failure
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Send the helpers home; also happens when nobody refers to the pool any more."""
        self._stop()


def _work(workspace: Any, job: Job, rows: Iterator[int]) -> BaseException | None:
    try:
        job(workspace, rows)  # taking the next number is one step of the interpreter: no row is taken twice
    except BaseException as error:
        for _ in rows:  # nobody need go on
            pass
        return error
    return None


def _help(workspace: Any, orders: queue.SimpleQueue, reports: queue.SimpleQueue) -> None:
    while (order := orders.get()) is not None:
        reports.put(_work(workspace, *order))
        del order  # or an idle helper would keep the environment alive


def _dismiss(orders: queue.SimpleQueue, helpers: int) -> None:
    for _ in range(helpers):
        orders.put(None)
