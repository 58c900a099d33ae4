"""MAPPO and IPPO in whole runs: what must be learned, what needs memory, whose reward counts, runs that are killed."""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from line import FAMILIES
from prism_marl.envs import registry
from prism_marl.experiment.experiment import Experiment, Net, Run
from prism_marl.experiment.presets import preset
from prism_marl.learners import IPPO, IQL, MAPPO, MATD3, VDN, QMix
from prism_marl.learners.mappo_updates import MAPPOUpdates
from prism_marl.runs import checkpoint
from prism_marl.sharing import METHODS, FuPSID, NoPS
from prism_marl.training.build import make_trainer
from prism_marl.training.state import packed
from prism_marl.types import EnvSpec, Observation, Step
from tiny import trainer_of

QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@pytest.fixture(autouse=True, scope="module")
def game():
    with pytest.MonkeyPatch.context() as patch:
        for name, family in FAMILIES.items():
            patch.setitem(registry._FAMILIES, name, family)
        yield


def last_returns(trainer, steps: int) -> np.ndarray:
    """Greedy returns of all seeds after so many steps, as one program."""

    def run():
        state = trainer.init()
        first = trainer.experiment.sharing.pretraining_steps()
        if first:
            state = trainer.advance(state, jnp.int32(first), learn=False)
        state = trainer.advance(trainer.prepare(state), jnp.int32(first + steps), learn=True)
        return trainer.evaluate(state, jnp.int32(1))["return"]

    return np.asarray(jax.jit(run).lower().compile(QUICKLY)())


# What sharing methods can do and what they cannot. All of them: `benchmarks/learn.py --task roles/4 --learner mappo`.


@pytest.mark.parametrize(("method", "ceiling"), [("prism", 1.0), ("fups", 0.25)])
def test_roles_reach_the_ceiling_of_the_method(method, ceiling):
    experiment = preset("roles/4", method, learner="mappo").with_option("run.eval_episodes", "1")
    assert last_returns(make_trainer(experiment.with_option("run.seeds", "2")), 16_000).tolist() == [ceiling] * 2


class Seen(NamedTuple):
    clock: jax.Array
    sign: jax.Array


@dataclass(frozen=True)
class Cue:
    """Each agent sees a sign in its first step alone and is paid in the third for naming it."""

    spec = EnvSpec("cue", agents=2, observation=3, state=6, actions=2, roles=2, horizon=3, state_is_joint=True)

    def reset(self, key):
        state = Seen(jnp.int32(0), jax.random.bernoulli(key, shape=(2,)).astype(jnp.int32))
        return state, self._observe(state)

    def step(self, key, state, action):
        last = state.clock == 2
        reward = jnp.where(last, jnp.mean(action == state.sign, dtype=jnp.float32), 0.0)
        after = Seen(state.clock + 1, state.sign)
        return after, Step(self._observe(after), reward, last, jnp.bool_(False), {})

    def _observe(self, state):
        first = jnp.where(state.clock == 0, 2.0 * state.sign - 1, 0.0)
        clock = jnp.broadcast_to(state.clock.astype(jnp.float32), (2,))
        local = jnp.stack([first, jnp.ones(2), clock], axis=-1)
        return Observation(local, local.reshape(-1), jnp.ones((2, 2), bool), jnp.arange(2))


FAST = {"length": 12, "actor_lr": 1e-2, "critic_lr": 1e-2, "gamma": 0.9, "entropy": 0.0, "minibatches": 2}


@pytest.mark.parametrize(("memory", "chunk"), [(True, 0), (True, 6), (False, 0)])
def test_a_sign_that_is_seen_once_needs_memory(memory, chunk):
    run = Run(seeds=1, envs=16, eval_episodes=40)
    learner = MAPPO(recurrent=memory, chunk=chunk, **FAST)
    found = last_returns(trainer_of(Experiment("roles/2", NoPS(), learner, Net(8), run), Cue()), 12 * 16 * 50)
    assert found > 0.95 if memory else 0.2 < found < 0.8


@dataclass(frozen=True)
class Dilemma:
    """One step: whoever plays 1 gets 1, and the other loses 2. For itself everybody should, for the team nobody."""

    reward: str

    @property
    def spec(self):
        sizes = {"agents": 2, "observation": 1, "state": 1, "actions": 2, "roles": 2, "horizon": 1}
        return EnvSpec("dilemma", **sizes, reward=self.reward)

    def reset(self, key):
        return jnp.int32(0), self._observe()

    def step(self, key, state, action):
        own = (action - 2 * action[::-1]).astype(jnp.float32)
        each = own if self.reward == "agent" else None
        return state, Step(self._observe(), own.sum(), jnp.bool_(True), jnp.bool_(False), {}, each)

    def _observe(self):
        return Observation(jnp.ones((2, 1)), jnp.ones(1), jnp.ones((2, 2), bool), jnp.arange(2))


