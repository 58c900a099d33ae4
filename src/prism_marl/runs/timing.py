"""The rows of ``timing.jsonl``: how long each stretch of training took, from one evaluation to the next.

A stretch may be gone by several processes, because a clean stop saves in the middle of it. So a checkpoint notes how
much of it is behind, and the row at its end covers all of it.
"""

import math
import time
from collections.abc import Callable
from typing import Any

from prism_marl.storage.files import number


class Stopwatch:
    """Steps, seconds and lost episodes of the present stretch. ``compiled`` tells the seconds spent on compiling, which
    do not count, and ``dropped`` the episodes that this process has lost, or None where none can be."""

    def __init__(self, compiled: Callable[[], float], dropped: Callable[[], int | None]):
        self._compiled, self._dropped = compiled, dropped
        self._steps, self._seconds, self._lost = 0, 0.0, 0
        self._marked, self._begun, self._told = 0, 0.0, 0

    def start(self, steps: int) -> None:
        """A stretch begins or goes on at so many steps of all seeds."""
        self._marked, self._begun = steps, time.perf_counter() - self._compiled()

    def measure(self, steps: int) -> None:
        """Add what came since the start."""
        self._steps += steps - self._marked
        self._seconds += time.perf_counter() - self._compiled() - self._begun
        self.start(steps)

    def row(self, evaluation: int) -> list[dict[str, Any]]:
        """The row of the stretch that ends here, and none if nothing was done; the next stretch begins."""
        _, seconds, lost = self.note()
        steps, self._steps, self._seconds, self._lost = self._steps, 0, 0.0, 0
        if not steps:
            return []
        found = {
            "evaluation": evaluation,
            "steps": steps,
            "seconds": round(seconds, 3),
            "steps_per_second": round(steps / max(seconds, 1e-9), 1),
            "compile_seconds": round(self._compiled(), 2),
        }
        return [found if self._dropped() is None else found | {"dropped": lost}]

    def note(self) -> list[float]:
        """What a checkpoint keeps of the stretch."""
        dropped = self._dropped() or 0
        self._lost, self._told = self._lost + dropped - self._told, dropped
        return [self._steps, self._seconds, self._lost]

    def restore(self, noted: Any) -> None:
        """Go on from there; from nothing, if an earlier version wrote the checkpoint."""
        found = [number(one) for one in noted] if isinstance(noted, list) and len(noted) == 3 else []
        if found and all(0 <= one < math.inf for one in found):
            self._steps, self._seconds, self._lost = int(found[0]), found[1], int(found[2])
