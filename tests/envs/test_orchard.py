"""The orchard: what it pays, what everybody sees, and that a team that cannot tell itself apart earns one share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl import envs
from prism_marl.envs.orchard import PICKED, SPOILED, THERE, State, make_orchard
from prism_marl.errors import UserError
from prism_marl.experiment.checks import check_env

KEY = jax.random.key(0)
STAY, NORTH, SOUTH, WEST, EAST = range(5)


def state_of(agents, fruit, fate=None) -> State:
    """Cells as (row, column)."""
    (row, col), (fruit_row, fruit_col) = np.array(agents).T, np.array(fruit).T
    fate = np.zeros(len(fruit), np.int32) if fate is None else np.array(fate)
    none = jnp.zeros(len(agents), bool)
    cells = [jnp.asarray(part) for part in (row, col, fruit_row, fruit_col)]
    return State(cells[0], cells[1], cells[2], cells[3], jnp.asarray(fate), none, jnp.int32(0))


@pytest.mark.parametrize(
    ("actions", "fates", "reward"),
    [
        ([EAST, WEST], [PICKED, PICKED], 1.0),  # everybody its own
        ([EAST, EAST], [PICKED, THERE], 0.5),
        ([SOUTH, NORTH], [SPOILED, SPOILED], 0.0),  # everybody the other's
        ([STAY, STAY], [THERE, THERE], 0.0),
    ],
)
@pytest.mark.parametrize("anyone", [False, True])
def test_fruit_is_picked_by_its_own_agent_and_spoiled_by_others(actions, fates, reward, anyone):
    env = make_orchard("4x4-2p-1f" + anyone * "-any")
    # Agent 0 at (0, 1) has its fruit to the east or, as the other's, to the south; agent 1 at (2, 2) the same.
    own, other = [(0, 2), (2, 1)], [(1, 2), (1, 1)]
    fruit = own if SOUTH not in actions else other
    agents = [(0, 1), (2, 2)]
    state, step = env.step(KEY, state_of(agents, fruit), jnp.array(actions))
    if anyone:
        fates, reward = [PICKED if fate else THERE for fate in fates], float(np.mean([fate > 0 for fate in fates]))
    assert state.fruit.tolist() == fates
    assert float(step.reward) == reward
    assert float(step.metrics["spoiled"]) == np.mean([fate == SPOILED for fate in fates])
    assert bool(step.terminated) == (THERE not in fates) and not bool(step.truncated)


def test_two_that_want_the_same_fruit_stay_and_other_cells_are_shared():
    env = make_orchard("4x4-2p-1f")
    state, step = env.step(KEY, state_of([(0, 0), (0, 2)], [(0, 1), (3, 3)]), jnp.array([EAST, WEST]))
    assert (state.row.tolist(), state.col.tolist()) == ([0, 0], [0, 2])
    assert state.fruit.tolist() == [THERE, THERE] and float(step.reward) == 0
    state, _ = env.step(KEY, state_of([(1, 0), (1, 2)], [(0, 1), (3, 3)]), jnp.array([EAST, WEST]))
    assert (state.row.tolist(), state.col.tolist()) == ([1, 1], [1, 1])
    state, _ = env.step(KEY, state_of([(0, 0), (3, 2)], [(0, 1), (3, 3)]), jnp.array([NORTH, SOUTH]))
    assert (state.row.tolist(), state.col.tolist()) == ([0, 3], [0, 2])  # walls


def test_everybody_sees_fruit_by_kind_the_nearest_first_and_not_who_it_is():
    env = make_orchard("5x5-2p-2f")
    cells = [(0, 4), (1, 0), (4, 4), (3, 3)]
    state = state_of([(0, 0), (4, 0)], cells, [THERE, THERE, PICKED, THERE])
    seen = env._observe(state).local
    assert seen[0].tolist() == [1, 0, 1, 0, 4, 1, 3, 3, 1, 0, 0, 0]
    assert seen[1].tolist() == [-3, 0, 1, -4, 4, 1, -1, 3, 1, 0, 0, 0]
    exchanged = env._observe(state_of([(4, 0), (0, 0)], cells, [THERE, THERE, PICKED, THERE])).local
    assert (exchanged == seen[::-1]).all()  # an agent sees what the other would see in its place


def test_of_the_fruit_that_a_team_of_one_policy_enters_it_picks_one_in_three():
    """All walk to the nearest fruit of any kind. Where everybody can pick everything, the same walk picks it all."""

    def mean(task: str) -> tuple[float, float]:
        env = make_orchard(task)

        def act(local):
            fruit = local.reshape(env.pickers, -1, 3)
            far = jnp.where(fruit[..., 2] > 0, jnp.abs(fruit[..., :2]).sum(-1), 99)
            down, right = jnp.moveaxis(fruit[jnp.arange(env.pickers), far.argmin(1)][:, :2], -1, 0)
            return jnp.where(jnp.abs(down) >= jnp.abs(right), jnp.where(down > 0, SOUTH, NORTH), WEST + (right > 0))

        def episode(key):
            def step(carry, _):
                state, obs = carry
                state, made = env.step(key, state, act(obs.local))
                return (state, made.obs), (made.reward, made.metrics["spoiled"])

            reward, spoiled = jax.lax.scan(step, env.reset(key), length=env.horizon)[1]
            return reward.sum(), spoiled[-1]

        found = jax.jit(jax.vmap(episode))(jax.random.split(KEY, 2_000))
        return float(found[0].mean()), float(found[1].mean())

    picked, spoiled = mean("6x6-3p-2f")
    everything, nothing = mean("6x6-3p-2f-any")
    assert picked + spoiled == pytest.approx(everything, abs=1e-5) and nothing == 0
    assert everything > 0.7  # some agents stand and wait for one another
    assert picked / everything == pytest.approx(1 / 3, abs=0.02)


def test_it_keeps_its_promises_and_can_be_drawn():
    for task in ("orchard/6x6-3p-2f", "orchard/3x7-2p-1f-any"):
        env = envs.make(task)
        assert env.spec.name == task
        check_env(env)
    env = make_orchard("6x6-3p-2f")
    state, _ = env.reset(KEY)
    cells = set(zip((state.row * 6 + state.col).tolist(), "aaa", strict=True))
    assert len(cells | {(cell, "f") for cell in (state.fruit_row * 6 + state.fruit_col).tolist()}) == 9
    scene = env.scene(state._replace(fruit=state.fruit.at[0].set(SPOILED).at[1].set(PICKED)))
    assert [shape.kind for shape in scene.shapes] == ["cross", *["square"] * 4, *["disc"] * 3]
    assert scene.caption == "step 0/24, 1 of 6 picked, 1 spoiled"
    assert len(envs.meaning("orchard/6x6-3p-2f").observation_names) == env.spec.observation


@pytest.mark.parametrize(
    ("variant", "hint"),
    [("6x6", "orchard/6x6-3p-2f"), ("1x6-3p-2f", "try 2"), ("6x6-1p-2f", "try 2"), ("3x3-2p-9f", "try 3")],
)
def test_impossible_sizes_name_a_possible_one(variant: str, hint: str):
    with pytest.raises(UserError, match=hint):
        make_orchard(variant)
