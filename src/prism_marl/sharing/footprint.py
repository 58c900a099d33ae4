"""The size of a network, counted on the built modules, not by a formula."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax


@dataclass(frozen=True)
class Footprint:
    """Size of one agent network for a whole team."""

    shared: int  # numbers that all identities use
    private: int  # numbers that belong to a single identity: masks, thresholds, own matrices, labels
    bytes: int  # memory of all of them in their dtypes

    @property
    def parameters(self) -> int:
        """All numbers, including thresholds and mask entries, as in the paper."""
        return self.shared + self.private

    @property
    def ratio(self) -> float:
        """The overhead of single agents: private / (shared + private)."""
        return self.private / self.parameters

    def __add__(self, other: "Footprint") -> "Footprint":
        return Footprint(self.shared + other.shared, self.private + other.private, self.bytes + other.bytes)


def footprint(network: Any, *, private: bool = False) -> Footprint:
    """Count the arrays of a network or the shapes from ``jax.eval_shape``; fields made by ``private()`` are private."""
    if isinstance(network, eqx.Module):
        parts = [
            footprint(getattr(network, field.name), private=private or bool(field.metadata.get("private")))
            for field in dataclasses.fields(network)
            if not field.metadata.get("static")
        ]
        return sum(parts, Footprint(0, 0, 0))
    total = Footprint(0, 0, 0)
    for leaf in jax.tree.leaves(network, is_leaf=lambda node: isinstance(node, eqx.Module)):
        if isinstance(leaf, eqx.Module):
            total += footprint(leaf, private=private)
        else:
            size = math.prod(leaf.shape)
            total += Footprint(0 if private else size, size if private else 0, size * leaf.dtype.itemsize)
    return total
