"""The recurrence of the GRU in two kernels for GPUs: all steps forward, and all steps backward.

A scan starts several kernels at every step, and the state goes through the memory of the device each time. Here one
program takes some rows through all steps and keeps their state, and the weights, on the chip. The forward kernel also
takes a second network (a learner's target) along. Written in Pallas, for its Triton backend.

Shapes: p networks, t steps, n rows, g groups of rows with a weight matrix each, h numbers of state.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array, Float

from prism_marl.sharing.products import on_matrix_units

WIDTHS = (16, 32, 64)  # numbers of state whose weights a program can keep
MOST_NUMBERS = 2**31 // 32  # of one array of a seed: the kernels count in 32 bits, and there may be 32 seeds


class Kernels(NamedTuple):
    """How the kernels are built; the benchmark tries others."""

    rows: int  # of one program
    warps: int
    product: Any  # precision of products, in JAX's words
    interpret: bool = False


class Recurrence(NamedTuple):
    """What the kernels read, next to the inputs."""

    weight: Float[Array, "p g three h h"]  # state times this; gates are reset, update, new
    bias: Float[Array, "p g three h"]
    mask: Float[Array, "p g h"]  # of nodes of the state
    start: Float[Array, "n g h"]
    keep: Float[Array, "t n g"]  # 0 where the state begins anew


class Saved(NamedTuple):
    """What the backward kernel reads again: [t, n, g, h] each, of the first network."""

    before: Array
    reset: Array
    update: Array
    new: Array
    hidden: Array  # the hidden half of the new state


def built() -> Kernels:
    """The kernels in the precision that products have; full float32 as three products in TF32, which is as exact and
    twice as fast. With so few rows, and more warps, the compiler keeps all that a program works with in registers and
    shared memory. Both were measured (docs/speed.md)."""
    presets = jax.lax.DotAlgorithmPreset
    return Kernels(16, 8, presets.TF32_TF32_F32 if on_matrix_units() else presets.TF32_TF32_F32_X3)


def fits(inputs: Any, groups: int, networks: int) -> bool:
    """Whether kernels can be built for inputs [t, n, g, 3 h] and such weights."""
    return inputs.shape[-1] // 3 in WIDTHS and networks * math.prod(inputs.shape) <= MOST_NUMBERS and groups > 0


def forward(
    inputs: Sequence[Float[Array, "t n g three_h"]], cell: Recurrence, kernels: Kernels, *, save: bool
) -> tuple[list[Float[Array, "t n g h"]], Saved | None]:
    """States of each network after every step, and what ``backward`` reads. Each network has arrays of its own: putting
    them together, and taking them apart, would copy the largest arrays of an update."""
    networks, (steps, rows, groups, gates) = len(inputs), inputs[0].shape
    states = jax.ShapeDtypeStruct((steps, rows, groups, gates // 3), inputs[0].dtype)
    outputs = [states] * (networks + len(Saved._fields) * save)
    call = pl.pallas_call(
        functools.partial(_forward, kernels, save, networks),
        out_shape=outputs,
        grid=(pl.cdiv(rows, kernels.rows), groups, networks),
        compiler_params=plgpu.CompilerParams(num_warps=kernels.warps, num_stages=1),
        interpret=kernels.interpret,
        name="gru_forward",
    )
    found = call(*inputs, *cell)
    return list(found[:networks]), Saved(*found[networks:]) if save else None


def backward(
    gradients: Float[Array, "t n g h"], cell: Recurrence, saved: Saved, kernels: Kernels
) -> tuple[Float[Array, "t n g three_h"], Float[Array, "t n g three_h"], Float[Array, "n g h"]]:
    """Gradients of the inputs, of the hidden half of the gates, and of the start."""
    steps, rows, groups, width = gradients.shape
    gates = jax.ShapeDtypeStruct((steps, rows, groups, 3 * width), gradients.dtype)
    call = pl.pallas_call(
        functools.partial(_backward, kernels),
        out_shape=[gates, gates, jax.ShapeDtypeStruct((rows, groups, width), gradients.dtype)],
        grid=(pl.cdiv(rows, kernels.rows), groups),
        compiler_params=plgpu.CompilerParams(num_warps=kernels.warps, num_stages=1),
        interpret=kernels.interpret,
        name="gru_backward",
    )
    to_inputs, to_hidden, to_start = call(gradients, cell.weight, cell.mask, cell.keep, *saved)
    return to_inputs, to_hidden, to_start


class _Rows:
    """The rows of one program."""

    def __init__(self, number: int, height: int, width: int):
        first = pl.program_id(0) * height
        self.index, self.group, self.width = pl.ds(first, height), pl.program_id(1), width
        inside = first + jnp.arange(height) < number
        self.column, self.block = inside, jnp.broadcast_to(inside[:, None], (height, width))

    def load(self, ref, *leading, part: int = 0, when: Any = True) -> Float[Array, "r h"]:
        """One of the parts of width h of [*leading, n, g, parts h]; zeros where it is not asked for."""
        place = (*leading, self.index, self.group, pl.ds(part * self.width, self.width))
        return plgpu.load(ref.at[place], mask=self.block & when, other=0.0)

    def store(self, ref, value, *leading, part: int = 0, when: Any = True) -> None:
        place = (*leading, self.index, self.group, pl.ds(part * self.width, self.width))
        plgpu.store(ref.at[place], value, mask=self.block & when)

    def kept(self, keep, step, value: Float[Array, "r h"]) -> Float[Array, "r h"]:
        """Zeros where an episode begins at this step."""
        column = plgpu.load(keep.at[step, self.index, self.group], mask=self.column, other=0.0)
        return jnp.where(jnp.broadcast_to(column[:, None], value.shape) > 0, value, 0.0)


def _forward(kernels: Kernels, save: bool, networks: int, *refs) -> None:
    """Some rows of one group and one network, all steps."""
    inputs, (weight, bias, mask, start, keep, *outputs) = refs[:networks], refs[networks:]
    states, saved = outputs[:networks], outputs[networks:]
    network, group = pl.program_id(2), pl.program_id(1)
    steps, rows, width = keep.shape[0], keep.shape[1], mask.shape[-1]
    own = _Rows(rows, kernels.rows, width)
    weights = [weight[network, group, gate] for gate in range(3)]
    biases = [bias[network, group, gate][None, :] for gate in range(3)]
    nodes = mask[network, group][None, :]

    def read(step):
        return [
            sum(own.load(ref, step, part=gate, when=network == which) for which, ref in enumerate(inputs))
            for gate in range(3)
        ]

    def advance(step, carried):
        h, (to_reset, to_update, to_new) = carried
        ahead = read(jnp.minimum(step + 1, steps - 1))  # on their way while this step computes
        h = own.kept(keep, step, h)
        h_reset, h_update, h_new = (
            jnp.dot(h, matrix, precision=kernels.product) + offset
            for matrix, offset in zip(weights, biases, strict=True)
        )
        reset, update = jax.nn.sigmoid(to_reset + h_reset), jax.nn.sigmoid(to_update + h_update)
        new = jnp.tanh(to_new + reset * h_new)
        if save:
            for ref, value in zip(saved, Saved(h, reset, update, new, h_new), strict=True):
                own.store(ref, value, step, when=network == 0)
        h = ((1 - update) * new + update * h) * nodes
        for which, ref in enumerate(states):
            own.store(ref, h, step, when=network == which)
        return h, ahead

    jax.lax.fori_loop(0, steps, advance, (own.load(start), read(jnp.int32(0))))


def _backward(
    kernels: Kernels, gradients, weight, mask, keep, before, reset, update, new, hidden, to_inputs, to_hidden, to_start
) -> None:
    """Some rows of one group of the first network, all steps from the last to the first."""
    group = pl.program_id(1)
    steps, rows, width = keep.shape[0], keep.shape[1], mask.shape[-1]
    own = _Rows(rows, kernels.rows, width)
    weights = [weight[0, group, gate].T for gate in range(3)]
    nodes = mask[0, group][None, :]

    def read(step):
        return [own.load(ref, step) for ref in (gradients, before, reset, update, new, hidden)]

    def retreat(index, carried):
        step = steps - 1 - index
        later, (gradient, h, reset, update, new, h_new) = carried
        ahead = read(jnp.maximum(step - 1, 0))
        out = (later + gradient) * nodes
        d_new = out * (1 - update) * (1 - new * new)
        d_update = out * (h - new) * update * (1 - update)
        d_reset = d_new * h_new * reset * (1 - reset)
        parts = (d_reset, d_update, d_new * reset)
        earlier = out * update
        for part, matrix in zip(parts, weights, strict=True):
            earlier = earlier + jnp.dot(part, matrix, precision=kernels.product)
        for gate, (to_input, part) in enumerate(zip((d_reset, d_update, d_new), parts, strict=True)):
            own.store(to_inputs, to_input, step, part=gate)
            own.store(to_hidden, part, step, part=gate)
        return own.kept(keep, step, earlier), ahead

    zeros = jnp.zeros((kernels.rows, width), jnp.float32)
    earlier, _ = jax.lax.fori_loop(0, steps, retreat, (zeros, read(jnp.int32(steps - 1))))
    own.store(to_start, earlier)
