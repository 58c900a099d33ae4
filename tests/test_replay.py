"""The ring buffer against a plain list."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl.buffers.ring import Ring, empty_ring, ring_bytes

EXAMPLE = {"x": jax.ShapeDtypeStruct((2,), jnp.int8), "empty": jax.ShapeDtypeStruct((0, 3), jnp.float32)}


def items(first: int, number: int):
    x = jnp.repeat(jnp.arange(first, first + number)[:, None], 2, axis=1)
    return {"x": x, "empty": jnp.zeros((number, 0, 3))}


def filled(capacity: int, sizes: list[int]) -> tuple[Ring, list[int]]:
    ring, held, number = empty_ring(EXAMPLE, capacity), [], 0
    for size in sizes:
        ring = ring.add(items(number, size))
        held += range(number, number + size)
        number += size
    return ring, held


@pytest.mark.parametrize("sizes", [[1, 1], [3, 3], [2, 2, 2, 2, 2], [5], [4, 4, 4, 1], [1] * 12], ids=str)
def test_the_ring_holds_the_latest_items(sizes):
    ring, held = filled(5, sizes)
    assert int(ring.count) == min(5, len(held)) and int(ring.added) == len(held)
    assert ring.capacity == 5
    newest = ring.newest(int(ring.count))["x"]
    assert newest.dtype == jnp.int8
    assert newest[:, 0].tolist() == held[::-1][:5]
    assert sorted(ring.sample(jax.random.key(0), int(ring.count))["x"][:, 1].tolist()) == sorted(held[-5:])


def test_samples_are_distinct_and_only_of_what_is_there():
    ring, _ = filled(7, [4])
    drawn = jax.vmap(lambda key: ring.sample(key, 3)["x"][:, 0])(jax.random.split(jax.random.key(1), 300))
    for row in np.asarray(drawn):
        assert len(set(row)) == 3 and set(row) <= {0, 1, 2, 3}


def test_every_item_is_drawn_equally_often():
    ring, held = filled(8, [5, 6])
    number = 4_000
    drawn = jax.jit(jax.vmap(lambda key: ring.sample(key, 2)["x"][:, 0]))(jax.random.split(jax.random.key(2), number))
    counts = np.bincount(np.asarray(drawn).ravel())[held[-8:]]
    expected = 2 * number / 8
    assert counts.sum() == 2 * number
    assert ((counts - expected) ** 2 / expected).sum() < 30  # chi-square with 7 degrees of freedom


def test_memory_is_known_before_it_is_taken():
    example = EXAMPLE | {"flag": jax.ShapeDtypeStruct((), bool), "reward": jax.ShapeDtypeStruct((4,), jnp.float32)}
    ring = empty_ring(example, 9)
    assert ring_bytes(example, 9) == sum(leaf.nbytes for leaf in jax.tree.leaves(ring.storage)) == 9 * (2 + 1 + 16)
    assert all(not leaf.any() for leaf in jax.tree.leaves(ring.storage))
