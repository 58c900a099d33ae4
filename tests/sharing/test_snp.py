"""SNP: where the masks are, that the masked state is what the next step sees, and that they come back from a file."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from prism_marl.networks import mlp_actor, recurrent_agent
from prism_marl.runs import checkpoint
from prism_marl.sharing import SNP
from prism_marl.sharing.fups import SharedLinear
from prism_marl.sharing.pruned import NodeMaskedLinear

KEY = jax.random.key(0)
SIZES = {"inputs": 6, "actions": 40, "width": 50, "agents": 4, "roles": 1}


@pytest.fixture(scope="module")
def agent():
    return jax.jit(lambda key: recurrent_agent(SNP(ratio=0.3), **SIZES, key=key))(KEY)


def test_masks_are_on_the_state_and_on_two_hidden_layers(agent):
    for layer in (agent.fc1, agent.gru.input, agent.gru.hidden, agent.fc4):
        assert isinstance(layer, SharedLinear)
    masks = np.stack([agent.gru.gate.mask, agent.fc2.mask, agent.fc3.mask])
    assert masks.dtype == bool and masks.shape == (3, 4, 50)
    rows = masks.reshape(12, 50)
    assert len({row.tobytes() for row in rows}) == 12  # no agent and no layer repeats another's
    assert abs(np.mean(~rows) - 0.3) < 0.08  # deviation 0.019
    assert len(set(np.sum(~rows, axis=1).tolist())) > 3  # independent draws: the count is random
    assert not SNP.agent_id


def test_exact_counts():
    agent = recurrent_agent(SNP(ratio=0.3, exact=True), **SIZES, key=KEY)
    for mask in (agent.gru.gate.mask, agent.fc2.mask, agent.fc3.mask):
        assert_array_equal(np.sum(~mask, axis=1), 15)
        assert len({row.tobytes() for row in np.asarray(mask)}) == 4


def by_hand(agent, x):
    """In numpy, agent by agent: h = m0 * GRU(x, h), then two masked layers, then a whole one."""

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    def relu(v):
        return np.maximum(v, 0)

    def linear(layer, v):
        return np.asarray(layer.weight, np.float64) @ v + np.asarray(layer.bias, np.float64)

    values = np.zeros((*x.shape[:2], SIZES["actions"]))
    for place in range(x.shape[1]):
        m0, m1, m2 = (np.asarray(part.mask[place]) for part in (agent.gru.gate, agent.fc2, agent.fc3))
        h = np.zeros(SIZES["width"])
        for t in range(x.shape[0]):
            i = np.split(linear(agent.gru.input, relu(linear(agent.fc1, x[t, place]))), 3)
            g = np.split(linear(agent.gru.hidden, h), 3)
            z = sigmoid(i[1] + g[1])
            h = m0 * ((1 - z) * np.tanh(i[2] + sigmoid(i[0] + g[0]) * g[2]) + z * h)
            y = relu(m2 * linear(agent.fc3.shared, relu(m1 * linear(agent.fc2.shared, h))))
            values[t, place] = linear(agent.fc4, y)
    return values, h


def test_the_masked_state_is_carried(agent):
    x = np.random.default_rng(0).normal(size=(5, 4, 6)).astype(np.float32)
    expected, last = by_hand(agent, x)
    role = jnp.zeros((5, 4), jnp.int32)
    assert_allclose(jax.jit(lambda x: agent.unroll(x, role))(x), expected, atol=1e-5)
    h, values = jax.jit(lambda x: jax.lax.scan(lambda h, x: agent(h, x, role[0]), agent.initial(4), x))(x)
    assert_allclose(values, expected, atol=1e-5)
    assert_array_equal(np.asarray(h) == 0, ~np.asarray(agent.gru.gate.mask))
    assert_allclose(h[-1], last, atol=1e-5)


@pytest.mark.parametrize("literal", [False, True])
def test_action_nodes_are_masked_only_to_the_letter(literal):
    actor = jax.jit(lambda key: mlp_actor(SNP(ratio=0.3, prune_output=literal), **SIZES, key=key))(KEY)
    layers = (actor.fc1, actor.fc2, actor.fc3)
    assert all(isinstance(layer, NodeMaskedLinear) for layer in layers)
    assert not np.all(actor.fc1.mask) and not np.all(actor.fc2.mask)
    assert actor.fc3.mask.shape == (4, 40)  # counted either way
    action = actor(jnp.ones((4, 6)), jnp.zeros(4, jnp.int32))
    still = np.asarray(action) == 0
    assert_array_equal(still, ~np.asarray(actor.fc3.mask))
    assert 0.1 < still.mean() < 0.5 if literal else not still.any()


def test_masks_survive_save_and_load(agent, tmp_path):
    writer = checkpoint.Writer(tmp_path)
    writer.save(1, checkpoint.flatten(agent), {})
    writer.close()
    like = jax.eval_shape(lambda: recurrent_agent(SNP(ratio=0.3), **SIZES, key=jax.random.key(9)))
    found = checkpoint.load_newest(tmp_path, like)
    assert found is not None
    assert eqx.tree_equal(found[0], agent, typematch=True)
    assert found[0].gru.gate.mask.dtype == bool
