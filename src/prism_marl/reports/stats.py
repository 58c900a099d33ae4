"""Statistics for few seeds: interquartile mean, bootstrap intervals, area under a curve, chance to be better.

Axes: seeds come first, everything after them (time, say) is carried along. All functions are pure and take
their random seed as an argument, so the same rows always give the same interval.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

CURVE_RESAMPLES = 2_000  # a whole curve needs one interval per step
POINT_RESAMPLES = 50_000  # a single number can afford a finer one

MOST_REDRAWN = 2**25  # numbers in all resamples: hundreds of seeds get fewer resamples, which they can afford
FEWEST_RESAMPLES = 200
AT_ONCE = 2**22  # numbers that are redrawn together


class Interval(NamedTuple):
    """A point estimate and the two ends of its interval; all three have the same shape."""

    estimate: Any
    low: Any
    high: Any


def interquartile_mean(values: ArrayLike, axis: int = 0) -> Any:
    """The mean of what is left after dropping the floor(n/4) smallest and the floor(n/4) largest values.

    A value that is not a number makes the result one: it would sort to the end and be dropped as if it were the best.
    """
    ordered = np.sort(np.asarray(values, dtype=float), axis=axis)
    count = ordered.shape[axis]
    if count == 0:
        raise ValueError("the interquartile mean of no values is not defined")
    cut = count // 4
    mean = np.take(ordered, np.arange(cut, count - cut), axis=axis).mean(axis=axis)
    unknown = np.isnan(np.take(ordered, -1, axis=axis))
    return np.where(unknown, np.nan, mean) if unknown.any() else mean


def bootstrap_interval(
    strata: Sequence[ArrayLike], *, seed: int, resamples: int = CURVE_RESAMPLES, level: float = 0.95
) -> Interval:
    """Interquartile mean over all strata with its percentile bootstrap interval.

    Each stratum (one task) is an array ``[seeds, ...]``; seeds are redrawn with replacement inside their
    stratum, so every resample has as many runs per task as the data. A seed is redrawn with its whole curve.
    """
    arrays = [np.asarray(stratum, dtype=float) for stratum in strata]
    if not arrays or any(len(array) == 0 for array in arrays):
        raise ValueError("every stratum needs at least one seed")
    pooled = np.concatenate(arrays)
    resamples = max(FEWEST_RESAMPLES, min(resamples, MOST_REDRAWN // pooled.size))
    distinct, which = _stratified_draws(tuple(len(array) for array in arrays), resamples, seed)
    several = max(1, AT_ONCE // pooled.size)
    parts = [distinct[first : first + several] for first in range(0, len(distinct), several)]
    estimates = np.concatenate([interquartile_mean(pooled[part], axis=1) for part in parts])
    return Interval(interquartile_mean(pooled), *_repeated_percentiles(estimates, np.bincount(which), level))


@lru_cache(maxsize=16)
def _stratified_draws(sizes: tuple[int, ...], resamples: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct resamples, as row indices into the concatenated strata, and which of them each draw is.

    Order inside a resample does not matter and five seeds have only 126 combinations, so most draws repeat. The
    draws do not depend on the data, and the runs of a report mostly have equally many seeds: hence the cache.
    """
    rng = np.random.default_rng(seed)
    starts = np.cumsum([0, *sizes[:-1]])
    drawn = [
        start + np.sort(rng.integers(size, size=(resamples, size)), axis=1)
        for start, size in zip(starts, sizes, strict=True)
    ]
    distinct, which = np.unique(np.concatenate(drawn, axis=1), axis=0, return_inverse=True)
    return distinct, which.reshape(-1)


def _repeated_percentiles(values: FloatArray, times: NDArray[np.int64], level: float) -> list[Any]:
    """Both ends of the interval of ``np.repeat(values, times, axis=0)``, without writing out thousands of repeats."""
    order = np.argsort(values, axis=0)
    ordered, reached = np.take_along_axis(values, order, axis=0), np.cumsum(times[order], axis=0)

    def ranked(rank: int) -> FloatArray:
        return np.take_along_axis(ordered, (reached <= rank).sum(axis=0)[None], axis=0)[0]

    ends = []
    for share in ((1.0 - level) / 2.0, (1.0 + level) / 2.0):
        place = share * (int(times.sum()) - 1)
        below = int(place)
        low, high = ranked(below), ranked(min(below + 1, int(times.sum()) - 1))
        ends.append(low + (high - low) * (place - below))
    return ends


def _percentiles(estimate: Any, resampled: FloatArray, level: float) -> Interval:
    tail = 50.0 * (1.0 - level)
    low, high = np.percentile(resampled, [tail, 100.0 - tail], axis=0)
    return Interval(estimate, low, high)


def area_under_curve(steps: ArrayLike, values: ArrayLike) -> Any:
    """Trapezoid area divided by the range of steps: the mean height of each curve, in units of the value."""
    x, y = np.asarray(steps, dtype=float), np.asarray(values, dtype=float)
    if x.size == 1:
        return y[..., 0]
    width = np.diff(x)
    return ((y[..., 1:] + y[..., :-1]) / 2.0 * width).sum(axis=-1) / (x[-1] - x[0])


