"""HyperMARL: a hypernetwork generates the weights of an agent from the agent's identity alone
(Tessera et al., NeurIPS 2025)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from prism_marl.errors import UserError
from prism_marl.sharing.base import (
    Identity,
    RoleLinear,
    Sharing,
    apply_per_identity,
    check_identity,
    private,
    select_rows,
)
from prism_marl.sharing.fups import SharedLinear, shared_linear
from prism_marl.sharing.nops import IndependentLinear
from prism_marl.sharing.orthonormal import random_orthogonal

RELU_GAIN = 2**0.5


def orthogonal(key: Key[Array, ""], count: int, fan_out: int, fan_in: int, gain: float):
    """Several independent matrices with orthonormal rows or columns, times a gain."""
    return gain * jax.vmap(lambda key: random_orthogonal(key, fan_out, fan_in))(jax.random.split(key, count))


class Hypernet(eqx.Module):
    """One hidden layer, then one number for every weight of a layer."""

    hidden: Float[Array, "h e"]
    hidden_bias: Float[Array, " h"]
    head: Float[Array, "h *f"]
    head_bias: Float[Array, "*f"]

    def __call__(self, embedding: Float[Array, "m e"]) -> Float[Array, "m *f"]:
        features = jax.nn.relu(embedding @ self.hidden.T + self.hidden_bias)
        return jnp.tensordot(features, self.head, axes=1) + self.head_bias


class HyperLinear(RoleLinear):
    """W_m = f(e_m) and b_m = g(e_m), where e_m is a short vector that is learned."""

    weights: Hypernet
    biases: Hypernet
    embedding: Float[Array, "m e"] = private()
    identities: int = eqx.field(static=True)

    def dense(self) -> Float[Array, "m o i"]:
        return self.weights(self.embedding)

    def dense_bias(self) -> Float[Array, "m o"]:
        return self.biases(self.embedding)

    def __call__(self, x: Float[Array, "*b a i"], identity: Identity = None) -> Float[Array, "*b a o"]:
        check_identity(self, x, identity)
        return apply_per_identity(x, self.dense(), identity) + select_rows(self.dense_bias(), identity)


class OffsetLinear(RoleLinear):
    """W_m = E_m + C: a linear hypernetwork with a one-hot index as input is a matrix per identity plus an offset."""

    bank: IndependentLinear
    offset: SharedLinear
    identities: int = eqx.field(static=True)

    def dense(self) -> Float[Array, "m o i"]:
        return self.bank.weight + self.offset.weight

    def dense_bias(self) -> Float[Array, "m o"]:
        return self.bank.bias + self.offset.bias

    def __call__(self, x: Float[Array, "*b a i"], identity: Identity = None) -> Float[Array, "*b a o"]:
        check_identity(self, x, identity)
        return apply_per_identity(x, self.dense(), identity) + select_rows(self.dense_bias(), identity)


@dataclass(frozen=True)
class HyperMARL(Sharing):
    """A hypernetwork generates each agent's weights from a learned embedding of the agent.

    As in the official recurrent agent, the GRU and the layer before it are shared. There, all layers use one embedding
    per agent; here every layer has its own, so that a layer remains one self-contained module.
    """

    label: ClassVar[str] = "HyperMARL"
    agent_id: ClassVar[bool] = False

    method: Literal["hypermarl"] = "hypermarl"
    variant: Literal["mlp", "linear"] = "mlp"  # hypernetwork with a hidden layer, or matrices per agent + shared one
    embedding: int = 4  # length of an agent's embedding: 4 to 8 in the paper, where 64 is worse
    hidden: int = 64  # width of the hypernetwork (official code)
    gain: float = RELU_GAIN  # initial scale of generated hidden layers (official code)
    values_gain: float = 1.0  # initial scale of a generated layer of action values (official code, critic)
    actions_gain: float = 0.01  # initial scale of a generated layer of continuous actions (official code, actor)

    def validate(self) -> None:
        for name in ("embedding", "hidden"):
            if getattr(self, name) < 1:
                raise UserError(f"sharing.{name}: {getattr(self, name)} is not a positive length")

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        if kind in ("input", "recurrent"):
            return shared_linear(fan_in, fan_out, identities=identities, key=key)
        gain = {"values": self.values_gain, "actions": self.actions_gain}.get(kind, self.gain)
        if self.variant == "linear":
            bank = orthogonal(key, identities, fan_out, fan_in, gain)
            return OffsetLinear(
                bank=IndependentLinear(weight=bank, bias=jnp.zeros((identities, fan_out)), identities=identities),
                offset=SharedLinear(
                    weight=jnp.zeros((fan_out, fan_in)), bias=jnp.zeros(fan_out), identities=identities
                ),
                identities=identities,
            )
        key_embedding, key_weight, key_head, key_bias = jax.random.split(key, 4)

        def hypernet(key, head):
            return Hypernet(
                hidden=orthogonal(key, 1, self.hidden, self.embedding, RELU_GAIN)[0],
                hidden_bias=jnp.zeros(self.hidden),
                head=head,
                head_bias=jnp.zeros(head.shape[1:]),
            )

        return HyperLinear(
            embedding=orthogonal(key_embedding, 1, identities, self.embedding, RELU_GAIN)[0],
            weights=hypernet(key_weight, orthogonal(key_head, self.hidden, fan_out, fan_in, gain)),
            biases=hypernet(key_bias, jnp.zeros((self.hidden, fan_out))),
            identities=identities,
        )
