"""What every sharing layer promises, checked for all methods at once."""

import dataclasses
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from prism_marl.errors import UserError
from prism_marl.networks import mlp_actor, recurrent_agent
from prism_marl.sharing import METHODS, RoleLinear, method, network_regularisers, role_layers
from prism_marl.sharing.dense import acting

IDENTITIES = 3
SETTINGS = {name: settings_class() for name, settings_class in METHODS.items()}
SETTINGS |= {
    "adaps-random": METHODS["adaps"](random_masks=True),
    "hypermarl-linear": METHODS["hypermarl"](variant="linear"),
    "prism-literal": METHODS["prism"](spectrum_abs=False, detach_max=True, threshold_rate=3.0),
    "snp-exact": METHODS["snp"](exact=True, ratio=0.5),
}
KINDS = {"dico": "values"}  # where a method's own layer stands, if not everywhere
every_method = pytest.mark.parametrize("name", SETTINGS)


@cache
def layer_of(name: str, fan_in: int = 5, fan_out: int = 4) -> RoleLinear:
    """A layer away from its starting point, where many of them are all zeros, all ones or hardly masked."""
    kind = KINDS.get(name, "hidden")
    layer = SETTINGS[name].linear(fan_in, fan_out, identities=IDENTITIES, key=jax.random.key(7), kind=kind, depth=1)
    if hasattr(layer, "threshold"):
        layer = eqx.tree_at(lambda layer: layer.threshold, layer, layer.threshold / 3)
    leaves, structure = jax.tree.flatten(layer)
    noise = np.random.default_rng(0)
    moved = [
        leaf + noise.normal(0, 0.2, leaf.shape).astype(leaf.dtype) if eqx.is_inexact_array(leaf) else leaf
        for leaf in leaves
    ]
    return structure.unflatten(moved)


def meaning(layer: RoleLinear, x, identity):
    """One matrix per row of x, gathered the slow way."""
    identity = jnp.arange(x.shape[-2]) if identity is None else identity
    chosen = jnp.broadcast_to(identity, x.shape[:-1])
    return jnp.einsum("...oi,...i->...o", layer.dense()[chosen], x) + layer.dense_bias()[chosen]


def draw_case(shape: tuple[int, ...], mode: str, seed: int, fan_in: int = 5):
    """An input and an identity of each of the three kinds."""
    noise = np.random.default_rng(seed)
    agents = IDENTITIES if mode == "place" else 4
    x = jnp.asarray(noise.normal(size=(*shape, agents, fan_in)), jnp.float32)
    if mode == "place":
        return x, None
    size = (agents,) if mode == "agent" else (*shape, agents)
    return x, jnp.asarray(noise.integers(0, IDENTITIES, size), jnp.int32)


@every_method
@settings(max_examples=15, deadline=None)
@given(
    shape=st.sampled_from([(), (1,), (4,), (2, 3), (3, 1, 2)]),
    mode=st.sampled_from(["place", "agent", "sample"]),
    seed=st.integers(0, 999),
)
def test_fast_path_equals_meaning(name, shape, mode, seed):
    layer = layer_of(name)
    x, identity = draw_case(shape, mode, seed)
    dense, bias = (np.asarray(part) for part in meaning_tables(name))
    chosen = np.broadcast_to(np.arange(x.shape[-2]) if identity is None else identity, x.shape[:-1])
    expected = np.einsum("...oi,...i->...o", dense[chosen], x) + bias[chosen]
    assert_allclose(layer(x, identity), expected, rtol=2e-5, atol=2e-5)


@every_method
@pytest.mark.parametrize("mode", ["place", "agent", "sample"])
def test_what_acts_equals_meaning(name, mode):
    layer = acting(layer_of(name), by_role=mode == "sample")
    x, identity = draw_case((2, 3), mode, seed=5)
    dense, bias = (np.asarray(part) for part in meaning_tables(name))
    chosen = np.broadcast_to(np.arange(x.shape[-2]) if identity is None else identity, x.shape[:-1])
    expected = np.einsum("...oi,...i->...o", dense[chosen], x) + bias[chosen]
    assert_allclose(layer(x, identity), expected, rtol=2e-5, atol=2e-5)
    assert_allclose(layer.dense(), dense, rtol=2e-5, atol=2e-5)
    assert_allclose(layer.dense_bias(), bias, rtol=2e-5, atol=2e-5)


@cache
def meaning_tables(name: str):
    layer = layer_of(name)
    return layer.dense(), layer.dense_bias()


