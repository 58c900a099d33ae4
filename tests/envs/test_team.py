"""What equal agents get is looked at as one array: accepted and refused as one by one, in the same words."""

from typing import Any
from unittest import mock

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from prism_marl.envs.python import team as team_module
from prism_marl.envs.python.pettingzoo import PettingZoo
from prism_marl.envs.python.spaces import MisfitError, flags
from prism_marl.envs.python.team import Team
from prism_marl.errors import UserError

AGENTS, ACTIONS, SIZE = ("a", "b", "c"), 4, 3
EXACT = 2**53  # up to here a whole number among floats is the same number


class Room:
    """Three agents that observe the same kind of Box."""

    possible_agents = AGENTS

    def __init__(self, dtype: str):
        self.dtype = np.dtype(dtype)

    def observation_space(self, agent: str) -> spaces.Box:
        bounded = self.dtype.kind == "f"
        low, high = (-1, 1) if bounded else (0, 1) if self.dtype.kind == "b" else _limits(self.dtype)
        return spaces.Box(low, high, (SIZE,), self.dtype.type)

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(ACTIONS)


class Playroom(Room):
    """One that can be played; its agents leave one after the other."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(AGENTS)
        return self._seen(), {}

    def step(self, actions: Any) -> Any:
        self.agents = self.agents[1:]
        nobody = dict.fromkeys(AGENTS, False)
        return self._seen(), dict.fromkeys(AGENTS, 1.0), nobody, nobody, {}

    def _seen(self) -> dict[str, np.ndarray]:
        return {agent: np.ones(SIZE, self.dtype) for agent in self.agents}

    def close(self) -> None:
        pass


def _limits(dtype: np.dtype) -> tuple[int, int]:
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


def typed(dtype: str, shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    kind = np.dtype(dtype).kind
    elements: Any = None
    if kind in "iu":
        low, high = _limits(np.dtype(dtype))
        elements = st.integers(max(low, -EXACT), min(high, EXACT)) | st.integers(0, 1)
    return arrays.arrays(dtype, shape, elements=elements)


TYPES = ["f2", "f4", "f8", "i1", "u1", "i2", "i8", "u8", "?", "c8", "<U1", "M8[s]", "m8[s]"]
NUMBERS = st.floats(width=32) | st.integers(-300, 300) | st.booleans()
HOSTILE = st.sampled_from([None, "abc", [], [[1], [2, 3]], 10**400, [10**400, 1, 1], {}, {1}, object(), b"abc", np.nan])


def values(size: int) -> st.SearchStrategy[Any]:
    shapes = st.sampled_from([(size,), (size,), (size,), (size - 1,), (1, size), ()])
    array = st.tuples(st.sampled_from(TYPES), shapes).flatmap(lambda kind: typed(*kind))
    return array | st.lists(NUMBERS, min_size=size, max_size=size) | HOSTILE


def each(value: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """One for every agent; more often than not, all of one kind."""
    alike = st.sampled_from(["f4", "f8", "i8", "u1", "?", "i2"]).flatmap(
        lambda dtype: st.lists(typed(dtype, (SIZE,)), min_size=len(AGENTS), max_size=len(AGENTS))
    )
    return alike | st.lists(value, min_size=len(AGENTS), max_size=len(AGENTS))


MASKS = st.sampled_from(["?", "i1", "u1", "i8", "f4"]).flatmap(
    lambda dtype: arrays.arrays(dtype, (ACTIONS,), elements=st.sampled_from([0, 0, 1]))
)


def found(call: Any) -> Any:
    """What a call returns, or how it refuses."""
    try:
        return call()
    except UserError as error:
        assert error.code == 1 and "\n" not in str(error)
        return str(error)


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    else:
        assert one == other


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(["f4", "f8", "u1", "i2", "i8", "?"]), each(values(SIZE)))
def test_observations_of_equal_agents(dtype, seen):
    team = Team("mine", Room(dtype), spaces)
    together = found(lambda: team._vectors(team.every, seen))
    assert team._one_box
    team._one_box = None
    same(together, found(lambda: team._vectors(team.every, seen)))


def one_by_one(value: Any, shape: tuple[int, ...]) -> np.ndarray:
    if len(shape) == 2:
        raise MisfitError("is of several agents")
    return flags(value, shape)


@settings(max_examples=400, deadline=None)
@given(st.lists(MASKS, min_size=3, max_size=3) | st.lists(MASKS | values(ACTIONS), min_size=3, max_size=3))
def test_masks_of_equal_agents(masks):
    team = Team("mine", Room("f4"), spaces)
    together = found(lambda: team._legal(team.every, masks))
    with mock.patch.object(team_module, "flags", one_by_one):
        same(together, found(lambda: team._legal(team.every, masks)))


@settings(max_examples=400, deadline=None)
@given(st.lists(st.floats() | NUMBERS | values(1) | values(2), max_size=3))
def test_rewards_of_all(rewards):
    team = Team("mine", Room("f4"), spaces)
    given = dict(zip(AGENTS, rewards, strict=False))
    together = found(lambda: team.rewards(given))
    alone = found(lambda: [team._reward(agent, reward) for agent, reward in given.items()])
    if isinstance(alone, str):
        assert together == alone
    else:
        each, total = together
        assert each.dtype == np.float64 and type(total) is float
        np.testing.assert_array_equal(each, [*alone, *[0.0] * (len(AGENTS) - len(alone))])
        np.testing.assert_array_equal(total, float(sum(alone)))


def test_rewards_go_to_those_whom_they_name():
    team = Team("mine", Room("f4"), spaces)
    each, total = team.rewards({"c": 3, "a": np.float32(0.5)})
    assert each.tolist() == [0.5, 0.0, 3.0] and total == 3.5


def test_what_the_adapter_returns_has_the_types_and_shapes_of_its_spec():
    """Which is why rows do not look again."""
    for dtype in ("f4", "f8", "u1"):
        env = PettingZoo("mine", Playroom(dtype), horizon=4)
        spec, agents = env.spec, len(AGENTS)
        wanted = [("f4", (agents, SIZE)), ("f4", (spec.state,)), ("?", (agents, ACTIONS)), ("i8", (agents,))]
        for obs in (env.reset(0), *(env.step(np.zeros(agents, np.int32)).obs for _ in range(3))):
            assert [(part.dtype, part.shape) for part in obs] == [(np.dtype(kind), shape) for kind, shape in wanted]


@pytest.mark.parametrize("allowed", [[0, 3, 2], [3, 0, 0], [1, 1, 1]])
def test_a_row_that_allows_nothing_is_found_among_others(allowed):
    team = Team("mine", Room("f4"), spaces)
    masks = [np.eye(ACTIONS, dtype=np.int8)[choice] for choice in allowed]
    assert team._legal(team.every, masks).argmax(axis=1).tolist() == allowed
    for index, agent in enumerate(AGENTS):
        spoilt = [*masks[:index], np.zeros(ACTIONS, np.int8), *masks[index + 1 :]]
        with pytest.raises(UserError, match=f"gives agent '{agent}' no legal action"):
            team._legal(team.every, spoilt)


def test_nothing_that_is_returned_shares_memory_with_the_game():
    """Games may go on writing into their own arrays."""
    team = Team("mine", Room("f4"), spaces)
    seen = {agent: np.ones(SIZE, np.float32) for agent in AGENTS}
    infos = {agent: {"action_mask": np.ones(ACTIONS, bool)} for agent in AGENTS}
    for slots in (team.every, [1]):
        local, avail = team.see(slots, seen, infos)
        for agent in AGENTS:
            assert not np.shares_memory(local, seen[agent])
            assert not np.shares_memory(avail, infos[agent]["action_mask"])
    assert not np.shares_memory(team.see(team.every, seen, {})[1], team.see(team.every, seen, {})[1])


def test_who_ends_and_who_is_cut():
    team = Team("mine", Room("f4"), spaces)
    nobody = dict.fromkeys(AGENTS, False)
    assert team.over(nobody, dict.fromkeys(AGENTS, np.False_)) == team.over({}, {}) == (set(), set())
    assert team.over(nobody | {"a": True}, {"a": True, "b": np.True_}) == ({"a", "b"}, {"b"})
    with pytest.raises(UserError, match="gives agent 'd' an end at step 0; only a, b, c"):
        team.over(nobody, {"a": False, "b": False, "d": False})
