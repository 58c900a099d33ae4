"""Playing in environments that are stepped in rows on the host: physics in batches, and games that live in Python."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from prism_marl.collect.base import LOST, SIDE_BY_SIDE, Rule, Summary, evaluation_key, seed_numbers
from prism_marl.collect.host_episodes import Ended, HostEpisodes
from prism_marl.collect.host_rows import (
    EVALUATION,
    FIRST,
    MEASURING,
    TRAINING,
    WATCHING,
    by_seed,
    episode_seeds,
    first_ended,
    forget_rows,
    generator,
    play_on,
    step_in_turns,
)
from prism_marl.collect.players import DevicePlayer, HostPlayer, NumpyPlayer, Player, fresh_memory
from prism_marl.collect.visits import visiting_key, whole_template
from prism_marl.envs.base import RowsEnv
from prism_marl.learners.base import Clock, Hosted, Learner, Mode, Trajectory
from prism_marl.learners.log import GIVEN
from prism_marl.scene import Scene
from prism_marl.types import Observation

ROUND = 16  # greedy episodes of one seed at once under the rule "exact", where training plays fewer
OWN = -1  # in the pool: the rows of "steps", which nobody else may move


class HostCollector:
    """Plays rows on the host for all seeds. ``build`` makes so many rows; those that stand somewhere while others play
    (``own``) share no game with them."""

    compiled: ClassVar[bool] = False

    def __init__(self, build: Callable[[int, bool], RowsEnv], numbers: range, rows: int):
        self.numbers, self.rows = numbers, rows
        self._build = build
        self._pool: dict[int, RowsEnv] = {}
        self._at: Any = None  # the snapshot that says where the rows of "steps" stand
        self._restarted = False  # a game that cannot be replayed has begun a new episode

    @property
    def env(self) -> RowsEnv:
        """The rows that train by steps."""
        if OWN not in self._pool:
            self._pool[OWN] = self._build(len(self.numbers) * self.rows, True)
        return self._pool[OWN]

    def shared(self, number: int) -> RowsEnv:
        """Rows for whole episodes, evaluation and pictures."""
        if number not in self._pool:
            self._pool[number] = self._build(number, False)
        return self._pool[number]

    def open(self, learner: Learner) -> None:
        """Build the rows that will train, so that a game which cannot be built is known before a run begins."""
        if learner.collection.unit == "steps":
            _ = self.env
        else:
            self.shared(len(self.numbers) * self.rows)

    def reset(self, learner: Learner, policy: Any, keys: Key[Array, " n"]) -> Any:
        """The memory of rows of "steps", which begin their first episodes."""
        del keys
        if learner.collection.unit == "episodes":
            return ()
        starts = episode_seeds(FIRST, self.numbers, 0, (self.rows,)).reshape(-1)
        self.env.reset(np.arange(self.env.number), starts)
        self._at = None
        return () if learner.numpy() else fresh_memory(learner, policy, self.rows)

    def collect(
        self, learner: Learner, policy: Any, env: Any, keys: Any, steps: Any, clock: Clock, mode: Mode
    ) -> tuple[Any, Trajectory, Summary]:
        """Whole episodes, or an interval of rows that go on; the arrays are fresh, since a device may still read those
        of before."""
        if learner.collection.unit == "steps":
            return self._interval(learner, policy, env, keys, steps, int(clock.iteration), mode)
        keys, starts = _split(keys, self.rows)
        player = self._player(learner, policy, self.rows, keys, steps, mode)
        episodes = HostEpisodes(self.shared(starts.size), starts, self.rows, learner.template())
        episodes.play(player)
        taken = episodes.ended.length.sum(axis=1).astype(np.int32)
        finite: Any = {name: flags.all(axis=1) for name, flags in episodes.finite.items()}
        return (), episodes.trajectory(), Summary(taken, finite)

    def _interval(self, learner, policy, memory, keys, steps, iteration, mode) -> tuple[Any, Trajectory, Summary]:
        template, length = learner.template(), learner.collection.length
        noise, starts = self._numbers_of(learner, iteration, length, mode)
        record: Any = jax.tree.map(
            lambda leaf: np.empty((len(self.numbers), length, self.rows, *leaf.shape[1:]), leaf.dtype), template
        )
        player = self._player(learner, policy, self.rows, keys, steps, mode, noise=noise, memory=memory)
        if self._restarted:
            player.forget(np.ones((len(self.numbers), self.rows), bool))
            self._restarted = False
        begin, finite = player.memory, {name: np.ones(len(self.numbers), bool) for name in GIVEN}
        for number, part, obs, action, extras, step in step_in_turns(self.env, len(self.numbers), player, length):
            over = step.terminated | step.truncated
            _record_step(record, (part, number), (obs, action, extras, step), self.rows)
            _check_step(finite, part, obs, step, self.rows)
            if over.any():
                ended = np.flatnonzero(over)
                self.env.reset(part.start * self.rows + ended, starts[part, number].reshape(-1)[ended])
                forget_rows(player, over, part, len(self.numbers), self.rows)
        taken = np.full(len(self.numbers), length * self.rows, np.int32)
        self._at = None
        return player.memory, record._replace(memory=begin), Summary(taken, finite)  # pyright: ignore

    def _numbers_of(self, learner: Learner, iteration: int, length: int, mode: Mode):
        """The randomness of one interval: noise [n, t, b, ...] where the host acts itself, and the seeds [n, t, b] of
        episodes that begin after step t."""
        act, noise, starts = learner.numpy(), [], []
        for seed in self.numbers:
            rng = generator(TRAINING, seed, iteration)
            if act is not None:
                noise.append(act.noise(rng, length, self.rows, mode))
            starts.append(rng.integers(0, 2**31, (length, self.rows)))
        return np.stack(noise) if noise else None, np.stack(starts)

    def _player(
        self, learner: Learner, policy: Any, rows: int, keys: Any, steps: Any, mode: Mode, *, noise=None, memory=None
    ) -> Player:
        act = learner.numpy()
        if act is not None:
            return NumpyPlayer(act, policy, noise, mode)
        if learner.collection.unit == "episodes" and isinstance(learner, Hosted):
            acting = learner.on_host(rows)
            if acting is not None:
                return HostPlayer(learner, acting, policy, rows, keys, steps, mode)
        memory = fresh_memory(learner, policy, rows) if memory is None else memory
        return DevicePlayer(learner, policy, memory, keys, steps, mode)

    def evaluate(self, learner: Learner, policy: Any, evaluation: Any, episodes: int, rule: Rule) -> dict[str, Any]:
        """Greedy episodes of every seed; means over episodes, one number per seed."""
        width = min(episodes, SIDE_BY_SIDE if rule == "first" else max(self.rows, ROUND))
        keys = jax.vmap(evaluation_key, (0, None))(_numbers(self.numbers), jnp.int32(evaluation))
        keys, starts = _split(keys, episodes)
        env, steps = self.shared(len(self.numbers) * width), jnp.zeros(keys.shape, jnp.int32)

        def player() -> Player:
            return self._player(learner, policy, width, keys, steps, "greedy")

        if rule == "first":
            starts = episode_seeds(EVALUATION, self.numbers, int(evaluation), (width, episodes))
            ended = first_ended(play_on(env, player(), starts), len(self.numbers), episodes)
            return {name: np.array([np.mean([row[name] for row in rows]) for rows in ended]) for name in ended[0][0]}
        return _means(list(_rounds(env, player, starts, width)))

    def visit(self, learner: Learner, policy: Any, evaluation: Any, steps: Any, number: int) -> Trajectory:
        keys = jax.vmap(visiting_key, (0, None))(_numbers(self.numbers), jnp.int32(evaluation))
        keys, starts = _split(keys, number)
        act, noise = learner.numpy(), None
        if act is not None:
            draws = [generator(MEASURING, seed, int(evaluation)) for seed in self.numbers]
            noise = np.stack([act.noise(rng, learner.spec.horizon, number, "explore") for rng in draws])
        episodes = HostEpisodes(self.shared(starts.size), starts, number, whole_template(learner))
        episodes.play(self._player(learner, policy, number, keys, steps, "explore", noise=noise))
        return episodes.trajectory()

    def watch(
        self, learner: Learner, policy: Any, seed: int, number: int, states: list[Any] | None = None
    ) -> tuple[list[Scene], float]:
        env, numbers = self.shared(1), self.numbers[seed : seed + 1]
        starts = episode_seeds(WATCHING, numbers, number, (1, 1))
        env.reset(np.arange(1), starts[0, 0])
        first = env.scene(0)
        if first is None:
            return [], 0.0
        alone = jax.tree.map(lambda leaf: leaf[seed : seed + 1], policy)
        keys = jax.random.split(jax.random.key(number), 1)
        player = self._player(learner, alone, 1, keys, jnp.zeros(1, jnp.int32), "greedy")
        scenes: list[Scene | None] = [first]
        states = [] if states is None else states
        states.append(env.snapshot())
        for finished in play_on(env, player, starts):
            scenes.append(env.scene(0))
            states.append(env.snapshot())
            if finished:
                return [scene for scene in scenes if scene is not None], finished[0].values["return"]
        raise AssertionError("play never ends by itself")

    def snapshot(self) -> dict[str, Any]:
        """Where the rows of "steps" stand."""
        if OWN not in self._pool:
            return {}
        self._at = self.env.snapshot()
        return self._at

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go on from there; nothing to do where they stand there already."""
        if not snapshot or (self._at and all(snapshot[name] is part for name, part in self._at.items())):
            return
        self.env.restore(snapshot)
        self._at, self._restarted = snapshot, not getattr(self.env, "replayable", True)

    def dropped(self) -> int | None:
        counts = {id(getattr(env, "games", env)): getattr(env, "dropped", None) for env in self._pool.values()}
        found = [count for count in counts.values() if count is not None]
        return sum(found) if found else None

    def close(self) -> None:
        for env in self._pool.values():
            env.close()
        self._pool.clear()


