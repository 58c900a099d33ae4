"""Products of inputs with matrices, in the form that is fastest on the device."""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Tensors = TypeVar("Tensors")

STEP = 8  # numbers, which are 32 bytes: a GPU's matrix units read so many at once
FEW = 4  # outputs: up to this, sums are faster than a GPU's matrix units, which compute at least 32 outputs


def times(x: Float[Array, "*b i"], weight: Float[Array, "o i"]) -> Float[Array, "*b o"]:
    """All rows times the same matrix."""
    if few_outputs(weight):
        return summed(x, weight)
    x, weight = aligned(x, weight)
    return x @ weight.T


def in_batches(x: Float[Array, "c b i"], weight: Float[Array, "c o i"]) -> Float[Array, "c b o"]:
    """One product for each index of the first axis.

    It is kept apart from what stands around it: XLA for GPUs would fuse a bias into the product and write the bias of
    every row to memory to do so, and it would join products of the same weights, which copies their rows twice.
    """
    if few_outputs(weight):
        return summed(x, weight[:, None])
    return apart(jnp.einsum("cbi,coi->cbo", *apart(aligned(x, weight))))


def apart(arrays: Tensors) -> Tensors:
    """The same arrays; a compiler for GPUs computes them once and fuses nothing across this place."""
    return arrays if jax.default_backend() == "cpu" else jax.lax.optimization_barrier(arrays)


def few_outputs(weight: Float[Array, "*m o i"]) -> bool:
    """Whether ``summed`` is faster; on a CPU it is slow."""
    return weight.shape[-2] <= FEW and jax.default_backend() != "cpu"


def summed(x: Float[Array, "*b i"], weight: Float[Array, "*m o i"]) -> Float[Array, "*b o"]:
    """A product as one sum per output, which the compiler fuses with the operations before and after it. Leading axes
    of ``weight`` broadcast with those of x."""
    return jnp.stack([jnp.sum(x * weight[..., output, :], axis=-1) for output in range(weight.shape[-2])], axis=-1)


def aligned(x: Float[Array, "*x i"], weight: Float[Array, "*w i"]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Both padded with zeros along the last axis, over which they will be multiplied, if that makes it faster.

    Rows of 115 or 119 numbers start at addresses that matrix units cannot read, and a product of them takes twice the
    time. In full float32, and on a CPU, these units are not used and nothing is padded.
    """
    missing = -x.shape[-1] % STEP
    if not missing or x.shape[-1] < STEP or not on_matrix_units():
        return x, weight
    return _padded(x, missing), _padded(weight, missing)


def on_matrix_units() -> bool:
    """Whether float32 products run on units that round their inputs to TF32, which is the default of a GPU."""
    precision = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue]
    return jax.default_backend() != "cpu" and precision not in ("highest", "float32")


def _padded(array: Array, missing: int) -> Array:
    return jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)])


@jax.custom_vjp
def chosen(table: Float[Array, "m f"], identity: Int[Array, "*b a"]) -> Float[Array, "*b a f"]:
    """The row of each identity, without a copy of them in memory."""
    found = jnp.broadcast_to(table[0], (*identity.shape, table.shape[1]))
    for index in range(1, table.shape[0]):
        found = jnp.where((identity == index)[..., None], table[index], found)
    return found


def _chosen_backward(kept: tuple[Array, int], gradient: Array) -> tuple[Array, None]:
    identity, number = kept
    # Kept apart from other layers, whose gradients XLA would else join to one, which copies them.
    one_hot, gradient = apart((jax.nn.one_hot(identity, number, dtype=gradient.dtype), gradient))
    flat = (leaf.reshape(-1, leaf.shape[-1]) for leaf in (one_hot, gradient))
    return jnp.einsum("nm,nf->mf", *flat, precision=jax.lax.Precision.HIGHEST), None


chosen.defvjp(lambda table, identity: (chosen(table, identity), (identity, table.shape[0])), _chosen_backward)