ONE_STEP = {"length": 2, "recurrent": False, "actor_lr": 1e-2, "critic_lr": 1e-2, "value_clip": 0.0}
VALUES = {"batch": 16, "buffer": 64, "lr": 0.01, "epsilon_anneal": 200, "standardise_rewards": True}


@pytest.mark.parametrize(
    ("learner", "reward", "wanted"),
    [
        (MAPPO(**ONE_STEP), "agent", -2.0),
        (IPPO(**ONE_STEP, critic_sharing="per_agent"), "agent", -2.0),
        (IPPO(**ONE_STEP), "team", 0.0),
        (IQL(**VALUES), "agent", -2.0),
        (IQL(**VALUES), "team", 0.0),
    ],
    ids=str,
)
def test_agents_learn_from_rewards_of_their_own_where_there_are_such(learner, reward, wanted):
    run = Run(seeds=1, envs=16, eval_episodes=1)
    trainer = trainer_of(Experiment("roles/2", FuPSID(), learner, Net(8), run), Dilemma(reward))
    assert last_returns(trainer, 3_000).tolist() == [wanted]


@pytest.mark.parametrize("settings", [QMix, VDN, MATD3])
def test_teams_learn_from_the_sum(settings):
    """They record no rewards of single agents."""
    spec = Dilemma("agent").spec
    learner = settings().learner(FuPSID(), spec, width=8)
    assert learner.template().agent_reward is None and learner.template().reward.shape[-1:] != (2,)


# Rollouts as they are really collected.

LINE = {"length": 4, "epochs": 2, "minibatches": 2}
PLACES = {
    "jax/discrete": MAPPO(**LINE, chunk=2),
    "python/discrete": IPPO(**LINE),
    "rows/continuous": MAPPO(**LINE, recurrent=False, standardise_inputs=True),
}


@functools.cache
def line_trainer(place: str):
    run = Run(seeds=2, seed=5, envs=4, eval_episodes=3, patience=0.0)
    return make_trainer(Experiment(f"line_{place}", METHODS["prism"](), PLACES[place], Net(4), run))


@pytest.mark.parametrize("place", PLACES)
def test_the_first_gradient_step_starts_from_the_policy_that_played(place, monkeypatch):
    """Probabilities that were recorded while playing are those that learning computes, with memory and restarts."""
    improve = MAPPOUpdates.improve
    still = lambda self, state, given, rate, step: improve(self, state, given, 0.0 * rate, step)  # noqa: E731
    monkeypatch.setattr(MAPPOUpdates, "improve", still)
    run = Run(seeds=2, seed=5, envs=4, eval_episodes=3, patience=0.0)
    trainer = make_trainer(Experiment(f"line_{place}", METHODS["prism"](), PLACES[place], Net(4), run))
    compiled = trainer.collector.compiled
    advance = functools.partial(trainer.advance, learn=True)
    state = (jax.jit(advance) if compiled else advance)(trainer.init(), 3 * 4 * 4)
    found = {name: np.asarray(value) for name, value in state.seeds.log.sums.items()}
    assert int(state.clock.summed) == 3 * 4
    rounding = 2 * np.finfo(np.float32).eps
    assert np.abs(found["kl"]).max() <= rounding and (found["clip_fraction"] == 0).all()
    assert (found["entropy"] != 0).all() and (found["critic_loss"] > 0).all()


def advanced(place: str, goals: list[int], folder) -> dict[str, np.ndarray]:
    """A run that is killed at some steps: a trainer goes on from the file each time."""
    like, trainer = None, line_trainer(place)
    advance = functools.partial(trainer.advance, learn=True)
    program = _compiled(place) if trainer.collector.compiled else advance
    for number, goal in enumerate(goals):
        state = trainer.init() if like is None else checkpoint.load(like, trainer.shapes())[0]
        state = program(state, goal)
        like = checkpoint.save(folder, number + 1, checkpoint.flatten(packed(state)), {})
    return checkpoint.flatten(state)


@functools.cache
def _compiled(place: str):
    return jax.jit(functools.partial(line_trainer(place).advance, learn=True))


@pytest.mark.parametrize("place", PLACES)
def test_a_run_that_is_killed_ends_with_the_same_bits(place, tmp_path):
    each = 4 * 4
    whole = advanced(place, [4 * each], tmp_path / "whole")
    cut = advanced(place, [each, 3 * each, 4 * each], tmp_path / "cut")
    assert whole.keys() == cut.keys() and int(whole["clock.iteration"]) == 4
    for name, value in whole.items():
        assert_array_equal(value, cut[name], err_msg=name)