def _numbers(numbers: range) -> Int[Array, " n"]:
    return seed_numbers(numbers.start, len(numbers))


@functools.partial(jax.jit, static_argnums=1)
def _keys_and_starts(keys: Key[Array, " n"], number: int) -> tuple[Key[Array, " n"], Int[Array, "n b"]]:
    def one(key):
        key_reset, key_steps = jax.random.split(key)
        return key_steps, jax.random.bits(key_reset, (number,)) >> 1  # 31 bits: every seeding function takes them

    return jax.vmap(one)(keys)


def _split(keys: Key[Array, " n"], number: int) -> tuple[Key[Array, " n"], np.ndarray]:
    """Keys of actions, and the seeds [n, b] of so many episodes."""
    keys, starts = _keys_and_starts(keys, number)
    return keys, np.asarray(starts)


def _rounds(env: RowsEnv, player: Callable[[], Player], starts: np.ndarray, width: int) -> Iterator[Ended]:
    """All episodes, ``width`` of each seed at a time. Greedy play draws nothing, so rounds may share their keys."""
    for first in range(0, starts.shape[1], width):
        some = starts[:, first : first + width]
        number = some.shape[1]
        some = np.pad(some, ((0, 0), (0, width - number)))  # a shorter round would be compiled again
        episodes = HostEpisodes(env, some, number)
        episodes.play(player())
        yield jax.tree.map(lambda leaf, number=number: leaf[:, :number], episodes.ended)


