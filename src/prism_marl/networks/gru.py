"""A GRU made of sharing layers, and its unrolling over whole episodes with a backward pass written by hand.

Automatic differentiation of a scanned cell multiplies small matrices at every step to sum the gradient of the weights.
Here the backward scan carries only the gradient of the state; the gradient of the weights is one product over all steps
afterwards. The forward scan can also run a second network (a learner's target) that is not differentiated. The numbers
are the same, and an update takes a fraction of the time. On a GPU two kernels do all of it where they fit
(networks/gru_fused.py); the scan is their definition.

Several episodes can follow each other in one row: where ``fresh`` is true, the state is zeros before the step.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from prism_marl.sharing.base import Identity, RoleGate, RoleLinear


class RoleGRU(eqx.Module):
    """GRU cell with PyTorch's two bias vectors (6 h^2 + 6 h numbers); gates are stacked as reset, update, new."""

    input: RoleLinear
    hidden: RoleLinear
    gate: RoleGate | None

    def cell(
        self, inputs: Float[Array, "*b a g"], h: Float[Array, "*b a h"], identity: Identity
    ) -> Float[Array, "*b a h"]:
        """One step, given the input half of the gates, which does not depend on the state."""
        return _step(self.hidden, self.gate, _thirds(inputs), h, identity)


TimedIdentity = Int[Array, "t *b a"] | Int[Array, " a"] | None
"""Like ``Identity``; an array that differs between samples has a time axis in front."""
Fresh = Bool[Array, "t *b"] | None
"""Where a new episode begins; None where that is only at the start."""


def unroll(
    gru: RoleGRU,
    inputs: Float[Array, "t *b a g"],
    start: Float[Array, "*b a h"],
    identity: TimedIdentity,
    fresh: Fresh = None,
) -> Float[Array, "t *b a h"]:
    """States after every step, given the input half of the gates."""
    return _either(gru, inputs, start, identity, fresh, None)[0]


def unroll_pair(
    gru: RoleGRU,
    inputs: Float[Array, "t *b a g"],
    companion: RoleGRU,
    companion_inputs: Float[Array, "t *b a g"],
    start: Float[Array, "*b a h"],
    identity: TimedIdentity,
    fresh: Fresh = None,
) -> tuple[Float[Array, "t *b a h"], Float[Array, "t *b a h"]]:
    """``unroll`` of two networks at once; the second one is never differentiated."""
    return _either(gru, inputs, start, identity, fresh, (companion, companion_inputs))


def _either(gru: RoleGRU, inputs, start, identity, fresh: Fresh, other: tuple[RoleGRU, Any] | None) -> Any:
    """States of a network, and of the other one if there is one, by fused kernels where that is possible."""
    if jax.default_backend() == "cpu":
        return by_scan(gru, inputs, start, identity, fresh, other)
    from prism_marl.networks import gru_fused  # it needs Pallas, which takes a while to import

    net = gru_fused.Net(gru.hidden, gru.gate)
    kernels = gru_fused.kernels_for(net, inputs, identity, networks=1 if other is None else 2)
    if kernels is None:
        return by_scan(gru, inputs, start, identity, fresh, other)
    pair = None if other is None else (gru_fused.Net(other[0].hidden, other[0].gate), other[1])
    return gru_fused.unroll(kernels, net, inputs, start, identity, fresh, pair)


def by_scan(
    gru: RoleGRU,
    inputs: Float[Array, "t *b a g"],
    start: Float[Array, "*b a h"],
    identity: TimedIdentity,
    fresh: Fresh,
    other: tuple[RoleGRU, Float[Array, "t *b a g"]] | None,
) -> tuple[Float[Array, "t *b a h"], Float[Array, "t *b a h"] | None]:
    """States of a network, and of the other one if there is one, step by step."""
    trained, fixed = eqx.partition(gru.hidden, eqx.is_inexact_array)
    pair = None if other is None else (other[0].hidden, other[0].gate, _thirds(other[1]))
    return _unroll(trained, fixed, gru.gate, _thirds(inputs), start, identity, _columns(fresh), pair)


def _columns(fresh: Fresh) -> Bool[Array, "t *b 1 1"] | None:
    return None if fresh is None else fresh[..., None, None]


def _kept(h, fresh):
    """The state, or its gradient, with zeros where an episode begins."""
    return h if fresh is None else jnp.where(fresh, 0.0, h)


def _thirds(stacked: Float[Array, "*b g"]) -> list[Float[Array, "*b h"]]:
    """The gates as three arrays, because XLA does not vectorise a loop that slices one array in time and in gates
    (three times slower on a CPU)."""
    return jnp.split(stacked, 3, axis=-1)


