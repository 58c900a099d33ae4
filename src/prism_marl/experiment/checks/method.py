"""Does a sharing method keep what its layers promise? Checked on the layers that a task's network really has."""

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from prism_marl.errors import UserError
from prism_marl.experiment.checks.calls import guarded, layout, quick
from prism_marl.learners.base import Learner
from prism_marl.networks.build import build_agent
from prism_marl.sharing.base import RoleLinear, Sharing, network_regularisers
from prism_marl.types import EnvSpec

BATCH = 2
SEEDS = 2  # layers live under vmap, so they are checked there
PLACES = 5  # agents at most, where an array says who stands where
TOLERANCE = 1e-3  # relative to the largest number


class Place(NamedTuple):
    """One call of ``Sharing.linear``."""

    fan_in: int
    fan_out: int
    identities: int
    kind: Any
    depth: int

    def __str__(self) -> str:
        return f"kind '{self.kind}', depth {self.depth}"


def check_method(sharing: Sharing, spec: EnvSpec, *, learner: Learner | None = None, width: int = 16) -> None:
    """Check a sharing method on the network that it gives for a task. Raises ``UserError``.

    Above all, the fast path of each layer must equal its meaning: ``layer(x, identity)`` is
    ``dense()[identity] @ x + dense_bias()[identity]``, because training uses the former and playing the latter.
    ``learner`` builds the network; without one it is the usual network of the task at this width.
    """
    who = type(sharing).__name__
    identities = _check_identities(sharing, spec)
    network, places = _network(sharing, spec, learner, width)
    for place in dict.fromkeys(places):
        if place.identities != identities:
            raise UserError(
                f"{who}.identities: gives {identities} identities but the network asks linear() for "
                f"{place.identities}; return the same number for {spec.agents} agents and {spec.roles} roles always"
            )
        check_layer(functools.partial(_linear, sharing, place), place, who)
    _check_penalties(sharing, network, who)
    if learner is not None:
        _check_changes(sharing, learner)


def _check_identities(sharing: Sharing, spec: EnvSpec) -> int:
    who, identities = type(sharing).__name__, sharing.identities(spec.agents, spec.roles)
    if not isinstance(identities, int) or identities < 1:
        raise UserError(f"{who}.identities: {identities!r} is not a positive whole number; return one")
    clusters = sharing.initial_clusters(spec.agents)
    if sharing.by_role():
        if identities < spec.roles:
            raise UserError(
                f"{who}.identities: {identities} are fewer than the task's {spec.roles} roles; return those"
            )
    elif clusters is not None:
        values = np.asarray(clusters)
        if (
            values.shape != (spec.agents,)
            or values.dtype.kind not in "iu"
            or np.any((values < 0) | (values >= identities))
        ):
            raise UserError(
                f"{who}.initial_clusters: {values.tolist()} does not give each of {spec.agents} agents an identity "
                f"below {identities}; return an integer array of that length"
            )
    elif identities not in (1, spec.agents):
        raise UserError(
            f"{who}.identities: {identities} identities for {spec.agents} agents, and nothing says who is who; return "
            f"{spec.agents} or 1, or define initial_clusters or by_role"
        )
    return identities


def _network(sharing: Sharing, spec: EnvSpec, learner: Learner | None, width: int) -> tuple[Any, list[Place]]:
    """The agent network as shapes, and which layers it asks the method for."""
    found: list[Place] = []
    recorder = copy.copy(sharing)

    def linear(fan_in: int, fan_out: int, *, identities: int, key: Any, kind: Any, depth: int) -> RoleLinear:
        found.append(Place(fan_in, fan_out, identities, kind, depth))
        layer = _linear(sharing, found[-1], key)
        if not isinstance(layer, RoleLinear):
            raise UserError(
                f"{type(sharing).__name__}.linear ({found[-1]}): returns a {type(layer).__name__}; return a subclass "
                "of sharing.RoleLinear"
            )
        return layer

    object.__setattr__(recorder, "linear", linear)

    def usual(key: Any) -> Any:
        return build_agent(spec, recorder, width=width, last_action=False, key=key)

    build, key = usual, jax.random.key(0)
    if learner is not None:
        copied = copy.copy(learner)
        object.__setattr__(copied, "sharing", recorder)
        build = copied.build_agent
    what = f"{type(sharing).__name__}.linear"
    network = guarded(what, jax.eval_shape, build, key)
    if not found:  # a learner that keeps its method elsewhere
        guarded(what, jax.eval_shape, usual, key)
    return network, found


