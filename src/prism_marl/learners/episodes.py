"""Whole episodes in a ring buffer: what is stored of them, and how methods that look at data read them."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

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

    def stored(self) -> Trajectory:
        """Shapes and types of one episode as it is kept: one flag says how it ended."""
        return self.template()._replace(truncated=None)

    def empty(self) -> Ring[Trajectory]:
        return empty_ring(self.stored(), self.capacity)

    def add(self, buffer: Ring[Trajectory], batch: Trajectory) -> Ring[Trajectory]:
        """Store episodes [t, b, ...] one by one."""
        assert batch.truncated is not None
        ended = batch.terminated | batch.truncated if self.time_limit_ends else batch.terminated
        kept = batch._replace(terminated=ended, truncated=None)
        return buffer.add(jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), kept))

    def experience(self, buffer: Ring[Trajectory]) -> Experience:
        """The newest episodes as single transitions."""
        number = min(CLUSTER_EPISODES, self.capacity)
        episodes, held = buffer.newest(number), jnp.arange(number) < buffer.count
        local = episodes.obs.local.astype(jnp.float32)
        alive = jnp.any(local[:, :-1] != 0, axis=-1)  # a dead unit observes zeros
        flat = lambda leaf: leaf.reshape(-1, *leaf.shape[2:])  # noqa: E731
        return Experience(
            local=flat(local[:, :-1]),
            action=flat(jax.nn.one_hot(episodes.action, self.spec.actions)),
            next_local=flat(local[:, 1:]),
            reward=flat(episodes.reward),
            valid=flat((episodes.valid & held[:, None])[..., None] & alive),
        )
