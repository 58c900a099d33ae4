"""Python environments side by side, for loops that ask for a ``RowsEnv``.

Nobody can look into such an environment, so a snapshot is how each row got where it is: its seed and its actions.
Restoring plays them again, which gives the same state because an episode depends on nothing else.
"""

from collections.abc import Callable

import jax
import numpy as np

from prism_marl.envs.base import Concurrent, PythonEnv, dropped, lost
from prism_marl.errors import UserError
from prism_marl.scene import Scene
from prism_marl.types import EnvSpec, Observation, Step


class PythonRows:
    """``number`` environments, stepped one after the other."""

    def __init__(self, build: Callable[[], PythonEnv], number: int):
        if number < 1:
            raise UserError(f"task: needs at least 1 row, not {number}")
        self._envs = [build() for _ in range(number)]
        self.spec: EnvSpec = self._envs[0].spec
        self.number = number
        self._seeds = np.zeros(number, np.int64)
        self._clock = np.zeros(number, np.int32)
        self._actions = np.zeros((number, self.spec.horizon, self.spec.agents, self.spec.actions), np.float32)
        self._seen: list[Observation] = [env.reset(0) for env in self._envs]
        self._ended: dict[int, Step] = {}  # last steps of rows that wait for a reset

    def reset(self, rows: np.ndarray, seeds: np.ndarray) -> None:
        for row, seed in zip(np.asarray(rows).tolist(), np.asarray(seeds).tolist(), strict=True):
            self._seen[row] = self._envs[row].reset(seed)
            self._seeds[row], self._clock[row] = seed, 0
            self._ended.pop(row, None)

    def observe(self) -> Observation:
        return jax.tree.map(lambda *parts: np.stack(parts), *self._seen)

    def step(self, action: np.ndarray) -> Step:
        """A row that has ended repeats its last step, at no reward, until it is reset."""
        for row, env in enumerate(self._envs):
            if isinstance(env, Concurrent) and row not in self._ended:
                env.begin_step(np.asarray(action[row], np.float32))
        steps = [self._advance(row, action[row]) for row in range(self.number)]
        self._seen = [step.obs for step in steps]
        return jax.tree.map(lambda *parts: np.stack(parts), *steps)

    def snapshot(self) -> dict[str, np.ndarray]:
        return {"seeds": self._seeds.copy(), "clock": self._clock.copy(), "actions": self._actions.copy()}

    def restore(self, snapshot: dict[str, np.ndarray]) -> None:
        held = {"seeds": self._seeds, "clock": self._clock, "actions": self._actions}
        if any(name not in snapshot or snapshot[name].shape != array.shape for name, array in held.items()):
            raise UserError(
                f"checkpoint: its environments do not fit {self.number} rows of '{self.spec.name}'; "
                "continue with the same task, run.envs and run.seeds"
            )
        actions, clock = snapshot["actions"].copy(), snapshot["clock"].copy()
        self.reset(np.arange(self.number), snapshot["seeds"])
        for row in range(self.number):
            for action in actions[row, : clock[row]]:
                self._seen[row] = self._advance(row, action).obs

    def scene(self, row: int) -> Scene | None:
        return self._envs[row].scene()

    @property
    def lost(self) -> np.ndarray:
        """Rows whose present episode was lost with its game."""
        return np.array([lost(env) for env in self._envs])

    @property
    def dropped(self) -> int:
        """Episodes lost so far."""
        return dropped(self._envs)

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _advance(self, row: int, action: np.ndarray) -> Step:
        if row in self._ended:
            return self._ended[row]
        played = self._actions[row, self._clock[row]]
        played[:] = action
        self._clock[row] += 1
        step = self._envs[row].step(played)
        if step.terminated or step.truncated:
            self._ended[row] = step._replace(reward=np.zeros_like(step.reward))
        return step
