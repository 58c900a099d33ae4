"""The curves and numbers of one run as the page gets them. The more runs, the less detail each of them brings."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prism_marl.reports import stats
from prism_marl.reports.finals import SEED, final_of
from prism_marl.reports.load import Curves, Run, SeedCurve, metric_names, on_common_grid
from prism_marl.reports.outcome import number_words, speed_of, speed_words
from prism_marl.runs.run_files import FloatArray

SPECTRA_FRAMES = 60
SPECTRA_BYTES = 2_000_000  # for all runs of a page together
FEW = 16  # up to so many runs bring much detail
MOST_METRICS = 8  # of the evaluations
MOST_SIGNALS = 16  # of training
MOST_SINGLE = 32  # seeds that are drawn one by one; more lines than that are a grey area
LEVELS = 65_534  # values that a packed number can have
_COUNTERS = ("episodes", "updates")  # numbers in an evaluation row that are not worth a curve


@dataclass(frozen=True)
class Detail:
    """How much one run may bring to a page of so many."""

    returns: int  # points of the return's curve
    others: int  # points of every other curve
    replays: int
    frames: int  # of the spectra
    spectra: int  # bytes


def detail_for(count: int) -> Detail:
    """Few runs bring everything; four hundred still fit into a page that opens at once."""
    few = count <= FEW
    others = 200 if few else max(20, min(60, 4000 // count))
    frames = SPECTRA_FRAMES if few else max(8, min(SPECTRA_FRAMES, 1200 // count))
    return Detail(200 if few else 100, others, 4 if few else 1, frames, SPECTRA_BYTES // max(count, 1))


def whole(steps: FloatArray) -> list[int]:
    """Steps as whole numbers."""
    return [round(step) for step in steps.tolist()]


def scores(run: Run) -> dict[str, Any] | None:
    """The end points of the return: final, best and mean height as [IQM, low, high]; ``words`` is the final return as
    the terminal writes it."""
    curves = on_common_grid(run.evaluations, "return")
    final = final_of(run.evaluations)
    if curves is None or final is None:
        return None
    points = {"best": stats.best_evaluation(curves.values), "area": stats.area_under_curve(curves.steps, curves.values)}
    resamples = stats.POINT_RESAMPLES
    found: dict[str, Any] = {
        key: list(stats.bootstrap_interval([values], seed=SEED, resamples=resamples)) for key, values in points.items()
    }
    interval = list(final.interval())
    return {"final": interval, "words": [number_words(value) for value in interval], **found, "steps": final.step}


def evaluation_curves(run: Run, detail: Detail) -> dict[str, Any]:
    """Interquartile mean with its interval and single seeds, for every metric of the evaluations."""
    names = [name for name in metric_names(run.evaluations) if name not in _COUNTERS]
    names.sort(key=lambda name: name != "return")
    found = {}
    for name in names[:MOST_METRICS]:
        grid = on_common_grid(run.evaluations, name, detail.returns if name == "return" else detail.others)
        if grid is not None:
            interval = stats.bootstrap_interval([grid.values], seed=0)
            found[name] = _curve(grid, interval.estimate, interval.low, interval.high)
    return found


def training_curves(curves: Sequence[SeedCurve], points: int) -> dict[str, Any]:
    """Median over seeds and the full range: losses are there to be checked, not compared."""
    found = {}
    for name in metric_names(curves)[:MOST_SIGNALS]:
        grid = on_common_grid(curves, name, points)
        if grid is not None:
            values = grid.values
            found[name] = _curve(grid, np.median(values, axis=0), values.min(axis=0), values.max(axis=0))
    return found


def _curve(grid: Curves, middle: FloatArray, low: FloatArray, high: FloatArray) -> dict[str, Any]:
    return {"x": whole(grid.steps), "y": middle, "low": low, "high": high, "seeds": packed(grid.values[:MOST_SINGLE])}


def packed(values: FloatArray) -> dict[str, Any]:
    """[seeds, points] as two bytes a number, between the lowest and the highest: a third of what JSON takes."""
    low, high = float(values.min()), float(values.max())
    span = high / 2 - low / 2  # halves, because the difference of two huge numbers has no end
    share = (values / 2 - low / 2) / span if span > 0 else np.zeros_like(values)
    coded = np.rint(share * LEVELS).astype("<u2")
    return {"count": len(values), "low": low, "high": high, "bytes": base64.b64encode(coded.tobytes()).decode()}


def timing(run: Run) -> dict[str, Any]:
    """Seconds and speed; ``words`` is the speed as the terminal writes it."""
    speed = speed_of(run.timing)
    words = speed_words(speed.rate) if np.isfinite(speed.rate) else ""
    return {"seconds": speed.seconds, "rate": speed.rate, "compile": speed.compiling, "words": words}
