"""Fixed node masks on one shared network: the layer of SNP (a mask per agent) and AdaPS (a mask per cluster)."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from prism_marl.sharing.base import Identity, Kind, RoleGate, RoleLinear, private, select_rows
from prism_marl.sharing.fups import SharedLinear, shared_linear


class NodeMaskedLinear(RoleLinear):
    """A shared matrix with some output nodes switched off per identity: mask * (W x + b)."""

    shared: SharedLinear
    mask: Bool[Array, "m o"] = private()
    identities: int = eqx.field(static=True)

    def dense(self) -> Float[Array, "m o i"]:
        return self.mask[:, :, None] * self.shared.weight

    def dense_bias(self) -> Float[Array, "m o"]:
        return self.mask * self.shared.bias

    def __call__(self, x: Float[Array, "*b a i"], identity: Identity = None) -> Float[Array, "*b a o"]:
        return self.shared(x) * select_rows(self.mask.astype(x.dtype), identity)


SampleMasks = Callable[[Key[Array, ""], int], Bool[Array, "m h"]]
"""Returns the node masks of one layer for all identities, given the width."""


def pruned_linear(
    fan_in: int,
    fan_out: int,
    *,
    identities: int,
    key: Key[Array, ""],
    kind: Kind,
    sample: SampleMasks,
    prune_actions: bool,
) -> RoleLinear:
    """Hidden layers and the action vector of a continuous actor have masks; other layers are only shared.

    Action masks always exist, because the published counts include them. Without ``prune_actions`` they are all ones,
    because a pruned action node is an actuator that never moves.
    """
    key_weight, key_mask = jax.random.split(key)
    shared = shared_linear(fan_in, fan_out, identities=identities, key=key_weight)
    if kind in ("input", "recurrent", "values"):
        return shared
    if kind == "actions" and not prune_actions:
        return NodeMaskedLinear(shared=shared, mask=jnp.ones((identities, fan_out), bool), identities=identities)
    return NodeMaskedLinear(shared=shared, mask=sample(key_mask, fan_out), identities=identities)


def pruned_gate(size: int, *, key: Key[Array, ""], sample: SampleMasks) -> RoleGate:
    """The masks of the recurrent state; the next step receives the masked state."""
    return RoleGate(sample(key, size))
