"""Networks with one plain matrix per identity, which is what a sharing method means."""

from typing import Any

import jax

from prism_marl.sharing.base import RoleLinear
from prism_marl.sharing.fups import SharedLinear
from prism_marl.sharing.nops import IndependentLinear


def materialise(network: Any) -> Any:
    """The same network with one plain matrix per identity: acting then costs the same for every method."""

    def plain(layer):
        if not isinstance(layer, RoleLinear) or isinstance(layer, SharedLinear):
            return layer
        return IndependentLinear(weight=layer.dense(), bias=layer.dense_bias(), identities=layer.identities)

    return jax.tree.map(plain, network, is_leaf=lambda node: isinstance(node, RoleLinear))
