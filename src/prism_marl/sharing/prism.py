"""Prism: agents share singular vectors; each agent learns a mask on part of the singular values.

A weight matrix is kept as U diag(s) V^T. The first r - K singular values are common to all identities; each identity m
scales the other K by relu(|s| / max|s| - sigmoid(t_m)). One identity more costs K numbers per layer.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from prism_marl.errors import UserError
from prism_marl.sharing.base import (
    Identity,
    Penalties,
    RoleLinear,
    Sharing,
    apply_per_identity,
    check_identity,
    pairwise_difference,
    private,
    select_rows,
    uniform_weight,
)
from prism_marl.sharing.estimators import StraightThrough, step_function
from prism_marl.sharing.fups import shared_linear
from prism_marl.sharing.kaleidoscope import draw_thresholds

HIGHEST = jax.lax.Precision.HIGHEST


@dataclass(frozen=True)
class Prism(Sharing):
    """Shared singular vectors; each identity masks part of the spectrum. Letters refer to the table in SPEC 9.4."""

    label: ClassVar[str] = "Prism"
    unused_norms: ClassVar[bool] = True

    method: Literal["prism"] = "prism"
    common: float = 0.5  # share of singular values that every identity uses unmasked
    ortho: float = 0.01  # weight of the orthogonality term
    diversity: float = 5.0  # strength of the diversity term relative to the task loss
    masks: Literal["agent", "role"] = "agent"  # (l) one mask per agent, or per unit type
    init: Literal["svd_of_torch", "svd_of_orthogonal", "random_orthonormal"] = (
        "svd_of_torch"  # (a) U, s, V at start
    )
    common_part: Literal["leading", "trailing", "random"] = "leading"  # (b) which singular values are common
    threshold_scale: float = 5.0  # (c) thresholds start in -(scale * U[0,1] + shift)
    threshold_shift: float = 5.0
    ste: StraightThrough = "tanh"  # (d) backward pass of the binary mask
    div_detach_s: bool = True  # (e) the diversity term moves thresholds only, never inflates s
    div_mode: Literal["adaptive", "fixed"] = "adaptive"  # (f) scale diversity to the task loss, or use it raw
    window: int = 100  # losses averaged by the adaptive coefficient
    spectrum_abs: bool = (
        True  # (g) normalise |s|; False is the paper to the letter: a negative s never comes back
    )
    detach_max: bool = False  # (h) treat max|s| as a constant
    layer_base: float = 1.0  # (i) layer l counts layer_base**l in the diversity term
    ortho_norm: Literal["sum", "r2"] = "sum"  # (j) plain sum, or each term divided by r squared
    threshold_rate: float = 1.0  # (o) learning rate of thresholds relative to the rest
    reset_interval: int = 0  # (p) environment steps between revivals of directions nobody uses; 0 = never
    reset_ratio: float = 0.5  # (p) probability that such a direction is revived
    frob_decay: float = 0.0  # (r) weight of half the squared Frobenius norm of U diag(s) V^T

    def validate(self) -> None:
        if not 0 <= self.common <= 1:
            near = min(max(self.common, 0.0), 1.0) if math.isfinite(self.common) else 0.5
            raise UserError(
                f"sharing.common: {self.common} is outside [0, 1]; the nearest valid value is {near}"
            )
        if self.window < 1:
            raise UserError(
                f"sharing.window: {self.window} is not a positive number of losses; the default is 100"
            )
        if not 0 <= self.reset_ratio <= 1:
            raise UserError(f"sharing.reset_ratio: {self.reset_ratio} is outside [0, 1]; the default is 0.5")

    def identities(self, agents: int, roles: int) -> int:
        return roles if self.by_role() else agents

    def by_role(self) -> bool:
        return self.masks == "role"

    def penalties(self) -> Penalties:
        return Penalties(
            diversity=self.diversity,
            adaptive=self.div_mode == "adaptive",
            window=self.window,
            fixed=(("orthogonality", self.ortho), ("frobenius", self.frob_decay)),
        )

    def masked(self, rank: int) -> int:
        """K = floor((1 - common) * r), in exact arithmetic: 0.4 * 25 must not become 9.99."""
        return math.floor((1 - Fraction(str(self.common))) * rank)

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        if kind == "recurrent":  # the published counts keep the GRU dense
            return shared_linear(fan_in, fan_out, identities=identities, key=key)
        return spectral_linear(fan_in, fan_out, identities=identities, key=key, settings=self, depth=depth)


@dataclass(frozen=True)
class FuPSIDSVD(Sharing):
    """FuPS+ID with factorised layers and the orthogonality term but no masks: what of Prism is due to SVD alone."""

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


class SpectralLinear(RoleLinear):
    """y = ((x V) * s_m) U^T + b."""

    U: Float[Array, "o r"]
    s: Float[Array, " r"]
    V: Float[Array, "i r"]
    bias: Float[Array, " o"]
    threshold: Float[Array, "m k"] = private()
    identities: int = eqx.field(static=True)
    settings: Prism = eqx.field(static=True)
    layer_weight: float = eqx.field(static=True, default=1.0)

    @property
    def masked(self) -> int:
        """K: how many singular values each identity masks."""
        return self.threshold.shape[-1]

    def _headroom(self) -> Float[Array, "m k"]:
        """Normalised singular values minus thresholds: positive where an identity uses the direction."""
        separate = self.s[self.s.size - self.masked :]
        size = jnp.abs(separate) if self.settings.spectrum_abs else separate
        peak = jnp.max(size)
        if self.settings.detach_max:
            peak = jax.lax.stop_gradient(peak)
        return size / (peak + 1e-12) - jax.nn.sigmoid(self.settings.threshold_rate * self.threshold)

    def spectra(self) -> Float[Array, "m r"]:
        """Singular values of every identity, common ones first."""
        common = self.s.size - self.masked
        if self.masked == 0:
            return jnp.broadcast_to(self.s, (self.identities, self.s.size))
        separate = self.s[common:] * jax.nn.relu(self._headroom())
        return jnp.concatenate(
            [jnp.broadcast_to(self.s[:common], (self.identities, common)), separate], axis=1
        )

    def dense(self) -> Float[Array, "m o i"]:
        return jnp.einsum("or,mr,ir->moi", self.U, self.spectra(), self.V)

    def dense_bias(self) -> Float[Array, "m o"]:
        return jnp.broadcast_to(self.bias, (self.identities, *self.bias.shape))

    def __call__(self, x: Float[Array, "*b a i"], identity: Identity = None) -> Float[Array, "*b a o"]:
        check_identity(self, x, identity)
        if self.builds_matrices(x.shape, identity):
            return self._matrices(x, identity) + self.bias
        scaled = (x @ self.V) * select_rows(self.spectra(), identity)
        return scaled @ self.U.T + self.bias

    def builds_matrices(self, shape: tuple[int, ...], identity: Identity) -> bool:
        """Whether building the matrices first is cheaper than the factored form, from shapes alone.

        With n rows the factored form costs n r (i + o) products, m matrices cost m o r i once and n o i after that.
        Roles that change from sample to sample would need m outputs per row, and for many identities the matrices
        would fill the memory that Prism is there to save: both stay factored.
        """
        rows, (fan_out, rank), fan_in = math.prod(shape[:-1]), self.U.shape, self.V.shape[0]
        if self.masked == 0:
            return rows * (rank * (fan_in + fan_out) - fan_out * fan_in) > 4 * fan_out * rank * fan_in
        if (identity is not None and identity.ndim > 1) or self.identities > 32:
            return False
        build = 4 * self.identities * fan_out * rank * fan_in  # forward and backward of the construction
        return rows * (rank * (fan_in + fan_out) - fan_out * fan_in) > build

    def _matrices(self, x: Float[Array, "*b a i"], identity: Identity) -> Float[Array, "*b a o"]:
        if self.masked == 0:
            return x @ ((self.V * self.s) @ self.U.T)
        return apply_per_identity(x, self.dense(), identity)

    def on(self) -> Float[Array, "m k"]:
        """1 where an identity uses a direction, with the straight-through gradient on the thresholds."""
        headroom = self._headroom()
        if self.settings.div_detach_s:
            fixed = eqx.tree_at(lambda layer: layer.s, self, jax.lax.stop_gradient(self.s))
            headroom = fixed._headroom()
        return step_function(headroom, self.settings.ste)

    def diversity(self) -> tuple[Float[Array, ""], int]:
        if self.masked == 0:
            return jnp.zeros(()), 0
        size = jnp.abs(self.s[self.s.size - self.masked :])
        if self.settings.div_detach_s:
            size = jax.lax.stop_gradient(size)
        return self.layer_weight * pairwise_difference(self.on(), size), self.masked

    def regularizers(self) -> dict[str, Float[Array, ""]]:
        scale = self.s.size**-2 if self.settings.ortho_norm == "r2" else 1.0
        terms = {"orthogonality": scale * (off_orthonormal(self.U) + off_orthonormal(self.V))}
        if self.settings.frob_decay:
            gram = jnp.matmul(self.U.T, self.U, precision=HIGHEST) * jnp.matmul(
                self.V.T, self.V, precision=HIGHEST
            )
            terms["frobenius"] = 0.5 * jnp.einsum("p,pq,q->", self.s, gram, self.s, precision=HIGHEST)
        return terms

    def spectrum(self) -> tuple[Float[Array, "m r"], Bool[Array, "m r"]]:
        common = jnp.ones((self.identities, self.s.size - self.masked), bool)
        if self.masked == 0:
            return self.spectra(), common
        return self.spectra(), jnp.concatenate([common, self._headroom() > 0], axis=1)


def off_orthonormal(factor: Float[Array, "d r"]) -> Float[Array, ""]:
    """||F^T F - I||_F^2 at full precision: TF32 noise would be as large as the residual."""
    gram = jnp.matmul(factor.T, factor, precision=HIGHEST)
    return jnp.sum((gram - jnp.eye(factor.shape[1])) ** 2)


def spectral_linear(
    fan_in: int, fan_out: int, *, identities: int, key: Key[Array, ""], settings: Prism, depth: int = 0
) -> SpectralLinear:
    """A factorised layer that starts as the dense one would: the SVD of PyTorch's default initial matrix."""
    key_weight, key_bias, key_threshold, key_order = jax.random.split(key, 4)
    U, s, V = _initial_factors(key_weight, fan_in, fan_out, settings.init)
    rank = min(fan_in, fan_out)
    masked = settings.masked(rank)
    if settings.common_part == "trailing":  # the common block always comes first: put the small ones there
        U, s, V = U[:, ::-1], s[::-1], V[:, ::-1]
    elif settings.common_part == "random":
        order = jax.random.permutation(key_order, rank)
        U, s, V = U[:, order], s[order], V[:, order]
    thresholds = draw_thresholds(
        key_threshold, (identities, masked), settings.threshold_scale, settings.threshold_shift
    )
    return SpectralLinear(
        U=U,
        s=s,
        V=V,
        bias=uniform_weight(key_bias, fan_out, fan_in=fan_in),
        threshold=thresholds / settings.threshold_rate,  # Adam moves t / rate by lr, hence t by rate * lr
        identities=identities,
        settings=settings,
        layer_weight=settings.layer_base**depth,
    )


