"""The fused kernels of the GRU, run by Pallas' interpreter, against the scan: states and all gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl.networks import gru, gru_fused, gru_kernel
from prism_marl.sharing.base import RoleGate
from prism_marl.sharing.fups import shared_linear
from prism_marl.sharing.nops import independent_linear

STEPS, ROWS, AGENTS, WIDTH = 4, 6, 3, 16  # 18 rows of the same matrix: one program is full, another has two rows
KERNELS = gru_kernel.Kernels(16, 4, jax.lax.Precision.HIGHEST, interpret=True)


def networks(kind, key):
    """The recurrences of an online and a target network."""
    make = shared_linear if kind != "apart" else independent_linear
    masks = jnp.arange(WIDTH) % 2 == jnp.arange(AGENTS)[:, None] % 2
    gate = RoleGate(masks) if kind == "masked" else None
    layers = [make(WIDTH, 3 * WIDTH, identities=AGENTS, key=key) for key in jax.random.split(key)]
    return [gru.RoleGRU(layer, layer, gate) for layer in layers]


def by_kernels(online, inputs, start, identity, fresh, other):
    nets = [gru_fused.Net(net.hidden, net.gate) for net in (online, other[0])]
    return gru_fused.unroll(KERNELS, nets[0], inputs, start, identity, fresh, (nets[1], other[1]))


def results(run, kind, *, identity, begins, seeds):
    """States of both networks, and gradients of a sum of all of them, for each seed."""

    def one(key):
        keys = jax.random.split(key, 6)
        online, target = networks(kind, keys[0])
        inputs, others = jax.random.normal(keys[1], (2, STEPS, ROWS, AGENTS, 3 * WIDTH))
        start, weight = jax.random.normal(keys[2], (ROWS, AGENTS, WIDTH)), jax.random.normal(keys[3], (STEPS, 1, 1, 1))
        fresh = jax.random.bernoulli(keys[4], 0.3, (STEPS, ROWS)) if begins else None
        trained, fixed = eqx.partition(online.hidden, eqx.is_inexact_array)

        def loss(trained, inputs, start):
            net = eqx.tree_at(lambda net: net.hidden, online, eqx.combine(trained, fixed))
            states, companion = run(net, inputs, start, identity, fresh, (target, others))
            return jnp.sum(weight * states**2), (states, companion)

        return jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(trained, inputs, start)

    keys = jax.random.split(jax.random.key(1), seeds)
    return jax.jit(jax.vmap(one) if seeds > 1 else lambda keys: one(keys[0]))(keys)


@pytest.mark.parametrize(
    ("kind", "identity", "begins", "seeds"),
    [
        ("shared", None, True, 2),  # one matrix for all rows
        ("apart", None, True, 2),  # one for each agent
        ("apart", jnp.asarray([1, 0, 1]), False, 1),  # one for each cluster
        ("masked", jnp.asarray([1, 0, 1]), True, 1),  # one matrix, and nodes that are off
    ],
)
def test_kernels_equal_the_scan(kind, identity, begins, seeds):
    how = {"identity": identity, "begins": begins, "seeds": seeds}
    found, expected = (results(run, kind, **how) for run in (by_kernels, gru.by_scan))
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.max(np.abs(theirs)) > 0.01
        assert np.allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_the_scan_goes_on_where_kernels_do_not_fit(monkeypatch):
    """Decided before anything is compiled, by the device, the shapes, and a small example."""
    shape = jax.ShapeDtypeStruct((STEPS, ROWS, AGENTS, 3 * WIDTH), jnp.float32)
    net, _ = networks("apart", jax.random.key(0))
    apart = gru_fused.Net(net.hidden, net.gate)

    def chosen(shape=shape, identity=None, networks=2):
        return gru_fused.kernels_for(apart, shape, identity, networks)

    assert chosen() is None  # a CPU
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    gru_fused._works.cache_clear()
    assert chosen() is None  # a GPU that cannot compile them, as this CPU
    monkeypatch.setattr(gru_fused, "_works", lambda *of: True)
    assert chosen() is not None
    assert chosen(identity=jnp.zeros((STEPS, ROWS, AGENTS), jnp.int32)) is None  # a matrix for each sample
    assert chosen(jax.ShapeDtypeStruct((STEPS, ROWS, AGENTS, 3 * 24), jnp.float32)) is None  # no power of two
    assert chosen(jax.ShapeDtypeStruct((STEPS, 10**6, AGENTS, 3 * WIDTH), jnp.float32)) is None  # too many to count
    with jax.default_device(jax.devices("cpu")[0]):  # what is computed on a CPU beside a GPU
        assert chosen() is None
    monkeypatch.setattr(jax, "local_device_count", lambda: 2)
    assert chosen() is None


def test_the_example_tells_right_kernels_from_wrong_ones(monkeypatch):
    assert jax.jit(lambda x: x * gru_fused._works(KERNELS, WIDTH))(1) == 1  # it runs while a program is traced
    right, back = gru_kernel.forward, gru_kernel.backward

    def wrong(inputs, cell, kernels, *, save):
        return right(inputs, cell._replace(keep=jnp.zeros_like(cell.keep)), kernels, save=save)

    def off(gradients, cell, saved, kernels):
        return back(gradients, cell, saved._replace(update=saved.reset), kernels)

    with monkeypatch.context() as patched:
        patched.setattr(gru_kernel, "backward", off)
        assert not gru_fused._example_is_right(KERNELS, WIDTH)
    monkeypatch.setattr(gru_kernel, "forward", wrong)
    assert not gru_fused._example_is_right(KERNELS, WIDTH)
