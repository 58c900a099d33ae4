"""The losses of MAPPO and IPPO as pure functions."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def surrogate(
    ratio: Float[Array, "*b"], advantage: Float[Array, "*b"], clip: float
) -> tuple[Float[Array, "*b"], Float[Array, "*b"]]:
    """PPO's clipped objective of each sample, to be maximised, and 1 where the ratio is outside the clip."""
    inside = jnp.clip(ratio, 1 - clip, 1 + clip)
    return jnp.minimum(ratio * advantage, inside * advantage), (jnp.abs(ratio - 1) > clip).astype(ratio.dtype)


def value_cost(
    value: Float[Array, "*b"],
    before: Float[Array, "*b"],
    target: Float[Array, "*b"],
    *,
    clip: float,
    huber: float,
) -> Float[Array, "*b"]:
    """What the error of a value costs: with a clip the larger of two costs, of the value and of the same value held
    near what it was before the epochs."""
    cost = error_cost(value - target, huber)
    if not clip:
        return cost
    held = before + jnp.clip(value - before, -clip, clip)
    return jnp.maximum(cost, error_cost(held - target, huber))


def error_cost(error: Float[Array, "*b"], huber: float) -> Float[Array, "*b"]:
    """Half the square; beyond ``huber``, where it is positive, a straight line."""
    if not huber:
        return 0.5 * error**2
    size = jnp.abs(error)
    return jnp.where(size <= huber, 0.5 * error**2, huber * (size - 0.5 * huber))


def standardised(advantage: Float[Array, "*b"], counts: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """Advantages minus their mean, over their deviation, both of those that count."""
    total = jnp.maximum(jnp.sum(counts), 1.0)
    mean = jnp.sum(advantage * counts) / total
    variance = jnp.sum((advantage - mean) ** 2 * counts) / total
    return (advantage - mean) / (jnp.sqrt(variance) + 1e-5)


def mean_of(values: Float[Array, "*b"], counts: Float[Array, "*b"]) -> Float[Array, ""]:
    """Mean over what counts."""
    return jnp.sum(values * counts) / jnp.maximum(jnp.sum(counts), 1.0)