def distinct_layers() -> list[str]:
    """One name for each kind of layer (SePS uses that of NoPS and so on), and the variants of Prism."""
    kinds = {type(layer_shape(name)): name for name in reversed(SETTINGS)}
    return sorted({*kinds.values(), "prism", "prism-literal"})


def layer_shape(name: str) -> RoleLinear:
    build, kind = SETTINGS[name].linear, KINDS.get(name, "hidden")
    return jax.eval_shape(lambda: build(5, 4, identities=3, key=jax.random.key(0), kind=kind, depth=1))


@pytest.mark.parametrize("name", distinct_layers())
def test_gradients_equal_those_of_the_meaning(name):
    layer = layer_of(name)
    trainable, fixed = eqx.partition(layer, eqx.is_inexact_array)
    cases = [draw_case((2, 3), mode, seed) for seed, mode in enumerate(("place", "agent", "sample"))]

    def total(parts, apply):
        trainable, inputs = parts
        layer = eqx.combine(trainable, fixed)
        outputs = [apply(layer, x, identity) for x, (_, identity) in zip(inputs, cases, strict=True)]
        return sum(jnp.sum(jnp.sin(y)) for y in outputs)

    @jax.jit
    def gradients(parts):
        fast = jax.grad(total)(parts, lambda layer, x, identity: layer(x, identity))
        return fast, jax.grad(total)(parts, meaning)

    fast, slow = gradients((trainable, [x for x, _ in cases]))
    for one, other in zip(jax.tree.leaves(fast), jax.tree.leaves(slow), strict=True):
        assert_allclose(one, other, rtol=1e-4, atol=1e-4)


SIZES = {"inputs": 6, "actions": 4, "width": 8, "agents": IDENTITIES, "roles": IDENTITIES}


def check_private(module, identities: int):
    """Arrays marked private have one row per identity."""
    for field in dataclasses.fields(module):
        value = getattr(module, field.name)
        if field.metadata.get("private"):
            assert value.shape[0] == identities, field.name
        elif isinstance(value, eqx.Module):
            check_private(value, identities)


@every_method
@pytest.mark.parametrize("build", [recurrent_agent, mlp_actor])
def test_networks_hold_arrays_only_and_mark_what_is_private(name, build):
    sharing = SETTINGS[name]
    identities = sharing.identities(IDENTITIES, IDENTITIES)

    def traced(key):
        network = build(sharing, **SIZES, key=key)
        assert all(eqx.is_array(leaf) for leaf in jax.tree.leaves(network))
        for layer in role_layers(network).values():
            assert layer.identities == identities
            check_private(layer, identities)
        assert all(value.shape == () for value in network_regularisers(network).values())
        x, role = jnp.ones((2, IDENTITIES, 6)), jnp.zeros((2, IDENTITIES), jnp.int32)
        if build is mlp_actor:
            return network(x, role)
        return network(network.initial(2, IDENTITIES), x, role)[1]

    assert jax.eval_shape(traced, jax.random.key(0)).shape == (2, IDENTITIES, 4)  # traced, never compiled


def test_layers_in_lists_and_dicts_all_count():
    """They are named by their places, so that none hides another: Flax and Haiku keep layers so."""
    one, other = layer_of("prism"), layer_of("prism", 4, 5)
    places = {"a.0": one, "a.1": other, "b.c": one}
    assert role_layers({"a": [one, other], "b": {"c": one}}) == places
    value = network_regularisers([one, {"b": other}])["orthogonality"]
    assert_allclose(value, one.regularisers()["orthogonality"] + other.regularisers()["orthogonality"], rtol=1e-6)


@every_method
def test_settings_are_valid_and_describe_themselves(name):
    sharing = SETTINGS[name]
    sharing.validate()
    assert METHODS[sharing.method] is type(sharing)
    assert method(sharing.method.replace("_", "-")) is type(sharing)
    assert sharing.label and sharing.changed() == sharing


@every_method
def test_constrain_keeps_the_structure_of_gradients(name):
    def traced(key):
        network = recurrent_agent(SETTINGS[name], **SIZES, key=key)
        gradient = eqx.filter(network, eqx.is_inexact_array)
        constrained = SETTINGS[name].constrain(gradient, jnp.zeros((), int))
        assert jax.tree.structure(constrained) == jax.tree.structure(gradient)
        return constrained

    jax.eval_shape(traced, jax.random.key(0))


def test_unknown_method_names_the_nearest():
    with pytest.raises(UserError, match="did you mean 'prism'"):
        method("prysm")


def test_wrong_number_of_places_is_refused():
    with pytest.raises(UserError, match="3 identities but the agent axis has length 5"):
        layer_of("nops")(jnp.zeros((5, 5)))
