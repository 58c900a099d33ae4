"""The diagnostic game ``roles/<agents>``: all agents observe the same, and each one must play its own index.

Agents can only solve it by their identity, so the best return of a sharing method is known: 1/n if all agents share one
network, k/n with k clusters, 1 if every agent can differ.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from prism_marl.envs.settings import read_agents
from prism_marl.types import EnvSpec, Observation, Step

FEWEST, MOST = 2, 1024


class State(NamedTuple):
    """The number of steps; there is no other state."""

    clock: Int[Array, ""]


@dataclass(frozen=True)
class Roles:
    """One step, identical observations; the reward is the share of agents that play their own index."""

    agents: int

    @property
    def spec(self) -> EnvSpec:
        n = self.agents
        return EnvSpec(f"roles/{n}", n, observation=1, state=1, actions=n, roles=n, horizon=1, storage="int8")

    def reset(self, key: Key[Array, ""]) -> tuple[State, Observation]:
        del key  # nothing is random
        return State(jnp.int32(0)), self._observe()

    def step(self, key: Key[Array, ""], state: State, action: Int[Array, " a"]) -> tuple[State, Step]:
        del key
        reward = jnp.mean(action == jnp.arange(self.agents), dtype=jnp.float32)
        end = Step(self._observe(), reward, terminated=jnp.bool_(True), truncated=jnp.bool_(False), metrics={})
        return State(state.clock + 1), end

    def _observe(self) -> Observation:
        ones: Float[Array, "a 1"] = jnp.ones((self.agents, 1))
        avail = jnp.ones((self.agents, self.agents), bool)
        return Observation(ones, ones[0], avail, jnp.arange(self.agents))


def make_roles(variant: str) -> Roles:
    """Build ``roles/<variant>``, where the variant is the number of agents."""
    return Roles(read_agents("roles", variant, FEWEST, MOST, "roles/4"))
