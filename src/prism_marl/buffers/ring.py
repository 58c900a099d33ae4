"""A ring buffer over any pytree of arrays whose first axis is the item."""

import math
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

Item = TypeVar("Item")


class Ring(eqx.Module, Generic[Item]):
    """Storage of fixed size; ``added`` counts all items ever added, so position and fill follow from it."""

    storage: Item
    added: Int[Array, ""]

    @property
    def capacity(self) -> int:
        return jax.tree.leaves(self.storage)[0].shape[0]

    @property
    def count(self) -> Int[Array, ""]:
        return jnp.minimum(self.added, self.capacity)

    def add(self, items: Item) -> "Ring[Item]":
        """Append items along the first axis, overwriting the oldest."""
        number = jax.tree.leaves(items)[0].shape[0]
        index = (self.added + jnp.arange(number)) % self.capacity
        storage = jax.tree.map(lambda held, new: held.at[index].set(new.astype(held.dtype)), self.storage, items)
        return Ring(storage, self.added + number)

    def sample(self, key: Key[Array, ""], number: int) -> Item:
        """Distinct items, uniformly: the indices of the largest of as many random numbers as there are items."""
        noise = jax.random.uniform(key, (self.capacity,))
        _, index = jax.lax.top_k(jnp.where(jnp.arange(self.capacity) < self.count, noise, -1.0), number)
        return jax.tree.map(lambda held: held[index], self.storage)

    def newest(self, number: int) -> Item:
        """The latest items, newest first."""
        index = (self.added - 1 - jnp.arange(number)) % self.capacity
        return jax.tree.map(lambda held: held[index], self.storage)


def empty_ring(example: Item, capacity: int) -> Ring[Item]:
    """A buffer for items shaped like ``example`` (arrays or shapes, without the item axis)."""
    storage = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), example)
    return Ring(storage, jnp.zeros((), jnp.int32))


def ring_bytes(example: Any, capacity: int) -> int:
    """Memory that ``empty`` would take, known before anything is allocated."""
    return capacity * sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(example))
