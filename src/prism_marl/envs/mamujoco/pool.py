"""Threads that step the rows of a batch. The engine releases Python's lock while it computes.

Every thread has one workspace of the engine, and copies the state of a row in and out. So the workspace stays in the
core's cache, and a batch needs memory only for its states.
"""

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Job = Callable[[Any, Iterator[int]], None]  # workspace, rows to take until none is left


class _Order(NamedTuple):
    """Rows to step, and a queue to which each helper reports when no row is left."""

    job: Job
    rows: Iterator[int]
    reports: queue.SimpleQueue[BaseException | None]


class Pool:
    """One helper thread for every workspace but the first; the calling thread works with the first one in ``wait``."""

    def __init__(self, workspaces: list[Any], job: Job):
        self._own, *others = workspaces
        self._helpers, self._job = len(others), job
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._started: dict[int, _Order] = {}
        for workspace in others:
            threading.Thread(target=_help, args=(workspace, self._orders), name="physics", daemon=True).start()
        self._stop = weakref.finalize(self, _dismiss, self._orders, self._helpers)

    def start(self, rows: slice) -> None:
        """Start the job for these rows. A thread that is free takes the next row, so a slow row delays no other."""
        order = _Order(self._job, iter(range(rows.start, rows.stop)), queue.SimpleQueue())
        self._started[rows.start] = order
        for _ in range(self._helpers):
            self._orders.put(order)

    def wait(self, rows: slice) -> None:
        """Work on these rows until all are done; raises the exception of a thread."""
        order = self._started.pop(rows.start)
        failure = _work(self._own, order)
        for _ in range(self._helpers):
            failure = order.reports.get() or failure
        if failure is not None:
            raise failure

    def close(self) -> None:
        """End the threads; also done when the pool is garbage."""
        self._stop()


def _work(workspace: Any, order: _Order) -> BaseException | None:
    try:
        order.job(workspace, order.rows)  # taking the next number is one step of the interpreter: no row is taken twice
    except BaseException as error:
        for _ in order.rows:  # take all rows, so that the other threads stop
            pass
        return error
    return None


def _help(workspace: Any, orders: queue.SimpleQueue[_Order | None]) -> None:
    while (order := orders.get()) is not None:
        order.reports.put(_work(workspace, order))
        del order  # an idle helper must not keep the environment alive


def _dismiss(orders: queue.SimpleQueue[_Order | None], helpers: int) -> None:
    for _ in range(helpers):
        orders.put(None)
