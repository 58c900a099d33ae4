"""Python environments side by side, as rows: the training loop asks for nothing else.

The state inside such an environment cannot be read, so a snapshot is the seed and the actions of each row. Restoring
plays them again, which gives the same state because an episode depends on nothing else. A game with random numbers of
its own cannot be replayed; its rows begin new episodes instead, and ``replayable`` says so.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from prism_marl.envs.base import Concurrent, Fragile, PythonEnv
from prism_marl.errors import UserError
from prism_marl.scene import Scene
from prism_marl.types import EnvSpec, Observation, Step

ARRAY = np.ndarray
ACCEPTED = {"f": "fiub", "b": "biu", "i": "iu"}  # kinds of numpy types that may be given where one of ours is held


class Games:
    """Environments by number, built when they are first asked for. Rows that never play at the same time share them."""

    def __init__(self, build: Callable[[], PythonEnv]):
        self._build = build
        self._built: list[PythonEnv] = []
        self.concurrent: list[Concurrent | None] = []  # the same environments, or None where one is not of that kind:
        self.fragile: list[Fragile | None] = []  # to ask again in every step takes as long as a step of a small game
        self.exact: list[bool] = []  # builds observations itself, in the types and shapes of its spec

    def get(self, number: int) -> PythonEnv:
        while len(self._built) <= number:
            env = self._build()
            self._built.append(env)
            self.concurrent.append(env if isinstance(env, Concurrent) else None)
            self.fragile.append(env if isinstance(env, Fragile) else None)
            self.exact.append(getattr(env, "exact", False) is True)
        return self._built[number]

    @property
    def dropped(self) -> int:
        """Episodes lost so far."""
        return sum(env.dropped for env in self.fragile if env is not None)

    def close(self) -> None:
        for env in self._built:
            env.close()
        for kept in (self._built, self.concurrent, self.fragile, self.exact):
            kept.clear()


class PythonRows:
    """``number`` environments, stepped together where they live in processes and else one after the other. A row that
    has ended, or never began, idles until it is reset."""

    def __init__(self, games: Games, number: int):
        if number < 1:
            raise UserError(f"task: needs at least 1 row, not {number}")
        self.games, self.number = games, number
        self.spec: EnvSpec = games.get(0).spec
        self.replayable: bool = getattr(games.get(0), "replayable", True)
        spec, agents = self.spec, self.spec.agents
        kind = np.int32 if spec.kind == "discrete" else np.float32
        each = (agents,) if spec.kind == "discrete" else (agents, spec.actions)
        self._seeds = np.zeros(number, np.int64)
        self._clock = np.zeros(number, np.int32)
        self._actions = np.zeros((number, spec.horizon, *each), kind)
        self._seen: Any = Observation(
            np.zeros((number, agents, spec.observation), np.float32),  # pyright: ignore[reportArgumentType]
            np.zeros((number, spec.state), np.float32),  # pyright: ignore[reportArgumentType]
            np.ones((number, agents, spec.actions), bool),  # pyright: ignore[reportArgumentType]
            np.tile(np.arange(agents), (number, 1)),  # pyright: ignore[reportArgumentType]
        )
        self._kinds = [(held.dtype, held.shape[1:]) for held in self._seen]
        self._ended: dict[int, Step | None] = dict.fromkeys(range(number))  # last steps of rows that wait for a reset
        self.lost = np.zeros(number, bool)  # rows whose present episode was lost with its game

    def reset(self, rows: np.ndarray, seeds: np.ndarray) -> None:
        """Start episodes; games in processes of their own start theirs at the same time."""
        chosen = list(zip(np.asarray(rows).tolist(), np.asarray(seeds).tolist(), strict=True))
        for row, seed in chosen:
            self.games.get(row)
            if (own := self.games.concurrent[row]) is not None:
                own.begin_reset(seed)
        for row, seed in chosen:
            self._see(row, self.games.get(row).reset(seed))
            self._seeds[row], self._clock[row], self.lost[row] = seed, 0, False
            self._ended.pop(row, None)

    def observe(self) -> Observation:
        return Observation(*(part.copy() for part in self._seen))

    def step(self, action: np.ndarray) -> Step:
        """A row that has ended repeats its last step, at no reward, until it is reset."""
        playing = [row for row in range(self.number) if row not in self._ended]
        for row in playing:
            self._actions[row, self._clock[row]] = action[row]
            if (own := self.games.concurrent[row]) is not None:
                own.begin_step(self._actions[row, self._clock[row]])
        steps = {row: self._advance(row) for row in playing}
        return self._together(steps | {row: step for row, step in self._ended.items() if row not in steps})

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
        for row in range(self.number if self.replayable else 0):
            for action in actions[row, : clock[row]]:
                self._actions[row, self._clock[row]] = action
                self._advance(row)

    def scene(self, row: int) -> Scene | None:
        return self.games.get(row).scene()

    @property
    def dropped(self) -> int:
        """Episodes lost so far."""
        return self.games.dropped

    def close(self) -> None:
        self.games.close()

    def _advance(self, row: int) -> Step:
        env = self.games.get(row)
        step = env.step(self._actions[row, self._clock[row]])
        self._clock[row] += 1
        self._see(row, step.obs)
        fragile = self.games.fragile[row]
        self.lost[row] = fragile is not None and fragile.lost
        if step.terminated or step.truncated:
            each = None if step.agent_reward is None else np.zeros_like(step.agent_reward)
            self._ended[row] = step._replace(reward=np.zeros_like(step.reward), agent_reward=each)
        return step

    def _see(self, row: int, obs: Observation) -> None:
        if self.games.exact[row]:
            for held, new in zip(self._seen, obs, strict=True):
                held[row] = new
            return
        for name, held, new, (dtype, shape) in zip(Observation._fields, self._seen, obs, self._kinds, strict=True):
            if type(new) is ARRAY and new.dtype is dtype and new.shape == shape:
                held[row] = new
                continue
            into, found = held[row], np.asarray(new)
            # Numpy would repeat an array that is too short, and a cast hides what it cannot keep.
            if found.shape != into.shape or found.dtype.kind not in ACCEPTED[into.dtype.kind]:
                raise UserError(
                    f"task: '{self.spec.name}' gives {name} of type {found.dtype} and shape {list(found.shape)} at "
                    f"step {self._clock[row]}, not {into.dtype} {list(into.shape)}; return what its spec says",
                    code=1,
                )
            into[...] = found

    def _together(self, steps: dict[int, Step | None]) -> Step:
        """The steps of all rows; one that never began has ended without anything."""

        def gather(dtype: Any, read: Callable[[Step], Any]) -> Any:
            found = ((step is not None and read(step)) for _, step in sorted(steps.items()))
            return np.array(list(found), dtype)

        return Step(
            self.observe(),
            gather(np.float32, lambda step: step.reward),
            gather(bool, lambda step: step.terminated),
            gather(bool, lambda step: step.truncated),
            {name: gather(np.float32, lambda step, name=name: step.metrics[name]) for name in self.spec.metrics},
            None if self.spec.reward == "team" else self._agent_rewards(steps),
        )

    def _agent_rewards(self, steps: dict[int, Step | None]) -> Any:
        none = np.zeros(self.spec.agents, np.float32)
        return np.stack([none if step is None else np.asarray(step.agent_reward) for _, step in sorted(steps.items())])
