"""The game of groups: what it pays, and that its best common play is known."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl.envs.groups import State, make_groups
from prism_marl.errors import UserError

KEY = jax.random.key(0)


def test_everybody_sees_the_sign_and_nobody_its_group():
    env = make_groups("5-2")
    state, obs = env.reset(KEY)
    assert obs.local.shape == (5, 2) and obs.state.shape == (2,) and obs.avail.shape == (5, 2)
    assert (obs.local == jax.nn.one_hot(state.sign, 2)).all()
    assert env.group.tolist() == [0, 0, 0, 1, 1]
    assert obs.role.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("sign", "action", "reward"),
    [
        (0, [0, 0, 1, 1, 2, 2], 1.0),
        (1, [1, 1, 2, 2, 0, 0], 1.0),
        (2, [2, 2, 2, 2, 2, 2], 1 / 3),
        (2, [2, 0, 0, 2, 1, 0], 0.5),
    ],
)
def test_group_g_plays_the_sign_plus_g(sign: int, action: list[int], reward: float):
    env = make_groups("6-3")
    _, step = env.step(KEY, State(jnp.int32(sign)), jnp.array(action))
    assert float(step.reward) == pytest.approx(reward)
    assert bool(step.terminated) and not bool(step.truncated)


def test_who_all_play_the_same_earn_one_group_s_share():
    env = make_groups("6-3")
    best = max(
        np.mean([env.step(KEY, State(jnp.int32(s)), jnp.full(6, play[s]))[1].reward for s in range(3)])
        for play in itertools.product(range(3), repeat=3)
    )
    assert best == pytest.approx(1 / 3)


def test_the_signs_of_many_games_are_all_there():
    signs = jax.vmap(lambda key: make_groups("6-3").reset(key)[0].sign)(jax.random.split(KEY, 64))
    assert set(signs.tolist()) == {0, 1, 2}


@pytest.mark.parametrize(
    ("variant", "hint"),
    [("6", "groups/6-3"), ("6-9", "groups/6-6"), ("1-1", "groups/2-2"), ("5000-2", "groups/1024-2")],
)
def test_impossible_sizes_name_a_possible_one(variant: str, hint: str):
    with pytest.raises(UserError, match=hint):
        make_groups(variant)
