"""prism_marl.torch against prism_marl.sharing: the same weights give the same numbers and the same gradients."""

import copy
import dataclasses
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import prism_marl.torch as ours
from pairs import IDENTITIES, PARAMETERS, arrays, gradients, layer_of
from prism_marl.errors import UserError
from prism_marl.learners.regularisation import Balance, regularised
from prism_marl.sharing import FuPSID, FuPSIDSVD, Prism, network_regularisers

EXACT = {"rtol": 1e-9, "atol": 1e-12}
SETTINGS = {
    "defaults": {},
    "ties": {"ties": "apart"},
    "ste-identity": {"ste": "identity"},
    "ste-sigmoid": {"ste": "sigmoid"},
    "s-learns": {"div_detach_s": False, "ste": "sigmoid"},
    "literal": {"spectrum_abs": False},
    "max-constant": {"detach_max": True},
    "layer-weight": {"layer_base": 2.0},
    "r2": {"ortho_norm": "r2"},
    "rate": {"threshold_rate": 3.0},
    "frobenius": {"frob_decay": 0.1},
    "all-own": {"common": 0.0},
    "few-own": {"common": 0.6},
    "all-common": {"common": 1.0},
    "equal-values": {"init": "svd_of_orthogonal", "common": 0.0},
    "equal-start": {"threshold_init": "shared", "ties": "apart", "common": 0.2},
    "other": {"spectrum_abs": False, "detach_max": True, "div_detach_s": False, "ties": "apart", "threshold_rate": 0.5},
}
every_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
IDENTITY = {"index": None, "batch": [2, 0, 0, 1], "sample": np.random.default_rng(5).integers(0, IDENTITIES, (7, 4))}


def pair(settings: dict, **sizes):
    """A layer in JAX, and its copy."""
    layer = layer_of(Prism(**settings), **sizes)
    return layer, ours.SpectralLinear.of(layer)


def assert_same_gradients(layer, copied, theirs, mine) -> None:
    """The value and the gradients of ``theirs(layer)`` are those of ``mine(copied)``."""
    value, gradient = eqx.filter_value_and_grad(theirs)(layer)
    found = mine(copied)
    assert_allclose(found.detach(), value, **EXACT)
    for name, part in gradients(copied, found).items():
        assert_allclose(part, getattr(gradient, name), **EXACT, err_msg=name)


def test_settings_are_the_same_in_both():
    theirs = {field.name: field for field in dataclasses.fields(Prism) if field.name != "method"}
    mine = {field.name: field for field in dataclasses.fields(ours.Prism)}
    assert list(mine) == list(theirs)
    for name, field in mine.items():
        assert field.default == theirs[name].default, name
    assert set(Prism.__annotations__) - {"label", "unused_norms", "method"} == set(mine)
    assert ours.Prism.of(Prism(common=0.3, ties="apart", reset_interval=7)) == ours.Prism(common=0.3, ties="apart")
    of_role = ours.Prism(masks="role")
    assert of_role.identities(8, 3) == 3 and ours.Prism().identities(8, 3) == 8


@every_setting
@pytest.mark.parametrize("identity", IDENTITY.values(), ids=IDENTITY)
def test_outputs_and_their_gradients(settings, identity):
    layer, copied = pair(settings)
    noise = np.random.default_rng(0)
    agents = IDENTITIES if identity is None else 4
    x, weight = noise.normal(size=(7, agents, 6)), noise.normal(size=(7, agents, 8))
    who = None if identity is None else np.asarray(identity)
    assert_allclose(
        copied(torch.tensor(x), None if who is None else torch.tensor(who)).detach(), layer(x, who), **EXACT
    )
    assert_same_gradients(
        layer,
        copied,
        lambda layer: jnp.sum(layer(x, who) * weight),
        lambda copied: (
            copied(torch.tensor(x), None if who is None else torch.tensor(who)) * torch.tensor(weight)
        ).sum(),
    )


