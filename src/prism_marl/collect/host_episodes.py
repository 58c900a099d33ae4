"""Whole episodes in rows on the host, many at once: what ``compiled.play`` does for JAX environments, in numpy."""

from typing import Any, NamedTuple

import jax
import numpy as np

from prism_marl.collect.players import Player
from prism_marl.envs.base import RowsEnv, lost_rows
from prism_marl.learners.base import Trajectory
from prism_marl.learners.log import GIVEN
from prism_marl.types import EnvSpec, Observation


class Ended(NamedTuple):
    """What an evaluation reports about each episode [n, b]."""

    returns: np.ndarray
    length: np.ndarray
    metrics: dict[str, np.ndarray]  # at the last real step
    lost: np.ndarray  # whether its game died, so that these numbers are not to be counted


class HostEpisodes:
    """Episodes [n, b] while they are played. Finished ones idle: they hold their last observation, not valid."""

    def __init__(self, env: RowsEnv, starts: np.ndarray, number: int, template: Trajectory | None = None):
        """``starts`` [n, b] seed the episodes; after the first ``number`` of each seed all count as finished. Without
        a ``template`` nothing is recorded."""
        spec, shape = env.spec, starts.shape
        self.env, self.spec, self.width, self.clock = env, spec, int(shape[1]), 0
        self.alive = np.zeros(shape, bool)
        self.alive[:, :number] = True
        self.obs = _blank(spec, shape)
        self.ended = Ended(
            np.zeros(shape, np.float32),
            np.zeros(shape, np.float32),
            {name: np.zeros(shape, np.float32) for name in spec.metrics},
            np.zeros(shape, bool),
        )
        self.finite = {name: np.ones(shape, bool) for name in GIVEN}
        self.record = None if template is None else _empty(template, shape)
        self._extras = bool(jax.tree.leaves(self.record.extras)) if self.record else False
        played = np.flatnonzero(self.alive)
        env.reset(played, starts.reshape(-1)[played])
        self._see(env.observe(), self.alive)

    def play(self, player: Player) -> None:
        """Play until the last episode is over."""
        while self.alive.any():
            action, extras = player.act(self.clock, slice(0, len(self.alive)), self.obs)
            self.step(np.asarray(action), extras)

    def step(self, action: np.ndarray, extras: Any = ()) -> None:
        """One step of every episode that still runs."""
        alive = self.alive
        if self.record is not None:
            self._record_obs(self.clock)
            self.record.action[:, self.clock], self.record.valid[:, self.clock] = action, alive
            if self._extras:
                now = (slice(None), self.clock)
                jax.tree.map(lambda held, new: held.__setitem__(now, new), self.record.extras, extras)
        step = self.env.step(action.reshape(-1, *action.shape[2:]))
        reward = np.where(alive, step.reward.reshape(alive.shape), 0).astype(np.float32)
        flags = {name: alive & getattr(step, name).reshape(alive.shape) for name in ("terminated", "truncated")}
        if self.record is not None:
            self.record.reward[:, self.clock] = reward
            if self.record.agent_reward is not None:
                each = np.asarray(step.agent_reward).reshape(*alive.shape, -1)
                self.record.agent_reward[:, self.clock] = np.where(alive[..., None], each, 0)
            for name, values in flags.items():
                getattr(self.record, name)[:, self.clock] = values
        returns, length, metrics, _ = self.ended
        returns += reward
        length += alive
        for name, values in metrics.items():
            values[alive] = step.metrics[name].reshape(alive.shape)[alive]
        self.finite["reward"] &= np.isfinite(reward)
        self._see(step.obs, alive)
        lost = lost_rows(self.env)
        if lost.any():
            for index in np.argwhere(alive & lost.reshape(alive.shape)).tolist():
                self._drop((index[0], index[1]))
        self.alive = alive & ~flags["terminated"] & ~flags["truncated"]
        self.clock += 1

    def trajectory(self) -> Trajectory:
        """Episodes [n, t, b, ...] in the types in which they are stored."""
        assert self.record is not None
        for slot in range(self.clock, self.spec.horizon + 1):
            self._record_obs(slot)
        return self.record

    def _drop(self, index: tuple[int, int]) -> None:
        """An episode whose game was lost: nothing of it is learned from, counted as steps, or averaged."""
        if self.record is not None:
            for flags in (self.record.valid, self.record.terminated, self.record.truncated):
                flags[index[0], :, index[1]] = False
        self.ended.length[index], self.ended.lost[index] = 0, True

    def _see(self, obs: Observation, rows: np.ndarray) -> None:
        for held, new in zip(self.obs, obs, strict=True):
            which = rows.reshape(*rows.shape, *[1] * (held.ndim - 2))
            np.copyto(held, np.reshape(new, held.shape), casting="unsafe", where=which)
        local, state = np.isfinite(self.obs.local), np.isfinite(self.obs.state)
        if not (local.all() and state.all()):
            self.finite["observation"] &= local.all(axis=(-2, -1)) & state.all(axis=-1)

    def _record_obs(self, slot: int) -> None:
        assert self.record is not None
        with np.errstate(invalid="ignore"):  # a NaN that becomes a whole number here has been noted before
            for held, seen in zip(self.record.obs, self.obs, strict=True):
                if held.size:
                    held[:, slot] = seen


def _blank(spec: EnvSpec, shape: tuple[int, ...]) -> Any:
    """The observation of rows that are not played."""
    return Observation(
        np.zeros((*shape, spec.agents, spec.observation), np.float32),  # pyright: ignore[reportArgumentType]
        np.zeros((*shape, spec.state), np.float32),  # pyright: ignore[reportArgumentType]
        np.ones((*shape, spec.agents, spec.actions), bool),  # pyright: ignore[reportArgumentType]
        np.tile(np.arange(spec.agents, dtype=np.int32), (*shape, 1)),  # pyright: ignore[reportArgumentType]
    )


def _empty(template: Trajectory, shape: tuple[int, ...]) -> Any:
    seeds, rows = shape
    return jax.tree.map(lambda leaf: np.zeros((seeds, leaf.shape[0], rows, *leaf.shape[1:]), leaf.dtype), template)
