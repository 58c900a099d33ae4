"""DiCo: the team's diversity has the value that was set, and learning does not move it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from prism_marl.errors import UserError
from prism_marl.networks import mlp_actor, recurrent_agent
from prism_marl.sharing import DiCo
from prism_marl.sharing.base import Experience
from prism_marl.sharing.fups import SharedLinear

AGENTS, SEEN, ROWS, HELD = 3, 5, 40, 30
SIZES = {"inputs": SEEN, "actions": 4, "width": 8, "agents": AGENTS, "roles": AGENTS, "key": jax.random.key(0)}
LOCAL = np.random.default_rng(0).normal(3, 2, size=(ROWS, AGENTS, SEEN)).astype(np.float32)


def experience(held: int = HELD) -> Experience:
    """What was observed; rows of padding are no part of it."""
    there = np.arange(ROWS)[:, None] < held
    local = jnp.asarray(np.where(there[..., None], LOCAL, 1e4))
    nothing = jnp.zeros((ROWS, AGENTS, 1))
    return Experience(local, nothing, local, jnp.zeros(ROWS), jnp.asarray(np.broadcast_to(there, (ROWS, AGENTS))))


def diversity(network) -> float:
    """By hand: the mean distance of what two agents would do, over all that was observed."""
    outputs = np.asarray(network.once(jnp.asarray(LOCAL[:HELD].reshape(-1, 1, SEEN).repeat(AGENTS, axis=1))))
    pairs = [(i, j) for i in range(AGENTS) for j in range(i)]
    return float(np.mean([np.linalg.norm(outputs[:, i] - outputs[:, j], axis=-1).mean() for i, j in pairs]))


def measured(sharing: DiCo, network):
    return sharing.refresh(network, experience(), jax.random.key(1))


def with_last(network, name: str, change):
    return eqx.tree_at(lambda n: (getattr(n, name).own, getattr(n, name).own_bias), network, replace_fn=change)


@pytest.mark.parametrize(("build", "last"), [(mlp_actor, "fc3"), (recurrent_agent, "fc4")])
def test_diversity_has_the_value_that_was_set_whatever_was_learned(build, last):
    for snd in (0.3, 2.0):
        sharing = DiCo(snd=snd)
        network = measured(sharing, build(sharing, **SIZES))
        assert_allclose(diversity(network), snd, rtol=1e-3)
        further = with_last(network, last, lambda own: 5 * own)  # learning would have made agents more different
        assert diversity(further) > 4 * snd
        assert_allclose(diversity(sharing.after_update(further, None)), snd, rtol=1e-3)
        other = with_last(network, last, lambda own: own[::-1] ** 2)
        assert_allclose(diversity(measured(sharing, sharing.after_update(other, None))), snd, rtol=1e-3)


def test_what_all_agents_do_alike_is_left_alone():
    """The shared part has no share in diversity: it may be as large as it likes."""
    sharing = DiCo()
    network = measured(sharing, mlp_actor(sharing, **SIZES))
    larger = eqx.tree_at(lambda n: n.fc3.shared, network, replace_fn=lambda part: jax.tree.map(lambda x: 9 * x, part))
    assert_allclose(diversity(measured(sharing, larger)), 1.0, rtol=1e-3)


def test_without_data_and_with_equal_agents_nothing_changes():
    sharing = DiCo()
    network = mlp_actor(sharing, **SIZES)
    assert eqx.tree_equal(sharing.refresh(network, experience(held=0), jax.random.key(1)), network)
    alike = with_last(network, "fc3", lambda own: own * 0 + 1)
    assert eqx.tree_equal(sharing.after_update(alike, None).fc3.scale, network.fc3.scale)


def test_no_diversity_is_full_sharing_and_a_single_agent_needs_none():
    assert_allclose(diversity(mlp_actor(DiCo(snd=0.0), **SIZES)), 0, atol=1e-6)
    alone = mlp_actor(DiCo(), **(SIZES | {"agents": 1, "roles": 1}))
    assert all(isinstance(layer, SharedLinear) for layer in (alone.fc1, alone.fc2, alone.fc3))
    with pytest.raises(UserError, match=r"sharing\.snd: -1.0 is negative"):
        DiCo(snd=-1.0)