@every_setting
def test_matrices_and_masks(settings):
    layer, copied = pair(settings)
    assert_allclose(copied.spectra().detach(), layer.spectra(), **EXACT)
    for mine, theirs in zip(copied.spectrum(), layer.spectrum(), strict=True):
        assert_allclose(mine, theirs, **EXACT)
    assert (copied.identities, copied.masked) == (layer.identities, layer.masked)
    weight = np.random.default_rng(2).normal(size=(IDENTITIES, 8, 6))
    assert_same_gradients(
        layer,
        copied,
        lambda layer: jnp.sum(layer.dense() * weight),
        lambda copied: (copied.dense() * torch.tensor(weight)).sum(),
    )


@every_setting
def test_regularisers_and_their_gradients(settings):
    layer, copied = pair(settings)
    theirs, mine = network_regularisers(layer), ours.network_regularisers(copied)
    assert set(mine) == set(theirs) and ("diversity" in mine) == (layer.masked > 0)
    for name in theirs:
        assert_same_gradients(
            layer,
            copied,
            lambda layer, name=name: network_regularisers(layer)[name],
            lambda copied, name=name: ours.network_regularisers(copied)[name],
        )
    if layer.masked:
        assert_same_gradients(layer, copied, lambda layer: layer.diversity()[0], lambda copied: copied.diversity()[0])
        assert copied.diversity()[1] == layer.diversity()[1]
        if "init" not in settings:  # where all singular values are equal, all are on
            assert mine["diversity"] < -1e-3  # masks differ, so that there is something to compare
            assert np.abs(gradients(copied, mine["diversity"])["threshold"]).max() > 1e-4


def test_ties_matter():
    """Otherwise the comparison above would be of one rule twice."""
    still, apart = (pair({"ties": ties})[1] for ties in ("still", "apart"))
    found = [gradients(layer, layer.diversity()[0])["threshold"] for layer in (still, apart)]
    assert still.diversity()[0] == apart.diversity()[0] and not np.allclose(*found)


@pytest.mark.parametrize("ties", ["still", "apart"])
@pytest.mark.parametrize("identities", [1, 2, 5, 40])
def test_any_number_of_identities(identities, ties):
    layer, copied = pair({"ties": ties, "common": 0.1}, identities=identities)
    assert_same_gradients(layer, copied, lambda layer: layer.diversity()[0], lambda copied: copied.diversity()[0])
    assert set(ours.network_regularisers(copied)) == set(network_regularisers(layer))


def test_single_precision():
    layer, _ = pair({"ties": "apart", "common": 0.1})
    layer = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), layer)
    copied = ours.SpectralLinear.of(layer)
    assert {part.dtype for part in copied.parameters()} == {torch.float32}
    x = np.random.default_rng(0).normal(size=(7, IDENTITIES, 6)).astype(np.float32)
    assert_allclose(copied(torch.tensor(x)).detach(), layer(x), rtol=1e-5, atol=1e-6)
    for name, value in network_regularisers(layer).items():
        assert_allclose(ours.network_regularisers(copied)[name].detach(), value, rtol=1e-5)


class Net(eqx.Module):
    """Two layers."""

    first: eqx.Module
    last: eqx.Module

    def __call__(self, x):
        return self.last(jax.nn.relu(self.first(x)))


class TorchNet(torch.nn.Module):
    def __init__(self, net: Net):
        super().__init__()
        self.first, self.last = ours.SpectralLinear.of(net.first), ours.SpectralLinear.of(net.last)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


