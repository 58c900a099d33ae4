"""What must survive a kill, and how a checkpoint may hold a part of it."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class PartialArray:
    """Shape of an array of which a checkpoint may hold the first part along one axis; the rest is zeros."""

    shape: tuple[int, ...]
    dtype: Any
    axis: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def fill(self, held: np.ndarray) -> np.ndarray:
        """The whole array, where only that axis is too short; anything else stays as it is and is refused later."""
        axis = self.axis
        if held.ndim != len(self.shape) or held.shape[axis] >= self.shape[axis]:
            return held
        if (*held.shape[:axis], self.shape[axis], *held.shape[axis + 1 :]) != tuple(self.shape):
            return held  # before any memory is taken: an empty array may claim any size
        whole = np.zeros(self.shape, held.dtype)
        whole[(slice(None),) * axis + (slice(held.shape[axis]),)] = held
        return whole
