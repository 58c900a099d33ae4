"""The critics' LayerNorms by fused kernels (networks/norm_kernel.py): when they are used, and what is differentiated.

Values are computed as without kernels, and gradients are the same up to rounding.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from prism_marl.networks import kernels, norm_kernel
from prism_marl.networks.norm_kernel import Blocks, Normed
from prism_marl.sharing.products import in_batches

differentiated_by_kernels: Any = functools.partial(jax.custom_vjp, nondiff_argnums=(0,))


def blocks_for(width: int) -> Blocks | None:
    """Kernels for this many hidden units; None where plain JAX has to do it."""
    if not kernels.on_one_gpu() or not norm_kernel.fits(width):
        return None
    blocks = Blocks()
    return blocks if _works(blocks, width) else None


@differentiated_by_kernels
def activated(blocks: Blocks, product: Float[Array, "c b h"], normed: Normed) -> Float[Array, "c b h"]:
    """relu(LayerNorm(product + bias))."""
    x = product + normed.bias[:, None]
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(centred**2, axis=-1, keepdims=True)
    standard = centred * jax.lax.rsqrt(variance + norm_kernel.EPSILON)
    return jax.nn.relu(standard * normed.scale[:, None] + normed.shift[:, None])


def _activated_forward(blocks, product, normed):
    return activated(blocks, product, normed), (product, normed)


def _activated_backward(blocks, kept, gradient):
    product, normed = kept
    return norm_kernel.hidden_gradient(blocks, product, normed, gradient)


activated.defvjp(_activated_forward, _activated_backward)


@differentiated_by_kernels
def valued(
    blocks: Blocks, product: Float[Array, "c b h"], normed: Normed, weight: Float[Array, "c h"]
) -> Float[Array, "c b"]:
    """relu(LayerNorm(product + bias)) @ weight."""
    return jnp.sum(activated(blocks, product, normed) * weight[:, None], axis=-1)


def _valued_forward(blocks, product, normed, weight):
    return valued(blocks, product, normed, weight), (product, normed, weight)


def _valued_backward(blocks, kept, gradient):
    product, normed, weight = kept
    return norm_kernel.value_gradient(blocks, product, normed, weight, gradient)


valued.defvjp(_valued_forward, _valued_backward)


@differentiated_by_kernels
def changed(blocks: Blocks, change: Float[Array, "b u"], constant: Any) -> Float[Array, "c b"]:
    """Values after an agent's action has changed, differentiated by that change alone.

    ``constant`` is (hidden [c, b, h] with its bias, weights of the action [c, h, u], LayerNorm behind them, the next
    weights [c, h, h], LayerNorm behind those, the last weights [c, h]). A value belongs to one row, so its slope is
    computed at once, and the way back multiplies it by the gradient of the value.
    """
    return _with_slopes(blocks, change, constant)[0]


def _with_slopes(blocks: Blocks, change, constant) -> tuple[Float[Array, "c b"], Float[Array, "c u b"]]:
    hidden, by_action, first, weight, second, last = constant
    x = hidden
    for action in range(change.shape[1]):
        x = x + change[:, action, None] * by_action[:, None, :, action]
    x = activated(blocks, x, first._replace(bias=jnp.zeros_like(first.bias)))
    values, slope = norm_kernel.value_slope(blocks, in_batches(x, weight), second, last)
    back = in_batches(slope, jnp.swapaxes(weight, 1, 2))
    return values, norm_kernel.action_slope(blocks, hidden, first, change.T, jnp.swapaxes(by_action, 1, 2), back)


def _changed_forward(blocks, change, constant):
    return _with_slopes(blocks, change, constant)


def _changed_backward(blocks, slopes, gradient):
    return jnp.einsum("cb,cub->bu", gradient, slopes, precision=jax.lax.Precision.HIGHEST), None


changed.defvjp(_changed_forward, _changed_backward)


@functools.cache
def _works(blocks: Blocks, width: int) -> bool:
    return kernels.is_right(_example_is_right, blocks, width)


def _example_is_right(blocks: Blocks, width: int) -> bool:
    """All gradients of some rows, against plain differentiation of the same functions."""
    critics, rows, actions = 2, 3, 2
    draw = np.random.default_rng(0).standard_normal
    x, bias, scale, shift, last, by_action, change, matrix = (
        jnp.asarray(draw(shape), jnp.float32)
        for shape in [
            (critics, rows, width),
            *[(critics, width)] * 4,
            (critics, width, actions),
            (rows, actions),
            (width, width),
        ]
    )
    normed, weight = Normed(bias, scale, shift), jnp.stack([matrix, matrix.T]) / np.sqrt(width)

    def by_kernels(x, normed, last, change):
        inside = activated(blocks, x, normed)
        values = changed(blocks, change, (jax.lax.stop_gradient(x), by_action, normed, weight, normed, last))
        return jnp.sum(jnp.sin(valued(blocks, inside, normed, last))) + jnp.sum(jnp.sin(values))

    def plainly(x, normed, last, change):
        inside = _plain(x + normed.bias[:, None], normed)
        moved = jax.lax.stop_gradient(x) + jnp.einsum("bu,chu->cbh", change, by_action)
        further = jnp.einsum("cbi,coi->cbo", _plain(moved, jax.lax.stop_gradient(normed)), weight)
        fixed, after = jax.lax.stop_gradient((normed, last))
        values = jnp.einsum("cbh,ch->cb", _plain(further + fixed.bias[:, None], fixed), after)
        values_inside = jnp.einsum("cbh,ch->cb", _plain(inside + normed.bias[:, None], normed), last)
        return jnp.sum(jnp.sin(values_inside)) + jnp.sum(jnp.sin(values))

    with jax.default_matmul_precision("float32"):
        found, expected = (
            jax.jit(jax.value_and_grad(function, argnums=(0, 1, 2, 3)))(x, normed, last, change)
            for function in (by_kernels, plainly)
        )
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return all(np.allclose(ours, theirs, rtol=2e-2, atol=2e-2 * np.max(np.abs(theirs))) for ours, theirs in pairs)


def _plain(x: Float[Array, "c b h"], normed: Normed) -> Float[Array, "c b h"]:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    standard = centred / jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + norm_kernel.EPSILON)
    return jax.nn.relu(standard * normed.scale[:, None] + normed.shift[:, None])
