"""What a sharing method is: a rule that says which weight matrix each identity uses in a layer.

A new method implements two things: a ``RoleLinear`` (the layer) and a frozen ``Sharing`` dataclass (its settings).
Networks, learners, the runner and the reports never ask which method is in use.

Trainable arrays have a floating dtype. Fixed arrays (node masks, cluster labels) have dtype bool or int, so
``equinox.is_inexact_array`` separates the two without a list of names.
"""

import abc
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Key

from prism_marl.errors import UserError
from prism_marl.sharing.arguments import checked_linear
from prism_marl.sharing.products import aligned, chosen, few_outputs, summed, times

Kind = Literal["input", "recurrent", "hidden", "values", "actions"]
"""The position of a layer: before a recurrent core, inside it, between, or as the last layer (action values of a
discrete agent, action vector of a continuous one). Methods treat these positions differently."""

Identity = Int[Array, "*#b a"] | None
"""The identity at each index of the agent axis: ``None`` means that index i is identity i, an array with one axis holds
for the whole batch (clusters), a full array gives it for every sample (unit types)."""

FEW_ROLES = 8  # identities of which a program holds one product each

Network = TypeVar("Network")


def private() -> Any:
    """Declare an array whose first axis is the identity; the footprint counts it as private to single agents."""
    return eqx.field(metadata={"private": True})


class RoleLinear(eqx.Module):
    """A linear layer for the whole team: one weight matrix for each identity."""

    identities: eqx.AbstractVar[int]

    @abc.abstractmethod
    def dense(self) -> Float[Array, "m o i"]:
        """The definition of the layer: one matrix per identity."""

    @abc.abstractmethod
    def dense_bias(self) -> Float[Array, "m o"]:
        """One bias vector per identity."""

    @abc.abstractmethod
    def __call__(self, x: Float[Array, "*b a i"], identity: Identity = None) -> Float[Array, "*b a o"]:
        """A fast form of ``dense()[identity] @ x + dense_bias()[identity]``."""

    def diversity(self) -> tuple[Float[Array, ""], int]:
        """Weighted sum of mask differences over ordered pairs of identities, and the number of entries of one mask."""
        return jnp.zeros(()), 0

    def regularisers(self) -> dict[str, Float[Array, ""]]:
        """Unweighted values of further regularisers by name; the learner weights them."""
        return {}

    def spectrum(self) -> tuple[Float[Array, "m r"], Bool[Array, "m r"]] | None:
        """The singular values of each identity and which of them are on; None for methods without them."""
        return None

    def factors(self) -> tuple[Float[Array, "o r"], Float[Array, "m r"], Float[Array, "i r"]] | None:
        """U, s and V with ``dense()`` = U diag(s_m) V^T, for methods that share U and V; None for others."""
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
    """The row of each identity. Few rows are read by a one-hot product: its gradient is a product, not a scatter. A GPU
    chooses among them instead, because that needs no memory for what is chosen."""
    if identity is None:
        return table
    if identity.ndim == 1 or table.shape[0] > 16:
        return table[identity]
    if jax.default_backend() != "cpu" and table.shape[0] <= FEW_ROLES:
        return chosen(table, identity)
    one_hot = jax.nn.one_hot(identity, table.shape[0], dtype=table.dtype)
    return jnp.matmul(one_hot, table, precision=jax.lax.Precision.HIGHEST)  # exact: a row times one


def apply_per_identity(
    x: Float[Array, "*b a i"], weight: Float[Array, "m o i"], identity: Identity
) -> Float[Array, "*b a o"]:
    """x times the matrix of its identity, without gathering a matrix per sample."""
    if identity is None or identity.ndim == 1:  # the same identities for the whole batch: gather once
        weight = weight if identity is None else weight[identity]
        if few_outputs(weight):
            return summed(x, weight)
        return jnp.einsum("...ai,aoi->...ao", *aligned(x, weight))
    if jax.default_backend() == "cpu" and len(weight) <= FEW_ROLES:
        # One product after the other: a CPU computes products with two axes of outputs several times slower.
        found = times(x, weight[0])
        for index in range(1, len(weight)):
            found = jnp.where((identity == index)[..., None], times(x, weight[index]), found)
        return found
    x, weight = aligned(x, weight)
    every = jnp.einsum("...ai,moi->...amo", x, weight)
    one_hot = jax.nn.one_hot(identity, weight.shape[0], dtype=x.dtype)
    return jnp.sum(every * one_hot[..., None], axis=-2)


def check_identity(layer: RoleLinear, x: Float[Array, "*b a i"], identity: Identity) -> None:
    """Raise unless the agent axis has one index per identity or the identity array has valid values."""
    if identity is None and layer.identities not in (1, x.shape[-2]):
        raise UserError(
            f"identity: this layer has {layer.identities} identities but the agent axis has length {x.shape[-2]}; "
            f"pass an identity array with values below {layer.identities}"
        )
    # Values can be checked only outside jit; inside, they are unknown and JAX would clamp them.
    if identity is not None and not isinstance(identity, Tracer) and identity.size:
        values = np.asarray(identity)  # numpy, because inside jit jnp would trace even a constant
        largest = values.max()
        if largest >= layer.identities or values.min() < 0:
            raise UserError(
                f"identity: the array has the value {largest} but this layer has {layer.identities} identities, "
                f"numbered from 0; the largest valid value is {layer.identities - 1}"
            )


class Experience(NamedTuple):
    """Transitions from which cluster methods learn how agents differ."""

    local: Float[Array, "n a o"]
    action: Float[Array, "n a u"]  # one-hot if discrete
    next_local: Float[Array, "n a o"]
    reward: Float[Array, " n"]
    valid: Bool[Array, "n a"]  # False for padding and for dead agents


