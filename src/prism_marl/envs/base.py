"""What the training loop asks of environments that are stepped side by side on the host."""

import importlib
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Key

from prism_marl.errors import UserError, install_command
from prism_marl.scene import Scene
from prism_marl.types import EnvSpec, Observation, Step


class RowsEnv(Protocol):
    """Many episodes side by side on the host, in numpy. No auto-reset: the loop decides when a row starts again.

    Axes: ``n`` rows, then as in ``types``. ``local`` may be a read-only view of ``state`` where every agent sees it.
    """

    @property
    def spec(self) -> EnvSpec: ...

    @property
    def number(self) -> int:
        """Rows."""
        ...

    def reset(self, rows: np.ndarray, seeds: np.ndarray) -> None:
        """Start fresh episodes in these rows; an episode depends on its seed and actions alone."""
        ...

    def observe(self) -> Observation:
        """What all rows see now: local [n, a, o], state [n, s], avail [n, a, u], role [n, a]."""
        ...

    def step(self, action: np.ndarray) -> Step:
        """Advance all rows by actions [n, a, u] in [-1, 1]; the observation is from after it and before any reset."""
        ...

    def snapshot(self) -> dict[str, np.ndarray]:
        """The whole state of all rows: restoring it continues with the same bits."""
        ...

    def restore(self, snapshot: dict[str, np.ndarray]) -> None:
        """Go on from a snapshot of the same task and number of rows."""
        ...

    def scene(self, row: int) -> Scene | None:
        """A drawing of one row; None where there is none."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class AsyncRows(Protocol):
    """What an environment offers besides if some of its rows can move while the loop looks after others."""

    def begin(self, rows: slice, action: np.ndarray) -> None:
        """Set rows in motion that stand still."""
        ...

    def finish(self, rows: slice) -> Step:
        """Wait for rows that were set in motion together; what came of it, for these rows alone."""
        ...

    def observe_rows(self, rows: slice) -> Observation:
        """What rows see that stand still."""
        ...


class SyncRows:
    """The same for an environment that moves all its rows at once."""

    def __init__(self, env: RowsEnv):
        self._env, self._action = env, np.zeros(0)

    def begin(self, rows: slice, action: np.ndarray) -> None:
        self._action = action

    def finish(self, rows: slice) -> Step:
        return self._env.step(self._action)

    def observe_rows(self, rows: slice) -> Observation:
        return self._env.observe()


def lost_rows(env: RowsEnv) -> np.ndarray:
    """Rows whose episode was lost with its game and is not to be counted; only games in Python can be."""
    return getattr(env, "lost", np.zeros(env.number, bool))


class JaxEnv(Protocol):
    """Pure functions of an explicit state, so that jit and vmap just work. No auto-reset."""

    @property
    def spec(self) -> EnvSpec: ...

    def reset(self, key: Key[Array, ""]) -> tuple[Any, Observation]: ...

    def step(self, key: Key[Array, ""], state: Any, action: Array) -> tuple[Any, Step]: ...


class PythonEnv(Protocol):
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
    """A ``PythonEnv`` in a process of its own: all of them are told what to do before the first is waited for."""

    def begin_reset(self, seed: int) -> None: ...

    def begin_step(self, action: np.ndarray) -> None: ...


@runtime_checkable
class Fragile(Protocol):
    """A ``PythonEnv`` that can be lost in the middle of an episode and goes on with the next."""

    dropped: int  # episodes lost so far
    lost: bool  # whether the present one is


def require(module: str, extra: str) -> Any:
    """Import a package that only one adapter needs."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise UserError(
            f"task: such tasks need a package that is not installed: {install_command(extra=extra)}"
        ) from None
