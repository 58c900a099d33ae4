"""The hand-written backward pass of the unrolled GRU equals plain differentiation, for every method."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl.networks.recurrent import recurrent_agent
from prism_marl.sharing import METHODS


def plain_unroll(agent, x, role):
    """One cell after the other, differentiated by JAX."""
    h, values = agent.initial(*x.shape[1:-1]), []
    for t in range(x.shape[0]):
        h, q = agent(h, x[t], role[t])
        values.append(q)
    return jnp.stack(values)


# One of each kind of GRU: layers that are shared, own or own in part, gates, and identities of each form.
KINDS = ("fups", "nops", "seps", "lorasa", "snp", "adaps", "prism")


def test_every_kind_of_gru_is_tried():
    def kind(method: str) -> tuple:
        sharing = METHODS[method]()

        def build(key):
            sizes = {"identities": 3, "key": key}
            return sharing.linear(8, 24, kind="recurrent", depth=0, **sizes), sharing.gate(8, **sizes)

        layer, gate = jax.eval_shape(build, jax.random.key(0))
        return type(layer), gate is not None, sharing.initial_clusters(3) is not None

    assert {kind(method) for method in METHODS} == {kind(method) for method in KINDS}


@pytest.mark.parametrize("method", KINDS)
@pytest.mark.parametrize("masks", ["agent", "role"])
def test_values_and_gradients_equal_plain_differentiation(method, masks):
    sharing = METHODS[method]()
    if masks == "role":
        if not hasattr(sharing, "masks"):
            return
        sharing = sharing.changed(masks="role")
    key_net, key_x, key_role, key_weight = jax.random.split(jax.random.key(0), 4)
    agent = recurrent_agent(sharing, inputs=5, actions=3, width=8, agents=3, roles=2, key=key_net)
    x = jax.random.normal(key_x, (6, 2, 3, 5))
    role = jax.random.randint(key_role, (6, 2, 3), 0, 2)
    weight = jax.random.normal(key_weight, (6, 2, 3, 3))
    trained, fixed = eqx.partition(agent, eqx.is_inexact_array)

    def loss(unroll):
        return lambda trained, x: jnp.sum(weight * unroll(eqx.combine(trained, fixed), x, role) ** 2)

    fast = jax.jit(jax.value_and_grad(loss(lambda agent, x, role: agent.unroll(x, role)), argnums=(0, 1)))
    slow = jax.jit(jax.value_and_grad(loss(plain_unroll), argnums=(0, 1)))
    for ours, theirs in zip(jax.tree.leaves(fast(trained, x)), jax.tree.leaves(slow(trained, x)), strict=True):
        assert np.allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def plain_unroll_from(agent, start, x, role, fresh):
    """The same with episodes that begin inside: the state before a fresh step is zero."""
    h, found = start, []
    for t in range(x.shape[0]):
        h, q = agent(jnp.where(fresh[t][..., None, None], 0.0, h), x[t], role[t])
        found.append((h, q))
    return tuple(jnp.stack(part) for part in zip(*found, strict=True))


@pytest.mark.parametrize("method", ["nops", "prism", "snp"])
@pytest.mark.parametrize("behind", [1, 2])
def test_episodes_that_begin_inside_cut_the_past_off(method, behind):
    keys = jax.random.split(jax.random.key(0), 5)
    sizes = {"inputs": 5, "actions": 3, "width": 8, "agents": 3, "roles": 3}
    agent = recurrent_agent(METHODS[method](), **sizes, behind=behind, key=keys[0])
    x, start = jax.random.normal(keys[1], (6, 2, 3, 5)), jax.random.normal(keys[2], (2, 3, 8))
    role = jnp.zeros((6, 2, 3), jnp.int32)
    fresh = jnp.asarray([[True, False, False, True, False, False], [False, False, True, False, False, True]]).T
    weights = jax.random.normal(keys[3], (6, 2, 3, 8)), jax.random.normal(keys[4], (6, 2, 3, 3))
    trained, fixed = eqx.partition(agent, eqx.is_inexact_array)

    def loss(unroll):
        def total(trained, start, x):
            found = unroll(eqx.combine(trained, fixed), start, x, role, fresh)
            return sum(jnp.sum(weight * part**2) for weight, part in zip(weights, found, strict=True))

        return jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2)))

    fast, slow = loss(lambda agent, *given: agent.unroll_from(*given)), loss(plain_unroll_from)
    found = fast(trained, start, x)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(slow(trained, start, x)), strict=True):
        assert np.allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert (found[1][1][0] == 0).all() and (
        found[1][1][1] != 0
    ).any()  # what came before a fresh start is of no account
