"""The game ``dispersion/<agents>``: all start on one cell and have to spread over as many targets.

Everybody observes its own place and where the targets are. Agents that act alike see the same from the same cell, so
they stay together for ever and cover one target at a time.
"""

from dataclasses import dataclass
from math import comb
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from prism_marl.envs.board import (
    ACTIONS,
    SELF_FIELDS,
    agent_discs,
    sample_places,
    steps_between,
    walk,
    way_fields,
)
from prism_marl.envs.diversity import Diversity
from prism_marl.envs.settings import read_agents
from prism_marl.scene import GOAL, Scene, Shape
from prism_marl.types import EnvSpec, Observation, Step

SIDE = 7  # rows and columns
MIDDLE = SIDE // 2
HORIZON = 15
MOST = 32  # agents


class State(NamedTuple):
    """Places as row and column."""

    place: Int[Array, "a 2"]
    target: Int[Array, "a 2"]
    clock: Int[Array, ""]


@dataclass(frozen=True)
class Dispersion:
    """In every step the team earns the share of targets on which somebody stands, over the number of steps."""

    agents: int

    @property
    def spec(self) -> EnvSpec:
        n = self.agents
        return EnvSpec(
            f"dispersion/{n}",
            n,
            observation=2 + 3 * n,
            state=4 * n,
            actions=len(ACTIONS),
            roles=n,
            horizon=HORIZON,
            metrics=("covered",),
            storage="int8",
            magnitude=float(SIDE - 1),
        )

    def reset(self, key: Key[Array, ""]) -> tuple[State, Observation]:
        """Everybody in the middle, targets on different other cells."""
        cells = np.delete(np.arange(SIDE**2), SIDE**2 // 2)
        place = jnp.full((self.agents, 2), MIDDLE, jnp.int32)
        state = State(place, sample_places(key, self.agents, cells, SIDE), jnp.int32(0))
        return state, self._observe(state)

    def step(self, key: Key[Array, ""], state: State, action: Int[Array, " a"]) -> tuple[State, Step]:
        del key  # only ``reset`` is random
        state = State(walk(state.place, action, SIDE), state.target, state.clock + 1)
        covered = jnp.mean((steps_between(state.place, state.target) == 0).any(axis=0), dtype=jnp.float32)
        return state, Step(
            self._observe(state),
            reward=covered / HORIZON,
            terminated=jnp.bool_(False),
            truncated=state.clock >= HORIZON,
            metrics={"covered": covered},
        )

    def fields(self) -> tuple[tuple[str, str], ...]:
        """The name and meaning of every number of an observation."""
        ways = [field for k in range(self.agents) for field in way_fields(f"target{k}", f"target {k}")]
        taken = [(f"target{k}.taken", f"1: another agent stands on target {k}") for k in range(self.agents)]
        return (*SELF_FIELDS, *ways, *taken)

    def scene(self, state: State) -> Scene:
        """Discs for agents, green squares for targets; a ring marks who covers one."""
        on = np.asarray(steps_between(state.place, state.target) == 0)
        shapes = [Shape("square", c + 0.5, r + 0.5, 0.9, GOAL, "", "*") for r, c in state.target.tolist()]
        cells = [(row, col) for row, col in state.place.tolist()]
        shapes += agent_discs(cells, [str(i + 1) for i in range(self.agents)], np.any(on, axis=1).tolist(), 0.7)
        covered = int(on.any(axis=0).sum())
        caption = f"step {int(state.clock)}/{HORIZON}, {covered} of {self.agents} targets covered"
        numbers = {"step": float(state.clock), "covered": float(covered)}
        legend = "green squares: targets; ring: the agent covers one"
        return Scene(SIDE, SIDE, tuple(shapes), caption=caption, extra=numbers, legend=legend)

    def _observe(self, state: State) -> Observation:
        own = (state.place - MIDDLE).astype(jnp.float32)
        ways = (state.target - state.place[:, None]).reshape(self.agents, -1)
        on = steps_between(state.place, state.target) == 0
        taken = jnp.sum(on, axis=0) > on  # by another agent
        local = jnp.concatenate([own, ways, taken], axis=1)
        whole = jnp.concatenate([own.reshape(-1), (state.target - MIDDLE).reshape(-1)])
        avail = jnp.ones((self.agents, len(ACTIONS)), bool)
        return Observation(local, whole, avail, jnp.arange(self.agents))


def make_dispersion(variant: str) -> Dispersion:
    """Build ``dispersion/<agents>``."""
    return Dispersion(read_agents("dispersion", variant, 2, MOST, "dispersion/4"))


def dispersion_diversity(variant: str) -> Diversity:
    """Unlike, each target is covered from the step on in which it can be reached; alike, only the nearest one is."""
    n = make_dispersion(variant).agents
    rows, cols = np.indices((SIDE, SIDE)) - MIDDLE
    far = np.sort((np.abs(rows) + np.abs(cols)).reshape(-1))[1:]  # of every cell but the middle
    nearest = sum(comb(int((far >= d).sum()), n) / comb(far.size, n) for d in range(1, SIDE))
    alike, unlike = ((1 + HORIZON - mean) / HORIZON for mean in (nearest, float(far.mean())))
    return Diversity(alike / n, unlike, "agents that act alike stay on one cell, and go to the nearest target")
