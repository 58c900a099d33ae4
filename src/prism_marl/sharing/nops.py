"""No sharing: one network per identity. With clusters in place of agents the same layer is SePS."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key

from prism_marl.sharing.base import (
    Identity,
    RoleLinear,
    Sharing,
    apply_per_identity,
    check_identity,
    private,
    select_rows,
    uniform_weight,
)


class IndependentLinear(RoleLinear):
    """Every identity has its own matrix and its own bias."""

    weight: Float[Array, "m o i"] = private()
    bias: Float[Array, "m o"] = private()
    identities: int = eqx.field(static=True)

    def dense(self) -> Float[Array, "m o i"]:
        return self.weight

    def dense_bias(self) -> Float[Array, "m o"]:
        return self.bias

    def __call__(self, x: Float[Array, "*b a i"], identity: Identity = None) -> Float[Array, "*b a o"]:
        check_identity(self, x, identity)
        return apply_per_identity(x, self.weight, identity) + select_rows(self.bias, identity)


def independent_linear(fan_in: int, fan_out: int, *, identities: int, key: Key[Array, ""]) -> IndependentLinear:
    """One layer per identity, sampled independently."""
    key_weight, key_bias = jax.random.split(key)
    return IndependentLinear(
        weight=uniform_weight(key_weight, identities, fan_out, fan_in, fan_in=fan_in),
        bias=uniform_weight(key_bias, identities, fan_out, fan_in=fan_in),
        identities=identities,
    )


@dataclass(frozen=True)
class NoPS(Sharing):
    """One network per agent, with the observation as its only input (as the published parameter counts imply)."""

    label: ClassVar[str] = "NoPS"
    agent_id: ClassVar[bool] = False
    last_action: ClassVar[bool] = False
    separate_networks: ClassVar[bool] = True

    method: Literal["nops"] = "nops"

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        return independent_linear(fan_in, fan_out, identities=identities, key=key)
