"""Playing in JAX environments: compiled loops over time, nothing of which runs in Python while it plays."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from prism_marl.collect.base import SIDE_BY_SIDE, Rule, Summary, evaluation_key, seed_numbers
from prism_marl.collect.records import finite_episodes, finite_steps, fitted, seed_of, time_second, with_last_slot
from prism_marl.collect.visits import visiting_key
from prism_marl.envs.base import JaxEnv
from prism_marl.learners.base import Clock, Learner, Mode, Trajectory
from prism_marl.learners.seeds import map_seeds
from prism_marl.scene import Scene
from prism_marl.types import Observation

LOOK_EVERY = 10  # steps between two looks at whether anyone is still playing


class Playing(NamedTuple):
    """Rows while their episodes are played: [b, ...], or [n, b, ...] for all seeds."""

    state: Any
    obs: Observation
    memory: Any
    alive: Bool[Array, "*b"]
    returns: Float[Array, "*b"]
    length: Float[Array, "*b"]
    metrics: dict[str, Float[Array, "*b"]]  # at the last real step


class Standing(NamedTuple):
    """Where rows of "steps" stand between two collections: [n, b, ...]."""

    state: Any
    obs: Observation
    memory: Any


class Moved(NamedTuple):
    """One step of rows, as it is recorded."""

    obs: Observation
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    valid: Array
    extras: Any
    agent_reward: Array | None


@dataclass(frozen=True)
class CompiledCollector:
    """Plays one JAX environment for all seeds."""

    env: JaxEnv
    first: int  # number of the first seed
    seeds: int
    rows: int  # environments of each seed
    compiled: ClassVar[bool] = True

    def open(self, learner: Learner) -> None:
        """There is nothing to build."""

    def reset(self, learner: Learner, policy: Any, keys: Key[Array, " n"]) -> Any:
        if learner.collection.unit == "episodes":
            return ()
        start = map_seeds(functools.partial(_start, self.env, learner, number=self.rows))
        playing = start(policy, keys)
        return Standing(playing.state, playing.obs, playing.memory)

    def collect(
        self, learner: Learner, policy: Any, env: Any, keys: Any, steps: Any, clock: Clock, mode: Mode
    ) -> tuple[Any, Trajectory, Summary]:
        """Whole episodes from a reset, or an interval of rows that go on and restart inside."""
        del clock
        if learner.collection.unit == "steps":
            return self._interval(learner, policy, env, keys, steps, mode)
        playing, record, slots = play(self.env, learner, policy, keys, steps, self.rows, mode)
        finite = finite_episodes(learner, slots, record.valid, record.reward)
        trajectory = fitted(learner.template(), time_second(_trajectory(record, slots, None)))
        return (), trajectory, Summary(jnp.sum(playing.length, axis=1).astype(jnp.int32), finite)

    def _interval(self, learner, policy, env: Standing, keys, steps, mode) -> tuple[Standing, Trajectory, Summary]:
        length = learner.collection.length
        each = jnp.swapaxes(jax.vmap(lambda key: jax.random.split(key, length))(keys), 0, 1)

        def one(standing: Standing, keys):
            standing, moved, after, _ = _go_on(self.env, learner, policy, standing, keys, steps, mode)
            return standing, (moved, after)

        end, (record, after) = jax.lax.scan(one, env, each)
        finite = finite_steps(learner, (record.obs, after), record.reward)
        trajectory = _trajectory(record, record.obs, after)._replace(memory=())
        trajectory = fitted(learner.template(), time_second(trajectory))._replace(memory=env.memory)
        taken = jnp.full((self.seeds,), length * self.rows, jnp.int32)
        return end, trajectory, Summary(taken, finite)

    def evaluate(
        self, learner: Learner, policy: Any, evaluation: Int[Array, ""], episodes: int, rule: Rule
    ) -> dict[str, Array]:
        """Greedy episodes of every seed."""
        keys = jax.vmap(evaluation_key, (0, None))(seed_numbers(self.first, self.seeds), evaluation)
        steps = jnp.zeros(keys.shape, jnp.int32)
        if rule == "first":
            return _first_to_end(self.env, learner, policy, keys, steps, episodes)
        playing = play(self.env, learner, policy, keys, steps, episodes, "greedy", record=False)[0]
        values = {"return": playing.returns, "length": playing.length, **playing.metrics}
        return {name: jnp.mean(value, axis=-1) for name, value in values.items()}

    def visit(self, learner: Learner, policy: Any, evaluation: Int[Array, ""], steps: Any, number: int) -> Trajectory:
        keys = jax.vmap(visiting_key, (0, None))(seed_numbers(self.first, self.seeds), evaluation)
        _, record, slots = play(self.env, learner, policy, keys, steps, number, "explore")
        return time_second(_trajectory(record, slots, None))

    def watch(
        self, learner: Learner, policy: Any, seed: int, number: int, states: list[Any] | None = None
    ) -> tuple[list[Scene], float]:
        drawn = getattr(self.env, "scene", None)
        if drawn is None:
            return [], 0.0
        key = jax.random.fold_in(jax.random.key(self.first + seed), number)
        found, returns, length = jax.device_get(_watch(self.env, learner, seed_of(policy, seed), key))
        frames = [jax.tree.map(lambda leaf, t=t: leaf[t], found) for t in range(int(length) + 1)]
        return [drawn(frame) for frame in frames], float(returns)

    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Nothing is held."""

    def dropped(self) -> None:
        return None

    def close(self) -> None:
        """Nothing is held."""


