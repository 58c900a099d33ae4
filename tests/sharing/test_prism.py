"""Prism's layer: start, invariances, gradients of the diversity term, revival."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from prism_marl.errors import UserError
from prism_marl.sharing import FuPSIDSVD, Prism, network_regularisers, spectral
from prism_marl.sharing.base import Experience, uniform_weight
from prism_marl.sharing.differences import centred_rank
from prism_marl.sharing.prism import SpectralLinear
from prism_marl.sharing.resets import fresh_directions
from prism_marl.sharing.spectral import initial_factors, off_orthonormal

KEY = jax.random.key(0)
NOTHING = Experience(*(jnp.zeros((0, 0, 0)) for _ in range(3)), jnp.zeros(0), jnp.zeros((0, 0), bool))


def drawn(sharing=None, fan_in=6, fan_out=5, identities=3) -> SpectralLinear:
    """A layer whose thresholds reach into the spectrum, so that masks differ."""
    sharing = sharing or Prism()
    layer = sharing.linear(fan_in, fan_out, identities=identities, key=KEY, kind="hidden", depth=0)
    noise = np.random.default_rng(1).uniform(-3, 1.5, layer.threshold.shape)
    return eqx.tree_at(lambda layer: layer.threshold, layer, jnp.asarray(noise, jnp.float32))


def by_hand(threshold, s=(3.0, 2.0, 1.0, 0.5), **settings) -> SpectralLinear:
    """Unit vectors as factors; the last two singular values are separate: |s| / max|s| = 1 and 1/2."""
    return SpectralLinear(
        U=jnp.eye(4),
        s=jnp.asarray(s),
        V=jnp.eye(4),
        bias=jnp.zeros(4),
        settings=Prism(**settings),
        threshold=jnp.asarray(threshold, jnp.float32),
        identities=len(threshold),
    )


@pytest.mark.parametrize(("fan_in", "fan_out"), [(9, 5), (5, 9), (7, 7)])
def test_factors_start_as_the_dense_matrix(fan_in, fan_out):
    U, s, V = initial_factors(KEY, fan_in, fan_out)
    dense = uniform_weight(jax.random.split(KEY, 3)[0], fan_out, fan_in, fan_in=fan_in)
    assert_allclose((U * s) @ V.T, dense, atol=1e-5)
    assert_array_equal(s, np.sort(s)[::-1])
    assert max(off_orthonormal(U), off_orthonormal(V)) < 1e-10


def test_forward_by_hand():
    layer = by_hand([[-50.0, -50.0], [-50.0, 50.0], [0.0, 0.0]])
    assert_allclose(layer.spectra(), [[3, 2, 1, 0.25], [3, 2, 1, 0], [3, 2, 0.5, 0]], atol=1e-6)
    assert_array_equal(layer.spectrum()[1], [[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 0]])


def test_all_common_equals_full_sharing_with_svd():
    mine = Prism(common=1.0).linear(6, 5, identities=3, key=KEY, kind="hidden", depth=0)
    other = FuPSIDSVD().linear(6, 5, identities=3, key=KEY, kind="hidden", depth=0)
    for one, two in zip(jax.tree.leaves(mine), jax.tree.leaves(other), strict=True):
        assert_array_equal(one, two)
    x = jax.random.normal(KEY, (4, 3, 6))
    assert_allclose(mine(x), x @ ((mine.U * mine.s) @ mine.V.T).T + mine.bias, rtol=1e-5, atol=1e-6)
    assert set(network_regularisers(mine)) == {"orthogonality"}


@pytest.mark.parametrize(("fan_out", "masked"), [(1, 0), (2, 1)])
def test_few_separate_directions(fan_out, masked):
    layer = drawn(fan_out=fan_out)
    assert layer.masked == masked
    x = jax.random.normal(KEY, (2, 3, 6))
    loss = jax.value_and_grad(lambda layer: jnp.sum(layer(x) ** 2) + layer.diversity()[0])
    value, gradient = jax.jit(loss)(layer)
    assert np.isfinite(value) and all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))
    if masked:  # |s| / max|s| is 1: always on, scaled by 1 - sigmoid(t)
        assert_allclose(layer.spectra()[:, 1], layer.s[1] * (1 - jax.nn.sigmoid(layer.threshold[:, 0])), rtol=1e-5)
        assert_array_equal(layer.on(), 1)


@pytest.mark.parametrize(("common", "rank", "masked"), [(0.5, 11, 5), (0.6, 64, 25), (0.6, 21, 8), (0.6, 25, 10)])
def test_number_of_separate_directions_is_exact(common, rank, masked):
    assert Prism(common=common).masked(rank) == masked


def test_order_inside_a_block_does_not_matter():
    layer = drawn(fan_in=8, fan_out=8)
    x = jax.random.normal(KEY, (2, 3, 8))
    order = np.asarray([2, 0, 3, 1, 5, 7, 4, 6])  # four common, four separate directions
    moved = SpectralLinear(
        U=layer.U[:, order],
        s=layer.s[order],
        V=layer.V[:, order],
        bias=layer.bias,
        settings=layer.settings,
        threshold=layer.threshold[:, order[4:] - 4],
        identities=3,
    )
    assert_allclose(moved(x), layer(x), rtol=1e-5, atol=1e-6)
    assert_allclose(moved.diversity()[0], layer.diversity()[0], rtol=1e-6)


def test_signs_do_not_matter():
    layer, sign = drawn(), jnp.asarray([1.0, -1, 1, -1, 1])
    flipped = eqx.tree_at(lambda layer: (layer.U, layer.s), layer, (layer.U * sign, layer.s * sign))
    x = jax.random.normal(KEY, (2, 3, 6))
    assert_allclose(flipped(x), layer(x), rtol=1e-5, atol=1e-6)
    literal = drawn(Prism(spectrum_abs=False))
    flipped = eqx.tree_at(lambda layer: (layer.U, layer.s), literal, (literal.U * sign, literal.s * sign))
    assert not np.allclose(flipped(x), literal(x), atol=1e-3)  # the paper to the letter kills negative values


@pytest.mark.parametrize("identity", [None, jnp.asarray([2, 0, 1])])
def test_both_code_paths_agree(identity):
    layer = drawn(fan_in=5, fan_out=5)
    x = jax.random.normal(KEY, (40, 3, 5))
    assert layer.builds_matrices(x.shape, identity) and not layer.builds_matrices(x[:2].shape, identity)
    factored = jnp.concatenate([layer(x[start : start + 2], identity) for start in range(0, 40, 2)])
    assert_allclose(layer(x, identity), factored, rtol=1e-5, atol=1e-5)


def test_equal_masks_have_no_diversity_gradient_to_the_letter():
    layer = by_hand([[-2.0, -1.0], [-3.0, -0.5]], ties="still")  # all on
    value, gradient = jax.value_and_grad(lambda layer: layer.diversity()[0])(layer)
    assert value == 0
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(gradient))


def test_equal_masks_are_moved_apart_the_way_they_lean():
    # All are on; each identity is nearer to dropping one of the two.
    layer = by_hand([[-2.0, -1.0], [-3.0, -0.5]], ties="apart")
    value, gradient = jax.value_and_grad(lambda layer: layer.diversity()[0])(layer)
    assert value == 0
    slope = jax.nn.sigmoid(layer.threshold) * jax.nn.sigmoid(-layer.threshold)
    reach = np.tanh(2 * np.asarray([1.0, 0.5]))  # twice the singular value: two ordered pairs
    # The term is maximised: identity 0 raises the first threshold and lowers the second, identity 1 the reverse.
    assert_allclose(gradient.threshold, slope * jnp.asarray([[1, -1], [-1, 1]]) * reach, rtol=1e-5)
    for leaf in (gradient.U, gradient.s, gradient.V, gradient.bias):
        assert_array_equal(leaf, 0)


@pytest.mark.parametrize("masks", ["agent", "role"])
@pytest.mark.parametrize("common", [0.0, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("part", ["leading", "trailing", "random"])
@pytest.mark.parametrize("init", ["svd_of_torch", "svd_of_orthogonal", "random_orthonormal"])
def test_with_one_sample_for_all_every_mask_is_the_same_at_the_start(masks, common, part, init):
    """Thresholds reach into the spectrum, so that with samples of their own identities differ."""
    wide = {"threshold_scale": 8.0, "threshold_shift": -4.0, "common_part": part, "init": init}
    own, shared = (
        Prism(masks=masks, common=common, threshold_init=how, **wide).linear(
            20, 30, identities=4, key=KEY, kind="hidden", depth=0
        )
        for how in ("own", "shared")
    )
    values, on = shared.spectrum()
    assert_array_equal(on, np.broadcast_to(on[0], on.shape))
    assert_array_equal(values, np.broadcast_to(values[0], values.shape))
    if common < 1:
        assert (own.spectra() != own.spectra()[0]).any()
    for name in ("U", "s", "V", "bias"):
        assert_array_equal(getattr(own, name), getattr(shared, name))


def test_one_sample_for_all_is_the_sample_of_a_single_identity():
    own, shared = Prism(threshold_rate=2.0), Prism(threshold_rate=2.0, threshold_init="shared")
    assert shared.thresholds(KEY, 5, 7).shape == (5, 7)
    assert_array_equal(shared.thresholds(KEY, 5, 7), np.tile(own.thresholds(KEY, 1, 7), (5, 1)))
    many = 2.0 * shared.thresholds(KEY, 2, 4000)[0]  # -(5 U[0, 1] + 5), as with samples of their own
    assert -10 <= many.min() < -9.9 and -5.1 < many.max() <= -5
    assert_allclose(many.mean(), -7.5, atol=0.1)


@pytest.mark.parametrize("identities", [2, 31, 33, 40])
def test_order_of_entries_with_ties_is_the_sum_of_signs(identities):
    """Up to 32 identities are compared in pairs, more are sorted."""
    value = np.random.default_rng(0).integers(0, 9, (identities, 5)).astype(np.float32)
    value[:, 0] = 1.0
    expected = np.sign(value[:, None] - value[None]).sum(axis=1)
    assert_array_equal(centred_rank(jnp.asarray(value)), expected)
    assert_array_equal(expected[:, 0], 0)


def test_moving_apart_waits_for_the_task_where_all_start_with_one_sample():
    """Equal thresholds have sign(0) = 0. Once the task has moved one of them, only that direction is pushed."""
    grad = jax.grad(lambda layer: layer.diversity()[0])
    equal = by_hand([[-2.0, -1.0], [-2.0, -1.0], [-2.0, -1.0]], ties="apart", threshold_init="shared")
    assert_array_equal(grad(equal).threshold, 0)
    moved = eqx.tree_at(lambda layer: layer.threshold, equal, equal.threshold.at[1, 1].add(1e-3))
    slope = jax.nn.sigmoid(moved.threshold[:, 1]) * jax.nn.sigmoid(-moved.threshold[:, 1])
    # |s| is 1/2. The one with the higher threshold has both others above it, each of these has it below itself; the
    # term is maximised, so the higher threshold rises and the others fall.
    reach = np.tanh(2 * 0.5 * np.asarray([1.0, -2.0, 1.0]))
    assert_array_equal(grad(moved).threshold[:, 0], 0)
    assert_allclose(grad(moved).threshold[:, 1], -slope * reach, rtol=1e-5)
    assert grad(moved).threshold[1, 1] > 0 > grad(moved).threshold[0, 1]


def test_directions_that_come_back_have_one_sample_for_all():
    settings = Prism(reset_ratio=1.0, common=0.0, threshold_init="shared")
    layer = drawn(settings, identities=3)
    dead = eqx.tree_at(lambda layer: layer.threshold, layer, jnp.full_like(layer.threshold, 50.0))
    after = dead.revived(KEY).threshold
    assert np.all(after < 0)
    assert_array_equal(after, np.broadcast_to(after[0], after.shape))


@pytest.mark.parametrize("identities", [2, 5, 40])  # by pairs, and by sorting
def test_moving_apart_is_a_subgradient_of_the_same_sum(identities):
    still = drawn(Prism(common=0.0, ties="still", ste="identity"), identities=identities)
    apart = drawn(Prism(common=0.0, ties="apart", ste="identity"), identities=identities)
    value, _ = jax.value_and_grad(lambda layer: layer.diversity()[0])(still)
    same, gradient = jax.value_and_grad(lambda layer: layer.diversity()[0])(apart)
    assert_allclose(same, value, rtol=1e-5)
    headroom, size = apart._headroom(), jnp.abs(apart.s)
    lean = jnp.sign(headroom[:, None] - headroom[None]).sum(1)  # in [-1, 1] for each pair
    slope = jax.nn.sigmoid(apart.threshold) * jax.nn.sigmoid(-apart.threshold)
    assert_allclose(gradient.threshold, -slope * 2 * lean * size, rtol=1e-4, atol=1e-6)


def test_one_differing_direction_pulls_on_its_thresholds_only():
    layer = by_hand([[-2.0, -1.0], [-3.0, 1.0]], ties="still")  # the second identity drops the last direction
    value, gradient = jax.value_and_grad(lambda layer: layer.diversity()[0])(layer)
    assert_allclose(value, 2 * 0.5)  # two ordered pairs
    slope = jax.nn.sigmoid(layer.threshold) * jax.nn.sigmoid(-layer.threshold)
    reach = np.tanh(2 * 0.5)
    assert_allclose(gradient.threshold, -slope * jnp.asarray([[0, reach], [0, -reach]]), rtol=1e-5)
    assert gradient.threshold[0, 1] < 0 < gradient.threshold[1, 1]
    for leaf in (gradient.U, gradient.s, gradient.V, gradient.bias):
        assert_array_equal(leaf, 0)


@pytest.mark.parametrize("ste", ["tanh", "identity", "sigmoid"])
def test_diversity_equals_the_sum_over_pairs(ste):
    layer = drawn(Prism(ste=ste, common=0.0, ties="still"), identities=5)

    def pairs(layer):
        on, size = layer.on(), jax.lax.stop_gradient(jnp.abs(layer.s))
        return jnp.sum(size * jnp.abs(on[:, None] - on[None]))

    fast = jax.jit(jax.value_and_grad(lambda layer: layer.diversity()[0]))(layer)
    slow = jax.jit(jax.value_and_grad(pairs))(layer)
    assert fast[0] > 0
    for one, other in zip(jax.tree.leaves(fast), jax.tree.leaves(slow), strict=True):
        assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_network_term_is_a_negated_mean_over_pairs_and_entries():
    layer = by_hand([[-2.0, -1.0], [-3.0, 1.0]])
    assert_allclose(network_regularisers(layer)["diversity"], -(2 * 0.5) / (2 * 2), rtol=1e-6)


def test_threshold_rate_scales_steps_but_not_the_start():
    plain, fast = (Prism(threshold_rate=rate).linear(6, 5, identities=3, key=KEY, kind="hidden", depth=0)
                   for rate in (1.0, 4.0))  # fmt: skip
    assert_allclose(fast.threshold * 4, plain.threshold, rtol=1e-6)
    assert_allclose(fast.spectra(), plain.spectra(), rtol=1e-5)


@pytest.mark.parametrize("rows", [6, 9])
def test_fresh_directions_are_orthonormal_and_leave_the_rest(rows):
    factor = jnp.linalg.qr(jax.random.normal(KEY, (rows, 6)))[0]
    chosen = jnp.asarray([False, True, False, True, True, False])
    after = fresh_directions(jax.random.key(1), factor, chosen)
    assert_array_equal(after[:, ~chosen], factor[:, ~chosen])
    assert_allclose(after.T @ after, np.eye(6), atol=1e-5)
    assert not np.allclose(after[:, chosen], factor[:, chosen], atol=1e-2)


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_revival_of_directions_that_nobody_uses(ratio):
    settings = Prism(reset_ratio=ratio, reset_interval=10, common=0.0)
    assert settings.refresh_interval() == 10
    threshold = jnp.asarray([[-5.0, 50, -5, 50, -5], [-5.0, 50, 50, 50, -5]])  # directions 1 and 3 are dead
    layer = eqx.tree_at(lambda layer: layer.threshold, drawn(settings, identities=2), threshold)
    after = jax.jit(settings.refresh)(layer, NOTHING, jax.random.key(1))
    dead = np.asarray([False, True, False, True, False]) & (ratio == 1)
    for old, new in ((layer.U, after.U), (layer.V, after.V), (layer.threshold, after.threshold)):
        assert_array_equal(np.any(old != new, axis=0), dead)
    assert_array_equal(after.s, jnp.where(dead, jnp.median(layer.s), layer.s))
    if ratio:
        assert np.all(after.on()[:, dead] == 1)
        assert np.all((after.threshold[:, dead] >= -10) & (after.threshold[:, dead] <= -5))
        assert after.orthogonality() < 1e-8


def test_common_directions_are_never_revived():
    layer = by_hand([[50.0, 50.0], [50.0, 50.0]], reset_ratio=1.0)
    after = layer.revived(KEY)
    assert_array_equal(after.U[:, :2], layer.U[:, :2])
    assert_array_equal(after.s, [3, 2, 0.75, 0.75])


def test_bad_settings_name_the_field():
    with pytest.raises(UserError, match=r"sharing\.common"):
        Prism(common=1.2).validate()


def test_more_roles_than_masks_is_one_clear_sentence():
    layer = Prism().linear(6, 4, identities=2, key=jax.random.key(0), kind="hidden", depth=0)
    with pytest.raises(UserError, match=r"identity: the array has the value 2 .* largest valid value is 1"):
        layer(jnp.ones((5, 3, 6)), jnp.array([0, 1, 2]))
    with pytest.raises(UserError, match=r"has 2 identities but the agent axis has length 3"):
        layer(jnp.ones((5, 3, 6)))


@pytest.mark.parametrize("device", ["cpu", "accelerator"])
def test_built_matrices_mean_the_same_on_every_device(monkeypatch, device):
    """One builds all directions in one product, the other the common ones apart."""
    monkeypatch.setattr(spectral, "_device", lambda: device)
    layer = drawn()
    assert_allclose(layer._built(), layer.dense(), rtol=1e-5, atol=1e-6)
    products = str(jax.make_jaxpr(layer._built)()).count("dot_general")
    assert products == (3 if device == "cpu" else 2)
    x = jnp.ones((100, 3, 6))
    monkeypatch.setattr(spectral, "LARGEST_BUILD", {device: layer.identities * 5 * 6})
    assert layer.builds_matrices(x.shape, None)
    monkeypatch.setattr(spectral, "LARGEST_BUILD", {device: layer.identities * 5 * 6 - 1})
    assert not layer.builds_matrices(x.shape, None)
