"""PettingZoo with continuous actions: boxes become [-1, 1], and rows can be stopped and continued."""

import sys
import types
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

from prism_marl import envs
from prism_marl.envs.python.pettingzoo import PettingZoo, make_pettingzoo
from prism_marl.envs.python.rows import PythonRows
from prism_marl.errors import UserError

TASK = "pettingzoo/two_carts?horizon=6"


class Carts(ParallelEnv):
    """Two carts on a line push each other; the first has one motor in [0, 4], the second a 2x1 box around 0."""

    metadata: ClassVar = {"name": "carts"}

    def __init__(self) -> None:
        self.possible_agents = ["left", "right"]
        self.boxes = {"left": Box(0.0, 4.0, (1,), np.float64), "right": Box(-0.5, 0.5, (2, 1), np.float32)}
        self.heard: list[dict[str, np.ndarray]] = []

    def observation_space(self, agent: str) -> Box:
        return Box(-np.inf, np.inf, (2 if agent == "left" else 3,))

    def action_space(self, agent: str) -> Any:
        return self.boxes[agent]

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        self.agents = list(self.possible_agents)
        self.place = np.random.default_rng(seed).normal(size=2)
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, np.ndarray]) -> tuple[dict, ...]:
        self.heard.append(actions)
        self.place = self.place * 0.9 + [actions["left"][0], actions["right"].sum()]
        over = dict.fromkeys(self.agents, bool(self.place[0] > 12))
        rewards, cuts = {"left": self.place[0], "right": -self.place[1]}, dict.fromkeys(self.agents, False)
        seen = self._seen()
        if over["left"]:
            self.agents = []
        return seen, rewards, over, cuts, {agent: {} for agent in seen}

    def _seen(self) -> dict[str, np.ndarray]:
        return {"left": self.place.astype(np.float32), "right": np.append(self.place, 1.0).astype(np.float32)}


@pytest.fixture(autouse=True)
def carts(monkeypatch):
    monkeypatch.setitem(sys.modules, "two_carts", types.SimpleNamespace(parallel_env=Carts))


def test_boxes_are_stretched_and_padded():
    game = Carts()
    env = PettingZoo(TASK, game, horizon=6)
    spec = env.spec
    assert (spec.kind, spec.agents, spec.actions, spec.observation, spec.state) == ("continuous", 2, 2, 3, 6)
    assert env.reset(3).avail.all() and not spec.shared_observation
    step = env.step(np.array([[-1.0, 9.0], [1.0, 0.0]], np.float32))
    np.testing.assert_allclose(step.agent_reward, [game.place[0], -game.place[1]], rtol=1e-6)
    heard = game.heard[-1]
    np.testing.assert_array_equal(heard["left"], [0.0])
    np.testing.assert_allclose(heard["right"], [[0.5], [0.0]])
    assert heard["left"].dtype == np.float64 and heard["right"].dtype == np.float32
    assert game.boxes["left"].contains(heard["left"]) and game.boxes["right"].contains(heard["right"])
    assert step.obs.local[0, 2] == 0 and step.obs.local[1, 2] == 1  # shorter observations are padded
    env.step(np.full((2, 2), 1.5, np.float32))  # noise may leave the range, actions may not
    np.testing.assert_array_equal(game.heard[-1]["left"], [4.0])


def test_rows_play_and_continue_as_they_would_alone():
    assert not envs.is_compiled(TASK)
    env, rng = envs.make_rows(TASK, 3), np.random.default_rng(0)
    assert isinstance(env, PythonRows) and env.number == 3 and env.spec == envs.describe(TASK)
    env.reset(np.arange(3), np.array([5, 6, 7]))
    assert env.observe().local.shape == (3, 2, 3) and env.observe().state.shape == (3, 6)
    played = [rng.uniform(-1, 1, (3, 2, 2)).astype(np.float32) for _ in range(5)]
    for action in played[:3]:
        env.step(action)
    env.reset(np.array([1]), np.array([9]))
    held = env.snapshot()
    first = [env.step(action) for action in played[3:]]
    other = envs.make_rows(TASK, 3)
    other.restore(held)
    for action, wanted in zip(played[3:], first, strict=True):
        found = other.step(action)
        np.testing.assert_array_equal(found.obs.local, wanted.obs.local)
        np.testing.assert_array_equal(found.reward, wanted.reward)
    alone = PettingZoo(TASK, Carts(), horizon=6)
    alone.reset(9)
    for action, wanted in zip(played[3:], first, strict=True):
        np.testing.assert_array_equal(alone.step(action[1]).obs.local, wanted.obs.local[1])
    with pytest.raises(UserError, match="do not fit 2 rows"):
        envs.make_rows(TASK, 2).restore(held)
    env.close()


def test_a_row_that_has_ended_waits_for_its_reset():
    env = envs.make_rows(TASK, 2)
    env.reset(np.arange(2), np.array([1, 2]))
    full = np.stack([np.ones((2, 2)), -np.ones((2, 2))]).astype(np.float32)
    for clock in range(1, 7):
        step = env.step(full)
        if step.terminated[0]:
            assert clock < 6
            break
    seen = step.obs.local[0]
    again = env.step(full)
    assert again.terminated[0] and again.reward[0] == 0 and not again.truncated.any()
    np.testing.assert_array_equal(again.obs.local[0], seen)
    env.reset(np.array([0]), np.array([4]))
    assert not env.step(full).terminated[0]


def test_what_is_neither_list_nor_box_is_refused(monkeypatch):
    def game(**spaces: Any) -> Any:
        made = Carts()
        made.boxes |= spaces
        return types.SimpleNamespace(parallel_env=lambda: made)

    for spaces, hint in (
        ({"left": Discrete(3)}, "'left' Discrete actions and others a Box"),
        ({"right": Box(-np.inf, np.inf, (1,))}, "'right' a Box that is not of bounded"),
        ({"right": Box(0, 5, (1,), np.int64)}, "'right' a Box that is not of bounded"),
    ):
        monkeypatch.setitem(sys.modules, "two_carts", game(**spaces))
        with pytest.raises(UserError, match=hint) as error:
            make_pettingzoo("two_carts?horizon=3")
        assert "\n" not in str(error.value)
