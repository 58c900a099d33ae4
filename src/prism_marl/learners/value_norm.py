"""Critics that predict standardised returns: a running mean and deviation (MAPPO's ValueNorm)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

DECAY = 0.99999
LEAST_VARIANCE = 1e-2


class ValueNorm(eqx.Module):
    """Moving averages of returns and of their squares; ``weight`` corrects for their start at zero."""

    mean: Float[Array, ""]
    square: Float[Array, ""]
    weight: Float[Array, ""]

    @staticmethod
    def fresh() -> "ValueNorm":
        return ValueNorm(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))

    def update(self, returns: Float[Array, "*b"], counts: Float[Array, "*b"]) -> "ValueNorm":
        """Take in the returns of a rollout, those that count."""
        total = jnp.maximum(jnp.sum(counts), 1.0)
        mean, square = jnp.sum(returns * counts) / total, jnp.sum(returns**2 * counts) / total
        return ValueNorm(
            DECAY * self.mean + (1 - DECAY) * mean,
            DECAY * self.square + (1 - DECAY) * square,
            DECAY * self.weight + (1 - DECAY),
        )

    def statistics(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Mean and deviation; 0 and 1 before there was a return."""
        begun, weight = self.weight > 0, jnp.where(self.weight > 0, self.weight, 1.0)
        mean = self.mean / weight
        variance = jnp.maximum(self.square / weight - mean**2, LEAST_VARIANCE)
        return mean, jnp.where(begun, jnp.sqrt(variance), 1.0)

    def normalise(self, returns: Float[Array, "*b"]) -> Float[Array, "*b"]:
        mean, size = self.statistics()
        return (returns - mean) / size

    def restore(self, values: Float[Array, "*b"]) -> Float[Array, "*b"]:
        """Predictions as returns."""
        mean, size = self.statistics()
        return values * size + mean