def _check_penalties(sharing: Sharing, network: Any, who: str) -> None:
    """Every term that has a weight exists."""
    weighted = {name for name, weight in sharing.penalties().fixed if weight}
    missing = sorted(weighted - set(jax.eval_shape(network_regularisers, network)))
    if missing:
        raise UserError(f"{who}.penalties: no layer has the term '{missing[0]}'; return it from regularisers()")


def _linear(sharing: Sharing, place: Place, key: Any) -> RoleLinear:
    kind: Any = place.kind
    return sharing.linear(
        place.fan_in, place.fan_out, identities=place.identities, key=key, kind=kind, depth=place.depth
    )


def check_layer(build: Callable[[Any], Any], place: Place, who: str) -> None:
    """Check one layer; ``build`` makes it from a key."""
    shapes = guarded(f"{who}.linear ({place})", jax.eval_shape, build, jax.random.key(0))
    title = f"{type(shapes).__name__} ({place})"
    if shapes.identities != place.identities:
        raise UserError(
            f"{title}: identities is {shapes.identities} but should be {place.identities}; pass on what linear() gets"
        )
    _check_leaves(shapes, title, place.identities)
    _checked_terms(shapes, title)
    m, o, i = place.identities, place.fan_out, place.fan_in
    for name, shape in (("dense", (m, o, i)), ("dense_bias", (m, o))):
        found = guarded(f"{title}.{name}", jax.eval_shape, lambda layer, name=name: getattr(layer, name)(), shapes)
        if getattr(found, "shape", None) != shape:
            raise UserError(f"{title}.{name}: has shape {_shape(found)}; return {list(shape)}, one for each identity")
    _check_equal(build, place, title)


def _check_equal(build: Callable[[Any], Any], place: Place, title: str) -> None:
    """The fast path against the meaning: without an identity array, with one for the batch, with one per sample."""
    rng, m, forms = np.random.default_rng(0), place.identities, []
    few = min(m, PLACES)
    for agents, axes in ((m, None), (few, (few,)), (few, (BATCH, few))):
        identity = None if axes is None else rng.integers(0, m, axes, np.int32)
        forms.append((rng.standard_normal((SEEDS, BATCH, agents, place.fan_in), np.float32), identity))

    def one(key: Any, xs: list[Any]) -> Any:
        layer = build(key)
        called = []
        for x, (_, identity) in zip(xs, forms, strict=True):
            there = None if identity is None else jnp.asarray(identity)
            called.append(_called(layer, x, there, title))
        return called, layer.dense(), layer.dense_bias()

    keys = jax.random.split(jax.random.key(1), SEEDS)
    called, dense, bias = jax.device_get(quick(jax.vmap(one))(keys, [x for x, _ in forms]))
    for (x, identity), got in zip(forms, called, strict=True):
        chosen = slice(None) if identity is None else identity
        if identity is not None and identity.ndim == 2:
            meant = np.einsum("nbaoi,nbai->nbao", dense[:, chosen], x) + bias[:, chosen]
        else:
            meant = np.einsum("naoi,nbai->nbao", dense[:, chosen], x) + bias[:, chosen][:, None]
        error = float(np.max(np.abs(got - meant), initial=0.0))
        if not error <= TOLERANCE * max(1.0, float(np.max(np.abs(meant), initial=0.0))):
            given = "without an identity array" if identity is None else f"with identities {identity.tolist()}"
            raise UserError(
                f"{title}: __call__ {given} differs from dense()[identity] @ x + dense_bias()[identity] by up to "
                f"{error:.2g}; training uses the former and playing the latter, so make them equal"
            )


