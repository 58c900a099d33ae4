"""GradPS: neurons whose agents pull against each other are cloned, and become one again where the clones stay alike."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from prism_marl.errors import UserError
from prism_marl.networks import mlp_actor
from prism_marl.runs import checkpoint
from prism_marl.sharing import FuPS, GradPS
from prism_marl.sharing.gradps import CloneLinear

KEY = jax.random.key(0)


def layer(agents: int = 4, **changes) -> CloneLinear:
    return GradPS(**changes).linear(6, 3, identities=agents, key=KEY, kind="hidden", depth=1)


def felt(*neurons) -> jax.Array:
    """Gradients of all agents for each neuron."""
    return jnp.asarray(neurons, jnp.float32).T


def test_it_starts_as_full_sharing():
    assert_array_equal(layer().dense(), FuPS().linear(6, 3, identities=4, key=KEY, kind="hidden", depth=1).dense())


def test_what_is_counted_is_each_agents_gradient_of_a_factor_on_its_neuron():
    shared, x = layer(), jnp.asarray(np.random.default_rng(0).normal(size=(7, 4, 6)), jnp.float32)
    pull = np.random.default_rng(1).normal(size=(7, 4, 3))
    gradient = jax.grad(lambda layer: jnp.sum(pull * layer(x)), allow_int=True)(shared)
    counted = shared.counted(gradient).counted(gradient)
    assert_allclose(counted.felt, 2 * np.sum(pull * shared(x), axis=0), rtol=1e-4, atol=1e-5)
    assert_allclose(counted.dense(), shared.dense())  # to count changes nothing


def test_a_neuron_is_divided_by_the_signs_of_its_agents_where_the_sum_is_futile():
    before = replace(layer(), felt=felt([1, -1, 2, -1.9], [1, -1, 2, -0.5], [0, 0, 0, 0]))
    after = before.divided(0.2)  # left of the sums: 0.1 of 5.9, 1.5 of 4.5, nothing of nothing
    assert_array_equal(after.group.T, [[0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]])
    assert_array_equal(after.dense(), before.dense())  # a clone begins as what it is a clone of
    assert_array_equal(after.felt, 0)


def test_clones_divide_further_while_there_is_room():
    divided = replace(layer(clones=3), felt=felt([1, -1, 1, -1], *[[0] * 4] * 2)).divided(0.2)
    again = replace(divided, felt=felt([1, -1, -1, 1], *[[0] * 4] * 2)).divided(0.2)
    assert_array_equal(again.group[:, 0], [0, 1, 2, 1])  # the second group keeps its conflict: no clone is left
    assert_array_equal(replace(again, felt=divided.felt + 1).divided(1.0).group, again.group)


def test_clones_that_stay_alike_become_one_and_others_do_not():
    divided = replace(layer(), felt=felt([1, -1, 1, -1], [1, -1, -1, -0.5], [1, 1, 1, 1])).divided(0.9)
    assert_array_equal(divided.group.T, [[0, 1, 0, 1], [0, 1, 1, 1], [0] * 4])
    clones = divided.clones.at[1, 1].multiply(1.01).at[0, 1].multiply(-1.0)
    merged = replace(divided, clones=clones).merged(0.05)
    assert_array_equal(merged.group.T, [[0, 1, 0, 1], [0] * 4, [0] * 4])
    assert_allclose(merged.dense()[:, 1], np.tile((clones[1, 0] + 3 * clones[1, 1]) / 4, (4, 1)), rtol=1e-6)


def test_agents_that_disagree_learn_what_full_sharing_cannot():
    """The claim: four agents see the same and must say different things. One network is right for one of them; after a
    few divisions all are right, and gradients of those who share a clone no longer cancel out."""
    sharing, optimiser, role = GradPS(), optax.adam(0.02), jnp.zeros((1, 4), jnp.int32)
    network = mlp_actor(sharing, inputs=5, actions=4, width=16, agents=4, roles=4, head="values", squash=False, key=KEY)
    x = jnp.broadcast_to(jax.random.normal(KEY, (5,)), (1, 4, 5))
    start, fixed = eqx.partition(network, eqx.is_inexact_array)

    def cost(trained, fixed):
        return -jnp.trace(jax.nn.log_softmax(eqx.combine(trained, fixed)(x, role)[0]))

    def step(carry, _):
        (trained, moments), fixed = carry
        gradient = jax.grad(cost)(trained, fixed)
        updates, moments = optimiser.update(sharing.constrain(gradient, jnp.int32(0)), moments)
        after = sharing.after_update(eqx.combine(eqx.apply_updates(trained, updates), fixed), gradient)
        trained, fixed = eqx.partition(after, eqx.is_inexact_array)
        return ((trained, moments), fixed), jnp.mean(jnp.argmax(after(x, role)[0], axis=-1) == jnp.arange(4))

    def interval(carry, _):
        carry, right = jax.lax.scan(step, carry, length=50)
        ((trained, moments), fixed) = carry
        after = sharing.refresh(eqx.combine(trained, fixed), None, KEY)
        trained, fixed = eqx.partition(after, eqx.is_inexact_array)
        return ((trained, moments), fixed), right[-1]

    ((_, _), fixed), right = jax.jit(
        lambda: jax.lax.scan(interval, ((start, optimiser.init(start)), fixed), length=8)
    )()
    assert right[0] == 0.25 and right[-1] == 1.0
    assert np.any(fixed.fc2.group != 0)


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(UserError, match=r"sharing\.clones: 1 leaves nothing to divide"):
        GradPS(clones=1)


def test_what_was_counted_and_divided_is_in_a_checkpoint():
    counted = replace(layer(), felt=felt([1, -1, 2, -1.9], [3, 4, 5, 6], [0, 0, 0, 0]))
    for state in (counted, counted.divided(0.2)):
        held = checkpoint.flatten(state)
        assert set(held) == {"clones", "bias", "felt", "group"}
        again = checkpoint.unflatten(held, jax.tree.map(jnp.zeros_like, state), "x")
        assert eqx.tree_equal(jax.tree.map(jnp.asarray, again), state)
