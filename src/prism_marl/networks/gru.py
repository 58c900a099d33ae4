"""A GRU made of sharing layers, and its unrolling along whole episodes with a backward pass of its own.

Plain differentiation of a scanned cell multiplies small matrices at every step just to add up the gradient of the
weights. Here the backward scan carries the gradient of the state alone; the weights' gradient is one product over the
whole block afterwards. The result is the same; an update takes a fraction of the time on CPUs and GPUs alike.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from prism_marl.sharing.base import Identity, RoleGate, RoleLinear


class RoleGRU(eqx.Module):
    """GRU cell with PyTorch's two bias vectors (6 h^2 + 6 h numbers); gates are stacked as reset, update, new."""

    input: RoleLinear
    hidden: RoleLinear
    gate: RoleGate | None

    def cell(
        self, inputs: Float[Array, "*b a g"], h: Float[Array, "*b a h"], identity: Identity
    ) -> Float[Array, "*b a h"]:
        """One step, given the input half of the gates, which does not depend on time."""
        return _cell(self.hidden, self.gate, inputs, h, identity)

    def unroll(
        self, inputs: Float[Array, "t *b a g"], h: Float[Array, "*b a h"], identity: Identity, *, scan_unroll: int = 1
    ) -> Float[Array, "t *b a h"]:
        """States after every step."""
        trained, fixed = eqx.partition(self.hidden, eqx.is_inexact_array)
        return _unroll(scan_unroll, trained, fixed, self.gate, inputs, h, identity)


def _gates(inputs, hidden):
    """Reset and update gates, the new state, and the hidden half of the latter."""
    in_reset, in_update, in_new = jnp.split(inputs, 3, axis=-1)
    h_reset, h_update, h_new = jnp.split(hidden, 3, axis=-1)
    reset, update = jax.nn.sigmoid(in_reset + h_reset), jax.nn.sigmoid(in_update + h_update)
    return reset, update, jnp.tanh(in_new + reset * h_new), h_new


def _cell(hidden: RoleLinear, gate: RoleGate | None, inputs, h, identity: Identity):
    _, update, new, _ = _gates(inputs, hidden(h, identity))
    out = (1 - update) * new + update * h
    return out if gate is None else gate(out, identity)


def _along_time(identity: Identity) -> Identity:
    """The identity array where it has a time axis to scan over."""
    return identity if identity is not None and identity.ndim > 1 else None


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _unroll(scan_unroll: int, trained: Any, fixed: Any, gate, inputs, start, identity):
    layer = eqx.combine(trained, fixed)

    def step(h, now):
        inputs_now, identity_now = now
        h = _cell(layer, gate, inputs_now, h, identity if identity_now is None else identity_now)
        return h, h

    return jax.lax.scan(step, start, (inputs, _along_time(identity)), unroll=scan_unroll)[1]


def _forward(scan_unroll, trained, fixed, gate, inputs, start, identity):
    states = _unroll(scan_unroll, trained, fixed, gate, inputs, start, identity)
    return states, (trained, fixed, gate, inputs, start, identity, states)


def _backward(scan_unroll, saved, gradient):
    trained, fixed, gate, inputs, start, identity, states = saved
    layer = eqx.combine(trained, fixed)
    before = jnp.concatenate([start[None], states[:-1]])
    # All gates again, in one product: cheaper than writing them out step by step on the way forward.
    reset, update, new, h_new = _gates(inputs, layer(before, identity))
    to_new = (1 - update) * (1 - new**2)
    to_update = (before - new) * update * (1 - update)
    to_reset = to_new * h_new * reset * (1 - reset)

    def step(carried, now):
        gradient_now, slopes, identity_now = now
        to_reset, to_update, to_new, reset, update = slopes
        identity_now = identity if identity_now is None else identity_now
        out = carried + gradient_now
        out = out if gate is None else gate(out, identity_now)
        through = jnp.concatenate([out * to_reset, out * to_update, out * to_new * reset], axis=-1)
        _, transpose = jax.vjp(lambda h: layer(h, identity_now), jnp.zeros_like(out))
        return out * update + transpose(through)[0], out

    slopes = (to_reset, to_update, to_new, reset, update)
    scanned = (gradient, slopes, _along_time(identity))
    to_start, out = jax.lax.scan(step, jnp.zeros_like(start), scanned, unroll=scan_unroll, reverse=True)
    to_inputs = jnp.concatenate([out * to_reset, out * to_update, out * to_new], axis=-1)
    to_hidden = jnp.concatenate([out * to_reset, out * to_update, out * to_new * reset], axis=-1)
    _, pull = jax.vjp(lambda trained: eqx.combine(trained, fixed)(before, identity), trained)
    return pull(to_hidden)[0], None, None, to_inputs, to_start, None


_unroll.defvjp(_forward, _backward)
