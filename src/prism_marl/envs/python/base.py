"""What the host loop asks of an environment that lives in Python."""

from typing import Any

import numpy as np

from prism_marl.types import Observation, Step


def observation(local: np.ndarray, avail: np.ndarray, state: np.ndarray | None = None) -> Observation:
    """The record in numpy: the role is the agent's index, and a task without a state has the joint observation."""
    local = local.astype(np.float32, copy=False)
    whole = local.reshape(-1) if state is None else state.astype(np.float32, copy=False)
    parts: tuple[Any, ...] = (local, whole, avail, np.arange(len(local)))
    return Observation(*parts)


def outcome(
    obs: Observation, reward: float, *, terminated: bool, truncated: bool, metrics: dict[str, float] | None = None
) -> Step:
    """The record in numpy."""
    measured = {name: np.float32(value) for name, value in (metrics or {}).items()}
    parts: tuple[Any, ...] = (np.float32(reward), np.bool_(terminated), np.bool_(truncated), measured)
    return Step(obs, *parts)
