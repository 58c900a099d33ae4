"""DiCo: what agents do is a shared part plus an own part, which is scaled so that the diversity of the team has a value
that the user sets (Bettini, Kortvelesy & Prorok, ICML 2024; docs/sharing.md says what is ours)."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

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
)
from prism_marl.sharing.behaviour import observations, pairwise_distances, system_diversity
from prism_marl.sharing.fixed import as_bits, from_bits
from prism_marl.sharing.fups import SharedLinear, shared_linear
from prism_marl.sharing.nops import independent_linear


class DiverseLinear(RoleLinear):
    """W_m = W + scale * D_m and b_m = b + scale * d_m, with the same scale for all identities.

    The scale does not train. It follows the own parts after every update, so that their mean distance, times the scale,
    stays at ``size``; data say how large that has to be for the diversity that is wanted.
    """

    shared: SharedLinear
    scale: Int[Array, ""]  # these two as bits of floats
    size: Int[Array, ""]
    own: Float[Array, "m o i"] = private()
    own_bias: Float[Array, "m o"] = private()
    identities: int = eqx.field(static=True)

    def dense(self) -> Float[Array, "m o i"]:
        return self.shared.weight + from_bits(self.scale) * self.own

    def dense_bias(self) -> Float[Array, "m o"]:
        return self.shared.bias + from_bits(self.scale) * self.own_bias

    def __call__(self, x: Float[Array, "*b a i"], identity: Identity = None) -> Float[Array, "*b a o"]:
        check_identity(self, x, identity)
        own = apply_per_identity(x, self.own, identity) + select_rows(self.own_bias, identity)
        return self.shared(x) + from_bits(self.scale) * own

    def apart(self) -> Float[Array, ""]:
        """The mean distance of two own parts before they are scaled."""
        parts = jnp.concatenate([self.own.reshape(self.identities, -1), self.own_bias], axis=1)
        return jnp.sum(pairwise_distances(parts)) / max(self.identities * (self.identities - 1), 1)

    def sized(self, size: Float[Array, ""]) -> "DiverseLinear":
        """The same with own parts that are scaled to this size; equal ones stay as they are."""
        apart = self.apart()
        scale = jnp.where(apart > 0, size / jnp.where(apart > 0, apart, 1.0), from_bits(self.scale))
        return replace(self, scale=as_bits(scale), size=as_bits(size))


@dataclass(frozen=True)
class DiCo(Sharing):
    """A shared network plus private parts in the last layer, scaled to hold the behavioural diversity at a target."""

    label: ClassVar[str] = "DiCo"
    agent_id: ClassVar[bool] = False
    last_action: ClassVar[bool] = False

    method: Literal["dico"] = "dico"
    snd: float = 1.0  # target for the system neural diversity (mean distance of two agents' outputs); 0 = full sharing
    interval: int = 5_000  # environment steps between two measurements of the diversity; 0 = never

    def validate(self) -> None:
        for name in ("snd", "interval"):
            if getattr(self, name) < 0:
                raise UserError(
                    f"sharing.{name}: {getattr(self, name)} is negative; the default is {getattr(DiCo, name)}"
                )

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        shared = shared_linear(fan_in, fan_out, identities=identities, key=key)
        if kind not in ("values", "actions") or identities == 1:
            return shared
        own = independent_linear(fan_in, fan_out, identities=identities, key=key)
        start = DiverseLinear(
            shared=shared,
            own=own.weight,
            own_bias=own.bias,
            scale=as_bits(jnp.zeros(())),
            size=as_bits(jnp.zeros(())),
            identities=identities,
        )
        return start.sized(jnp.asarray(self.snd))  # right if inputs of the layer have a mean square of 1

    def after_update(self, network, gradient):
        return map_layers(lambda _, layer: layer.sized(from_bits(layer.size)), network, DiverseLinear)

    def prepare(self, network, experience, key):
        return self.refresh(network, experience, key)

    def refresh_interval(self) -> int:
        return self.interval

    def refresh(self, network, experience, key):
        """Measure the diversity on what was observed lately, and correct the size by what it is off."""
        identities = experience.local.shape[1]
        if identities == 1:
            return network
        rows, weight = observations(experience, key)
        x = jnp.broadcast_to(rows[:, None], (len(rows), identities, rows.shape[1]))
        found = system_diversity(network.once(x), weight)
        ratio = jnp.where(found > 0, self.snd / jnp.where(found > 0, found, 1.0), 1.0)
        return map_layers(lambda _, layer: layer.sized(ratio * from_bits(layer.size)), network, DiverseLinear)
