"""How far the masks of identities are apart: the diversity term of Kaleidoscope and Prism."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def pairwise_difference(
    on: Float[Array, "m *f"], magnitude: Float[Array, "*f"], order: Float[Array, "m *f"] | None = None
) -> Float[Array, ""]:
    """Sum over ordered pairs (p, q) of |magnitude * (on_p - on_q)|, in one pass over the masks instead of m passes.

    ``on`` is 0 or 1, so an entry with c ones among m masks contributes 2 c (m - c) magnitude. Writing that as a sum
    of ``on`` times a constant keeps the gradient of the absolute values: +-(number of masks that differ).

    Where two masks are equal the absolute value has a kink, and every number in [-1, 1] is a subgradient. Without
    ``order`` it is 0. With ``order``, whose signs are the masks, it is the sign of order_p - order_q: the value stays
    the same, and masks that agree are moved apart in the order that they have already: where it is that of thresholds
    which began at random, that is the order of a random sample and not the task's (docs/design.md).
    """
    fixed = jax.lax.stop_gradient(on)
    if order is None:
        ones = fixed.sum(axis=0)
        slope = jnp.where(fixed > 0, on.shape[0] - ones, -ones)
    else:
        slope = centred_rank(jax.lax.stop_gradient(order))
    return jnp.sum(on * (2.0 * slope) * magnitude)


def centred_rank(value: Float[Array, "m *f"]) -> Float[Array, "m *f"]:
    """For each entry: in how many other rows it is larger, minus in how many it is smaller. Equal entries count 0."""
    if value.shape[0] <= 32:  # one small fused kernel; above this, sorting is faster
        return jnp.sum(jnp.sign(value[:, None] - value[None, :]), axis=1)
    rows = value.reshape(value.shape[0], -1)
    order, last = jnp.argsort(rows, axis=0), rows.shape[0] - 1
    ordered = jnp.take_along_axis(rows, order, axis=0)
    rises = jnp.concatenate([jnp.ones_like(rows[:1], bool), ordered[1:] > ordered[:-1]])
    index = jnp.broadcast_to(jnp.arange(last + 1)[:, None], rows.shape)
    begin = jax.lax.cummax(jnp.where(rises, index, 0))  # of the run of equal entries
    end = jax.lax.cummin(jnp.where(jnp.roll(rises, -1, axis=0), index, last), reverse=True)
    ranks = begin + end - last
    ranked = jnp.put_along_axis(jnp.zeros_like(rows), order, ranks.astype(rows.dtype), axis=0, inplace=False)
    return ranked.reshape(value.shape)
