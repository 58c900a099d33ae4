"""Kaleidoscope against the public PyTorch implementation, and its reset rules (SPEC 5 and 14.9)."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from prism_marl.networks import mlp_actor, recurrent_agent
from prism_marl.sharing import FuPSID, Kaleidoscope, network_regularizers
from prism_marl.sharing.base import Experience
from prism_marl.sharing.kaleidoscope import ThresholdLinear

DATA = Path(__file__).parents[1] / "data"
LAYERS = ("fc1", "fc2", "fc3", "fc4")
KEY = jax.random.key(0)
NOTHING = Experience(*(jnp.zeros((0, 0, 0)) for _ in range(3)), jnp.zeros(0), jnp.zeros((0, 0), bool))


def reference_agent(sharing, name):
    """An agent of ours with the weights of the reference, and the reference's inputs and outputs."""
    data = dict(np.load(DATA / name))
    width, inputs = data["fc1.weight"].shape
    actions = data["fc4.bias"].size
    agent = recurrent_agent(sharing, inputs=inputs, actions=actions, width=width, agents=5, roles=3, key=KEY)
    for layer in LAYERS:
        for part in ("weight", "bias"):
            agent = eqx.tree_at(
                lambda a, layer=layer, part=part: getattr(getattr(a, layer), part),
                agent,
                jnp.asarray(data[f"{layer}.{part}"]),
            )
        if f"{layer}.sparse_thresholds" in data:
            agent = eqx.tree_at(
                lambda a, layer=layer: getattr(a, layer).threshold,
                agent,
                jnp.asarray(data[f"{layer}.sparse_thresholds"]),
            )
    agent = eqx.tree_at(
        lambda a: (a.gru.input.weight, a.gru.input.bias, a.gru.hidden.weight, a.gru.hidden.bias),
        agent,
        tuple(jnp.asarray(data[f"rnn.{part}"]) for part in ("weight_ih", "bias_ih", "weight_hh", "bias_hh")),
    )
    return agent, data


@pytest.fixture(scope="module")
def kaleidoscope():
    return reference_agent(Kaleidoscope(masks="role"), "kaleidoscope_reference.npz")


def time_first(array):
    return jnp.moveaxis(jnp.asarray(array), 1, 0)


def test_recurrent_agent_equals_reference():
    agent, data = reference_agent(FuPSID(), "recurrent_reference.npz")
    x = time_first(data["x"])
    role = jnp.zeros(x.shape[:-1], jnp.int32)
    assert_allclose(agent.unroll(x, role), time_first(data["q"]), rtol=1e-4, atol=2e-6)
    h = agent.initial(*x.shape[1:-1])
    for now in x:
        h, _ = agent(h, now, role[0])
    assert_allclose(h, data["h"], rtol=1e-4, atol=2e-6)


def test_outputs_equal_reference(kaleidoscope):
    agent, data = kaleidoscope
    q = agent.unroll(time_first(data["x"]), time_first(data["role"]))
    assert_allclose(q, time_first(data["q"]), rtol=1e-4, atol=2e-6)


def test_task_gradient_equals_reference(kaleidoscope):
    agent, data = kaleidoscope

    def loss(fc2):
        changed = eqx.tree_at(lambda a: a.fc2, agent, fc2)
        return jnp.sum(changed.unroll(time_first(data["x"]), time_first(data["role"])) ** 2)

    gradient = jax.grad(loss)(agent.fc2)
    assert_allclose(gradient.weight, data["q2_grad_fc2_weight"], rtol=1e-4, atol=1e-5)
    assert_allclose(gradient.threshold, data["q2_grad_fc2_threshold"], rtol=1e-4, atol=1e-5)


def test_diversity_and_its_gradient_equal_reference(kaleidoscope):
    agent, data = kaleidoscope
    value, gradient = jax.value_and_grad(lambda agent: 1e4 * network_regularizers(agent)["diversity"])(agent)
    assert_allclose(value / 1e4, data["div_loss"], rtol=1e-5)
    for number, name in enumerate(LAYERS, start=1):
        layer = getattr(gradient, name)
        assert_allclose(layer.threshold, data[f"div_grad_1e4_layer{number}"], rtol=1e-4, atol=1e-7)
        assert not np.any(layer.weight) and not np.any(layer.bias)


