"""Standardisation of rewards by their running mean and variance."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class RewardScale(eqx.Module):
    """Running mean and variance of rewards (EPyMARL's standardisation: its count starts at 1e-4)."""

    mean: Float[Array, ""]
    variance: Float[Array, ""]
    count: Float[Array, ""]

    @staticmethod
    def fresh() -> "RewardScale":
        return RewardScale(jnp.zeros(()), jnp.ones(()), jnp.asarray(1e-4))

    def update(self, reward: Float[Array, "..."]) -> "RewardScale":
        """Merge a batch by the parallel formula."""
        number = reward.size
        mean, variance = jnp.mean(reward), jnp.var(reward, ddof=1 if number > 1 else 0)
        total, delta = self.count + number, mean - self.mean
        spread = self.variance * self.count + variance * number + delta**2 * self.count * number / total
        return RewardScale(self.mean + delta * number / total, spread / total, total)

    def apply(self, reward: Float[Array, "..."]) -> Float[Array, "..."]:
        return (reward - self.mean) / jnp.sqrt(self.variance)
