"""LoRASA: first one shared network, then a low-rank correction per agent on top of the frozen network
(Zhang, Kapoor & Sun, 2025)."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from prism_marl.errors import UserError
from prism_marl.sharing.base import (
    Identity,
    RoleLinear,
    Sharing,
    apply_per_identity,
    check_identity,
    map_layers,
    private,
    select_rows,
    uniform_weight,
)
from prism_marl.sharing.fups import SharedLinear, shared_linear


class LowRankLinear(RoleLinear):
    """W_m = W + scale * B_m A_m and b_m = b + d_m."""

    shared: SharedLinear
    scale: float = eqx.field(static=True)
    down: Float[Array, "m r i"] = private()  # A
    up: Float[Array, "m o r"] = private()  # B
    shift: Float[Array, "m o"] = private()  # d
    identities: int = eqx.field(static=True)

    def dense(self) -> Float[Array, "m o i"]:
        return self.shared.weight + self.scale * jnp.einsum("mor,mri->moi", self.up, self.down)

    def dense_bias(self) -> Float[Array, "m o"]:
        return self.shared.bias + self.shift

    def __call__(self, x: Float[Array, "*b a i"], identity: Identity = None) -> Float[Array, "*b a o"]:
        check_identity(self, x, identity)
        low = apply_per_identity(x, self.down, identity)
        own = self.scale * apply_per_identity(low, self.up, identity) + select_rows(self.shift, identity)
        return self.shared(x) + own


@dataclass(frozen=True)
class LoRASA(Sharing):
    """One shared network until `switch_step`; then it is frozen, and each agent trains low-rank adapters."""

    label: ClassVar[str] = "LoRASA"
    phased: ClassVar[bool] = True

    method: Literal["lorasa"] = "lorasa"
    rank: int = 4  # rank of the adapters (official code)
    alpha: float = 1.0  # the correction is scaled by alpha / rank (official code)
    switch_step: int = 1_000_000  # environment step at which W is frozen and adapters start to learn (our choice)
    joint: bool = False  # train the network and the adapters together from the start

    def validate(self) -> None:
        if self.rank < 1:
            raise UserError(f"sharing.rank: {self.rank} is not a positive rank; the authors use 4")

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        key_shared, key_up = jax.random.split(key)
        return LowRankLinear(
            shared=shared_linear(fan_in, fan_out, identities=identities, key=key_shared),
            down=jnp.zeros((identities, self.rank, fan_in)),
            up=uniform_weight(key_up, identities, fan_out, self.rank, fan_in=self.rank),
            shift=jnp.zeros((identities, fan_out)),
            identities=identities,
            scale=self.alpha / self.rank,
        )

    def constrain(self, gradient, step):
        """Before the switch the adapters do not learn, after it the shared weights and biases do not."""
        if self.joint:
            return gradient
        adapting = jnp.asarray(step) >= self.switch_step

        def freeze(_, layer: LowRankLinear) -> LowRankLinear:
            return replace(
                layer,
                shared=jax.tree.map(lambda part: jnp.where(adapting, 0.0, part), layer.shared),
                down=jnp.where(adapting, layer.down, 0.0),
                up=jnp.where(adapting, layer.up, 0.0),
                shift=jnp.where(adapting, layer.shift, 0.0),
            )

        return map_layers(freeze, gradient, LowRankLinear)
