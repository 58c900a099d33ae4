"""Gymnasium's own robots, which the benchmarks measure ours against."""

import warnings
from typing import Any

import gymnasium
import numpy as np

from prism_marl.envs.mamujoco.tasks import find_task
from prism_marl.types import EnvSpec, Observation, Step

ORIGINALS = {"ant": "Ant-v4", "halfcheetah": "HalfCheetah-v4", "hopper": "Hopper-v4", "walker2d": "Walker2d-v4"}


def original(variant: str) -> Any | None:
    """Gymnasium's environment of one of our robots; None for swimmers, which it does not have."""
    name = ORIGINALS.get(find_task(variant).robot)
    if name is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # v4 is old, on purpose
        return gymnasium.make(name)


class OriginalRow:
    """One such environment in the shapes that learners read, and nothing more than that around it."""

    def __init__(self, env: Any, spec: EnvSpec):
        self.env, self.spec = env, spec

    def reset(self, rows: np.ndarray, seeds: np.ndarray) -> None:
        self.seen, _ = self.env.reset(seed=int(seeds[0]))

    def observe(self) -> Observation:
        state: Any = np.zeros((1, self.spec.state), np.float32)  # Ant's contact entries, at the end, stay zero
        state[0, : self.seen.size] = self.seen
        local: Any = np.repeat(state[:, None], self.spec.agents, axis=1)
        fixed: tuple[Any, ...] = (np.ones_like(local, bool), np.arange(self.spec.agents)[None])
        return Observation(local, state, *fixed)

    def step(self, action: np.ndarray) -> Step:
        self.seen, reward, fallen, cut, _ = self.env.step(action.reshape(-1))
        ends: tuple[Any, ...] = (np.array([reward], np.float32), np.array([fallen]), np.array([cut and not fallen]))
        return Step(self.observe(), *ends, metrics={})

    def close(self) -> None:
        self.env.close()
