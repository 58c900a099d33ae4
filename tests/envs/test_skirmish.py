"""Skirmish against SMACv2: observation, state, masks and reward element by element, and how battles begin and end."""

import itertools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from battlefield import ACT, EAST, NEVER, STOP, field, play

from prism_marl import envs
from prism_marl.envs.skirmish import Skirmish, make_skirmish
from prism_marl.envs.skirmish.env import HORIZON, shaped
from prism_marl.envs.skirmish.observe import first_look, forget, looks, observe
from prism_marl.envs.skirmish.state import State
from prism_marl.envs.skirmish.units import RACES
from prism_marl.errors import UserError

DATA = Path(__file__).parents[1] / "data"
SIZES = {"terran": (82, 120), "protoss": (92, 130), "zerg": (82, 120)}


@pytest.fixture(scope="module", params=sorted(RACES))
def reference(request) -> tuple[Skirmish, State, dict[str, np.ndarray]]:
    """What SMACv2's own code returned for 200 states. It was given hydralisks of 80 health on both sides."""
    with np.load(DATA / f"smacv2_{request.param}.npz") as file:
        held = dict(file)

    def both(name: str) -> np.ndarray:
        return np.concatenate([held[f"ally_{name}"], held[f"enemy_{name}"]], axis=1)

    place, zero = both("pos"), np.zeros_like(held["ally_health"])
    none = np.full(zero.shape, -1, np.int32)
    parts: Any = {
        "kind": both("type").astype(np.int32),
        "x": place[..., 0],
        "y": place[..., 1],
        "health": both("health"),
        "shield": both("shield"),
        "energy": np.concatenate([held["ally_energy"], zero], axis=1),
        "cooldown": np.concatenate([held["ally_cooldown"], zero], axis=1),
        "calm": np.concatenate([zero, zero], axis=1),
        "target": np.concatenate([none, none], axis=1),
        "bursting": np.zeros((len(zero), 10), bool),
        "last_action": held["last_action"].astype(np.int32),
        "spotter": none,
        "clock": np.zeros(len(zero), np.int32),
    }
    return Skirmish(request.param, 5, 5, mirror=True), State(**parts), held


def test_observation_state_and_masks_equal_smacv2(reference):
    env, state, held = reference
    obs = jax.jit(jax.vmap(lambda one: observe(env.table, True, one)))(state)
    np.testing.assert_allclose(obs.local, held["obs_all_seen"], atol=1e-6)
    np.testing.assert_allclose(obs.state, held["state"], atol=1e-6)
    np.testing.assert_array_equal(obs.avail, held["avail"])
    np.testing.assert_array_equal(obs.role, held["obs_all_seen"][..., -3:].argmax(axis=-1))
    assert (held["ally_health"] == 0).any() and (held["enemy_health"] == 0).any()  # else little was compared


def test_the_shaped_reward_equals_smacv2(reference):
    _, state, held = reference
    after = state._replace(
        health=np.concatenate([held["ally_health"], held["enemy_health_next"]], axis=1),
        shield=np.concatenate([held["ally_shield"], held["enemy_shield_next"]], axis=1),
    )
    np.testing.assert_allclose(jax.vmap(shaped)(state, after), held["reward_unscaled"], atol=1e-4)


def test_the_published_observation_is_one_of_those_that_its_random_order_allows(reference):
    env, state, held = reference
    orders = jnp.array(list(itertools.permutations(range(5))))

    def published(one: State, rank: jax.Array) -> jax.Array:
        _, kept = first_look(one, looks(env.table, one).seen[:, 5:], rank)
        return observe(env.table, True, one, kept).local

    ours = jax.jit(jax.vmap(lambda one: jax.vmap(lambda rank: published(one, rank))(orders)))(state)
    wanted = held["obs_all_seen"].copy()
    enemies = wanted[:, :, 4 : 4 + 5 * (8 + env.table.shielded)].reshape(200, 5, 5, -1)  # a view
    enemies[~held["published_enemies"]] = 0
    wanted[:, :, 4 : 4 + 5 * enemies.shape[-1]] = enemies.reshape(200, 5, -1)
    assert np.abs(np.asarray(ours) - wanted[:, None]).max(axis=(2, 3)).min(axis=1).max() < 1e-6
    assert (wanted != held["obs_all_seen"]).any(axis=(1, 2)).mean() > 0.2


def test_who_saw_an_enemy_first_is_forgotten_with_either_death():
    _, state = field("terran", [("marine", 5, 5), ("marine", 5, 7)], [("marine", 9, 5), ("marine", 30, 30)])
    look = looks(RACES["terran"], state).seen[:, 2:]
    spotter, kept = first_look(state, look, jnp.array([1, 0]))
    assert spotter.tolist() == [1, -1] and not kept.any()  # nobody sees the last enemy, which wipes the first
    state = state._replace(spotter=spotter)
    assert forget(state).spotter.tolist() == [1, -1]
    assert forget(state._replace(health=state.health.at[1].set(0.0))).spotter.tolist() == [-1, -1]
    assert forget(state._replace(health=state.health.at[2].set(0.0))).spotter.tolist() == [-1, -1]


