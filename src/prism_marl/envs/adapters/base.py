"""What the host loop asks of an environment that lives in Python."""

import importlib
from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from prism_marl.envs.scene import Scene
from prism_marl.errors import UserError
from prism_marl.types import EnvSpec, Observation, Step


class HostEnv(Protocol):
    """One episode at a time, in numpy arrays without a batch axis. An episode depends on its seed and actions alone."""

    @property
    def spec(self) -> EnvSpec: ...

    def reset(self, seed: int) -> Observation: ...

    def step(self, action: np.ndarray) -> Step: ...

    def scene(self) -> Scene | None:
        """A drawing of the present state; None where there is none."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Concurrent(Protocol):
    """A ``HostEnv`` in a process of its own: all of them are told what to do before the first is waited for."""

    def begin_reset(self, seed: int) -> None: ...

    def begin_step(self, action: np.ndarray) -> None: ...


@runtime_checkable
class Fragile(Protocol):
    """A ``HostEnv`` that can be lost in the middle of an episode and goes on with the next."""

    dropped: int  # episodes lost so far
    lost: bool  # whether the present one is


def lost(env: HostEnv) -> bool:
    """Whether the episode of this environment is not to be counted."""
    return isinstance(env, Fragile) and env.lost


def dropped(envs: Iterable[HostEnv]) -> int:
    """Episodes that all of them have lost so far."""
    return sum(env.dropped for env in envs if isinstance(env, Fragile))


def require(module: str, extra: str) -> Any:
    """Import a package that only one adapter needs."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise UserError(
            f"task: such tasks need a package that is not installed: pip install 'prism-marl[{extra}]'"
        ) from None


def observation(local: np.ndarray, avail: np.ndarray, state: np.ndarray | None = None) -> Observation:
    """The record in numpy: the role is the agent's index, and a task without a state has the joint observation."""
    local = local.astype(np.float32, copy=False)
    whole = local.reshape(-1) if state is None else state.astype(np.float32, copy=False)
    parts: tuple[Any, ...] = (local, whole, avail, np.arange(len(local)))
    return Observation(*parts)


def outcome(
    obs: Observation, reward: float, *, terminated: bool, truncated: bool, metrics: dict[str, float] | None = None
) -> Step:
    """The record in numpy."""
    measured = {name: np.float32(value) for name, value in (metrics or {}).items()}
    parts: tuple[Any, ...] = (np.float32(reward), np.bool_(terminated), np.bool_(truncated), measured)
    return Step(obs, *parts)
