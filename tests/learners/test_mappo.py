"""MAPPO and IPPO against slow computations of the same numbers."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from prism_marl.errors import UserError
from prism_marl.learners import IPPO, MAPPO
from prism_marl.learners.base import Clock, Trajectory
from prism_marl.learners.mappo_loss import error_cost, mean_of, standardised, surrogate, value_cost
from prism_marl.learners.mappo_state import Memory
from prism_marl.learners.regularisation import Balance, regularised
from prism_marl.learners.value_norm import DECAY, LEAST_VARIANCE, ValueNorm
from prism_marl.networks import heads
from prism_marl.sharing import METHODS, FuPSID, HyperMARL, NoPS, Prism, network_regularisers
from prism_marl.types import EnvSpec, Observation

SPEC = EnvSpec("toy", agents=3, observation=4, state=5, actions=3, roles=3, horizon=9)
OWN = dataclasses.replace(SPEC, reward="agent")
SMOOTH = dataclasses.replace(SPEC, kind="continuous", actions=2)
PLAIN = {"value_norm": False, "advantages": "plain", "gamma": 0.9, "gae_lambda": 0.8}
LENGTH, ROWS, WIDTH = 6, 2, 8


# Losses by hand.


def test_the_surrogate_takes_the_smaller_gain_by_hand():
    """Ratios 1.5 and 0.5 at clip 0.2: a good action gains no more than 1.2, a bad one loses all."""
    ratio, advantage = jnp.asarray([1.5, 1.5, 0.5, 0.5, 1.1]), jnp.asarray([2.0, -2.0, 2.0, -2.0, 1.0])
    gain, outside = surrogate(ratio, advantage, 0.2)
    assert_allclose(gain, [2.4, -3.0, 1.0, -1.6, 1.1], rtol=1e-6)
    assert outside.tolist() == [1, 1, 1, 1, 0]
    slope = jax.grad(lambda ratio: surrogate(ratio, advantage, 0.2)[0].sum())(ratio)
    assert_allclose(slope, [0.0, -2.0, 2.0, 0.0, 1.0])  # clipped gains stop to count


def test_costs_of_values_by_hand():
    assert_allclose(error_cost(jnp.asarray([0.5, -2.0, 4.0]), 2.0), [0.125, 2.0, 6.0])
    assert_allclose(error_cost(jnp.asarray([3.0]), 0.0), [4.5])
    value, before, target = jnp.asarray([1.0, 0.3]), jnp.zeros(2), jnp.asarray([1.0, 1.0])
    # moved by 1 where 0.2 is allowed: held at 0.2, whose error is the larger; held at 0.2 and 0.3 the other
    assert_allclose(value_cost(value, before, target, clip=0.2, huber=0.0), [0.5 * 0.64, 0.5 * 0.64])
    assert_allclose(value_cost(value, before, target, clip=0.0, huber=0.0), [0.0, 0.5 * 0.49], rtol=1e-6)


def test_standardised_advantages_and_means_count_only_who_takes_part():
    values, counts = jnp.asarray([1.0, 3.0, 99.0]), jnp.asarray([1.0, 1.0, 0.0])
    assert_allclose(standardised(values, counts)[:2], [-1, 1], rtol=1e-4)
    assert float(mean_of(values, counts)) == 2.0 and float(mean_of(values, 0 * counts)) == 0.0


def test_value_norm_is_a_debiased_average_by_hand():
    norm = ValueNorm.fresh()
    assert [float(part) for part in norm.statistics()] == [0.0, 1.0]
    ones = jnp.ones(2)
    norm = norm.update(jnp.asarray([1.0, 3.0]), ones)
    assert_allclose(norm.statistics(), [2.0, 1.0], rtol=1e-3)  # one batch counts fully: mean 2, variance 5 - 4
    norm = norm.update(jnp.asarray([7.0, 99.0]), jnp.asarray([1.0, 0.0]))
    weights = np.asarray([DECAY, 1.0]) / (1 + DECAY)
    mean, square = weights @ [2, 7], weights @ [5, 49]
    assert_allclose(norm.statistics(), [mean, np.sqrt(square - mean**2)], rtol=1e-3)
    assert_allclose(norm.restore(norm.normalise(ones)), ones, rtol=1e-5)
    flat = ValueNorm.fresh().update(ones, ones)
    assert_allclose(flat.statistics()[1], np.sqrt(LEAST_VARIANCE), rtol=1e-5)


def test_illegal_actions_are_never_drawn_and_have_no_part_in_entropy():
    logits = jnp.asarray([[2.0, 50.0, 1.0, 1.0]])
    avail = jnp.asarray([[True, False, True, True]])
    wide = jnp.broadcast_to(logits, (4000, 1, 4)), jnp.broadcast_to(avail, (4000, 1, 4))
    action, extras = heads.sample("discrete", jax.random.key(0), *wide, jnp.zeros((1, 0)))
    share = np.bincount(np.asarray(action).ravel(), minlength=4) / 4000
    wanted = np.asarray([np.e, 0, 1, 1]) / (np.e + 2)
    assert share[1] == 0 and np.abs(share - wanted).max() < 0.03
    log_prob, entropy = heads.log_prob_and_entropy("discrete", *wide, jnp.zeros((1, 0)), action)
    assert_allclose(log_prob, np.log(wanted[np.asarray(action)]), rtol=1e-5)
    assert_array_equal(log_prob, extras["log_prob"])
    held = wanted[[0, 2, 3]]
    assert_allclose(entropy, -np.sum(held * np.log(held)), rtol=1e-5)
    slope = jax.grad(lambda x: heads.log_prob_and_entropy("discrete", x, avail, None, action[0])[1].sum())(logits)
    assert np.isfinite(slope).all() and slope[0, 1] == 0
    only = jnp.asarray([[False, False, True, False]])
    alone = heads.log_prob_and_entropy("discrete", logits, only, None, jnp.asarray([2]))
    assert float(alone[0][0]) == 0 and float(alone[1][0]) == 0  # no choice: nothing to learn
    assert heads.final_action("discrete", logits, avail).tolist() == [0]


def test_gaussian_actions_by_hand():
    mean, size = jnp.asarray([[0.9, -2.0]]), jnp.asarray([[0.5, 0.1]])
    assert_allclose(heads.final_action("continuous", mean, jnp.ones((1, 2), bool)), [[0.9, -1.0]])
    drawn = jnp.asarray([[1.4, -2.1]])
    log_prob, entropy = heads.log_prob_and_entropy("continuous", mean, jnp.ones((1, 2), bool), size, drawn)
    assert_allclose(log_prob, [-0.5 * 2 - np.log(0.5) - np.log(0.1) - np.log(2 * np.pi)], rtol=1e-5)
    assert_allclose(entropy, [np.log(2 * np.pi * np.e) + np.log(0.5 * 0.1)], rtol=1e-5)
    assert_allclose(heads.deviation(jnp.asarray([0.0, 1.0])), [0.25, 0.5 / (1 + np.exp(-1))])
    action, extras = heads.sample("continuous", jax.random.key(0), mean, jnp.ones((1, 2), bool), size)
    assert float(action[0, 1]) == -1 and float(extras["draw"][0, 1]) < -1  # what is learned from was not cut


def test_the_weight_of_diversity_goes_by_the_size_of_the_surrogate():
    """A surrogate near zero says nothing; its samples' mean size does."""
    layer = Prism(ties="apart").linear(6, 6, identities=3, key=jax.random.key(0), kind="hidden", depth=0)
    apart = jnp.broadcast_to(jnp.asarray([[-9.0], [9.0], [-9.0]]), layer.threshold.shape)
    layer = eqx.tree_at(lambda layer: layer.threshold, layer, apart)
    terms, penalties = network_regularisers(layer), Prism(diversity=0.1).penalties()
    _, _, found = regularised(jnp.zeros(()), layer, penalties, Balance.empty(4), jnp.asarray(0.8))
    wanted = abs(0.1 * 0.8 / float(terms["diversity"]))
    assert_allclose(found["diversity_coefficient"], wanted, rtol=1e-5)


