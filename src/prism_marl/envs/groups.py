"""The game ``groups/<agents>-<groups>``: every agent belongs to a hidden group, and must act as its group does.

All agents observe the same sign. Group g plays (sign + g) modulo the number of groups. So it is known which agents need
the same network and which need different ones, and what a method learns to share can be compared with that.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from prism_marl.errors import UserError
from prism_marl.types import EnvSpec, Observation, Step

MOST = 1024  # agents


class State(NamedTuple):
    """The sign that all agents observe."""

    sign: Int[Array, ""]


@dataclass(frozen=True)
class Groups:
    """One step; the reward is the share of agents that play what their group should."""

    agents: int
    groups: int

    @property
    def spec(self) -> EnvSpec:
        n, k = self.agents, self.groups
        return EnvSpec(f"groups/{n}-{k}", n, observation=k, state=k, actions=k, roles=n, horizon=1, storage="int8")

    @property
    def group(self) -> Int[Array, " a"]:
        """The group of each agent: neighbours, in groups as equal as possible."""
        return jnp.arange(self.agents) * self.groups // self.agents

    def reset(self, key: Key[Array, ""]) -> tuple[State, Observation]:
        state = State(jax.random.randint(key, (), 0, self.groups))
        return state, self._observe(state)

    def step(self, key: Key[Array, ""], state: State, action: Int[Array, " a"]) -> tuple[State, Step]:
        del key
        right = (state.sign + self.group) % self.groups
        reward = jnp.mean(action == right, dtype=jnp.float32)
        end = Step(self._observe(state), reward, terminated=jnp.bool_(True), truncated=jnp.bool_(False), metrics={})
        return state, end

    def _observe(self, state: State) -> Observation:
        seen = jax.nn.one_hot(state.sign, self.groups)
        avail = jnp.ones((self.agents, self.groups), bool)
        return Observation(jnp.tile(seen, (self.agents, 1)), seen, avail, jnp.arange(self.agents))


def make_groups(variant: str) -> Groups:
    """Build ``groups/<variant>``, where the variant says agents and groups."""
    found = re.fullmatch("([0-9]{1,9})-([0-9]{1,9})", variant)
    if not found:
        raise UserError(
            f"task: 'groups/{variant}' must end in the numbers of agents and of groups, such as 'groups/6-3'"
        )
    agents = min(max(int(found[1]), 2), MOST)
    groups = min(max(int(found[2]), 2), agents)
    if (agents, groups) != (int(found[1]), int(found[2])):
        raise UserError(
            f"task: 'groups/{variant}' must have 2 to {MOST} agents and 2 to as many groups as agents; "
            f"try 'groups/{agents}-{groups}'"
        )
    return Groups(agents, groups)
