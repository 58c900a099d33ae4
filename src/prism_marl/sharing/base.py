"""What a sharing method is: a rule that says which weight matrix each identity uses in a layer.

Two things to implement for a new method: a ``RoleLinear`` (the layer) and a frozen ``Sharing`` dataclass (its
settings). Networks, learners, the runner and the reports never ask which method is in use.

Trainable arrays have a floating dtype. Fixed arrays (node masks, cluster labels) are stored as bool or int, so that
``equinox.is_inexact_array`` separates the two everywhere without a list of names.
"""

import abc
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Key

from prism_marl.errors import UserError
from prism_marl.sharing.products import aligned, few_outputs, summed

Kind = Literal["input", "recurrent", "hidden", "values", "actions"]
"""Where a layer stands: before a recurrent core, inside it, between, or as the last layer (action values of a
discrete agent, action vector of a continuous one). Methods treat these places differently."""

Identity = Int[Array, "*#b a"] | None
"""Which identity acts at each place of the agent axis: ``None`` means place i is identity i, an array of one axis
holds for the whole batch (clusters), a full array says it for every sample (unit types)."""


Network = TypeVar("Network")


def private() -> Any:
    """Declare an array whose first axis is the identity: what each further agent costs."""
    return eqx.field(metadata={"private": True})


class RoleLinear(eqx.Module):
    """One logical linear layer for the whole population."""

    identities: eqx.AbstractVar[int]

    @abc.abstractmethod
    def dense(self) -> Float[Array, "m o i"]:
        """What the layer means: one matrix per identity."""

    @abc.abstractmethod
    def dense_bias(self) -> Float[Array, "m o"]:
        """One bias vector per identity."""

    @abc.abstractmethod
    def __call__(self, x: Float[Array, "*b a i"], identity: Identity = None) -> Float[Array, "*b a o"]:
        """The fast path; equal to ``dense()[identity] @ x + dense_bias()[identity]``."""

    def diversity(self) -> tuple[Float[Array, ""], int]:
        """Weighted sum of mask differences over ordered pairs of identities, and the number of entries behind it."""
        return jnp.zeros(()), 0

    def regularizers(self) -> dict[str, Float[Array, ""]]:
        """Raw values of further terms by name; the learner weights them."""
        return {}

    def spectrum(self) -> tuple[Float[Array, "m r"], Bool[Array, "m r"]] | None:
        """Singular values that each identity uses and which of them are switched on, for methods that have them."""
        return None


class RoleGate(eqx.Module):
    """Fixed node masks on the output of a recurrent core, one row per identity (SNP, AdaPS)."""

    mask: Bool[Array, "m h"] = private()

    def __call__(self, x: Float[Array, "*b a h"], identity: Identity = None) -> Float[Array, "*b a h"]:
        return x * select_rows(self.mask.astype(x.dtype), identity)


def uniform_weight(key: Key[Array, ""], *shape: int, fan_in: int) -> Float[Array, "..."]:
    """PyTorch's default for Linear and GRU, weights and biases alike: U(-1/sqrt(fan_in), 1/sqrt(fan_in))."""
    bound = fan_in**-0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


def select_rows(table: Float[Array, "m f"], identity: Identity) -> Float[Array, "*b a f"]:
    """Row of each identity. Few rows go through a one-hot product, whose gradient is a product and not a scatter."""
    if identity is None:
        return table
    if identity.ndim == 1 or table.shape[0] > 16:
        return table[identity]
    one_hot = jax.nn.one_hot(identity, table.shape[0], dtype=table.dtype)
    return jnp.matmul(one_hot, table, precision=jax.lax.Precision.HIGHEST)  # exact: a row times one


def apply_per_identity(
    x: Float[Array, "*b a i"], weight: Float[Array, "m o i"], identity: Identity
) -> Float[Array, "*b a o"]:
    """x times the matrix of its identity, without ever gathering a matrix per sample."""
    if identity is None or identity.ndim == 1:  # one identity per agent for the whole batch: gather once
        weight = weight if identity is None else weight[identity]
        if few_outputs(weight):
            return summed(x, weight)
        return jnp.einsum("...ai,aoi->...ao", *aligned(x, weight))
    x, weight = aligned(x, weight)
    every = jnp.einsum("...ai,moi->...amo", x, weight)
    one_hot = jax.nn.one_hot(identity, weight.shape[0], dtype=x.dtype)
    return jnp.sum(every * one_hot[..., None], axis=-2)


