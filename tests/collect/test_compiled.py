"""Episodes as they are stored: replayed step by step in the environment, they are what was recorded."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl.collect.compiled import CompiledCollector, _episode_states
from prism_marl.collect.compiled import play as play_seeds
from prism_marl.envs import make
from prism_marl.learners import QMix, QMixLearner
from prism_marl.learners.base import Clock
from prism_marl.learners.packed import laid_out
from prism_marl.networks.recurrent import recurrent_agent
from prism_marl.sharing import METHODS, FuPSID
from prism_marl.sharing.dense import materialise

NUMBER = 48
ENV = make("lbf/4x4-2p-1f")


def play(learner, agent, key, mode, number):
    """One seed: its episodes as they are read from where they are stored [b, t, ...], and how they ended [b]."""
    policy, keys = jax.tree.map(lambda leaf: leaf[None], materialise(agent)), key[None]
    zeros = jnp.zeros(1, jnp.int32)
    clock = Clock(jnp.int32(0), jnp.int32(0), ())
    _, batch, summary = CompiledCollector(ENV, 0, 1, number).collect(learner, policy, (), keys, zeros, clock, mode)
    ended = play_seeds(ENV, learner, policy, keys, zeros, number, mode)[0]
    ring = learner.add(learner.buffer(), jax.tree.map(lambda leaf: leaf[0], batch))
    stored = learner.episodes.restored(jax.tree.map(lambda leaf: leaf[:number], ring.storage))
    return stored, jax.tree.map(lambda leaf: leaf[0], ended), summary


def learner_of(time_limit_ends: bool) -> QMixLearner:
    settings = QMix(embed=4, hypernet=4, buffer=NUMBER, time_limit_ends=time_limit_ends)
    return QMixLearner(settings, FuPSID(), ENV.spec, width=8)


@pytest.fixture(scope="module")
def played():
    """Random episodes: some end with the food, some with the clock."""
    learner, key = learner_of(True), jax.random.key(4)
    agent = jax.jit(learner.build_agent)(jax.random.key(1))
    episodes, ended, summary = jax.jit(lambda agent: play(learner, agent, key, "random", NUMBER))(agent)
    assert int(summary.steps[0]) == int(ended.length.sum()) and all(fine.all() for fine in summary.finite.values())
    return learner, key, episodes, ended


def test_an_episode_of_length_l_has_l_valid_steps(played):
    _, _, episodes, summary = played
    lengths, horizon = np.asarray(summary.length).astype(int), ENV.spec.horizon
    cleared = np.asarray(summary.metrics["collected"]) == 1
    assert 3 < cleared.sum() < NUMBER - 3 and (lengths[~cleared] == horizon).all()
    assert (lengths[cleared] < horizon).any()
    assert (np.asarray(episodes.valid) == (np.arange(horizon) < lengths[:, None])).all()


def test_slots_after_the_end_earn_nothing_and_end_nothing(played):
    _, _, episodes, summary = played
    reward, ended, valid = (np.asarray(leaf) for leaf in (episodes.reward, episodes.terminated, episodes.valid))
    assert (reward[~valid] == 0).all() and not ended[~valid].any()
    assert np.allclose(reward.sum(1), summary.returns)
    lengths = np.asarray(summary.length).astype(int)
    assert (ended.sum(1) == 1).all() and (ended.argmax(1) == lengths - 1).all()  # here the clock is an end too


def test_what_is_stored_is_what_the_environment_showed(played):
    learner, key, episodes, summary = played
    state, obs = jax.vmap(ENV.reset)(jax.random.split(jax.random.split(key)[0], NUMBER))
    step = jax.jit(jax.vmap(ENV.step))
    keys, valid = jax.random.split(key, NUMBER), np.asarray(episodes.valid)
    in_time = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), episodes)
    joint = learner.read(in_time.obs, laid_out(in_time, None).last)[1]
    assert episodes.obs.local.dtype == jnp.int8 and episodes.obs.state.size == 0
    for t in range(ENV.spec.horizon):
        here = valid[:, t]
        assert (np.asarray(episodes.obs.local[:, t])[here] == np.asarray(obs.local)[here]).all()
        assert (np.asarray(episodes.obs.avail[:, t])[here] == np.asarray(obs.avail)[here]).all()
        assert (np.asarray(episodes.obs.role[:, t])[here] == np.asarray(obs.role)[here]).all()
        assert (np.asarray(joint[t])[here] == np.asarray(obs.state)[here]).all()
        state, now = step(keys, state, episodes.action[:, t].astype(jnp.int32))
        obs = now.obs
        assert (np.asarray(episodes.reward[:, t])[here] == np.asarray(now.reward)[here]).all()
        last = here & np.asarray(now.terminated | now.truncated)
        assert (np.asarray(episodes.obs.local[:, t + 1])[last] == np.asarray(obs.local)[last]).all()
        assert (np.asarray(now.metrics["collected"])[last] == np.asarray(summary.metrics["collected"])[last]).all()


def test_a_clock_that_does_not_count_as_an_end_leaves_no_mark(played):
    _, key, episodes, summary = played
    learner = learner_of(False)
    agent = jax.jit(learner.build_agent)(jax.random.key(1))
    again, *_ = jax.jit(lambda agent: play(learner, agent, key, "random", NUMBER))(agent)
    assert (again.action == episodes.action).all() and (again.valid == episodes.valid).all()
    cleared = np.asarray(summary.metrics["collected"]) == 1
    assert (np.asarray(again.terminated).any(1) == cleared).all()


def test_a_watched_episode_is_one_of_those_played():
    learner, key = learner_of(True), jax.random.key(8)
    agent = jax.jit(learner.build_agent)(jax.random.key(1))
    states, total, length = jax.jit(lambda agent: _episode_states(ENV, learner, materialise(agent), key))(agent)
    episodes, same, _ = jax.jit(lambda agent: play(learner, agent, key, "greedy", 1))(agent)
    assert total == same.returns[0] and length == same.length[0]
    assert states.row.shape[0] == ENV.spec.horizon + 1
    own = episodes.obs.local[0, : int(length) + 1, 0]  # the first agent's row and column follow the only food
    assert (own[:, 3] == states.row[: int(length) + 1, 0]).all()
    assert (own[:, 4] == states.col[: int(length) + 1, 0]).all()


CASES = [(method, None) for method in METHODS] + [("kaleidoscope", "role"), ("prism", "role")]


@pytest.mark.parametrize(("method", "masks"), CASES)
def test_plain_matrices_act_exactly_as_the_method_does(method, masks):
    sharing = METHODS[method]() if masks is None else METHODS[method]().changed(masks=masks)
    rng = np.random.default_rng(0)
    x, h = (jnp.asarray(rng.normal(size=(20, 3, size)), jnp.float32) for size in (5, 8))
    role = jnp.asarray(rng.integers(0, 2, (20, 3)))

    @jax.jit
    def both(key):
        agent = recurrent_agent(sharing, inputs=5, actions=4, width=8, agents=3, roles=2, key=key)
        agent = jax.tree.map(lambda leaf: leaf + 0.3 if leaf.dtype == jnp.float32 else leaf, agent)  # not as drawn
        return agent(h, x, role), materialise(agent)(h, x, role)

    (hidden, values), (plain_hidden, plain_values) = both(jax.random.key(0))
    assert np.allclose(hidden, plain_hidden, atol=1e-5) and np.allclose(values, plain_values, rtol=1e-4, atol=1e-4)
    assert (np.asarray(values).argmax(-1) == np.asarray(plain_values).argmax(-1)).all()
    assert np.asarray(values).std(0).max() > 1e-3


def test_the_loop_stops_with_the_last_episode_and_keeps_what_it_saw_last():
    """Two seeds with one random episode each: both wait for the longer one, none for the clock."""
    learner, key = learner_of(False), jax.random.key(2)
    agent = jax.jit(learner.build_agent)(jax.random.key(1))
    policy = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), materialise(agent))
    few = jax.jit(lambda keys: play_seeds(ENV, learner, policy, keys, jnp.zeros(2, jnp.int32), 1, "random"))
    stops = []
    for number in range(30):
        ended, _, slots = few(jax.random.split(jax.random.fold_in(key, number), 2))
        seen = np.asarray(slots.local).any(axis=(1, 2, 3, 4))  # slots at which any seed saw anything
        longest = int(np.asarray(ended.length).max())
        stop = min(ENV.spec.horizon, -(-longest // 10) * 10)
        assert seen[: stop + 1].all() and not seen[stop + 1 :].any()
        stops.append(stop)
    assert min(stops) < ENV.spec.horizon == max(stops)
