"""Every registered method learns with QMIX: numbers stay finite, what should move moves, what is fixed stays, and the
size that is reported is the size of the arrays that are there."""

import json
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl import cli
from prism_marl.buffers.ring import Ring
from prism_marl.experiment.experiment import Net
from prism_marl.experiment.presets import preset
from prism_marl.learners import QMix, QMixLearner
from prism_marl.learners.base import Trajectory
from prism_marl.learners.value import ValueState
from prism_marl.sharing import METHODS, Sharing
from prism_marl.sharing.footprint import footprint
from prism_marl.training.build import make_trainer
from prism_marl.types import EnvSpec, Observation

SPEC = EnvSpec("toy", agents=3, observation=4, state=5, actions=4, roles=3, horizon=3)
UPDATES = 6
SWITCH = 3  # LoRASA: half of the updates in each phase


def settings_of(method: str) -> Sharing:
    sharing = METHODS[method]()
    return sharing.changed(switch_step=SWITCH) if method == "lorasa" else sharing


def episodes(number: int) -> Trajectory:
    """Whole episodes of noise: with three steps the recurrent weights have something to carry."""
    rng = np.random.default_rng(0)
    t, a, u = SPEC.horizon, SPEC.agents, SPEC.actions
    return Trajectory(
        obs=Observation(
            local=jnp.asarray(rng.normal(size=(number, t + 1, a, SPEC.observation)), jnp.float32),
            state=jnp.asarray(rng.normal(size=(number, t + 1, SPEC.state)), jnp.float32),
            avail=jnp.ones((number, t + 1, a, u), bool),
            role=jnp.broadcast_to(jnp.arange(a, dtype=jnp.int16), (number, t + 1, a)),
        ),
        next_obs=None,
        action=jnp.asarray(rng.integers(0, u, (number, t, a)), jnp.int16),
        reward=jnp.asarray(rng.normal(size=(number, t)), jnp.float32),
        agent_reward=None,
        terminated=jnp.broadcast_to(jnp.arange(t) == t - 1, (number, t)),
        truncated=None,
        valid=jnp.ones((number, t), bool),
    )


def learned(sharing: Sharing) -> tuple[ValueState, ValueState, dict]:
    """The state before and after some updates, and the metrics of all of them."""
    learner = QMixLearner(QMix(lr=0.01, batch=16, buffer=16, embed=4, hypernet=4), sharing, SPEC, width=12)
    batch = episodes(16)

    def run(key):
        state, buffer = learner.init(key), Ring(learner.episodes.kept(batch), jnp.int32(16))
        agent = sharing.prepare(learner.agent(state), learner.experience(buffer), key)
        state = learner.with_agent(state, agent)
        state = eqx.tree_at(lambda s: s.target.agent, state, agent)  # weights would follow later
        return state, *jax.lax.scan(lambda s, step: learner.improve(s, batch, step), state, jnp.arange(UPDATES))

    return jax.device_get(jax.jit(run)(jax.random.key(1)))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains(method: str):
    before, after, metrics = learned(settings_of(method))
    for leaf in jax.tree.leaves((after.online, after.target, after.optimiser, after.balance, metrics)):
        assert np.all(np.isfinite(leaf))
    assert metrics["td_loss"][-1] < metrics["td_loss"][0]
    counts = METHODS[method].after_update is not Sharing.after_update  # such a method may change what is fixed
    pairs = zip(jax.tree_util.tree_leaves_with_path(before.online), jax.tree.leaves(after.online), strict=True)
    for (path, old), new in pairs:
        name = jax.tree_util.keystr(path)
        if not np.issubdtype(old.dtype, np.floating):
            assert counts or np.array_equal(old, new), f"{name} is fixed and moved"
        elif old.size:
            assert not np.array_equal(old, new), f"{name} is trained and did not move"
    check_rows(before.online.agent, after.online.agent)


def check_rows(before, after):
    """Each identity that somebody has has moved: a private array must not learn for some agents only."""
    users = slice(None) if before.clusters is None else np.unique(before.clusters)
    moved = eqx.filter(after, lambda leaf: np.issubdtype(leaf.dtype, np.floating))
    for field in ("fc1", "fc2", "fc3", "fc4"):
        old, new = getattr(before, field), getattr(moved, field)
        for name, spec in type(old).__dataclass_fields__.items():
            value = getattr(new, name)
            if spec.metadata.get("private") and value is not None and value.size:
                rows = np.any(getattr(old, name) != value, axis=tuple(range(1, value.ndim)))
                assert rows[users].all(), f"{field}.{name} learns for identities {np.flatnonzero(rows)} only"


@pytest.mark.parametrize("method", METHODS)
def test_footprint_is_the_size_of_the_arrays_that_are_trained(method: str, capsys):
    """Three ways to the same number: the trainer's own state, ``footprint`` and the command line."""
    task, width = "lbf/4x4-2p-1f", 12
    experiment = preset(task, method)
    trainer = make_trainer(experiment.changed(network=Net(width)))
    agent = jax.eval_shape(trainer.init).seeds.state.online.agent
    leaves = jax.tree.leaves(agent)  # every one with the axis of seeds in front
    numbers = sum(math.prod(leaf.shape[1:]) for leaf in leaves)
    counted = footprint(jax.eval_shape(trainer.learner.build_agent, jax.random.key(0)))
    assert counted.parameters == numbers
    assert counted.bytes == sum(math.prod(leaf.shape[1:]) * leaf.dtype.itemsize for leaf in leaves)
    assert cli.main(["footprint", task, "--method", method, "--width", str(width), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["methods"]
    assert (row["shared"], row["private"]) == (counted.shared, counted.private)
