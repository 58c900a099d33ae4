"""Standardisation of rewards by their running mean and variance."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from prism_marl.learners.base import Trajectory


class RewardScale(eqx.Module):
    """Running mean and variance of rewards (EPyMARL's standardisation: its count starts at 1e-4), of the team or of
    each agent."""

    mean: Float[Array, "*a"]
    variance: Float[Array, "*a"]
    count: Float[Array, "*a"]

    @staticmethod
    def fresh(agents: int | None = None) -> "RewardScale":
        sizes = () if agents is None else (agents,)
        return RewardScale(jnp.zeros(sizes), jnp.ones(sizes), jnp.full(sizes, 1e-4))

    def standardised(self, episodes: Trajectory) -> tuple["RewardScale", Trajectory]:
        """The scale with the rewards of a batch of episodes in it, and the batch with standardised rewards."""
        if episodes.agent_reward is None:
            scale = self.update(episodes.reward, episodes.valid)
            return scale, episodes._replace(reward=scale.apply(episodes.reward))
        scale = jax.vmap(RewardScale.update, (0, -1, None))(self, episodes.agent_reward, episodes.valid)
        return scale, episodes._replace(agent_reward=scale.apply(episodes.agent_reward))

    def update(self, reward: Float[Array, "t b"], valid: Bool[Array, "t b"]) -> "RewardScale":
        """Merge a batch of episodes by the parallel formula. As in EPyMARL the batch is cut to its longest episode, and
        what shorter ones have beyond their end counts as zeros."""
        counts = jnp.any(valid, axis=1, keepdims=True)  # [t, 1]: some episode reached this step
        number = reward.shape[1] * jnp.sum(counts)
        mean = jnp.sum(jnp.where(counts, reward, 0.0)) / jnp.maximum(number, 1)
        squares = jnp.sum(jnp.where(counts, (reward - mean) ** 2, 0.0))
        variance = squares / jnp.maximum(number - 1, 1)
        total, delta = self.count + number, mean - self.mean
        spread = self.variance * self.count + variance * number + delta**2 * self.count * number / total
        return RewardScale(self.mean + delta * number / total, spread / total, total)

    def apply(self, reward: Float[Array, "..."]) -> Float[Array, "..."]:
        return (reward - self.mean) / jnp.sqrt(self.variance)
