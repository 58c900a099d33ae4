"""How much of a run's masks the initial thresholds explain, in numbers and in words."""

from prism_marl.runs.masks import StartCounts, explained_by_start, over_layers
from prism_marl.runs.run_files import Spectra

ENOUGH = 20  # cases from which a share is told as a percentage; of fewer, chance alone often draws all or none


def counts_by_start(spectra: Spectra) -> StartCounts | None:
    """How many final differences of masks the initial thresholds explain, all seeds and layers together; None where
    the run does not tell how masks started."""
    if spectra.steps[0] != 0:
        return None
    return over_layers([explained_by_start(one.spectrum, one.mask, one.common) for one in spectra.layers]).total()


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
