"""Recurrent values that act on the host: the actions, and the memory, of the compiled program that they stand for."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl.collect.players import DevicePlayer, HostPlayer, fresh_memory
from prism_marl.learners.numpy_values import MOST
from prism_marl.sharing import METHODS
from prism_marl.training.build import make_trainer
from prism_marl.types import Observation
from tiny import small

TASK = "lbforaging/5x5-2p-1f"
SOME = ("fups_id", "fups", "nops", "prism", "snp", "seps", "multihead")
ROWS, STEPS = 3, 6


@functools.cache
def trained(method: str, seeds: int):
    """A learner and its policies, with last actions among the inputs."""
    changes = {"run.seeds": str(seeds), "learner.last_action": "true", "run.patience": "0"}
    trainer = make_trainer(small(TASK, method, **changes))
    state = trainer.init()
    return trainer.learner, jax.jit(trainer.policies)(state.seeds.state)


def observations(spec, seeds: int, number: int) -> Observation:
    draw = np.random.default_rng(number)
    local = draw.normal(size=(seeds, ROWS, spec.agents, spec.observation)).astype(np.float32)
    avail = draw.random((seeds, ROWS, spec.agents, spec.actions)) < 0.6
    avail[..., 0] |= ~avail.any(axis=-1)
    role = np.tile(np.arange(spec.agents, dtype=np.int32), (seeds, ROWS, 1))
    parts = (local, local.reshape(seeds, ROWS, -1), avail, role)
    return Observation(*parts)  # pyright: ignore[reportArgumentType]


def both(method: str, seeds: int, mode):
    """The two players of the same policies, keys and steps."""
    learner, policy = trained(method, seeds)
    keys, steps = jax.random.split(jax.random.key(5), seeds), jnp.full(seeds, 25_000)
    acting = learner.on_host(ROWS)
    assert acting is not None
    host = HostPlayer(learner, acting, policy, ROWS, keys, steps, mode)
    return learner, host, DevicePlayer(learner, policy, fresh_memory(learner, policy, ROWS), keys, steps, mode)


@pytest.mark.parametrize("mode", ["greedy", "explore", "random"])
@pytest.mark.parametrize("method", SOME)
def test_actions_are_those_of_the_compiled_program(method, mode):
    seeds = 2 if method == "prism" else 1
    learner, host, device = both(method, seeds, mode)
    chosen = set()
    for number in range(min(STEPS, learner.spec.horizon)):
        obs = observations(learner.spec, seeds, number)
        ours, _ = host.act(number, slice(0, seeds), obs)
        theirs, _ = device.act(number, slice(0, seeds), obs)
        np.testing.assert_array_equal(ours, theirs)
        if number == 2:
            over = np.zeros((seeds, ROWS), bool)
            over[:, 1] = True
            host.forget(over)
            device.forget(over)
        if mode != "random":
            hidden = np.swapaxes(host.memory.hidden, 1, 2)
            np.testing.assert_allclose(hidden, device.memory.hidden, atol=1e-5)
            assert np.abs(hidden).max() > 0
        np.testing.assert_array_equal(host.memory.last_action, device.memory.last_action)
        chosen |= set(ours.reshape(-1).tolist())
    assert len(chosen) > 1  # or nothing would have been compared


def test_exploration_draws_what_a_compiled_step_draws():
    learner, host, device = both("fups_id", 1, "explore")
    obs, greedy = observations(learner.spec, 1, 0), both("fups_id", 1, "greedy")[1]
    differs = 0
    for number in range(STEPS):
        ours, _ = host.act(number, slice(0, 1), obs)
        theirs, _ = device.act(number, slice(0, 1), obs)
        np.testing.assert_array_equal(ours, theirs)
        differs += int((greedy.act(number, slice(0, 1), obs)[0] != ours).sum())
    assert differs


def test_many_rows_roles_and_other_ways_to_act_are_left_to_the_compiled_program():
    learner, _ = trained("fups_id", 1)
    assert learner.on_host(MOST // learner.spec.agents) is not None
    assert learner.on_host(MOST // learner.spec.agents + 1) is None

    class Stubborn(type(learner)):
        def act(self, *given, **named):
            return super().act(*given, **named)

    fields = {name: getattr(learner, name) for name in learner.__dataclass_fields__}
    assert Stubborn(**fields).on_host(1) is None
    by_role = METHODS["prism"](masks="role")
    assert dataclasses.replace(learner, sharing=by_role).on_host(1) is None
    assert dataclasses.replace(learner, sharing=METHODS["prism"]()).on_host(1) is not None
