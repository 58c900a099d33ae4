"""System neural diversity, computed by hand for teams of two."""

from dataclasses import replace

import numpy as np
import pytest

from prism_marl.measures import Seen, histories, policy_distances, system_diversity
from prism_marl.measures.behaviour import _outputs, chance_diversity
from prism_marl.measures.parameters import masks_apart, private_share, zeroed
from prism_marl.policies import Contract, Policy

BOTH = np.arange(2)
DISCRETE = Contract(
    task="by hand", method="m", learner="l", agents=2, agent=None, observation=1, actions=3, kind="discrete",
    rule="argmax", exploration="epsilon", network=("fc1",), hidden=0, last_action=False, ids=0, scale=1.0,
    standardise=False, by_role=False, roles=2, identity=(0, 1),
)  # fmt: skip
CONTINUOUS = replace(DISCRETE, kind="continuous", rule="direct", exploration="noise", actions=2)


def linear(contract, weights, bias=None, spread=((0.0,),)):
    """A policy of one layer; ``weights`` are [m, actions] for an observation of one number."""
    weight = np.asarray(weights, np.float32)[:, None]
    inputs = contract.inputs
    weight = np.pad(weight, ((0, 0), (0, inputs - 1), (0, 0)))
    bias = np.zeros((1, weight.shape[2])) if bias is None else bias
    tensors = {"fc1.weight": weight, "fc1.bias": np.asarray(bias, np.float32)}
    return Policy(contract, tensors | {"explore": np.asarray(spread, np.float32)})


def saw(*values, legal=None, agents=2, actions=3):
    """Observations of one number, all made by the first agent."""
    local = np.asarray(values, np.float32)[None, :, None]
    shape = local.shape[:2]
    avail = np.ones((*shape, actions), bool) if legal is None else np.asarray(legal, bool)[None]
    role = np.broadcast_to(np.arange(agents), (*shape, agents))
    return Seen(local, np.full(shape, -1), avail, np.ones(shape, bool), role, np.zeros(shape[1], int))


def between(policy, seen, **how):
    table = policy_distances(policy, seen, BOTH, **how)
    assert np.array_equal(table, table.T) and not table.diagonal().any()
    return table[0, 1]


def test_deterministic_actions_are_as_far_apart_as_their_vectors():
    policy = linear(CONTINUOUS, [[3, 4], [0, 0]])
    assert between(policy, saw(0.1, 0.3, actions=2)) == pytest.approx((0.5 + 1.5) / 2)


def test_gaussians_are_a_wasserstein_distance_apart():
    policy = linear(CONTINUOUS, [[0.3, 0], [0, 0]], spread=[[0.1, 0.5], [0.5, 0.5]])
    assert between(policy, saw(1.0, actions=2)) == pytest.approx(0.5)  # sqrt(0.3^2 + 0.4^2)


def test_action_values_are_compared_by_the_best_action():
    policy = linear(DISCRETE, [[1, 0, -1], [-1, 0, 1]])
    assert between(policy, saw(1.0, 2.0, -3.0)) == 1.0  # opposite: never the same action
    policy = linear(DISCRETE, [[1, 0, -1], [2, 1, -9]])
    assert between(policy, saw(1.0, 2.0, 3.0, -1.0)) == 0.0  # other values, the same choices
    assert between(policy, saw(-1.0, 1.0, legal=[[1, 1, 0], [1, 1, 1]])) == 0.0
    policy = linear(DISCRETE, [[1, 0, -1], [0, 1, -1]])
    assert between(policy, saw(1.0, 1.0, 1.0, -1.0)) == 0.75


def test_sampled_actions_are_a_total_variation_apart():
    sampling = replace(DISCRETE, exploration="softmax")
    policy = linear(sampling, [[np.log(2), 0, 0], [0, 0, 0]])
    # (1/2, 1/4, 1/4) against (1/3, 1/3, 1/3); where the last is not legal, (2/3, 1/3) against (1/2, 1/2)
    assert between(policy, saw(1.0)) == pytest.approx(1 / 6)
    assert between(policy, saw(1.0, legal=[[1, 1, 0]])) == pytest.approx(1 / 6)
    assert between(policy, saw(1.0, legal=[[1, 0, 0]])) == 0.0


def test_agents_with_the_same_numbers_are_exactly_alike():
    for contract in (DISCRETE, CONTINUOUS, replace(DISCRETE, exploration="softmax")):
        actions = contract.actions
        policy = linear(contract, np.random.default_rng(0).normal(size=(1, actions)))
        assert between(policy, saw(0.1, 0.2, 0.7, actions=actions)) == 0.0
    team = replace(CONTINUOUS, agents=4, identity=(0, 1, 0, 1))
    table = policy_distances(linear(team, [[1, 0], [0, 1]]), saw(1.0, agents=4, actions=2), np.arange(4))
    assert table[0, 2] == table[1, 3] == 0 and table[0, 1] == table[2, 3] == pytest.approx(2**0.5)
    assert system_diversity(table) == pytest.approx(4 * 2**0.5 / 6)


