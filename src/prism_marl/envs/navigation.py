"""The game ``navigation/<agents>-<same|half|different>``: every agent has to get to its goal, and is not told which.

All start together on a random cell and observe their own place and all goals. With ``same`` there is one goal for all;
with ``half`` the first half of the agents has one goal together and each of the others its own; with ``different``
each agent has its own. Agents that act alike stay together, so that they end on one cell, whosever goals are near it.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from prism_marl.envs.board import ACTIONS, SELF_FIELDS, agent_discs, sample_places, walk, way_fields
from prism_marl.envs.diversity import Diversity
from prism_marl.errors import UserError
from prism_marl.scene import Scene, Shape
from prism_marl.types import EnvSpec, Observation, Step

SIDE = 11  # rows and columns
MIDDLE = SIDE // 2
HORIZON = 2 * (SIDE - 1)  # enough to cross the board
SHARES = ("same", "half", "different")
FEWEST, MOST = 2, 64  # agents
SAMPLES = 20_000  # starts, for the need for diversity


class State(NamedTuple):
    """Places as row and column."""

    place: Int[Array, "a 2"]
    goal: Int[Array, "g 2"]
    far: Int[Array, ""]  # steps that all agents together are away from their goals at the start
    clock: Int[Array, ""]


@dataclass(frozen=True)
class Navigation:
    """The team earns the steps by which agents come nearer to their goals, as a share of those at the start."""

    agents: int
    goals: str

    @property
    def goal_of(self) -> Int[np.ndarray, " a"]:
        """The goal of each agent."""
        n = self.agents
        together = {"same": n, "half": (n + 1) // 2, "different": 1}[self.goals]
        return np.maximum(np.arange(n) - together + 1, 0)

    @property
    def spec(self) -> EnvSpec:
        n, goals = self.agents, int(self.goal_of.max()) + 1
        return EnvSpec(
            f"navigation/{n}-{self.goals}",
            n,
            observation=2 + 2 * goals,
            state=2 * n + 2 * goals,
            actions=len(ACTIONS),
            roles=n,
            horizon=HORIZON,
            metrics=("arrived",),
            storage="int8",
            magnitude=float(SIDE - 1),
        )

    def reset(self, key: Key[Array, ""]) -> tuple[State, Observation]:
        """The start and the goals on different cells."""
        cells = sample_places(key, int(self.goal_of.max()) + 2, np.arange(SIDE**2), SIDE)
        place = jnp.tile(cells[:1], (self.agents, 1))
        state = State(place, cells[1:], jnp.int32(0), jnp.int32(0))
        state = state._replace(far=self._left(state).sum())
        return state, self._observe(state)

    def step(self, key: Key[Array, ""], state: State, action: Int[Array, " a"]) -> tuple[State, Step]:
        """All move at once and may share cells."""
        del key  # only ``reset`` is random
        before = self._left(state)
        state = state._replace(place=walk(state.place, action, SIDE), clock=state.clock + 1)
        left = self._left(state)
        over = jnp.all(left == 0)
        return state, Step(
            self._observe(state),
            reward=(before.sum() - left.sum()) / state.far.astype(jnp.float32),
            terminated=over,
            truncated=(state.clock >= HORIZON) & ~over,
            metrics={"arrived": jnp.mean(left == 0, dtype=jnp.float32)},
        )

    def fields(self) -> tuple[tuple[str, str], ...]:
        """The name and meaning of every number of an observation."""
        goals = range(int(self.goal_of.max()) + 1)
        return (*SELF_FIELDS, *(field for k in goals for field in way_fields(f"goal{k}", f"goal {k}")))

    def scene(self, state: State) -> Scene:
        """Discs for agents, squares for goals with the numbers of their agents; a ring: it is there."""
        shapes: list[Shape] = []
        for goal, (row, col) in enumerate(state.goal.tolist()):
            members = np.flatnonzero(self.goal_of == goal)
            label = str(members[0] + 1) if members.size == 1 else f"{members[0] + 1}-{members[-1] + 1}"
            shapes.append(Shape("square", col + 0.5, row + 0.5, 0.95, int(members[0]), label, str(goal % 10)))
        cells = [(row, col) for row, col in state.place.tolist()]
        there = np.asarray(self._left(state)) == 0
        shapes += agent_discs(cells, [str(i + 1) for i in range(self.agents)], there, 0.65)
        caption = f"step {int(state.clock)}/{HORIZON}, {there.sum()} of {self.agents} agents at their goals"
        numbers = {"step": float(state.clock), "arrived": float(there.sum())}
        legend = "squares: goals of the agents with these numbers; ring: the agent is at its goal"
        return Scene(SIDE, SIDE, tuple(shapes), caption=caption, extra=numbers, legend=legend)

    def _left(self, state: State) -> Int[Array, " a"]:
        """How many steps each agent is away from its goal."""
        return jnp.sum(jnp.abs(state.place - state.goal[self.goal_of]), axis=1)

    def _observe(self, state: State) -> Observation:
        own = (state.place - MIDDLE).astype(jnp.float32)
        ways = (state.goal - state.place[:, None]).reshape(self.agents, -1)
        whole = jnp.concatenate([own.reshape(-1), (state.goal - MIDDLE).reshape(-1)])
        avail = jnp.ones((self.agents, len(ACTIONS)), bool)
        return Observation(jnp.concatenate([own, ways], axis=1), whole, avail, jnp.arange(self.agents))


def make_navigation(variant: str) -> Navigation:
    """Build ``navigation/<agents>-<same|half|different>``."""
    found = re.fullmatch(f"([0-9]{{1,9}})-({'|'.join(SHARES)})", variant)
    if found is None:
        raise UserError(
            f"task: 'navigation/{variant}' is not <agents>-<{'|'.join(SHARES)}>; an example is 'navigation/4-half'"
        )
    agents = int(found[1])
    if (near := min(max(agents, FEWEST), MOST)) != agents:
        raise UserError(
            f"task: navigation takes {FEWEST} to {MOST} agents, not {agents}; try 'navigation/{near}-{found[2]}'"
        )
    return Navigation(agents, found[2])


def best_together(
    start: Int[np.ndarray, "n 2"], goal: Int[np.ndarray, "n a 2"]
) -> tuple[Int[np.ndarray, "n 2"], Float[np.ndarray, " n"]]:
    """Where a team that stays together should go, for each agent's goal in many games, and what that is worth: of all
    cells, the rows' and the columns' median leave the fewest steps."""
    cell = np.sort(goal, axis=1)[:, (goal.shape[1] - 1) // 2]
    left, far = (np.abs(goal - place[:, None]).sum(axis=(1, 2)) for place in (cell, start))
    return cell, 1 - left / far


def navigation_diversity(variant: str) -> Diversity:
    """Unlike, everybody arrives. Alike, the team ends on one cell."""
    env = make_navigation(variant)
    if env.goals == "same":
        return Diversity(1.0, 1.0, "all agents have one goal, which they observe", random=1.0)
    rng = np.random.default_rng(0)
    number = int(env.goal_of.max()) + 2
    cells = np.argsort(rng.random((SAMPLES, SIDE**2)), axis=1)[:, :number]
    places = np.stack([cells // SIDE, cells % SIDE], axis=-1)
    alike = float(best_together(places[:, 0], places[:, 1:][:, env.goal_of])[1].mean())
    reason = "agents that act alike stay on one cell and end at the median of the goals; throwing dice cannot help"
    return Diversity(alike, 1.0, reason, "sampled", random=alike)
