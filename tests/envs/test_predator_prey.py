"""Unlike predators and fleeing prey; and the board of simple_spread, where nobody need be unlike."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl import envs
from prism_marl.envs.board import steps_between, towards
from prism_marl.envs.predator_prey import CAUGHT, SCARED, THERE, State, _flee, hunt, make_predator_prey
from prism_marl.envs.simple_spread import State as Spread
from prism_marl.envs.simple_spread import make_simple_spread, straight_to_landmarks
from prism_marl.errors import UserError
from prism_marl.experiment.checks import check_env

KEY = jax.random.key(0)
STAY, NORTH, SOUTH, WEST, EAST = range(5)


def state_of(places, prey, fate=(THERE,) * 4) -> State:
    """Two kinds of prey, two of each."""
    none = jnp.zeros(len(places), bool)
    return State(jnp.array(places), jnp.array(prey), jnp.array(fate), none, jnp.int32(0))


@pytest.mark.parametrize(
    ("actions", "fate", "reward"),
    [
        ([EAST, WEST], [CAUGHT, THERE, CAUGHT, THERE], 0.5),  # everybody its own
        ([SOUTH, STAY], [THERE, THERE, THERE, SCARED], 0.0),  # that of the other
        ([STAY, WEST], [THERE, THERE, CAUGHT, THERE], 0.25),
    ],
)
def test_predators_catch_their_kind_and_scare_the_others(actions, fate, reward):
    env = make_predator_prey("2-2")
    assert env.kind.tolist() == [0, 1] and env.prey_kind.tolist() == [0, 0, 1, 1]
    before = state_of([(0, 0), (6, 6)], [(0, 1), (3, 3), (6, 5), (1, 0)])
    state, step = env.step(KEY, before, jnp.array(actions))
    assert state.fate.tolist() == fate and float(step.reward) == reward
    assert float(step.metrics["scared"]) == fate.count(SCARED) / 4
    assert state.catching.tolist() == [fate[0] == CAUGHT, fate[2] == CAUGHT]
    assert not bool(step.terminated) and not bool(step.truncated)


def test_several_that_want_one_prey_stay_and_the_last_prey_ends_the_game():
    env = make_predator_prey("3-2")
    assert env.kind.tolist() == [0, 0, 1]
    before = state_of([(0, 0), (0, 2), (5, 5)], [(0, 1), (6, 6), (6, 6), (6, 6)], (THERE, CAUGHT, SCARED, CAUGHT))
    state, step = env.step(KEY, before, jnp.array([EAST, WEST, NORTH]))
    assert state.place.tolist() == [[0, 0], [0, 2], [4, 5]] and state.fate[0] == THERE and float(step.reward) == 0
    state, step = env.step(KEY, before, jnp.array([EAST, NORTH, STAY]))
    assert state.fate[0] == CAUGHT and bool(step.terminated) and float(step.reward) == 0.25
    late = before._replace(clock=jnp.int32(39))
    assert bool(env.step(KEY, late, jnp.array([STAY] * 3))[1].truncated)
    assert not bool(env.step(KEY, late, jnp.array([EAST, STAY, STAY]))[1].truncated)


def test_prey_flees_half_of_the_time_away_from_the_nearest_predator():
    place, prey = jnp.array([[3, 1], [6, 6]]), jnp.array([[3, 3], [0, 0], [3, 3]])
    there = jnp.array([True, True, False])
    moved = np.asarray(jax.vmap(lambda key: _flee(key, place, prey, there))(jax.random.split(KEY, 2_000)))
    cells = [{tuple(cell) for cell in moved[:, i].tolist()} for i in range(3)]
    # (3, 3) is two steps from one predator and six from the other; three ways lead three steps from the first
    assert cells == [{(3, 3), (2, 3), (4, 3), (3, 4)}, {(0, 0)}, {(3, 3)}]
    assert (moved[:, 0] == [3, 3]).all(axis=1).mean() == pytest.approx(0.5, abs=0.04)


def test_all_predators_see_alike_and_not_who_they_are():
    env = make_predator_prey("2-2")
    prey, fate = [(0, 4), (1, 0), (4, 4), (3, 3)], (THERE, THERE, CAUGHT, THERE)
    seen = env._observe(state_of([(0, 0), (4, 0)], prey, fate)).local
    assert seen[0].tolist() == [-3, -3, 1, 0, 1, 0, 4, 1, 3, 3, 1, 0, 0, 0]
    exchanged = env._observe(state_of([(4, 0), (0, 0)], prey, fate)).local
    assert (exchanged == seen[::-1]).all()  # an agent sees what the other would see in its place
    scared = env._observe(state_of([(0, 0), (4, 0)], prey, (THERE, THERE, SCARED, THERE)))
    assert (scared.local == seen).all()  # and nobody sees whether prey was caught or scared


def test_alike_predators_catch_one_in_k_of_what_they_meet_and_unlike_ones_nearly_all():
    env, need = make_predator_prey("4-2"), envs.diversity("predator_prey/4-2")
    assert need.alike == need.random == 0.5 and need.known == "at least" and need.unlike > 0.85

    def episode(key):
        def step(state, k):
            far = jnp.where(state.fate == THERE, steps_between(state.place, state.prey), 99)
            action = towards(state.place, state.prey[far.argmin(axis=1)])
            # some wait, so that fewer stand in each other's way
            waits = jax.random.bernoulli(jax.random.fold_in(key, 100 + k), 0.3, (4,))
            return env.step(jax.random.fold_in(key, k), state, jnp.where(waits, STAY, action))[0], None

        return jax.lax.scan(step, env.reset(key)[0], jnp.arange(40))[0].fate

    fate = np.asarray(jax.jit(jax.vmap(episode))(jax.random.split(KEY, 2_000)))
    caught, scared = (fate == CAUGHT).mean(), (fate == SCARED).mean()
    assert caught + scared > 0.9 and caught / (caught + scared) == pytest.approx(0.5, abs=0.02)


def test_a_hunter_goes_for_its_kind_and_waits_beside_others():
    env = make_predator_prey("2-2")
    state = state_of([(0, 0), (6, 6)], [(0, 3), (5, 0), (6, 2), (6, 3)], (THERE, CAUGHT, THERE, CAUGHT))
    assert hunt(env, state).tolist() == [EAST, WEST]
    state = state._replace(prey=jnp.array([(0, 3), (5, 0), (0, 1), (6, 3)]))
    assert hunt(env, state).tolist() == [STAY, NORTH]


def test_simple_spread_loses_by_the_distance_of_landmarks():
    env = make_simple_spread("2")
    state = Spread(jnp.array([[5, 5], [0, 0]]), jnp.array([[5, 6], [8, 5]]), jnp.int32(0))
    state, step = env.step(KEY, state, jnp.array([EAST, SOUTH]))
    assert float(step.reward) == pytest.approx(-(0 + 4) / 2 / 25) and float(step.metrics["covered"]) == 0.5
    assert step.obs.local.tolist() == [[0, 1, 0, 0, 0, 3, -1, 0, -4, -6], [-4, -5, 4, 6, 1, 7, 5, 0, 4, 6]]
    assert step.obs.state.tolist() == [0, 1, -4, -5, 0, 1, 3, 0]
    assert not bool(step.terminated) and not bool(step.truncated)
    assert bool(env.step(KEY, state._replace(clock=jnp.int32(24)), jnp.array([STAY, STAY]))[1].truncated)


def test_the_stated_return_of_simple_spread_is_that_of_a_team_that_goes_straight():
    start, landmark = np.array([[0, 0], [0, 4]]), np.array([[0, 1], [0, 9]])
    # one is a step away, the other five: left are 0 and 4, 3, 2, 1, 0, ...
    assert straight_to_landmarks(start, landmark) == pytest.approx(-10 / 2 / 25)
    env = make_simple_spread("2")
    state, earned = Spread(jnp.array(start), jnp.array(landmark), jnp.int32(0)), 0.0
    for _ in range(25):
        state, step = env.step(KEY, state, towards(state.place, state.landmark))
        earned += float(step.reward)
    assert earned == pytest.approx(-10 / 2 / 25) and bool(step.truncated)
    need = envs.diversity("simple_spread/8")
    assert need.need == 0 and need.known == "at most" and -1 < need.unlike < 0


@pytest.mark.parametrize("task", ["predator_prey/3-2", "simple_spread/3", "simple_spread/64"])
def test_they_keep_their_promises_and_can_be_drawn(task: str):
    env = envs.make(task)
    assert env.spec.name == task
    if env.spec.agents < 64:  # the check steps the same function, and compiles twice as long
        check_env(env)
    means = envs.meaning(task)
    assert len(means.observation_names) == len(set(means.observation_names)) == env.spec.observation
    scene = env.scene(env.reset(KEY)[0])
    discs = [shape for shape in scene.shapes if shape.kind == "disc"]
    assert len(discs) == env.spec.agents
    if task.startswith("predator"):
        assert [(disc.label, disc.colour) for disc in discs] == [("A", 0), ("A", 0), ("B", 1)]
        assert scene.caption == "step 0/40, 0 of 4 caught, 0 scared away"


def test_a_large_team_has_a_larger_board():
    assert [make_simple_spread(n).side for n in ("2", "30", "31", "64")] == [11, 11, 12, 16]


@pytest.mark.parametrize(
    ("task", "hint"),
    [
        ("predator_prey/4", "predator_prey/4-2"),
        ("predator_prey/1-2", "predators 1, .* try 2"),
        ("predator_prey/4-5", "kinds 5, .* try 4"),
        ("simple_spread/65", "'simple_spread/64'"),
    ],
)
def test_impossible_sizes_name_a_possible_one(task: str, hint: str):
    with pytest.raises(UserError, match=hint):
        envs.describe(task)
