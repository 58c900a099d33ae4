"""Generalised advantage estimation (Schulman et al., 2016) over rows that end and restart inside."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def advantages(
    reward: Float[Array, " t *b"],
    terminated: Bool[Array, " t *#b"],
    over: Bool[Array, " t *#b"],
    value: Float[Array, " t *b"],
    next_value: Float[Array, " t *b"],
    *,
    gamma: float,
    lam: float,
) -> Float[Array, " t *b"]:
    """A_t = delta_t + gamma lambda A_{t+1}, where no episode ends; ``over`` says where one does.

    ``next_value`` is the value of what really followed a step, from before any reset: a clock that ran out bootstraps
    from it, a true end does not.
    """
    error = reward + gamma * jnp.where(terminated, 0.0, next_value) - value
    weight = jnp.broadcast_to(jnp.where(over, 0.0, gamma * lam), error.shape)

    def step(following: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        found = now[0] + now[1] * following
        return found, found

    return jax.lax.scan(step, jnp.zeros_like(error[0]), (error, weight), reverse=True)[1]
