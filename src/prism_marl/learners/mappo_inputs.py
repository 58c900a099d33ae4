"""What actors and critics of MAPPO and IPPO read, and what of a rollout is recorded for it."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from prism_marl.learners.base import Trajectory, shape
from prism_marl.networks.inputs import Inputs, zscore
from prism_marl.sharing.base import Experience
from prism_marl.types import EnvSpec, Observation


@dataclass(frozen=True)
class RolloutInputs:
    """Observations and states of a task as inputs of networks."""

    spec: EnvSpec
    actors: Inputs
    central: bool  # critics see the state
    critic_id: bool  # ... and which agent's value is asked for
    values: int  # values that a critic gives at a time
    standardise: bool
    scale: bool
    by_role: bool  # networks ask for roles
    looks: bool  # the sharing method looks at data

    def actor(self, obs: Observation) -> Float[Array, "*b a i"]:
        """What actors read."""
        local = self._scaled(self.local(obs))
        x = self.actors.join(local, jnp.zeros(local.shape[:-1], jnp.int32), self.spec.actions)
        return self._standardised(x)

    def critic(self, obs: Observation) -> Float[Array, "*b v i"]:
        """What the critic reads for each of its values."""
        if not self.central:
            x = self.local(obs)
        else:
            state = self.state(obs)[..., None, :]
            x = jnp.broadcast_to(state, (*state.shape[:-2], self.values, self.spec.state))
        x = self._scaled(x)
        if self.critic_id:
            x = jnp.concatenate([x, jnp.broadcast_to(jnp.eye(self.values), (*x.shape[:-1], self.values))], axis=-1)
        return self._standardised(x)

    @property
    def critic_size(self) -> int:
        seen = self.spec.state if self.central else self.spec.observation
        return seen + self.critic_id * self.values

    def local(self, obs: Observation) -> Float[Array, "*b a o"]:
        """Observations, which are not recorded where all agents observe the state."""
        if not self.spec.shared_observation:
            return obs.local.astype(jnp.float32)
        state = obs.state.astype(jnp.float32)[..., None, :]
        return jnp.broadcast_to(state, (*state.shape[:-2], self.spec.agents, self.spec.observation))

    def state(self, obs: Observation) -> Float[Array, "*b s"]:
        """States, which are not recorded where they are the observations side by side."""
        if not self.spec.state_is_joint:
            return obs.state.astype(jnp.float32)
        return obs.local.astype(jnp.float32).reshape(*obs.local.shape[:-2], -1)

    def _scaled(self, x: Float[Array, "*b i"]) -> Float[Array, "*b i"]:
        """Observations and states of size 1; what is appended to them has it anyway."""
        return x / self.spec.magnitude if self.scale else x

    def _standardised(self, x: Float[Array, "*b i"]) -> Float[Array, "*b i"]:
        return zscore(x) if self.standardise else x

    def active(self, obs: Observation) -> Bool[Array, "*b a"]:
        """Which agents take part. One that is dead or done has no choice: in discrete tasks it observes nothing and has
        one legal action, in continuous ones its legal actions are all false."""
        if self.spec.kind == "continuous":
            return jnp.any(obs.avail, axis=-1)
        choice = jnp.sum(obs.avail, axis=-1) > 1
        return choice if self.spec.shared_observation else choice | jnp.any(obs.local != 0, axis=-1)

    def template(self, length: int) -> Trajectory:
        """Shapes and types of a rollout of one environment; an action's log-probability is recorded with it."""
        spec, flag, agents = self.spec, shape(length, dtype=bool), (length, self.spec.agents)
        needs_state = (self.central or spec.shared_observation) and not spec.state_is_joint
        local = shape(length, 0 if spec.shared_observation else spec.agents, spec.observation, dtype=spec.storage)
        state = shape(length, spec.state if needs_state else 0, dtype=spec.storage)
        follows = self.looks or not self.central or spec.state_is_joint  # somebody reads what agents observed then
        nothing = shape(length, 0, dtype=bool)
        discrete = spec.kind == "discrete"
        draw = {} if discrete else {"draw": shape(*agents, spec.actions)}
        return Trajectory(
            obs=Observation(
                local,
                state,
                shape(*agents, spec.actions, dtype=bool),
                shape(length, spec.agents if self.by_role else 0, dtype="int16"),
            ),
            next_obs=Observation(local if follows else shape(length, 0, dtype=spec.storage), state, nothing, nothing),
            action=shape(*agents, dtype="int16") if discrete else shape(*agents, spec.actions),
            reward=shape(length),
            agent_reward=shape(*agents) if spec.reward == "agent" and self.values > 1 else None,
            terminated=flag,
            truncated=flag,
            valid=flag,
            extras={"log_prob": shape(*agents)} | draw,
        )

    def experience(self, batch: Trajectory) -> Experience:
        """A rollout [t, b, ...] as single transitions, for sharing methods that look at data."""
        assert batch.next_obs is not None
        discrete = self.spec.kind == "discrete"
        found = Experience(
            local=self._standardised(self._scaled(self.local(batch.obs))),
            action=jax.nn.one_hot(batch.action, self.spec.actions) if discrete else batch.action,
            next_local=self._standardised(self._scaled(self.local(batch.next_obs))),
            reward=batch.reward,
            valid=self.active(batch.obs) & batch.valid[..., None],
        )
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), found)

    def no_experience(self, number: int) -> Experience:
        """So many transitions that never took place."""
        spec = self.spec
        return Experience(
            jnp.zeros((number, spec.agents, spec.observation)),
            jnp.zeros((number, spec.agents, spec.actions)),
            jnp.zeros((number, spec.agents, spec.observation)),
            jnp.zeros(number),
            jnp.zeros((number, spec.agents), bool),
        )
