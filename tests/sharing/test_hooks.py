"""What the training loop does for methods that look at data or reset: when, on which steps, and with which network."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from prism_marl.envs.roles import State
from prism_marl.runs import runner
from prism_marl.types import EnvSpec, Observation, Step
from tiny import small, trainer_of

TYPES = np.asarray([0, 1, 1, 0, 1])


@dataclass(frozen=True)
class Planted:
    """Two types of agents: an action pushes one forwards and the other backwards; the first action is never legal."""

    spec = EnvSpec("planted", agents=5, observation=3, state=1, actions=4, roles=5, horizon=4)

    def reset(self, key):
        return State(jnp.int32(0)), self._observe(jax.random.normal(key, (5, 3)))

    def step(self, key, state, action):
        pushed = jnp.asarray(np.where(TYPES, -1.0, 1.0))[:, None] * jax.nn.one_hot(action - 1, 3)
        over = state.clock == 3
        return State(state.clock + 1), Step(self._observe(pushed), jnp.zeros(()), over, jnp.bool_(False), {})

    def _observe(self, local):
        avail = jnp.broadcast_to(jnp.arange(4) > 0, (5, 4))
        return Observation(local, jnp.zeros(1), avail, jnp.arange(5))


@pytest.mark.parametrize("method", ["seps", "adaps"])
def test_random_legal_steps_are_kept_and_tell_types_apart(method: str):
    changes = {"sharing__pretraining": "800", "learner__buffer": "300", "run__envs": "10", "network__width": "10"}
    trainer = trainer_of(small("roles/5", method, run__seeds="2", **changes), Planted())

    @jax.jit
    def prepared():
        state = trainer.init()
        return state, trainer.prepare(trainer.advance(state, jnp.int32(800), learn=False))

    before, after = prepared()
    assert_array_equal(after.seeds.steps, 800)  # counted in the budget: epsilon and the end of training read this
    assert_array_equal(after.seeds.buffer.added, 200)  # kept: ten episodes of four steps at a time
    action = np.asarray(after.seeds.buffer.storage.action)[:, :200]
    assert_array_equal(np.unique(action), [1, 2, 3])
    assert np.ptp(np.bincount(action.ravel())[1:]) < 0.1 * action.size / 3  # no network has a say
    for nets in (after.seeds.state.online, after.seeds.state.target):  # labels reach both at once
        for labels in np.asarray(nets.agent.clusters):
            assert_array_equal(labels == labels[0], TYPES[0] == TYPES)
    for old, new in zip(jax.tree.leaves(before.seeds.state), jax.tree.leaves(after.seeds.state), strict=True):
        if jnp.issubdtype(old.dtype, jnp.inexact):
            assert_array_equal(old, new)  # nothing is learned meanwhile
    if method == "adaps":
        online, target = after.seeds.state.online.agent, after.seeds.state.target.agent
        assert not np.array_equal(online.fc2.mask[:, 0], online.fc2.mask[:, 1])
        assert_array_equal(online.fc2.mask, target.fc2.mask)


@pytest.fixture
def stops(monkeypatch):
    """The hooks that a run calls, with the environment step and the updates made by then."""
    found, call = [], runner._Session._call

    def record_faults(self, name, *arguments):
        if name in ("prepare", "refresh"):
            seeds = arguments[0].seeds
            found.append((name, int(seeds.steps.min()), int(seeds.state.updates.max())))
        return call(self, name, *arguments)

    monkeypatch.setattr(runner._Session, "_call", record_faults)
    return found


def test_resets_come_at_their_interval_and_not_near_the_end(stops, tmp_path):
    changes = {"run__steps": "110", "run__eval_every": "40", "sharing__reset_interval": "30"}
    runner.run(small("roles/3", "kaleidoscope", **changes), tmp_path / "run")
    assert [stop[:2] for stop in stops] == [("prepare", 0), ("refresh", 30), ("refresh", 60)]  # 90 is 20 from the end


def test_clusters_are_found_before_the_first_update_and_again_where_asked_for(stops, tmp_path):
    changes = {"run__steps": "90", "run__eval_every": "90", "sharing__pretraining": "30"}
    runner.run(small("roles/3", "adaps", sharing__recluster_interval="40", **changes), tmp_path / "run")
    (first, when, updates), (second, then, later) = stops
    assert (first, when, updates) == ("prepare", 30, 0)
    assert (second, then) == ("refresh", 40) and later > 0
