"""Networks as they act: what does not depend on the input is worked out once, not at every step."""

from typing import Any

import jax

from prism_marl.sharing.base import RoleLinear
from prism_marl.sharing.fups import SharedLinear
from prism_marl.sharing.nops import IndependentLinear
from prism_marl.sharing.spectral import FactoredLinear


def materialise(network: Any) -> Any:
    """The same network with layers as they act; by role where the network's identities are roles."""
    by_role = getattr(network, "by_role", False)

    def plain(layer):
        return acting(layer, by_role=by_role) if isinstance(layer, RoleLinear) else layer

    return jax.tree.map(plain, network, is_leaf=lambda node: isinstance(node, RoleLinear))


def acting(layer: RoleLinear, *, by_role: bool) -> RoleLinear:
    """A layer as it acts: one plain matrix, or one for each identity.

    Where identities differ between samples (``by_role``), every row would be multiplied by all matrices. Two products
    with singular vectors are fewer, so a factorised layer stays factorised then.
    """
    if isinstance(layer, SharedLinear):
        return layer
    if isinstance(layer, FactoredLinear) and layer.masked == 0:
        return SharedLinear(weight=(layer.U * layer.s) @ layer.V.T, bias=layer.bias, identities=layer.identities)
    if isinstance(layer, FactoredLinear) and by_role:
        return layer.by_spectrum()
    return IndependentLinear(weight=layer.dense(), bias=layer.dense_bias(), identities=layer.identities)
