"""Mixture of shared experts: every layer is a few matrices that all agents share, and each agent has a router that says
how much of each it uses (after the modules of ADMN, Yu et al., IJCAI 2024; what is ours stands in docs/sharing.md)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from prism_marl.errors import UserError
from prism_marl.sharing.base import (
    Identity,
    Penalties,
    RoleLinear,
    Sharing,
    apply_per_identity,
    check_identity,
    private,
    select_rows,
    uniform_weight,
)
from prism_marl.sharing.fups import shared_linear


class ExpertLinear(RoleLinear):
    """W_m = sum of p_me W_e over experts e, and the biases alike; p_m is the softmax of the identity's router."""

    weight: Float[Array, "e o i"]
    bias: Float[Array, "e o"]
    router: Float[Array, "m e"] = private()
    identities: int = eqx.field(static=True)

    def shares(self) -> Float[Array, "m e"]:
        """How much of each expert an identity uses; the shares of an identity add up to 1."""
        return jax.nn.softmax(self.router, axis=-1)

    def dense(self) -> Float[Array, "m o i"]:
        return jnp.einsum("me,eoi->moi", self.shares(), self.weight)

    def dense_bias(self) -> Float[Array, "m o"]:
        return self.shares() @ self.bias

    def __call__(self, x: Float[Array, "*b a i"], identity: Identity = None) -> Float[Array, "*b a o"]:
        check_identity(self, x, identity)
        bias = select_rows(self.dense_bias(), identity)
        if identity is None or identity.ndim == 1 or self.identities <= len(self.weight):
            return apply_per_identity(x, self.dense(), identity) + bias
        # Identities that differ between samples: one product for each expert instead of one for each identity.
        every = jnp.einsum("...ai,eoi->...aeo", x, self.weight)
        return jnp.sum(every * select_rows(self.shares(), identity)[..., None], axis=-2) + bias

    def regularisers(self) -> dict[str, Float[Array, ""]]:
        """How unevenly the team as a whole uses its experts: 0 where all are used alike."""
        used = jnp.mean(self.shares(), axis=0)
        return {"balance": len(self.weight) * jnp.sum(used**2) - 1}


@dataclass(frozen=True)
class SharedExperts(Sharing):
    """A few shared matrices in every layer but the GRU; each agent learns how to mix them."""

    label: ClassVar[str] = "Mixture of experts"

    method: Literal["experts"] = "experts"
    experts: int = 4  # expert matrices in each layer
    balance: float = 0.01  # weight of the loss term that makes the team use all experts equally
    spread: float = 0.1  # standard deviation of the initial routers; with 0 all agents start equal
    ids: bool = True  # agents read their index, too; if not, only their routers differ

    def validate(self) -> None:
        if self.experts < 1:
            raise UserError(f"sharing.experts: {self.experts} is not a positive number of experts; the default is 4")
        for name in ("balance", "spread"):
            if getattr(self, name) < 0:
                raise UserError(f"sharing.{name}: {getattr(self, name)} is negative; use 0 to leave it out")

    def reads_id(self) -> bool:
        return self.ids

    def penalties(self) -> Penalties:
        return Penalties(fixed=(("balance", self.balance),))

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        if kind == "recurrent":
            return shared_linear(fan_in, fan_out, identities=identities, key=key)
        key_weight, key_bias, key_router = jax.random.split(key, 3)
        return ExpertLinear(
            weight=uniform_weight(key_weight, self.experts, fan_out, fan_in, fan_in=fan_in),
            bias=uniform_weight(key_bias, self.experts, fan_out, fan_in=fan_in),
            router=self.spread * jax.random.normal(key_router, (identities, self.experts)),
            identities=identities,
        )
