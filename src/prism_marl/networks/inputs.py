"""The input of an agent network: the observation, then optionally the last action, then optionally the agent's id."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from prism_marl.sharing.base import Sharing
from prism_marl.types import EnvSpec


def zscore(x: Float[Array, "*b f"]) -> Float[Array, "*b f"]:
    """Standardise each vector by the mean and deviation of its own features; equal features become zero."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    deviation = jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True))
    return centred / jnp.where(deviation == 0, 1.0, deviation)


@dataclass(frozen=True)
class Inputs:
    """Which parts are appended to the observation."""

    last_action: bool
    agent_id: bool
    ids: int  # length of the id's one-hot code: a team can have room for more agents than it has

    @staticmethod
    def of(sharing: Sharing, spec: EnvSpec, *, last_action: bool) -> "Inputs":
        """The last action is included if both the task's preset and the method want it (NoPS does not)."""
        return Inputs(last_action=last_action and sharing.last_action, agent_id=sharing.reads_id(), ids=spec.ids)

    def size(self, spec: EnvSpec) -> int:
        """Length of the input vector."""
        return spec.observation + self.last_action * spec.actions + self.agent_id * self.ids

    def join(
        self, local: Float[Array, "*b a o"], last_action: Int[Array, "*b a"], actions: int
    ) -> Float[Array, "*b a i"]:
        """The input vectors. ``last_action`` is -1 before the first action; its one-hot code is zeros."""
        parts = [local]
        if self.last_action:
            parts.append(jax.nn.one_hot(last_action, actions))
        if self.agent_id:
            code = jnp.eye(local.shape[-2], self.ids)
            parts.append(jnp.broadcast_to(code, (*local.shape[:-1], self.ids)))
        return jnp.concatenate(parts, axis=-1)

    def select_agents(self, local: Float[Array, "*b k o"], agent: Int[Array, " k"]) -> Float[Array, "*b k i"]:
        """The input vectors of some of the agents, for networks without last action."""
        if not self.agent_id:
            return local
        one_hot = jax.nn.one_hot(agent, self.ids)
        return jnp.concatenate([local, jnp.broadcast_to(one_hot, (*local.shape[:-1], self.ids))], axis=-1)