def _initial_factors(key: Key[Array, ""], fan_in: int, fan_out: int, init: str):
    key_weight, key_left, key_right = jax.random.split(key, 3)
    U, s, V = svd(uniform_weight(key_weight, fan_out, fan_in, fan_in=fan_in))
    if init == "svd_of_orthogonal":  # all singular values equal: no binary mask can ever differ (SPEC 10.2)
        return U, jnp.full_like(s, jnp.sqrt(jnp.mean(s**2))), V
    if init == "random_orthonormal":
        U = svd(jax.random.normal(key_left, (fan_out, s.size)))[0]
        V = svd(jax.random.normal(key_right, (fan_in, s.size)))[0]
    return U, s, V


def svd(weight: Float[Array, "o i"]) -> tuple[Float[Array, "o r"], Float[Array, " r"], Float[Array, "i r"]]:
    """Thin SVD in float64 on the host: the same factors on every device, and float64 without JAX's global switch."""
    fan_out, fan_in = weight.shape
    rank = min(fan_out, fan_in)
    shapes = tuple(
        jax.ShapeDtypeStruct(shape, weight.dtype) for shape in ((fan_out, rank), (rank,), (fan_in, rank))
    )

    def on_host(matrix):
        left, values, right = np.linalg.svd(np.asarray(matrix, np.float64), full_matrices=False)
        return tuple(part.astype(matrix.dtype) for part in (left, values, np.swapaxes(right, -1, -2)))

    return jax.pure_callback(on_host, shapes, weight, vmap_method="broadcast_all")
