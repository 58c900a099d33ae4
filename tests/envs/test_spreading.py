"""Games of agents that have to go to different cells: hand-made steps, and what teams earn that stay together."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl import envs
from prism_marl.envs import dispersion, navigation
from prism_marl.envs.board import agent_discs, steps_between, towards, walk
from prism_marl.envs.dispersion import make_dispersion
from prism_marl.envs.navigation import best_together, make_navigation
from prism_marl.errors import UserError
from prism_marl.experiment.checks import check_env

KEY = jax.random.key(0)
STAY, NORTH, SOUTH, WEST, EAST = range(5)


def played(env, aims, games: int = 2_000) -> tuple[float, float]:
    """The mean return, and its standard error, of teams whose agents walk straight to ``aims(state)``."""

    def episode(key):
        def step(carry, _):
            state, over = carry
            state, made = env.step(key, state, towards(state.place, aims(state)))
            return (state, over | made.terminated | made.truncated), jnp.where(over, 0.0, made.reward)

        return jax.lax.scan(step, (env.reset(key)[0], jnp.bool_(False)), length=env.spec.horizon)[1].sum()

    found = np.asarray(jax.jit(jax.vmap(episode))(jax.random.split(KEY, games)))
    return float(found.mean()), float(found.std() / games**0.5)


def test_agents_walk_one_cell_and_stop_at_walls():
    place = jnp.array([[0, 0], [0, 0], [2, 2], [1, 1], [2, 0]])
    moved = walk(place, jnp.array([NORTH, EAST, SOUTH, STAY, WEST]), 3)
    assert moved.tolist() == [[0, 0], [0, 1], [2, 2], [1, 1], [2, 0]]
    assert steps_between(place[:2], place[2:4]).tolist() == [[4, 2], [4, 2]]
    aims = jnp.array([[0, 0], [1, 2], [0, 2], [1, 0], [0, 1]])
    assert towards(place, aims).tolist() == [STAY, EAST, NORTH, WEST, NORTH]
    discs = agent_discs([(0, 1), (2, 1), (0, 1)], "abc", [0, 0, 1])
    assert [shape.x for shape in discs] == pytest.approx([1.35, 1.5, 1.65])
    assert [shape.ring for shape in discs] == [False, False, True]


def test_dispersion_pays_for_targets_on_which_somebody_stands():
    env = make_dispersion("3")
    target = jnp.array([[3, 4], [2, 3], [0, 0]])
    state = dispersion.State(jnp.full((3, 2), 3), target, jnp.int32(0))
    state, step = env.step(KEY, state, jnp.array([EAST, EAST, NORTH]))
    assert state.place.tolist() == [[3, 4], [3, 4], [2, 3]]
    assert float(step.metrics["covered"]) == pytest.approx(2 / 3) and float(step.reward) == pytest.approx(2 / 45)
    # agent 1 and its mate stand on target 0; for agent 2 somebody else does, and it alone is on target 1
    assert step.obs.local[0].tolist() == [0, 1, 0, 0, -1, -1, -3, -4, 1, 1, 0]
    assert step.obs.local[2].tolist() == [-1, 0, 1, 1, 0, 0, -2, -3, 1, 0, 0]
    assert step.obs.state.tolist() == [0, 1, 0, 1, -1, 0, 0, 1, -1, 0, -3, -3]
    assert not bool(step.terminated) and not bool(step.truncated)
    _, last = env.step(KEY, state._replace(clock=jnp.int32(14)), jnp.array([STAY] * 3))
    assert bool(last.truncated) and float(last.metrics["covered"]) == pytest.approx(2 / 3)


@pytest.mark.parametrize("agents", [2, 5])
def test_the_need_of_dispersion_is_what_teams_earn(agents: int):
    env, need = make_dispersion(str(agents)), envs.diversity(f"dispersion/{agents}")

    def nearest(state):
        far = steps_between(jnp.full((1, 2), dispersion.MIDDLE), state.target)[0]
        return jnp.tile(state.target[far.argmin()], (agents, 1))

    for aims, stated in ((nearest, need.alike), (lambda state: state.target, need.unlike)):
        mean, error = played(env, aims)
        assert mean == pytest.approx(stated, abs=4 * error)
    assert need.known == "exact" and need.unlike > 1.3 * need.alike


def test_agents_on_one_cell_observe_the_same():
    for env in (make_dispersion("4"), make_navigation("4-different")):
        state, obs = env.reset(KEY)
        for action in (EAST, NORTH):
            state, step = env.step(KEY, state, jnp.full(4, action))
            assert (step.obs.local == step.obs.local[0]).all() and (obs.local == obs.local[0]).all()


def test_navigation_pays_the_share_of_the_way():
    env = make_navigation("3-half")
    assert env.goal_of.tolist() == [0, 0, 1]
    state = navigation.State(
        jnp.array([[5, 5], [5, 5], [5, 5]]), jnp.array([[5, 7], [4, 5]]), jnp.int32(5), jnp.int32(0)
    )
    state, step = env.step(KEY, state, jnp.array([EAST, WEST, NORTH]))
    assert float(step.reward) == pytest.approx(1 / 5)  # one step on, one back, one on
    assert float(step.metrics["arrived"]) == pytest.approx(1 / 3)
    assert step.obs.local.tolist() == [[0, 1, 0, 1, -1, -1], [0, -1, 0, 3, -1, 1], [-1, 0, 1, 2, 0, 0]]
    assert step.obs.state.tolist() == [0, 1, 0, -1, -1, 0, 0, 2, -1, 0]
    near = state._replace(place=jnp.array([[5, 6], [5, 7], [4, 5]]), clock=jnp.int32(19))
    _, won = env.step(KEY, near, jnp.array([EAST, STAY, STAY]))
    assert bool(won.terminated) and not bool(won.truncated) and float(won.reward) == pytest.approx(1 / 5)
    _, late = env.step(KEY, near, jnp.array([STAY, STAY, STAY]))
    assert bool(late.truncated) and not bool(late.terminated)


@pytest.mark.parametrize(
    ("variant", "goals"), [("5-same", [0] * 5), ("4-half", [0, 0, 1, 2]), ("3-different", [0, 1, 2])]
)
def test_who_has_which_goal(variant: str, goals: list[int]):
    assert make_navigation(variant).goal_of.tolist() == goals


@pytest.mark.parametrize("goals", ["half", "different"])
def test_the_need_of_navigation_is_what_teams_earn(goals: str):
    env, need = make_navigation(f"4-{goals}"), envs.diversity(f"navigation/4-{goals}")
    of = env.goal_of

    def median(state):
        return jnp.tile(jnp.sort(state.goal[of], axis=0)[(len(of) - 1) // 2], (4, 1))

    mean, error = played(env, median)
    assert mean == pytest.approx(need.alike, abs=4 * error) and 0.1 < need.alike < 0.7
    assert played(env, lambda state: state.goal[of])[0] == pytest.approx(1, abs=1e-5) and need.unlike == 1
    # no cell of the board is worth more than the one that is taken for the best
    rng = np.random.default_rng(1)
    start, goal = rng.integers(11, size=(50, 2)), rng.integers(11, size=(50, 4, 2))[:, of]
    far = np.abs(goal - start[:, None]).sum(axis=(1, 2))
    cells = np.stack(np.indices((11, 11)), axis=-1).reshape(-1, 1, 1, 2)
    every = 1 - np.abs(goal - cells).sum(axis=(2, 3)) / far
    np.testing.assert_allclose(every.max(axis=0), best_together(start, goal)[1])


def test_with_one_goal_for_all_nobody_needs_to_differ():
    env = make_navigation("4-same")
    assert envs.diversity("navigation/4-same").need == 0
    assert played(env, lambda state: jnp.tile(state.goal, (4, 1)))[0] == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("task", ["dispersion/3", "navigation/4-half"])
def test_they_keep_their_promises_and_can_be_drawn(task: str):
    env = envs.make(task)
    assert env.spec.name == task
    check_env(env)
    means = envs.meaning(task)
    assert len(means.observation_names) == len(set(means.observation_names)) == env.spec.observation
    scene = env.scene(env.reset(KEY)[0])
    assert sum(shape.kind == "disc" for shape in scene.shapes) == env.spec.agents
    assert scene.caption.startswith(f"step 0/{env.spec.horizon}, 0 of")
    squares = [shape.label for shape in scene.shapes if shape.kind == "square"]
    assert squares == {"dispersion/3": [""] * 3, "navigation/4-half": ["1-2", "3", "4"]}.get(task, squares)


@pytest.mark.parametrize(
    ("task", "hint"),
    [
        ("dispersion/1", "'dispersion/2'"),
        ("dispersion/some", "'dispersion/4'"),
        ("navigation/4", "navigation/4-half"),
        ("navigation/1-same", "try 'navigation/2-same'"),
        ("navigation/99-half", "try 'navigation/64-half'"),
    ],
)
def test_impossible_sizes_name_a_possible_one(task: str, hint: str):
    with pytest.raises(UserError, match=hint):
        envs.describe(task)
