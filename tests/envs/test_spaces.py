"""What a Python environment returns is what its spaces say, or the run ends with the agent, the step and the remedy."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from prism_marl.envs.python.base import observation, outcome
from prism_marl.envs.python.pettingzoo import PettingZoo
from prism_marl.envs.python.rows import Games, PythonRows
from prism_marl.envs.python.spaces import MisfitError, flatten
from prism_marl.errors import UserError
from prism_marl.types import EnvSpec

BOX = spaces.Box(-1, 1, (3,), np.float32)
BYTES = spaces.Box(0, 255, (2, 2), np.uint8)
DISCRETE = spaces.Discrete(3, start=1)
DICT = spaces.Dict({"where": BOX, "what": DISCRETE})

SOUND = [
    (BOX, np.array([0.5, 2.0, -1], np.float64), [0.5, 2.0, -1.0]),  # bounds of real numbers are often ignored
    (BOX, [1, 2, 3], [1, 2, 3]),
    (BOX, np.array([True, False, True]), [1, 0, 1]),
    (BYTES, np.full((2, 2), 255, np.uint8), [255] * 4),
    (BYTES, np.array([[0.0, 1.0], [2.0, 255.0]]), [0, 1, 2, 255]),
    (DISCRETE, 1, [1, 0, 0]),
    (DISCRETE, np.int64(3), [0, 0, 1]),
    (spaces.MultiBinary(2), [1, 0], [1, 0]),
    (spaces.MultiDiscrete([2, 3]), np.array([1, 2]), [0, 1, 0, 0, 1]),
    (DICT, {"where": np.zeros(3), "what": 2}, None),
    (spaces.Tuple((DISCRETE, BOX)), (3, np.ones(3)), [0, 0, 1, 1, 1, 1]),
    (spaces.Box(-1, 1, (), np.float32), np.float32(0.25), [0.25]),
]


@pytest.mark.parametrize(("space", "value", "wanted"), SOUND)
def test_sound_values_are_flattened_as_gymnasium_does(space, value, wanted):
    found = flatten(spaces, space, value)
    typed = {"where": np.zeros(3, np.float32), "what": np.int64(2)} if space is DICT else value
    theirs = np.asarray(
        spaces.flatten(space, np.asarray(typed, space.dtype) if isinstance(space, spaces.Box) else typed)
    )
    assert found.dtype == np.float32 and found.tolist() == theirs.astype(np.float32).tolist()
    assert wanted is None or found.tolist() == wanted


MISFITS = [
    (BOX, np.zeros(2), r"shape \[2\] instead of \[3\]"),
    (BOX, np.zeros((1, 3)), "shape"),
    (BOX, 0.5, "shape"),
    (BOX, [], "shape"),
    (BOX, None, "type object"),
    (BOX, np.zeros(3, complex), "type complex128"),
    (BOX, ["1", "2", "3"], "type <U1"),
    (BOX, [[1], [2, 3]], "not an array|type object"),
    (BYTES, np.array([[0, 1], [2, np.nan]]), "not whole"),
    (BYTES, np.array([[0, 1], [2, 3.5]]), "not whole"),
    (BYTES, np.array([[0, 1], [2, 300]]), "outside 0 to 255"),
    (BYTES, np.array([[0, 1], [2, -1]]), "outside 0 to 255"),
    (BYTES, np.array([[0, 1], [2, np.inf]]), "outside"),
    (DISCRETE, -1, "outside 1 to 3"),
    (DISCRETE, 0, "outside 1 to 3"),
    (DISCRETE, 4, "outside 1 to 3"),
    (DISCRETE, 1.5, "not whole"),
    (DISCRETE, [1], "shape"),
    (spaces.MultiBinary(2), [1, 2], "outside 0 to 1"),
    (spaces.MultiDiscrete([2, 3]), [1, 3], "outside 0 to 2"),
    (spaces.MultiDiscrete([2, 3]), [1], "shape"),
    (DICT, {"where": np.zeros(3)}, "no part 'what'"),
    (DICT, {"where": np.zeros(2), "what": 1}, "a part 'where' that has shape"),
    (DICT, np.zeros(6), "is a ndarray"),
    (spaces.Tuple((DISCRETE, BOX)), (1,), "not a tuple of 2 parts"),
]


@pytest.mark.parametrize(("space", "value", "words"), MISFITS)
def test_a_value_that_its_space_does_not_have_is_refused(space, value, words):
    with pytest.raises(MisfitError, match=words):
        flatten(spaces, space, value)


class Game:
    """Two agents; the second has a smaller space. ``fault`` changes what the third step returns."""

    possible_agents = ("a", "b")
    max_cycles = 5
    metadata: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, fault: dict[str, Any] | None = None):
        self.fault, self.agents, self.clock = fault or {}, [], 0

    def observation_space(self, agent):
        return spaces.Box(0, 9, (3 if agent == "a" else 2,), np.int16)

    def action_space(self, agent):
        return spaces.Discrete(3 if agent == "a" else 2)

    def reset(self, seed=None, options=None):
        self.agents, self.clock = list(self.possible_agents), 0
        return self._given("observed"), self._given("infos")

    def step(self, actions):
        self.clock += 1
        self.agents = self._given("agents")
        return tuple(self._given(name) for name in ("observed", "rewards", "ends", "cuts", "infos"))

    def _given(self, name: str) -> Any:
        sound = {
            "observed": {"a": np.zeros(3, np.int16), "b": np.ones(2, np.int16)},
            "rewards": {"a": 1, "b": 0.5},
            "ends": {"a": False, "b": False},
            "cuts": {},
            "infos": {"a": {"action_mask": np.array([1, 0, 1])}, "b": {}},
            "agents": list(self.possible_agents),
        }[name]
        return self.fault[name](sound) if self.clock == 3 and name in self.fault else sound

    def close(self):
        pass


def mask(value: Any):
    return {"infos": lambda infos: infos | {"a": {"action_mask": value}}}


def seen(value: Any):
    return {"observed": lambda observed: observed | {"b": value}}


FAULTS = {
    "too short": (seen(np.zeros(1, np.int16)), "agent 'b' an observation that has shape"),
    "scalar": (seen(1), "shape"),
    "empty": (seen([]), "shape"),
    "NaN": (seen([np.nan, 1]), "not whole"),
    "text": (seen(["1", "2"]), "type <U1"),
    "complex": (seen([1j, 2]), "complex"),
    "too large": (seen([40_000, 1]), "outside -32768 to 32767"),
    "missing": ({"observed": lambda observed: {"a": observed["a"]}}, "agent 'b' no observation"),
    "unknown agent": ({"observed": lambda observed: observed | {"c": 1}}, "agent 'c' an observation .* only a, b"),
    "mask too short": (mask([1]), r"agent 'a' an action_mask that has shape \[1\] instead of \[3\]"),
    "mask too long": (mask([1, 1, 1, 1]), "action_mask that has shape"),
    "mask of small twos": (mask(np.array([0, 2, 1], np.int8)), "outside 0 to 1"),
    "mask below zero": (mask(np.array([0, -1, 1], np.int8)), "outside 0 to 1"),
    "small mask too long": (mask(np.ones(4, bool)), "action_mask that has shape"),
    "mask of NaN": (mask([1, np.nan, 1]), "action_mask that has numbers that are not whole"),
    "mask of twos": (mask([2, 0, 1]), "outside 0 to 1"),
    "mask of words": (mask(["a", "b", "c"]), "action_mask that is of type"),
    "nothing legal": (mask([0, 0, 0]), "no legal action"),
    "reward of a stranger": ({"rewards": lambda rewards: rewards | {"c": 100.0}}, "agent 'c' a reward .* only a, b"),
    "complex reward": ({"rewards": lambda rewards: {"a": 1j}}, "a reward that is of type complex"),
    "reward of words": ({"rewards": lambda rewards: {"a": "1"}}, "a reward that is of type"),
    "two rewards": ({"rewards": lambda rewards: {"a": [1, 2]}}, "a reward that has shape"),
    "end of a stranger": ({"ends": lambda ends: ends | {"c": True}}, "agent 'c' an end"),
    "a stranger lives": ({"agents": lambda agents: [*agents, "c"]}, "agent 'c' a turn"),
}


@pytest.mark.parametrize(("fault", "words"), FAULTS.values(), ids=FAULTS)
def test_what_a_game_returns_is_looked_at_in_every_step(fault, words):
    env = PettingZoo("mine", Game(fault))
    env.reset(0)
    for _ in range(2):
        env.step(np.zeros(2, np.int32))
    with pytest.raises(UserError, match=f"^task: 'mine' gives (agent .* )?{words}") as error:
        env.step(np.zeros(2, np.int32))
    assert error.value.code == 1 and "at step" in str(error.value) and "\n" not in str(error.value)


def test_a_sound_game_is_played_as_before():
    env = PettingZoo("mine", Game())
    first = env.reset(0)
    assert first.avail.tolist() == [[True, False, True], [True, True, False]]
    assert first.local.tolist() == [[0, 0, 0], [1, 1, 0]]  # zeros behind the smaller space
    steps = [env.step(np.zeros(2, np.int32)) for _ in range(5)]
    assert [float(step.reward) for step in steps] == [1.5] * 5 and bool(steps[-1].truncated)
    assert env.step(np.zeros(2, np.int32)).reward.dtype == np.float32
    with np.errstate(all="raise"):
        nan = PettingZoo("mine", Game({"rewards": lambda rewards: {"a": np.nan}}))
        nan.reset(0)
        assert np.isnan([nan.step(np.zeros(2, np.int32)).reward for _ in range(3)][-1])  # the run names seed and step


class Mine:
    """A user's own environment, which builds its records itself."""

    spec = EnvSpec("own", 2, observation=3, state=2, actions=2, roles=2, horizon=2)

    def __init__(self, local: Any, avail: Any = None, state: Any = None):
        self.given = (local, np.ones((2, 2), bool) if avail is None else avail, np.zeros(2) if state is None else state)

    def reset(self, seed):
        return observation(*self.given)

    def step(self, action):
        return outcome(observation(*self.given), 1.0, terminated=False, truncated=True)

    def scene(self):
        return None

    def close(self):
        pass