def _gates(inputs, hidden):
    """Reset and update gates, the new state, and the hidden half of the new state."""
    in_reset, in_update, in_new = inputs
    h_reset, h_update, h_new = _thirds(hidden)
    reset, update = jax.nn.sigmoid(in_reset + h_reset), jax.nn.sigmoid(in_update + h_update)
    return reset, update, jnp.tanh(in_new + reset * h_new), h_new


def _step(layer: RoleLinear, gate: RoleGate | None, inputs, h, identity: Identity):
    _, update, new, _ = _gates(inputs, layer(h, identity))
    out = (1 - update) * new + update * h
    return out if gate is None else gate(out, identity)


def _scan(step, start, scanned, *, reverse: bool = False):
    """``lax.scan``, unrolled by ten steps on an accelerator, whose loop overhead is large; a CPU is fastest without."""
    blocks = 1 if jax.default_backend() == "cpu" else 10
    return jax.lax.scan(step, start, scanned, unroll=blocks, reverse=reverse)


def _along_time(identity: Identity) -> Identity:
    """The identity array if it has a time axis, else None."""
    return identity if identity is not None and identity.ndim > 1 else None


def _states(layer: RoleLinear, gate: RoleGate | None, inputs, start, identity: Identity, fresh):
    def step(h, now):
        inputs_now, identity_now, fresh_now = now
        h = _step(layer, gate, inputs_now, _kept(h, fresh_now), identity if identity_now is None else identity_now)
        return h, h

    return _scan(step, start, (inputs, _along_time(identity), fresh))[1]


@jax.custom_vjp
def _unroll(trained: Any, fixed: Any, gate, inputs, start, identity, fresh, other) -> Any:
    layer = eqx.combine(trained, fixed)
    if other is None:
        return _states(layer, gate, inputs, start, identity, fresh), None
    if jax.default_backend() != "cpu":  # one batched product per step, because kernel launches take most of the time
        nets = jax.tree.map(lambda *both: jnp.stack(both), (layer, gate, inputs), other)
        states = jax.vmap(lambda net: _states(net[0], net[1], net[2], start, identity, fresh))(nets)
        return states[0], states[1]

    other_layer, other_gate, other_inputs = other

    def step(both, now):  # two independent chains, which run on different cores of a CPU
        (inputs_now, other_now), identity_now, fresh_now = now
        identity_now = identity if identity_now is None else identity_now
        mine = _step(layer, gate, inputs_now, _kept(both[0], fresh_now), identity_now)
        theirs = _step(other_layer, other_gate, other_now, _kept(both[1], fresh_now), identity_now)
        return (mine, theirs), (mine, theirs)

    return _scan(step, (start, start), ((inputs, other_inputs), _along_time(identity), fresh))[1]


def _forward(trained, fixed, gate, inputs, start, identity, fresh, other):
    states, others = _unroll(trained, fixed, gate, inputs, start, identity, fresh, other)
    return (states, others), (trained, fixed, gate, inputs, start, identity, fresh, states)


def _backward(saved, gradients):
    trained, fixed, gate, inputs, start, identity, fresh, states = saved
    layer = eqx.combine(trained, fixed)
    before = _kept(jnp.concatenate([start[None], states[:-1]]), fresh)
    # Compute all gates again in one product: this is faster than storing them in the forward scan (measured).
    reset, update, new, h_new = _gates(inputs, layer(before, identity))
    to_new = (1 - update) * (1 - new**2)
    to_update = (before - new) * update * (1 - update)
    to_reset = to_new * h_new * reset * (1 - reset)
    slopes = (to_reset, to_update, to_new * reset)

    def step(carried, now):
        gradient, slopes, update, identity_now, fresh_now = now
        identity_now = identity if identity_now is None else identity_now
        out = carried + gradient
        out = out if gate is None else gate(out, identity_now)
        _, transpose = jax.vjp(lambda h: layer(h, identity_now), jnp.zeros_like(out))
        return _kept(out * update + transpose(_joined(out, slopes))[0], fresh_now), out

    scanned = (gradients[0], slopes, update, _along_time(identity), fresh)
    to_start, out = _scan(step, jnp.zeros_like(start), scanned, reverse=True)
    _, pull = jax.vjp(lambda trained: eqx.combine(trained, fixed)(before, identity), trained)
    to_inputs = [out * to_reset, out * to_update, out * to_new]
    return pull(_joined(out, slopes))[0], None, None, to_inputs, to_start, None, None, None


def _joined(out, slopes):
    return jnp.concatenate([out * slope for slope in slopes], axis=-1)


_unroll.defvjp(_forward, _backward)
