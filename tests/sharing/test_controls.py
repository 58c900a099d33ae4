"""Each control starts where it should and differs from full sharing in one thing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from prism_marl.sharing import FiLM, FuPSID, Prism, RandomSpectrum, SpectrumDelta, network_regularisers
from prism_marl.sharing.fups import SharedLinear

KEY = jax.random.key(0)


def layer(sharing, kind="hidden"):
    return sharing.linear(6, 5, identities=3, key=KEY, kind=kind, depth=1)


@pytest.mark.parametrize("sharing", [FiLM(), RandomSpectrum(), SpectrumDelta()])
def test_controls_read_what_full_sharing_with_id_reads(sharing):
    assert (sharing.agent_id, sharing.last_action) == (FuPSID.agent_id, FuPSID.last_action)
    assert isinstance(layer(sharing, "recurrent"), SharedLinear)


def test_film_starts_as_full_sharing():
    film, shared = layer(FiLM()), layer(FuPSID())
    assert_array_equal(film.dense(), shared.dense())
    assert_array_equal(film.dense_bias(), shared.dense_bias())


def test_delta_moves_separate_values_only():
    free = layer(SpectrumDelta(common=0.6))
    assert free.shift.shape == (3, 2)  # floor(0.4 * 5)
    values, on = free.spectrum()
    assert_array_equal(values, np.broadcast_to(free.s, (3, 5)))
    assert on.all()
    gradient = jax.grad(lambda layer: jnp.sum(layer.spectra()[1] * jnp.arange(1.0, 6)))(free)
    assert_array_equal(gradient.shift, [[0, 0], [4, 5], [0, 0]])


def test_random_spectrum_never_learns_its_masks():
    fixed = layer(RandomSpectrum(ratio=0.5))
    assert fixed.mask.dtype == bool and fixed.mask.shape == (3, 2)
    values, on = fixed.spectrum()
    assert_array_equal(on[:, :3], True)
    assert_array_equal(values, np.where(on, fixed.s, 0))


def test_share_of_random_directions():
    mask = RandomSpectrum(ratio=0.25, common=0.0).linear(40, 40, identities=30, key=KEY, kind="hidden", depth=1).mask
    assert mask.shape == (30, 40)
    assert abs((~mask).mean() - 0.25) < 0.06


@pytest.mark.parametrize("sharing", [RandomSpectrum(), SpectrumDelta()])
def test_spectral_controls_keep_orthogonality_and_drop_diversity(sharing):
    terms = network_regularisers(layer(sharing))
    assert set(terms) == {"orthogonality"}
    assert_allclose(terms["orthogonality"], 0, atol=1e-8)
    assert dict(sharing.penalties().fixed)["orthogonality"] == dict(Prism().penalties().fixed)["orthogonality"]
    assert sharing.penalties().diversity == 0
