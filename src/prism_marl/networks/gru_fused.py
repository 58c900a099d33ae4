"""The unrolled GRU by fused kernels (networks/gru_kernel.py): when they can be used, and how they are differentiated.

Numbers are those of the scan in networks/gru.py up to rounding. What decides is known before anything is compiled: the
device, the shapes, the kind of layer, and whether a small example comes out right on this device.
"""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from prism_marl.networks import gru_kernel, kernels
from prism_marl.networks.gru_kernel import Kernels, Recurrence
from prism_marl.sharing.base import Identity, RoleGate, RoleLinear
from prism_marl.sharing.fups import SharedLinear


class Net(NamedTuple):
    """The part of a network that is scanned."""

    layer: RoleLinear
    gate: RoleGate | None


def kernels_for(net: Net, inputs: Any, identity: Identity, networks: int) -> Kernels | None:
    """Kernels for this recurrence of inputs [t, *b, a, g], or of their shape; None where the scan has to do it."""
    if not kernels.on_one_gpu():
        return None
    alike = _alike(net)
    if not alike and identity is not None and identity.ndim > 1:
        return None  # matrices that differ from sample to sample
    groups = 1 if alike else inputs.shape[-2]
    built = gru_kernel.built()
    fits = inputs.dtype == jnp.float32 and gru_kernel.fits(inputs, groups, networks)
    return built if fits and _works(built, inputs.shape[-1] // 3) else None


def _alike(net: Net) -> bool:
    """Whether all rows have the same matrix and all nodes."""
    return isinstance(net.layer, SharedLinear) and net.gate is None


@functools.cache
def _works(how: Kernels, width: int) -> bool:
    return kernels.is_right(_example_is_right, how, width)


def _example_is_right(kernels: Kernels, width: int) -> bool:
    """The states, and the change of their sum along a random direction."""
    steps, rows, size, tolerance = 3, 5, 1e-3, 2e-2
    draw = np.random.default_rng(0).standard_normal
    weight, inputs, start = draw((3, width, width)) / width, draw((steps, rows, 3 * width)), draw((rows, width))
    towards = draw(inputs.shape) / 4, draw(start.shape) / 4
    expected, above, below = (
        _definition(weight, inputs + change * towards[0], start + change * towards[1]) for change in (0, size, -size)
    )
    bias, mask, keep = np.zeros((1, 1, 3, width)), np.ones((1, 1, width)), np.ones((steps, rows, 1))
    given = (weight[None, None], bias, mask, start[:, None], keep)
    cell = Recurrence(*(jnp.asarray(part, jnp.float32) for part in given))

    def both(inputs):
        states, saved = gru_kernel.forward([inputs], cell, kernels, save=True)
        assert saved is not None
        return states, gru_kernel.backward(jnp.ones_like(states[0]), cell, saved, kernels)

    states, (to_inputs, _, to_start) = jax.jit(both)(jnp.asarray(inputs[:, :, None], jnp.float32))
    slope = np.sum(np.asarray(to_inputs)[:, :, 0] * towards[0]) + np.sum(np.asarray(to_start)[:, 0] * towards[1])
    right = np.allclose(np.asarray(states[0])[:, :, 0], expected, atol=tolerance)
    return bool(right and abs(slope - (above.sum() - below.sum()) / (2 * size)) < tolerance)


def _definition(weight: np.ndarray, inputs: np.ndarray, h: np.ndarray) -> np.ndarray:
    """The states of a GRU without biases."""
    states = []
    for now in inputs:
        (reset, update, new), hidden = np.split(now, 3, axis=-1), h @ weight
        reset, update = 1 / (1 + np.exp(-reset - hidden[0])), 1 / (1 + np.exp(-update - hidden[1]))
        h = (1 - update) * np.tanh(new + reset * hidden[2]) + update * h
        states.append(h)
    return np.stack(states)


def unroll(
    kernels: Kernels,
    net: Net,
    inputs: Float[Array, "t *b a g"],
    start: Float[Array, "*b a h"],
    identity: Identity,
    fresh: Array | None,
    other: tuple[Net, Float[Array, "t *b a g"]] | None = None,
) -> tuple[Float[Array, "t *b a h"], Float[Array, "t *b a h"] | None]:
    """States after every step, and those of another network that is not differentiated."""
    trained, fixed = eqx.partition(net.layer, eqx.is_inexact_array)
    return _unroll(kernels, trained, fixed, net.gate, inputs, start, identity, fresh, other)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _unroll(kernels, trained, fixed, gate, inputs, start, identity, fresh, other) -> Any:
    nets = [(Net(eqx.combine(trained, fixed), gate), inputs), *([] if other is None else [other])]
    given, cell = _laid_out(nets, start, identity, fresh)
    states, _ = gru_kernel.forward(given, cell, kernels, save=False)
    return _as_before(states, start)


def _forward(kernels, trained, fixed, gate, inputs, start, identity, fresh, other):
    nets = [(Net(eqx.combine(trained, fixed), gate), inputs), *([] if other is None else [other])]
    given, cell = _laid_out(nets, start, identity, fresh)
    states, saved = gru_kernel.forward(given, cell, kernels, save=True)
    alone = cell._replace(weight=cell.weight[:1], bias=cell.bias[:1], mask=cell.mask[:1])
    return _as_before(states, start), (trained, fixed, identity, start, alone, saved)


def _backward(kernels, kept, gradients):
    trained, fixed, identity, start, cell, saved = kept
    shape = gradients[0].shape
    to_inputs, to_hidden, to_start = gru_kernel.backward(gradients[0].reshape(saved.before.shape), cell, saved, kernels)
    before = saved.before.reshape(shape)
    to_inputs, to_hidden = (leaf.reshape(*shape[:-1], -1) for leaf in (to_inputs, to_hidden))
    _, pull = jax.vjp(lambda trained: eqx.combine(trained, fixed)(before, identity), trained)
    return pull(to_hidden)[0], None, None, to_inputs, to_start.reshape(start.shape), None, None, None


_unroll.defvjp(_forward, _backward)


def _laid_out(nets, start: Float[Array, "*b a h"], identity: Identity, fresh) -> tuple[list[Array], Recurrence]:
    """Inputs of each network, and the rest, as the kernels read them."""
    steps, agents, width = nets[0][1].shape[0], start.shape[-2], start.shape[-1]
    groups = 1 if all(_alike(net) for net, _ in nets) else agents
    rows = start.size // (groups * width)
    cells = [_dense(net, identity, groups, width) for net, _ in nets]
    weight, bias, mask = (jnp.stack(parts) for parts in zip(*cells, strict=True))
    keep = jnp.ones((steps, rows, groups))
    if fresh is not None:
        keep = jnp.broadcast_to(~fresh[..., None], (*fresh.shape, agents)).astype(jnp.float32)
        keep = keep.reshape(steps, rows, groups)
    inputs = [given.reshape(steps, rows, groups, 3 * width) for _, given in nets]
    return inputs, Recurrence(weight, bias, mask, start.reshape(rows, groups, width), keep)


def _dense(net: Net, identity: Identity, groups: int, width: int) -> tuple[Array, Array, Array]:
    """Weights [g, 3, h, h] that a state is multiplied with, biases [g, 3, h] and masks of nodes [g, h]."""
    weight, bias = net.layer.dense(), net.layer.dense_bias()
    mask = jnp.ones((len(weight), width)) if net.gate is None else net.gate.mask.astype(jnp.float32)
    which = jnp.arange(groups) if identity is None or groups == 1 else identity
    weight, bias, mask = (jnp.take(table, which, axis=0, mode="clip") for table in (weight, bias, mask))
    weight = jnp.swapaxes(weight.reshape(groups, 3, width, width), -1, -2)
    return weight, bias.reshape(groups, 3, width), mask


def _as_before(states: list[Float[Array, "t n g h"]], start: Float[Array, "*b a h"]):
    found = [own.reshape(len(own), *start.shape) for own in states]
    return found[0], found[1] if len(found) > 1 else None
