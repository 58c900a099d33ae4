"""Records the spectra of a run: files for the page, and how far the masks follow their random start."""

import math
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from prism_marl.runs.folder import write_spectra
from prism_marl.runs.masks import Layers, first_spectra, shares_by_start
from prism_marl.sharing.spectral import common_directions
from prism_marl.storage.files import HeldFolder

MOST = 1_000  # files, evenly spaced over a run, and the last; a page shows sixty of them


class SpectraRecorder:
    """The spectra of one run; ``agent`` is its network, or the shapes of it."""

    def __init__(self, folder: Path, agent: Any, evaluations: int, inside: HeldFolder | None = None):
        self.folder, self.evaluations, self.inside = folder, evaluations, inside
        self.common = common_directions(agent)

    @cached_property
    def _first(self) -> Layers | None:
        return first_spectra(self.folder)

    def masks_by_start(self, layers: Layers) -> dict[str, np.ndarray]:
        """The share of mask differences that the random start of the thresholds explains, for methods with masks."""
        masked = [name for name, (values, _) in layers.items() if self.common.get(name, np.inf) < values.shape[-1]]
        if not masked or self._first is None:
            return {}
        return {"masks_by_start": shares_by_start(self._first, {name: layers[name] for name in masked}, self.common)}

    def write(self, evaluation: int, steps: list[int], layers: Layers) -> None:
        """Write the file of an evaluation, where there is something to write and it is among the files to keep."""
        if evaluation % math.ceil(self.evaluations / MOST) and evaluation != self.evaluations - 1:
            return
        if layers:
            common = {name: self.common.get(name, 0) for name in layers}
            write_spectra(self.folder, evaluation, steps, layers, common, self.inside)
