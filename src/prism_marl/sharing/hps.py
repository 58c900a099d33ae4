"""HPS: agents share the directions of weight vectors, which are points of the unit sphere, and each agent has its own
scales (Hyperspherical Parameter Sharing, ICML 2026; our reading of the abstract, see docs/sharing.md)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from prism_marl.sharing.base import Identity, RoleLinear, Sharing, check_identity, private, select_rows
from prism_marl.sharing.fups import shared_linear
from prism_marl.sharing.products import times


class SphereLinear(RoleLinear):
    """Row j of W_m is exp(g_mj) v_j / |v_j|: one direction for all, a scale for each identity."""

    direction: Float[Array, "o i"]
    bias: Float[Array, " o"]
    log_scale: Float[Array, "m o"] = private()
    identities: int = eqx.field(static=True)

    def unit(self) -> Float[Array, "o i"]:
        """The directions. Lengths have no effect, so gradients have no part along them: steps go along the sphere."""
        return self.direction * jax.lax.rsqrt(jnp.sum(self.direction**2, axis=1, keepdims=True) + 1e-24)

    def dense(self) -> Float[Array, "m o i"]:
        return jnp.exp(self.log_scale)[:, :, None] * self.unit()

    def dense_bias(self) -> Float[Array, "m o"]:
        return jnp.broadcast_to(self.bias, self.log_scale.shape)

    def __call__(self, x: Float[Array, "*b a i"], identity: Identity = None) -> Float[Array, "*b a o"]:
        check_identity(self, x, identity)
        return times(x, self.unit()) * select_rows(jnp.exp(self.log_scale), identity) + self.bias


@dataclass(frozen=True)
class HPS(Sharing):
    """Agents share the directions of weight vectors and have private lengths, in every layer but the GRU."""

    label: ClassVar[str] = "HPS"

    method: Literal["hps"] = "hps"
    ids: bool = True  # agents read their index, too; if not, only their scales differ

    def reads_id(self) -> bool:
        return self.ids

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        shared = shared_linear(fan_in, fan_out, identities=identities, key=key)
        if kind == "recurrent":
            return shared
        lengths = jnp.sqrt(jnp.sum(shared.weight**2, axis=1))
        return SphereLinear(
            direction=shared.weight / lengths[:, None],
            bias=shared.bias,
            log_scale=jnp.tile(jnp.log(lengths), (identities, 1)),
            identities=identities,
        )
