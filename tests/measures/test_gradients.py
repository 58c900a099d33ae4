"""Gradients of agents: cosines by hand, and the parts of agents add up to what a learner follows."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_behaviour import CONTINUOUS

from line import LineJax
from prism_marl.collect.visits import from_dict, whole_template
from prism_marl.envs import describe
from prism_marl.experiment.presets import preset
from prism_marl.learners import LEARNERS
from prism_marl.learners.base import Signal, Signalling
from prism_marl.learners.conflict import agent_gradients, compared, cosines
from prism_marl.learners.seeds import without_axis
from prism_marl.measures import private_share
from prism_marl.policies import Policy
from prism_marl.sharing import METHODS
from prism_marl.training.build import make_learner, make_trainer
from tiny import small, small_steps, trainer_of

BOTH = jnp.arange(2)


class Team(eqx.Module):
    """A network of one layer."""

    fc1: eqx.Module


def team(method: str, agents: int = 2, kind="hidden") -> Team:
    settings = METHODS[method]()
    return Team(settings.linear(2, 3, identities=agents, key=jax.random.key(0), kind=kind, depth=1))


@jax.jit
def answers(network, x, slope):
    """Cosines where the loss is the product of outputs [a, u] with a slope, and the layer's matrices and biases."""
    clusters = None if network.fc1.identities == len(x) else jnp.zeros(len(x), jnp.int32)
    signal = Signal(lambda net: net.fc1(x, clusters), lambda outputs: jnp.sum(outputs * slope))
    tables = cosines(agent_gradients(signal, network, BOTH))
    return tables, network.fc1.dense(), network.fc1.dense_bias()


def found(network, x, slope):
    return answers(network, jnp.asarray(x), jnp.asarray(slope))[0]


@pytest.mark.parametrize(
    ("x", "slope", "cosine"),
    [
        ([[1.0, 2.0]] * 2, [[1.0, 0, 1], [1.0, 0, 1]], 1.0),
        ([[1.0, 2.0]] * 2, [[1.0, 0, 1], [-2.0, 0, -2]], -1.0),  # one agent wants the opposite, twice as much
        ([[1.0, 0.0], [0.0, 1.0]], [[1.0, 0, 0], [1.0, 0, 0]], 0.5),  # orthogonal matrices, equal biases
        ([[1.0, 0.0], [0.0, 1.0]], [[1.0, 0, 0], [0, 1.0, 0]], 0.0),
    ],
)
def test_cosines_of_a_shared_layer(x, slope, cosine):
    tables = found(team("fups"), x, slope)
    for name in ("fc1", "all"):
        np.testing.assert_allclose(tables[name], [[1, cosine], [cosine, 1]], atol=1e-6)


def test_only_parameters_that_both_use_are_compared():
    x, slope = [[1.0, 2.0]] * 2, [[1.0, 0, 1], [-1.0, 0, -1]]
    separate = found(team("nops"), x, slope)["all"]
    assert np.isnan(separate[0, 1]) and separate[0, 0] == pytest.approx(1)
    one_cluster = found(team("nops", agents=1), x, slope)["all"]  # both agents in the same cluster
    assert one_cluster[0, 1] == pytest.approx(-1)
    assert np.isnan(found(team("fups"), x, [[1.0, 0, 1], [0.0, 0, 0]])["all"][0, 1])  # the second learns nothing


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_measured(method):
    network = team(method, agents=3)
    x = jax.random.normal(jax.random.key(0), (3, 2))
    tables, *numbers = answers(network, x, jnp.ones((3, 3)))
    shares = METHODS[method].separate_networks
    assert np.isnan(tables["all"][0, 1]) if shares else np.isfinite(tables["all"]).all()
    weight, bias = (np.asarray(part) for part in numbers)
    contract = replace(CONTINUOUS, agents=3, roles=3, identity=(0, 1, 2), observation=2, actions=3)
    policy = Policy(
        contract, {"fc1.weight": np.swapaxes(weight, 1, 2), "fc1.bias": bias, "explore": np.zeros((1, 1), np.float32)}
    )
    share = private_share(policy, np.arange(3))["all"]
    if method in ("fups", "fups_id", "fups_id_svd", "multihead"):
        assert share == 0.0  # a hidden layer of theirs is shared
    elif method == "nops":
        assert 0.5 < share < 1.5
    else:
        assert 0 <= share < 1.5


def measured_state_of(trainer):
    """The state of the first seed, episodes [t, b, ...] of it, and cosines."""
    state = trainer.init()
    measure = trainer.measure if "measure" in trainer.eager else jax.jit(trainer.measure, static_argnums=2)
    answer = measure(state, jnp.int32(0), 4)
    trainer.close()
    episodes = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], from_dict(answer["episodes"]))
    return without_axis(state.seeds.state), episodes, answer["cosines"]


