"""Does an environment keep what its ``EnvSpec`` and its protocol promise? A few episodes with random legal actions."""

import inspect
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from prism_marl.envs.base import JaxEnv, PythonEnv, RowsEnv
from prism_marl.errors import UserError
from prism_marl.experiment.checks.calls import copied, difference, guarded, layout, quick, same
from prism_marl.experiment.checks.records import (
    check_ends,
    check_horizon,
    check_observation,
    check_seen,
    check_spec,
    check_step,
)
from prism_marl.types import EnvSpec, Observation, Step

EPISODES = 4  # of a JAX environment, side by side
LONGEST = 2_000  # steps of an episode that are played
SECONDS = 2.0  # for an environment in Python; it then stops looking


def check_env(env: JaxEnv | PythonEnv | RowsEnv, *, spec: EnvSpec | None = None) -> None:
    """Check an environment of any kind. Raises ``UserError``.

    ``spec`` is what its family says about the task, where it says so without building one. Numbers that are not finite
    are no business of this check: training tells of them with their seed and step.
    """
    who = type(env).__name__
    if spec is not None and spec != env.spec:
        raise UserError(f"{who}.spec: differs from what the family's shape= says about the task; return the same")
    check_spec(env.spec, who)
    if hasattr(env, "snapshot"):
        _check_rows(env, who)  # pyright: ignore[reportArgumentType]
    elif len(inspect.signature(env.step).parameters) == 3:
        _check_jax(env, who)  # pyright: ignore[reportArgumentType]
    else:
        _check_python(env, who)  # pyright: ignore[reportArgumentType]


def _check_jax(env: JaxEnv, who: str) -> None:
    spec, key = env.spec, jax.random.key(0)
    try:
        hash(env)
    except TypeError:
        raise UserError(
            f"{who}: cannot be hashed, and compiled programs are kept by it; make it a frozen dataclass"
        ) from None
    state, obs = guarded(f"{who}.reset", jax.eval_shape, env.reset, key)
    check_observation(obs, spec, (), f"{who}.reset")
    action = jax.ShapeDtypeStruct(*_action(spec))
    after, step = guarded(f"{who}.step", jax.eval_shape, env.step, key, state, action)
    check_step(step, spec, (), f"{who}.step")
    if layout(after) != layout(state):
        raise UserError(
            f"{who}.step: its state has other parts, shapes or types than that of reset ({difference(state, after)}); "
            "return the same, so that steps can be compiled as a loop"
        )
    keys = jax.random.split(key, EPISODES)
    first, again = (jax.device_get(quick(lambda keys: jax.vmap(env.reset)(keys))(keys)) for _ in range(2))
    if not same(first, again):
        raise UserError(f"{who}.reset: gives another start for the same key; draw all that is random from the key")
    steps = min(spec.horizon, LONGEST)
    slots, record = jax.device_get(quick(lambda keys: _played(env, keys, steps))(keys))
    alive = np.ones(EPISODES, bool)
    for t in range(steps):
        check_seen(jax.tree.map(lambda leaf, t=t, alive=alive: leaf[t][alive], slots), spec, who, t)
        step = jax.tree.map(lambda leaf, t=t: leaf[t], record)
        check_ends(step, alive, who, t)
        alive = alive & ~(step.terminated | step.truncated)
    check_horizon(alive, spec, steps, who)


def _played(env: JaxEnv, keys: Any, steps: int) -> Any:
    """Observations before each step and what the steps bring, [t, b, ...]."""
    state, obs = jax.vmap(env.reset)(keys)

    def one(carry: Any, t: Any) -> Any:
        state, obs = carry
        now = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, t)))(keys)
        action = jax.vmap(lambda key, avail: _random_action(env.spec, key, avail))(now[:, 0], obs.avail)
        state, step = jax.vmap(env.step)(now[:, 1], state, action)
        fit = jax.tree.map(lambda new, old: new.astype(old.dtype), step.obs, obs)
        return (state, fit), (obs, step._replace(obs=()))

    return jax.lax.scan(one, (state, obs), jnp.arange(steps))[1]


def _random_action(spec: EnvSpec, key: Any, avail: Any) -> Any:
    if spec.kind == "continuous":
        return jax.random.uniform(key, (spec.agents, spec.actions), minval=-1.0)
    return jax.random.categorical(key, jnp.where(avail, 0.0, -1e9)).astype(jnp.int32)


def _check_python(env: PythonEnv, who: str) -> None:
    """One episode, and the same again: nothing but the seed and the actions may decide it."""
    spec, deadline = env.spec, time.monotonic() + SECONDS
    first, actions, whole = _python_episode(env, who, None, deadline)
    check_horizon(np.array([not whole]) & (len(actions) >= min(spec.horizon, LONGEST)), spec, len(actions), who)
    again, _, _ = _python_episode(env, who, actions, deadline + SECONDS)
    for t, (one, other) in enumerate(zip(first, again, strict=False)):
        if getattr(env, "replayable", True) and not same(one, other):
            when = "reset" if t == 0 else f"step {t}"
            raise UserError(
                f"{who}.reset: the same seed and actions gave another episode ({when} differs); draw all that "
                "is random from the seed, or say replayable = False"
            )


