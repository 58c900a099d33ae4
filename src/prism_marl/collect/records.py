"""What collectors do to records: the right types and axes, and a look for numbers that are not finite."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from prism_marl.learners.base import Learner, Trajectory
from prism_marl.types import Observation


def time_second(tree: Any) -> Any:
    """[t, n, ...] as [n, t, ...]."""
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), tree)


def fitted(template: Trajectory, record: Trajectory) -> Trajectory:
    """Records [n, t, b, ...] in the types in which they are stored; what the template leaves out is cut."""

    def one(leaf: Any, value: Any) -> Any:
        if 0 in leaf.shape:
            return jnp.zeros((*value.shape[:3], *leaf.shape[1:]), leaf.dtype)
        return value.astype(leaf.dtype)

    def part(leaves: Any, values: Any) -> Any:
        return None if leaves is None else jax.tree.map(one, leaves, values)

    return Trajectory(*(part(leaves, values) for leaves, values in zip(template, record, strict=True)))


def finite_episodes(learner: Learner, slots: Observation, valid: Array, reward: Array) -> dict[str, Bool[Array, " n"]]:
    """Of episodes [t, n, b], before they are stored: there, where numbers are whole, a NaN would become one of them."""
    reached = jnp.concatenate([jnp.ones_like(valid[:1]), valid])  # what a finished episode idles on is of no account
    finite = jnp.all(jnp.isfinite(slots.local), axis=(-2, -1))
    if not learner.spec.state_is_joint:
        finite &= jnp.all(jnp.isfinite(slots.state), axis=-1)
    return {
        "observation": jnp.all(finite | ~reached, axis=(0, 2)),
        "reward": jnp.all(jnp.isfinite(reward), axis=(0, 2)),
    }


def finite_steps(learner: Learner, seen: tuple[Observation, Observation], reward: Array) -> dict[str, Array]:
    """The same for intervals [t, n, b], which have no idle part."""

    def each(values: Array) -> Array:
        return jnp.all(jnp.isfinite(values), axis=tuple(axis for axis in range(values.ndim) if axis != 1))

    looks = [each(obs.local) for obs in seen]
    if not learner.spec.state_is_joint:
        looks += [each(obs.state) for obs in seen]
    return {"observation": jnp.all(jnp.stack(looks), axis=0), "reward": each(reward)}


def with_last_slot(obs: Observation, last: Observation, played: Int[Array, ""]) -> Observation:
    """Observations [t + 1, n, b, ...]; ``last`` is what was seen after the last step that was played."""

    def with_last(along, final):
        slots = jnp.concatenate([along, jnp.zeros_like(final)[None]])
        return jax.lax.dynamic_update_slice_in_dim(slots, final[None], played, 0)

    return jax.tree.map(with_last, obs, last)


def seed_of(tree: Any, index: int) -> Any:
    """One seed out of a stack."""
    return jax.tree.map(lambda leaf: leaf[index] if eqx.is_array(leaf) else leaf, tree)
