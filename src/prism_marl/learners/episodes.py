"""Whole episodes in a ring buffer: what is stored of them, and how methods that look at data read them."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from prism_marl.buffers.flags import Layout, Parts, bits_shape, from_bits, to_bits
from prism_marl.buffers.ring import Ring, empty_ring
from prism_marl.learners.base import Trajectory, shape
from prism_marl.sharing.base import Experience
from prism_marl.types import EnvSpec, Observation

CLUSTER_EPISODES = 2_000  # at most so many stored episodes are shown to methods that look at data


@dataclass(frozen=True)
class EpisodeStore:
    """The episodes of a task with discrete actions."""

    spec: EnvSpec
    capacity: int  # episodes
    time_limit_ends: bool  # the clock running out counts as a true end
    individual: bool = False  # agents' own rewards, too

    def template(self) -> Trajectory:
        """Shapes and types of one episode as it is collected."""
        spec = self.spec
        slots, steps = spec.horizon + 1, spec.horizon
        return Trajectory(
            obs=Observation(
                local=shape(slots, spec.agents, spec.observation, dtype=spec.storage),
                state=shape(slots, 0 if spec.state_is_joint else spec.state, dtype=spec.storage),
                avail=shape(slots, spec.agents, spec.actions, dtype=bool),
                role=shape(slots, spec.agents, dtype="int16"),
            ),
            next_obs=None,
            action=shape(steps, spec.agents, dtype="int16"),
            reward=shape(steps),
            agent_reward=shape(steps, spec.agents) if self.individual else None,
            terminated=shape(steps, dtype=bool),
            truncated=shape(steps, dtype=bool),
            valid=shape(steps, dtype=bool),
        )

    def read(self) -> Trajectory:
        """Shapes and types of one episode as updates read it: one flag says how it ended."""
        return self.template()._replace(truncated=None)

    def stored(self) -> Trajectory:
        """Shapes and types of one episode as it is kept: of what is 0 or 1, a bit, and of small numbers, a byte."""
        spec, whole = self.spec, self.read()
        slots = spec.horizon + 1
        obs = Observation(  # with ``Parts`` for numbers
            local=self._local.shapes(slots, spec.agents, dtype=spec.storage),
            state=self._state.shapes(slots, dtype=spec.storage),
            avail=bits_shape(slots, spec.agents, spec.actions),
            role=shape(slots, spec.agents, dtype=_smallest(spec.roles)),
        )
        return whole._replace(obs=obs, action=shape(spec.horizon, spec.agents, dtype=_smallest(spec.actions)))

    @property
    def _local(self) -> Layout:
        return Layout(self.spec.observation, self.spec.flags)

    @property
    def _state(self) -> Layout:
        return Layout(0) if self.spec.state_is_joint else Layout(self.spec.state, self.spec.state_flags)

    def kept(self, episodes: Trajectory) -> Trajectory:
        """Episodes [..., t, ...] as they are kept."""
        obs = episodes.obs
        local: Any = self._local.pack(obs.local)
        state: Any = self._state.pack(obs.state)
        parts = Observation(local, state, to_bits(obs.avail), obs.role)
        action = jnp.maximum(episodes.action, 0)
        return jax.tree.map(
            lambda leaf, of: leaf.astype(of.dtype), episodes._replace(obs=parts, action=action), self.stored()
        )

    def seen(self, obs: Any) -> Observation:
        """Observations as they were; those that are not as they are kept are left alone."""
        if not isinstance(obs.local, Parts):
            return obs
        avail = from_bits(obs.avail, self.spec.actions)
        found = Observation(self._local.unpack(obs.local), self._state.unpack(obs.state), avail, obs.role)
        return jax.tree.map(lambda leaf, of: leaf.astype(of.dtype), found, self.read().obs)

    def restored(self, kept: Any) -> Trajectory:
        """Kept episodes as they were."""
        return kept._replace(obs=self.seen(kept.obs), action=kept.action.astype(self.read().action.dtype))

    def sample(self, buffer: Ring[Trajectory], key: Key[Array, ""], number: int) -> Trajectory:
        """Distinct episodes [b, t, ...], uniformly. Their observations are as they are kept: most of them are padding,
        so an update calls ``seen`` once it has left that out."""
        kept = buffer.sample(key, number)
        return kept._replace(action=kept.action.astype(self.read().action.dtype))

    def empty(self) -> Ring[Trajectory]:
        return empty_ring(self.stored(), self.capacity)

    def add(self, buffer: Ring[Trajectory], batch: Trajectory) -> Ring[Trajectory]:
        """Store episodes [t, b, ...] one by one."""
        assert batch.truncated is not None
        ended = batch.terminated | batch.truncated if self.time_limit_ends else batch.terminated
        kept = self.kept(batch._replace(terminated=ended, truncated=None))
        return buffer.add(jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), kept))

    def experience(self, buffer: Ring[Trajectory], scale: float = 1.0) -> Experience:
        """The newest episodes as single transitions, with observations as networks read them: times ``scale``."""
        number = min(CLUSTER_EPISODES, self.capacity)
        episodes, held = self.restored(buffer.newest(number)), jnp.arange(number) < buffer.count
        local = scale * episodes.obs.local.astype(jnp.float32)
        alive = jnp.any(local[:, :-1] != 0, axis=-1)  # a dead unit observes zeros
        flat = lambda leaf: leaf.reshape(-1, *leaf.shape[2:])  # noqa: E731
        return Experience(
            local=flat(local[:, :-1]),
            action=flat(jax.nn.one_hot(episodes.action, self.spec.actions)),
            next_local=flat(local[:, 1:]),
            reward=flat(episodes.reward),
            valid=flat((episodes.valid & held[:, None])[..., None] & alive),
        )


def _smallest(values: int) -> str:
    """The smallest type that holds 0 to ``values`` - 1."""
    return "uint8" if values <= 256 else "int16"
