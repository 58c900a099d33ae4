"""Games of one step: what they pay, and that teams with and without differences earn at best what is stated."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl import envs
from prism_marl.envs.matrix import State, make_matrix, make_pass
from prism_marl.errors import UserError
from prism_marl.experiment.checks import check_env

KEY = jax.random.key(0)


def paid(env, *action: int) -> float:
    state, _ = env.reset(KEY)
    _, step = env.step(KEY, state, jnp.array(action))
    assert bool(step.terminated) and not bool(step.truncated)
    return float(step.reward)


@pytest.mark.parametrize(
    ("variant", "action", "reward"),
    [
        ("climbing-2", (0, 0), 1.0),
        ("climbing-2", (0, 1), -30 / 11),
        ("climbing-2", (1, 2), 6 / 11),
        ("climbing-2", (2, 1), 0.0),  # the table is not symmetric
        ("penalty-2", (0, 2), 1.0),
        ("penalty-2", (2, 2), -1.0),
        ("penalty-2", (1, 1), 0.2),
        ("xor-4", (0, 1, 1, 0), 1.0),
        ("xor-4", (0, 1, 1, 1), 0.5),
    ],
)
def test_pairs_earn_what_their_cell_says(variant: str, action: tuple[int, ...], reward: float):
    assert paid(make_matrix(variant), *action) == pytest.approx(reward)


@pytest.mark.parametrize(
    ("action", "reward"), [((0, 1, 2), 1.0), ((2, 2, 2), 0.0), ((0, 0, 2), 1 / 3), ((2, 0, 1), 1.0)]
)
def test_who_is_alone_in_its_turn_passes(action: tuple[int, ...], reward: float):
    assert paid(make_pass("3"), *action) == pytest.approx(reward)


@pytest.mark.parametrize("task", ["matrix/climbing-4", "matrix/penalty-2", "matrix/xor-4", "pass/3", "pass/2"])
def test_the_stated_need_for_diversity_is_that_of_the_payoffs(task: str):
    """All joint actions; and for one common distribution a grid over all of them."""
    env, need = envs.make(task), envs.diversity(task)
    assert need is not None and need.known == "exact" and need.random is not None
    plays = np.array(list(itertools.product(range(env.spec.actions), repeat=env.spec.agents)))
    worth = np.asarray(jax.vmap(env.paid)(plays))
    assert worth.max() == pytest.approx(need.unlike)
    assert worth[(plays == plays[:, :1]).all(axis=1)].max() == pytest.approx(need.alike)
    assert need.need == pytest.approx(need.unlike - need.alike)
    ticks = 30
    grid = [p for p in itertools.product(range(ticks + 1), repeat=env.spec.actions) if sum(p) == ticks]
    chance = np.array(grid) / ticks
    mean = np.sum(np.prod(chance[:, plays], axis=2) * worth, axis=1)
    assert mean.max() == pytest.approx(need.random, abs=1e-6)  # the best is on the grid


def test_the_games_of_old_say_what_they_need_too():
    assert envs.diversity("roles/4").need == pytest.approx(0.75)
    assert envs.diversity("groups/5-2").alike == pytest.approx(0.6)
    assert envs.diversity("lbf/10x10-3p-3f") is None
    with pytest.raises(UserError, match="pass/4"):
        envs.diversity("pass/many")


def test_they_keep_their_promises_and_can_be_drawn():
    for task in ("matrix/penalty-6", "pass/5"):
        env = envs.make(task)
        assert env.spec.name == task
        check_env(env)
        assert len(envs.meaning(task).action_names) == env.spec.actions
    env = make_matrix("penalty-4")
    scene = env.scene(State(jnp.array([0, 2, 1, 2]), jnp.int32(1)))
    assert [shape.label for shape in scene.shapes if shape.ring] == ["10", "0"]
    assert [shape.label for shape in scene.shapes if shape.kind == "disc"] == ["1", "2", "3", "4"]
    assert scene.caption == "reward 0.50 of at most 1"
    assert not [s for s in env.scene(env.reset(KEY)[0]).shapes if s.ring or s.kind == "disc"]
    scene = make_pass("3").scene(State(jnp.array([1, 1, 0]), jnp.int32(1)))
    assert [shape.kind for shape in scene.shapes] == ["square", "disc", "cross", "disc", "disc", "square"]
    assert scene.caption == "1 of 3 agents pass the gate"


@pytest.mark.parametrize(
    ("make", "variant", "hint"),
    [
        (make_matrix, "stag-2", "matrix/penalty-2"),
        (make_matrix, "xor-3", "try 'matrix/xor-4'"),
        (make_matrix, "xor-99", "try 'matrix/xor-64'"),
        (make_matrix, "xor-0", "try 'matrix/xor-2'"),
        (make_pass, "1", "'pass/2'"),
        (make_pass, "few", "'pass/4'"),
    ],
)
def test_impossible_sizes_name_a_possible_one(make, variant: str, hint: str):
    with pytest.raises(UserError, match=hint):
        make(variant)
