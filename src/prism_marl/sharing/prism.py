"""Prism: agents share singular vectors; each agent learns a mask on part of the singular values.

A weight matrix is kept as U diag(s) V^T. The first r - K singular values are common to all identities; each identity m
scales the other K by relu(|s| / max|s| - sigmoid(t_m)). One identity more costs K numbers per layer.
"""

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from prism_marl.errors import UserError
from prism_marl.sharing.base import (
    Penalties,
    RoleLinear,
    Sharing,
    map_layers,
    private,
    uniform_weight,
)
from prism_marl.sharing.differences import pairwise_difference
from prism_marl.sharing.estimators import StraightThrough, step_function
from prism_marl.sharing.fups import shared_linear
from prism_marl.sharing.kaleidoscope import sample_thresholds
from prism_marl.sharing.resets import fresh_directions
from prism_marl.sharing.spectral import HIGHEST, FactoredLinear, initial_factors


@dataclass(frozen=True)
class Prism(Sharing):
    """Shared singular vectors; each agent learns a mask on some of the singular values."""

    label: ClassVar[str] = "Prism"
    unused_norms: ClassVar[bool] = True

    method: Literal["prism"] = "prism"
    common: float = 0.5  # share of singular values that all identities use unmasked
    ortho: float = 0.01  # weight of the orthogonality term
    diversity: float = 5.0  # size of the diversity term relative to the task loss
    masks: Literal["agent", "role"] = "agent"  # one mask per agent, or one per unit type
    ids: bool = field(default=True, metadata={"since": 2})  # agents read their index; if not, only their masks differ
    init: Literal["svd_of_torch", "svd_of_orthogonal", "random_orthonormal"] = "svd_of_torch"  # initial U, s, V
    common_part: Literal["leading", "trailing", "random"] = "leading"  # which singular values are common, by size
    threshold_scale: float = 5.0  # initial thresholds are -(scale * u + shift), u uniform in [0, 1]
    threshold_shift: float = 5.0  # the larger, the fewer directions are off at the start of training
    threshold_init: Literal["own", "shared"] = field(  # each identity samples its own, or all start from the same
        default="own", metadata={"since": 2}
    )
    ste: StraightThrough = "tanh"  # gradient of the binary mask (straight-through estimator)
    ties: Literal["still", "apart"] = "still"  # diversity gradient of equal masks: zero (the paper), or separating
    div_detach_s: bool = True  # the diversity term trains thresholds only, not singular values
    div_mode: Literal["adaptive", "fixed"] = "adaptive"  # diversity term: follow the task loss, or constant weight
    window: int = 100  # number of recent losses that the adaptive scale averages
    spectrum_abs: bool = True  # masks compare |s|; False: they compare s as in the paper, so a negative s stays off
    detach_max: bool = False  # no gradient through the largest |s|
    layer_base: float = 1.0  # weight of layer l (from 0) in the diversity term is layer_base**l
    ortho_norm: Literal["sum", "r2"] = "sum"  # orthogonality term: plain sum, or each layer divided by rank squared
    threshold_rate: float = 1.0  # learning rate of thresholds relative to the rest
    reset_interval: int = 0  # environment steps between resets of directions that no identity uses; 0 = never
    reset_ratio: float = 0.5  # probability that such a direction is reset
    frob_decay: float = 0.0  # weight of half the squared Frobenius norm of U diag(s) V^T; 0 = none

    def validate(self) -> None:
        if not 0 <= self.common <= 1:
            near = min(max(self.common, 0.0), 1.0) if math.isfinite(self.common) else 0.5
            raise UserError(f"sharing.common: {self.common} is outside [0, 1]; the nearest valid value is {near}")
        if self.window < 1:
            raise UserError(f"sharing.window: {self.window} is not a positive number of losses; the default is 100")
        if not 0 <= self.reset_ratio <= 1:
            raise UserError(f"sharing.reset_ratio: {self.reset_ratio} is outside [0, 1]; the default is 0.5")

    def identities(self, agents: int, roles: int) -> int:
        return roles if self.by_role() else agents

    def reads_id(self) -> bool:
        return self.ids

    def by_role(self) -> bool:
        return self.masks == "role"

    def penalties(self) -> Penalties:
        return Penalties(
            diversity=self.diversity,
            adaptive=self.div_mode == "adaptive",
            window=self.window,
            fixed=(("orthogonality", self.ortho), ("frobenius", self.frob_decay)),
        )

    def refresh_interval(self) -> int:
        return self.reset_interval

    def refresh(self, network, experience, key):
        return map_layers(lambda place, layer: layer.revived(jax.random.fold_in(key, place)), network, SpectralLinear)

    def thresholds(self, key: Key[Array, ""], identities: int, masked: int) -> Float[Array, "m k"]:
        """Starting values. Adam moves what is stored by lr, hence the threshold itself by threshold_rate * lr."""
        samples = 1 if self.threshold_init == "shared" else identities
        drawn = sample_thresholds(key, (samples, masked), self.threshold_scale, self.threshold_shift)
        return jnp.broadcast_to(drawn / self.threshold_rate, (identities, masked))

    def masked(self, rank: int) -> int:
        """K = floor((1 - common) * r), in exact arithmetic: 0.4 * 25 must not become 9.99."""
        return math.floor((1 - Fraction(str(self.common))) * rank)

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        if kind == "recurrent":  # the published counts keep the GRU dense
            return shared_linear(fan_in, fan_out, identities=identities, key=key)
        return spectral_linear(fan_in, fan_out, identities=identities, key=key, settings=self, depth=depth)


