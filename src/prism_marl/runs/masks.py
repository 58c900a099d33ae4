"""Do masks follow the task, or only the order in which their thresholds happened to start?

All identities share the singular values of a layer, so the identity with the larger masked value has the lower
threshold, and thresholds start at random. If masks at the end are the order at the start, training has not chosen them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors.numpy
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError

from prism_marl.storage.files import LARGEST_TEXT, StrangeFileError, check_plain

Layers = Mapping[str, tuple[NDArray, NDArray]]
"""Masked singular values and masks of each layer, both ``[seeds, identities, directions]``."""


class StartCounts(NamedTuple):
    """How many differences of masks the start explains; each ``[seeds]``, of one layer or summed over several."""

    explained: NDArray[np.int64]  # the one that is on started with the larger masked value: the lower threshold
    tied: NDArray[np.int64]  # both started with the same value: nothing to explain
    pairs: NDArray[np.int64]  # all "direction on for p, off for q"

    @property
    def shares(self) -> NDArray[np.float64]:
        """For each seed the share that the start explains, a tie counting one half: 1/2 is chance, NaN no pair."""
        with np.errstate(invalid="ignore"):
            return (self.explained + self.tied / 2) / self.pairs

    def total(self) -> "StartCounts":
        """All seeds as one."""
        return StartCounts(*(np.array([column.sum()]) for column in self))


def explained_by_start(spectrum: ArrayLike, mask: ArrayLike, common: int = 0) -> StartCounts:
    """Compare the last masks with the first values, from ``[evaluations, seeds, identities, directions]`` of a layer.

    Of every two identities of which one has a direction on in the last evaluation and the other has it off: did the one
    that has it on start with the larger masked value? The first evaluation has to be the one before training. The first
    ``common`` directions are on for everybody.
    """
    start = np.abs(np.asarray(spectrum)[0, ..., common:])  # [seeds, m, k]
    on = np.asarray(mask, dtype=bool)[-1, ..., common:]
    counts = StartCounts(*(np.zeros(len(on), dtype=np.int64) for _ in range(3)))
    for one in range(on.shape[1]):  # one row at a time: a thousand identities make a million pairs
        parted = on[:, one, None] & ~on
        larger, equal = start[:, one, None] > start, start[:, one, None] == start
        for count, these in zip(counts, (parted & larger, parted & equal, parted), strict=True):
            count += these.sum(axis=(1, 2))
    return counts


def over_layers(counts: Sequence[StartCounts]) -> StartCounts:
    """The layers of one network together, seed by seed; at least one layer."""
    return StartCounts(*(np.sum(column, axis=0) for column in zip(*counts, strict=True)))


def shares_by_start(first: Layers, now: Layers, common: Mapping[str, int]) -> NDArray[np.float64]:
    """For each seed, the share of mask differences that the start explains: one number for a row of the run."""
    counts = [
        explained_by_start(np.stack([first[name][0]] * 2), np.stack([now[name][1]] * 2), common[name]) for name in now
    ]
    return over_layers(counts).shares


def first_spectra(folder: Path) -> Layers | None:
    """Values and masks before training, as a run folder has them; None if it does not."""
    path = folder / "spectra" / f"{0:06d}.safetensors"
    try:
        tensors = safetensors.numpy.load(check_plain(path, folder, LARGEST_TEXT).read_bytes())
        names = [key.removesuffix(".spectrum") for key in tensors if key.endswith(".spectrum")]
        return {name: (tensors[f"{name}.spectrum"], tensors[f"{name}.mask"].astype(bool)) for name in names} or None
    except (OSError, ValueError, KeyError, SafetensorError, StrangeFileError):
        return None
