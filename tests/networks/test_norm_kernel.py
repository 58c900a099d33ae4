"""The kernels of the critics' LayerNorms, run by Pallas' interpreter, against plain differentiation."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl.networks import critic_fused, kernels, norm_kernel
from prism_marl.networks.critic import critics
from prism_marl.networks.norm_kernel import Blocks, Normed
from prism_marl.sharing.kaleidoscope import Kaleidoscope
from prism_marl.sharing.nops import NoPS

BLOCKS = Blocks(rows=4, times=2, warps=1, interpret=True)  # nine rows: a whole program, and one with a single row
MEMBERS, ROWS, WIDTH, INPUTS, ACTIONS = 2, 9, 16, 5, 2


def team(sharing):
    """Critics whose LayerNorms and biases differ from those that they begin with."""
    made = critics(sharing, members=MEMBERS, inputs=INPUTS, width=WIDTH, norms=True, key=jax.random.key(0))
    leaves, structure = jax.tree.flatten(made)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    moved = [
        leaf + 0.3 * jax.random.normal(key, leaf.shape) if eqx.is_inexact_array(leaf) else leaf
        for key, leaf in zip(keys, leaves, strict=True)
    ]
    return structure.unflatten(moved)


def learned(members, x, change):
    """The cost of critics with its gradient, and that of actors with theirs, as MATD3 computes them."""
    trained, fixed = eqx.partition(members, eqx.is_inexact_array)

    def of_critics(trained, x):
        return jnp.sum(jnp.sin(eqx.combine(trained, fixed)(x)))

    def of_actors(change):
        weight = members.fc1.dense()[:, :, -ACTIONS:]
        return jnp.sum(jnp.sin(members.changed(members.first(x), change, weight)))

    return jax.value_and_grad(of_critics, argnums=(0, 1))(trained, x), jax.value_and_grad(of_actors)(change)


def kernels_in(function, *given) -> set[str]:
    return set(re.findall(r"\bname=(\w+)", str(jax.make_jaxpr(function)(*given))))


@pytest.mark.parametrize("sharing", [NoPS(), Kaleidoscope()])
def test_kernels_equal_plain_differentiation(sharing, monkeypatch):
    """Two seeds at once, as the trainer runs them; LayerNorms of each critic (NoPS), and one for all."""
    members = team(sharing)
    x = jax.random.normal(jax.random.key(2), (2, ROWS, INPUTS))
    change = jax.random.normal(jax.random.key(3), (2, ROWS, ACTIONS))
    both = jax.vmap(lambda x, change: learned(members, x, change))
    expected = jax.jit(both)(x, change)
    monkeypatch.setattr(critic_fused, "blocks_for", lambda width: BLOCKS)
    by_kernels = jax.jit(lambda x, change: both(x, change))  # another function, so that it is traced anew
    assert {"hidden_gradient", "value_gradient", "value_slope", "action_slope"} <= kernels_in(by_kernels, x, change)
    found = by_kernels(x, change)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.max(np.abs(theirs)) > 1e-3
        assert np.allclose(ours, theirs, rtol=1e-4, atol=1e-4 * np.max(np.abs(theirs)))


def test_plain_differentiation_goes_on_where_kernels_do_not_fit(monkeypatch):
    """Decided before anything is compiled, by the device, the width, and a small example."""
    assert critic_fused.blocks_for(256) is None  # a CPU
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    critic_fused._works.cache_clear()
    assert critic_fused.blocks_for(256) is None  # a GPU that cannot compile them, as this CPU
    monkeypatch.setattr(critic_fused, "_works", lambda *of: True)
    assert critic_fused.blocks_for(256) is not None
    assert critic_fused.blocks_for(100) is None  # no power of two
    assert critic_fused.blocks_for(2048) is None  # more than a program holds
    monkeypatch.setattr(jax, "local_device_count", lambda: 2)
    assert critic_fused.blocks_for(256) is None


def test_the_example_tells_right_kernels_from_wrong_ones(monkeypatch):
    assert kernels.is_right(critic_fused._example_is_right, BLOCKS, WIDTH)
    back = norm_kernel._Norm.back

    def without_mean(self, gradient):
        to_input, before_relu = back(self, gradient)
        return to_input + 0.1, before_relu

    monkeypatch.setattr(norm_kernel._Norm, "back", without_mean)
    assert not kernels.is_right(critic_fused._example_is_right, BLOCKS, WIDTH)


def test_by_hand():
    """Rows of two numbers a and -a are plus and minus one once they are normalised, whatever a: no gradient is left."""
    product = jnp.asarray([[[3.0, -3.0] * 8, [1.0, -1.0] * 8]])
    normed = Normed(jnp.zeros((1, 16)), jnp.ones((1, 16)), jnp.zeros((1, 16)))
    weight = jnp.asarray([[1.0, 0.0] * 8])
    values, slope = norm_kernel.value_slope(BLOCKS, product, normed, weight)
    assert np.allclose(values, 8.0, atol=1e-3) and np.allclose(slope, 0.0, atol=1e-4)
    to_product, sums, to_weight = norm_kernel.value_gradient(BLOCKS, product, normed, weight, jnp.ones((1, 2)))
    assert np.allclose(to_product, 0.0, atol=1e-4)
    assert np.allclose(sums.scale, [[2.0, 0.0] * 8], atol=1e-3)  # of two rows
    assert np.allclose(sums.shift, [[2.0, 0.0] * 8], atol=1e-3)
    assert np.allclose(to_weight, [[2.0, 0.0] * 8], atol=1e-3)
