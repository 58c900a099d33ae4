"""Controls: simple layers that differ from full sharing, or from Prism, in one property.

They have the same input as FuPS+ID and Prism (observation, last action, id), so a difference in results is due to the
weights and not to the input.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from prism_marl.errors import UserError
from prism_marl.sharing.base import (
    Identity,
    Penalties,
    RoleLinear,
    Sharing,
    check_identity,
    private,
    select_rows,
    uniform_weight,
)
from prism_marl.sharing.fups import shared_linear
from prism_marl.sharing.spectral import FactoredLinear, initial_factors


class ShiftedSpectrumLinear(FactoredLinear):
    """W_m = U diag(s + d_m) V^T, where d_m is zero for the common singular values."""

    shift: Float[Array, "m k"] = private()
    identities: int = eqx.field(static=True)

    @property
    def masked(self) -> int:
        return self.shift.shape[-1]

    def separate(self) -> Float[Array, "m k"]:
        return self.s[self.s.size - self.masked :] + self.shift

    def regularisers(self) -> dict[str, Float[Array, ""]]:
        return {"orthogonality": self.orthogonality()}

    def spectrum(self) -> tuple[Float[Array, "m r"], Bool[Array, "m r"]]:
        return self.spectra(), jnp.ones((self.identities, self.s.size), bool)


class FixedSpectrumLinear(FactoredLinear):
    """W_m = U diag(s * mask_m) V^T with masks that never change."""

    mask: Bool[Array, "m k"] = private()
    identities: int = eqx.field(static=True)

    @property
    def masked(self) -> int:
        return self.mask.shape[-1]

    def separate(self) -> Float[Array, "m k"]:
        return self.s[self.s.size - self.masked :] * self.mask

    def regularisers(self) -> dict[str, Float[Array, ""]]:
        return {"orthogonality": self.orthogonality()}

    def spectrum(self) -> tuple[Float[Array, "m r"], Bool[Array, "m r"]]:
        common = jnp.ones((self.identities, self.s.size - self.masked), bool)
        return self.spectra(), jnp.concatenate([common, self.mask], axis=1)


class FilmLinear(RoleLinear):
    """y = gain_m * (W x) + shift_m."""

    weight: Float[Array, "o i"]
    gain: Float[Array, "m o"] = private()
    shift: Float[Array, "m o"] = private()
    identities: int = eqx.field(static=True)

    def dense(self) -> Float[Array, "m o i"]:
        return self.gain[:, :, None] * self.weight

    def dense_bias(self) -> Float[Array, "m o"]:
        return self.shift

    def __call__(self, x: Float[Array, "*b a i"], identity: Identity = None) -> Float[Array, "*b a o"]:
        check_identity(self, x, identity)
        return (x @ self.weight.T) * select_rows(self.gain, identity) + select_rows(self.shift, identity)


@dataclass(frozen=True)
class SpectralControl(Sharing):
    """Factorised as in Prism, with the orthogonality term, without thresholds and diversity."""

    common: float = 0.5  # share of singular values that all identities have in common (Prism)
    ortho: float = 0.01  # weight of the orthogonality term (Prism)

    def validate(self) -> None:
        if not 0 <= self.common <= 1:
            raise UserError(f"sharing.common: {self.common} is outside [0, 1]; the default is 0.5")

    def penalties(self) -> Penalties:
        return Penalties(fixed=(("orthogonality", self.ortho),))

    def factors(self, fan_in: int, fan_out: int, key: Key[Array, ""]):
        """U, s, V and bias by name, and K, the number of separate singular values, as in Prism."""
        key_weight, key_bias = jax.random.split(key)
        U, s, V = initial_factors(key_weight, fan_in, fan_out)
        parts = {"U": U, "s": s, "V": V, "bias": uniform_weight(key_bias, fan_out, fan_in=fan_in)}
        return parts, math.floor((1 - Fraction(str(self.common))) * s.size)


@dataclass(frozen=True)
class SpectrumDelta(SpectralControl):
    """Control: every agent adds learned numbers to the singular values, without thresholds or masks."""

    label: ClassVar[str] = "Spectrum + delta"

    method: Literal["spectrum_delta"] = "spectrum_delta"

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        if kind == "recurrent":
            return shared_linear(fan_in, fan_out, identities=identities, key=key)
        parts, masked = self.factors(fan_in, fan_out, key)
        return ShiftedSpectrumLinear(**parts, shift=jnp.zeros((identities, masked)), identities=identities)


@dataclass(frozen=True)
class RandomSpectrum(SpectralControl):
    """Control: random masks on the singular values that never change (SNP on the spectrum)."""

    label: ClassVar[str] = "Random spectrum"

    method: Literal["random_spectrum"] = "random_spectrum"
    ratio: float = 0.1  # probability that a separate direction is off for an agent (as for nodes in SNP)

    def validate(self) -> None:
        super().validate()
        if not 0 <= self.ratio < 1:
            raise UserError(f"sharing.ratio: {self.ratio} is outside [0, 1); SNP uses 0.1")

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        if kind == "recurrent":
            return shared_linear(fan_in, fan_out, identities=identities, key=key)
        key_factors, key_mask = jax.random.split(key)
        parts, masked = self.factors(fan_in, fan_out, key_factors)
        mask = jax.random.uniform(key_mask, (identities, masked)) >= self.ratio
        return FixedSpectrumLinear(**parts, mask=mask, identities=identities)


@dataclass(frozen=True)
class FiLM(Sharing):
    """Control: every agent scales and shifts the outputs of shared layers."""

    label: ClassVar[str] = "FiLM"

    method: Literal["film"] = "film"

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        shared = shared_linear(fan_in, fan_out, identities=identities, key=key)
        if kind == "recurrent":
            return shared
        return FilmLinear(
            weight=shared.weight,
            gain=jnp.ones((identities, fan_out)),
            shift=jnp.tile(shared.bias, (identities, 1)),
            identities=identities,
        )
