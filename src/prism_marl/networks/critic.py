"""An ensemble of critics: values of a joint action, as many as there are members."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from prism_marl.networks.mlp import Norm
from prism_marl.sharing.base import RoleLinear, Sharing


class Critics(eqx.Module):
    """Three layers whose identities are the members, so that a sharing method can also say what critics share.

    All members see the same input. Their axis comes first: the first layer is then one product for all of them and the
    others are batched products without transposition.
    """

    fc1: RoleLinear
    fc2: RoleLinear
    fc3: RoleLinear
    norms: tuple[Norm, Norm] | None  # after fc1 and fc2, before the relu

    def __call__(self, x: Float[Array, "b i"]) -> Float[Array, "c b"]:
        return self.after_first(self.first(x))

    def first(self, x: Float[Array, "b i"]) -> Float[Array, "c b h"]:
        """What fc1 makes of state and actions; linear, so that one agent's action can be exchanged afterwards."""
        return jnp.einsum("bi,chi->cbh", x, self.fc1.dense()) + self.fc1.dense_bias()[:, None]

    def after_first(self, hidden: Float[Array, "c b h"]) -> Float[Array, "c b"]:
        """The rest of the way."""
        first, second = self.norms or (None, None)
        x = _apply(self.fc2, _activated(hidden, first))
        return _apply(self.fc3, _activated(x, second))[..., 0]


def _apply(layer: RoleLinear, x: Float[Array, "c b i"]) -> Float[Array, "c b o"]:
    return jnp.einsum("cbi,coi->cbo", x, layer.dense()) + layer.dense_bias()[:, None]


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