def play(
    env: JaxEnv,
    learner: Learner,
    policy: Any,
    keys: Key[Array, " n"],
    steps: Int[Array, " n"],
    number: int,
    mode: Mode,
    *,
    record: bool = True,
) -> tuple[Playing, Moved, Observation]:
    """Play ``number`` episodes of each of n seeds side by side: how they ended [n, b], their records and observations
    [t, n, b, ...], the latter with one slot more.

    Finished ones idle until all have ended, marked as not valid. The loop stands outside ``vmap``: whether an episode
    still runs has one answer for all seeds, so the loop really stops. Steps that were not played are zeros. Without
    ``record`` the records are of no use, and the compiler leaves them out.
    """
    key_reset, key_steps = jnp.unstack(jax.vmap(jax.random.split)(keys), axis=1)
    horizon = env.spec.horizon
    each_step = jnp.swapaxes(jax.vmap(lambda key: jax.random.split(key, horizon))(key_steps), 0, 1)
    block = max(size for size in range(1, LOOK_EVERY + 1) if horizon % size == 0)
    one = map_seeds(functools.partial(_advance, env, learner, mode=mode))

    @jax.jit  # two places use it, and it is traced once
    def some(playing: Playing, t: Int[Array, ""]):
        now = jax.lax.dynamic_slice_in_dim(each_step, t, block)

        def step(playing: Playing, keys):
            playing, moved = one(policy, playing, keys, steps)
            return playing, moved if record else None

        return jax.lax.scan(step, playing, now)

    def unfinished(loop):
        t, playing, _ = loop
        return (t < horizon) & jnp.any(playing.alive)

    def advance(loop):
        t, playing, held = loop
        playing, new = some(playing, t)
        put = jax.lax.dynamic_update_slice_in_dim
        return t + block, playing, jax.tree.map(lambda held, new: put(held, new, t, 0), held, new)

    start = map_seeds(functools.partial(_start, env, learner, number=number))(policy, key_reset)
    shapes = jax.eval_shape(some, start, jnp.int32(0))[1]
    empty = jax.tree.map(lambda leaf: jnp.zeros((horizon, *leaf.shape[1:]), leaf.dtype), shapes)
    played, playing, held = jax.lax.while_loop(unfinished, advance, (jnp.int32(0), start, empty))
    return playing, held, with_last_slot(held.obs, playing.obs, played) if record else playing.obs


def _start(env: JaxEnv, learner: Learner, policy: Any, key: Key[Array, ""], *, number: int) -> Playing:
    state, obs = jax.vmap(env.reset)(jax.random.split(key, number))
    zeros = jnp.zeros(number)
    metrics = dict.fromkeys(env.spec.metrics, zeros)
    return Playing(state, obs, learner.memory(policy, number), jnp.ones(number, bool), zeros, zeros, metrics)


def _advance(env: JaxEnv, learner: Learner, policy: Any, playing: Playing, key, step_count, *, mode: Mode):
    """One step of one seed's rows; those whose episode is over stand still in all that counts."""
    key_act, key_env = jax.random.split(key)
    memory, action, extras = learner.act(policy, playing.memory, playing.obs, key_act, step_count, mode)
    alive = playing.alive
    state, step = jax.vmap(env.step)(jax.random.split(key_env, alive.size), playing.state, action)
    reward = jnp.where(alive, step.reward, 0.0)
    each = None if step.agent_reward is None else jnp.where(alive[:, None], step.agent_reward, 0.0)
    moved = Moved(playing.obs, action, reward, step.terminated & alive, step.truncated & alive, alive, extras, each)
    metrics = {name: jnp.where(alive, step.metrics[name], held) for name, held in playing.metrics.items()}
    over = step.terminated | step.truncated
    returns, length = playing.returns + reward, playing.length + alive
    return Playing(state, step.obs, memory, alive & ~over, returns, length, metrics), moved


