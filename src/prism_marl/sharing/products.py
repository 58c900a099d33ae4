"""Products of inputs with matrices, in forms that suit the device."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

STEP = 8  # numbers: 32 bytes, which a GPU's matrix units read at once
FEW = 4  # outputs that a GPU sums up faster than its matrix units, which compute at least 32 of them


def times(x: Float[Array, "*b i"], weight: Float[Array, "o i"]) -> Float[Array, "*b o"]:
    """Every row with the same matrix."""
    if few_outputs(weight):
        return summed(x, weight)
    x, weight = aligned(x, weight)
    return x @ weight.T


def in_batches(x: Float[Array, "c b i"], weight: Float[Array, "c o i"]) -> Float[Array, "c b o"]:
    """One product for each place of the first axis.

    Whatever is added to it comes after it: XLA for GPUs would otherwise make it part of the product, and for that write
    out the bias of every row.
    """
    if few_outputs(weight):
        return summed(x, weight[:, None])
    product = jnp.einsum("cbi,coi->cbo", *aligned(x, weight))
    return product if jax.default_backend() == "cpu" else jax.lax.optimization_barrier(product)


def few_outputs(weight: Float[Array, "*m o i"]) -> bool:
    """Whether ``summed`` is the faster way; a CPU is slow at such sums."""
    return weight.shape[-2] <= FEW and jax.default_backend() != "cpu"


def summed(x: Float[Array, "*b i"], weight: Float[Array, "*m o i"]) -> Float[Array, "*b o"]:
    """A product as a sum for each output, which the compiler joins with what comes before and after it. Axes of the
    matrices before their last two go with those of x, from the right."""
    return jnp.stack([jnp.sum(x * weight[..., place, :], axis=-1) for place in range(weight.shape[-2])], axis=-1)


def aligned(x: Float[Array, "*x i"], weight: Float[Array, "*w i"]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Both with zeros behind their last axis, along which they will be multiplied, where that pays.

    Rows of 115 or 119 numbers begin where matrix units cannot read, and a product of them takes twice the time. In
    full float32, and on a CPU, these units are not used and nothing is changed.
    """
    missing = -x.shape[-1] % STEP
    if not missing or x.shape[-1] < STEP or not on_matrix_units():
        return x, weight
    return _longer(x, missing), _longer(weight, missing)


def on_matrix_units() -> bool:
    """Whether products of float32 go to units that round their inputs to TF32, as a GPU has them unless told not to."""
    precision = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue]
    return jax.default_backend() != "cpu" and precision not in ("highest", "float32")


def _longer(array: Array, missing: int) -> Array:
    return jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)])
