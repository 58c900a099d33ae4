"""What is wrong with a learner of the user's is one sentence, before anything is compiled for training."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import pytest

from prism_marl.envs import describe
from prism_marl.errors import UserError
from prism_marl.experiment.checks import check_learner
from prism_marl.experiment.presets import preset
from prism_marl.learners import IQL
from prism_marl.learners.base import Collection, shape
from prism_marl.learners.iql import IQLLearner
from prism_marl.runs import runner
from prism_marl.sharing import FuPS
from tiny import small

SPEC = describe("roles/3")
SETTINGS = IQL(batch=2, buffer=4)


def make(**parts) -> IQLLearner:
    """IQL with other functions."""
    return type("Bad", (IQLLearner,), parts)(SETTINGS, FuPS(), SPEC, 8, 2)


def changed_act(change):
    def act(self, policy, memory, obs, key, step, mode):
        return change(*IQLLearner.act(self, policy, memory, obs, key, step, mode))

    return act


def changed_template(**changes):
    return lambda self: IQLLearner.template(self)._replace(**changes)


def changed_update(change):
    def update(self, state, buffer, batch, log, step, clock):
        return change(state, *IQLLearner.update(self, state, buffer, batch, log, step, clock))

    return update


def two_keys(self, state, clock, purpose):
    return state, jax.random.split(state.key)


def another_state(self, state, clock, purpose):
    return state.key, state.key


def unknown_unit() -> Collection:
    """The tests' shape checks would refuse it at once; outside of tests nothing does."""
    found = Collection("episodes", 1)
    object.__setattr__(found, "unit", "rounds")
    return found


CASES = [
    ({"collection": unknown_unit()}, "Bad.collection: unit 'rounds' is unknown"),
    ({"collection": Collection("episodes", 0)}, "length 0 is not a positive number"),
    ({"collection": Collection("episodes", 7)}, "length 7 is not the horizon of the task; use 1"),
    ({"collection": Collection("episodes", 1, warmup=-1)}, "warmup -1 is negative"),
    ({"collection": "episodes"}, "collection: is a str; return a learners.base.Collection"),
    ({"metrics": "loss"}, "Bad.metrics: 'loss' is not a tuple of names"),
    ({"key": two_keys}, "Bad.key for 'collect': returns .* and not one key"),
    ({"key": another_state}, "Bad.key for 'collect': returns another state than it gets"),
    ({"act": changed_act(lambda m, a, e: (m.hidden, a, e))}, "act in mode 'random': returns another memory"),
    ({"act": changed_act(lambda m, a, e: (m, a[..., None], e))}, r"actions are int32\[2, 3, 1\]; return integers"),
    ({"act": changed_act(lambda m, a, e: (m, a.astype(float), e))}, "actions are float32.*; return integers"),
    ({"act": changed_act(lambda m, a, e: (m, a, a))}, "template: extras has the structure"),
    ({"template": changed_template(extras=shape(1, 5))}, "template: extras has the structure"),
    ({"template": changed_template(action=shape(1, 3))}, "template: action is float32.* for one row, but"),
    ({"template": changed_template(reward=shape(5))}, "template: reward has 5 slots along time; give it 1"),
    ({"template": changed_template(next_obs=shape(1))}, "template: next_obs belongs to 'steps' alone"),
    ({"template": lambda self: ()}, "Bad.template: is a tuple; return a learners.base.Trajectory"),
    ({"add": lambda self, buffer, batch: buffer.storage}, "Bad.add: returns another buffer"),
    ({"experience": lambda self, buffer: buffer}, "Bad.experience: returns a Ring; return a sharing.base.Experience"),
    ({"metrics": ("loss",)}, "Bad.metrics: update adds 'grad_norm', which is not among them; add the name"),
    (
        {"metrics": ("dice", "grad_norm", "loss", "q_total", "td_loss")},
        "Bad.metrics: update never adds 'dice' to the log",
    ),
    ({"update": changed_update(lambda old, s, log, clock: (s.online, log, clock))}, "update: returns another state"),
    (
        {"update": changed_update(lambda old, s, log, clock: (s, log, clock._replace(summed=s.updates)))},
        "Bad.update: fails with ValueError",
    ),
    (
        {"update": changed_update(lambda old, s, log, clock: (s, log.check({"q": jnp.bool_(True)}, 0), clock))},
        "Bad.checks: update checks 'q'",
    ),
    ({"agent": lambda self, state: state.online}, "Bad.agent: returns another network of build_agent"),
    ({"with_agent": lambda self, state, agent: agent}, "Bad.with_agent: returns another state"),
    ({"row": lambda self, step: {"epsilon": self.epsilon(jnp.int32(step))}}, "Bad.row: return a dict of plain numbers"),
    ({"init": lambda self, key: 1 / 0}, "fails with ZeroDivisionError"),
    ({"__hash__": None}, "Bad: cannot be hashed"),
]


@pytest.mark.parametrize(("parts", "words"), CASES)
def test_each_fault_is_one_sentence(parts, words):
    with pytest.raises(UserError, match=words) as error:
        check_learner(make(**parts))
    assert "\n" not in str(error.value) and len(str(error.value)) < 900


@pytest.mark.parametrize("task", ["roles/2", "reach/2", "reach_jax/2"])
def test_learners_that_keep_their_promises_pass(task):
    learners = ("qmix", "vdn", "iql", "mappo") if task == "roles/2" else ("matd3", "ippo")
    for name in learners:
        experiment = preset(task, "prism", learner=name)
        settings = experiment.learner
        if name == "matd3":
            settings = replace(settings, critic_width=8, batch=8, buffer=40, updates=2, policy_freq=2)
        check_learner(settings.learner(experiment.sharing, describe(task), width=8, rows=2))


@dataclass(frozen=True)
class Mine(IQL):
    label: ClassVar[str] = "Mine"
    algorithm: Literal["mine"] = "mine"

    def learner(self, sharing, spec, *, width, rows=1, steps=0):
        return replace(make(metrics=("loss",)), settings=self, sharing=sharing, spec=spec, width=width, rows=rows)


def test_training_checks_a_learner_of_the_users_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "make_trainer", lambda experiment: pytest.fail("compiled before the check"))
    experiment = small("roles/2", "fups").changed(learner=Mine(batch=2, buffer=8))
    with pytest.raises(UserError, match=r"Bad\.metrics: update adds"):
        runner.run(experiment, tmp_path / "run")
