"""Orthonormal columns without LAPACK.

JAX splits a batched QR among the threads that should be running it: with few cores and several of them in one program,
all threads wait and none works, for good. Starting values are drawn once, so a plain loop is fast enough everywhere.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

HIGHEST = jax.lax.Precision.HIGHEST


def orthonormal(columns: Float[Array, "d r"]) -> Float[Array, "d r"]:
    """Gram-Schmidt from left to right: each column minus its part in those before it, at length one."""

    def place(number, done):
        column = columns[:, number]
        for _ in range(2):  # the second time removes what rounding left; later columns of ``done`` are still zero
            column = column - jnp.matmul(done, jnp.matmul(done.T, column, precision=HIGHEST), precision=HIGHEST)
        return done.at[:, number].set(column / jnp.maximum(jnp.linalg.norm(column), 1e-12))

    return jax.lax.fori_loop(0, columns.shape[1], place, jnp.zeros_like(columns))


def random_orthogonal(key: Key[Array, ""], fan_out: int, fan_in: int) -> Float[Array, "o i"]:
    """A random matrix with orthonormal columns, or rows where it is wide; all such matrices are equally likely."""
    drawn = orthonormal(jax.random.normal(key, (max(fan_out, fan_in), min(fan_out, fan_in))))
    return drawn if fan_out >= fan_in else drawn.T
