"""One greedy episode of a task with a policy, as drawings: no learner and no trainer take part."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from prism_marl import envs
from prism_marl.errors import UserError
from prism_marl.policies.policy import Policy
from prism_marl.scene import Scene
from prism_marl.types import EnvSpec, Observation, Step


class Moment(NamedTuple):
    """What there is to see before the first step, or after one."""

    scene: Scene | None  # None where the task has no drawing
    total: float  # the team's rewards so far
    state: Any = None  # of rows on the host, which a camera can film


class Stage(NamedTuple):
    """An environment with one episode in it, without a batch axis."""

    observation: Observation
    step: Callable[[np.ndarray], Step]
    scene: Callable[[], Scene | None]
    snapshot: Callable[[], Any]
    close: Callable[[], None]


def play_episode(policy: Policy, number: int = 0) -> Iterator[Moment]:
    """The moments of episode ``number`` of the policy's own task."""
    contract = policy.contract
    spec = envs.describe(contract.task)
    _check_fit(policy, spec)
    stage = (_compiled if envs.is_compiled(contract.task) else _on_the_host)(contract.task, number)
    try:
        obs, memory, total = stage.observation, policy.reset(), 0.0
        yield Moment(stage.scene(), total, stage.snapshot())
        for _ in range(spec.horizon):
            action, memory = policy.act(obs.local, memory, avail=obs.avail, role=obs.role)
            step = stage.step(action)
            obs, total = step.obs, total + float(step.reward)
            yield Moment(stage.scene(), total, stage.snapshot())
            if step.terminated or step.truncated:
                return
    finally:
        stage.close()


def _check_fit(policy: Policy, spec: EnvSpec) -> None:
    """A file says itself what task it is for, so its sizes may be others."""
    c = policy.contract
    if c.agent is not None:
        raise UserError(f"this policy is of agent {c.agent} alone, and '{c.task}' takes {c.agents}; export the team")
    found, wanted = (c.agents, c.observation, c.actions), (spec.agents, spec.observation, spec.actions)
    if found != wanted or c.kind != spec.kind:
        raise UserError(
            f"this policy is for {found[0]} agents with {found[1]} observed numbers and {found[2]} {c.kind} actions, "
            f"and '{c.task}' has {wanted[0]}, {wanted[1]} and {wanted[2]} {spec.kind} ones; export the run again"
        )


def _compiled(task: str, number: int) -> Stage:
    """A task in JAX."""
    env: Any = envs.make(task)
    key, begin = jax.random.split(jax.random.key(number))
    state, first = jax.jit(env.reset)(begin)
    advance, held = jax.jit(env.step), [state]
    drawn = getattr(env, "scene", None)

    def step(action: np.ndarray) -> Step:
        nonlocal key
        key, now = jax.random.split(key)
        held[0], moved = advance(now, held[0], action)
        return jax.device_get(moved)

    def scene() -> Scene | None:
        return None if drawn is None else drawn(jax.device_get(held[0]))

    return Stage(jax.device_get(first), step, scene, lambda: None, lambda: None)


def _on_the_host(task: str, number: int) -> Stage:
    """A task whose episodes are rows on the host."""
    env = envs.make_rows(task, 1)
    env.reset(np.arange(1), np.array([number]))

    def step(action: np.ndarray) -> Step:
        return jax.tree.map(lambda part: np.array(part)[0], env.step(action[None]))

    first = jax.tree.map(lambda part: np.array(part)[0], env.observe())
    return Stage(first, step, lambda: env.scene(0), env.snapshot, env.close)
