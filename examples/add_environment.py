"""An environment of one's own in JAX: agents on a line win when everybody stands on a cell of its own.

An environment is a frozen dataclass whose ``reset`` and ``step`` are pure functions of a key and a state; the trainer
runs them under jit and vmap. ``scene`` is optional: with it, runs keep a replay and ``prism-marl eval --render`` works.
``register`` makes the family known, here and in

    prism-marl train spread/4 --sharing fups_id --module examples/add_environment.py
"""

import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from prism_marl.envs import Family, register
from prism_marl.errors import UserError
from prism_marl.experiment.presets import preset
from prism_marl.runs.runner import run
from prism_marl.scene import Scene, Shape
from prism_marl.types import EnvSpec, Observation, Step


class State(NamedTuple):
    cell: Int[Array, " a"]
    clock: Int[Array, ""]


@dataclass(frozen=True)
class Spread:
    """As many cells as agents. Actions: 0 left, 1 stay, 2 right. Once all cells differ: reward 1, and the end."""

    agents: int

    @property
    def spec(self) -> EnvSpec:
        n = self.agents
        return EnvSpec(
            f"spread/{n}", n, observation=n + 1, state=n, actions=3, roles=n, horizon=2 * n, storage="int8", magnitude=n
        )

    def reset(self, key: Key[Array, ""]) -> tuple[State, Observation]:
        state = State(jax.random.randint(key, (self.agents,), 0, self.agents), jnp.int32(0))
        return state, self._observe(state)

    def step(self, key: Key[Array, ""], state: State, action: Int[Array, " a"]) -> tuple[State, Step]:
        del key  # only the start is random
        state = State(jnp.clip(state.cell + action - 1, 0, self.agents - 1), state.clock + 1)
        won = jnp.all(jnp.sort(state.cell) == jnp.arange(self.agents))
        late = (state.clock >= self.spec.horizon) & ~won
        return state, Step(self._observe(state), won.astype(jnp.float32), terminated=won, truncated=late, metrics={})

    def scene(self, state: State) -> Scene:
        n = self.agents
        discs = [Shape("disc", int(c) + 0.5, i + 0.5, 0.8, i, str(i), str(i)) for i, c in enumerate(state.cell)]
        return Scene(n, n, tuple(discs), caption=f"step {int(state.clock)}")

    def _observe(self, state: State) -> Observation:
        everybody = jnp.broadcast_to(state.cell, (self.agents, self.agents))
        local = jnp.concatenate([state.cell[:, None], everybody], axis=1).astype(jnp.float32)
        return Observation(local, local[0, 1:], jnp.ones((self.agents, 3), bool), jnp.arange(self.agents))


def make_spread(variant: str) -> Spread:
    """``spread/<agents>``: receives what follows the slash and complains about it in the user's words."""
    if variant not in map(str, range(2, 10)):
        raise UserError(f"task: 'spread/{variant}' must end in the number of agents, 2 to 9, such as 'spread/4'")
    return Spread(int(variant))


register("spread", Family("spread/<agents>", ("spread/4",), "stand on different cells of a line", make_spread))


def main(steps: int = 8_000) -> tuple[float, float]:
    """Train FuPS+ID on ``spread/4``; print the share of greedy episodes won before and after."""
    base = preset("spread/4", "fups_id")  # a family without a preset of its own starts from the paper's of lbf
    learner = replace(base.learner, lr=2e-3, epsilon_anneal=steps // 2, buffer=512)
    schedule = replace(base.run, steps=steps, envs=8, eval_every=steps, eval_episodes=100)
    experiment = base.changed(learner=learner, run=schedule, network=replace(base.network, width=32))
    with tempfile.TemporaryDirectory() as root:
        folder = run(experiment, Path(root) / "run")
        rows = [json.loads(line) for line in (folder / "eval.jsonl").read_text().splitlines()]
        frames = len(json.loads((folder / "replays" / "seed-0.json").read_text())["frames"])
    print(f"won {rows[0]['return']:.2f} before, {rows[-1]['return']:.2f} after {rows[-1]['step']} steps")
    print(f"the replay of one episode has {frames} frames")
    return rows[0]["return"], rows[-1]["return"]


if __name__ == "__main__":
    main()
