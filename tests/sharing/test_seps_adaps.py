"""SePS and AdaPS find a planted population through their hooks, and AdaPS' masks."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from planted import TYPES, random_experience, same_grouping
from prism_marl.networks import mlp_actor, recurrent_agent
from prism_marl.sharing import AdaPS, SePS
from prism_marl.sharing.adaps import standardised

SIZES = {"inputs": 6, "actions": 3, "width": 20, "agents": TYPES.size, "roles": 1}
KEYS = jax.random.split(jax.random.key(3))


@pytest.mark.parametrize(("sharing", "build"), [(SePS(), recurrent_agent), (AdaPS(), mlp_actor)])
def test_planted_types_are_found(sharing, build):
    experience = random_experience()

    @jax.jit
    @jax.vmap
    def prepared(key):
        network = build(sharing, **SIZES, key=key)
        return network, sharing.prepare(network, experience, jax.random.fold_in(key, 1))

    before, after = prepared(KEYS)  # two seeds at once
    assert_array_equal(before.clusters, 0)
    assert all(same_grouping(labels) for labels in after.clusters)
    assert after.clusters.dtype == before.clusters.dtype
    trained = eqx.filter((before, after), eqx.is_inexact_array)
    for old, new in zip(*map(jax.tree.leaves, trained), strict=True):
        assert_array_equal(old, new)
    if isinstance(sharing, AdaPS):
        assert_array_equal(jnp.sum(~after.fc1.mask, axis=-1), 2)  # floor(0.1 * 20)
        assert not np.array_equal(after.fc1.mask[0, 0], after.fc1.mask[0, 1])


def test_seps_has_one_network_per_cluster_and_no_id():
    network = jax.eval_shape(lambda: recurrent_agent(SePS(clusters=3), **SIZES, key=KEYS[0]))
    assert network.fc1.weight.shape == (3, 20, 6)
    assert network.gru.hidden.weight.shape == (3, 60, 20)
    assert network.clusters.shape == (6,)
    assert SePS.last_action and not SePS.agent_id


def test_davies_bouldin_finds_the_number_of_planted_types():
    """Ten agents of each type, which could be in up to nine clusters. With a few of each the index prefers clusters of
    one, which it takes for perfectly tight; that is so in the official implementation, too."""
    sharing, types = SePS(clusters=None), np.arange(20) % 2
    experience = random_experience(600, types)
    labels, centres = jax.jit(jax.vmap(lambda key: sharing.group(experience, key)))(KEYS)
    assert centres.shape == (2, 9, 10)  # two seeds, room for nine
    assert all(same_grouping(found, types) for found in labels)


def test_open_number_of_clusters_leaves_room():
    sharing = AdaPS(clusters=None)
    network = jax.eval_shape(lambda: mlp_actor(sharing, **SIZES, key=KEYS[0]))
    assert network.fc1.mask.shape == (5, 20)


def empty_agent(sharing: AdaPS):
    """An agent full of zeros: enough where only labels and masks matter."""
    shapes = jax.eval_shape(lambda: recurrent_agent(sharing, **SIZES, key=KEYS[0]))
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)


class Planted(AdaPS):
    """Clusters that are given instead of learned."""

    def group(self, experience, key):
        return experience


def test_masks_follow_centres():
    sharing = Planted(clusters=3, ratio=0.3)
    centres = np.random.default_rng(1).normal(size=(3, 10)).astype(np.float32)
    centres[1] = centres[0] + 0.05  # close to the first
    prepare = jax.jit(sharing.prepare)
    labels = jnp.asarray([0, 1, 2, 0, 1, 2])
    agent = prepare(empty_agent(sharing), (labels, jnp.asarray(centres)), KEYS[1])
    masks = [np.asarray(part) for part in (agent.gru.gate.mask, agent.fc2.mask, agent.fc3.mask)]
    for mask in masks:
        assert_array_equal((~mask).sum(axis=1), 6)  # exactly floor(0.3 * 20)
        assert (mask[0] != mask[1]).sum() < (mask[0] != mask[2]).sum()
    assert not np.array_equal(masks[0], masks[1])  # every layer has its own projection
    assert not hasattr(agent.fc1, "mask") and not hasattr(agent.fc4, "mask")
    again = prepare(agent, (labels, jnp.asarray(centres)), KEYS[0])
    assert_array_equal(again.fc2.mask, agent.fc2.mask)  # the projection is fixed
    elsewhere = prepare(agent, (labels, jnp.asarray(3 * centres + 7)), KEYS[0])
    assert_array_equal(elsewhere.fc2.mask, agent.fc2.mask)  # where codes lie and how large they are says nothing


def test_actions_are_never_masked():
    actor = jax.eval_shape(lambda: mlp_actor(AdaPS(), **SIZES, key=KEYS[0]))
    assert hasattr(actor.fc1, "mask") and hasattr(actor.fc2, "mask") and not hasattr(actor.fc3, "mask")


def test_new_clusters_keep_their_old_names():
    sharing = Planted(recluster_interval=1000)
    assert sharing.refresh_interval() == 1000
    agent = empty_agent(sharing)
    centres = jnp.stack([jnp.arange(10.0), -(jnp.arange(10.0) ** 2)])
    agent = jax.jit(sharing.prepare)(agent, (jnp.asarray(TYPES), centres), KEYS[0])
    # found again under the opposite names, with one agent on the other side
    swapped = jnp.asarray(1 - TYPES).at[5].set(0)
    after = jax.jit(sharing.refresh)(agent, (swapped, centres[::-1]), KEYS[0])
    assert_array_equal(after.clusters, jnp.asarray(TYPES).at[5].set(1))
    assert_array_equal(after.fc2.mask, agent.fc2.mask)


def test_random_masks_ignore_centres():
    sharing = Planted(random_masks=True, ratio=0.5)
    mask = sharing.gate(20, identities=2, key=KEYS[0]).mask
    assert_array_equal((~mask).sum(axis=1), 10)
    agent = eqx.tree_at(lambda agent: agent.fc2.mask, empty_agent(sharing), mask)
    after = sharing.prepare(agent, (jnp.asarray(TYPES), jnp.ones((2, 10))), KEYS[0])
    assert_array_equal(after.clusters, TYPES)
    assert_array_equal(after.fc2.mask, mask)


def test_nothing_is_masked_before_clusters_are_known():
    assert AdaPS().gate(20, identities=2, key=KEYS[0]).mask.all()


def test_unused_clusters_do_not_shift_the_scale():
    centres = jnp.asarray([[1.0], [3.0], [77.0]])
    assert_array_equal(standardised(centres, jnp.asarray([True, True, False]))[:2], [[-1], [1]])
