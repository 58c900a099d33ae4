"""Threads that work through the rows of a batch. The engine lets go of Python's lock while it computes.

Every thread has one workspace of the engine; what belongs to a row is copied in and out. That keeps the workspace in
the core's cache, and a batch needs memory for its states alone.
"""

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Job = Callable[[Any, Iterator[int]], None]  # workspace, rows to take until none is left


class _Order(NamedTuple):
    """Rows that wait for whoever is free, and where helpers report that none is left."""

    job: Job
    rows: Iterator[int]
    reports: queue.SimpleQueue[BaseException | None]


class Pool:
    """The calling thread, while it waits, and a helper for every workspace but the first."""

    def __init__(self, workspaces: list[Any], job: Job):
        self._own, *others = workspaces
        self._helpers, self._job = len(others), job
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._started: dict[int, _Order] = {}
        for workspace in others:
            words = (workspace, self._orders)
            threading.Thread(target=_help, args=words, name="physics", daemon=True).start()
        self._stop = weakref.finalize(self, _dismiss, self._orders, self._helpers)

    def start(self, rows: slice) -> None:
        """Have the job done for these rows. Whoever is free takes the next one, so a slow row delays nobody else."""
        order = _Order(self._job, iter(range(rows.start, rows.stop)), queue.SimpleQueue())
        self._started[rows.start] = order
        for _ in range(self._helpers):
            self._orders.put(order)

    def wait(self, rows: slice) -> None:
        """Help until these rows are done."""
        order = self._started.pop(rows.start)
        failure = _work(self._own, order)
        for _ in range(self._helpers):
            failure = order.reports.get() or failure
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Send the helpers home; also happens when nobody refers to the pool any more."""
        self._stop()


def _work(workspace: Any, order: _Order) -> BaseException | None:
    try:
        order.job(workspace, order.rows)  # taking the next number is one step of the interpreter: no row is taken twice
    except BaseException as error:
        for _ in order.rows:  # nobody need go on
            pass
        return error
    return None


def _help(workspace: Any, orders: queue.SimpleQueue[_Order | None]) -> None:
    while (order := orders.get()) is not None:
        order.reports.put(_work(workspace, order))
        del order  # or an idle helper would keep the environment alive


def _dismiss(orders: queue.SimpleQueue[_Order | None], helpers: int) -> None:
    for _ in range(helpers):
        orders.put(None)
