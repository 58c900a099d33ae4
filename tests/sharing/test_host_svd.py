"""SVDs on the host: the same factors with callbacks inside one program as between two that a cache can keep."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl.sharing.host_svd import draw, svd


def fresh(key):
    """Two matrices of different shapes and a number that needs no SVD."""
    first, second, third = jax.random.split(key, 3)
    wide = svd(jax.random.normal(first, (3, 5)))
    return wide, svd(jax.random.normal(second, (4, 2))).s * 2, jax.random.normal(third)


def test_two_programs_draw_what_one_with_callbacks_draws():
    keys = jax.random.split(jax.random.key(1), 3)
    apart, inside = draw(fresh, keys), jax.jit(lambda keys: draw(fresh, keys))(keys)
    assert all(np.array_equal(*both) for both in zip(jax.tree.leaves(apart), jax.tree.leaves(inside), strict=True))
    U, s, V = apart[0]
    matrix = jax.vmap(lambda key: jax.random.normal(jax.random.split(key, 3)[0], (3, 5)))(keys)
    np.testing.assert_allclose(jnp.einsum("nor,nr,nir->noi", U, s, V), matrix, atol=1e-5)
    assert U.shape == (3, 3, 3) and V.shape == (3, 5, 3)


def test_neither_program_calls_back(monkeypatch):
    """Or no cache would keep it."""
    monkeypatch.setattr(jax, "pure_callback", lambda *_, **__: pytest.fail("a callback"))
    draw(fresh, jax.random.split(jax.random.key(1), 2))


def test_a_failure_on_the_way_leaves_nothing_behind():
    def broken(key):
        svd(jax.random.normal(key, (2, 2)))
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        draw(broken, jax.random.key(0)[None])
    assert svd(jnp.eye(2)).s.tolist() == [1, 1]
