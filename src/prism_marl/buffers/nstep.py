"""A flat ring of transitions from which n-step returns are read.

The environments of one step lie next to each other, so the next step of the same environment is ``envs`` places further
on, around the end of the ring. Its size is a multiple of ``envs``; otherwise chains would cross where it wraps.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from prism_marl.buffers.ring import Ring


class Transition(NamedTuple):
    """One step of one environment. Parts that follow from another part have length 0 and are rebuilt when read."""

    local: Float[Array, "*b a o"]  # empty where all agents observe the state
    state: Float[Array, "*b s"]  # empty where it is the joint observation
    action: Float[Array, "*b a u"]
    reward: Float[Array, "*b"]
    done: Bool[Array, "*b"]  # the episode ended here, for whatever reason: no return crosses this step
    terminated: Bool[Array, "*b"]  # the task itself ended: no bootstrap
    next_local: Float[Array, "*b a o"]  # of the episode that was running, never of the one that started next
    next_state: Float[Array, "*b s"]


class NStep(NamedTuple):
    """What a chain of up to n steps comes down to."""

    start: Int[Array, "*b"]  # index of the first step, whose observation and action are learned from
    last: Int[Array, "*b"]  # index of the last step, whose next observation is bootstrapped from
    reward: Float[Array, "*b"]  # discounted sum
    discount: Float[Array, "*b"]  # gamma to the power of the steps taken, 0 after a true end


def n_step(ring: Ring[Transition], start: Int[Array, "*b"], *, envs: int, steps: int, gamma: float) -> NStep:
    """Walk from each index up to ``steps`` steps along its environment; stop at an end or at the newest step."""
    index = (start[..., None] + envs * jnp.arange(steps)) % ring.capacity
    behind = (ring.added - 1 - index) % ring.capacity  # how many steps of any environment came after this one
    stops = ring.storage.done[index] | (behind < envs)
    before = jnp.cumsum(stops, axis=-1) - stops
    taken = before == 0
    powers = gamma ** jnp.arange(steps, dtype=jnp.float32)
    number = jnp.sum(taken, axis=-1)
    last = (start + envs * (number - 1)) % ring.capacity
    return NStep(
        start=start,
        last=last,
        reward=jnp.sum(taken * powers * ring.storage.reward[index], axis=-1),
        discount=jnp.where(ring.storage.terminated[last], 0.0, gamma ** number.astype(jnp.float32)),
    )


def distinct(key: Key[Array, ""], below: Int[Array, ""], shape: tuple[int, ...]) -> Int[Array, "*r b"]:
    """Rows of distinct numbers under ``below``, uniform over all such sets, in time that does not grow with it.

    Draw, and draw again whatever repeats an earlier number of its row until nothing does. No number is treated
    unlike another, so every set is equally likely. In a large ring one or two rounds are enough.
    """

    indices = jnp.broadcast_to(jnp.arange(shape[-1]), shape)

    def redraw(carry):
        numbers, again, key = carry
        key, key_draw = jax.random.split(key)
        numbers = jnp.where(again, jax.random.randint(key_draw, shape, 0, below), numbers)
        ranked, order = jax.lax.sort((numbers, indices), is_stable=True, num_keys=1)
        repeated = jnp.concatenate([jnp.zeros_like(ranked[..., :1]), ranked[..., 1:] == ranked[..., :-1]], axis=-1)
        return numbers, jnp.put_along_axis(again, order, repeated.astype(bool), axis=-1, inplace=False), key

    start = (jnp.zeros(shape, jnp.int32), jnp.ones(shape, bool), key)
    return jax.lax.while_loop(lambda carry: jnp.any(carry[1]), redraw, start)[0]
