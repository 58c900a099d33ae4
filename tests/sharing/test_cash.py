"""CASH: weights from capabilities, also for capabilities that nobody had in training."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.testing import assert_allclose

from prism_marl.errors import UserError
from prism_marl.experiment.presets import preset
from prism_marl.networks import mlp_actor, recurrent_agent
from prism_marl.runs.folder import footprints
from prism_marl.sharing import CASH
from prism_marl.sharing.cash import CapabilityLinear
from prism_marl.sharing.fups import SharedLinear
from prism_marl.sharing.single import single

SIZES = {"inputs": 2, "actions": 1, "width": 8, "roles": 4, "key": jax.random.key(0)}
TRAINED, UNSEEN = "-1;-0.5;0.5;1", "-0.75;0;0.75"


def wanted(x, capabilities):
    """How strongly an agent must push: the stronger it is, the harder."""
    return np.asarray([float(word) for word in capabilities.split(";")])[:, None] * x[..., :1]


def test_agents_with_unseen_capabilities_act_well_at_once():
    x = jax.random.uniform(jax.random.key(1), (64, 4, 2), minval=-1.0, maxval=1.0)
    network = mlp_actor(CASH(capabilities=TRAINED, hidden=16), agents=4, squash=False, **SIZES)
    start, fixed = eqx.partition(network, eqx.is_inexact_array)
    optimiser, role = optax.adam(0.01), jnp.zeros((64, 4), jnp.int32)

    def error(trained):
        return jnp.mean((eqx.combine(trained, fixed)(x, role) - wanted(x, TRAINED)) ** 2)

    def step(carry, _):
        updates, moments = optimiser.update(jax.grad(error)(carry[0]), carry[1])
        return (eqx.apply_updates(carry[0], updates), moments), None

    (trained, _), _ = jax.jit(lambda: jax.lax.scan(step, (start, optimiser.init(start)), length=400))()
    assert error(trained) < 0.001
    team = CASH(capabilities=UNSEEN, hidden=16).moved_to(eqx.combine(trained, fixed), 3)
    found = team(x[:, :3], role[:, :3]) - wanted(x[:, :3], UNSEEN)
    # Whoever knows agents by their index alone gives a new one the weights of the nearest that was trained.
    nearest = 0.25 * x[:, :3, :1] * np.asarray([1, 2, 1])[:, None]
    assert np.mean(found**2) < 0.1 * np.mean(nearest**2)


def test_encoder_is_shared_and_decoder_generated():
    agent = jax.eval_shape(lambda: recurrent_agent(CASH(capabilities=TRAINED), agents=4, **SIZES))
    assert isinstance(agent.fc1, SharedLinear) and isinstance(agent.gru.hidden, SharedLinear)
    assert all(isinstance(part, CapabilityLinear) for part in (agent.fc2, agent.fc3, agent.fc4))
    assert not CASH.agent_id


def test_equal_capabilities_are_equal_weights_and_one_agent_alone_has_its_own():
    layer = CASH(capabilities="1,2;3,4;1,2;5,6").linear(
        6, 5, identities=3, key=jax.random.key(0), kind="hidden", depth=1
    )
    matrices = np.asarray(layer.dense())
    assert np.array_equal(matrices[0], matrices[2]) and not np.allclose(matrices[0], matrices[1])
    assert_allclose(single(layer, jnp.int32(1)).dense(), matrices[1:2], rtol=1e-4)


@pytest.mark.parametrize(
    ("table", "words"),
    [("1,2;3", "different lengths"), ("1;inf", "not finite"), ("1,two", "is no table of numbers"), ("", "is no table")],
)
def test_tables_that_make_no_sense_are_refused(table, words):
    with pytest.raises(UserError, match=f"sharing.capabilities: .*{words}"):
        CASH(capabilities=table)


def test_each_agent_or_unit_type_needs_a_row_and_other_teams_can_be_counted():
    experiment = preset("roles/3", "cash").with_option("sharing.capabilities", "1,2;3,4;5,6;7,8")
    experiment.validate()
    assert all(set(row["teams"]) == {"3", "16", "128"} for row in footprints(experiment))
    with pytest.raises(UserError, match=r"sharing.capabilities: 2 rows for 3 agents; give a row"):
        experiment.with_option("sharing.capabilities", "1;2").validate()
    with pytest.raises(UserError, match=r"sharing.capabilities: 2 rows for 3 unit types"):
        CASH(capabilities="1;2", types="role").validate_team(agents=5, roles=3)