def _means(rounds: list[Ended]) -> dict[str, np.ndarray]:
    """Means over the episodes that were not lost; a seed that lost them all has NaN."""
    ended: Ended = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *rounds)
    values, played = {"return": ended.returns, "length": ended.length, **ended.metrics}, ~ended.lost

    def mean(value: np.ndarray) -> np.ndarray:
        if played.all():
            return np.asarray(jnp.mean(value, axis=-1))
        kept = [row[keep] for row, keep in zip(value, played, strict=True)]
        return np.array([jnp.mean(row) if row.size else np.nan for row in kept])

    means = {name: mean(value) for name, value in values.items()}
    return means if played.all() else means | {LOST: ended.lost.sum(axis=1)}


def _record_step(record: Trajectory, at: tuple[slice, int], now: tuple[Any, ...], rows: int) -> None:
    """Write one step of some seeds into arrays [n, t, b, ...]."""
    obs, action, extras, step = now
    assert record.next_obs is not None and record.truncated is not None
    for held, seen in ((record.obs, obs), (record.next_obs, by_seed(step.obs, rows))):
        for into, value in zip(held, seen, strict=True):
            if into.size:
                into[at] = value
    for name in ("reward", "agent_reward", "terminated", "truncated"):
        if getattr(record, name) is not None:
            getattr(record, name)[at] = by_seed(getattr(step, name), rows)
    record.action[at], record.valid[at] = action, True  # pyright: ignore[reportIndexIssue]
    jax.tree.map(lambda held, new: held.__setitem__(at, new), record.extras, extras)


def _check_step(finite: dict[str, np.ndarray], part: slice, obs: Observation, step: Any, rows: int) -> None:
    """Note which seeds saw or received a number that is not finite."""
    for seen in (obs, by_seed(step.obs, rows)):
        for values in (seen.local, seen.state):
            flags = np.isfinite(values).reshape(len(values), -1)
            finite["observation"][part] &= flags.all(axis=1)
    finite["reward"][part] &= np.isfinite(step.reward).reshape(-1, rows).all(axis=1)
