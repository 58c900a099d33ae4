"""Whole episodes in Python environments, many at once: what ``rollout`` does for compiled ones, in numpy."""

from typing import Any

import jax
import numpy as np

from prism_marl.collect.compiled import Summary
from prism_marl.envs.base import Concurrent, PythonEnv, lost
from prism_marl.learners.qmix import Episode, QMixLearner
from prism_marl.training.finite import GIVEN
from prism_marl.types import Observation


class HostRollout:
    """Episodes [seeds, b] while they are played. Finished ones idle: they hold their last observation, not valid."""

    def __init__(self, hosts: list[PythonEnv], learner: QMixLearner, starts: np.ndarray, number: int):
        """``starts`` [seeds, b] seed the episodes; after the first ``number`` of each row all count as finished."""
        spec, shape = learner.spec, starts.shape
        self.hosts, self.learner, self.width, self.clock = hosts, learner, int(shape[1]), 0
        self.alive = np.zeros(shape, bool)
        self.alive[:, :number] = True
        self.local = np.zeros((*shape, spec.agents, spec.observation), np.float32)
        self.state = np.zeros((*shape, spec.state), np.float32)
        self.avail = np.ones((*shape, spec.agents, spec.actions), bool)
        self.role = np.broadcast_to(np.arange(spec.agents, dtype=np.int32), self.local.shape[:-1]).copy()
        self.returns, self.length = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.metrics = {name: np.zeros(shape, np.float32) for name in spec.metrics}
        self.sound = {name: np.ones(shape, bool) for name in GIVEN}
        stored = learner.empty_episode()
        self.record: Any = jax.tree.map(lambda leaf: np.zeros((*shape, *leaf.shape), leaf.dtype), stored)
        for place, host in self._playing():
            if isinstance(host, Concurrent):
                host.begin_reset(int(starts[place]))
        for place, host in self._playing():
            self._see(place, host.reset(int(starts[place])))
        self._check_observations()

    @property
    def obs(self) -> Observation:
        """What all teams see now."""
        parts: tuple[Any, ...] = (self.local, self.state, self.avail, self.role)
        return Observation(*parts)

    def step(self, action: np.ndarray) -> None:
        """One step of every episode that still runs."""
        record, now = self.record, self.clock
        self._store_observation(now)
        record.action[:, :, now], record.valid[:, :, now] = action, self.alive
        self.length += self.alive
        for place, host in self._playing():
            if isinstance(host, Concurrent):
                host.begin_step(action[place])
        for place, host in self._playing():
            step: Any = host.step(action[place])
            over = step.terminated or step.truncated
            record.reward[(*place, now)] = step.reward
            record.terminated[(*place, now)] = over if self.learner.settings.time_limit_ends else step.terminated
            self.returns[place] += step.reward
            for name, values in self.metrics.items():
                values[place] = step.metrics[name]
            self.alive[place] = not over
            self._see(place, step.obs)
            if lost(host):
                self._drop(place)
        self.sound["reward"] &= np.isfinite(record.reward[:, :, now])
        self._check_observations()
        self.clock += 1

    def result(self) -> tuple[Episode, Summary]:
        """Episodes [seeds, b, t, ...] in the types in which they are stored, and their summaries."""
        for slot in range(self.clock, self.learner.spec.horizon + 1):
            self._store_observation(slot)
        parts: tuple[Any, ...] = (self.returns, self.length, self.metrics, self.sound)
        return self.record, Summary(*parts)

    def _drop(self, place: tuple[int, int]) -> None:
        """An episode whose game was lost: nothing of it is learned from, counted as steps, or averaged."""
        self.record.valid[place], self.record.terminated[place] = False, False
        self.length[place], self.returns[place] = 0, np.nan
        for values in self.metrics.values():
            values[place] = np.nan

    def _playing(self) -> list[tuple[tuple[int, int], PythonEnv]]:
        """Places of the running episodes and the environments that play them."""
        places = np.argwhere(self.alive).tolist()
        return [((row, column), self.hosts[row * self.width + column]) for row, column in places]

    def _see(self, place: tuple[int, int], obs: Any) -> None:
        self.local[place], self.state[place] = obs.local, obs.state
        self.avail[place], self.role[place] = obs.avail, obs.role

    def _check_observations(self) -> None:
        finite = np.isfinite(self.local).all(axis=(-2, -1)) & np.isfinite(self.state).all(axis=-1)
        self.sound["observation"] &= finite

    def _store_observation(self, slot: int) -> None:
        record = self.record
        with np.errstate(invalid="ignore"):  # a NaN that becomes a whole number here has been noted before
            record.local[:, :, slot], record.avail[:, :, slot] = self.local, self.avail
            record.role[:, :, slot] = self.role
            if not self.learner.spec.state_is_joint:
                record.state[:, :, slot] = self.state