def _called(layer: RoleLinear, x: Any, identity: Any, title: str) -> Any:
    given = "no identity array" if identity is None else f"identities of shape {list(identity.shape)}"
    what = f"{title}.__call__ on x of shape {list(x.shape)} with {given}"
    found = guarded(what, layer, x, identity)
    shape = (*x.shape[:-1], layer.dense_bias().shape[-1])
    if getattr(found, "shape", None) != shape:
        raise UserError(f"{what}: returns shape {_shape(found)}; return {list(shape)}")
    return found


def _check_leaves(layer: Any, title: str, identities: int) -> None:
    """What trains is floating, and what is private has one entry for each identity."""
    for field in dataclasses.fields(layer):
        values = jax.tree.leaves(getattr(layer, field.name)) if not field.metadata.get("static") else []
        for value in values:
            kinds = getattr(field.type, "dtypes", ())
            meant = kinds and all("float" in kind for kind in kinds)
            if meant and not jnp.issubdtype(value.dtype, jnp.floating):
                raise UserError(
                    f"{title}.{field.name}: is declared as Float but holds {value.dtype}, so it would never train; "
                    "make it floating"
                )
            if field.metadata.get("private") and (not value.ndim or value.shape[0] != identities):
                raise UserError(
                    f"{title}.{field.name}: private() says that its first axis is the identity, but its shape is "
                    f"{list(value.shape)} for {identities} identities; put that axis first or leave out private()"
                )
    if not any(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(layer)):
        raise UserError(f"{title}: holds no floating array, so nothing of it trains; store its weights as floats")


def _checked_terms(layer: RoleLinear, title: str) -> None:
    """Regularisers are scalars by name, a spectrum is two matrices of one shape, diversity a scalar and a count."""
    terms = guarded(f"{title}.regularisers", jax.eval_shape, type(layer).regularisers, layer)
    if not isinstance(terms, dict) or any(getattr(value, "shape", None) != () for value in terms.values()):
        raise UserError(
            f"{title}.regularisers: return a dict of scalars by name, such as {{'mine': jnp.sum(self.w**2)}}"
        )
    found = guarded(f"{title}.diversity", jax.eval_shape, type(layer).diversity, layer)
    if not isinstance(found, tuple) or len(found) != 2 or getattr(found[0], "shape", None) != ():
        raise UserError(f"{title}.diversity: return a scalar and the number of entries behind it")
    spectrum = guarded(f"{title}.spectrum", jax.eval_shape, type(layer).spectrum, layer)
    if spectrum is None:
        return
    shapes = [getattr(part, "shape", ()) for part in spectrum] if isinstance(spectrum, tuple) else []
    if len(shapes) != 2 or shapes[0] != shapes[1] or len(shapes[0]) != 2 or shapes[0][0] != layer.identities:
        raise UserError(
            f"{title}.spectrum: return values and switches, both of shape [{layer.identities}, values], or None"
        )


def _check_changes(sharing: Sharing, learner: Learner) -> None:
    """``prepare``, ``refresh``, ``after_update`` and ``constrain`` give back a network of the same shapes."""
    key = jax.random.key(0)
    network = jax.eval_shape(learner.build_agent, key)
    experience = jax.eval_shape(lambda: learner.experience(learner.buffer()))
    calls: dict[str, tuple[Any, ...]] = dict.fromkeys(("prepare", "refresh"), (network, experience, key))
    gradient = eqx.filter(network, lambda leaf: jnp.issubdtype(leaf.dtype, jnp.inexact))
    calls |= {"after_update": (network, gradient), "constrain": (gradient, jnp.int32(0))}
    for name, arguments in calls.items():
        what = f"{type(sharing).__name__}.{name}"
        after = guarded(what, jax.eval_shape, getattr(sharing, name), *arguments)
        if layout(after) != layout(arguments[0]):
            given = "gradient" if name == "constrain" else "network"
            raise UserError(
                f"{what}: returns other arrays than it gets; return a {given} with the same shapes and types"
            )


def _shape(value: Any) -> Any:
    return list(value.shape) if hasattr(value, "shape") else type(value).__name__
