"""Builds the records ``Observation`` and ``Step`` from numpy arrays."""

from typing import Any

import numpy as np

from prism_marl.types import Observation, Step


def observation(local: np.ndarray, avail: np.ndarray, state: np.ndarray | None = None) -> Observation:
    """An ``Observation``: roles are agent indices, and without a state the joint observation is the state."""
    local = local.astype(np.float32, copy=False)
    state = local.reshape(-1) if state is None else state.astype(np.float32, copy=False)
    parts: tuple[Any, ...] = (local, state, avail, np.arange(len(local)))
    return Observation(*parts)


def outcome(
    obs: Observation,
    reward: float,
    *,
    terminated: bool,
    truncated: bool,
    metrics: dict[str, float] | None = None,
    agent_reward: np.ndarray | None = None,
) -> Step:
    """A ``Step``."""
    measured = {name: np.float32(value) for name, value in (metrics or {}).items()}
    parts: tuple[Any, ...] = (np.float32(reward), np.bool_(terminated), np.bool_(truncated), measured)
    each: Any = None if agent_reward is None else agent_reward.astype(np.float32)
    return Step(obs, *parts, agent_reward=each)
