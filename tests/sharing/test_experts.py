"""Mixture of shared experts: what an agent owns is its mixture, and few experts serve many different agents."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from prism_marl.errors import UserError
from prism_marl.sharing import SharedExperts
from prism_marl.sharing.experts import ExpertLinear

AGENTS = 5


def layer(**changes) -> ExpertLinear:
    sharing = SharedExperts(**changes)
    return sharing.linear(6, AGENTS, identities=AGENTS, key=jax.random.key(0), kind="hidden", depth=1)


def test_a_mixture_of_matrices_is_the_mixture_of_what_experts_say():
    mixed, x = layer(spread=1.0), np.random.default_rng(0).normal(size=(3, AGENTS, 6)).astype(np.float32)
    share = np.exp(mixed.router) / np.exp(mixed.router).sum(axis=1, keepdims=True)
    said = np.einsum("bai,eoi->baeo", x, mixed.weight) + mixed.bias
    assert_allclose(mixed(jnp.asarray(x)), np.einsum("baeo,ae->bao", said, share), rtol=1e-5, atol=1e-5)


def test_two_experts_tell_five_agents_apart():
    """Two clusters can play two actions. Mixtures of two experts lie on a line between them, and along a line with the
    right slopes every action is the best somewhere: k values that are tangents of a parabola."""
    action = np.arange(AGENTS)
    bias = np.stack([-(action**2), 2 * action * (AGENTS - 1) - action**2]).astype(np.float32)
    share = action / (AGENTS - 1)  # agent i is nearest to the tangent of action i
    router = np.log(np.stack([1 - share, share], axis=1) + 1e-6).astype(np.float32)
    mixed = ExpertLinear(
        weight=jnp.zeros((2, AGENTS, 6)), bias=jnp.asarray(bias), router=jnp.asarray(router), identities=AGENTS
    )
    assert np.argmax(mixed(jnp.ones((AGENTS, 6))), axis=1).tolist() == action.tolist()


def test_agents_with_one_router_are_one_agent_whatever_the_experts():
    assert_allclose(np.ptp(layer(spread=0.0).dense(), axis=0), 0, atol=1e-7)
    apart = layer(spread=1.0).dense().reshape(AGENTS, -1)
    assert np.linalg.matrix_rank(apart) == 4  # five matrices in the span of four experts


def test_balance_is_zero_for_a_team_that_uses_all_experts_and_largest_for_one():
    even = layer(experts=AGENTS)
    even = ExpertLinear(even.weight, even.bias, 50 * jnp.eye(AGENTS), identities=AGENTS)
    assert_allclose(even.regularisers()["balance"], 0, atol=1e-6)
    one = ExpertLinear(even.weight, even.bias, jnp.zeros((AGENTS, AGENTS)).at[:, 0].set(50.0), identities=AGENTS)
    assert_allclose(one.regularisers()["balance"], AGENTS - 1, rtol=1e-6)


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(UserError, match=r"sharing\.experts: 0 is not"):
        SharedExperts(experts=0)
