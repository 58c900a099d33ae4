"""Experience of agents of two types, which methods that look at data should tell apart."""

import jax.numpy as jnp
import numpy as np

from prism_marl.sharing.base import Experience

TYPES = np.asarray([0, 1, 0, 1, 1, 0])


def random_experience(steps: int = 1000, types: np.ndarray = TYPES) -> Experience:
    """Random actions move an agent of either type differently; every fifth row is rubbish and says so."""
    noise = np.random.default_rng(0)
    local = noise.normal(size=(steps, types.size, 5))
    action = np.eye(3)[noise.integers(0, 3, (steps, types.size))]
    effect = noise.normal(size=(2, 5, 3))
    after = local + np.einsum("aou,nau->nao", effect[types], action)
    valid = noise.uniform(size=(steps, types.size)) > 0.2
    local = np.where(valid[..., None], local, 100.0)
    parts = (jnp.asarray(part, jnp.float32) for part in (local, action, after, noise.normal(size=steps)))
    return Experience(*parts, jnp.asarray(valid))


def same_grouping(labels, types: np.ndarray = TYPES) -> bool:
    labels = np.asarray(labels)
    return np.array_equal(labels[:, None] == labels, types[:, None] == types)
