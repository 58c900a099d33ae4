"""Games of one step with known best play: ``matrix/<table>-<agents>`` and ``pass/<agents>``.

All agents observe the same constant, so nothing but its index tells an agent what to play. In a matrix game neighbours
form pairs, and every pair plays one table of payoffs: the first chooses the row, the second the column. In the pass
game all take turns at a gate, and who is alone in its turn passes.
"""

import abc
import math
import re
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from prism_marl.envs.diversity import Diversity
from prism_marl.envs.settings import read_agents
from prism_marl.errors import UserError
from prism_marl.scene import GOAL, NOBODY, Scene, Shape
from prism_marl.types import EnvSpec, Observation, Step

MOST = 64  # agents
TABLES = {  # what a pair earns, before it is divided by the best
    "climbing": ((11, -30, 0), (-30, 7, 6), (0, 0, 5)),
    "penalty": ((-10, 0, 10), (0, 2, 0), (10, 0, -10)),
    "xor": ((0, 1), (1, 0)),
}
RANDOM = {"climbing": 1.0, "penalty": 0.2, "xor": 0.5}  # best share of two agents with one common distribution


class State(NamedTuple):
    """What was played; before the step nothing."""

    action: Int[Array, " a"]
    clock: Int[Array, ""]


@dataclass(frozen=True)
class OneStep(abc.ABC):
    """What the games have in common: a constant to observe, and an end after one step."""

    agents: int

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The task's name."""

    @property
    @abc.abstractmethod
    def choices(self) -> int:
        """Actions of an agent."""

    @abc.abstractmethod
    def paid(self, action: Int[Array, " a"]) -> Float[Array, ""]:
        """What the team earns."""

    @property
    def spec(self) -> EnvSpec:
        n = self.agents
        return EnvSpec(self.name, n, observation=1, state=1, actions=self.choices, roles=n, horizon=1, storage="int8")

    def reset(self, key: Key[Array, ""]) -> tuple[State, Observation]:
        del key  # nothing is random
        return State(jnp.zeros(self.agents, jnp.int32), jnp.int32(0)), self._observe()

    def step(self, key: Key[Array, ""], state: State, action: Int[Array, " a"]) -> tuple[State, Step]:
        del key
        end = Step(self._observe(), self.paid(action), jnp.bool_(True), jnp.bool_(False), metrics={})
        return State(action.astype(jnp.int32), state.clock + 1), end

    def _observe(self) -> Observation:
        ones: Float[Array, "a 1"] = jnp.ones((self.agents, 1))
        return Observation(ones, ones[0], jnp.ones((self.agents, self.choices), bool), jnp.arange(self.agents))