def _python_episode(
    env: PythonEnv, who: str, actions: list[Any] | None, deadline: float
) -> tuple[list[Any], list[Any], bool]:
    """What an episode shows, the actions played, and whether it came to its end."""
    spec, rng, shown, played = env.spec, np.random.default_rng(0), [], []
    obs = guarded(f"{who}.reset", env.reset, 5)
    check_observation(obs, spec, (), f"{who}.reset")
    shown.append(copied(obs))
    for t in range(min(spec.horizon, LONGEST) if actions is None else len(actions)):
        check_seen(jax.tree.map(lambda leaf: np.asarray(leaf)[None], obs), spec, who, t)
        action = _host_action(spec, rng, np.asarray(obs.avail)) if actions is None else actions[t]
        played.append(action)
        step = guarded(f"{who}.step", env.step, action.copy())
        check_step(step, spec, (), f"{who}.step")
        shown.append(copied(step))
        check_ends(step, np.ones((), bool), who, t)
        if step.terminated or step.truncated:
            return shown, played, True
        if time.monotonic() > deadline:
            break
        obs = step.obs
    return shown, played, False


def _check_rows(env: RowsEnv, who: str) -> None:
    """Rows play apart from each other, and go on from a snapshot with the same bits."""
    spec, n, rng = env.spec, env.number, np.random.default_rng(0)
    deadline = time.monotonic() + SECONDS
    seeds = np.arange(n) // 2 + 5  # the first two rows begin alike
    guarded(f"{who}.reset", env.reset, np.arange(n), seeds)
    obs = guarded(f"{who}.observe", env.observe)
    check_observation(obs, spec, (n,), f"{who}.observe")
    if n > 1 and not same(*(jax.tree.map(lambda leaf, row=row: np.asarray(leaf)[row], obs) for row in (0, 1))):
        raise UserError(
            f"{who}.reset: two rows with the same seed begin differently; draw all from the seed of the row"
        )
    steps, age, kept, after = min(2 * spec.horizon, LONGEST), np.zeros(n, int), None, []
    for t in range(steps):
        check_seen(obs, spec, who, t)
        if t == spec.horizon // 2 and not kept:
            kept = (_snapshot(env, who), age.copy())
        action = np.stack([_host_action(spec, rng, avail) for avail in np.asarray(obs.avail)])
        obs, age, step = _rows_step(env, action, age, who)
        if kept:
            after.append((action, step))
        check_horizon(age >= spec.horizon, spec, spec.horizon, who)
        if time.monotonic() > deadline or len(after) > spec.horizon:
            break
    if kept:
        _check_restored(env, kept, after, who)


def _rows_step(env: RowsEnv, action: np.ndarray, age: np.ndarray, who: str) -> tuple[Observation, np.ndarray, Step]:
    """One step; rows whose episode is over begin the next, with a seed that follows from their age."""
    step = guarded(f"{who}.step", env.step, action.copy())
    check_step(step, env.spec, (env.number,), f"{who}.step")
    step = copied(step)
    if not same(step.obs, copied(env.observe())):
        raise UserError(f"{who}.step: its observation is not what observe() shows; return observe() after the step")
    check_ends(step, np.ones(env.number, bool), who, int(age.max()))
    over = np.asarray(step.terminated) | np.asarray(step.truncated)
    if over.any():
        env.reset(np.flatnonzero(over), age[over] + 11)
    return env.observe(), np.where(over, 0, age + 1), step


def _snapshot(env: RowsEnv, who: str) -> dict[str, np.ndarray]:
    found = guarded(f"{who}.snapshot", env.snapshot)
    if not isinstance(found, dict) or not all(isinstance(value, np.ndarray) for value in found.values()):
        raise UserError(f"{who}.snapshot: return a dict of numpy arrays by name")
    return {name: value.copy() for name, value in found.items()}


def _check_restored(env: RowsEnv, kept: tuple[Any, np.ndarray], after: list[Any], who: str) -> None:
    snapshot, age = kept
    guarded(f"{who}.restore", env.restore, {name: value.copy() for name, value in snapshot.items()})
    for number, (action, step) in enumerate(after, 1):
        _, age, again = _rows_step(env, action, age, who)
        if not same(again, step):
            raise UserError(
                f"{who}.restore: goes on with other numbers than before (step {number} after the snapshot); put all "
                "that decides an episode into snapshot(), and copy its arrays"
            )


def _host_action(spec: EnvSpec, rng: np.random.Generator, avail: np.ndarray) -> np.ndarray:
    if spec.kind == "continuous":
        return rng.uniform(-1, 1, (spec.agents, spec.actions)).astype(np.float32)
    return np.array([rng.choice(np.flatnonzero(row)) for row in avail], np.int32)


def _action(spec: EnvSpec) -> tuple[tuple[int, ...], Any]:
    return ((spec.agents,), jnp.int32) if spec.kind == "discrete" else ((spec.agents, spec.actions), jnp.float32)
