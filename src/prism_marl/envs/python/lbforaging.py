"""Level-Based Foraging as its authors publish it: the package ``lbforaging``, in Python.

It is slower than our ``lbf`` by orders of magnitude and serves as its reference: same task names, sizes and metrics.
"""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from prism_marl.envs.base import require
from prism_marl.envs.lbf import LOAD, Foraging, State, make_lbf
from prism_marl.envs.python.base import observation, outcome
from prism_marl.errors import UserError
from prism_marl.scene import Scene
from prism_marl.types import EnvSpec, Observation, Step


def arguments(task: Foraging) -> dict[str, Any]:
    """The settings that the package registers for its ``-v3`` tasks."""
    return {
        "players": task.players,
        "min_player_level": 1,
        "max_player_level": 2,
        "field_size": (task.rows, task.cols),
        "min_food_level": 1,
        "max_food_level": None,
        "max_num_food": task.foods,
        "sight": task.sight or max(task.rows, task.cols),
        "max_episode_steps": task.horizon,
        "force_coop": task.coop,
        "grid_observation": False,
        "penalty": 0.0,
    }


class LBForaging:
    """One task of the original package; its twin ``lbf`` in JAX gives the sizes and the drawing."""

    def __init__(self, task: Foraging):
        package = require("lbforaging.foraging", "lbforaging")
        self.twin = task
        self.spec: EnvSpec = replace(task.spec, name=task.spec.name.replace("lbf/", "lbforaging/"))
        with warnings.catch_warnings():
            # gymnasium warns because the bounds are in float64
            warnings.filterwarnings("ignore", message=".*precision lowered by casting.*", category=UserWarning)
            self.env: Any = package.ForagingEnv(**arguments(task))
        self.foods = np.zeros((0, 2), int)  # where food was at the start
        self.loading = np.zeros(task.players, bool)
        self._legal = np.ones((self.spec.agents, self.spec.actions), bool)

    def reset(self, seed: int) -> Observation:
        """Start as a new environment does; the package would avoid the cells where players stood before."""
        for player in self.env.players:
            player.position = None
        local, _ = self.env.reset(seed=seed)
        self.foods = np.argwhere(self.env.field)
        self.loading = np.zeros(self.spec.agents, bool)
        return self._observation(local)

    def step(self, action: np.ndarray) -> Step:
        """One team reward. Only an empty field terminates; the package reports the time limit as termination, too."""
        chosen = action.tolist()
        pairs = zip(chosen, self.env.players, strict=True)
        self.loading = np.array([a == LOAD and self.env.adjacent_food(*p.position) > 0 for a, p in pairs])
        local, reward, over, _, _ = self.env.step(chosen)
        left = np.count_nonzero(self.env.field)
        cleared = left == 0
        return outcome(
            self._observation(local),
            float(sum(reward)),
            terminated=cleared,
            truncated=over and not cleared,
            metrics={"collected": (len(self.foods) - left) / max(len(self.foods), 1)},
            agent_reward=np.asarray(reward) if self.twin.own else None,
        )

    def scene(self) -> Scene:
        """Drawn by the twin."""
        env, slots = self.env, self.twin.foods
        cells, levels = np.full((slots, 2), -1), np.zeros(slots, int)
        cells[: len(self.foods)] = self.foods
        levels[: len(self.foods)] = env.field[self.foods[:, 0], self.foods[:, 1]]
        row, col = np.array([player.position for player in env.players]).T
        level = np.array([player.level for player in env.players])
        counts = np.array(env._food_spawned), np.array(env.current_step)
        parts: Any = (row, col, level, self.loading, cells[:, 0], cells[:, 1], levels, *counts)
        return self.twin.scene(State(*parts))

    def close(self) -> None:
        self.env.close()

    def _observation(self, local: tuple[np.ndarray, ...]) -> Observation:
        return observation(np.stack(local), self._legal)


def make_lbforaging(variant: str) -> LBForaging:
    """Build ``lbforaging/<rows>x<cols>-<players>p-<foods>f[-coop][-s<sight>][-own]``."""
    try:
        task = make_lbf(variant)
    except UserError as error:
        raise UserError(str(error).replace("'lbf/", "'lbforaging/")) from None
    if task.rows != task.cols:
        near = replace(task, cols=task.rows).spec.name
        raise UserError(
            f"task: 'lbforaging/{variant}' is not square, and the package fails on such fields; "
            f"use 'lbf/{variant}' or '{near.replace('lbf/', 'lbforaging/')}'"
        )
    if task.lighter:
        near = replace(task, lighter=False).spec.name.replace("lbf/", "lbforaging/")
        raise UserError(f"task: the package no longer has the rules '-v2'; use 'lbf/{variant}' or '{near}'")
    return LBForaging(task)