def made_up(experiment):
    """A learner, a fresh state of one seed, and two episodes [t, b, ...] that nobody played."""
    learner, rng = make_learner(experiment), np.random.default_rng(0)

    def numbers(leaf):
        shape = (leaf.shape[0], 2, *leaf.shape[1:])
        if leaf.dtype == np.float32:
            return jnp.asarray(rng.uniform(-1, 1, shape), jnp.float32)
        return jnp.asarray(rng.integers(0, 2, shape), leaf.dtype)

    episodes = jax.tree.map(numbers, whole_template(learner))
    obs = episodes.obs._replace(avail=jnp.ones_like(episodes.obs.avail), role=episodes.obs.role * 0)
    return learner, jax.jit(learner.init)(jax.random.key(0)), episodes._replace(obs=obs)


def test_parts_of_agents_add_up_to_the_gradient_of_the_loss():
    learner, state, episodes = made_up(small("roles/2", "fups_id", learner__standardise_rewards="false"))

    @jax.jit
    def both(state, episodes):
        parts = agent_gradients(learner.signal(state, episodes), learner.agent(state), BOTH)
        ended = episodes._replace(terminated=episodes.terminated | episodes.truncated, truncated=None)

        def loss(online):  # the learner's own, as its updates compute it
            cost, (_, steps) = learner._costs(online, state.target, ended, None)
            return cost / steps

        return jax.tree.map(lambda leaf: leaf.sum(axis=0), parts), jax.grad(loss)(state.online).agent

    mine, own = both(state, episodes)
    for one, other in zip(jax.tree.leaves(mine), jax.tree.leaves(own), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_actors_are_pulled_by_the_critics_as_in_their_own_steps():
    learner, state, episodes = made_up(small_steps("reach_jax/3", "nops"))
    agent = learner.agent(state)

    @jax.jit
    def both(state, episodes):
        parts = agent_gradients(learner.signal(state, episodes), agent, jnp.arange(3))
        flat = lambda leaf: leaf.reshape(-1, *leaf.shape[2:])  # noqa: E731
        local, seen = flat(episodes.obs.local[:-1]), flat(episodes.obs.state[:-1])
        played, valid = flat(episodes.action), episodes.valid.reshape(-1)

        def own(agent, index):
            action = learner.actions(agent, local, seen)[:, index]
            values = state.online.critics(learner.views.critics(seen, played.at[:, index].set(action)))
            return -jnp.sum(jnp.mean(values, axis=0) * valid) / valid.sum()

        return parts.fc2.weight, [jax.grad(own)(agent, index).fc2.weight[index] for index in range(3)]

    mine, own = both(state, episodes)
    for index in range(3):
        np.testing.assert_allclose(mine[index, index], own[index], atol=1e-6)
        assert not np.delete(mine[index], index, axis=0).any()


def test_what_follows_an_episodes_end_has_no_part_in_a_policys_gradient():
    """Of a policy with a memory, in a game that ends early."""
    learner = preset("roles/2", "fups_id", "default", "mappo")
    for path, value in {"network.width": 8, "run.envs": 2, "run.measures": 0, "run.steps": 50}.items():
        learner = learner.with_option(path, str(value))
    trainer = trainer_of(learner, LineJax("discrete"))
    state, episodes, _ = measured_state_of(trainer)
    assert not episodes.valid.all()

    @jax.jit
    def gradients(state, episodes):
        return agent_gradients(trainer.learner.signal(state, episodes), trainer.learner.agent(state), BOTH)

    over = ~jnp.concatenate([jnp.ones_like(episodes.valid[:1]), episodes.valid])[..., None, None]
    noisy = episodes.obs._replace(local=jnp.where(over, 7.0, episodes.obs.local))
    one, other = gradients(state, episodes), gradients(state, episodes._replace(obs=noisy))
    assert any(jnp.any(leaf != 0) for leaf in jax.tree.leaves(one))
    for before, after in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(before, after, atol=1e-7)


@pytest.mark.parametrize(
    ("learner", "values", "own"),
    [("qmix", "", False), ("vdn", "", False), ("iql", "", True), ("mappo", "agent", True), ("mappo", "team", False)],
)
def test_a_learner_of_the_teams_reward_is_measured_where_agents_have_rewards_of_their_own(learner, values, own):
    """With standardised rewards, for which such a learner has one scale."""
    made = preset("lbf/4x4-2p-1f-own", "fups", "default", learner)
    made = made.with_option("learner.critic_values", values) if values else made
    assert getattr(made.learner, "standardise_rewards", True)
    trainer = make_trainer(made.with_option("run.seeds", "1"))
    found = jax.eval_shape(lambda: trainer.measure(trainer.init(), jnp.int32(0), 4))
    assert (found["episodes"]["agent_reward"] is not None) == own
    assert found["cosines"]["fc1"].shape == (1, 2, 2)


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_says_what_agents_learn_from(name):
    settings = LEARNERS[name]
    task = "reach_jax/3" if settings.kinds == ("continuous",) else "roles/2"
    learner = settings().learner(METHODS["fups"](), describe(task), width=8)
    assert isinstance(learner, Signalling)


def test_large_teams_are_compared_by_evenly_spaced_agents():
    assert compared(3).tolist() == [0, 1, 2]
    assert len(compared(1000)) == 16 and compared(1000)[[0, -1]].tolist() == [0, 999]