OWN = {
    "one agent": ((np.zeros((1, 3)),), r"gives local of type float32 and shape \[1, 3\]"),
    "one number": ((np.zeros((2, 1)),), "gives local"),
    "one state": ((np.zeros((2, 3)), None, np.zeros(1)), "gives state"),
    "one mask": ((np.zeros((2, 3)), np.ones((1, 2), bool)), "gives avail"),
    "mask of NaN": ((np.zeros((2, 3)), np.full((2, 2), np.nan)), "gives avail of type float64"),
    "complex": ((np.zeros((2, 3), complex),), "an observation is of type complex128"),
    "text": ((np.full((2, 3), "1"),), "an observation is of type"),
    "state of text": ((np.zeros((2, 3)), None, np.array(["1", "2"])), "a state is of type"),
}


@pytest.mark.parametrize(("given", "words"), OWN.values(), ids=OWN)
def test_rows_take_no_array_that_would_be_repeated_or_cast(given, words):
    rows = PythonRows(Games(lambda: Mine(*given)), 1)
    with pytest.raises(UserError, match=words):
        rows.reset(np.arange(1), np.arange(1))


@pytest.mark.parametrize("reward", ["1", 1j, None, [1.0, 2.0]])
def test_a_reward_is_one_real_number(reward):
    with pytest.raises(UserError, match="a reward"):
        outcome(observation(np.zeros((2, 3)), np.ones((2, 2), bool)), reward, terminated=False, truncated=False)
