"""Orthonormal columns without LAPACK.

JAX runs a batched QR on the thread pool that also runs the program: with few cores and several QRs in one program, all
threads wait for each other for ever. Initial weights are computed once, so a plain loop is fast enough.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

HIGHEST = jax.lax.Precision.HIGHEST


def orthonormal(columns: Float[Array, "d r"]) -> Float[Array, "d r"]:
    """Gram-Schmidt from left to right: each column minus its projection on the columns before it, normalised."""

    def add_column(index, done):
        column = columns[:, index]
        for _ in range(2):  # the second time removes rounding errors; later columns of ``done`` are still zero
            column = column - jnp.matmul(done, jnp.matmul(done.T, column, precision=HIGHEST), precision=HIGHEST)
        return done.at[:, index].set(column / jnp.maximum(jnp.linalg.norm(column), 1e-12))

    return jax.lax.fori_loop(0, columns.shape[1], add_column, jnp.zeros_like(columns))


def random_orthogonal(key: Key[Array, ""], fan_out: int, fan_in: int) -> Float[Array, "o i"]:
    """A random matrix with orthonormal columns, or rows if it is wide, from the uniform distribution of these."""
    tall = orthonormal(jax.random.normal(key, (max(fan_out, fan_in), min(fan_out, fan_in))))
    return tall if fan_out >= fan_in else tall.T
