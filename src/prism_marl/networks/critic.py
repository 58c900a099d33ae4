"""An ensemble of critics, each of which returns a value of a joint action."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from prism_marl.networks import critic_fused
from prism_marl.networks.mlp import Norm
from prism_marl.networks.norm_kernel import Normed
from prism_marl.sharing.base import RoleLinear, Sharing
from prism_marl.sharing.products import in_batches

LONG = 4  # inputs longer than so many hidden widths are not repeated


class Critics(eqx.Module):
    """Three sharing layers whose identities are the critics, so that a sharing method also decides what critics share.

    All critics get the same input, and their axis is the first one. A short input is repeated for each critic: one
    product for all critics would be smaller, but its result must be transposed, which costs more. A long input (state
    and actions of a thousand agents) is not repeated, because it is larger than the result.
    """

    fc1: RoleLinear
    fc2: RoleLinear
    fc3: RoleLinear
    norms: tuple[Norm, Norm] | None  # after fc1 and fc2, before the relu

    def __call__(self, x: Float[Array, "b i"]) -> Float[Array, "c b"]:
        blocks = self._blocks()
        if blocks is None:
            return self._after_first(self.first(x))
        first, second = self._normed()
        hidden = critic_fused.activated(blocks, self._product(x), first)
        product = in_batches(hidden, self.fc2.dense())
        return critic_fused.valued(blocks, product, second, self.fc3.dense()[:, 0]) + self.fc3.dense_bias()

    def first(self, x: Float[Array, "b i"]) -> Float[Array, "c b h"]:
        """The output of fc1 for state and actions; it is linear, so ``changed`` can replace an agent's action later."""
        return self._product(x) + self.fc1.dense_bias()[:, None]

    def changed(
        self, hidden: Float[Array, "c b h"], change: Float[Array, "b u"], weight: Float[Array, "c h u"]
    ) -> Float[Array, "c b"]:
        """The values after some actions have changed, given the output of ``first`` and the weights of these actions.
        Gradients reach the change; those of the critics themselves are not for use."""
        blocks = self._blocks()
        if blocks is None:
            return self._after_first(shifted(hidden, change, weight))
        first, second = self._normed()
        constant = (hidden, weight, first, self.fc2.dense(), second, self.fc3.dense()[:, 0])
        return critic_fused.changed(blocks, change, constant) + self.fc3.dense_bias()

    def _product(self, x: Float[Array, "b i"]) -> Float[Array, "c b h"]:
        weight = self.fc1.dense()
        if x.shape[-1] > LONG * weight.shape[1]:
            return jnp.einsum("bi,chi->cbh", x, weight)
        return in_batches(jnp.broadcast_to(x, (len(weight), *x.shape)), weight)

    def _after_first(self, hidden: Float[Array, "c b h"]) -> Float[Array, "c b"]:
        first, second = self.norms or (None, None)
        x = _apply(self.fc2, _activated(hidden, first))
        return _apply(self.fc3, _activated(x, second))[..., 0]

    def _blocks(self) -> critic_fused.Blocks | None:
        """Kernels for the LayerNorms, where there are LayerNorms and kernels."""
        return None if self.norms is None else critic_fused.blocks_for(self.norms[0].scale.shape[-1])

    def _normed(self) -> list[Normed]:
        """What stands behind the products of fc1 and fc2."""
        assert self.norms is not None
        biases = self.fc1.dense_bias(), self.fc2.dense_bias()
        return [
            Normed(bias, *(jnp.broadcast_to(part[:, 0], bias.shape) for part in (norm.scale, norm.shift)))
            for bias, norm in zip(biases, self.norms, strict=True)
        ]


@jax.custom_vjp
def shifted(
    hidden: Float[Array, "c b h"], change: Float[Array, "b u"], weight: Float[Array, "c h u"]
) -> Float[Array, "c b h"]:
    """The output of fc1 after some actions have changed: the old output plus the change times its weights.

    An agent has few action numbers, so this is a few multiplications that fuse into one loop over the hidden units; a
    matrix product would read and write the hidden units once more.
    """
    for action in range(change.shape[1]):
        hidden = hidden + change[:, action, None] * weight[:, None, :, action]
    return hidden


def _shifted_forward(hidden, change, weight):
    return shifted(hidden, change, weight), (change, weight)


def _shifted_backward(kept, gradient):
    change, weight = kept
    # The sum over critics comes last, because summing over both axes at once needs a transpose.
    by_change = jnp.sum(in_batches(gradient, jnp.swapaxes(weight, 1, 2)), axis=0)
    return gradient, by_change, jnp.einsum("cbh,bu->chu", gradient, change)


shifted.defvjp(_shifted_forward, _shifted_backward)


def _apply(layer: RoleLinear, x: Float[Array, "c b i"]) -> Float[Array, "c b o"]:
    return in_batches(x, layer.dense()) + layer.dense_bias()[:, None]


def _activated(x: Float[Array, "c b h"], norm: Norm | None) -> Float[Array, "c b h"]:
    return jax.nn.relu(x if norm is None else norm(x))


def critics(sharing: Sharing, *, members: int, inputs: int, width: int, norms: bool, key: Key[Array, ""]) -> Critics:
    """New critics. If their networks are separate, so are their LayerNorms."""
    keys = jax.random.split(key, 3)
    sizes = ((inputs, width), (width, width), (width, 1))
    layers = [
        sharing.linear(fan_in, fan_out, identities=members, key=keys[depth], kind="hidden", depth=depth)
        for depth, (fan_in, fan_out) in enumerate(sizes)
    ]
    rows = members if sharing.separate_networks else 1
    norm = Norm(jnp.ones((rows, 1, width)), jnp.zeros((rows, 1, width)))
    return Critics(*layers, norms=(norm, norm) if norms else None)
