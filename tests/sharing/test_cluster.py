"""Clustering on examples small enough to do by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from prism_marl.errors import UserError
from prism_marl.sharing import AdaPS, SePS
from prism_marl.sharing.cluster import (
    Records,
    best_kmeans,
    davies_bouldin,
    identity_vae,
    kmeans,
    matched_labels,
    vae_loss,
)

KEY = jax.random.key(0)


def column(*values: float):
    return jnp.asarray(values, jnp.float32)[:, None]


def test_kmeans_by_hand():
    labels, centres = kmeans(column(0, 1, 10, 11), 2, KEY)
    assert_array_equal(labels == labels[0], [True, True, False, False])
    assert_allclose(sorted(centres[:, 0]), [0.5, 10.5])
    assert_allclose(centres[labels][:, 0], [0.5, 0.5, 10.5, 10.5])


def test_kmeans_with_one_cluster_is_the_mean():
    labels, centres = kmeans(column(1, 2, 6), 1, KEY)
    assert_array_equal(labels, 0)
    assert_allclose(centres, [[3]])


def test_kmeans_survives_equal_points_and_works_per_seed():
    points = jnp.stack([jnp.ones((4, 2)), jnp.asarray([[0.0, 0], [0, 1], [9, 0], [9, 1]])])
    labels, centres = jax.jit(jax.vmap(lambda points, key: kmeans(points, 2, key)))(points, jax.random.split(KEY))
    assert np.all(np.isfinite(centres))
    assert_array_equal(labels[1] == labels[1][0], [True, True, False, False])


def test_davies_bouldin_by_hand():
    # centres 1, 11, 32 and spreads 1, 1, 2: the worst ratios are 2/10, 2/10 and 3/21
    points, labels = column(0, 2, 10, 12, 30, 34), jnp.asarray([0, 0, 1, 1, 2, 2])
    expected = (0.2 + 0.2 + 3 / 21) / 3
    assert_allclose(davies_bouldin(points, labels, column(1, 11, 32)), expected, rtol=1e-6)
    assert_allclose(davies_bouldin(points, labels, column(1, 11, 32, 99)), expected, rtol=1e-6)  # one empty
    assert davies_bouldin(points, labels, column(1, 1, 32)) == jnp.inf


def test_number_of_clusters_is_found():
    points = column(0, 0.1, 0.2, 5, 5.1, 5.2, 20, 20.1, 20.2)
    labels, centres = jax.jit(lambda key: best_kmeans(points, 5, key))(KEY)
    assert centres.shape == (5, 1)
    assert set(np.asarray(labels).tolist()) == {0, 1, 2}
    assert_array_equal(labels.reshape(3, 3), np.repeat(labels[::3], 3).reshape(3, 3))


def test_labels_are_matched_to_the_old_ones():
    old = jnp.asarray([0, 0, 0, 1, 1, 2])
    new = jnp.asarray([2, 2, 1, 0, 0, 1])  # the third agent has moved
    assert_array_equal(matched_labels(old, new, 3)[new], [0, 0, 2, 1, 1, 2])
    assert_array_equal(jax.jit(matched_labels, static_argnums=2)(old, old, 3), [0, 1, 2])


def test_loss_sums_errors_and_ignores_rows_without_weight():
    vae = identity_vae(agents=3, given=4, target=2, key=KEY)
    rows = Records(jnp.eye(3)[:2], jnp.ones((2, 4)), jnp.full((2, 2), 5.0), jnp.asarray([1.0, 0.0]))
    garbage = eqx.tree_at(lambda r: r.target, rows, rows.target.at[1].set(1e6))
    loss = jax.jit(vae_loss)
    assert loss(vae, rows, KEY) == loss(vae, garbage, KEY)
    # all weights zero: predictions 0, mean 0, log-variance 0, hence no KL and 2 * 5^2 for the row that counts
    assert_allclose(loss(jax.tree.map(jnp.zeros_like, vae), rows, KEY), 50.0)


def test_number_of_identities():
    assert SePS().identities(agents=6, roles=1) == 2
    assert SePS(clusters=None).identities(agents=6, roles=1) == 5
    assert AdaPS(clusters=None).identities(agents=100, roles=1) == 9
    with pytest.raises(UserError, match="needs at least 3 agents"):
        SePS(clusters=None).identities(agents=2, roles=1)
    with pytest.raises(UserError, match="at most 2"):
        SePS(clusters=3).identities(agents=2, roles=1)
    with pytest.raises(UserError, match=r"sharing\.pretraining"):
        SePS(pretraining=0).validate()
