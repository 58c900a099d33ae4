"""HPS: directions are shared and learn along the sphere only; scales belong to single agents."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose

from prism_marl.sharing import HPS, FuPSID
from prism_marl.sharing.hps import SphereLinear

KEY = jax.random.key(0)


def layer(sharing=HPS()):  # noqa: B008 - frozen
    return sharing.linear(6, 5, identities=3, key=KEY, kind="hidden", depth=1)


def apart() -> SphereLinear:
    noise = jax.random.normal(jax.random.key(1), (3, 5))
    return eqx.tree_at(lambda layer: layer.log_scale, layer(), noise)


def test_it_starts_as_full_sharing():
    assert_allclose(layer().dense(), layer(FuPSID()).dense(), rtol=1e-5, atol=1e-7)
    assert_allclose(layer().dense_bias(), layer(FuPSID()).dense_bias())


def test_agents_differ_in_length_and_never_in_direction():
    matrices = np.asarray(apart().dense())
    lengths = np.linalg.norm(matrices, axis=2)
    assert_allclose(lengths, np.exp(apart().log_scale), rtol=1e-5)
    assert_allclose(np.ptp(matrices / lengths[:, :, None], axis=0), 0, atol=1e-6)


def test_agents_that_want_other_lengths_alone_leave_the_directions_in_peace():
    """What the method is for: under plain sharing a conflict about scale moves the shared weights, here it cannot."""
    wanted = 2 ** np.arange(3.0)[:, None, None]  # the same matrix, longer for each agent
    x = jnp.asarray(np.random.default_rng(0).normal(size=(64, 3, 6)), jnp.float32)

    def error(layer, meant):
        return jnp.mean((layer(x) - jnp.einsum("aoi,bai->bao", meant, x) - layer.dense_bias()) ** 2)

    sphere, plain = layer(), layer(FuPSID())
    gradient = jax.grad(error)(sphere, wanted * sphere.dense()[:1])
    assert_allclose(np.sum(gradient.direction * sphere.direction, axis=1), 0, atol=1e-6)  # tangents
    share = np.linalg.norm(gradient.direction) / np.linalg.norm(gradient.log_scale)
    assert share < 0.5  # what is left is the noise of a finite sample
    radial = np.sum(jax.grad(error)(plain, wanted * plain.dense()[:1]).weight * plain.weight, axis=1)
    assert np.all(np.abs(radial) > 0.01)


def test_the_length_of_a_direction_means_nothing():
    longer = eqx.tree_at(lambda layer: layer.direction, apart(), 7 * apart().direction)
    assert_allclose(longer.dense(), apart().dense(), rtol=1e-5)
