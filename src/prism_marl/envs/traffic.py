"""Who of several that want to drive into one another's cells can: the rule of rware 2.0.0.

Drivers form chains: each wants the cell of the next. A chain whose head wants a free cell drives; where chains meet at
one cell, the longest drives, of equally long ones that whose head stands first, row by row. Three or more in a circle
drive round. Two that want each other's cells stay, and so do all behind somebody who stays.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int


def who_drives(place: Int[Array, "a 2"], target: Int[Array, "a 2"], wants: Bool[Array, " a"]) -> Bool[Array, " a"]:
    """Which agents reach their targets, if those that ``want`` to drive do so at once."""
    n = place.shape[0]
    index = jnp.arange(n)
    ahead = wants[:, None] & (target[:, None] == place).all(axis=2)  # [i, j]: i wants the cell of j
    free, stuck = n, n + 1  # what a chain can end in
    following = jnp.where(ahead.any(axis=1), jnp.argmax(ahead, axis=1), jnp.where(wants, free, stuck))
    following = jnp.concatenate([following, jnp.array([free, stuck])])
    at, circle = index, jnp.zeros(n, jnp.int32)
    for hops in range(1, n + 1):
        at = following[at]
        circle = jnp.where((at == index) & (circle == 0), hops, circle)
    moves = at == free  # unless another chain is preferred
    behind = ahead.T & moves
    length = jnp.zeros(n, jnp.int32)
    for _ in range(n - 1):
        length = jnp.max(jnp.where(behind, length + 1, 0), axis=1)
    rivals = (target[:, None] == target).all(axis=2) & moves & (index[:, None] != index)
    (row, col), (row_of, col_of) = place.T, place.T[..., None]  # not by index: the rule treats all agents alike
    before = (row < row_of) | ((row == row_of) & (col < col_of))
    better = (length > length[:, None]) | ((length == length[:, None]) & before)
    first = moves & ~(rivals & better).any(axis=1)
    goes = first
    for _ in range(n - 1):
        goes = first & (~ahead.any(axis=1) | (ahead & goes).any(axis=1))
    return goes | (circle >= 3)
