"""The particle games of mpe2, played for real: the same numbers as the package's, and drawings of its worlds."""

import sys

import numpy as np
import pytest
from mpe2 import simple_spread_v3

from prism_marl import envs
from prism_marl.errors import UserError
from prism_marl.experiment.checks import check_env
from prism_marl.experiment.presets import preset

TASK = "mpe2/simple_spread_v3?N=2"


def test_an_episode_is_that_of_the_package():
    env, package = envs.make_python(TASK), simple_spread_v3.parallel_env(N=2)
    assert env.spec.name == TASK and (env.spec.agents, env.spec.observation, env.spec.actions) == (2, 12, 5)
    assert env.spec.horizon == 25 and env.spec.kind == "discrete" and env.spec.reward == "agent"
    obs, (theirs, _) = env.reset(seed=7), package.reset(seed=7)
    rng = np.random.default_rng(0)
    for step in range(25):
        np.testing.assert_array_equal(obs.local, np.stack([theirs[agent] for agent in package.possible_agents]))
        np.testing.assert_array_equal(obs.state, package.state().astype(np.float32))
        action = rng.integers(5, size=2)
        found = env.step(action)
        theirs, rewards, _, _, _ = package.step(dict(zip(package.possible_agents, action.tolist(), strict=True)))
        assert float(found.reward) == pytest.approx(sum(rewards.values()))
        np.testing.assert_allclose(found.agent_reward, list(rewards.values()), rtol=1e-6)
        assert not found.terminated and found.truncated == (step == 24)
        obs = found.obs
    env.close()


def test_its_world_is_drawn():
    env = envs.make_python("mpe2/simple_tag_v3")
    env.reset(seed=0)
    world = env.env.unwrapped.world
    world.agents[0].state.p_pos[:] = (0.7, 0.7)
    world.agents[3].state.p_pos[:] = (-9, 0)
    scene = env.scene()
    assert [shape.label for shape in scene.shapes] == ["", "", "1", "2", "3", "4"]
    assert [shape.colour for shape in scene.shapes] == [-2, -2, -3, -3, -3, 3]
    first, last = scene.shapes[2], scene.shapes[5]
    assert (first.x, first.y) == pytest.approx((7.5, 2.5)) and (last.x, last.y) == pytest.approx((0, 5))
    assert scene.caption == "step 0/25"
    env.close()


def test_it_keeps_its_promises_and_has_a_preset():
    env = envs.make_python("mpe2/simple_spread_v3?N=2&max_cycles=5&reward=sum")
    check_env(env)
    env.close()
    assert preset("mpe2/simple_spread_v3", "prism").run.patience == 0
    assert preset("mpe2/simple_spread_v3", "prism", learner="mappo").learner.algorithm == "mappo"


def test_wrong_names_and_a_missing_package_are_one_sentence(monkeypatch):
    with pytest.raises(UserError, match=r"mpe2 has no game 'simple_spred_v3'.*'simple_spread_v3'"):
        envs.describe("mpe2/simple_spred_v3")
    with pytest.raises(UserError, match="refuses its settings"):
        envs.describe("mpe2/simple_spread_v3?robots=3")
    monkeypatch.setitem(sys.modules, "mpe2", None)
    with pytest.raises(UserError, match=r"pip install .*'prism-marl\[mpe2\]'"):
        envs.make_python("mpe2/simple_spread_v3")
