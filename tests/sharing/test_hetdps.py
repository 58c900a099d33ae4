"""HetDPS: groups of agents follow what they turn out to be, and nobody acts differently because its group was split."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from planted import TYPES, random_experience, same_grouping
from prism_marl.errors import UserError
from prism_marl.learners.targets import after_change
from prism_marl.networks import mlp_actor
from prism_marl.sharing import HetDPS, SePS
from prism_marl.sharing.hetdps import affinity_propagation

KEY = jax.random.key(0)
SIZES = {"inputs": 5, "actions": 3, "width": 6, "agents": TYPES.size, "roles": 1}


@pytest.mark.parametrize(
    ("points", "groups"),
    [
        ([0, 1, 10, 11, 12], [0, 0, 1, 1, 1]),
        ([0, 1, 2, 1, 0], [0, 0, 0, 0, 0]),
        ([0, 9, 30], [0, 1, 2]),
        ([7, 7, 7], [0, 0, 0]),
        ([3], [0]),
    ],
)
def test_affinity_propagation_by_hand(points, groups):
    far = -(np.subtract.outer(points, points).astype(np.float32) ** 2)
    labels = np.asarray(affinity_propagation(jnp.asarray(far), -16.0, KEY))
    assert same_grouping(labels, np.asarray(groups))
    assert_array_equal(labels[labels], labels)  # who stands for others stands for itself


def acted(network) -> np.ndarray:
    x = jnp.asarray(np.random.default_rng(2).normal(size=(4, TYPES.size, 5)), jnp.float32)
    return np.asarray(network(x, jnp.zeros((4, TYPES.size), jnp.int32)))


def test_a_group_of_unlike_agents_splits_and_alike_ones_come_together():
    """The claim: the number of groups and their members follow the agents, with nothing set in advance."""
    sharing = HetDPS()
    together = mlp_actor(sharing, **SIZES, key=KEY)
    refresh = jax.jit(sharing.refresh)
    assert_array_equal(together.clusters, 0)
    apart = refresh(together, random_experience(), KEY)
    assert same_grouping(apart.clusters) and apart.clusters.dtype == together.clusters.dtype
    assert_allclose(acted(apart), acted(together), rtol=1e-6)  # a split makes copies
    assert_array_equal(refresh(apart, random_experience(), jax.random.key(7)).clusters, apart.clusters)
    trained = eqx.tree_at(lambda n: n.fc3.bias, apart, jax.random.normal(KEY, apart.fc3.bias.shape))
    again = refresh(trained, random_experience(types=0 * TYPES), KEY)
    group = int(again.clusters[0])
    assert_array_equal(again.clusters, group)
    assert any(np.array_equal(again.fc3.bias[group], trained.fc3.bias[old]) for old in np.unique(apart.clusters))


def test_merged_groups_have_the_network_of_most_or_the_mean_of_all():
    old, new = jnp.asarray([0, 0, 3, 2]), jnp.asarray([3, 3, 3, 2])
    assert_array_equal(HetDPS().origins(old, new)[3], [1, 0, 0, 0])
    mean = HetDPS(merge="average").origins(old, new)
    assert_allclose(mean[3], [2 / 3, 0, 0, 1 / 3], rtol=1e-6)
    assert_array_equal(mean[:3], np.eye(4)[:3])  # its own, or nobody's


def test_policies_are_compared_by_actions_and_begin_apart():
    """Agents of one network can never be seen to differ, so those that are compared by what they do begin alone."""
    sharing = HetDPS(distance="policy")
    assert_array_equal(sharing.initial_clusters(3), [0, 1, 2])
    experience = random_experience()
    likes = np.eye(3)[np.where(np.arange(1000)[:, None] % 10 < 9, TYPES, 2)]  # either type mostly does one thing
    experience = experience._replace(action=jnp.asarray(likes, jnp.float32))
    distance = np.asarray(jax.jit(sharing.distances)(experience, KEY))
    same = (TYPES[:, None] == TYPES) & ~np.eye(TYPES.size, dtype=bool)
    assert distance[TYPES[:, None] != TYPES].min() > distance[same].max()


def test_targets_have_what_a_split_copies_at_once():
    held, old = jnp.asarray([[1.0], [2.0]]), jnp.asarray([[3.0], [4.0]])
    new = jnp.asarray([[3.0], [3.0]])
    assert_array_equal(after_change(held, old, new, HetDPS()), [[1], [3]])
    assert_array_equal(after_change(held, old, new, SePS()), held)


def test_without_data_nobody_moves():
    network = mlp_actor(HetDPS(distance="policy"), **SIZES, key=KEY)
    nothing = jax.tree.map(lambda leaf: leaf[:4] * 0, random_experience(20))
    assert eqx.tree_equal(jax.jit(HetDPS().refresh)(network, nothing, KEY), network)


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(UserError, match=r"sharing\.tolerance: 0\.0 lets no two agents share"):
        HetDPS(tolerance=0.0)
