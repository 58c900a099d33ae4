"""Episodes packed into rows: nothing overlaps, nothing is lost, and rows are few."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl.learners.packed import first_fit, next_fit, packings

HORIZON, NUMBER = 20, 12


def packed(lengths):
    """The packing of episodes of so many steps in one block, whose rows have two slots more than the longest needs."""
    slots = jnp.asarray(lengths) + 1
    row, offset = first_fit(slots, HORIZON + 2)
    return packings(slots, row, offset, HORIZON + 2, NUMBER, HORIZON + 1)(jnp.int32(0)), np.asarray(row)


@pytest.mark.parametrize("seed", range(5))
def test_every_slot_of_every_episode_has_a_place_of_its_own(seed):
    lengths = np.random.default_rng(seed).integers(0, HORIZON + 1, NUMBER)
    held, row = packed(lengths)
    time = np.arange(HORIZON + 1)[:, None]
    block = jnp.asarray(100 * time + np.arange(NUMBER))
    inside = time <= lengths
    assert np.array_equal(np.asarray(held.unpack(held.pack(block)))[inside], np.asarray(block)[inside])
    assert int(held.used.sum()) == inside.sum() and int(held.fresh.sum()) == NUMBER
    assert np.asarray(held.fresh)[0, : row.max() + 1].all()  # each row begins with an episode
    values = np.asarray(held.pack(block))
    follows = np.asarray(held.used)[1:] & ~np.asarray(held.fresh)[1:]
    assert (np.diff(values, axis=0)[follows] == 100).all()  # time goes on within an episode


def test_short_episodes_share_rows():
    _, row = packed([HORIZON // 2] * NUMBER)
    assert row.max() + 1 == NUMBER // 2  # two of half the time limit fit
    assert packed([HORIZON] * NUMBER)[1].max() + 1 == NUMBER
    assert packed([HORIZON] * 2 + [0] * (NUMBER - 2))[1].max() + 1 == 3  # each full row has room for one slot


def test_the_longest_come_first():
    row, offset = jax.jit(first_fit, static_argnums=1)(jnp.array([2, 9, 3, 6]), 10)
    assert row.tolist() == [2, 0, 1, 1] and offset.tolist() == [0, 0, 6, 0]


def test_blocks_together_hold_every_slot_once():
    lengths = jnp.array([20, 3, 7, 7, 1, 0, 12, 19, 4, 4, 2, 9])
    row, offset = first_fit(lengths + 1, HORIZON + 2)
    block = packings(lengths + 1, row, offset, HORIZON + 2, 2, HORIZON + 1)
    found = [np.asarray(part.source)[np.asarray(part.used)] for part in map(block, jnp.arange(7))]
    inside = np.flatnonzero(np.arange(HORIZON + 1)[:, None] <= np.asarray(lengths))
    assert sorted(np.concatenate(found)) == inside.tolist()
    assert not found[6].size  # there are six blocks of two rows


def by_hand(slots, capacity):
    """Each episode into the row of the one before, or the next row."""
    row, used, found = 0, 0, []
    for slot in slots:
        row, used = (row, used) if used + slot <= capacity else (row + 1, 0)
        found.append((row, used))
        used += slot
    return found


@pytest.mark.parametrize("number", [1, 2, 7, 32])
def test_without_a_loop_episodes_go_where_a_loop_puts_them(number):
    place = jax.jit(next_fit, static_argnums=1)
    for seed in range(20):
        slots = np.random.default_rng(seed).integers(1, HORIZON + 2, number)
        row, offset = place(jnp.asarray(slots), HORIZON + 2)
        assert list(zip(row.tolist(), offset.tolist(), strict=True)) == by_hand(slots.tolist(), HORIZON + 2)