def test_the_published_variant_differs_only_in_what_is_seen_of_enemies():
    clean, published = make_skirmish("zerg_5_vs_5"), make_skirmish("zerg_5_vs_5-published")
    assert published.spec.name == "skirmish/zerg_5_vs_5-published" and clean.spec.name == "skirmish/zerg_5_vs_5"
    keys = jax.random.split(jax.random.key(3), 64)
    step_clean, step_published = (jax.jit(jax.vmap(env.step)) for env in (clean, published))
    wiped = 0
    (ours, first), (theirs, other) = (jax.jit(jax.vmap(env.reset))(keys) for env in (clean, published))
    for number in range(20):
        differs = np.asarray(first.local != other.local)
        wiped += int(differs.any(axis=(1, 2)).sum())
        assert not differs[..., :4].any() and not differs[..., 44:].any()
        np.testing.assert_array_equal(first.avail, other.avail)
        np.testing.assert_array_equal(first.state, other.state)
        action = jnp.full((64, 5), STOP) * first.avail[..., STOP]
        again = jax.vmap(jax.random.fold_in, (0, None))(keys, number)
        ours, step = step_clean(again, ours, action)
        theirs, twin = step_published(again, theirs, action)
        np.testing.assert_array_equal(step.reward, twin.reward)
        first, other = step.obs, twin.obs
    assert wiped > 100


@pytest.mark.parametrize("race", sorted(RACES))
@pytest.mark.parametrize(("n", "m"), [(5, 5), (10, 10), (10, 11), (20, 20), (6, 4), (2, 1)])
def test_sizes_are_what_they_are_declared_to_be(race: str, n: int, m: int):
    env = make_skirmish(f"{race}_{n}_vs_{m}")
    state, obs = jax.eval_shape(env.reset, jax.random.key(0))
    _, step = jax.eval_shape(env.step, jax.random.key(0), state, jax.ShapeDtypeStruct((n,), jnp.int32))
    spec = env.spec
    assert obs.local.shape == (n, spec.observation) and obs.state.shape == (spec.state,)
    assert obs.avail.shape == (n, spec.actions) == (n, 6 + m) and obs.role.shape == (n,)
    assert jax.tree.map(lambda a: (a.shape, a.dtype), step.obs) == jax.tree.map(lambda a: (a.shape, a.dtype), obs)
    assert set(step.metrics) == set(spec.metrics) and spec.horizon == HORIZON == 200 and spec.roles == 3
    if n == m == 5:
        assert (spec.observation, spec.state) == SIZES[race] and spec.actions == 11


@pytest.mark.parametrize(
    ("variant", "hint"),
    [
        ("terran_5vs5", "did you mean 'terran_5_vs_5'"),
        ("tarran_5_vs_5", "did you mean 'terran_5_vs_5'"),
        ("zerg_1_vs_5", "has 1 agents, not 2 to 32; try 2"),
        ("zerg_5_vs_50", "has 50 enemies, not 1 to 32; try 32"),
        ("zerg_5_vs_5-publish", "did you mean 'zerg_5_vs_5-published'"),
    ],
)
def test_wrong_names_are_refused_in_one_sentence(variant: str, hint: str):
    with pytest.raises(UserError, match=hint) as error:
        envs.make(f"skirmish/{variant}")
    assert "\n" not in str(error.value)


# starts


@pytest.fixture(scope="module", params=sorted(RACES))
def starts(request) -> tuple[Skirmish, State]:
    env = make_skirmish(f"{request.param}_5_vs_6")
    state, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(1), 4000))
    return env, jax.device_get(state)


def test_teams_are_drawn_with_the_races_weights_and_copied(starts):
    env, state = starts
    share = np.bincount(state.kind[:, :5].ravel(), minlength=3) / (5 * 4000)
    np.testing.assert_allclose(share, [0.45, 0.45, 0.1], atol=0.015)
    np.testing.assert_array_equal(np.sort(state.kind[:, :5]), np.sort(state.kind[:, 5:10]))
    if env.table.never_alone is not None:
        assert not (state.kind[:, :5] == 2).all(axis=1).any()
        assert not (state.kind[:, 10] == 2).any()  # the sixth enemy is a team of its own
    one = make_skirmish(f"{env.race}_2_vs_2")
    pairs = jax.jit(jax.vmap(one.reset))(jax.random.split(jax.random.key(2), 4000))[0].kind[:, :2]
    both = float((np.asarray(pairs) == 2).all(axis=1).mean())
    assert both == 0 if env.table.never_alone is not None else 0.005 < both < 0.016


def test_agents_are_sorted_by_unit_id_then_place(starts):
    env, state = starts
    rank = np.array(env.table.ranks)[state.kind[:, :5]]
    keys = np.stack([rank, state.x[:, :5], state.y[:, :5]], axis=-1)
    assert all(sorted(battle.tolist()) == battle.tolist() for battle in keys)
    names = [unit.name for unit in env.table.units]
    assert [names[env.table.ranks.index(place)] for place in range(3)] == sorted(names)


