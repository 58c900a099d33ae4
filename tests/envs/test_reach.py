"""The continuous diagnostic task: its rules, its ceilings, and what all rows on the host promise."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from prism_marl import envs
from prism_marl.envs.reach import HORIZON, points
from prism_marl.errors import UserError


def started(agents: int = 3, rows: int = 4):
    env = envs.make_rows(f"reach/{agents}", rows)
    env.reset(np.arange(rows), np.arange(rows) + 7)
    return env


def best(env) -> np.ndarray:
    """Everybody at its own point."""
    drift = env.observe().state[:, 0][:, None]
    c = points(env.spec.agents)
    return np.stack([c + 0.2 * drift, -c + 0.2 * drift], axis=-1).astype(np.float32)


def test_spec_is_what_it_plays():
    env = started()
    spec, obs = env.spec, env.observe()
    assert not envs.is_compiled("reach/3") and envs.describe("reach/3") == spec
    assert spec.kind == "continuous" and spec.shared_observation
    assert obs.state.shape == (4, spec.state) and obs.local.shape == (4, spec.agents, spec.observation)
    assert_array_equal(obs.local, np.broadcast_to(obs.state[:, None], obs.local.shape))
    assert obs.avail.all() and obs.avail.shape == (4, spec.agents, spec.actions)


def test_perfect_play_earns_one_and_stands_still_until_the_clock():
    env = started()
    start = env.observe().state.copy()
    for t in range(HORIZON):
        step = env.step(best(env))
        assert_allclose(step.reward, 1, atol=1e-6)
        assert not step.terminated.any() and (step.truncated == (t == HORIZON - 1)).all()
    assert_allclose(step.obs.state, start, atol=1e-5)


@pytest.mark.parametrize("agents", [2, 3, 8])
def test_the_best_common_action_earns_one_minus_the_variance(agents):
    env = started(agents)
    ceiling = 1 - points(agents).var()
    common = np.broadcast_to(best(env).mean(axis=1, keepdims=True), (4, agents, 2))
    assert_allclose(env.step(common).reward, ceiling, atol=1e-6)
    worse = started(agents).step(common + np.float32(0.1))
    assert (worse.reward < ceiling).all()


def test_missing_moves_the_drift_until_the_episode_ends():
    env = started()
    before = env.observe().state[:, 0].copy()
    step = env.step(best(env) + np.float32(0.3))
    assert_allclose(step.obs.state[:, 0], before + 0.15, atol=1e-6)
    assert_allclose(step.reward, 1 - 0.09, atol=1e-5)
    for _ in range(HORIZON):
        step = env.step(best(env) + np.float32(0.4))
        assert not (step.terminated & step.truncated).any()
        assert_array_equal(step.terminated, np.abs(step.obs.state[:, 0]) > 1)
    assert step.terminated.all()


def test_an_episode_depends_on_its_seed_and_restoring_continues_it():
    env, action = started(), np.random.default_rng(0).uniform(-1, 1, (6, 4, 3, 2)).astype(np.float32)
    env.step(action[0])
    held = env.snapshot()
    first = [env.step(a) for a in action[1:]]
    env.reset(np.array([2]), np.array([9]))
    assert env.observe().state[2, 0] == started().observe().state[2, 0]
    other = envs.make_rows("reach/3", 4)
    other.restore(held)
    for step, again in zip(first, [other.step(a) for a in action[1:]], strict=True):
        assert_array_equal(step.obs.state, again.obs.state)
        assert_array_equal(step.reward, again.reward)


@pytest.mark.parametrize("variant", ["", "x", "1", "1025", "-3"])
def test_wrong_numbers_of_agents_are_refused(variant):
    with pytest.raises(UserError, match="reach"):
        envs.describe(f"reach/{variant}")


def test_the_drawing_shows_where_agents_should_have_played_and_where_they_did():
    env = started()
    before = env.scene(1)
    assert [shape.kind for shape in before.shapes] == ["circle"] * 3 and before.caption.startswith("step 0/10")
    env.step(best(env))
    circles, discs = env.scene(1).shapes[:3], env.scene(1).shapes[3:]
    assert [shape.kind for shape in discs] == ["disc"] * 3
    for was, circle, disc in zip(before.shapes, circles, discs, strict=True):
        assert_allclose([circle.x, circle.y], [was.x, was.y], atol=1e-5)
        assert_allclose([circle.x, circle.y], [disc.x, disc.y], atol=1e-5)
        assert circle.colour == disc.colour
    env.reset(np.arange(1, 2), np.array([3]))
    assert len(env.scene(1).shapes) == 3


def test_the_game_in_jax_is_the_same_game():
    """Rows that start where its episodes start, with the same actions: the same rewards, observations and ends."""
    env, rows = envs.make("reach_jax/3"), started(3, 5)
    assert replace(env.spec, name="reach/3") == rows.spec and envs.is_compiled("reach_jax/3")
    state, obs = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 5))
    assert len(set(np.asarray(state.drift).tolist())) == 5 and (np.abs(state.drift) <= 0.8).all()
    rows.restore({"drift": np.array(state.drift), "clock": np.array(state.clock)})
    step, rng, ends = jax.jit(jax.vmap(env.step, (None, 0, 0))), np.random.default_rng(0), 0
    for t in range(HORIZON):
        for one, other in zip(obs, rows.observe(), strict=True):
            assert_allclose(one, other, atol=1e-6)
        pictures = [env.scene(jax.tree.map(lambda leaf, row=row: leaf[row], state)) for row in range(5)]
        assert [scene.caption for scene in pictures] == [rows.scene(row).caption for row in range(5)]
        action = rng.uniform(-1, 1, (5, 3, 2)).astype(np.float32) + np.float32(0.1 * t)
        (state, one), other = step(jax.random.key(0), state, action), rows.step(action)
        assert_allclose(one.reward, other.reward, atol=1e-5)
        assert_array_equal(one.terminated, other.terminated)
        assert_array_equal(one.truncated, other.truncated)
        obs, ends = one.obs, ends + int(other.terminated.sum())
    assert ends and (np.asarray(one.truncated) | np.asarray(one.terminated)).all()
