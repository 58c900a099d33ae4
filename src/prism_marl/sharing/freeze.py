"""Any sharing method with its shared part frozen: only what belongs to single agents learns."""

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from prism_marl.sharing.base import Sharing


def private_only(sharing: Sharing) -> Sharing:
    """The same settings, with gradients of private arrays alone."""
    fields = {field.name: getattr(sharing, field.name) for field in dataclasses.fields(sharing)}
    return _frozen_class(type(sharing))(**fields)


@functools.cache
def _frozen_class(method: type[Sharing]) -> Any:
    """One class for each method, so that equal settings stay equal and compiled programs are found again."""

    @dataclass(frozen=True)
    class PrivateOnly(method):
        phased = True

        def constrain(self, gradient, step):
            del step  # also where a method has phases: what is shared has learned before
            return private_part(gradient)

    return PrivateOnly


def private_part(network: Any, *, private: bool = False) -> Any:
    """A copy with zeros for every array that is not declared by ``private()``."""
    if isinstance(network, eqx.Module):
        parts = {
            field.name: private_part(
                getattr(network, field.name), private=private or bool(field.metadata.get("private"))
            )
            for field in dataclasses.fields(network)
            if not field.metadata.get("static")
        }
        names = list(parts)
        return eqx.tree_at(
            lambda module: [getattr(module, name) for name in names],
            network,
            list(parts.values()),
            is_leaf=lambda leaf: leaf is None,
        )
    if private:
        return network

    def inside(leaf: Any) -> Any:
        return private_part(leaf) if isinstance(leaf, eqx.Module) else jnp.zeros_like(leaf)

    return jax.tree.map(inside, network, is_leaf=lambda node: isinstance(node, eqx.Module))


def private_names(network: Any, *, private: bool = False, trail: str = "") -> set[str]:
    """Dotted names of all arrays that belong to single identities, which are their first axis."""
    if not isinstance(network, eqx.Module):
        return {trail} if private and network is not None else set()
    found: set[str] = set()
    for field in dataclasses.fields(network):
        if not field.metadata.get("static"):
            own = private or bool(field.metadata.get("private"))
            name = f"{trail}.{field.name}" if trail else field.name
            found |= private_names(getattr(network, field.name), private=own, trail=name)
    return found