@dataclass(frozen=True)
class FuPSIDSVD(Sharing):
    """FuPS+ID with factorised layers and the orthogonality term, but no masks: what the factorisation does alone."""

    label: ClassVar[str] = "FuPS+ID w/ SVD"
    unused_norms: ClassVar[bool] = True

    method: Literal["fups_id_svd"] = "fups_id_svd"
    ortho: float = 0.01  # weight of the orthogonality term

    def penalties(self) -> Penalties:
        return Penalties(fixed=(("orthogonality", self.ortho),))

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        return Prism(common=1.0, ortho=self.ortho).linear(
            fan_in, fan_out, identities=identities, key=key, kind=kind, depth=depth
        )


class SpectralLinear(FactoredLinear):
    """Every identity scales the last K singular values by its own mask."""

    settings: Prism = eqx.field(static=True)
    threshold: Float[Array, "m k"] = private()
    identities: int = eqx.field(static=True)
    layer_weight: float = eqx.field(static=True, default=1.0)

    @property
    def masked(self) -> int:
        return self.threshold.shape[-1]

    def _headroom(self) -> Float[Array, "m k"]:
        """Normalised singular values minus thresholds: positive where an identity uses the direction."""
        separate = self.s[self.s.size - self.masked :]
        size = jnp.abs(separate) if self.settings.spectrum_abs else separate
        peak = jnp.max(size)
        if self.settings.detach_max:
            peak = jax.lax.stop_gradient(peak)
        return size / (peak + 1e-12) - jax.nn.sigmoid(self.settings.threshold_rate * self.threshold)

    def separate(self) -> Float[Array, "m k"]:
        return self.s[self.s.size - self.masked :] * jax.nn.relu(self._headroom())

    def on(self) -> Float[Array, "m k"]:
        """1 where an identity uses a direction, with the straight-through gradient on the thresholds."""
        layer = self
        if self.settings.div_detach_s:
            layer = eqx.tree_at(lambda layer: layer.s, self, jax.lax.stop_gradient(self.s))
        return step_function(layer._headroom(), self.settings.ste)

    def diversity(self) -> tuple[Float[Array, ""], int]:
        if self.masked == 0:
            return jnp.zeros(()), 0
        size = jnp.abs(self.s[self.s.size - self.masked :])
        if self.settings.div_detach_s:
            size = jax.lax.stop_gradient(size)
        order = self._headroom() if self.settings.ties == "apart" else None
        return self.layer_weight * pairwise_difference(self.on(), size, order), self.masked

    def regularisers(self) -> dict[str, Float[Array, ""]]:
        scale = self.s.size**-2 if self.settings.ortho_norm == "r2" else 1.0
        terms = {"orthogonality": scale * self.orthogonality()}
        if self.settings.frob_decay:
            gram = jnp.matmul(self.U.T, self.U, precision=HIGHEST) * jnp.matmul(self.V.T, self.V, precision=HIGHEST)
            terms["frobenius"] = 0.5 * jnp.einsum("p,pq,q->", self.s, gram, self.s, precision=HIGHEST)
        return terms

    def spectrum(self) -> tuple[Float[Array, "m r"], Bool[Array, "m r"]]:
        common = jnp.ones((self.identities, self.s.size - self.masked), bool)
        if self.masked == 0:
            return self.spectra(), common
        return self.spectra(), jnp.concatenate([common, self._headroom() > 0], axis=1)

    def revived(self, key: Key[Array, ""]) -> "SpectralLinear":
        """Directions that every identity has switched off come back, each with probability ``reset_ratio``: unit
        vectors orthogonal to all others, a middling singular value, fresh thresholds."""
        if self.masked == 0:
            return self
        key_chance, key_left, key_right, key_threshold = jax.random.split(key, 4)
        dead = jnp.all(self._headroom() <= 0, axis=0)
        chosen = dead & jax.random.bernoulli(key_chance, self.settings.reset_ratio, dead.shape)
        common = self.s.size - self.masked
        columns = jnp.concatenate([jnp.zeros(common, bool), chosen])
        middling = jnp.median(jnp.abs(self.s[common:]))
        fresh = self.settings.thresholds(key_threshold, self.identities, self.masked)
        return replace(
            self,
            U=fresh_directions(key_left, self.U, columns),
            s=jnp.where(columns, middling, self.s),
            V=fresh_directions(key_right, self.V, columns),
            threshold=jnp.where(chosen, fresh, self.threshold),
        )


def spectral_linear(
    fan_in: int, fan_out: int, *, identities: int, key: Key[Array, ""], settings: Prism, depth: int = 0
) -> SpectralLinear:
    """A factorised layer that starts as the dense one would: the SVD of PyTorch's default initial matrix."""
    key_weight, key_bias, key_threshold, key_order = jax.random.split(key, 4)
    U, s, V = initial_factors(key_weight, fan_in, fan_out, settings.init)
    rank = min(fan_in, fan_out)
    if settings.common_part == "trailing":  # the common block always comes first: put the small ones there
        U, s, V = U[:, ::-1], s[::-1], V[:, ::-1]
    elif settings.common_part == "random":
        order = jax.random.permutation(key_order, rank)
        U, s, V = U[:, order], s[order], V[:, order]
    return SpectralLinear(
        U=U,
        s=s,
        V=V,
        bias=uniform_weight(key_bias, fan_out, fan_in=fan_in),
        threshold=settings.thresholds(key_threshold, identities, settings.masked(rank)),
        identities=identities,
        settings=settings,
        layer_weight=settings.layer_base**depth,
    )