def check_identity(layer: RoleLinear, x: Float[Array, "*b a i"], identity: Identity) -> None:
    """Without an identity array the agent axis itself must be the identity axis; with one, its values must exist."""
    if identity is None and layer.identities not in (1, x.shape[-2]):
        raise UserError(
            f"identity: this layer knows {layer.identities} identities but the agent axis has {x.shape[-2]} places; "
            f"pass an identity array with values below {layer.identities}"
        )
    # Inside jit values are unknown and JAX would clamp them; outside, a wrong role is caught here.
    if identity is not None and not isinstance(identity, Tracer) and identity.size:
        values = np.asarray(identity)  # numpy: inside jit even a constant would become unknown to jnp
        largest = values.max()
        if largest >= layer.identities or values.min() < 0:
            raise UserError(
                f"identity: the array names identity {largest} but this layer knows {layer.identities}, "
                f"numbered from 0; the largest valid value is {layer.identities - 1}"
            )


def pairwise_difference(
    on: Float[Array, "m *f"], magnitude: Float[Array, "*f"], order: Float[Array, "m *f"] | None = None
) -> Float[Array, ""]:
    """Sum over ordered pairs (p, q) of |magnitude * (on_p - on_q)|, in one pass over the masks instead of m passes.

    ``on`` is 0 or 1, so an entry with c ones among m masks contributes 2 c (m - c) magnitude. Writing that as a sum
    of ``on`` times a constant keeps the gradient of the absolute values: +-(number of masks that differ).

    Where two masks agree the absolute value has a kink, and every number in [-1, 1] is a subgradient. Without
    ``order`` it is 0. With ``order``, whose signs are the masks, it is the sign of order_p - order_q: the value stays
    the same, and masks that agree are moved apart in the order that they have already: where it is that of thresholds
    which began at random, that is the order of a random sample and not the task's (docs/design.md).
    """
    fixed = jax.lax.stop_gradient(on)
    if order is None:
        ones = fixed.sum(axis=0)
        slope = jnp.where(fixed > 0, on.shape[0] - ones, -ones)
    else:
        slope = _standing(jax.lax.stop_gradient(order))
    return jnp.sum(on * (2.0 * slope) * magnitude)


def _standing(value: Float[Array, "m *f"]) -> Float[Array, "m *f"]:
    """How many of the other rows lie below, minus how many lie above."""
    if value.shape[0] <= 32:  # one small fused kernel; sorting pays from here on
        return jnp.sum(jnp.sign(value[:, None] - value[None, :]), axis=1)
    rows = value.reshape(value.shape[0], -1)
    order = jnp.argsort(rows, axis=0)
    places = jnp.broadcast_to(2 * jnp.arange(rows.shape[0])[:, None] - (rows.shape[0] - 1), rows.shape)
    standing = jnp.put_along_axis(jnp.zeros_like(rows), order, places.astype(rows.dtype), axis=0, inplace=False)
    return standing.reshape(value.shape)


class Experience(NamedTuple):
    """Transitions from which cluster methods learn what each agent is."""

    local: Float[Array, "n a o"]
    action: Float[Array, "n a u"]  # one-hot where discrete
    next_local: Float[Array, "n a o"]
    reward: Float[Array, " n"]
    valid: Bool[Array, "n a"]  # False for padding and for dead agents


@dataclass(frozen=True)
class Penalties:
    """How the learner weights what ``regularizers`` of the network returns."""

    diversity: float = 0.0  # beta: strength of the diversity term
    adaptive: bool = True  # scale it to the size of the task loss (learners/balance.py), or use beta as it is
    window: int = 100  # how many past losses the adaptive scale averages
    fixed: tuple[tuple[str, float], ...] = ()  # other terms by name, with constant weights


