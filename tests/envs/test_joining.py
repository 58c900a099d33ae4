"""Teams whose agents join and leave inside an episode: slots that are masked while nobody is in them."""

from dataclasses import replace
from typing import Any, ClassVar

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

from prism_marl.collect.host_episodes import HostEpisodes
from prism_marl.collect.visits import whole_template
from prism_marl.envs.python.pettingzoo import PettingZoo
from prism_marl.envs.python.rows import Games, PythonRows
from prism_marl.errors import UserError
from prism_marl.learners import LEARNERS, MATD3
from prism_marl.learners.base import Trajectory
from prism_marl.measures import histories
from prism_marl.sharing.fups import FuPSID
from prism_marl.types import Observation

SHIFTS = (("a",), ("a", "b"), ("b",), ("b", "c"), ("a", "c"), ("a",))  # who plays at the reset and after each step
LENGTH = len(SHIFTS) - 1
HERE = np.array([[name in shift for name in "abc"] for shift in SHIFTS])


class Kitchen(ParallelEnv):
    """Cooks come and go: b joins after one step, a leaves and comes back, c joins last."""

    metadata: ClassVar[dict[str, Any]] = {"name": "kitchen_v0", "max_cycles": LENGTH}

    def __init__(self, shifts: tuple[tuple[str, ...], ...] = SHIFTS, *, continuous: bool = False) -> None:
        self.possible_agents, self.shifts, self.continuous = ["a", "b", "c"], shifts, continuous
        self.heard: list[dict[str, Any]] = []

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        return Box(-9, 9, (2,))

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        return Box(-1.0, 1.0, (2,)) if self.continuous else Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None):
        self.clock, self.agents, self.seed = 0, list(self.shifts[0]), seed or 0
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]):
        self.heard.append(actions)
        before, self.clock = set(self.agents), self.clock + 1
        now = self.shifts[self.clock]
        over = {agent: agent not in now for agent in before}
        self.agents = list(now)
        rewards = {agent: float(np.sum(action)) for agent, action in actions.items()}
        return self._seen(), rewards, over, dict.fromkeys(before, False), {agent: {} for agent in now}

    def _seen(self) -> dict[str, np.ndarray]:
        return {agent: np.array([self.clock + 1, 1 + self.seed % 3], np.float32) for agent in self.agents}


def door(**how: Any) -> PettingZoo:
    return PettingZoo("pettingzoo/kitchen", Kitchen(**how), horizon=LENGTH)


def test_who_is_not_there_observes_nothing_and_does_nothing():
    env = door()
    seen = [env.reset(0)]
    for number in range(LENGTH):
        step = env.step(np.array([2, 2, 2]))
        assert set(env.env.heard[-1]) == set(SHIFTS[number])
        np.testing.assert_array_equal(step.agent_reward, 2.0 * HERE[number])  # those who acted
        assert not step.terminated and bool(step.truncated) == (number == LENGTH - 1)
        seen.append(step.obs)
    for number, obs in enumerate(seen):
        np.testing.assert_array_equal(obs.local.any(axis=1), HERE[number])
        np.testing.assert_array_equal(obs.avail.sum(axis=1), np.where(HERE[number], 3, 1))
        assert obs.avail[:, 0].all() and obs.role.tolist() == [0, 1, 2]
        np.testing.assert_array_equal(obs.local[HERE[number], 0], number + 1)  # of a newcomer, too


def test_an_episode_ends_when_nobody_is_left():
    env = door(shifts=(("a",), ("b",), ()))
    env.reset(0)
    assert not env.step(np.array([0, 0, 0])).terminated  # a has left, b has come
    last = env.step(np.array([0, 0, 0]))
    assert last.terminated and not last.truncated and not last.obs.local.any()


@pytest.mark.parametrize(
    ("shifts", "sentence"),
    [
        ((("a",), ("a", "d")), "gives agent 'd' a turn at step 0; only a, b, c are in possible_agents: name there all"),
        ((("a", "d"),), "gives agent 'd' a turn at step 0; only a, b, c are in possible_agents"),
        ((("a",), ("a", "b", "b", "c")), "gives agent 'b' two turns at step 0; there is one slot for each of 3 agents"),
    ],
)
def test_who_has_no_slot_is_refused_in_one_sentence(shifts, sentence):
    with pytest.raises(UserError, match=r"^task: 'pettingzoo/kitchen' ") as caught:
        env = door(shifts=shifts)
        env.reset(0)
        env.step(np.array([0, 0, 0]))
    assert sentence in str(caught.value)


