"""What is stored of a transition, and how actors, critics and cluster methods read it."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from prism_marl.buffers.nstep import Transition
from prism_marl.networks.inputs import Inputs, zscore
from prism_marl.sharing.base import Experience
from prism_marl.types import EnvSpec


@dataclass(frozen=True)
class InputBuilder:
    """Observation and state of a task as inputs of networks."""

    spec: EnvSpec
    inputs: Inputs
    standardise: bool  # each input vector by its own mean and deviation

    def agents(
        self, local: Float[Array, "b a o"], state: Float[Array, "b s"], agent: Int[Array, " k"]
    ) -> Float[Array, "b k i"]:
        """What the actors of some agents read."""
        return self._scaled(self.inputs.select_agents(self._seen(local, state, agent), agent))

    def critics(self, state: Float[Array, "b s"], action: Float[Array, "b a u"]) -> Float[Array, "b i"]:
        """What the critics read: the state and everybody's action."""
        return jnp.concatenate([self._scaled(state), action.reshape(action.shape[0], -1)], axis=-1)

    def whole(self, local: Array, state: Array) -> tuple[Float[Array, "b a o"], Float[Array, "b s"]]:
        """Stored parts as floats, with the state put together where only observations are stored."""
        local = local.astype(jnp.float32)
        state = local.reshape(local.shape[0], -1) if self.spec.state_is_joint else state.astype(jnp.float32)
        return local, state

    def stored(self) -> Transition:
        """Shapes and types of one stored transition."""
        spec = self.spec

        def shape(*sizes: int, dtype: Any = "float32") -> Any:
            return jax.ShapeDtypeStruct(sizes, jnp.dtype(dtype))

        local = shape(0 if spec.shared_observation else spec.agents, spec.observation, dtype=spec.storage)
        state = shape(0 if spec.state_is_joint else spec.state, dtype=spec.storage)
        action, flag = shape(spec.agents, spec.actions), shape(dtype=bool)
        return Transition(local, state, action, shape(), flag, flag, local, state)

    def experience(self, held: Transition, valid: Bool[Array, " n"]) -> Experience:
        """Transitions for sharing methods that look at data, as actors without an id would read them."""
        everybody = jnp.arange(self.spec.agents)
        return Experience(
            local=self._scaled(self._seen(*self.whole(held.local, held.state), everybody)),
            action=held.action,
            next_local=self._scaled(self._seen(*self.whole(held.next_local, held.next_state), everybody)),
            reward=held.reward,
            valid=jnp.broadcast_to(valid[:, None], (valid.size, everybody.size)),
        )

    def _seen(self, local, state, agent: Int[Array, " k"]) -> Float[Array, "b k o"]:
        if self.spec.shared_observation:
            return jnp.broadcast_to(state[:, None], (state.shape[0], agent.size, state.shape[1]))
        return local[:, agent]

    def _scaled(self, x: Float[Array, "*b f"]) -> Float[Array, "*b f"]:
        return zscore(x) if self.standardise else x
