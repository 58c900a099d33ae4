"""Kaleidoscope against the public PyTorch implementation, and its reset rules."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from prism_marl.networks import mlp_actor, recurrent_agent
from prism_marl.sharing import FuPSID, Kaleidoscope, network_regularisers
from prism_marl.sharing.base import Experience, map_layers
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
    agent = jax.eval_shape(  # shapes only: every number comes from the reference
        lambda: recurrent_agent(sharing, inputs=inputs, actions=actions, width=width, agents=5, roles=3, key=KEY)
    )
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

    @jax.jit
    def both_ways(agent, x):
        h, step_by_step = jax.lax.scan(lambda h, x: agent(h, x, role[0]), agent.initial(*x.shape[1:-1]), x)
        return agent.unroll(x, role), step_by_step, h

    unrolled, step_by_step, h = both_ways(agent, x)
    assert_allclose(unrolled, time_first(data["q"]), rtol=1e-4, atol=2e-6)
    assert_allclose(step_by_step, time_first(data["q"]), rtol=1e-4, atol=2e-6)
    assert_allclose(h, data["h"], rtol=1e-4, atol=2e-6)


def test_outputs_equal_reference(kaleidoscope):
    agent, data = kaleidoscope
    q = jax.jit(lambda x, role: agent.unroll(x, role))(time_first(data["x"]), time_first(data["role"]))
    assert_allclose(q, time_first(data["q"]), rtol=1e-4, atol=2e-6)


def test_task_gradient_equals_reference(kaleidoscope):
    agent, data = kaleidoscope

    def loss(fc2):
        changed = eqx.tree_at(lambda a: a.fc2, agent, fc2)
        return jnp.sum(changed.unroll(time_first(data["x"]), time_first(data["role"])) ** 2)

    gradient = jax.jit(jax.grad(loss))(agent.fc2)
    assert_allclose(gradient.weight, data["q2_grad_fc2_weight"], rtol=1e-4, atol=1e-5)
    assert_allclose(gradient.threshold, data["q2_grad_fc2_threshold"], rtol=1e-4, atol=1e-5)


def test_diversity_and_its_gradient_equal_reference(kaleidoscope):
    agent, data = kaleidoscope
    loss = jax.value_and_grad(lambda agent: 1e4 * network_regularisers(agent)["diversity"])
    value, gradient = jax.jit(loss)(agent)
    assert_allclose(value / 1e4, data["div_loss"], rtol=1e-5)
    for number, name in enumerate(LAYERS, start=1):
        layer = getattr(gradient, name)
        assert_allclose(layer.threshold, data[f"div_grad_1e4_layer{number}"], rtol=1e-4, atol=1e-7)
        assert not np.any(layer.weight) and not np.any(layer.bias)


def test_sparsity_equals_reference(kaleidoscope):
    """The reference divides what is off by all parameters, the unmasked GRU and biases included, once per mask."""
    agent, data = kaleidoscope
    masked = [getattr(agent, name) for name in LAYERS]
    off = sum(np.sum(np.asarray(layer.on()) == 0) for layer in masked)
    size = sum(leaf.size for leaf in jax.tree.leaves(agent)) - sum(layer.threshold.size for layer in masked)
    assert_allclose(off / (3 * size), data["sparsity"], rtol=1e-6)


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


def partly_masked(layer: ThresholdLinear) -> ThresholdLinear:
    """About a third of all weights is off for everybody, a third for the first identity only."""
    noise = np.random.default_rng(layer.weight.size).uniform(size=layer.weight.shape)
    first = (np.arange(layer.identities) == 0)[:, None, None]
    off = (noise < 1 / 3) | (first & (noise > 2 / 3))
    return eqx.tree_at(lambda layer: layer.threshold, layer, jnp.where(off, 10.0, layer.threshold))


@pytest.mark.parametrize("build", [recurrent_agent, mlp_actor])
def test_resets_touch_only_what_nobody_uses(build):
    sharing = Kaleidoscope(reset_ratio=0.5)

    @jax.jit
    def before(key):
        network = build(sharing, inputs=20, actions=12, width=20, agents=2, roles=2, key=key)
        return map_layers(lambda _, layer: partly_masked(layer), network, ThresholdLinear)

    network = before(KEY)
    after = jax.jit(sharing.refresh)(network, NOTHING, jax.random.key(1))
    for name in LAYERS if build is recurrent_agent else LAYERS[:3]:
        old, new = getattr(network, name), getattr(after, name)
        assert_array_equal(old.bias, new.bias)
        if name == "fc1" and build is recurrent_agent:
            assert_array_equal(old.weight, new.weight)
            assert_array_equal(old.threshold, new.threshold)
        else:
            check_reset(old, new, ratio=0.5)
    if build is recurrent_agent:
        for old, new in zip(jax.tree.leaves(network.gru), jax.tree.leaves(after.gru), strict=True):
            assert_array_equal(old, new)


def check_reset(old: ThresholdLinear, new: ThresholdLinear, *, ratio: float):
    weight, threshold = np.asarray(old.weight), np.asarray(old.threshold)
    changed = weight != np.asarray(new.weight)
    unused = np.all(np.abs(weight) <= 1 / (1 + np.exp(-threshold)), axis=0)
    assert not np.any(changed & ~unused)
    assert abs(changed.sum() / unused.sum() - ratio) < 0.2  # sampling error of about a hundred entries
    assert_array_equal(np.any(threshold != np.asarray(new.threshold), axis=0), changed)
    fresh = np.asarray(new.threshold)[:, changed]
    assert np.all((fresh >= -10) & (fresh <= -5))
    assert np.std(fresh) > 1
    drawn, bound = np.abs(np.asarray(new.weight)[changed]), weight.shape[1] ** -0.5
    assert 0.8 * bound < drawn.max() <= bound


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_reset_ratio_at_its_ends(ratio):
    noise = np.random.default_rng(0)
    layer = partly_masked(
        ThresholdLinear(
            weight=jnp.asarray(noise.uniform(0.1, 0.3, (6, 10)), jnp.float32),
            bias=jnp.zeros(6),
            threshold=jnp.full((2, 6, 10), -7.0),
            identities=2,
        )
    )
    after = Kaleidoscope(reset_ratio=ratio).refresh(layer, NOTHING, KEY)
    unused = jnp.all(layer.on() == 0, axis=0)
    assert 0 < unused.sum() < unused.size
    assert_array_equal(layer.weight != after.weight, unused & (ratio == 1))


def test_interval_is_the_setting():
    assert Kaleidoscope(reset_interval=123).refresh_interval() == 123
    assert Kaleidoscope().refresh_interval() == 1_000_000
