"""What is wrong with an environment of the user's is one sentence, before anything is compiled for training."""

import functools
import itertools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl import envs
from prism_marl.envs.python.base import observation, outcome
from prism_marl.envs.reach import Reach
from prism_marl.errors import UserError
from prism_marl.experiment.checks import check_env, check_user_code
from prism_marl.experiment.presets import preset
from prism_marl.runs import runner
from prism_marl.types import EnvSpec, Observation, Step
from tiny import small

SPEC = EnvSpec("walk/2", 2, observation=3, state=2, actions=3, roles=2, horizon=4, metrics=("won",), storage="int8")
WALK = replace(SPEC, magnitude=9.0)
COUNT = itertools.count()


class State(NamedTuple):
    place: Any
    clock: Any


@dataclass(frozen=True)
class Walk:
    """Two agents walk; the clock alone ends it. Every fault below is one change."""

    spec: EnvSpec = WALK
    fault: str = ""

    def reset(self, key):
        place = jax.random.randint(key, (2,), 0, 3)
        if self.fault == "other start":
            place = place * 0 + next(COUNT)
        return State(place, jnp.int32(0)), self.observe(place)

    def step(self, key, state, action):
        place, clock = state.place + action - 1, state.clock + 1
        late = clock >= (9 if self.fault == "endless" else 4)
        ended = late if self.fault == "both" else jnp.bool_(False)
        reward = jnp.ones(2) if self.fault == "reward" else jnp.float32(1)
        metrics = {"metric": {}, "extra": {"won": reward, "lost": reward}}.get(self.fault, {"won": jnp.float32(0)})
        after = State(place.astype(jnp.float32) if self.fault == "state" else place, clock)
        return after, Step(self.observe(place), reward, ended, late, metrics)

    def observe(self, place):
        far = {"far": 100.0, "half": 0.5}.get(self.fault, 0.0)
        local = jnp.concatenate([place[:, None], jnp.tile(place, (2, 1))], axis=1).astype(jnp.float32) + far
        if self.fault == "size":
            local = local[:, :2]
        avail = jnp.zeros((2, 3), bool) if self.fault == "illegal" else jnp.ones((2, 3), bool)
        avail = avail.astype(jnp.float32) if self.fault == "avail" else avail
        role = jnp.arange(2) + (1 if self.fault == "role" else 0)
        return Observation(local, place.astype(jnp.float32), avail, role)


FAULTS = [
    ("size", r"reset: Observation.local has shape \[2, 2\] and should have \[2, 3\] \(spec.observation\)"),
    ("avail", "Observation.avail has the type float32; make it bool"),
    ("reward", r"step: Step.reward has shape \[2\] and should have \[\]"),
    ("metric", "Step.metrics lacks 'won'"),
    ("extra", "Step.metrics.*(has besides 'lost'|won)"),
    ("state", r"step: its state has other parts.*place was int32\[2\] and is float32\[2\]"),
    ("other start", "reset: gives another start for the same key"),
    ("far", r"Observation.local holds 10\d at step 0, more than spec.magnitude \(9\)"),
    ("half", r"holds .*\.5 at step 0, which spec.storage \(int8\) cannot hold"),
    ("illegal", "Observation.avail leaves an agent no legal action at step 0"),
    ("role", "Observation.role holds 2 at step 0; keep roles from 0 to 1"),
    ("both", "terminated and truncated are both true at step 4"),
    ("endless", r"an episode goes on after spec.horizon \(4\) steps"),
]


def refused(words: str, check, *arguments, **named) -> None:
    with pytest.raises(UserError, match=words) as error:
        check(*arguments, **named)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


def test_environments_that_keep_their_promises_pass():
    check_env(Walk())
    check_env(Game())
    check_env(Reach(2, 3))
    check_env(envs.make("reach_jax/2"))


