"""Multi-head: what stands before the chosen depth is one for all, what stands behind it is each agent's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl.errors import UserError
from prism_marl.networks import mlp_actor, recurrent_agent
from prism_marl.sharing import FuPSID, MultiHead, NoPS
from prism_marl.sharing.footprint import footprint
from prism_marl.sharing.fups import SharedLinear
from prism_marl.sharing.nops import IndependentLinear

SIZES = {"inputs": 6, "actions": 4, "width": 8, "agents": 3, "roles": 3, "key": jax.random.key(0)}


def shapes(sharing, build=recurrent_agent):
    return jax.eval_shape(lambda: build(sharing, **SIZES))


@pytest.mark.parametrize(("depth", "own"), [(None, 1), (9, 1), (3, 1), (2, 2), (1, 3), (0, 6)])
def test_layers_are_own_from_the_depth_on(depth, own):
    agent = shapes(MultiHead(depth=depth))
    layers = (agent.fc1, agent.gru.input, agent.gru.hidden, agent.fc2, agent.fc3, agent.fc4)
    assert [type(layer) for layer in layers] == [SharedLinear] * (6 - own) + [IndependentLinear] * own


@pytest.mark.parametrize("build", [recurrent_agent, mlp_actor])
def test_the_deepest_cut_is_no_sharing_and_each_agent_pays_for_its_head_alone(build):
    assert footprint(shapes(MultiHead(depth=0), build)) == footprint(shapes(NoPS(), build))
    full = footprint(shapes(FuPSID(), build)).parameters
    head = 8 * 4 + 4
    assert footprint(shapes(MultiHead(), build)).parameters == full + 2 * head


def test_the_task_of_one_agent_moves_the_trunk_and_its_own_head():
    network = mlp_actor(MultiHead(depth=1), **SIZES)
    x, role = jnp.ones((3, 6)), jnp.zeros(3, jnp.int32)
    gradient = jax.jit(jax.grad(lambda network: jnp.sum(network(x, role)[1])))(network)
    assert np.any(gradient.fc1.weight != 0)
    for head in (gradient.fc2, gradient.fc3):
        assert np.any(head.bias != 0, axis=1).tolist() == [False, True, False]


def test_a_depth_below_the_first_layer_is_refused():
    with pytest.raises(UserError, match=r"sharing\.depth: -1 is no layer"):
        MultiHead(depth=-1)