def test_sparsity_equals_reference(kaleidoscope):
    agent, data = kaleidoscope
    on = [getattr(agent, name).on() for name in LAYERS]
    off = sum(float(jnp.sum(1 - part)) for part in on)
    assert_allclose(off / sum(part.size for part in on), data["sparsity"], rtol=1e-5)


def test_estimator_is_tanh_then_sigmoid_slope():
    weight = jnp.asarray([[0.5, -0.2]])
    threshold = jnp.asarray([[[-2.0, -2.0]], [[-2.0, 0.0]]])  # the second identity masks the second weight
    layer = ThresholdLinear(weight=weight, bias=jnp.zeros(1), threshold=threshold, identities=2)
    scale = 3.0
    gradient = jax.grad(lambda layer: scale * layer.diversity()[0])(layer)
    assert_allclose(layer.diversity()[0], 2 * 0.2)  # two ordered pairs
    slope = jax.nn.sigmoid(threshold) * jax.nn.sigmoid(-threshold)
    reach = np.tanh(scale * 2 * 0.2)  # both ordered pairs pull at a mask that differs from one other
    assert_allclose(gradient.threshold, -slope * jnp.asarray([[[0, reach]], [[0, -reach]]]), rtol=1e-6, atol=1e-12)
    assert_array_equal(gradient.weight, 0)


def half_masked(network):
    """Thresholds so high that about a third of all weights is masked out for everybody, the rest as drawn."""

    def change(layer):
        if not isinstance(layer, ThresholdLinear):
            return layer
        noise = np.random.default_rng(layer.weight.size).uniform(size=layer.weight.shape)
        threshold = jnp.where(noise < 1 / 3, 10.0, layer.threshold)
        alone = jnp.where((noise > 2 / 3) & (jnp.arange(layer.identities) == 0)[:, None, None], 10.0, threshold)
        return eqx.tree_at(lambda layer: layer.threshold, layer, alone)

    return jax.tree.map(change, network, is_leaf=lambda node: isinstance(node, ThresholdLinear))


@pytest.mark.parametrize("build", [recurrent_agent, mlp_actor])
def test_resets_touch_only_what_nobody_uses(build):
    sharing = Kaleidoscope(reset_ratio=0.5)
    network = half_masked(build(sharing, inputs=20, actions=12, width=30, agents=3, roles=3, key=KEY))
    after = jax.jit(sharing.refresh)(network, NOTHING, jax.random.key(1))
    layers = [name for name in LAYERS if hasattr(network, name)]
    for name in layers:
        old, new = getattr(network, name), getattr(after, name)
        assert_array_equal(old.bias, new.bias)
        changed = np.asarray(old.weight != new.weight)
        unused = np.asarray(jnp.all(old.on() == 0, axis=0))
        if name == "fc1" and build is recurrent_agent:
            assert not changed.any()
            assert_array_equal(old.threshold, new.threshold)
            continue
        assert not np.any(changed & ~unused)
        assert 0.35 < changed.sum() / unused.sum() < 0.65  # reset_ratio, within sampling error
        assert_array_equal(changed, np.any(np.asarray(old.threshold != new.threshold), axis=0))
        fresh = np.asarray(new.threshold)[:, changed]
        assert np.all((fresh >= -10) & (fresh <= -5)) and np.std(fresh) > 1
        drawn = np.asarray(new.weight)[changed]
        bound = old.weight.shape[1] ** -0.5
        assert np.all(np.abs(drawn) <= bound) and np.abs(drawn).max() > 0.8 * bound
    if build is recurrent_agent:
        for old, new in zip(jax.tree.leaves(network.gru), jax.tree.leaves(after.gru), strict=True):
            assert_array_equal(old, new)


@pytest.mark.parametrize(("ratio", "everything"), [(0.0, False), (1.0, True)])
def test_reset_ratio_at_its_ends(ratio, everything):
    sharing = Kaleidoscope(reset_ratio=ratio)
    network = half_masked(mlp_actor(sharing, inputs=6, actions=4, width=10, agents=2, roles=2, key=KEY))
    after = sharing.refresh(network, NOTHING, jax.random.key(1))
    unused = jnp.all(network.fc2.on() == 0, axis=0)
    assert_array_equal(network.fc2.weight != after.fc2.weight, unused & everything)


def test_interval_is_the_setting():
    assert Kaleidoscope(reset_interval=123).refresh_interval() == 123
    assert Kaleidoscope().refresh_interval() == 1_000_000
