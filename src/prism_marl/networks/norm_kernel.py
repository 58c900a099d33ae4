"""LayerNorm and relu, backward, in one pass over the rows: kernels for GPUs, in Pallas for its Triton backend.

Differentiated as plain JAX, a LayerNorm behind a bias becomes some ten kernels, most of which read all rows once more:
means along the rows, then sums over the rows for the bias, the scale and the shift. Here a program reads some rows
once, returns their gradient, and adds up its part of those sums.

Shapes: c critics, b rows, h hidden units (a power of two), u numbers of an agent's action.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array, Float

EPSILON = 1e-5  # of every LayerNorm here
WIDEST = 1024  # hidden units of which a program holds some rows


class Blocks(NamedTuple):
    """How rows are shared out."""

    rows: int = 4  # that a program reads at once
    times: int = 4  # that it does so
    warps: int = 2
    interpret: bool = False


class Normed(NamedTuple):
    """What stands between a product and the next layer: its bias, and the LayerNorm before the relu."""

    bias: Float[Array, "c h"]
    scale: Float[Array, "c h"]
    shift: Float[Array, "c h"]


def fits(width: int) -> bool:
    return 16 <= width <= WIDEST and width & (width - 1) == 0


def hidden_gradient(
    blocks: Blocks, product: Float[Array, "c b h"], normed: Normed, gradient: Float[Array, "c b h"]
) -> tuple[Float[Array, "c b h"], Normed]:
    """Gradients of the product and of what stands behind it, given that of relu(LayerNorm(product + bias))."""
    to_product, sums = _call(_hidden_gradient, blocks, product, (*normed, gradient), sums=3)
    return to_product, Normed(*sums)


def value_gradient(
    blocks: Blocks,
    product: Float[Array, "c b h"],
    normed: Normed,
    weight: Float[Array, "c h"],
    gradient: Float[Array, "c b"],
) -> tuple[Float[Array, "c b h"], Normed, Float[Array, "c h"]]:
    """The same and the gradient of the weight, given that of relu(LayerNorm(product + bias)) @ weight."""
    to_product, sums = _call(_value_gradient, blocks, product, (*normed, weight, gradient), sums=4)
    return to_product, Normed(*sums[:3]), sums[3]


def value_slope(
    blocks: Blocks, product: Float[Array, "c b h"], normed: Normed, weight: Float[Array, "c h"]
) -> tuple[Float[Array, "c b"], Float[Array, "c b h"]]:
    """relu(LayerNorm(product + bias)) @ weight of every row, and its derivative along the product."""
    values = jax.ShapeDtypeStruct(product.shape[:2], product.dtype)
    slope, values = _call(_value_slope, blocks, product, (*normed, weight), more=[values])
    return values, slope


def action_slope(
    blocks: Blocks,
    hidden: Float[Array, "c b h"],
    normed: Normed,
    change: Float[Array, "u b"],
    weight: Float[Array, "c u h"],
    gradient: Float[Array, "c b h"],
) -> Float[Array, "c u b"]:
    """The derivative of every row along each action number, given that of relu(LayerNorm(hidden + change @ weight));
    ``hidden`` has its bias already, and that of ``normed`` is not looked at."""
    critics, rows, _ = hidden.shape
    slopes = jax.ShapeDtypeStruct((critics, len(change), rows), hidden.dtype)
    inputs = (normed.scale, normed.shift, change, weight, gradient)
    return _call(_action_slope, blocks, hidden, inputs, more=[slopes], like_rows=False)[0]


def _call(
    body, blocks: Blocks, rows: Array, inputs: tuple[Array, ...], *, sums=0, more=(), like_rows=True
) -> list[Any]:
    """One program for some rows of one critic. Outputs are an array like the rows, ``more``, and sums over rows."""
    critics, height, width = rows.shape
    programs = pl.cdiv(height, blocks.rows * blocks.times)
    parts = [jax.ShapeDtypeStruct((sums, critics, programs, width), rows.dtype)] if sums else []
    call = pl.pallas_call(
        functools.partial(body, blocks),
        out_shape=[*([jax.ShapeDtypeStruct(rows.shape, rows.dtype)] if like_rows else []), *more, *parts],
        grid=(programs, critics),
        compiler_params=plgpu.CompilerParams(num_warps=blocks.warps, num_stages=1),
        interpret=blocks.interpret,
        name=body.__name__.strip("_"),
    )
    found = list(call(rows, *inputs))
    return [*found[:-1], jnp.sum(found[-1], axis=2)] if sums else found


class _Rows:
    """Some rows of one critic."""

    def __init__(self, first: Any, number: int, critic: Any, shape: tuple[int, ...]):
        self.critic, self.width, self.index = critic, shape[-1], pl.ds(first, number)
        self.column = first + jnp.arange(number) < shape[1]
        self.block = jnp.broadcast_to(self.column[:, None], (number, self.width))

    def load(self, ref) -> Float[Array, "r h"]:
        return plgpu.load(ref.at[self.critic, self.index, :], mask=self.block, other=0.0)

    def store(self, ref, value: Float[Array, "r h"]) -> None:
        plgpu.store(ref.at[self.critic, self.index, :], value, mask=self.block)

    def load_one(self, ref, *leading) -> Float[Array, " r"]:
        """A number for each row."""
        return plgpu.load(ref.at[(*leading, self.index)], mask=self.column, other=0.0)

    def store_one(self, ref, value: Float[Array, " r"], *leading) -> None:
        plgpu.store(ref.at[(*leading, self.index)], value, mask=self.column)


class _Norm:
    """The LayerNorm of some rows, and the way back through it."""

    def __init__(self, x: Float[Array, "r h"], scale: Float[Array, " h"], shift: Float[Array, " h"]):
        centred = x - _mean(x)
        self.inverse = jax.lax.rsqrt(_mean(centred * centred) + EPSILON)
        self.standard, self.scale = centred * self.inverse, scale[None]
        self.output = jnp.maximum(self.standard * self.scale + shift[None], 0.0)

    def back(self, gradient: Float[Array, "r h"]) -> tuple[Float[Array, "r h"], Float[Array, "r h"]]:
        """The gradients of the input and of what goes into the relu."""
        before_relu = jnp.where(self.output > 0, gradient, 0.0)
        along = before_relu * self.scale
        to_input = self.inverse * (along - _mean(along) - self.standard * _mean(along * self.standard))
        return to_input, before_relu


def _mean(x: Float[Array, "r h"]) -> Float[Array, "r 1"]:
    return jnp.sum(x, axis=1, keepdims=True) * (1 / x.shape[1])


def _over_rows(blocks: Blocks, shape: tuple[int, ...], sums: Any, work) -> None:
    """``work`` on one block after the other; what it returns is added up and stored."""
    program, critic = pl.program_id(0), pl.program_id(1)

    def turn(index, held):
        first = (program * blocks.times + index) * blocks.rows
        found = work(_Rows(first, blocks.rows, critic, shape))
        return tuple(old + jnp.sum(new, axis=0) for old, new in zip(held, found, strict=True))

    nothing = tuple(jnp.zeros(shape[-1]) for _ in range(0 if sums is None else sums.shape[0]))
    found = jax.lax.fori_loop(0, blocks.times, turn, nothing)
    if sums is not None:
        for index, value in enumerate(found):
            sums[index, critic, program, :] = value


def _hidden_gradient(blocks: Blocks, product, bias, scale, shift, gradient, to_product, sums) -> None:
    critic = pl.program_id(1)
    bias, scale, shift = (ref[critic, :] for ref in (bias, scale, shift))

    def work(rows: _Rows):
        norm = _Norm(rows.load(product) + bias[None], scale, shift)
        to_input, before_relu = norm.back(rows.load(gradient))
        rows.store(to_product, to_input)
        return jnp.where(rows.block, to_input, 0.0), before_relu * norm.standard, before_relu

    _over_rows(blocks, product.shape, sums, work)


def _value_gradient(blocks: Blocks, product, bias, scale, shift, weight, gradient, to_product, sums) -> None:
    critic = pl.program_id(1)
    bias, scale, shift, weight = (ref[critic, :] for ref in (bias, scale, shift, weight))

    def work(rows: _Rows):
        norm = _Norm(rows.load(product) + bias[None], scale, shift)
        by_row = rows.load_one(gradient, critic)[:, None]
        to_input, before_relu = norm.back(by_row * weight[None])
        rows.store(to_product, to_input)
        return jnp.where(rows.block, to_input, 0.0), before_relu * norm.standard, before_relu, by_row * norm.output

    _over_rows(blocks, product.shape, sums, work)


def _value_slope(blocks: Blocks, product, bias, scale, shift, weight, slope, values) -> None:
    critic = pl.program_id(1)
    bias, scale, shift, weight = (ref[critic, :] for ref in (bias, scale, shift, weight))

    def work(rows: _Rows):
        norm = _Norm(rows.load(product) + bias[None], scale, shift)
        rows.store(slope, norm.back(jnp.broadcast_to(weight[None], norm.output.shape))[0])
        rows.store_one(values, jnp.sum(norm.output * weight[None], axis=1), critic)
        return ()

    _over_rows(blocks, product.shape, None, work)


def _action_slope(blocks: Blocks, hidden, scale, shift, change, weight, gradient, slopes) -> None:
    critic, actions = pl.program_id(1), change.shape[0]
    scale, shift = scale[critic, :], shift[critic, :]
    weights = [weight[critic, action, :] for action in range(actions)]

    def work(rows: _Rows):
        x = rows.load(hidden)
        for action in range(actions):
            x = x + rows.load_one(change, jnp.int32(action))[:, None] * weights[action][None]
        to_input, _ = _Norm(x, scale, shift).back(rows.load(gradient))
        for action in range(actions):
            rows.store_one(slopes, jnp.sum(to_input * weights[action][None], axis=1), critic, jnp.int32(action))
        return ()

    _over_rows(blocks, hidden.shape, None, work)
