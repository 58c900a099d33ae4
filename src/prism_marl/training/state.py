"""What must survive a kill, and how a checkpoint may hold a part of it."""

import functools
import math
from dataclasses import dataclass
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from prism_marl.buffers.ring import Ring
from prism_marl.learners.base import Clock, Mode
from prism_marl.learners.log import Log

BLOCKS = 16  # in which a checkpoint fetches the filled part of a replay buffer


class SeedState(eqx.Module):
    """One seed's training."""

    state: Any  # the learner's, with the training key
    buffer: Any
    env: Any  # where compiled rows of "steps" stand, or what policies on the host remember; () for episodes
    steps: Int[Array, ""]  # environment steps
    log: Log


class TrainState(eqx.Module):
    """Everything that must survive a kill."""

    seeds: SeedState  # first axis: seeds
    clock: Clock
    prepared: Int[Array, ""]  # 1 once the sharing method has seen its data
    refreshed: Int[Array, ""]  # environment step of the latest refresh
    acting: Any = None  # with overlap: the policies that will play next, on the host; None: those of ``seeds``
    snapshot: Any = ()  # where rows on the host stand


AnyState = TypeVar("AnyState", bound=TrainState)


@dataclass(frozen=True)
class PartialArray:
    """Shape of an array of which a checkpoint may hold the first part along one axis; the rest is zeros."""

    shape: tuple[int, ...]
    dtype: Any
    axis: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def fill(self, held: np.ndarray) -> np.ndarray:
        """The whole array, where only that axis is too short; anything else stays as it is and is refused later."""
        axis = self.axis
        if held.ndim != len(self.shape) or held.shape[axis] >= self.shape[axis]:
            return held
        if (*held.shape[:axis], self.shape[axis], *held.shape[axis + 1 :]) != tuple(self.shape):
            return held  # before any memory is taken: an empty array may claim any size
        whole = np.zeros(self.shape, held.dtype)
        whole[(slice(None),) * axis + (slice(held.shape[axis]),)] = held
        return whole


def with_partial_buffers(state: AnyState) -> AnyState:
    """Shapes of a state whose replay buffers a checkpoint may hold in part."""
    if not isinstance(state.seeds.buffer, Ring):
        return state
    storage = jax.tree.map(lambda leaf: PartialArray(leaf.shape, leaf.dtype, axis=1), state.seeds.buffer.storage)
    return eqx.tree_at(lambda s: s.seeds.buffer.storage, state, storage)


def packed(state: AnyState) -> AnyState:
    """What a checkpoint needs of a state: of the replay buffers only the part that is filled."""
    buffer = state.seeds.buffer
    if not isinstance(buffer, Ring):
        return state
    filled, capacity = int(jax.device_get(buffer.added).max()), jax.tree.leaves(buffer.storage)[0].shape[1]
    if filled >= capacity:
        return state
    storage = jax.tree.map(lambda leaf: _first_part(leaf, filled), buffer.storage)
    return eqx.tree_at(lambda s: s.seeds.buffer.storage, state, storage)


@functools.partial(jax.jit, static_argnums=2)
def _block(leaf: Array, start: Any, size: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(leaf, start, size, axis=1)


def _first_part(leaf: Array, filled: int) -> np.ndarray:
    """The first items of all buffers, on the host. They come in blocks of one size: JAX compiles and keeps a program
    for every size that it is asked for, which would be one for each checkpoint, and the device has little to copy."""
    block = max(1, -(-leaf.shape[1] // BLOCKS))
    held = np.empty((leaf.shape[0], filled, *leaf.shape[2:]), leaf.dtype)
    for wanted in range(0, filled, block):
        start = min(wanted, leaf.shape[1] - block)  # the last block may reach back into the one before
        held[:, start : start + block] = np.asarray(_block(leaf, start, block))[:, : filled - start]
    return held


def fresh_counter() -> Array:
    """A new array each time: counters are donated, and one array cannot be given away twice."""
    return jnp.zeros((), jnp.int32)


def mode_of(learn: bool) -> Mode:
    """How training acts before and after it learns."""
    return "explore" if learn else "random"