# A rollout.


def make(settings=MAPPO, spec=SPEC, sharing=None, **changes):
    given = PLAIN | {"length": LENGTH, **changes}
    return settings(**given).learner(sharing or FuPSID(), spec, width=WIDTH, rows=ROWS)


def rollout(learner, seed: int = 0) -> Trajectory:
    """A rollout [t, b, ...] whose first row terminates at step 1 and whose second runs out of time at step 3."""
    rng, template = np.random.default_rng(seed), learner.template()

    def drawn(leaf):
        shape = (leaf.shape[0], ROWS, *leaf.shape[1:])
        values = rng.integers(0, 2, shape) if np.dtype(leaf.dtype).kind in "bi" else rng.normal(size=shape)
        return jnp.asarray(values, leaf.dtype)

    batch = jax.tree.map(drawn, template)
    when = jnp.arange(LENGTH)
    memory = ()
    if learner.settings.recurrent:
        hidden = jnp.asarray(rng.normal(size=(ROWS, SPEC.agents, WIDTH)), jnp.float32)
        memory = Memory(hidden, jnp.asarray([False, True]))
    avail = batch.obs.avail.at[..., 0].set(True)
    return batch._replace(
        terminated=jnp.stack([when == 1, when == -1], axis=1),
        truncated=jnp.stack([when == -1, when == 3], axis=1),
        valid=jnp.ones((LENGTH, ROWS), bool),
        action=jnp.zeros_like(batch.action),
        obs=batch.obs._replace(avail=avail),
        memory=memory,
    )


