"""Builds the records ``Observation`` and ``Step`` from numpy arrays."""

from typing import Any

import numpy as np

from prism_marl.envs.python.spaces import MisfitError, real
from prism_marl.errors import UserError
from prism_marl.types import Observation, Step


def observation(local: np.ndarray, avail: np.ndarray, state: np.ndarray | None = None) -> Observation:
    """An ``Observation``: roles are agent indices, and without a state the joint observation is the state."""
    local = _numbers("an observation", local)
    state = local.reshape(-1) if state is None else _numbers("a state", state)
    parts: tuple[Any, ...] = (local, state, avail, np.arange(len(local)))
    return Observation(*parts)


def _numbers(what: str, value: Any) -> np.ndarray:
    """The value as float32; a cast alone would also take texts, and drop half of a complex number."""
    if type(value) is np.ndarray and value.dtype == np.float32:
        return value
    try:
        with np.errstate(over="ignore"):  # what becomes infinite is noticed as such
            return real(value).astype(np.float32, copy=False)
    except MisfitError as error:
        raise UserError(f"task: {what} {error}; let the environment return real numbers", code=1) from None


def _one_number(reward: Any) -> np.float32:
    team = _numbers("a reward", reward)
    if team.size != 1:
        raise UserError(f"task: a reward has {team.size} numbers; let the environment return one for the team", code=1)
    return np.float32(team.reshape(())[()])


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
    team = np.float32(reward) if type(reward) is float else _one_number(reward)
    parts: tuple[Any, ...] = (team, np.bool_(terminated), np.bool_(truncated), measured)
    each: Any = None if agent_reward is None else agent_reward.astype(np.float32)
    return Step(obs, *parts, agent_reward=each)
