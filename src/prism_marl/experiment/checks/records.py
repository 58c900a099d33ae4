"""Rules that a task's sizes and its records keep, wherever it is played."""

from typing import Any, get_args

import jax.numpy as jnp
import numpy as np

from prism_marl.errors import UserError
from prism_marl.types import ActionKind, EnvSpec, Observation, RewardKind, Step

STORAGE = ("float32", "float16", "int8", "uint8", "int16", "int32", "bool")
ROUNDED = 1.000001  # a rounded number may be a little over the magnitude


def check_spec(spec: EnvSpec, who: str) -> None:
    """Numbers that make sense together."""
    if not isinstance(spec, EnvSpec):
        raise UserError(f"{who}.spec: is a {type(spec).__name__}; return a prism_marl.types.EnvSpec")
    for name in ("agents", "observation", "actions", "roles", "horizon", "state"):
        value = getattr(spec, name)
        if not isinstance(value, int) or value < 1:
            raise UserError(f"{who}.spec.{name}: {value!r} is not a positive whole number; give one")
    if spec.kind not in get_args(ActionKind):
        raise UserError(f"{who}.spec.kind: {spec.kind!r} is not a kind of action; write 'discrete' or 'continuous'")
    if spec.reward not in get_args(RewardKind):
        raise UserError(f"{who}.spec.reward: {spec.reward!r} is not a kind of reward; write 'team' or 'agent'")
    if spec.storage not in STORAGE:
        raise UserError(
            f"{who}.spec.storage: {spec.storage!r} cannot hold observations; use one of {', '.join(STORAGE)}"
        )
    for name, size in (("flags", spec.observation), ("state_flags", spec.state)):
        places = getattr(spec, name)
        if list(places) != sorted({place for place in places if 0 <= place < size}):
            raise UserError(f"{who}.spec.{name}: list places from 0 to {size - 1} in order, each once")
    if not spec.magnitude > 0:
        raise UserError(f"{who}.spec.magnitude: {spec.magnitude} is not positive; give the largest size of a number")
    if spec.state_is_joint and spec.state != spec.agents * spec.observation:
        raise UserError(
            f"{who}.spec.state: {spec.state} numbers are not the observations of all agents, as state_is_joint says; "
            f"use {spec.agents * spec.observation} or leave it out"
        )
    if spec.shared_observation and spec.observation != spec.state:
        raise UserError(
            f"{who}.spec.observation: every agent observes the state, as shared_observation says; make them equal"
        )


def check_observation(obs: Any, spec: EnvSpec, batch: tuple[int, ...], what: str) -> None:
    """Shapes and types; works on shapes alone."""
    if not isinstance(obs, Observation):
        raise UserError(f"{what}: returns a {type(obs).__name__} where a prism_marl.types.Observation belongs")
    a = spec.agents
    meant = {
        "local": ((*batch, a, spec.observation), "f", "spec.observation"),
        "state": ((*batch, spec.state), "f", "spec.state"),
        "avail": ((*batch, a, spec.actions), "b", "spec.actions"),
        "role": ((*batch, a), "iu", "spec.agents"),
    }
    for name, (shape, kinds, field) in meant.items():
        _check_array(getattr(obs, name), shape, kinds, f"{what}: Observation.{name}", field)


def check_step(step: Any, spec: EnvSpec, batch: tuple[int, ...], what: str) -> None:
    """The same for what a step brings, with its metrics."""
    if not isinstance(step, Step):
        raise UserError(f"{what}: returns a {type(step).__name__} where a prism_marl.types.Step belongs")
    check_observation(step.obs, spec, batch, what)
    for name, kinds in (("reward", "f"), ("terminated", "b"), ("truncated", "b")):
        about = "one team reward" if name == "reward" else "one flag for the team"
        _check_array(getattr(step, name), batch, kinds, f"{what}: Step.{name}", about)
    _check_agent_reward(step, spec, batch, what)
    missing = sorted(set(spec.metrics) - set(step.metrics))
    extra = sorted(set(step.metrics) - set(spec.metrics))
    if missing or extra:
        word, name = ("lacks", missing[0]) if missing else ("has besides", extra[0])
        raise UserError(f"{what}: Step.metrics {word} '{name}'; give exactly the names in spec.metrics, at every step")
    for name, value in step.metrics.items():
        _check_array(value, batch, "fiub", f"{what}: Step.metrics['{name}']", "one number for the team")