def test_battles_begin_reflected_or_surrounded(starts):
    env, state = starts
    radius = np.array([unit.radius for unit in env.table.units])[state.kind]
    x, y = state.x, state.y
    gap = np.hypot(x[:, :, None] - x[:, None], y[:, :, None] - y[:, None]) - radius[:, :, None] - radius[:, None]
    flies = np.array([unit.flies for unit in env.table.units])[state.kind]
    apart = (flies[:, :, None] != flies[:, None]) | np.eye(11, dtype=bool)
    assert np.where(apart, 0, gap).min() > -0.35 and np.quantile(np.where(apart, 0, gap).min(axis=(1, 2)), 0.01) > -0.1
    assert (x >= radius).all() and (x <= 32 - radius).all() and (y >= radius).all() and (y <= 32 - radius).all()
    around = (np.hypot(x[:, :5] - 16, y[:, :5] - 16) < 4).all(axis=1)
    assert 0.46 < around.mean() < 0.54
    reflected = ~around
    assert (x[reflected, :5].max(axis=1) < 17).mean() > 0.99 and (x[reflected, 5:].min(axis=1) > 15).mean() > 0.99
    # every agent has its mirror image, up to what parting bodies moved
    near = np.abs(x[reflected][:, :5, None] + x[reflected][:, None, 5:10] - 32)
    near += np.abs(y[reflected][:, :5, None] - y[reflected][:, None, 5:10])
    assert np.quantile(near.min(axis=2).max(axis=1), 0.8) < 0.01
    out = np.hypot(x[around, 5:] - 16, y[around, 5:] - 16)
    assert out.min() > 1 and np.quantile(out, 0.9) > 15
    diagonal = np.abs(np.abs(x[around, 5:] - 16) - np.abs(y[around, 5:] - 16))
    assert np.median(diagonal) < 0.7 and diagonal.max() < 4


# ends


def test_a_win_is_worth_what_the_battle_held():
    env, state = field(
        "terran", [("marine", 10, 16), ("marine", 10, 18)], [("marine", 13, 16, {"health": 3, "cooldown": NEVER})]
    )
    assert float(env.most_points(env.traits(state))) == 10 + 200 + 45
    state, step = play(env, state, [ACT, STOP])
    assert bool(step.terminated) and not bool(step.truncated) and float(step.metrics["battle_won"]) == 1
    assert float(step.reward) == pytest.approx((3 + 10 + 200) * 20 / 255)
    assert float(step.metrics["dead_enemies"]) == 1 and step.obs.avail[0, :2].tolist() == [False, True]


@pytest.mark.parametrize(
    ("agents", "enemies", "over", "won"),
    [
        ([("marine", 5, 5), ("medivac", 6, 6)], [("medivac", 25, 25), ("medivac", 27, 25)], True, True),
        ([("medivac", 5, 5), ("medivac", 6, 6)], [("marine", 25, 25), ("marine", 27, 25)], True, False),
        ([("medivac", 5, 5), ("medivac", 6, 6)], [("medivac", 25, 25), ("medivac", 27, 25)], True, False),
        ([("marine", 5, 5), ("medivac", 6, 6)], [("marine", 25, 25), ("medivac", 27, 25)], False, False),
    ],
)
def test_only_medivacs_left_counts_as_nobody_left(agents, enemies, over: bool, won: bool):
    env, state = field("terran", agents, enemies)
    _, step = play(env, state, [STOP, STOP])
    assert (bool(step.terminated), float(step.metrics["battle_won"])) == (over, won)


def test_both_sides_can_die_and_nobody_wins():
    env, state = field("zerg", [("baneling", 10, 16)], [("zergling", 11, 16, {"health": 5, "cooldown": NEVER})])
    state, step = play(env, state, [ACT])
    assert not np.any(state.health > 0) and bool(step.terminated) and float(step.metrics["battle_won"]) == 0


def test_the_clock_truncates():
    env, state = field("protoss", [("zealot", 3, 3)], [("zealot", 30, 30, {"cooldown": NEVER})])
    _, step = play(env, state._replace(clock=jnp.int32(HORIZON - 2)), [STOP])
    assert not bool(step.truncated) and not bool(step.terminated)
    _, step = play(env, state._replace(clock=jnp.int32(HORIZON - 1)), [EAST])
    assert bool(step.truncated) and not bool(step.terminated)


def test_the_dead_see_nothing_and_do_nothing():
    env, state = field("zerg", [("hydralisk", 5, 5, {"health": 0}), ("zergling", 6, 6)], [("zergling", 9, 9)])
    obs = jax.jit(lambda state: observe(env.table, True, state))(state)
    assert not obs.local[0].any() and obs.avail[0].tolist() == [True] + [False] * 6 and obs.role.tolist() == [0, 0]
    assert not obs.avail[1, 0] and not obs.local[1, 12 + 0 : 12 + 8].any()  # nor are they seen