@pytest.mark.parametrize(("fault", "words"), FAULTS)
def test_a_fault_of_a_jax_environment_is_one_sentence(fault, words):
    refused(f"^Walk.*{words}", check_env, Walk(fault=fault))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"horizon": 0}, "spec.horizon: 0 is not a positive"),
        ({"kind": "both"}, "spec.kind: 'both' is not a kind of action"),
        ({"storage": "float8"}, "spec.storage: 'float8' cannot hold"),
        ({"magnitude": 0.0}, "spec.magnitude: 0.0 is not positive"),
        ({"flags": (0, 3)}, "spec.flags: list places from 0 to 2"),
        ({"state_flags": (0,)}, "state holds other numbers than 0 and 1 at place 0 at step .*spec.state_flags lists"),
        ({"state_is_joint": True}, "spec.state: 2 numbers are not .* use 6"),
        ({"shared_observation": True}, "spec.observation: every agent observes the state"),
        ({"reward": "own"}, "spec.reward: 'own' is not a kind of reward; write 'team' or 'agent'"),
        ({"reward": "agent"}, "Step.agent_reward is missing, but spec.reward is 'agent'; make them agree"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(change, words):
    refused(words, check_env, Walk(spec=replace(WALK, **change)))


def test_an_environment_that_cannot_be_hashed_or_that_fails_is_told():
    class Unhashable(Walk):
        __hash__ = None

    class Failing(Walk):
        def step(self, key, state, action):
            return 1 / 0

    refused("Unhashable: cannot be hashed", check_env, Unhashable())
    refused("Failing.step: fails with ZeroDivisionError: division by zero", check_env, Failing())
    refused("differs from what the family's shape= says", check_env, Walk(), spec=SPEC)


class Game:
    """The same in Python."""

    spec = WALK

    def __init__(self, fault: str = ""):
        self.fault, self.clock, self.games = fault, 0, 0

    def reset(self, seed: int) -> Observation:
        self.games += 1
        luck = self.games if self.fault == "luck" else seed  # no two games begin alike
        self.clock, self.place = 0, np.array([luck % 3, luck // 3 % 3])
        return self.seen()

    def step(self, action) -> Step:
        self.clock, self.place = self.clock + 1, self.place + action - 1
        late = self.clock >= (9 if self.fault == "endless" else 4)
        metrics = {} if self.fault == "metric" else {"won": 1.0}
        return outcome(self.seen(), 1.0, terminated=late and self.fault == "both", truncated=late, metrics=metrics)

    def seen(self) -> Observation:
        local = np.concatenate([self.place[:, None], np.tile(self.place, (2, 1))], axis=1)
        legal = np.zeros((2, 3), bool) if self.fault == "illegal" else np.ones((2, 3), bool)
        size = 2 if self.fault == "size" else 3
        return observation(local[:, :size] + (0.5 if self.fault == "half" else 0), legal, self.place)

    def scene(self) -> None:
        return None

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("size", r"reset: Observation.local has shape \[2, 2\]"),
        ("metric", "step: Step.metrics lacks 'won'"),
        ("half", "cannot hold"),
        ("illegal", "no legal action"),
        ("both", "both true at step 4"),
        ("endless", "goes on after spec.horizon"),
        ("luck", r"the same seed and actions gave another episode \(reset differs\)"),
    ],
)
def test_a_fault_of_a_python_environment_is_one_sentence(fault, words):
    refused(f"^Game.*{words}", check_env, Game(fault))


def test_a_game_with_dice_of_its_own_may_say_so():
    game = Game("luck")
    game.replayable = False
    check_env(game)


class BadRows(Reach):
    def __init__(self, fault: str):
        super().__init__(2, 3)
        self.fault = fault

    def reset(self, rows, seeds):
        super().reset(rows, np.arange(len(rows)) if self.fault == "seeds" else seeds)

    def step(self, action):
        step = super().step(action)
        if self.fault == "flags":
            return step._replace(terminated=np.bool_(False))
        if self.fault == "shown":
            self.drift = self.drift + 0.1
        return step

    def snapshot(self):
        found = super().snapshot()
        if self.fault == "list":
            return list(found.values())
        return {"drift": self.drift, "clock": found["clock"]} if self.fault != "forgets" else {"clock": found["clock"]}

    def restore(self, snapshot):
        super().restore({"drift": self.drift} | snapshot)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("seeds", "reset: two rows with the same seed begin differently"),
        ("flags", r"step: Step.terminated has shape \[\] and should have \[3\]"),
        ("shown", r"step: its observation is not what observe\(\) shows"),
        ("list", "snapshot: return a dict of numpy arrays"),
        ("forgets", r"restore: goes on with other numbers than before \(step 1 after"),
    ],
)
def test_a_fault_of_rows_is_one_sentence(fault, words):
    refused(f"^BadRows.{words}", check_env, BadRows(fault))


@pytest.mark.parametrize("kind", ["make", "python", "rows"])
def test_training_checks_a_task_of_the_users_by_itself(kind, tmp_path, monkeypatch):
    build = {
        "make": lambda variant: Walk(fault="both"),
        "python": lambda variant: Game("both"),
        "rows": lambda variant, number, threads: BadRows("flags"),
    }[kind]
    shape = {"shape": lambda variant: Reach(2, 1).spec} if kind == "rows" else {}
    family = envs.Family("mine/<x>", (), "for tests", **{kind: build}, **shape)
    monkeypatch.setitem(envs.registry._FAMILIES, "mine", family)
    monkeypatch.setattr(runner, "make_trainer", lambda experiment: pytest.fail("compiled before the check"))
    experiment = preset("reach_jax/2", "fups") if kind == "rows" else small("roles/2", "fups")
    refused("both true|Step.terminated has shape", runner.run, experiment.changed(task="mine/x"), tmp_path / "run")
    envs.registry._python_spec.cache_clear()


def test_what_lives_here_is_not_checked_again(monkeypatch):
    checks = "prism_marl.experiment.checks"
    for name in ("check_env", "check_method", "check_learner"):
        monkeypatch.setattr(f"{checks}.{name}", functools.partial(pytest.fail, name))
    check_user_code(small("roles/2", "prism"))
