"""The part of a network that one identity uses, for learners that train agents one after the other."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Int

from prism_marl.sharing.base import Network, RoleLinear, map_layers


def single(network: Network, identity: Int[Array, ""]) -> Network:
    """The network with the rows of one identity only, for an agent axis of length one.

    ``private()`` arrays have the identity as their first axis, so this works for every method. Gradients have the
    shape of the whole arrays and are zero in other rows. The identity may be traced: one program serves all agents.
    """
    return map_layers(lambda _, layer: _row(layer, identity), network, RoleLinear)


def _row(module: Any, identity: Int[Array, ""]) -> Any:
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(module):
        value = getattr(module, field.name)
        if field.name == "identities":
            fields[field.name] = 1
        elif isinstance(value, eqx.Module):
            fields[field.name] = _row(value, identity)
        elif field.metadata.get("private"):
            fields[field.name] = row(value, identity)
    return dataclasses.replace(module, **fields)


def row(tree: Any, index: Int[Array, ""]) -> Any:
    """One row of every array; the first axis stays, with length one."""
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, index, 1), tree)


def put_row(tree: Any, new: Any, index: Int[Array, ""]) -> Any:
    """A copy with this row replaced."""
    return jax.tree.map(lambda leaf, value: jax.lax.dynamic_update_slice_in_dim(leaf, value, index, 0), tree, new)
