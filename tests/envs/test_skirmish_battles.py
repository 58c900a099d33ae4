"""Whole battles: behaviour that a wrong simulator would not show, and what must hold however long they last."""

import functools
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from battlefield import ACT, EAST, NORTH, SOUTH, STOP, WEST, field, play, random_battles

from prism_marl.envs.skirmish import Skirmish, make_skirmish, teams
from prism_marl.envs.skirmish.simulate import advance
from prism_marl.envs.skirmish.units import RACES


def flee(state, mine: int, threat: int) -> int:
    """The move that ends furthest from the threat and not in a corner."""
    x, y, tx, ty = (float(v) for v in (state.x[mine], state.y[mine], state.x[threat], state.y[threat]))
    moves = {NORTH: (0, 1), SOUTH: (0, -1), EAST: (1, 0), WEST: (-1, 0)}

    def worth(move: int) -> float:
        nx, ny = (np.clip(v + 1.4 * d, 1, 31) for v, d in zip((x, y), moves[move], strict=True))
        walls = 0.08 * (abs(nx - 16) ** 2 + abs(ny - 16) ** 2) ** 0.5
        return float(np.hypot(nx - tx, ny - ty)) - walls

    return max(moves, key=worth)


@pytest.mark.parametrize("kites", [True, False])
def test_kiting_a_zealot_with_a_stalker_works_and_standing_still_does_not(kites: bool):
    env, state = field("protoss", [("stalker", 12, 16)], [("zealot", 20, 16)])
    for _ in range(150):
        near = float(np.hypot(state.x[0] - state.x[1], state.y[0] - state.y[1])) <= 6
        shoots = near and (not kites or float(state.cooldown[0]) <= 4)
        state, step = play(env, state, [ACT if shoots else flee(state, 0, 1) if kites and near else STOP])
        if bool(step.terminated):
            break
    assert bool(step.terminated) and float(step.metrics["battle_won"]) == kites
    if kites:
        assert float(state.health[0] + state.shield[0]) > 100


def duel_of_marines(focus: bool) -> float:
    """How many of eight marines survive, all aiming at the same enemy or each at a random one."""
    places = [(column, row) for column in (0.0, 0.8) for row in (14.8, 15.6, 16.4, 17.2)]
    agents: Any = [("marine", 13 - x, y) for x, y in places]
    enemies: Any = [("marine", 16 + x, y) for x, y in places]
    env, state = field("terran", agents, enemies)

    def battle(key):
        def step(carry, key):
            state, avail, over, left = carry
            key_act, key_env = jax.random.split(key)
            liking = -jnp.arange(14.0) if focus else jax.random.uniform(key_act, avail.shape)
            targets = avail.at[:, :ACT].set(False)
            idle = jnp.argmax(avail[:, :ACT], axis=1)  # stop, or nothing when dead
            aimed = jnp.argmax(jnp.where(targets, liking, -jnp.inf), axis=1)
            state, out = env.step(key_env, state, jnp.where(targets.any(axis=1), aimed, idle))
            left = jnp.where(over, left, 8 - out.metrics["dead_allies"])
            return (state, out.obs.avail, over | out.terminated, left), None

        first = jnp.ones((8, 14), bool).at[:, 0].set(False)
        (_, _, _, left), _ = jax.lax.scan(step, (state, first, False, 8.0), jax.random.split(key, 60))
        return left

    return float(jax.jit(jax.vmap(battle))(jax.random.split(jax.random.key(0), 48)).mean())


def test_focus_fire_beats_random_targets():
    assert duel_of_marines(focus=True) > 3 and duel_of_marines(focus=False) < 1


@pytest.mark.parametrize("race", sorted(RACES))
def test_equal_armies_under_the_script_win_about_half(race: str, monkeypatch):
    monkeypatch.setattr(teams, "SURROUNDED", 0.0)
    env = Skirmish(race, 5, 5, mirror=True)

    def battle(key):
        key_reset, key_fight = jax.random.split(key)
        state, _ = env.reset(key_reset)
        look = env.traits(state)

        def step(carry, key):
            state, over, won = carry
            state = advance(env.table, look, state, None, key)
            ours, end = env._verdict(state)
            return (state, over | end, jnp.where(over, won, ours)), None

        carry = (state, jnp.bool_(False), jnp.bool_(False))
        return jax.lax.scan(step, carry, jax.random.split(key_fight, 80))[0][1:]

    over, won = jax.jit(jax.vmap(battle))(jax.random.split(jax.random.key(5), 300))
    assert float(over.mean()) > 0.9
    assert 0.43 < float(won.sum() / over.sum()) < 0.57


# long runs


def spread(env: Skirmish, state, step) -> dict[str, jax.Array]:
    """What must hold after every step of random play."""
    radius = env.traits(state).radius
    alive = state.health > 0
    far = jnp.maximum(jnp.abs(state.x - 16), jnp.abs(state.y - 16)) + radius - 16
    gap = jnp.hypot(state.x[:, None] - state.x, state.y[:, None] - state.y) - radius[:, None] - radius
    touching = env.traits(state).collides & alive[:, None] & alive
    finite = [jnp.isfinite(leaf).all() for leaf in (step.obs.local, step.obs.state, step.reward, state.x, state.y)]
    flags = (step.obs.local[:, jnp.asarray(env.spec.flags)], step.obs.state[jnp.asarray(env.spec.state_flags)])
    finite += [((part == 0) | (part == 1)).all() for part in flags]
    size = jnp.maximum(jnp.abs(step.obs.local).max(), jnp.abs(step.obs.state).max() / env.spec.magnitude)
    return {
        "outside": far.max(),
        "overlap": jnp.where(touching, -gap, 0.0).max(),
        "fine": jnp.stack(finite).all() & step.obs.avail.any(axis=1).all(),
        "size": size,
        "health": (state.health + state.shield).min(),
        "over": step.terminated,
    }


@functools.cache
def measured(env: Skirmish) -> Any:
    return jax.vmap(functools.partial(spread, env))


@pytest.mark.parametrize(
    ("task", "battles", "steps"),
    [(f"{race}_5_vs_5", 670, 50) for race in sorted(RACES)] + [("protoss_20_vs_20", 4, 40)],
)
def test_random_battles_stay_on_the_map_apart_and_finite(task: str, battles: int, steps: int):
    """Two thousand battles, a million steps of units, and a crowd; PRISM_MARL_BATTLES=10: a million of teams."""
    env = make_skirmish(task)
    repeated = int(os.environ.get("PRISM_MARL_BATTLES", "1")) if battles > 100 else 1
    for seed in range(7, 7 + repeated):
        _, found = random_battles(env, jax.random.key(seed), battles, steps, measured(env))
        assert bool(found["fine"].all()) and float(found["outside"].max()) <= 1e-4
        overlap = np.asarray(found["overlap"])
        assert overlap.max() < 0.75 and np.quantile(overlap, 0.99) < 0.4
        assert float(found["size"].max()) <= 1.0001 and float(found["health"].min()) >= 0
        assert battles < 100 or float(found["over"].any(axis=0).mean()) > 0.02  # fighting goes on after the end, too


def test_a_key_decides_everything():
    env = make_skirmish("terran_5_vs_5")
    first, second, other = (random_battles(env, jax.random.key(seed), 3, 30, measured(env))[0][0] for seed in (1, 1, 2))
    jax.tree.map(np.testing.assert_array_equal, first, second)
    assert not np.array_equal(first.x, other.x)
