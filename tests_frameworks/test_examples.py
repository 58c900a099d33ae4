"""The examples with other frameworks learn, as programs of their own and without a warning."""

import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx, serialization
from flax.nnx import bridge
from numpy.testing import assert_allclose

from prism_marl.sharing import METHODS, Prism, network_regularisers, role_layers

EXAMPLES = Path(__file__).parents[1] / "examples"
SINGLE = {**os.environ, "JAX_ENABLE_X64": "0"}  # as users have it


@pytest.mark.parametrize("name", ["torch_network", "flax_network", "haiku_network"])
def test_a_team_learns_to_answer_apart(name):
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=SINGLE, check=False)
    assert done.returncode == 0, done.stderr
    before, after, shared = map(float, re.findall(r"\d\.\d+", done.stdout))
    assert before <= 0.5 < 0.9 < after and shared == 0.25
    assert ("■" in done.stdout and "□" in done.stdout) == (name == "torch_network")  # masks have parted


@pytest.fixture(scope="module")
def examples():
    """The examples as modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        import flax_network
        import haiku_network

        yield flax_network, haiku_network


def test_flax_and_haiku_compute_what_the_layers_mean(examples):
    """The same parameters in both, and by hand; every layer counts in the regularisers, once."""
    flax_network, haiku_network = examples
    hk, sharing, x = haiku_network.hk, Prism(frob_decay=0.1), flax_network.observe(jnp.arange(4))
    network = flax_network.QNetwork(sharing)
    params = network.init(jax.random.key(0), x)["params"]
    values, made = network.apply({"params": params}, x, mutable=["layers"])
    layers = list(role_layers(made["layers"]).values())
    assert len(layers) == 2
    terms = network_regularisers(layers)
    assert_allclose(terms["frobenius"], sum(layer.regularisers()["frobenius"] for layer in layers))
    hidden = jax.nn.relu(x @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"])
    hidden = jax.nn.relu(jnp.einsum("aoi,bai->bao", layers[0].dense(), hidden) + layers[0].bias)
    assert_allclose(values, jnp.einsum("aoi,bai->bao", layers[1].dense(), hidden) + layers[1].bias, rtol=1e-5)

    other = hk.without_apply_rng(hk.transform(lambda x: haiku_network.forward(x, sharing)))
    given = other.init(jax.random.key(1), x)
    assert {name: jax.tree.map(jnp.shape, part) for name, part in given.items() if name != "linear"} == {
        "prism_linear": jax.tree.map(jnp.shape, params["PrismLinear_0"]),
        "prism_linear_1": jax.tree.map(jnp.shape, params["PrismLinear_1"]),
    }
    given = {
        "linear": {"w": params["Dense_0"]["kernel"], "b": params["Dense_0"]["bias"]},
        "prism_linear": params["PrismLinear_0"],
        "prism_linear_1": params["PrismLinear_1"],
    }
    again, found = other.apply(given, x)
    assert_allclose(again, values, rtol=1e-6)
    for name, value in terms.items():
        assert_allclose(found[name], value, rtol=1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_methods_without_fixed_masks_train_in_flax_and_haiku(examples, name):
    """Traced, never compiled. docs/frameworks.md names those with fixed masks."""
    flax_network, haiku_network = examples
    hk, sharing, x = haiku_network.hk, METHODS[name](), flax_network.observe(jnp.arange(4))
    flax, haiku = flax_network.QNetwork(sharing), hk.transform(lambda x: haiku_network.forward(x, sharing))

    def of_flax(params):
        values, made = flax.apply({"params": params}, x, mutable=["layers"])
        return jnp.sum(values**2) + sum(network_regularisers(made.get("layers", {})).values())

    def of_haiku(params):
        values, terms = haiku.apply(params, None, x)
        return jnp.sum(values**2) + sum(terms.values())

    for start, loss in (
        (lambda: flax.init(jax.random.key(0), x)["params"], of_flax),
        (lambda: haiku.init(jax.random.key(0), x), of_haiku),
    ):
        params = jax.eval_shape(start)
        if all(jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in jax.tree.leaves(params)):
            assert jax.tree.structure(jax.eval_shape(jax.grad(loss), params)) == jax.tree.structure(params)
        else:
            assert name in ("snp", "adaps", "random_spectrum")
            with pytest.raises(TypeError, match="grad requires real"):
                jax.eval_shape(jax.grad(loss), params)


def test_parameters_in_flax_can_be_saved_and_wrapped_for_nnx(examples):
    flax_network, _ = examples
    network, x = flax_network.QNetwork(Prism()), flax_network.observe(jnp.arange(4))
    params = network.init(jax.random.key(0), x)["params"]
    zeros = jax.tree.map(jnp.zeros_like, params)
    again = serialization.from_bytes(zeros, serialization.to_bytes(params))
    assert all(np.array_equal(*pair) for pair in zip(*map(jax.tree.leaves, (params, again)), strict=True))

    wrapped = bridge.lazy_init(bridge.ToNNX(network, rngs=nnx.Rngs(0)), x)
    optimiser = nnx.Optimizer(wrapped, optax.adam(1e-2), wrt=nnx.Param)

    @nnx.jit
    def step(network, optimiser):
        value, gradient = nnx.value_and_grad(lambda network: jnp.mean((network(x) - 1) ** 2))(network)
        optimiser.update(network, gradient)
        return value

    losses = [float(step(wrapped, optimiser)) for _ in range(20)]
    assert losses[-1] < losses[0] / 2
