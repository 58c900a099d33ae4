"""How far masks part in training, and how much of that the initial thresholds explain, in numbers and in words."""

import numpy as np

from prism_marl.runs.masks import StartCounts, explained_by_start, over_layers
from prism_marl.runs.run_files import Spectra

ENOUGH = 20  # cases from which a share is told as a percentage; of fewer, chance alone often draws all or none


def counts_by_start(spectra: Spectra) -> StartCounts | None:
    """How many final differences of masks the initial thresholds explain, all seeds and layers together; None where
    the run does not tell how masks started."""
    if spectra.steps[0] != 0:
        return None
    return over_layers([explained_by_start(one.spectrum, one.mask, one.common) for one in spectra.layers]).total()


def parted(spectra: Spectra) -> tuple[int, int, int]:
    """In how many own directions of all seeds and layers two masks differ at the first evaluation and at the last, and
    the number of these directions."""
    first, last, total = 0, 0, 0
    for layer in spectra.layers:
        own = np.asarray(layer.mask, bool)[..., layer.common :]  # [evaluations, seeds, identities, directions]
        differ = np.asarray(own.any(axis=2) & ~own.all(axis=2))
        first, last, total = first + int(differ[0].sum()), last + int(differ[-1].sum()), total + differ[0].size
    return first, last, total


def mask_sentences(spectra: Spectra, word: str) -> str:
    """What the page says about a run's masks: how far they part, and what of it the start explains."""
    first, last, total = parted(spectra)
    counts = counts_by_start(spectra)
    if counts is None or not total:
        return start_sentence(counts, word)
    told = (
        f"Masks of two {word}s differ in {first:,} of {total:,} own directions before training (all seeds and layers) "
        f"and in {last:,} after it."
    )
    return f"{start_sentence(counts, word)} {told}".strip()


def start_sentence(counts: StartCounts | None, word: str) -> str:
    """What the page says about them; nothing where no two masks differ."""
    if counts is None or not counts.pairs[0]:
        return ""
    explained, tied, pairs = (int(part[0]) for part in counts)
    if tied == pairs:
        return "All masks started alike, so none of their differences follows an initial random draw."
    half = f", and in {tied:,} both started alike, which counts half" if tied else ""
    there = "there is 1 case" if pairs == 1 else f"there are {pairs:,} cases"
    cases = (
        f"at the end {there}, over all seeds and layers, in which one {word} has a direction on and another has it "
        f"off; in {explained:,} of them the one that has it on started with the lower threshold{half}"
    )
    if pairs < ENOUGH:
        return f"{cases[0].upper()}{cases[1:]} (chance alone: half of them)."
    share = f"{100 * counts.shares[0]:.0f}% of the mask differences follow the initial random draw (chance: 50%)"
    return f"{share}: {cases}."
