"""Orthonormal columns: what they span, and that many of them at once come to an end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from prism_marl.sharing.orthonormal import orthonormal, random_orthogonal

KEY = jax.random.key(0)


def test_by_hand():
    columns = jnp.asarray([[3.0, 1.0], [4.0, 7.0]])  # (1, 7) = 31/5 * (3, 4)/5 + 17/5 * (-4, 3)/5
    assert_allclose(orthonormal(columns), [[0.6, -0.8], [0.8, 0.6]], atol=1e-6)


def test_nearly_dependent_columns_are_orthogonal_to_rounding():
    base = np.random.default_rng(0).normal(size=(40, 1))
    columns = jnp.asarray(base + 1e-3 * np.random.default_rng(1).normal(size=(40, 30)), jnp.float32)
    found = np.asarray(orthonormal(columns), np.float64)
    assert_allclose(found.T @ found, np.eye(30), atol=1e-5)


@pytest.mark.parametrize(("fan_out", "fan_in"), [(5, 5), (9, 4), (3, 8), (6, 1)])
def test_random_matrices_are_orthogonal_on_their_short_side(fan_out, fan_in):
    drawn = np.asarray(random_orthogonal(KEY, fan_out, fan_in))
    assert drawn.shape == (fan_out, fan_in)
    gram = drawn.T @ drawn if fan_out >= fan_in else drawn @ drawn.T
    assert_allclose(gram, np.eye(min(fan_out, fan_in)), atol=1e-5)


def test_no_direction_is_preferred():
    entries = jax.vmap(lambda key: random_orthogonal(key, 3, 3))(jax.random.split(KEY, 2000))
    assert np.abs(np.mean(entries, axis=0)).max() < 0.05  # deviation of a mean: 3**-0.5 / 2000**0.5 = 0.013


def test_many_batches_in_one_program_come_to_an_end():
    """Several batched QRs of this kind kept the threads of a small machine waiting for each other."""

    @jax.jit
    def draw(key):
        square = jax.vmap(lambda key: random_orthogonal(key, 16, 16))
        return [square(jax.random.split(jax.random.fold_in(key, number), 64)) for number in range(12)]

    for seed in range(5):
        assert all(np.isfinite(part).all() for part in draw(jax.random.key(seed)))
