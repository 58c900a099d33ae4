"""Equations of the learners as pure functions."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def epsilon(step: Int[Array, ""], *, start: float, finish: float, anneal: int) -> Float[Array, ""]:
    """Linear decay of the exploration rate with the environment step."""
    return jnp.maximum(finish, start - (start - finish) * step / anneal)


def td_lambda(
    reward: Float[Array, "t b"],
    terminated: Bool[Array, "t b"],
    valid: Bool[Array, "t b"],
    bootstrap: Float[Array, "t1 b"],
    *,
    gamma: float,
    lam: float,
) -> Float[Array, "t b"]:
    """TD(lambda) targets of padded episodes; a time limit still bootstraps, a true end does not.

    The backward recursion R_t = x_t + (lam gamma) R_{t+1} has constant coefficients, so it is a product with one
    triangular matrix of powers instead of a scan over time. x_t is the one-step part on real steps, and the value of
    the slot after the last real step where that step was not an end.
    """
    live = valid.astype(reward.dtype)
    ends = jnp.any(terminated & valid, axis=0)
    one_step = live * (reward + (1 - lam) * gamma * bootstrap[1:] * (1 - terminated.astype(reward.dtype)))
    steps = reward.shape[0]
    last = jnp.sum(valid, axis=0)  # index of the slot after the last real step
    after = (jnp.arange(steps + 1)[:, None] == last) & ~ends
    entries = jnp.concatenate([one_step, jnp.zeros_like(one_step[:1])]) + after * bootstrap
    distance = jnp.arange(steps + 1)[None, :] - jnp.arange(steps)[:, None]
    powers = jnp.where(distance >= 0, (lam * gamma) ** jnp.maximum(distance, 0).astype(reward.dtype), 0.0)
    return live * jnp.matmul(powers, entries, precision=jax.lax.Precision.HIGHEST)


def masked_mean(values: Float[Array, "..."], mask: Bool[Array, "..."]) -> Float[Array, ""]:
    """Mean over the entries that count."""
    weight = mask.astype(values.dtype)
    return jnp.sum(values * weight) / jnp.maximum(jnp.sum(weight), 1.0)
