"""Generated weights (HyperMARL) and low-rank corrections (LoRASA)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from prism_marl.networks import recurrent_agent
from prism_marl.sharing import FuPSID, HyperMARL, LoRASA
from prism_marl.sharing.fups import SharedLinear
from prism_marl.sharing.hypermarl import HyperLinear, OffsetLinear
from prism_marl.sharing.lorasa import LowRankLinear

KEY = jax.random.key(0)
SIZES = {"inputs": 6, "actions": 4, "width": 8, "agents": 3, "roles": 3}


def layer(sharing, kind="hidden"):
    return sharing.linear(6, 4, identities=3, key=KEY, kind=kind, depth=1)


def test_hypernetwork_by_hand():
    generated = layer(HyperMARL(hidden=5))
    hypernet, e = generated.weights, generated.embedding
    features = np.maximum(np.asarray(hypernet.hidden @ e.T), 0)  # hidden biases start at 0
    expected = np.einsum("hm,hoi->moi", features, hypernet.head)
    assert_allclose(generated.dense(), expected, rtol=1e-5, atol=1e-6)
    assert_array_equal(generated.dense_bias(), 0)
    assert e.shape == (3, 4)
    assert_allclose(e @ e.T, 2 * np.eye(3), atol=1e-5)  # orthogonal rows, gain sqrt(2)


@pytest.mark.parametrize(("kind", "gain"), [("hidden", 2**0.5), ("values", 1.0), ("actions", 0.01)])
@pytest.mark.parametrize("variant", ["mlp", "linear"])
def test_generated_matrices_start_orthogonal(variant, kind, gain):
    generated = layer(HyperMARL(variant=variant, hidden=5), kind)
    parts = generated.weights.head if variant == "mlp" else generated.dense()
    for part in parts:
        assert_allclose(part @ part.T, gain**2 * np.eye(4), atol=1e-5)


def test_linear_variant_is_a_bank_plus_an_offset():
    generated = layer(HyperMARL(variant="linear"))
    assert isinstance(generated, OffsetLinear)
    moved = eqx.tree_at(lambda g: g.offset.weight, generated, generated.offset.weight + 1)
    assert_allclose(moved.dense() - generated.dense(), np.ones((3, 4, 6)), atol=1e-6)


def test_recurrent_core_and_the_layer_before_it_are_shared():
    agent = jax.eval_shape(lambda: recurrent_agent(HyperMARL(), **SIZES, key=KEY))
    assert isinstance(agent.fc1, SharedLinear) and isinstance(agent.gru.hidden, SharedLinear)
    assert all(isinstance(part, HyperLinear) for part in (agent.fc2, agent.fc3, agent.fc4))
    assert not HyperMARL.agent_id


def test_lorasa_starts_as_plain_sharing():
    adapted = layer(LoRASA())
    assert_array_equal(adapted.dense(), np.broadcast_to(adapted.shared.weight, (3, 4, 6)))
    assert adapted.up.shape == (3, 4, 4) and adapted.down.shape == (3, 4, 6)
    assert np.abs(adapted.up).max() <= 0.5  # 1 / sqrt(rank)
    assert FuPSID.agent_id == LoRASA.agent_id


def test_lorasa_by_hand():
    adapted = LowRankLinear(
        shared=SharedLinear(weight=jnp.zeros((2, 2)), bias=jnp.zeros(2), identities=1),
        scale=0.5,
        down=jnp.asarray([[[1.0, 2.0]]]),
        up=jnp.asarray([[[3.0], [4.0]]]),
        shift=jnp.asarray([[1.0, -1.0]]),
        identities=1,
    )
    assert_allclose(adapted.dense()[0], 0.5 * np.outer([3, 4], [1, 2]))
    assert_allclose(adapted(jnp.asarray([[1.0, 1.0]])), [[0.5 * 9 + 1, 0.5 * 12 - 1]])


@pytest.mark.parametrize("step", [0, 99, 100, 500])
@pytest.mark.parametrize("joint", [False, True])
def test_two_phases(step, joint):
    sharing = LoRASA(switch_step=100, joint=joint)
    agent = jax.eval_shape(lambda: recurrent_agent(sharing, **SIZES, key=KEY))
    ones = jax.tree.map(lambda leaf: np.ones(leaf.shape, np.float32), agent)
    gradient = sharing.constrain(ones, jnp.int32(step))
    parts = (gradient.fc1, gradient.gru.input, gradient.gru.hidden, gradient.fc2, gradient.fc3, gradient.fc4)
    for part in parts:
        shared_moves, adapters_move = joint or step < 100, joint or step >= 100
        for leaf in (part.shared.weight, part.shared.bias):
            assert_array_equal(leaf, float(shared_moves))
        for leaf in (part.down, part.up, part.shift):
            assert_array_equal(leaf, float(adapters_move))
