"""The diagnostic game: what it pays, when it ends, and that nothing but the index tells the agents apart."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl.envs.roles import make_roles
from prism_marl.errors import UserError

KEY = jax.random.key(0)


def test_observations_are_identical_and_roles_are_not():
    env = make_roles("5")
    _, obs = env.reset(KEY)
    assert obs.local.shape == (5, 1) and obs.state.shape == (1,) and obs.avail.shape == (5, 5)
    assert bool((obs.local == 1).all()) and bool((obs.state == 1).all()) and bool(obs.avail.all())
    assert obs.role.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("action", "reward"),
    [([0, 1, 2, 3], 1.0), ([2, 2, 2, 2], 0.25), ([0, 0, 3, 3], 0.5), ([1, 0, 3, 2], 0.0)],
)
def test_the_reward_is_the_share_of_agents_that_play_their_own_index(action: list[int], reward: float):
    env = make_roles("4")
    state, _ = env.reset(KEY)
    _, step = jax.jit(env.step)(KEY, state, jnp.array(action))
    assert float(step.reward) == reward
    assert bool(step.terminated) and not bool(step.truncated) and step.metrics == {}


@pytest.mark.parametrize("agents", [2, 7])
def test_no_common_action_earns_more_than_one_share(agents: int):
    env = make_roles(str(agents))
    state, _ = env.reset(KEY)
    same = jnp.tile(jnp.arange(agents)[:, None], (1, agents))
    reward = jax.vmap(lambda a: env.step(KEY, state, a)[1].reward)(same)
    np.testing.assert_allclose(reward, 1 / agents, rtol=1e-6)


def test_the_spec_matches_what_reset_returns():
    spec = make_roles("3").spec
    assert (spec.name, spec.agents, spec.actions, spec.roles, spec.horizon) == ("roles/3", 3, 3, 3, 1)
    assert (spec.observation, spec.state, spec.storage, spec.metrics) == (1, 1, "int8", ())


@pytest.mark.parametrize(
    ("variant", "hint"),
    [("1", "'roles/2'"), ("5000", "'roles/1024'"), ("", "'roles/4'"), ("four", "'roles/4'"), ("-3", "'roles/4'")],
)
def test_impossible_sizes_name_the_nearest_possible_one(variant: str, hint: str):
    with pytest.raises(UserError, match=hint):
        make_roles(variant)
