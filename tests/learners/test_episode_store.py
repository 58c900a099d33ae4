"""Replay keeps flags in bits and small numbers in bytes, and gives back what was put in."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl.buffers.ring import ring_bytes
from prism_marl.experiment.presets import preset
from prism_marl.learners.base import Trajectory
from prism_marl.learners.episodes import EpisodeStore
from prism_marl.training.build import make_trainer
from prism_marl.types import EnvSpec

SPEC = EnvSpec("toy", agents=3, observation=13, state=4, actions=9, roles=300, horizon=3)
FLAGS = replace(SPEC, flags=(0, 1, 2, 4, 5, 6, 8, 9, 12), state_flags=(3,))


def collected(spec: EnvSpec, number: int) -> Trajectory:
    """Random episodes [t, b, ...] with every kind of number at its largest."""
    draw = np.random.default_rng(0)
    store = EpisodeStore(spec, 4, time_limit_ends=False)

    def leaf(shape: Any) -> np.ndarray:
        sizes = (shape.shape[0], number, *shape.shape[1:])
        return (draw.random(sizes) < 0.5) if shape.dtype == bool else draw.standard_normal(sizes).astype(shape.dtype)

    found = jax.tree.map(leaf, store.template())
    local, state = found.obs.local, found.obs.state
    for values, flags in ((local, spec.flags), (state, spec.state_flags)):
        values[..., list(flags)] = draw.random(values[..., list(flags)].shape) < 0.5
    role = draw.integers(0, spec.roles, found.obs.role.shape).astype(np.int16)
    action = draw.integers(0, spec.actions, found.action.shape).astype(np.int16)
    return found._replace(obs=found.obs._replace(role=role), action=action)


@pytest.mark.parametrize("spec", [SPEC, FLAGS])
def test_episodes_come_back_bit_by_bit(spec):
    store, batch = EpisodeStore(spec, 4, time_limit_ends=False), collected(spec, 3)

    @jax.jit
    def through(batch):
        ring = store.add(store.empty(), batch)
        drawn = store.sample(ring, jax.random.key(0), 3)
        return ring.storage, store.restored(ring.storage), drawn._replace(obs=store.seen(drawn.obs))

    kept, held, drawn = through(batch)
    expected = batch._replace(truncated=None)
    for ours, theirs in zip(jax.tree.leaves(held), jax.tree.leaves(expected), strict=True):
        assert ours.dtype == theirs.dtype and np.array_equal(np.swapaxes(ours, 0, 1)[:, :3], theirs)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), held) == jax.tree.map(
        lambda leaf: ((4, *leaf.shape), leaf.dtype), store.read()
    )
    assert jax.tree.map(lambda leaf: leaf.dtype, drawn) == jax.tree.map(lambda leaf: leaf.dtype, expected)
    assert {leaf.tobytes() for leaf in np.asarray(drawn.obs.local)} == {
        leaf.tobytes() for leaf in np.swapaxes(batch.obs.local, 0, 1)
    }
    bits = kept.obs.local.bits
    assert bits.shape == (4, 4, 3, 2) if spec.flags else bits is None  # nine flags take two bytes


def test_five_seeds_of_battles_fit_six_gigabytes():
    learner: Any = make_trainer(preset("skirmish/terran_5_vs_5", "prism").with_option("run.seeds", "5")).learner
    store, number = learner.episodes, 5 * learner.settings.buffer
    assert number == 25_000
    assert ring_bytes(store.stored(), number) < 6e9 < 10e9 < ring_bytes(store.read(), number)
    assert jax.eval_shape(store.empty).storage.action.dtype == jnp.uint8
