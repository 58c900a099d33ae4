"""Rows of robots: physics row by row on threads or in processes, everything else for all rows at once.

The states of all rows are one array, whose rows are the engine's state vectors.
"""

import os
from typing import Any

import numpy as np

from prism_marl.envs.cores import usable_cores
from prism_marl.envs.mamujoco.drawing import Drawing
from prism_marl.envs.mamujoco.engine import load_engine, load_model, row_layout
from prism_marl.envs.mamujoco.pool import Pool
from prism_marl.envs.mamujoco.processes import Processes, SharedRows
from prism_marl.envs.mamujoco.rules import RULES
from prism_marl.envs.mamujoco.stepping import stepper, workspace
from prism_marl.envs.mamujoco.tasks import HORIZON, Task
from prism_marl.errors import UserError
from prism_marl.scene import Scene
from prism_marl.types import EnvSpec, Observation, Step

MOST_THREADS = 8  # more threads wait for Python's lock more than they work (docs/speed.md)


class Robots:
    """``number`` episodes of one task (see ``RowsEnv``)."""

    def __init__(self, task: Task, number: int, threads: int | None = None, processes: int | None = None):
        """Without a number of threads or processes, one is chosen for the cores that this process may use."""
        if number < 1 or (threads is not None and threads < 1):
            raise UserError(f"task: '{task.spec.name}' needs at least 1 row and 1 thread, not {number} and {threads}")
        self.spec: EnvSpec = task.spec
        self.number = number
        self.engine = load_engine()
        self.model: Any = load_model(self.engine, task)
        self._rules = RULES[task.robot]
        self._seconds = self.model.opt.timestep * self._rules.frames
        self._body: int | None = self.model.body(self._rules.body).id if self._rules.body else None
        self._layout, slices, size = row_layout(self.engine, self.model)
        if threads is None and processes is None and os.name == "posix" and min(number, usable_cores()) > MOST_THREADS:
            processes = usable_cores() - 1  # one core is left for the learner
        shared = SharedRows(number, size) if processes else None
        self._states = shared.states if shared else np.zeros((number, size))
        self._rows = list(self._states)
        self._position, self._velocity = self._states[:, slices["QPOS"]], self._states[:, slices["QVEL"]]
        self._control = self._states[:, slices["CTRL"]]
        # Ant's reward depends on the torso's position as the engine last computed it, just before the end of a step
        self._reached = self._position[:, 0]
        if self._rules.body:
            self._reached = shared.reached if shared else np.zeros(number)
        self._left = np.zeros(number)  # ``_reached`` before the step
        self._clock = np.zeros(number, np.int32)
        self._workspace = workspace(self.engine, self.model)
        self._start_workers(shared, threads, processes)
        self._drawing = Drawing(self.engine, self.model, task)
        agents = (number, task.agents)
        self._avail = np.broadcast_to(np.True_, (*agents, task.joints))
        self._role = np.broadcast_to(np.arange(task.agents), agents)
        self.reset(np.arange(number), np.arange(number))

    def reset(self, rows: np.ndarray, seeds: np.ndarray) -> None:
        """Start new episodes in these rows."""
        engine, model, data = self.engine, self.model, self._workspace
        for row, seed in zip(np.asarray(rows).tolist(), np.asarray(seeds).tolist(), strict=True):
            engine.mj_resetData(model, data)
            data.qpos[:], data.qvel[:] = self._rules.start(seed, data.qpos, data.qvel)
            engine.mj_forward(model, data)
            engine.mj_getState(model, data, self._rows[row], self._layout)
            if self._body is not None:
                self._reached[row] = data.xpos[self._body, 0]
            self._clock[row] = 0

    def observe(self) -> Observation:
        """Every agent observes the whole robot."""
        return self.observe_rows(slice(0, self.number))

    def observe_rows(self, rows: slice) -> Observation:
        """The same for some rows."""
        state: Any = self._rules.observe(self._position[rows], self._velocity[rows])
        local: Any = np.broadcast_to(state[:, None], (len(state), self.spec.agents, self.spec.observation))
        fixed: tuple[Any, ...] = (self._avail[rows], self._role[rows])
        return Observation(local, state, *fixed)

    def step(self, action: np.ndarray) -> Step:
        """Apply the joint actions for some steps of the engine."""
        every_row = slice(0, self.number)
        self.begin(every_row, action)
        return self.finish(every_row)

    def begin(self, rows: slice, action: np.ndarray) -> None:
        """Start to step these rows."""
        self._control[rows] = np.asarray(action, np.float64).reshape(len(action), -1)
        self._left[rows] = self._reached[rows]
        self._workers.start(rows)

    def finish(self, rows: slice) -> Step:
        """Wait for these rows and return their step. A fall in the last step counts as truncation."""
        self._workers.wait(rows)
        self._clock[rows] += 1
        speed = (self._reached[rows] - self._left[rows]) / self._seconds
        reward = self._rules.reward(speed, np.ascontiguousarray(self._control[rows]))
        truncated = self._clock[rows] >= HORIZON
        healthy = self._rules.healthy
        upright = healthy(self._position[rows], self._velocity[rows]) if healthy else np.ones_like(truncated)
        ends: tuple[Any, ...] = (reward.astype(np.float32), ~upright & ~truncated, truncated)
        return Step(self.observe_rows(rows), *ends, metrics={})

    def snapshot(self) -> dict[str, np.ndarray]:
        """A copy of the state of all rows."""
        return {"states": self._states.copy(), "reached": self._reached.copy(), "clock": self._clock.copy()}

    def restore(self, snapshot: dict[str, np.ndarray]) -> None:
        """Continue from a snapshot of the same task, number of rows and engine."""
        held = {"states": self._states, "reached": self._reached, "clock": self._clock}
        for name, array in held.items():
            if name not in snapshot or snapshot[name].shape != array.shape:
                raise UserError(
                    f"checkpoint: its simulator state does not fit {self.number} rows of '{self.spec.name}' in MuJoCo "
                    f"{self.engine.__version__}; continue with the same task, run.envs, run.seeds and mujoco version"
                )
        for name, array in held.items():
            array[...] = snapshot[name]

    def scene(self, row: int) -> Scene:
        """A stick figure of one row."""
        return self._drawing.scene(self._position[row], int(self._clock[row]))

    def close(self) -> None:
        """End the threads or processes."""
        self._workers.close()

    def _start_workers(self, shared: SharedRows | None, threads: int | None, processes: int | None) -> None:
        """Threads or processes that step the rows; the numbers are the same."""
        how: dict[str, Any] = {"layout": self._layout, "frames": self._rules.frames, "body": self._body}
        number = self.number
        if shared and processes:
            self._workers = Processes(self.engine, self.model, shared, min(number, processes), **how)
            return
        workspaces = [workspace(self.engine, self.model) for _ in range(min(number, threads or usable_cores()))]
        self._workers = Pool(workspaces, stepper(self.engine, self.model, self._states, self._reached, **how))
