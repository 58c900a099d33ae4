"""An ensemble of critics: values of a joint action, as many as there are members."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from prism_marl.networks.mlp import Norm
from prism_marl.sharing.base import RoleLinear, Sharing
from prism_marl.sharing.products import in_batches

LONG = 4  # times the hidden width: inputs beyond that are not repeated


class Critics(eqx.Module):
    """Three layers whose identities are the members, so that a sharing method can also say what critics share.

    All members see the same input. Their axis comes first, and a short input is repeated for each of them: one product
    for all members would be smaller, but its result had to be transposed, which costs more. A long input is not: the
    state and actions of a thousand agents are wider than any result.
    """

    fc1: RoleLinear
    fc2: RoleLinear
    fc3: RoleLinear
    norms: tuple[Norm, Norm] | None  # after fc1 and fc2, before the relu

    def __call__(self, x: Float[Array, "b i"]) -> Float[Array, "c b"]:
        return self.after_first(self.first(x))

    def first(self, x: Float[Array, "b i"]) -> Float[Array, "c b h"]:
        """What fc1 makes of state and actions; linear, so that one agent's action can be exchanged afterwards."""
        weight = self.fc1.dense()
        if x.shape[-1] > LONG * weight.shape[1]:
            product = jnp.einsum("bi,chi->cbh", x, weight)
        else:
            product = in_batches(jnp.broadcast_to(x, (len(weight), *x.shape)), weight)
        return product + self.fc1.dense_bias()[:, None]

    def after_first(self, hidden: Float[Array, "c b h"]) -> Float[Array, "c b"]:
        """The rest of the way."""
        first, second = self.norms or (None, None)
        x = _apply(self.fc2, _activated(hidden, first))
        return _apply(self.fc3, _activated(x, second))[..., 0]


@jax.custom_vjp
def shifted(
    hidden: Float[Array, "c b h"], change: Float[Array, "b u"], weight: Float[Array, "c h u"]
) -> Float[Array, "c b h"]:
    """What fc1 makes of other actions: its output, moved by the change of some actions times their weights.

    An agent has few actions, so this is a handful of multiplications that belong into the loop over the hidden units;
    as a product of its own it would read and write them once more.
    """
    for action in range(change.shape[1]):
        hidden = hidden + change[:, action, None] * weight[:, None, :, action]
    return hidden


def _shifted_forward(hidden, change, weight):
    return shifted(hidden, change, weight), (change, weight)


def _shifted_backward(kept, gradient):
    change, weight = kept
    # Summed over members last: to sum over both at once would transpose.
    by_change = jnp.sum(in_batches(gradient, jnp.swapaxes(weight, 1, 2)), axis=0)
    return gradient, by_change, jnp.einsum("cbh,bu->chu", gradient, change)


shifted.defvjp(_shifted_forward, _shifted_backward)


def _apply(layer: RoleLinear, x: Float[Array, "c b i"]) -> Float[Array, "c b o"]:
    return in_batches(x, layer.dense()) + layer.dense_bias()[:, None]


def _activated(x: Float[Array, "c b h"], norm: Norm | None) -> Float[Array, "c b h"]:
    return jax.nn.relu(x if norm is None else norm(x))


def critics(sharing: Sharing, *, members: int, inputs: int, width: int, norms: bool, key: Key[Array, ""]) -> Critics:
    """Fresh critics. Members that have nothing in common also have LayerNorms of their own."""
    keys = jax.random.split(key, 3)
    sizes = ((inputs, width), (width, width), (width, 1))
    layers = [
        sharing.linear(fan_in, fan_out, identities=members, key=keys[depth], kind="hidden", depth=depth)
        for depth, (fan_in, fan_out) in enumerate(sizes)
    ]
    rows = members if sharing.separate_networks else 1
    norm = Norm(jnp.ones((rows, 1, width)), jnp.zeros((rows, 1, width)))
    return Critics(*layers, norms=(norm, norm) if norms else None)