def test_what_ids_do_is_told_from_what_matrices_do():
    weight = np.array([[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]], np.float32)  # reads the observation and two ids
    tensors = {"fc1.weight": weight, "fc1.bias": np.zeros((1, 2), np.float32), "explore": np.zeros((1, 1), np.float32)}
    policy, seen = Policy(replace(CONTINUOUS, ids=2), tensors), saw(0.5, 0.7, actions=2)
    assert between(policy, seen) == pytest.approx(2**0.5)
    assert between(policy, seen, own_id=False) == 0.0
    own = linear(replace(CONTINUOUS, ids=2), [[1, 0], [0, 1]])
    assert between(own, seen) == between(own, seen, own_id=False) == pytest.approx(2**0.5 * 0.6)


def test_a_memory_holds_what_the_observer_saw_and_did():
    """On its own history an agent's outputs are those with which it acted."""
    rng, agents, hidden, steps = np.random.default_rng(0), 2, 3, 4
    sizes = {"fc1": (6, 3), "input": (3, 9), "hidden": (3, 9), "fc4": (3, 3)}
    tensors: dict[str, np.ndarray] = {"explore": np.zeros((1, 1), np.float32)}
    for name, (inputs, outputs) in sizes.items():
        tensors[f"{name}.weight"] = rng.normal(size=(agents, inputs, outputs)).astype(np.float32)
        tensors[f"{name}.bias"] = rng.normal(size=(agents, outputs)).astype(np.float32)
    contract = replace(
        DISCRETE, network=("fc1", "relu", "gru", "fc4"), hidden=hidden, last_action=True, ids=2, scale=0.5
    )
    policy = Policy(contract, tensors)
    local = rng.normal(size=(steps, 1, agents, 1)).astype(np.float32)
    memory, spoken, acted = policy.reset(1), [], []
    for now in local:
        spoken.append(policy.outputs(now, memory)[0])
        action, memory = policy.act(now, memory)
        acted.append(action)
    episodes = {
        "local": local, "avail": np.ones((steps, 1, agents, 3), bool), "action": np.stack(acted),
        "valid": np.ones((steps, 1), bool), "role": np.broadcast_to(BOTH, (steps, 1, agents)),
    }  # fmt: skip
    seen = histories(episodes, memory=True, kind="discrete")
    found = _outputs(policy, seen, BOTH, own_id=True)  # [t, k, n, u]
    for agent in BOTH:
        np.testing.assert_allclose(found[:, list(seen.agent).index(agent), agent], np.stack(spoken)[:, 0, agent], 1e-4)


def test_only_steps_with_a_choice_count():
    local = np.arange(6, dtype=np.float32).reshape(3, 1, 2, 1)
    avail = np.ones((3, 1, 2, 3), bool)
    avail[1, 0, 0] = [True, False, False]
    valid = np.array([[True], [True], [False]])
    role, action = np.zeros((3, 1, 2), int), np.zeros((3, 1, 2), int)
    episodes = {"local": local, "avail": avail, "valid": valid, "role": role, "action": action}
    assert histories(episodes, memory=False, kind="discrete").local.ravel().tolist() == [0, 1, 3]
    long = histories(episodes, memory=True, kind="discrete")
    assert long.counts.T.tolist() == [[True, False, False], [True, True, False]] and long.last[:, 0].tolist() == [
        -1,
        0,
        0,
    ]


def test_chance_is_what_separate_fresh_networks_give():
    seen = saw(*np.linspace(-1, 1, 50), actions=2)
    policy = linear(CONTINUOUS, [[0, 0], [0, 0]])
    # Two weights and biases, uniform in [-1, 1]: a difference has the mean square 2/3 (1 + x^2) in each action
    assert 0.8 < chance_diversity(policy, seen) < 1.5
    assert chance_diversity(policy, seen) == chance_diversity(linear(CONTINUOUS, [[9, 9], [0, 1]]), seen)
    assert 0 < chance_diversity(linear(replace(DISCRETE, ids=2), [[0, 0, 0]]), saw(0.1, 0.5)) <= 1


def test_the_private_share_of_matrices():
    same, opposite = linear(CONTINUOUS, [[1, 2]]), linear(CONTINUOUS, [[1, 2], [-1, -2]])
    assert private_share(same, BOTH) == {"fc1": 0.0, "all": 0.0}
    assert private_share(opposite, BOTH) == {"fc1": 2.0, "all": 2.0}
    assert private_share(linear(CONTINUOUS, [[3, 0], [0, 4]]), BOTH)["all"] == 1.0
    biased = linear(CONTINUOUS, [[1, 2]], bias=[[0, 0], [2, 0]])
    assert private_share(biased, BOTH)["fc1"] == pytest.approx(4 / (5 + 9))


def test_masks_by_hand():
    assert masks_apart({"fc1": np.array([[1, 1, 0], [1, 0, 1]]), "fc2": np.array([[1], [1]])}) == 0.5
    assert masks_apart({"fc1": np.array([[1, 0], [0, 1], [1, 0]])}) == pytest.approx(2 / 3)
    assert np.isnan(masks_apart({}))
    masks = zeroed(linear(CONTINUOUS, [[1, 0], [0, 1]]))
    assert masks_apart(masks) == 1.0 and not zeroed(linear(CONTINUOUS, [[1, 2], [3, 4]]))
