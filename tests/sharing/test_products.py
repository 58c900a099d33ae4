"""Forms that only an accelerator uses, computed here by a CPU that is told to be one: they must mean the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from prism_marl.networks.critic import shifted
from prism_marl.sharing import METHODS, products, spectral
from prism_marl.sharing.base import apply_per_identity, select_rows
from prism_marl.sharing.products import aligned, in_batches, times
from prism_marl.sharing.spectral import off_orthonormal


@pytest.fixture
def accelerator(monkeypatch):
    """Programs are traced as for a GPU that may round."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with jax.default_matmul_precision("tensorfloat32"):
        yield


def normal(*shape: int, seed: int = 0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def both(function, *arguments):
    """Values, and gradients of something that is not linear in them."""
    total = lambda *arguments: jnp.sum(jnp.sin(function(*arguments)))  # noqa: E731
    return function(*arguments), jax.grad(total, argnums=tuple(range(len(arguments))))(*arguments)


def same(ours, theirs) -> None:
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert one.shape == other.shape
        assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("outputs", [1, 2, 4, 5, 16])
@pytest.mark.parametrize("inputs", [3, 8, 19, 24])
def test_products_mean_the_same_in_every_form(accelerator, inputs, outputs):
    x, weight = normal(7, 3, inputs), normal(3, outputs, inputs, seed=1)
    same(both(times, x, weight[0]), both(lambda x, w: jnp.einsum("bai,oi->bao", x, w), x, weight[0]))
    plain = lambda x, w: jnp.einsum("bai,aoi->bao", x, w)  # noqa: E731
    same(both(lambda x, w: apply_per_identity(x, w, None), x, weight), both(plain, x, weight))
    chosen = jnp.array([2, 0, 0])
    picked = both(lambda x, w: apply_per_identity(x, w, chosen), x, weight)
    same(picked, both(lambda x, w: plain(x, w[chosen]), x, weight))
    by_sample = jnp.asarray(np.random.default_rng(2).integers(0, 3, (7, 3)))
    picked = both(lambda x, w: apply_per_identity(x, w, by_sample), x, weight)
    same(picked, both(lambda x, w: jnp.einsum("bai,baoi->bao", x, w[by_sample]), x, weight))
    batches = jnp.swapaxes(x, 0, 1)
    same(both(in_batches, batches, weight), both(lambda x, w: jnp.einsum("cbi,coi->cbo", x, w), batches, weight))


def test_rows_are_made_longer_only_for_matrix_units(accelerator):
    x, weight = normal(7, 19), normal(6, 19)
    longer = aligned(x, weight)
    assert [array.shape for array in longer] == [(7, 24), (6, 24)]
    assert_array_equal(longer[0], np.pad(x, ((0, 0), (0, 5))))
    for fits in (normal(7, 24), normal(7, 5)):
        assert aligned(fits, fits)[0] is fits
    with jax.default_matmul_precision("highest"):
        assert not products.on_matrix_units()
        assert aligned(x, weight)[0] is x


def test_a_cpu_keeps_to_plain_products():
    with jax.default_matmul_precision("tensorfloat32"):
        assert not products.on_matrix_units()
    assert not products.few_outputs(normal(1, 5))
    assert "optimization_barrier" not in str(jax.make_jaxpr(in_batches)(normal(2, 7, 5), normal(2, 6, 5)))


LIKE_OTHERS = ("cash", "dico", "gradps", "hetdps")  # their products are those of HyperMARL, FuPS and NoPS


@pytest.mark.parametrize("outputs", [2, 6])
@pytest.mark.parametrize("name", [name for name in METHODS if name not in LIKE_OTHERS])
def test_every_method_means_the_same_on_an_accelerator(accelerator, name, outputs):
    """Odd inputs, and few outputs or more, where the forms differ."""
    layer = METHODS[name]().linear(19, outputs, identities=3, key=jax.random.key(7), kind="hidden", depth=1)
    x = normal(40, 3, 19)
    expected = jnp.einsum("moi,bmi->bmo", layer.dense(), x) + layer.dense_bias()
    assert_allclose(layer(x), expected, rtol=1e-4, atol=1e-5)
    identity = jnp.asarray(np.random.default_rng(3).integers(0, 3, (40, 3)))
    expected = jnp.einsum("baoi,bai->bao", layer.dense()[identity], x) + layer.dense_bias()[identity]
    assert_allclose(layer(x, identity), expected, rtol=1e-4, atol=1e-5)


def test_rows_are_chosen_as_a_product_reads_them(accelerator):
    table, identity = normal(3, 5), jnp.asarray(np.random.default_rng(4).integers(0, 3, (7, 2)))
    same(both(lambda table: select_rows(table, identity), table), both(lambda table: table[identity], table))
    assert "dot_general" not in str(jax.make_jaxpr(lambda table: select_rows(table, identity))(table))


def test_exchanged_actions_move_the_first_layer():
    parts = normal(2, 5, 6), normal(5, 3, seed=1), normal(2, 6, 3, seed=2)
    plain = lambda hidden, change, weight: hidden + jnp.einsum("bu,chu->cbh", change, weight)  # noqa: E731
    same(both(shifted, *parts), both(plain, *parts))


def slow_residual(factor):
    gram = jnp.swapaxes(factor, -1, -2) @ factor
    return jnp.sum((gram - jnp.eye(factor.shape[-1])) ** 2)


def test_orthogonality_has_the_gradient_of_its_square():
    factor = normal(9, 4) / 3
    assert off_orthonormal(factor) == pytest.approx(float(slow_residual(factor)), rel=1e-5)
    assert_allclose(jax.grad(off_orthonormal)(factor), jax.grad(slow_residual)(factor), rtol=1e-5, atol=1e-6)
    by_hand = jnp.array([[2.0, 0.0], [0.0, 1.0]])  # gram diag(4, 1): value 9, gradient 4 * 2 * 3 in the corner
    assert float(off_orthonormal(by_hand)) == 9.0
    assert_array_equal(jax.grad(off_orthonormal)(by_hand), [[24.0, 0.0], [0.0, 0.0]])


@pytest.mark.parametrize("shape", [(19, 8), (8, 19), (8, 8)])
def test_both_factors_are_checked_together_with_the_same_result(monkeypatch, shape):
    layer = METHODS["prism"]().linear(*shape, identities=3, key=jax.random.key(1), kind="hidden", depth=0)
    layer = jax.tree.map(lambda leaf: 1.1 * leaf if leaf.dtype == jnp.float32 else leaf, layer)
    value = jax.value_and_grad(lambda layer: layer.orthogonality())
    apart = value(layer)
    monkeypatch.setitem(spectral.STACKED, "cpu", 512)
    same(value(layer), apart)
    assert apart[0] > 0.1