def test_names_that_two_agents_share_are_refused():
    twins = Kitchen()
    twins.possible_agents = ["a", "b", "b"]
    with pytest.raises(UserError, match="names agent 'b' twice in possible_agents"):
        PettingZoo("pettingzoo/kitchen", twins, horizon=LENGTH)


def test_rows_are_replayed_with_everybody_in_place():
    """A snapshot is seeds and actions; whoever joined on the way joins again."""
    rows, action = PythonRows(Games(door), 2), np.array([[1, 1, 1], [2, 0, 2]])
    rows.reset(np.arange(2), np.array([4, 8]))
    for _ in range(3):
        before = rows.step(action).obs
    snapshot = rows.snapshot()
    again = PythonRows(Games(door), 2)
    again.restore(snapshot)
    for one, other, third in zip(rows.observe(), again.observe(), before, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, third)
    assert again.observe().local[:, [1, 2]].any(axis=2).all()  # b and c, of whom neither was there at the reset


class Random:
    """Plays legal actions without a network."""

    memory, in_turns = (), False

    def __init__(self, spec):
        self.spec, self.rng = spec, np.random.default_rng(0)

    def act(self, number, seeds, obs):
        if self.spec.kind == "continuous":
            return self.rng.uniform(-1, 1, obs.avail.shape).astype(np.float32), ()
        return np.argmax(self.rng.random(obs.avail.shape) * obs.avail, axis=-1), ()


def played(name: str):
    """A learner, and two episodes [t, b, ...] with all that was seen."""
    continuous = name == "matd3"
    env = PythonRows(Games(lambda: door(continuous=continuous)), 2)
    settings = LEARNERS[name]()
    if hasattr(settings, "buffer"):
        settings = replace(settings, buffer=8)
    learner = settings.learner(FuPSID(), env.spec, width=4)
    template = whole_template(learner)._replace(extras=())
    episodes = HostEpisodes(env, np.array([[1, 2]]), 2, template)
    episodes.play(Random(env.spec))
    record = episodes.trajectory()
    parts = (
        record.obs._asdict(),
        {"action": record.action, "valid": record.valid, "agent_reward": record.agent_reward},
    )
    return (
        learner,
        Observation(**{key: leaf[0] for key, leaf in parts[0].items()}),
        {k: v[0] for k, v in parts[1].items()},
    )


@pytest.mark.parametrize("name", LEARNERS)
def test_learners_see_who_is_there(name):
    learner, obs, rest = played(name)
    here = np.broadcast_to(HERE[:, None], obs.role.shape)
    assert rest["valid"].all() and not rest["agent_reward"][~here[:-1]].any()
    if hasattr(learner, "inputs") and hasattr(learner.inputs, "active"):  # MAPPO and IPPO leave the others out
        np.testing.assert_array_equal(learner.inputs.active(Observation(*map(jnp.asarray, obs))), here)
    if hasattr(learner, "episodes"):  # of stored episodes, what methods that look at data may look at
        store = learner.episodes
        kept = learner.add(learner.buffer(), trajectory_of(learner, obs, rest))
        valid = np.asarray(learner.experience(kept).valid)
        assert valid.sum() == here[:-1].sum()
        assert np.asarray(store.restored(kept.newest(1)).obs.local[0]).any(axis=-1).tolist() == HERE.tolist()
    kind = learner.spec.kind
    steps = {key: getattr(obs, key)[:-1] for key in ("local", "avail", "role")} | rest
    seen = histories(steps, memory=False, kind=kind)
    assert len(seen.agent) == 2 * HERE[:-1].sum() and seen.local[0].any(axis=-1).all()


def trajectory_of(learner, obs, rest):
    """Episodes as a collection of the learner."""
    length, rows = rest["valid"].shape
    none = np.zeros((length, rows), bool)
    late = none.copy()
    late[-1] = True
    each = rest["agent_reward"] if learner.template().agent_reward is not None else None
    reward = rest["agent_reward"].sum(axis=-1)
    found = Trajectory(obs, None, rest["action"], reward, each, none, late, rest["valid"])
    return Trajectory(*(None if part is None else part for part in found))


def test_continuous_slots_without_an_agent_do_not_count():
    learner, obs, _ = played("matd3")
    assert isinstance(learner.settings, MATD3)
    np.testing.assert_array_equal(obs.avail.any(axis=-1), np.broadcast_to(HERE[:, None], obs.role.shape))