def _go_on(env: JaxEnv, learner: Learner, policy: Any, standing: Standing, keys, steps, mode: Mode):
    """One step of all seeds' rows, which begin a new episode where one has ended: where they stand then, the record
    [n, b, ...], what followed the step before any reset, and the environment's metrics."""

    def one(policy, standing: Standing, key, count):
        key_act, key_env, key_reset = jax.random.split(key, 3)
        memory, action, extras = learner.act(policy, standing.memory, standing.obs, key_act, count, mode)
        number = standing.obs.role.shape[0]
        state, step = jax.vmap(env.step)(jax.random.split(key_env, number), standing.state, action)
        valid = jnp.ones(number, bool)
        ends = (step.terminated, step.truncated)
        moved = Moved(standing.obs, action, step.reward, *ends, valid, extras, step.agent_reward)
        return Standing(state, step.obs, memory), moved, step.metrics, key_reset

    after, moved, metrics, keys = map_seeds(one)(policy, standing, keys, steps)
    over = moved.terminated | moved.truncated
    # Outside ``vmap``, so that it stays a branch: most steps end no episode, and a reset can cost more than a step.
    reset = functools.partial(_restarted, env, learner)
    settled = jax.lax.cond(jnp.any(over), reset, lambda policy, after, over, keys: after, policy, after, over, keys)
    return settled, moved, after.obs, metrics


def _restarted(env: JaxEnv, learner: Learner, policy: Any, standing: Standing, over, keys) -> Standing:
    """Fresh episodes in the rows whose last one is over."""
    start = map_seeds(functools.partial(_start, env, learner, number=over.shape[1]))(policy, keys)
    fresh = Standing(start.state, start.obs, start.memory)

    def chosen(new, old):
        return jnp.where(over.reshape(*over.shape, *[1] * (new.ndim - 2)), new, old)

    return jax.tree.map(chosen, fresh, standing)


def _first_to_end(env: JaxEnv, learner: Learner, policy: Any, keys, steps, episodes: int) -> dict[str, Array]:
    """Means over the first episodes to end of some that are played side by side without a pause."""
    rows = min(SIDE_BY_SIDE, episodes)
    start = map_seeds(functools.partial(_start, env, learner, number=rows))(policy, keys)
    names = ("return", "length", *env.spec.metrics)
    zeros, none = jnp.zeros(start.alive.shape), jnp.zeros(keys.shape)

    def step(loop):
        t, standing, returns, length, sums, ended = loop
        now = jax.vmap(jax.random.fold_in, (0, None))(keys, t + 1)
        standing, moved, _, metrics = _go_on(env, learner, policy, standing, now, steps, "greedy")
        returns, length = returns + moved.reward, length + 1
        over = moved.terminated | moved.truncated
        counts = over & (ended < episodes)[:, None]
        values = {"return": returns, "length": length, **metrics}
        sums = {name: sums[name] + jnp.sum(jnp.where(counts, values[name], 0.0), axis=1) for name in names}
        returns, length = jnp.where(over, 0.0, returns), jnp.where(over, 0.0, length)
        return t + 1, standing, returns, length, sums, ended + jnp.sum(counts, axis=1)

    standing = Standing(start.state, start.obs, start.memory)
    begin = (jnp.int32(0), standing, zeros, zeros, dict.fromkeys(names, none), none)
    *_, sums, ended = jax.lax.while_loop(lambda loop: jnp.any(loop[-1] < episodes), step, begin)
    return {name: value / ended for name, value in sums.items()}


def _trajectory(record: Moved, obs: Observation, next_obs: Observation | None) -> Trajectory:
    return Trajectory(
        obs=obs,
        next_obs=next_obs,
        action=record.action,
        reward=record.reward,
        agent_reward=record.agent_reward,
        terminated=record.terminated,
        truncated=record.truncated,
        valid=record.valid,
        extras=record.extras,
    )


def _episode_states(env: JaxEnv, learner: Learner, policy: Any, key: Key[Array, ""]) -> tuple[Any, Array, Array]:
    """One greedy episode with every environment state kept: states [t + 1, ...], its return, its length."""
    key_reset, key_steps = jax.random.split(key)
    start, zero = _start(env, learner, policy, key_reset, number=1), jnp.zeros((), jnp.int32)

    def step(playing: Playing, key):
        playing, _ = _advance(env, learner, policy, playing, key, zero, mode="greedy")
        return playing, playing.state

    end, states = jax.lax.scan(step, start, jax.random.split(key_steps, env.spec.horizon))
    frames = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest])[:, 0], start.state, states)
    return frames, end.returns[0], end.length[0].astype(jnp.int32)


_watch: Callable[..., Any] = jax.jit(_episode_states, static_argnums=(0, 1))  # once for a task and a learner