def best_evaluation(values: ArrayLike) -> Any:
    """The largest value of each curve ``[..., time]``; optimistic by construction, so never the headline."""
    return np.asarray(values, dtype=float).max(axis=-1)


def probability_of_improvement(ours: ArrayLike, theirs: ArrayLike) -> float:
    """How often a random seed of ``ours`` beats one of ``theirs``; a tie counts one half (Mann-Whitney)."""
    return float(_win_table(ours, theirs).mean())


def improvement_interval(
    ours: ArrayLike,
    theirs: ArrayLike,
    *,
    seed: int,
    resamples: int = CURVE_RESAMPLES,
    level: float = 0.95,
) -> Interval:
    """Probability of improvement with its percentile bootstrap interval; each side is redrawn on its own."""
    return stratified_improvement([(ours, theirs)], seed=seed, resamples=resamples, level=level)


def stratified_improvement(
    tasks: Sequence[tuple[ArrayLike, ArrayLike]],
    *,
    seed: int,
    resamples: int = CURVE_RESAMPLES,
    level: float = 0.95,
) -> Interval:
    """Probability of improvement on a task drawn at random: the mean over tasks, with its bootstrap interval.

    Each task is a pair (ours, theirs) of final values. Seeds are compared and redrawn inside their task, so a task with
    many seeds or large returns weighs no more than another.
    """
    if not tasks:
        raise ValueError("the probability of improvement needs at least one task")
    rng = np.random.default_rng(seed)
    tables = [_win_table(ours, theirs) for ours, theirs in tasks]
    resampled = np.mean([_redrawn_means(table, resamples, rng) for table in tables], axis=0)
    return _percentiles(float(np.mean([table.mean() for table in tables])), resampled, level)


def _redrawn_means(wins: FloatArray, resamples: int, rng: np.random.Generator) -> FloatArray:
    """The mean of each redrawn table. Entries are halves, so their sums are exact in whatever order they are added:
    counting how often each row and column was drawn is as good as writing the table out, which takes gigabytes."""
    ours, theirs = wins.shape
    rows = _times_drawn(rng.integers(ours, size=(resamples, ours)), ours)
    columns = _times_drawn(rng.integers(theirs, size=(resamples, theirs)), theirs)
    return ((rows @ wins) * columns).sum(axis=1) / (ours * theirs)


def _times_drawn(drawn: NDArray[np.int64], size: int) -> FloatArray:
    """[resamples, draws] numbers below ``size`` as how often each was drawn: [resamples, size]."""
    flat = drawn + size * np.arange(len(drawn))[:, None]
    return np.bincount(flat.reshape(-1), minlength=len(drawn) * size).reshape(len(drawn), size).astype(float)


def _win_table(ours: ArrayLike, theirs: ArrayLike) -> FloatArray:
    """``[ours, theirs]``: 1 where ours is larger, 1/2 where equal, 0 where smaller."""
    x, y = np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float)
    if x.size == 0 or y.size == 0:
        raise ValueError("both sides need at least one seed")
    if np.isnan(x).any() or np.isnan(y).any():
        raise ValueError("a value that is not a number can neither win nor lose; leave that seed out and say so")
    return (x[:, None] > y[None, :]) + 0.5 * (x[:, None] == y[None, :])


def mask_distance(mask: ArrayLike, common: int = 0) -> FloatArray:
    """Share of maskable directions on which two identities differ: ``[..., m, r]`` to ``[..., m, m]``.

    The first ``common`` directions are on for everyone; counting them would only dilute the number.
    """
    own = np.asarray(mask, dtype=bool)[..., common:]
    if own.shape[-1] == 0:
        return np.zeros((*own.shape[:-1], own.shape[-2]))
    return (own[..., :, None, :] != own[..., None, :, :]).mean(axis=-1)


def spectrum_distance(spectrum: ArrayLike) -> FloatArray:
    """L1 distance between the masked singular values of every two identities: ``[..., m, r]`` to ``[..., m, m]``."""
    values = np.asarray(spectrum, dtype=float)
    return np.abs(values[..., :, None, :] - values[..., None, :, :]).sum(axis=-1)


def mean_mask_distance(mask: ArrayLike, common: int = 0) -> Any:
    """``mean_pairwise(mask_distance(mask, common))`` without the table of all pairs: a direction that is on for n of m
    identities differs in n (m - n) of their pairs."""
    own = np.asarray(mask, dtype=bool)[..., common:]
    identities, directions = own.shape[-2:]
    if identities < 2 or not directions:
        return np.zeros(own.shape[:-2])
    on = own.sum(axis=-2)
    return (on * (identities - on)).sum(axis=-1) / (directions * identities * (identities - 1) / 2)


def mean_pairwise(distance: ArrayLike) -> Any:
    """Mean over all pairs of identities of a symmetric table ``[..., m, m]``; 0 for a single identity."""
    table = np.asarray(distance, dtype=float)
    identities = table.shape[-1]
    if identities < 2:
        return np.zeros(table.shape[:-2])
    pairs = np.triu_indices(identities, k=1)
    return table[..., pairs[0], pairs[1]].mean(axis=-1)