def _check_agent_reward(step: Any, spec: EnvSpec, batch: tuple[int, ...], what: str) -> None:
    """Agents' own rewards are there if and only if ``EnvSpec.reward`` says so."""
    if (step.agent_reward is not None) != (spec.reward == "agent"):
        said = "is missing" if step.agent_reward is None else "is given"
        raise UserError(
            f"{what}: Step.agent_reward {said}, but spec.reward is '{spec.reward}'; make them agree: 'agent' "
            "means that every agent has a reward of its own"
        )
    if step.agent_reward is not None:
        _check_array(step.agent_reward, (*batch, spec.agents), "f", f"{what}: Step.agent_reward", "spec.agents")


def _check_array(value: Any, shape: tuple[int, ...], kinds: str, what: str, field: str) -> None:
    value = value if hasattr(value, "dtype") else np.asarray(value)
    if value.shape != shape:
        raise UserError(
            f"{what} has shape {list(value.shape)} and should have {list(shape)} ({field}); make them agree"
        )
    kind = "f" if jnp.issubdtype(value.dtype, jnp.floating) else np.dtype(value.dtype).kind
    if kind not in kinds:
        wanted = {"f": "floating", "b": "bool", "i": "integer"}[kinds[0]]
        raise UserError(f"{what} has the type {value.dtype}; make it {wanted}")


def check_seen(obs: Any, spec: EnvSpec, who: str, t: int) -> None:
    """Values of observations [b, ...] before step ``t``."""
    for name, flags in (("local", spec.flags), ("state", spec.state_flags)):
        values = np.asarray(getattr(obs, name), np.float64)
        wrong = [place for place in flags if not np.isin(values[..., place], (0, 1)).all()]
        if wrong:
            raise UserError(
                f"{who}: Observation.{name} holds other numbers than 0 and 1 at place {wrong[0]} at step {t}, which "
                f"spec.{'flags' if name == 'local' else 'state_flags'} lists; leave it out"
            )
        values = values[np.isfinite(values)]
        largest = float(np.max(np.abs(values), initial=0.0))
        said = spec.magnitude != 1.0 or not spec.storage.startswith("float")  # else nobody has said anything
        if said and largest > spec.magnitude * ROUNDED:
            raise UserError(
                f"{who}: Observation.{name} holds {largest:g} at step {t}, more than spec.magnitude "
                f"({spec.magnitude:g}); set magnitude to the largest size that occurs"
            )
        with np.errstate(all="ignore"):
            lost = values[values.astype(np.float32) != values.astype(spec.storage).astype(np.float32)]
        if lost.size:
            raise UserError(
                f"{who}: Observation.{name} holds {lost[0]:g} at step {t}, which spec.storage ({spec.storage}) cannot "
                "hold; use storage='float32'"
            )
    if spec.kind == "discrete" and not np.asarray(obs.avail).any(axis=-1).all():
        raise UserError(f"{who}: Observation.avail leaves an agent no legal action at step {t}; allow at least one")
    role = np.asarray(obs.role)
    if role.size and not (role.min() >= 0 and role.max() < spec.roles):
        raise UserError(
            f"{who}: Observation.role holds {role.max()} at step {t}; keep roles from 0 to {spec.roles - 1}"
        )


def check_ends(step: Any, alive: np.ndarray, who: str, t: int) -> None:
    """An episode ends in one way."""
    if np.any(np.asarray(step.terminated) & np.asarray(step.truncated) & alive):
        raise UserError(
            f"{who}.step: terminated and truncated are both true at step {t + 1}; truncated is for the clock alone, so "
            "write truncated = late & ~terminated"
        )


def check_horizon(alive: np.ndarray, spec: EnvSpec, steps: int, who: str) -> None:
    """Whether anybody still plays after so many steps."""
    if steps >= spec.horizon and np.any(alive):
        raise UserError(
            f"{who}: an episode goes on after spec.horizon ({spec.horizon}) steps; return truncated = True "
            "at the latest then, or raise horizon"
        )
