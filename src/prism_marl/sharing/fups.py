"""Full sharing: every agent uses the same matrix (FuPS), with or without an agent id in the input (FuPS+ID)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from prism_marl.sharing.base import Identity, RoleLinear, Sharing, uniform_weight
from prism_marl.sharing.products import times


class SharedLinear(RoleLinear):
    """Every identity uses the same matrix."""

    weight: Float[Array, "o i"]
    bias: Float[Array, " o"]
    identities: int = eqx.field(static=True)

    def dense(self) -> Float[Array, "m o i"]:
        return jnp.broadcast_to(self.weight, (self.identities, *self.weight.shape))

    def dense_bias(self) -> Float[Array, "m o"]:
        return jnp.broadcast_to(self.bias, (self.identities, *self.bias.shape))

    def __call__(self, x: Float[Array, "*b a i"], identity: Identity = None) -> Float[Array, "*b a o"]:
        return times(x, self.weight) + self.bias


def shared_linear(fan_in: int, fan_out: int, *, identities: int, key: Key[Array, ""]) -> SharedLinear:
    """A shared layer with PyTorch's default initialisation."""
    key_weight, key_bias = jax.random.split(key)
    return SharedLinear(
        weight=uniform_weight(key_weight, fan_out, fan_in, fan_in=fan_in),
        bias=uniform_weight(key_bias, fan_out, fan_in=fan_in),
        identities=identities,
    )


@dataclass(frozen=True)
class FuPS(Sharing):
    """One network for all agents; agents with equal observations act alike."""

    label: ClassVar[str] = "FuPS"
    agent_id: ClassVar[bool] = False

    method: Literal["fups"] = "fups"

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        return shared_linear(fan_in, fan_out, identities=identities, key=key)


@dataclass(frozen=True)
class FuPSID(Sharing):
    """One network for all agents; a one-hot agent index in the input lets agents differ."""

    label: ClassVar[str] = "FuPS+ID"

    method: Literal["fups_id"] = "fups_id"

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        return shared_linear(fan_in, fan_out, identities=identities, key=key)