@pytest.mark.parametrize(
    "changes",
    [
        {"ties": "apart"},
        {"div_mode": "fixed", "diversity": 0.3, "frob_decay": 0.01, "layer_base": 2.0},
        {"common": 1.0},
        {"common": 0.0, "div_detach_s": False, "ste": "sigmoid", "threshold_rate": 2.0},
    ],
    ids=["adaptive", "fixed", "all-common", "s-learns"],
)
def test_forty_steps_of_adam_stay_together(changes):
    """Through the adaptive coefficient and its window too, which is shorter than the run."""
    settings = Prism(window=7, **changes)
    net = Net(layer_of(settings, depth=0), layer_of(settings, fan_in=8, fan_out=5, depth=1))
    copied = TorchNet(net)
    add_regularisers = ours.PrismLoss(ours.Prism.of(settings)).double()
    noise = np.random.default_rng(4)
    x, target = noise.normal(size=(40, 16, IDENTITIES, 6)), noise.normal(size=(40, 16, IDENTITIES, 5))
    optimiser, theirs = torch.optim.Adam(copied.parameters(), lr=0.01), optax.adam(0.01)
    start = arrays(net)

    def loss(net, balance, x, target):
        loss, balance, terms = regularised(jnp.mean((net(x) - target) ** 2), net, settings.penalties(), balance)
        return loss, (balance, terms)

    step = eqx.filter_jit(eqx.filter_value_and_grad(loss, has_aux=True))
    state, balance = theirs.init(net), Balance.empty(settings.window)
    for now in range(40):
        (expected, (balance, terms)), gradient = step(net, balance, x[now], target[now])
        updates, state = theirs.update(gradient, state)
        net = eqx.apply_updates(net, updates)
        value, told = add_regularisers(((copied(torch.tensor(x[now])) - torch.tensor(target[now])) ** 2).mean(), copied)
        assert set(told) == set(terms)
        for name, term in terms.items():
            assert_allclose(told[name].detach(), term, rtol=1e-6, atol=1e-10, err_msg=f"{name} at step {now}")
        assert_allclose(value.detach(), expected, rtol=1e-6)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
    end = arrays(net)
    for name, part in copied.state_dict().items():
        assert_allclose(part, end[name], rtol=1e-5, atol=1e-8, err_msg=name)
    assert np.abs(end["first.threshold"] - start["first.threshold"]).max(initial=0) > 0.1 or changes == {"common": 1.0}


def test_the_coefficient_goes_by_a_size_where_one_is_given_and_is_beta_without_differences():
    copied = pair({"common": 0.0, "window": 3})[1]
    add_regularisers = ours.PrismLoss(copied.settings)
    _, told = add_regularisers(torch.tensor(1e-9), copied, size=torch.tensor(2.0))
    assert_allclose(told["diversity_coefficient"], 5 * 2 / -told["diversity"].detach(), rtol=1e-6)
    with torch.no_grad():
        copied.threshold[:] = -5.0  # all masks are equal
    _, told = ours.PrismLoss(copied.settings)(torch.tensor(3.0), copied)
    assert told["diversity_coefficient"] == 5 and told["diversity"] == 0


def test_memory_of_the_coefficient_is_saved_with_the_rest():
    copied = pair({"common": 0.0, "window": 4})[1]
    first, second = ours.PrismLoss(copied.settings), ours.PrismLoss(copied.settings)
    for loss in (1.0, 2.0, 3.0):
        first(torch.tensor(loss), copied)
    second.load_state_dict(first.state_dict())
    one, other = (kept(torch.tensor(4.0), copied)[1]["diversity_coefficient"] for kept in (first, second))
    assert one == other != 5


def by_hand(threshold, **settings) -> ours.SpectralLinear:
    """Unit vectors as factors; the last two singular values are separate: |s| / max|s| = 1 and 1/2."""
    parts = (torch.eye(4), torch.tensor([3.0, 2, 1, 0.5]), torch.eye(4), torch.zeros(4), torch.tensor(threshold))
    return ours.SpectralLinear(ours.Prism(**settings), parts)


def test_equal_thresholds_of_many_identities_are_left_alone():
    """sign(0) is 0, whatever the number of identities; the one that the task has moved is pushed."""
    layer = by_hand([[-2.0, -1.0]] * 40, ties="apart")
    with torch.no_grad():
        layer.threshold[7, 1] += 0.5
    (gradient,) = torch.autograd.grad(layer.diversity()[0], layer.threshold)
    assert_array_equal(gradient[:, 0], 0)
    assert gradient[7, 1] > 0 > gradient[8, 1] == gradient[0, 1]