@dataclass(frozen=True)
class Penalties:
    """The weights of the regularisers."""

    diversity: float = 0.0  # beta: strength of the diversity term
    adaptive: bool = True  # scale beta to the size of the task loss (learners/regularisation.py)
    window: int = 100  # number of past losses that the adaptive scale averages
    fixed: tuple[tuple[str, float], ...] = ()  # other regularisers by name, with constant weights


@dataclass(frozen=True)
class Sharing(abc.ABC):
    """Settings of one sharing method. Subclasses are frozen dataclasses whose fields are what a user can change."""

    method: str
    label: ClassVar[str]
    agent_id: ClassVar[bool] = True  # append a one-hot agent index to the input
    last_action: ClassVar[bool] = True  # append the last action if the task's preset asks for it
    unused_norms: ClassVar[bool] = False  # published actor counts include two LayerNorms that are never applied
    phased: ClassVar[bool] = False  # parts of the network start or stop learning during training: see ``constrain``
    role_setting: ClassVar[str] = "masks"  # the setting that makes roles the identities, for messages
    separate_networks: ClassVar[bool] = False  # identities share no number: all arrays are private
    targets_at_once: ClassVar[bool] = False  # weights that ``refresh`` changes do not wait for targets to follow

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        if "linear" in vars(cls):
            cls.linear = checked_linear(cls.linear, get_args(Kind))

    def __post_init__(self) -> None:
        self.validate()

    @abc.abstractmethod
    def linear(
        self, fan_in: int, fan_out: int, *, identities: int, key: Key[Array, ""], kind: Kind, depth: int
    ) -> RoleLinear:
        """The layer of this method at one position of a network; ``depth`` counts fc1, fc2, ... from 0."""

    def identities(self, agents: int, roles: int) -> int:
        """The number of identities of the layers."""
        return agents

    def reads_id(self) -> bool:
        """Whether agents read their index: of the class, where no setting says otherwise."""
        return self.agent_id

    def by_role(self) -> bool:
        """Whether the identity is the observation's role (unit type) instead of the agent index."""
        return False

    def initial_clusters(self, agents: int) -> Int[Array, " a"] | None:
        """The identity of each agent before ``prepare``, for methods that cluster agents."""
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
        """Called once after the pretraining steps; cluster methods set their labels and masks here. Jittable."""
        return network

    def refresh_interval(self) -> int:
        """Environment steps between two calls of ``refresh``; 0 = never."""
        return 0

    def refresh(self, network: Network, experience: Experience, key: Key[Array, ""]) -> Network:
        """Called at every interval except near the end of training, for resets and for clustering again. Jittable. A
        learner without replay keeps data for methods that define ``prepare``; others get none from it."""
        return network

    def critics(self) -> "Sharing | None":
        """How an ensemble of critics shares weights: each critic is an identity. None = critics are independent."""
        return None

    def reset_critic(self, network: Network, identity: Int[Array, ""], key: Key[Array, ""]) -> Network:
        """Reset one identity. Called for one critic after the other if ``critics`` has an interval."""
        return network

    def after_update(self, network: Network, gradient: Network) -> Network:
        """The network after an optimiser step, for methods that keep count of gradients or tie numbers together. The
        gradient is that of the step, before ``constrain``. Part of the compiled update."""
        return network

    def constrain(self, gradient: Network, step: Int[Array, ""]) -> Network:
        """The gradient, with zeros for arrays that do not learn at this environment step; needs ``phased``."""
        return gradient

    def validate(self) -> None:  # noqa: B027 - most methods have nothing to check
        """Raise ``UserError`` for settings that cannot work."""

    def validate_team(self, agents: int, roles: int) -> None:  # noqa: B027 - most settings fit any team
        """Raise ``UserError`` for settings that do not fit the team of a task."""

    def changed(self, **fields: Any) -> "Sharing":
        """A copy with some settings replaced."""
        return replace(self, **fields)


def role_layers(network: Any) -> dict[str, RoleLinear]:
    """All sharing layers of a network by their places in it: names of fields, keys of dicts, indices of lists."""
    found: dict[str, RoleLinear] = {}
    leaves = jax.tree_util.tree_leaves_with_path(network, is_leaf=lambda node: isinstance(node, RoleLinear))
    for path, leaf in leaves:
        if isinstance(leaf, RoleLinear):
            found[jax.tree_util.keystr(path, simple=True, separator=".")] = leaf
    return found


def map_layers(function: Callable[[int, Any], Any], network: Network, kinds: type | tuple[type, ...]) -> Network:
    """A copy in which each layer of these kinds is replaced by ``function(index, layer)``; the index counts from 0 in
    field order."""
    leaves, structure = jax.tree.flatten(network, is_leaf=lambda node: isinstance(node, kinds))
    index = itertools.count()
    return structure.unflatten([function(next(index), leaf) if isinstance(leaf, kinds) else leaf for leaf in leaves])


def network_regularisers(network: Any) -> dict[str, Float[Array, ""]]:
    """The regularisers of all layers: ``diversity`` is the mean over ordered pairs and entries, negated so that
    minimising it separates the masks; every other one is the sum over layers."""
    layers = list(role_layers(network).values())
    terms: dict[str, Float[Array, ""]] = {}
    for layer in layers:
        for name, value in layer.regularisers().items():
            terms[name] = terms.get(name, jnp.zeros(())) + value
    sums = [(layer.diversity(), layer.identities) for layer in layers]
    entries = sum(count for (_, count), _ in sums)
    pairs = max((m * (m - 1) for (_, count), m in sums if count), default=0)
    if entries and pairs:
        terms["diversity"] = -sum((value for (value, _), _ in sums), jnp.zeros(())) / float(pairs * entries)
    return terms
