"""Standardisation of rewards by their running mean and variance."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class RewardScale(eqx.Module):
    """Running mean and variance of rewards (EPyMARL's standardisation: its count starts at 1e-4)."""

    mean: Float[Array, ""]
    variance: Float[Array, ""]
    count: Float[Array, ""]

    @staticmethod
    def fresh() -> "RewardScale":
        return RewardScale(jnp.zeros(()), jnp.ones(()), jnp.asarray(1e-4))

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