@pytest.mark.parametrize("common", [0.0, 0.3, 0.5, 0.6, 1.0])
@pytest.mark.parametrize("rank", [1, 4, 11, 25, 64])
def test_number_of_own_directions(common, rank):
    assert ours.Prism(common=common).masked(rank) == Prism(common=common).masked(rank)


@pytest.mark.parametrize(("fan_in", "fan_out"), [(9, 5), (5, 9), (7, 7)])
@pytest.mark.parametrize("init", ["svd_of_torch", "svd_of_orthogonal", "random_orthonormal"])
@pytest.mark.parametrize("part", ["leading", "trailing", "random"])
def test_start(fan_in, fan_out, init, part):
    settings = ours.Prism(init=init, common_part=part, threshold_scale=2.0, threshold_shift=1.0, threshold_rate=4.0)
    make = [settings.linear(fan_in, fan_out, identities=3, generator=torch.Generator().manual_seed(1)) for _ in "ab"]
    layer, again = make
    for name, value in layer.named_parameters():
        assert_array_equal(value.detach(), again.get_parameter(name).detach())
        assert value.dtype == torch.float32 and value.is_contiguous()
    assert ours.network_regularisers(layer)["orthogonality"] < 1e-9
    s = layer.s.detach().numpy()
    if init == "svd_of_orthogonal":
        assert_allclose(s, s[0])
    else:
        assert list(s) != sorted(s) if part == "random" else list(s) == sorted(s, reverse=part == "leading")
    if init != "random_orthonormal":  # the matrix that nn.Linear would have, or one with its norm
        entries = ((layer.U * layer.s) @ layer.V.T).detach().abs()
        assert init == "svd_of_orthogonal" or 0.8 * fan_in**-0.5 < entries.max() <= fan_in**-0.5 + 1e-6
        assert_allclose((s**2).sum() / (fan_in * fan_out), 1 / (3 * fan_in), rtol=0.35)
    assert layer.bias.abs().max() <= fan_in**-0.5
    thresholds = 4 * layer.threshold
    assert layer.threshold.shape == (3, settings.masked(len(s))) and -3 <= thresholds.min() <= thresholds.max() <= -1


def test_start_of_thresholds_and_weights_of_layers():
    shared = ours.Prism(threshold_init="shared", layer_base=2.0).linear(8, 8, identities=5, depth=3)
    assert_array_equal(shared.threshold.detach(), np.tile(shared.threshold[:1].detach(), (5, 1)))
    assert shared.layer_weight == 8
    own = ours.Prism().linear(8, 8, identities=5)
    assert (own.threshold != own.threshold[:1]).any() and own.layer_weight == 1


@pytest.mark.parametrize("ratio", [0.0, 1.0])
@pytest.mark.parametrize(("fan_in", "fan_out"), [(6, 5), (5, 5)])
def test_revival_is_the_one_of_jax(ratio, fan_in, fan_out):
    settings = Prism(reset_ratio=ratio, common=0.2)
    layer = settings.linear(fan_in, fan_out, identities=2, key=jax.random.key(0), kind="hidden", depth=0)
    threshold = jnp.asarray([[50.0, -5, 50, -5], [50.0, 50, 50, -5]])  # of the four own directions two are dead
    layer = eqx.tree_at(lambda layer: layer.threshold, layer, threshold)
    copied = ours.SpectralLinear.of(layer)
    before = copy.deepcopy(copied)
    copied.revive(torch.Generator().manual_seed(0))
    expected = layer.revived(jax.random.key(1))
    for name in PARAMETERS:
        was, now = getattr(before, name).detach(), getattr(copied, name).detach()
        changed = np.asarray(getattr(layer, name)) != np.asarray(getattr(expected, name))
        assert_array_equal(was != now, changed, err_msg=name)
    assert_allclose(copied.s.detach(), expected.s, rtol=1e-6)  # the median, also of an even number
    assert copied.regularisers()["orthogonality"] < 1e-9
    if ratio:
        assert (copied.spectrum()[1] == torch.as_tensor(np.array(expected.spectrum()[1]))).all()
        assert -10 <= copied.threshold[:, 0].min() <= copied.threshold[:, 0].max() <= -5
    ours.Prism(common=1.0).linear(4, 4, identities=2).revive()  # nothing to bring back


