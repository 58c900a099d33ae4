"""The game ``simple_spread/<agents>``, after the task of that name among the particle games, on a board.

As many landmarks as agents; the team loses by how far each landmark is from the agent nearest to it. Everybody observes
all places, and starts on a cell of its own. So agents need not differ: by its place at the start each of them can find
its part in any plan of the team. Up to 64 agents.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key
from scipy.optimize import linear_sum_assignment

from prism_marl.envs.board import (
    ACTIONS,
    SELF_FIELDS,
    agent_discs,
    nearest_of_each_kind,
    sample_places,
    steps_between,
    walk,
    way_fields,
)
from prism_marl.envs.diversity import Diversity
from prism_marl.envs.settings import read_agents
from prism_marl.scene import GOAL, Scene, Shape
from prism_marl.types import EnvSpec, Observation, Step

HORIZON = 25
FEWEST_CELLS = 11  # rows and columns
ROOM = 4  # cells for each agent, at least
MOST = 64  # agents
SAMPLES = 200  # starts, for what a team can earn


class State(NamedTuple):
    """Places as row and column."""

    place: Int[Array, "a 2"]
    landmark: Int[Array, "a 2"]
    clock: Int[Array, ""]


@dataclass(frozen=True)
class SimpleSpread:
    """In every step the team loses the mean distance from a landmark to the nearest agent, over the number of steps."""

    agents: int

    @property
    def side(self) -> int:
        """Rows and columns."""
        return max(FEWEST_CELLS, math.isqrt(ROOM * self.agents - 1) + 1)

    @property
    def spec(self) -> EnvSpec:
        n = self.agents
        return EnvSpec(
            f"simple_spread/{n}",
            n,
            observation=5 * n,
            state=4 * n,
            actions=len(ACTIONS),
            roles=n,
            horizon=HORIZON,
            metrics=("covered",),
            storage="int8",
            magnitude=float(self.side - 1),
        )

    def reset(self, key: Key[Array, ""]) -> tuple[State, Observation]:
        """Agents and landmarks on different cells."""
        places = sample_places(key, 2 * self.agents, np.arange(self.side**2), self.side)
        state = State(places[: self.agents], places[self.agents :], jnp.int32(0))
        return state, self._observe(state)

    def step(self, key: Key[Array, ""], state: State, action: Int[Array, " a"]) -> tuple[State, Step]:
        """All move at once and may share cells."""
        del key  # only ``reset`` is random
        state = State(walk(state.place, action, self.side), state.landmark, state.clock + 1)
        nearest = jnp.min(steps_between(state.place, state.landmark), axis=0)
        return state, Step(
            self._observe(state),
            reward=-jnp.mean(nearest, dtype=jnp.float32) / HORIZON,
            terminated=jnp.bool_(False),
            truncated=state.clock >= HORIZON,
            metrics={"covered": jnp.mean(nearest == 0, dtype=jnp.float32)},
        )

    def fields(self) -> tuple[tuple[str, str], ...]:
        """The name and meaning of every number of an observation."""
        found = list(SELF_FIELDS)
        for k in range(self.agents):
            what = f"landmark {k} from the nearest"
            found += [*way_fields(f"landmark{k}", what), (f"landmark{k}.taken", f"1: a mate stands on {what}")]
        for k in range(self.agents - 1):
            found += way_fields(f"mate{k}", f"mate {k} from the nearest")
        return tuple(found)

    def scene(self, state: State) -> Scene:
        """Discs for agents, green squares for landmarks; a ring marks who stands on one."""
        on = np.asarray(steps_between(state.place, state.landmark) == 0)
        shapes = [Shape("square", c + 0.5, r + 0.5, 0.9, GOAL, "", "*") for r, c in state.landmark.tolist()]
        cells = [(row, col) for row, col in state.place.tolist()]
        shapes += agent_discs(cells, [str(i + 1) for i in range(self.agents)], np.any(on, axis=1).tolist(), 0.7)
        covered = int(on.any(axis=0).sum())
        caption = f"step {int(state.clock)}/{HORIZON}, {covered} of {self.agents} landmarks covered"
        numbers = {"step": float(state.clock), "covered": float(covered)}
        legend = "green squares: landmarks; ring: the agent stands on one"
        return Scene(self.side, self.side, tuple(shapes), caption=caption, extra=numbers, legend=legend)

    def _observe(self, state: State) -> Observation:
        n, middle, all_there = self.agents, self.side // 2, jnp.ones(self.agents, bool)
        own = (state.place - middle).astype(jnp.float32)
        marks = nearest_of_each_kind(state.place, state.landmark, all_there, 1).reshape(n, n, 3)
        mates = nearest_of_each_kind(state.place, state.place, all_there, 1).reshape(n, n, 3)[:, 1:]  # without itself
        taken = (marks[:, :, None, :2] == mates[:, None, :, :2]).all(axis=3).any(axis=2)  # a mate is there
        marks = jnp.concatenate([marks[..., :2], taken[..., None]], axis=2).reshape(n, -1)
        mates = mates[..., :2].reshape(n, -1)
        whole = jnp.concatenate([own.reshape(-1), (state.landmark - middle).reshape(-1)])
        avail = jnp.ones((n, len(ACTIONS)), bool)
        return Observation(jnp.concatenate([own, marks, mates], axis=1), whole, avail, jnp.arange(n))


def make_simple_spread(variant: str) -> SimpleSpread:
    """Build ``simple_spread/<agents>``."""
    return SimpleSpread(read_agents("simple_spread", variant, 2, MOST, "simple_spread/8"))


def straight_to_landmarks(start: Int[np.ndarray, "a 2"], landmark: Int[np.ndarray, "a 2"]) -> float:
    """The return of a team that shares the landmarks out so that all ways together are shortest, and goes straight. A
    landmark counts as far as its own agent is away, also where another passes nearer."""
    far = np.abs(start[:, None] - landmark).sum(axis=-1)
    way = far[linear_sum_assignment(far)]
    left = np.maximum(way - np.arange(1, HORIZON + 1)[:, None], 0)
    return -float(left.mean(axis=1).sum()) / HORIZON


def simple_spread_diversity(variant: str) -> Diversity:
    """No need; both numbers are what a team earns by a rule that everybody can follow."""
    env = make_simple_spread(variant)
    rng = np.random.default_rng(0)
    found = []
    for _ in range(SAMPLES):
        cells = rng.permutation(env.side**2)[: 2 * env.agents]
        places = np.stack([cells // env.side, cells % env.side], axis=1)
        found.append(straight_to_landmarks(places[: env.agents], places[env.agents :]))
    earned = float(np.mean(found))
    reason = (
        "everybody observes all places, and no two are the same at the start: one rule finds the best plan, and each "
        "agent its part in it by where it started; the numbers are those of a plan that is good, not the best"
    )
    return Diversity(earned, earned, reason, "at most", random=earned)
