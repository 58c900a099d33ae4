"""What a run came to, in the same numbers and words at the end of training in the terminal and on the page.

The final return is that of ``finals.py``. The speed is the steps of all seeds divided by the seconds of training, over
the whole run; compiling and evaluating do not count. A progress bar shows the speed of the moment until the run ends.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from prism_marl.monitor import Monitor
from prism_marl.reports.finals import Final, final_of
from prism_marl.reports.load import load_evaluations, load_timing
from prism_marl.runs.run_files import FloatArray


class Speed(NamedTuple):
    """How long training took; NaN where the rows do not say."""

    rate: float  # steps of all seeds in a second
    seconds: float  # of training
    compiling: float  # seconds


def speed_of(timing: Mapping[str, FloatArray]) -> Speed:
    """The speed of a run from the columns of its ``timing.jsonl``."""
    nothing = np.array([])
    seconds, steps = timing.get("seconds", nothing), timing.get("steps", nothing)
    compiling = timing.get("compile_seconds", nothing)
    both = np.isfinite(seconds) & np.isfinite(steps) if seconds.shape == steps.shape else np.array([], bool)
    taken = float(seconds[both].sum()) if both.any() else 0.0
    return Speed(
        float(steps[both].sum()) / taken if taken > 0 else math.nan,
        float(np.nansum(seconds)) if np.isfinite(seconds).any() else math.nan,
        float(np.nanmax(compiling)) if np.isfinite(compiling).any() else math.nan,
    )


def number_words(value: float) -> str:
    """Three significant digits, and no exponent where a person would not write one."""
    if not math.isfinite(value):
        return "unknown"
    size = abs(value)
    if size == 0 or 1e-3 <= size < 1000:
        decimals = 2 if size == 0 else max(0, 2 - math.floor(math.log10(size)))
        return f"{value:.{decimals}f}"
    return f"{value:,.0f}" if 1000 <= size < 1e9 else f"{value:.2e}"


def final_words(middle: float, low: float, high: float, seeds: int) -> str:
    """A final return with what it is and how sure it is."""
    if seeds == 1:
        return f"{number_words(middle)} (one seed, so no interval)"
    interval = f"95% interval {number_words(low)} to {number_words(high)}"
    return f"{number_words(middle)} (interquartile mean of {seeds} seeds, {interval})"


def speed_words(rate: float) -> str:
    """The speed as a person reads it."""
    return f"{rate:,.0f} steps/s"


def outcome_words(final: Final | None, speed: Speed) -> str:
    """Final return and speed in one line, as far as they are known."""
    parts = [] if final is None else [f"final return {final_words(*final.interval(), len(final.values))}"]
    parts += [speed_words(speed.rate)] if math.isfinite(speed.rate) else []
    return ", ".join(parts)


def tell_outcome(folder: Path, monitor: Monitor, steps: int) -> None:
    """Say at the end of training what the page of the run says: on the progress bar, and in one line."""
    final, speed = final_of(load_evaluations(folder)), speed_of(load_timing(folder))
    rate = speed.rate if math.isfinite(speed.rate) else 0.0
    monitor.progress(steps, rate, "" if final is None else f"final return {number_words(final.middle())}")
    if words := outcome_words(final, speed):
        monitor.note(words)