class Score(torch.nn.Module):
    """A number that depends on all parameters of a layer."""

    def __init__(self, layer: ours.SpectralLinear):
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ours.network_regularisers(self)["diversity"] + self.layer(x).sum()


def test_layers_work_with_transforms_of_functions():
    """torch.func: gradients of a function of parameters, and several seeds in one call."""
    nets, x = [Score(pair({"common": 0.0, "ties": "apart"})[1]) for _ in range(2)], torch.ones(2, 3, 6).double()
    with torch.no_grad():
        nets[1].layer.threshold += 0.3
    parameters, _ = torch.func.stack_module_state(nets)
    function = torch.func.grad(lambda parameters: torch.func.functional_call(nets[0], parameters, x))
    found = torch.func.vmap(function)(parameters)
    for index, net in enumerate(nets):
        for name, part in gradients(net, net(x)).items():
            assert_allclose(found[name][index].detach(), part, **EXACT, err_msg=name)


def test_copies_are_independent_and_every_prism_layer_can_be_copied():
    layer, copied = pair({})
    with torch.no_grad():
        copied.U.zero_()
    assert np.any(layer.U != 0)
    target = copy.deepcopy(copied)
    target.load_state_dict(pair({"common": 0.5})[1].state_dict())
    assert set(target.state_dict()) == set(PARAMETERS)
    factored = FuPSIDSVD().linear(6, 8, identities=3, key=jax.random.key(0), kind="hidden", depth=0)
    x = np.ones((2, 3, 6))
    assert_allclose(ours.SpectralLinear.of(factored)(torch.tensor(x)).detach(), factored(x), **EXACT)
    assert ours.network_regularisers(torch.nn.Linear(3, 3)) == {}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ours.Prism(common=2.0), r"common: 2.0 is outside \[0, 1\]"),
        (lambda: ours.Prism(window=0), r"window: 0 is outside \[1, inf\]"),
        (lambda: ours.Prism(reset_ratio=-1.0), "reset_ratio"),
        (lambda: ours.Prism(ties="loose"), "ties: 'loose' is not one of still, apart"),
        (lambda: ours.Prism(reset_interval=10), r"reset_interval: .* call revive\(\)"),
        (lambda: pair({})[1](torch.ones(2, 4, 6, dtype=torch.double)), "identity: 4 agents .* 3 identities"),
        (lambda: pair({})[1](torch.ones(2, 3, 5, dtype=torch.double)), r"x: has the shape \[2, 3, 5\].* agent, 6\]"),
        (lambda: pair({})[1](torch.ones(2, 3, 6), torch.tensor([0, 1, 3])), "identity: 0 to 3 is not within 0 to 2"),
        (lambda: pair({})[1](torch.ones(2, 3, 6), torch.tensor([0, 1, -1])), "identity: -1 to 1 is not within 0 to 2"),
        (lambda: pair({})[1](torch.ones(2, 3, 6), torch.tensor([0.0, 1, 2])), "identity: a tensor of torch.float32"),
        (
            lambda: ours.SpectralLinear.of(
                FuPSID().linear(3, 3, identities=2, key=jax.random.key(0), kind="hidden", depth=0)
            ),
            "layer: SharedLinear is not a layer of Prism",
        ),
    ],
)
def test_mistakes_are_explained(call, message):
    with pytest.raises(UserError, match=message):
        call()


def test_jax_is_not_imported():
    code = "import prism_marl.torch as prism; print(prism.Prism().linear(3, 4, identities=2))"
    code = f"import sys; sys.modules['jax'] = None; {code}"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("SpectralLinear(")
