"""Your own PettingZoo environment, trained with QMIX and Prism.

Any module with a ``parallel_env`` is a task: this file is ``pettingzoo/pettingzoo_game``, with settings such as
``'pettingzoo/pettingzoo_game?players=6'``. In the game all players see the same and must choose different cells, so a
team whose players all compute the same function cannot win. Run ``python examples/pettingzoo_game.py`` for a minute of
training, or

    prism-marl train pettingzoo/pettingzoo_game --steps 20000 --module examples/pettingzoo_game.py
"""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

from prism_marl.experiment.presets import preset
from prism_marl.runs.runner import run
from prism_marl.scene import Scene, Shape


class DifferentCells(ParallelEnv):
    """Everybody picks a cell at every step; whoever is alone there earns its share of a total of 1."""

    metadata = {"name": "different_cells_v0", "render_modes": []}  # noqa: RUF012

    def __init__(self, players: int = 4, max_cycles: int = 5):
        self.possible_agents = [f"player_{index}" for index in range(players)]
        self.max_cycles = max_cycles
        self.render_mode = None

    def observation_space(self, agent: str) -> Box:
        return Box(0.0, 1.0, (len(self.possible_agents) + 1,), np.float32)

    def action_space(self, agent: str) -> Discrete:
        return Discrete(len(self.possible_agents))

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None):
        """The first crowd is random, all else is up to the players."""
        number = len(self.possible_agents)
        self.agents, self.clock = list(self.possible_agents), 0
        self.cells = np.random.default_rng(seed).integers(number, size=number)
        return self._observe(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]):
        playing, self.clock = self.agents, self.clock + 1
        self.cells = np.array([actions[agent] for agent in playing])
        alone = np.bincount(self.cells, minlength=len(playing))[self.cells] == 1
        share = 1 / (len(playing) * self.max_cycles)
        over = self.clock >= self.max_cycles
        observed = self._observe()
        self.agents = [] if over else playing
        return (
            observed,
            {agent: share * bool(own) for agent, own in zip(playing, alone, strict=True)},
            dict.fromkeys(playing, False),
            dict.fromkeys(playing, over),
            {agent: {} for agent in playing},
        )

    def scene(self) -> Scene:
        """Optional: what ``prism-marl eval --render`` and the report show."""
        number = len(self.cells)
        discs = [
            Shape("disc", float(cell) + 0.5, index + 0.5, 0.8, index, str(index), chr(ord("A") + index % 26))
            for index, cell in enumerate(self.cells.tolist())
        ]
        return Scene(float(number), float(number), tuple(discs), caption=f"step {self.clock}/{self.max_cycles}")

    def _observe(self) -> dict[str, np.ndarray]:
        crowd = np.bincount(self.cells, minlength=len(self.cells)) / len(self.cells)
        seen = np.append(crowd, self.clock / self.max_cycles).astype(np.float32)
        return {agent: seen.copy() for agent in self.agents}


def parallel_env(**settings: Any) -> DifferentCells:
    """What makes this module a task."""
    return DifferentCells(**settings)


def main(steps: int = 8_000) -> tuple[float, float]:
    """Train, and print the return of greedy play before and after."""
    experiment = preset("pettingzoo/pettingzoo_game", "prism")
    learner = replace(experiment.learner, lr=2e-3, epsilon_anneal=steps // 2, target_interval=20, buffer=500)
    schedule = replace(experiment.run, steps=steps, envs=4, eval_every=steps, eval_episodes=16)
    experiment = experiment.changed(learner=learner, run=schedule, network=replace(experiment.network, width=32))
    with tempfile.TemporaryDirectory() as root:
        folder = run(experiment, Path(root) / "run")
        rows = [json.loads(line) for line in (folder / "eval.jsonl").read_text().splitlines()]
    print(f"return before training {rows[0]['return']:.2f}, after {rows[-1]['step']} steps {rows[-1]['return']:.2f}")
    return rows[0]["return"], rows[-1]["return"]


if __name__ == "__main__":
    main()
