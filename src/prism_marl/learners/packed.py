"""Episodes of a batch one after the other in fewer rows, so that an update computes little padding.

Episodes end before their time limit, and a block of them is mostly padding: of battles two thirds. Here several of them
follow each other in one row, and a recurrent network begins anew where they meet. Every row holds whole episodes, so
the sums over an update's steps, and their gradients, are sums over blocks of rows: one program computes a block, and a
loop runs as many as there are. Blocks are small enough for a processor's cache.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from prism_marl.learners.base import Trajectory
from prism_marl.types import Observation

SHORTEST = 20  # steps of a time limit from which on packing saves more than it costs
INPUTS = 24  # rows times agents that one step of a block has at least; smaller products are slower
SHARES = (1 / 4, 3 / 8, 5 / 8)  # rows of a block, where there is but one, as parts of the number of episodes
WORTHWHILE = (
    50  # half of the steps of a time limit from which one block in fewer rows saves more than it costs to compile
)
ALIGNED = 4  # slots of a row come in such numbers, because a GPU's products over all slots are else copied to be padded
LANES = 2  # blocks side by side in one round of the loop, which run on different cores


class Packing(NamedTuple):
    """Where the slots [t, b] of episodes lie in rows [c, r]."""

    source: Int[Array, "c r"]  # the slot t * b + b, and 0 where there is none
    used: Bool[Array, "c r"]
    fresh: Bool[Array, "c r"]  # an episode begins here
    place: Int[Array, "t b"]  # c * r + r of every slot; anything where an episode is over, or in another block

    def pack(self, leaf: Array) -> Array:
        """[t, b, ...] as [c, r, ...]."""
        return _merged(leaf)[self.source]

    def unpack(self, leaf: Array) -> Array:
        """[c, r, ...] as [t, b, ...]; slots after the end of an episode hold anything."""
        return _merged(leaf)[self.place]


class Rows(NamedTuple):
    """Episodes as networks read them: the block as it is, whose actions end one slot earlier, or packed."""

    obs: Observation
    last: Int[Array, "t b a"]  # the action before, -1 at the start
    action: Int[Array, "t b a"]
    valid: Bool[Array, "t b"]
    packing: Packing | None

    @property
    def fresh(self) -> Bool[Array, "t b"] | None:
        return None if self.packing is None else self.packing.fresh

    def block(self, values: Array) -> Array:
        """Values of all slots as [t + 1, b, ...]."""
        return values if self.packing is None else self.packing.unpack(values)

    def rows(self, values: Array) -> Array:
        """Values of all steps [t, b, ...] where the actions are."""
        return values if self.packing is None else self.packing.pack(_longer(values))


def laid_out(episodes: Trajectory, packing: Packing | None) -> Rows:
    """Episodes [t, b, ...] as they are, or packed."""
    last = jnp.concatenate([jnp.full_like(episodes.action[:1], -1), episodes.action]).astype(jnp.int32)
    if packing is None:
        return Rows(episodes.obs, last, episodes.action, episodes.valid, None)
    steps = (_longer(episodes.action), _longer(episodes.valid))
    obs, last, action, valid = jax.tree.map(packing.pack, (episodes.obs, last, *steps))
    return Rows(obs, last, action, valid & packing.used, packing)


def _merged(leaf: Array) -> Array:
    return leaf.reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:])


def _longer(steps: Array) -> Array:
    """With one slot more at the end, of zeros."""
    return jnp.concatenate([steps, jnp.zeros_like(steps[:1])])


def in_fewer_rows(part: Callable[[Packing | None], Any], episodes: Trajectory, axis: str | None) -> Any:
    """``part`` of all episodes [t, b, ...] in one block of rows, or of None where the time limit is short or they need
    about as many rows as there are episodes.

    Shapes are fixed when compiling, so there is one version for each of a few numbers of rows; all mean the same. With
    the name of an axis, all who share it agree on the number.
    """
    steps, number = episodes.valid.shape
    if steps < 2 * WORTHWHILE:
        return part(None)
    slots, capacity = jnp.sum(episodes.valid, axis=0) + 1, -(-(steps + 2) // ALIGNED) * ALIGNED
    row, offset = next_fit(slots, capacity)
    needed = jnp.max(row) + 1
    needed = needed if axis is None else jax.lax.pmax(needed, axis)
    heights = sorted({math.ceil(share * number) for share in SHARES} - {number})

    def packed(height: int) -> Callable[[], Any]:
        return lambda: part(packings(slots, row, offset, capacity, height, steps + 1)(jnp.int32(0)))

    which = jnp.searchsorted(jnp.asarray(heights), needed)
    return jax.lax.switch(which, [*map(packed, heights), lambda: part(None)])


def over_rows(part: Callable[[Packing | None], Any], episodes: Trajectory, axis: str | None) -> Any:
    """The sum of ``part`` over blocks of rows that hold all episodes [t, b, ...]; of None, which is the block of
    episodes as it is, where the time limit is short.

    With the name of an axis, all who share it agree on the number of blocks.
    """
    steps, number = episodes.valid.shape
    if steps < SHORTEST:
        return part(None)
    capacity = steps + 2  # one slot more than the longest episode has: two of half the time limit fit a row
    height = block_height(number, agents=episodes.action.shape[-1])
    slots = jnp.sum(episodes.valid, axis=0) + 1
    row, offset = first_fit(slots, capacity)
    needed = jnp.max(row) + 1
    needed = needed if axis is None else jax.lax.pmax(needed, axis)
    rounds = -(-needed // (height * LANES))
    block = packings(slots, row, offset, capacity, height, steps + 1)
    part = jax.jit(part, inline=True)  # traced once for all lanes; the program is the same

    def add(index: Int[Array, ""], total: Any) -> Any:
        parts = [part(block(index * LANES + lane)) for lane in range(LANES)]
        return jax.tree.map(lambda *leaves: sum(leaves), total, *parts)

    shapes = jax.eval_shape(lambda: part(block(jnp.int32(0))))
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return jax.lax.fori_loop(0, rounds, add, nothing)


def block_height(number: int, agents: int) -> int:
    """Rows of a block: a divisor of the number of episodes."""
    divisors = [rows for rows in range(1, number + 1) if number % rows == 0]
    return next((rows for rows in divisors if rows * agents >= INPUTS), number)


def first_fit(slots: Int[Array, " b"], capacity: int) -> tuple[Int[Array, " b"], Int[Array, " b"]]:
    """A row and a first slot for every episode: the longest first, each into the first row that has room for it."""

    def put(filled: Int[Array, " b"], length: Int[Array, ""]):
        row = jnp.argmax(filled + length <= capacity)
        here = jnp.arange(filled.size) == row
        return filled + here * length, (row, jnp.sum(here * filled))

    order = jnp.argsort(-slots)
    _, (row, offset) = jax.lax.scan(put, jnp.zeros_like(slots), slots[order])
    back = jnp.argsort(order)
    return row[back], offset[back]


def next_fit(slots: Int[Array, " b"], capacity: int) -> tuple[Int[Array, " b"], Int[Array, " b"]]:
    """A row and a first slot for every episode, in their order: each into the row of the one before, or the next row if
    there is no room. Rows are somewhat more than with ``first_fit``, but there is no loop over episodes, each turn of
    which would start kernels of a GPU: jumps from row to row are doubled until they reach the last episode."""
    number, end = slots.size, jnp.cumsum(slots)
    begin = end - slots
    jump = jnp.append(jnp.searchsorted(end, begin + capacity, side="right", method="compare_all"), number)
    first = jnp.zeros(number + 1, bool).at[0].set(True)
    for _ in range(max(1, (number - 1).bit_length())):
        first = first.at[jump].max(first)
        jump = jump[jump]
    first = first[:number]
    return jnp.cumsum(first) - 1, begin - jax.lax.cummax(jnp.where(first, begin, 0))


def packings(
    slots: Int[Array, " b"], row: Int[Array, " b"], offset: Int[Array, " b"], capacity: int, height: int, length: int
) -> Callable[[Int[Array, ""]], Packing]:
    """What the rows of each block hold, given where episodes of so many slots begin; a block that does not exist is
    empty."""
    time, number, size = jnp.arange(length)[:, None], slots.size, capacity * height
    blocks = -(-number // height)
    place = (offset + time) * height + row % height  # within its block
    target = jnp.where(time < slots, (row // height) * size + place, blocks * size)  # what is over is not written
    slot = jnp.arange(length * number).reshape(length, number)
    held = jnp.full(blocks * size, -1).at[target].set(slot, mode="drop", unique_indices=False)
    held = held.reshape(blocks, capacity, height)
    place = jnp.minimum(place, size - 1)

    def packing(index: Int[Array, ""]) -> Packing:
        source = jnp.where(index < blocks, held[jnp.minimum(index, blocks - 1)], -1)
        used, source = source >= 0, jnp.maximum(source, 0)
        return Packing(source, used, used & (source < number), place)

    return packing
