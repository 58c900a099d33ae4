"""A linear layer kept as U diag(s) V^T, for methods that give every identity its own singular values."""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from prism_marl.sharing.base import (
    Identity,
    RoleLinear,
    apply_per_identity,
    check_identity,
    private,
    role_layers,
    select_rows,
    uniform_weight,
)
from prism_marl.sharing.host_svd import svd
from prism_marl.sharing.products import times

HIGHEST = jax.lax.Precision.HIGHEST
# Sizes in numbers, measured with benchmarks/layers.py (docs/speed.md)
LARGEST_BUILD = {"cpu": 2**25, "accelerator": 2**28}  # above, moving the matrices in memory costs more than they save
STACKED = {"cpu": 0, "accelerator": 512}  # up to so many rows, U and V are checked in one product: fewer small kernels
ONE_PRODUCT = {"cpu": 0, "accelerator": 2**24}  # up to this, one product for all directions is faster than two smaller


class SpectrumLinear(RoleLinear):
    """y = ((x V) * s_m) U^T + b with the singular values of every identity as a table."""

    U: Float[Array, "o r"]
    V: Float[Array, "i r"]
    bias: Float[Array, " o"]
    spectra: Float[Array, "m r"] = private()
    identities: int = eqx.field(static=True)

    def dense(self) -> Float[Array, "m o i"]:
        return jnp.einsum("or,mr,ir->moi", self.U, self.spectra, self.V)

    def dense_bias(self) -> Float[Array, "m o"]:
        return jnp.broadcast_to(self.bias, (self.identities, *self.bias.shape))

    def __call__(self, x: Float[Array, "*b a i"], identity: Identity = None) -> Float[Array, "*b a o"]:
        check_identity(self, x, identity)
        return times(times(x, self.V.T) * select_rows(self.spectra, identity), self.U) + self.bias


class FactoredLinear(RoleLinear):
    """y = ((x V) * s_m) U^T + b, where s_m are the singular values of identity m."""

    U: Float[Array, "o r"]
    s: Float[Array, " r"]
    V: Float[Array, "i r"]
    bias: Float[Array, " o"]

    @property
    @abc.abstractmethod
    def masked(self) -> int:
        """K, the number of singular values that differ between identities; they are the last ones."""

    @abc.abstractmethod
    def separate(self) -> Float[Array, "m k"]:
        """The last K singular values of each identity; called only if K > 0."""

    def spectra(self) -> Float[Array, "m r"]:
        """The singular values of every identity, common ones first."""
        common = self.s.size - self.masked
        first = jnp.broadcast_to(self.s[:common], (self.identities, common))
        return first if self.masked == 0 else jnp.concatenate([first, self.separate()], axis=1)

    def by_spectrum(self) -> SpectrumLinear:
        """The same layer with the singular values of every identity worked out."""
        return SpectrumLinear(U=self.U, V=self.V, bias=self.bias, spectra=self.spectra(), identities=self.identities)

    def dense(self) -> Float[Array, "m o i"]:
        return self.by_spectrum().dense()

    def factors(self) -> tuple[Float[Array, "o r"], Float[Array, "m r"], Float[Array, "i r"]]:
        return self.U, self.spectra(), self.V

    def dense_bias(self) -> Float[Array, "m o"]:
        return self.by_spectrum().dense_bias()

    def __call__(self, x: Float[Array, "*b a i"], identity: Identity = None) -> Float[Array, "*b a o"]:
        check_identity(self, x, identity)
        if self.builds_matrices(x.shape, identity):
            return self._matrices(x, identity) + self.bias
        return self.by_spectrum()(x, identity)

    def builds_matrices(self, shape: tuple[int, ...], identity: Identity) -> bool:
        """Whether building the matrices first is cheaper than the factored form; depends on shapes alone.

        Forward and backward together, n rows in factored form cost 3 n r (i + o) products, against 3 n o i plus
        about 4 o i for each of the columns that ``_built`` multiplies; with r = min(i, o) this is the inequality
        below, and the measured break-even is close to it. Matrices of many agents are limited in size, because moving
        them in memory is slow. Roles that differ between samples would need m outputs per row, so they stay factored.
        """
        if self.masked and identity is not None and identity.ndim > 1:
            return False
        (fan_out, rank), fan_in = self.U.shape, self.V.shape[0]
        if self.masked and self._numbers > LARGEST_BUILD[_device()]:
            return False
        columns = rank - self.masked + self.identities * self.masked
        return 3 * math.prod(shape[:-1]) * rank > 4 * max(fan_out, fan_in) * columns

    def _matrices(self, x: Float[Array, "*b a i"], identity: Identity) -> Float[Array, "*b a o"]:
        if self.masked == 0:
            return times(x, (self.U * self.s) @ self.V.T)
        return apply_per_identity(x, self._built(), identity)

    def _built(self) -> Float[Array, "m o i"]:
        """``dense`` at a lower cost: the part that all identities have in common is multiplied once. This needs more
        kernels, so it is slower for a few small matrices on an accelerator."""
        if self._numbers <= ONE_PRODUCT[_device()]:
            return self.dense()
        common = self.s.size - self.masked
        left, right = jnp.split(self.U, [common], axis=1), jnp.split(self.V, [common], axis=1)
        own = jnp.einsum("ok,mk,ik->moi", left[1], self.separate(), right[1])
        return own + (left[0] * self.s[:common]) @ right[0].T

    @property
    def _numbers(self) -> int:
        """The size of all matrices together."""
        return self.identities * self.U.shape[0] * self.V.shape[0]

    def orthogonality(self) -> Float[Array, ""]:
        """The orthogonality term of U and V: 0 if their columns are orthonormal."""
        rows = max(len(self.U), len(self.V))
        if rows > STACKED[_device()]:
            return off_orthonormal(self.U) + off_orthonormal(self.V)
        both = [jnp.pad(factor, ((0, rows - len(factor)), (0, 0))) for factor in (self.U, self.V)]
        return off_orthonormal(jnp.stack(both))  # rows of zeros do not change products of columns