def started(learner):
    state = learner.init(jax.random.key(3))
    if state.critic_hidden is None:
        return state
    hidden = jax.random.normal(jax.random.key(4), state.critic_hidden.shape)
    return eqx.tree_at(lambda s: s.critic_hidden, state, hidden)


def slow_values(learner, state, batch, row: int):
    """Values and what followed, one step after the other: the memory is the critic's own, and new with an episode."""
    critic, values, following = state.critic, [], []
    hidden = state.critic_hidden[row : row + 1] if learner.settings.recurrent else None
    fresh = bool(batch.memory.fresh[row]) if learner.settings.recurrent else False
    for t in range(LENGTH):
        now, then = (
            jax.tree.map(lambda leaf, t=t: leaf[t, row : row + 1], part) for part in (batch.obs, batch.next_obs)
        )
        x, y = learner.inputs.critic(now), learner.inputs.critic(then)
        role = jnp.zeros(x.shape[:-1], jnp.int32)
        if learner.settings.recurrent:
            hidden, value = critic(jnp.zeros_like(hidden) if fresh else hidden, x, role)
            after = critic(hidden, y, role)[1]
        else:
            value, after = critic(x, role), critic(y, role)
        values.append(np.asarray(value)[0, :, 0])
        following.append(np.asarray(after)[0, :, 0])
        fresh = bool(batch.terminated[t, row] | batch.truncated[t, row])
    return np.stack(values), np.stack(following)


@pytest.mark.parametrize(
    ("settings", "spec", "changes"),
    [
        (MAPPO, SPEC, {}),
        (MAPPO, OWN, {"recurrent": False}),
        (IPPO, OWN, {}),
        (MAPPO, SPEC, {"critic_sharing": "per_agent", "recurrent": False}),
    ],
)
def test_advantages_and_targets_equal_a_loop_over_steps(settings, spec, changes):
    learner = make(settings, spec, **changes)
    state, batch = started(learner), rollout(learner)
    _, samples, _ = jax.jit(learner.look_back)(state, batch)
    values = 1 if settings is MAPPO and not changes and spec is SPEC else SPEC.agents
    assert samples.target.shape[-1] == values
    whole = lambda leaf: np.asarray(leaf).reshape(LENGTH, ROWS, -1)  # noqa: E731
    for row in range(ROWS):
        value, following = slow_values(learner, state, batch, row)
        reward = batch.agent_reward[:, row] if spec is OWN else batch.reward[:, row, None]
        after, wanted = np.zeros(values), np.zeros((LENGTH, values))
        for t in reversed(range(LENGTH)):
            ends, over = bool(batch.terminated[t, row]), bool(batch.terminated[t, row] | batch.truncated[t, row])
            error = np.asarray(reward[t]) + (0 if ends else 0.9 * following[t]) - value[t]
            wanted[t] = after = error + (0 if over else 0.9 * 0.8 * after)
        assert_allclose(whole(samples.value)[:, row], value, atol=1e-5)
        assert_allclose(whole(samples.target)[:, row], wanted + value, atol=1e-4)
        assert_allclose(whole(samples.advantage)[:, row], np.broadcast_to(wanted, (LENGTH, SPEC.agents)), atol=1e-4)