@dataclass(frozen=True)
class Matrix(OneStep):
    """Pairs at a table: the reward is the mean payoff of the pairs, divided by the best payoff."""

    table: str

    @property
    def name(self) -> str:
        return f"matrix/{self.table}-{self.agents}"

    @property
    def choices(self) -> int:
        return len(TABLES[self.table])

    @property
    def payoff(self) -> Int[np.ndarray, "u u"]:
        return np.array(TABLES[self.table])

    def paid(self, action: Int[Array, " a"]) -> Float[Array, ""]:
        earned = jnp.asarray(self.payoff)[action[::2], action[1::2]]
        return jnp.mean(earned, dtype=jnp.float32) / float(self.payoff.max())

    def scene(self, state: State) -> Scene:
        """A table for every pair: the discs of both stand at the row and the column that they chose."""
        action, played = np.asarray(state.action), int(state.clock) > 0
        pairs, side = self.agents // 2, self.choices + 1
        across = math.ceil(math.sqrt(pairs))
        shapes: list[Shape] = []
        for pair in range(pairs):
            left, top = (pair % across) * (side + 1) + 0.5, (pair // across) * (side + 1) + 0.5
            row, column = action[2 * pair : 2 * pair + 2].tolist()
            for r, line in enumerate(self.payoff.tolist()):
                for c, number in enumerate(line):
                    colour = GOAL if number == self.payoff.max() else NOBODY
                    chosen = played and (r, c) == (row, column)
                    shapes.append(Shape("square", left + c + 1, top + r + 1, 0.8, colour, str(number), ".", chosen))
            seats = ((left, top + row + 1), (left + column + 1, top)) if played else ()
            for agent, (x, y) in enumerate(seats, 2 * pair):
                shapes.append(Shape("disc", x, y, 0.7, agent, str(agent + 1), chr(ord("A") + agent % 26)))
        paid = float(self.paid(jnp.asarray(state.action))) if played else 0.0
        caption = f"reward {paid:.2f} of at most 1" if played else "before the choice"
        legend = "a disc at the left chose a row, one on top a column; ring: what the pair is paid; green: the best"
        width, height = across * (side + 1) - 1.0, math.ceil(pairs / across) * (side + 1) - 1.0
        return Scene(width, height, tuple(shapes), grid=False, caption=caption, extra={"reward": paid}, legend=legend)


@dataclass(frozen=True)
class Pass(OneStep):
    """As many turns as agents: the reward is the share of agents that are alone in their turn."""

    @property
    def name(self) -> str:
        return f"pass/{self.agents}"

    @property
    def choices(self) -> int:
        return self.agents

    def paid(self, action: Int[Array, " a"]) -> Float[Array, ""]:
        return jnp.mean(_alone(action), dtype=jnp.float32)

    def scene(self, state: State) -> Scene:
        """A column for every turn, with the agents that took it; the gate above it is green where one passes."""
        n, played = self.agents, int(state.clock) > 0
        action = np.asarray(state.action).tolist()
        shapes: list[Shape] = []
        for turn in range(n):
            takers = [agent for agent in range(n) if played and action[agent] == turn]
            if len(takers) > 1:
                shapes.append(Shape("cross", turn + 0.5, 0.5, 0.5, NOBODY, "", "x"))
            else:
                colour = GOAL if takers else NOBODY
                shapes.append(Shape("square", turn + 0.5, 0.5, 0.8, colour, str(turn + 1), str((turn + 1) % 10)))
            for place, agent in enumerate(takers):
                glyph = chr(ord("A") + agent % 26)
                shapes.append(
                    Shape("disc", turn + 0.5, place + 1.5, 0.8, agent, str(agent + 1), glyph, len(takers) == 1)
                )
        passed = round(n * float(self.paid(jnp.asarray(state.action)))) if played else 0
        caption = f"{passed} of {n} agents pass the gate" if played else "before the choice"
        legend = "a column is a turn; green: one agent passes; cross: several came at once, and none passes"
        return Scene(n, n + 1, tuple(shapes), caption=caption, extra={"passed": float(passed)}, legend=legend)


def _alone(action: Int[Array, " a"]) -> Bool[Array, " a"]:
    return jnp.sum(action[:, None] == action, axis=1) == 1


def make_matrix(variant: str) -> Matrix:
    """Build ``matrix/<climbing|penalty|xor>-<agents>``."""
    found = re.fullmatch(f"({'|'.join(TABLES)})-([0-9]{{1,9}})", variant)
    if found is None:
        raise UserError(
            f"task: 'matrix/{variant}' is not <{'|'.join(TABLES)}>-<agents>; an example is 'matrix/penalty-2'"
        )
    agents = int(found[2])
    if (near := min(max(agents + agents % 2, 2), MOST)) != agents:
        raise UserError(
            f"task: matrix games take 2 to {MOST} agents in pairs, not {agents}; try 'matrix/{found[1]}-{near}'"
        )
    return Matrix(agents, found[1])


def make_pass(variant: str) -> Pass:
    """Build ``pass/<agents>``."""
    return Pass(read_agents("pass", variant, 2, MOST, "pass/4"))


def matrix_diversity(variant: str) -> Diversity:
    """Alike, both of a pair play one letter, so the best cell of the diagonal is theirs."""
    env = make_matrix(variant)
    reason = "agents that act alike reach the diagonal of the table alone"
    return Diversity(float(env.payoff.diagonal().max() / env.payoff.max()), 1.0, reason, random=RANDOM[env.table])


def pass_diversity(variant: str) -> Diversity:
    """Alike, all take one turn. At random, a turn is worth the chance that one agent takes it and the others do not."""
    n = make_pass(variant).agents
    reason = "agents that act alike all take one turn; at random the best is to take each turn equally often"
    return Diversity(0.0, 1.0, reason, random=(1 - 1 / n) ** (n - 1))
