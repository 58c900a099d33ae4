"""What "final" means and when a winner is named: in the terminal, on the page, in figures and in tables.

The final value of a seed is that of its greedy evaluation at the last step that all seeds of the run have reached; a
seed without an evaluation at that very step is read on the line between its two neighbours. The final return of a run
is the interquartile mean of these values with its 95% bootstrap interval.

A method is called the winner of a task only if its interval lies above the intervals of all others and every run has
five seeds: with fewer an interval is too narrow to mean anything.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from prism_marl.reports import stats
from prism_marl.reports.load import SeedCurve, load_evaluations, on_common_grid

FEWEST_SEEDS = 5  # for naming a winner, or colouring a probability
SEED = 0  # of every bootstrap: the same rows give the same numbers


class Final(NamedTuple):
    """Where the seeds of a run stand in the end."""

    step: float
    values: stats.FloatArray  # [seeds]

    def middle(self) -> float:
        """The final return of the run: the interquartile mean."""
        return float(stats.interquartile_mean(self.values))

    def interval(self) -> stats.Interval:
        """Interquartile mean and 95% bootstrap interval."""
        return stats.bootstrap_interval([self.values], seed=SEED, resamples=stats.POINT_RESAMPLES)


def final_of(evaluations: Sequence[SeedCurve], metric: str = "return", until: float = np.inf) -> Final | None:
    """The final values of a run, or those at its last common evaluation up to a step; None if there are none."""
    curves = on_common_grid(evaluations, metric)
    if curves is None or not (curves.steps <= until).any():
        return None
    place = int((curves.steps <= until).sum()) - 1
    return Final(float(curves.steps[place]), curves.values[:, place])


def final_return(folder: Path) -> float | None:
    """Interquartile mean of the final return of a run folder."""
    final = final_of(load_evaluations(folder))
    return None if final is None else final.middle()


def winner(finals: Sequence[Final]) -> int | None:
    """Which of several runs of a task ends clearly highest; None where the seeds do not say so."""
    if len(finals) < 2 or too_few(finals):
        return None
    intervals = [final.interval() for final in finals]
    best = max(range(len(finals)), key=lambda index: intervals[index].estimate)
    others = [interval.high for index, interval in enumerate(intervals) if index != best]
    return best if intervals[best].low > max(others) else None


def too_few(finals: Sequence[Final]) -> bool:
    """Whether a run has fewer seeds than it takes to compare."""
    return min(len(final.values) for final in finals) < FEWEST_SEEDS


def why_no_winner(finals: Sequence[Final]) -> str:
    """In words, where there is none."""
    if too_few(finals):
        return "a run has fewer than five seeds"
    return "the highest intervals overlap"


def settled(chance: Sequence[float], one: Final, other: Final) -> bool:
    """Whether a probability [estimate, low, high] that one beats the other says more than a coin toss."""
    return not too_few([one, other]) and (chance[1] > 0.5 or chance[2] < 0.5)