def test_chunks_compute_what_whole_sequences_do():
    """Outputs and losses are the same, because each chunk begins with the state that the whole had there; and a chunk
    as long as the rollout is the whole, bit by bit."""
    whole, cut, long = make(), make(chunk=2), make(chunk=LENGTH)
    state, batch = started(whole), rollout(whole)
    found = {}
    for name, learner in {"whole": whole, "cut": cut, "long": long}.items():
        _, *given = jax.jit(learner.look_back)(state, batch)
        assert given[0].fresh.shape == ((2, LENGTH // 2 * ROWS) if name == "cut" else (LENGTH, ROWS))
        after, metrics = jax.jit(learner.improve)(state, tuple(given), jnp.ones(()), jnp.int32(0))
        found[name] = (after, metrics)
    for name in ("actor_loss", "critic_loss", "entropy", "kl"):
        assert_allclose(found["cut"][1][name], found["whole"][1][name], rtol=1e-4, atol=1e-6)
    for one, other in zip(jax.tree.leaves(found["long"]), jax.tree.leaves(found["whole"]), strict=True):
        if eqx.is_inexact_array(one):
            assert_array_equal(one, other)
    assert not np.allclose(found["cut"][1]["grad_norm"], found["whole"][1]["grad_norm"], rtol=1e-4)  # a shorter past


def test_who_is_dead_or_done_is_left_out():
    learner = make(MAPPO, SPEC, recurrent=False)
    avail = jnp.ones((1, 3, 3), bool).at[0, :2, 1:].set(False)
    local = jnp.ones((1, 3, 4)).at[0, 0].set(0.0)
    obs = Observation(local, jnp.ones((1, 5)), avail, jnp.zeros((1, 0), jnp.int32))
    assert learner.inputs.active(obs).tolist() == [[False, True, True]]  # the second sees something, but has no choice
    smooth = make(MAPPO, SMOOTH, recurrent=False)
    avail = jnp.ones((1, 3, 2), bool).at[0, 1].set(False)
    assert smooth.inputs.active(obs._replace(avail=avail)).tolist() == [[True, False, True]]
    batch = rollout(learner)
    dead = batch.obs._replace(
        local=batch.obs.local.at[:, :, 0].set(0), avail=batch.obs.avail.at[:, :, 0, 1:].set(False)
    )
    batch = batch._replace(obs=dead)
    state = started(learner)
    _, samples, starts = learner.look_back(state, batch)
    other = samples._replace(advantage=samples.advantage.at[..., 0].add(100.0))
    one, two = (learner.improve(state, (given, starts), jnp.ones(()), jnp.int32(0))[1] for given in (samples, other))
    assert_array_equal(one["actor_loss"], two["actor_loss"])
    assert_array_equal(one["grad_norm"], two["grad_norm"])


@pytest.mark.parametrize("mode", ["shared", "per_agent", "same"])
def test_what_critics_share(mode):
    learner = make(MAPPO, SPEC, HyperMARL(hidden=4), critic_sharing=mode, recurrent=False)
    critic = learner.init(jax.random.key(0)).critic
    layers = {"shared": "SharedLinear", "per_agent": "IndependentLinear", "same": "HyperLinear"}
    assert type(critic.fc3).__name__ == layers[mode] and learner.inputs.values == (1 if mode == "shared" else 3)
    assert learner.inputs.critic_size == 5  # generated and private weights tell agents apart without an id
    individual = make(MAPPO, OWN, HyperMARL(hidden=4), critic_sharing=mode, recurrent=False)
    assert individual.inputs.critic_size == (8 if mode == "shared" else 5)


def test_a_critic_that_is_shared_in_the_same_way_has_the_actors_labels():
    learner = make(MAPPO, SPEC, METHODS["adaps"](clusters=2), critic_sharing="same")
    state = started(learner)
    agent, labels = state.actor.agent, jnp.asarray([1, 0, 1])
    agent = eqx.tree_at(lambda a: (a.clusters, a.fc2.mask), agent, (labels, ~agent.fc2.mask))
    critic = learner.with_agent(state, agent).critic
    assert_array_equal(critic.clusters, labels)
    assert_array_equal(critic.fc2.mask, agent.fc2.mask)
    for old, new in zip(jax.tree.leaves(state.critic), jax.tree.leaves(critic), strict=True):
        assert not eqx.is_inexact_array(old) or (old == new).all()  # weights are its own


def test_policies_in_numpy_play_as_compiled_ones():
    learner = make(MAPPO, SMOOTH, NoPS(), recurrent=False, standardise_inputs=True, own_deviation=True)
    state = learner.init(jax.random.key(0))
    policy, rng = learner.policy(state), np.random.default_rng(0)
    local, noise = rng.normal(size=(5, 3, 4)).astype(np.float32), rng.normal(size=(5, 3, 2)).astype(np.float32)
    obs = Observation(*(jnp.asarray(x) for x in (local, np.zeros((5, 5), np.float32), np.ones((5, 3, 2), bool))),
                      jnp.tile(jnp.arange(3), (5, 1)))  # fmt: skip
    stacked = jax.tree.map(lambda leaf: np.asarray(leaf)[None], policy)
    numpy = learner.numpy()
    assert numpy is not None
    greedy, _ = numpy(stacked, slice(0, 1), local[None], np.zeros((1, 5, 5)), None, "greedy")
    compiled = learner.act(policy, (), obs, jax.random.key(0), jnp.int32(0), "greedy")[1]
    assert_allclose(greedy[0], compiled, atol=1e-5)
    action, extras = numpy(stacked, slice(0, 1), local[None], np.zeros((1, 5, 5)), noise[None], "explore")
    size = heads.deviation(state.actor.spread)
    mean = state.actor.agent(learner.inputs.actor(obs), obs.role)
    assert_allclose(extras["draw"][0], mean + size * noise, atol=1e-5)
    assert_array_equal(action, np.clip(extras["draw"], -1, 1))
    wanted = heads.log_prob_and_entropy("continuous", mean, obs.avail, size, jnp.asarray(extras["draw"][0]))[0]
    assert_allclose(extras["log_prob"][0], wanted, rtol=1e-4, atol=1e-4)
    assert make(MAPPO, SMOOTH).numpy() is None and make(MAPPO, SPEC, recurrent=False).numpy() is None


def test_learning_rates_fall_along_the_run():
    learner = dataclasses.replace(make(MAPPO, SPEC, lr_decay=True), steps=4 * LENGTH * ROWS)

    at = lambda number: Clock(jnp.int32(number), jnp.int32(0), ())  # noqa: E731
    assert [float(learner.rate(at(k))) for k in (1, 2, 4, 9)] == [1.0, 0.75, 0.25, 0.0]
    assert float(make(MAPPO, SPEC).rate(at(9))) == 1.0


# What cannot work.


@pytest.mark.parametrize(
    ("settings", "spec", "changes", "words"),
    [
        (MAPPO, SPEC, {"head": "gaussian"}, "learner.head: 'gaussian' is not for 'toy'.* use 'categorical'"),
        (MAPPO, SMOOTH, {"head": "categorical"}, "learner.head: 'categorical' .* use 'gaussian'"),
        (MAPPO, SPEC, {"minibatches": 3}, "minibatches: 3 parts do not divide .* 2 sequences of 6 .* value is 2"),
        (MAPPO, SPEC, {"recurrent": False, "minibatches": 5}, "do not divide a rollout of 12 steps .* value is 4"),
        (MAPPO, SPEC, {"chunk": 9}, "learner.chunk: 9 is longer than a rollout of 6 steps; .* value is 6"),
        (MAPPO, SPEC, {"chunk": 4}, "learner.chunk: 4 does not divide a rollout of 6 steps; .* value is 3"),
        (MAPPO, SPEC, {"chunk": 3, "recurrent": False}, "learner.chunk: .* for recurrent networks"),
        (MAPPO, OWN, {"critic_values": "team"}, "critic_values: .* reward of its own; use 'agent'"),
        (IPPO, SPEC, {"critic_values": "team"}, "critic_values: .* what one agent observes"),
        (MAPPO, SPEC, {"critic_values": "team", "critic_sharing": "same"}, "critic_values: .* a critic of its own"),
        (MAPPO, SPEC, {"epochs": 0}, "learner.epochs: 0 is not positive; the default is 4"),
        (MAPPO, SPEC, {"entropy": -1.0}, "learner.entropy: -1.0 is negative"),
        (MAPPO, SPEC, {"gae_lambda": 1.5}, r"learner.gae_lambda: 1.5 is outside \[0, 1\]"),
        (MAPPO, SPEC, {"behind_gru": 3}, "behind_gru: 3 is not 1 or 2"),
        (MAPPO, SPEC, {"scale_inputs": True, "standardise_inputs": True}, "scale_inputs: .* set one of the two"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_sentence(settings, spec, changes, words):
    with pytest.raises(UserError, match=words) as error:
        settings(**({"length": LENGTH} | changes)).validate(spec, ROWS)
    assert "\n" not in str(error.value)
    settings(length=LENGTH).validate(spec, ROWS)