@dataclass(frozen=True)
class Sharing(abc.ABC):
    """Settings of one sharing method. Subclasses are frozen dataclasses whose fields are what a user can change."""

    method: str
    label: ClassVar[str]
    agent_id: ClassVar[bool] = True  # append a one-hot agent index to the input
    last_action: ClassVar[bool] = True  # append the last action where the task's preset asks for it
    unused_norms: ClassVar[bool] = False  # published actor counts include two LayerNorms that are never applied
    phased: ClassVar[bool] = False  # parts of the network start or stop learning on the way: see ``constrain``
    separate_networks: ClassVar[bool] = False  # identities have no number in common: all arrays are private

    @abc.abstractmethod
    def linear(
        self, fan_in: int, fan_out: int, *, identities: int, key: Key[Array, ""], kind: Kind, depth: int
    ) -> RoleLinear:
        """The layer of this method for one place in a network; ``depth`` counts fc1, fc2, ... from 0."""

    def identities(self, agents: int, roles: int) -> int:
        """How many identities the layers tell apart."""
        return agents

    def by_role(self) -> bool:
        """Whether identity is the observation's role (unit type) instead of the agent index."""
        return False

    def initial_clusters(self, agents: int) -> Int[Array, " a"] | None:
        """Identity of each agent before ``prepare``, for methods that put agents into clusters."""
        return None

    def gate(self, size: int, *, identities: int, key: Key[Array, ""]) -> RoleGate | None:
        """Node masks on the recurrent state, for methods that prune nodes."""
        return None

    def penalties(self) -> Penalties:
        """Weights of the regularisers."""
        return Penalties()

    def pretraining_steps(self) -> int:
        """Environment steps with random legal actions before ``prepare``; they count towards the step budget."""
        return 0

    def prepare(self, network: Network, experience: Experience, key: Key[Array, ""]) -> Network:
        """Called once after the pretraining steps: cluster methods set their labels and masks here. Jittable."""
        return network

    def refresh_interval(self) -> int:
        """Environment steps between two calls of ``refresh``; 0 = never."""
        return 0

    def refresh(self, network: Network, experience: Experience, key: Key[Array, ""]) -> Network:
        """Called at every interval except near the end of training: resets and re-clustering. Jittable."""
        return network

    def critics(self) -> "Sharing | None":
        """How an ensemble of critics shares weights, its members being the identities; None = not at all."""
        return None

    def renew(self, network: Network, identity: Int[Array, ""], key: Key[Array, ""]) -> Network:
        """Give one identity a fresh start; called for one critic after the other, if ``critics`` has an interval."""
        return network

    def constrain(self, gradient: Network, step: Int[Array, ""]) -> Network:
        """The gradient with zeros for what does not learn at this environment step; goes with ``phased``."""
        return gradient

    def validate(self) -> None:  # noqa: B027 - most methods have nothing to check
        """Raise ``UserError`` for settings that cannot work."""

    def changed(self, **fields: Any) -> "Sharing":
        """A copy with some settings replaced."""
        return replace(self, **fields)


def role_layers(network: Any) -> dict[str, RoleLinear]:
    """Every sharing layer of a network by the name of its field, in order."""
    found: dict[str, RoleLinear] = {}
    leaves = jax.tree_util.tree_leaves_with_path(network, is_leaf=lambda node: isinstance(node, RoleLinear))
    for path, leaf in leaves:
        if isinstance(leaf, RoleLinear):
            found[".".join(part.name for part in path if hasattr(part, "name"))] = leaf
    return found


def map_layers(function: Callable[[int, Any], Any], network: Network, kinds: type | tuple[type, ...]) -> Network:
    """A copy in which every layer of some kinds is ``function(place, layer)``; places count from 0 in field order."""
    leaves, structure = jax.tree.flatten(network, is_leaf=lambda node: isinstance(node, kinds))
    places = itertools.count()
    return structure.unflatten([function(next(places), leaf) if isinstance(leaf, kinds) else leaf for leaf in leaves])


def network_regularizers(network: Any) -> dict[str, Float[Array, ""]]:
    """Terms of all layers together: ``diversity`` as the mean over ordered pairs and entries, negated so that
    minimising it separates the masks; every other term as the plain sum over layers."""
    layers = list(role_layers(network).values())
    terms: dict[str, Float[Array, ""]] = {}
    for layer in layers:
        for name, value in layer.regularizers().items():
            terms[name] = terms.get(name, jnp.zeros(())) + value
    sums = [(layer.diversity(), layer.identities) for layer in layers]
    entries = sum(count for (_, count), _ in sums)
    pairs = max((m * (m - 1) for (_, count), m in sums if count), default=0)
    if entries and pairs:
        terms["diversity"] = -sum((value for (value, _), _ in sums), jnp.zeros(())) / float(pairs * entries)
    return terms