def common_directions(network: Any) -> dict[str, int]:
    """How many directions of each layer with masks are on for everybody."""
    layers: dict[str, Any] = role_layers(network)
    return {name: one.s.shape[-1] - one.masked for name, one in layers.items() if hasattr(one, "masked")}


def _device() -> str:
    return "cpu" if jax.default_backend() == "cpu" else "accelerator"


@jax.custom_vjp
def off_orthonormal(factor: Float[Array, "*n d r"]) -> Float[Array, ""]:
    """||F^T F - I||_F^2, summed over factors, at full precision, because TF32 errors are as large as the residual.

    The gradient is written out as 4 F (F^T F - I), which is one product; automatic differentiation makes two.
    """
    return _residual(factor)[0]


def _residual(factor):
    gram = jnp.einsum("...da,...db->...ab", factor, factor, precision=HIGHEST) - jnp.eye(factor.shape[-1])
    return jnp.sum(gram**2), (factor, gram)


def _residual_gradient(kept, gradient):
    factor, gram = kept
    return (4 * gradient * jnp.matmul(factor, gram, precision=HIGHEST),)


off_orthonormal.defvjp(_residual, _residual_gradient)


def initial_factors(
    key: Key[Array, ""], fan_in: int, fan_out: int, init: str = "svd_of_torch"
) -> tuple[Float[Array, "o r"], Float[Array, " r"], Float[Array, "i r"]]:
    """The factors of a matrix with PyTorch's default initialisation, or with an alternative of docs/design.md."""
    key_weight, key_left, key_right = jax.random.split(key, 3)
    U, s, V = svd(uniform_weight(key_weight, fan_out, fan_in, fan_in=fan_in))
    if init == "svd_of_orthogonal":  # all singular values are equal, so all masks are equal at the start
        return U, jnp.full_like(s, jnp.sqrt(jnp.mean(s**2))), V
    if init == "random_orthonormal":
        U = svd(jax.random.normal(key_left, (fan_out, s.size)))[0]
        V = svd(jax.random.normal(key_right, (fan_in, s.size)))[0]
    return U, s, V
