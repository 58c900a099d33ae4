"""MATD3 against slow computations of the same numbers."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from prism_marl.buffers.nstep import Transition, distinct, n_step
from prism_marl.buffers.ring import Ring, empty_ring
from prism_marl.errors import UserError
from prism_marl.learners.matd3 import MATD3, MATD3Learner
from prism_marl.learners.matd3_updates import Batch
from prism_marl.learners.regularisation import Balance
from prism_marl.learners.sequential import Steps, polyak_rates
from prism_marl.networks.inputs import zscore
from prism_marl.sharing import METHODS, network_regularisers
from prism_marl.types import EnvSpec

SPEC = EnvSpec(
    "toy", agents=3, observation=5, state=5, actions=2, roles=3, horizon=9, kind="continuous", shared_observation=True
)
SIZES = {"batch": 7, "buffer": 40, "warmup": 10, "critic_width": 6, "n_critics": 3, "gamma": 0.9, "tau": 0.1}
WIDTH = 8


def make(method: str = "fups_id", learner: dict | None = None, rows: int = 1, **sharing) -> MATD3Learner:
    return MATD3(**(SIZES | (learner or {}))).learner(METHODS[method](**sharing), SPEC, width=WIDTH, rows=rows)


def batch_of(seed: int = 0, spec: EnvSpec = SPEC) -> Batch:
    rng = np.random.default_rng(seed)
    b, a = SIZES["batch"], 0 if spec.shared_observation else spec.agents

    def normal(*shape):
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    return Batch(
        local=normal(b, a, spec.observation),
        state=normal(b, spec.state),
        action=jnp.asarray(rng.uniform(-1, 1, (b, spec.agents, spec.actions)), jnp.float32),
        reward=normal(b),
        discount=jnp.asarray(rng.choice([0.0, 0.81], b), jnp.float32),
        next_local=normal(b, a, spec.observation),
        next_state=normal(b, spec.state),
    )


@functools.cache
def started(learner: MATD3Learner):
    """Targets that differ from the online networks, masks (if any) that differ between agents, and singular vectors
    (if any) that are not orthonormal, so that no gradient is mere rounding."""
    state = learner.init(jax.random.key(2))  # not compiled: most of its small programs serve all methods
    rng = np.random.default_rng(1)

    def drawn(path, leaf):
        name = jax.tree_util.keystr(path)
        if name.endswith(".threshold"):
            return jnp.asarray(rng.normal(-1.5, size=leaf.shape), leaf.dtype)
        return 1.2 * leaf if name.endswith((".U", ".V")) else leaf

    online = jax.tree_util.tree_map_with_path(drawn, state.online)
    if online.agent.clusters is not None:
        online = eqx.tree_at(lambda nets: nets.agent.clusters, online, jnp.asarray([1, 0, 1]))
    larger = jax.tree.map(lambda leaf: 1.5 * leaf if eqx.is_inexact_array(leaf) else leaf, online)
    return eqx.tree_at(lambda s: (s.online, s.target), state, (online, larger))


@functools.cache
def compiled(learner: MATD3Learner):
    return jax.jit(learner.update_critics), jax.jit(learner.update_actors)


def close(ours, theirs, **tolerance) -> None:
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    for one, other in pairs:
        assert_allclose(one, other, **tolerance)


# What is read from the ring.


def ring_of(rewards, done, terminated, added: int):
    size = len(rewards)
    flat = jnp.zeros((size, 1))
    storage = Transition(flat[:, None], flat, flat[:, None], jnp.asarray(rewards, jnp.float32), jnp.asarray(done, bool),
                         jnp.asarray(terminated, bool), flat[:, None], flat)  # fmt: skip
    return Ring(storage, jnp.int32(added))


def test_n_step_returns_by_hand():
    """Two environments side by side in a ring of 12 places, 16 transitions ever added: places 2 and 3 are newest."""
    rewards = [100, 200, 300, 400, 1, 2, 3, 4, 5, 6, 7, 8]
    done = np.zeros(12, bool)
    terminated = np.zeros(12, bool)
    done[7] = terminated[7] = True  # environment 1 falls
    done[8] = True  # environment 0 meets the clock
    ring = ring_of(rewards, done, terminated, added=16)
    g = 0.5
    start = jnp.asarray([4, 5, 6, 9, 10, 0, 2, 3, 8])
    chain = jax.jit(lambda start: n_step(ring, start, envs=2, steps=3, gamma=g))(start)
    expected = {  # place: (last place, return, discount)
        4: (8, 1 + 3 * g + 5 * g**2, g**3),  # whole window; ends with the clock, which bootstraps
        5: (7, 2 + 4 * g, 0.0),  # falls inside the window: no bootstrap
        6: (8, 3 + 5 * g, g**2),  # the clock inside the window: shorter, and bootstraps from there
        9: (1, 6 + 8 * g + 200 * g**2, g**3),  # around the end of the ring
        10: (2, 7 + 100 * g + 300 * g**2, g**3),  # ... and up to the newest step
        0: (2, 100 + 300 * g, g**2),  # the newest step ends the window: what lies behind it is old
        2: (2, 300, g),
        3: (3, 400, g),
        8: (8, 5, g),
    }
    for place, last, reward, discount in zip(*map(np.asarray, chain), strict=True):
        assert (last, reward, discount) == pytest.approx(expected[int(place)]), place


def test_a_ring_that_is_not_full_is_read_up_to_its_newest_steps():
    ring = ring_of(np.arange(1, 13), np.zeros(12), np.zeros(12), added=6)
    chain = n_step(ring, jnp.asarray([0, 2, 4, 5]), envs=2, steps=5, gamma=1.0)
    assert_array_equal(chain.last, [4, 4, 4, 5])
    assert_array_equal(chain.reward, [1 + 3 + 5, 3 + 5, 5, 6])


def test_places_are_distinct_and_uniform():
    draw = jax.jit(lambda key, below: distinct(key, below, (400, 5)))
    numbers = np.asarray(draw(jax.random.key(0), jnp.int32(7)))
    assert numbers.min() == 0 and numbers.max() == 6
    assert all(len(set(row)) == 5 for row in numbers)
    counts = np.bincount(numbers.reshape(-1), minlength=7)
    assert np.abs(counts - 400 * 5 / 7).max() < 60  # four deviations
    assert sorted(np.asarray(draw(jax.random.key(1), jnp.int32(5)))[0]) == [0, 1, 2, 3, 4]


def test_a_batch_holds_the_first_and_the_last_observation_of_its_chains():
    learner = make(learner={"n_step": 2}, rows=2)
    ring = empty_ring(learner.views.stored(), 8)
    rows = np.arange(8, dtype=np.float32)
    items = Transition(jnp.zeros((8, 0, 5)), jnp.tile(rows[:, None], (1, 5)), jnp.zeros((8, 3, 2)), jnp.asarray(rows),
                       jnp.asarray(rows == 3), jnp.asarray(rows == 3), jnp.zeros((8, 0, 5)),
                       jnp.tile(rows[:, None] + 100, (1, 5)))  # fmt: skip
    ring = ring.add(items)
    batch = learner.read(ring, learner.chains(ring, jnp.asarray([1, 3, 4])))
    assert_array_equal(batch.state[:, 0], [1, 3, 4])
    assert_array_equal(batch.next_state[:, 0], [103, 103, 106])
    assert_allclose(batch.reward, [1 + 0.9 * 3, 3, 4 + 0.9 * 6], rtol=1e-6)
    assert_allclose(batch.discount, [0, 0, 0.81], rtol=1e-6)


# What networks read.


def test_vectors_are_standardised_with_their_id():
    vector = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    assert_allclose(zscore(jnp.asarray(vector)), (vector - 3) / np.sqrt(2), rtol=1e-6)
    assert_array_equal(zscore(jnp.full(4, 7.0)), np.zeros(4))
    learner, state = make(), jnp.asarray(vector, jnp.float32)[None]
    x = np.asarray(learner.views.agents(jnp.zeros((1, 0, 5)), state, jnp.arange(3)))
    for agent in range(3):
        whole = np.concatenate([vector, np.eye(3)[agent]])
        assert_allclose(x[0, agent], (whole - whole.mean()) / whole.std(), rtol=1e-5)
    alone = make("nops").views.agents(jnp.zeros((1, 0, 5)), state, jnp.arange(3))
    assert_allclose(alone, np.broadcast_to((vector - 3) / np.sqrt(2), (1, 3, 5)), rtol=1e-6)
    raw = make(learner={"standardise_inputs": False}).views
    assert_array_equal(raw.agents(jnp.zeros((1, 0, 5)), state, jnp.asarray([1]))[0, 0], [*vector, 0, 1, 0])
    assert_array_equal(raw.critics(state, jnp.ones((1, 3, 2)))[0], [*vector, *np.ones(6)])


def test_what_follows_from_another_part_is_not_stored():
    def sizes(**changes):
        spec = EnvSpec("t", 3, 4, 12, 2, 3, 9, "continuous", **changes)
        held = jax.eval_shape(MATD3().learner(METHODS["fups"](), spec, width=8).buffer).storage
        return held.local.shape[1:], held.state.shape[1:]

    assert sizes() == ((3, 4), (12,))
    assert sizes(shared_observation=True) == ((0, 4), (12,))
    assert sizes(state_is_joint=True) == ((3, 4), (0,))
    spec = EnvSpec("t", 3, 4, 12, 2, 3, 9, "continuous", state_is_joint=True)
    local, state = MATD3().learner(METHODS["fups"](), spec, width=8).views.whole(jnp.ones((2, 3, 4)), jnp.ones((2, 0)))
    assert local.shape == (2, 3, 4) and state.shape == (2, 12)


# Critics.


def slow_critic(critics, member: int, x: np.ndarray) -> np.ndarray:
    """One member on its own, in numpy."""
    for number, name in enumerate(("fc1", "fc2", "fc3")):
        layer = getattr(critics, name)
        x = x @ np.asarray(layer.dense())[member].T + np.asarray(layer.dense_bias())[member]
        if number < 2:
            if critics.norms is not None:
                norm = critics.norms[number]
                row = min(member, norm.scale.shape[0] - 1)
                x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
                x = x * np.asarray(norm.scale)[row] + np.asarray(norm.shift)[row]
            x = np.maximum(x, 0)
    return x[:, 0]


def slow_zscore(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)


def slow_values(learner, critics, state, action) -> np.ndarray:
    x = np.concatenate([slow_zscore(np.asarray(state)), np.asarray(action).reshape(len(state), -1)], -1)
    return np.stack([slow_critic(critics, member, x) for member in range(learner.settings.n_critics)])


def slow_actions(learner, actor, state) -> np.ndarray:
    """Every agent by its own matrices, in numpy."""
    out = []
    for agent in range(SPEC.agents):
        identity = agent if actor.clusters is None else int(actor.clusters[agent])
        x = np.asarray(state)
        if learner.inputs.agent_id:
            x = np.concatenate([x, np.tile(np.eye(SPEC.agents)[agent], (len(x), 1))], -1)
        x = slow_zscore(x)
        for name in ("fc1", "fc2", "fc3"):
            layer = getattr(actor, name)
            x = x @ np.asarray(layer.dense())[identity].T + np.asarray(layer.dense_bias())[identity]
            x = np.tanh(x) if name == "fc3" else np.maximum(x, 0)
        out.append(x)
    return np.stack(out, axis=1)


CRITICS = [("fups_id", {}), ("fups_id", {"critic_layernorm": True}), ("kaleidoscope", {})]


@pytest.mark.parametrize(("method", "changes"), CRITICS, ids=["plain", "norm", "masks"])
def test_targets_are_the_smallest_of_smoothed_values(method, changes):
    learner = make(method, changes | {"target_noise": 2.0, "target_clip": 0.3})  # most noise is clipped
    state, batch, key = started(learner), batch_of(), jax.random.key(3)
    assert (state.online.critics.norms is None) == (method == "fups_id" and not changes)
    noise = np.asarray(jax.random.normal(key, (7, 3, 2)))
    clipped = np.clip(2.0 * noise, -0.3, 0.3)
    assert (np.abs(2.0 * noise) > 0.3).mean() > 0.5
    action = np.clip(slow_actions(learner, state.target.agent, batch.next_state) + clipped, -1, 1)
    values = slow_values(learner, state.target.critics, batch.next_state, action)
    assert len(set(values.argmin(0))) > 1  # the smallest is not always the same one
    expected = np.asarray(batch.reward) + np.asarray(batch.discount) * values.min(0)
    assert_allclose(jax.jit(learner.targets)(state.target, batch, key), expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("method", "changes"), CRITICS, ids=["plain", "norm", "masks"])
def test_critics_take_one_adam_step_on_the_sum_of_their_errors(method, changes):
    learner = make(method, changes)
    state, batch, key = started(learner), batch_of(), jax.random.key(3)
    wanted = np.asarray(jax.jit(learner.targets)(state.target, batch, key))
    after, metrics = compiled(learner)[0](state, batch, key)
    values = slow_values(learner, state.online.critics, batch.state, batch.action)
    task = ((values - wanted) ** 2).mean(axis=1).sum()
    assert np.isclose(metrics["critic_loss"], task, rtol=1e-3)
    assert np.isclose(metrics["q"], values.mean(), rtol=1e-3, atol=1e-5)
    if method == "kaleidoscope":
        apart = float(network_regularisers(state.online.critics)["diversity"])
        assert metrics["critic_diversity"] == pytest.approx(apart, rel=1e-4) and apart < 0
        assert metrics["critic_diversity_coefficient"] == pytest.approx(abs(0.1 * task / apart), rel=1e-3)
        assert metrics["loss"] == pytest.approx(task * 0.9, rel=1e-3)
        assert state.critic_balance.task.size == 100 * learner.settings.policy_freq
    else:
        assert metrics["loss"] == metrics["critic_loss"]
    # The first step of Adam is the learning rate in the direction of the gradient's sign.
    moment = optax.tree_utils.tree_get(after.critic_optimiser, "mu")
    lr = learner.settings.critic_lr
    step = jax.tree.map(lambda m: -lr * 10 * np.asarray(m) / (np.abs(10 * np.asarray(m)) + 1e-8), moment)
    moved = jax.tree.map(lambda new, old: np.asarray(new) - np.asarray(old), after.online.critics, state.online.critics)
    close(moved, step, rtol=0, atol=2e-2 * lr)
    assert eqx.tree_equal(after.online.agent, state.online.agent) and eqx.tree_equal(after.target, state.target)
    assert int(after.updates) == 1


def test_kaleidoscopes_critics_get_fresh_thresholds_one_after_the_other():
    learner = make("kaleidoscope")
    state = started(learner)
    renew = jax.jit(learner.reset_critic)
    for number in range(4):
        before, state = state, renew(state, jax.random.key(number))
        assert int(state.critic_resets) == number + 1
        for name in ("fc1", "fc2", "fc3"):
            old, new = getattr(before.online.critics, name), getattr(state.online.critics, name)
            assert_array_equal(old.weight, new.weight)
            changed = np.asarray(old.threshold != new.threshold).any(axis=(1, 2))
            assert_array_equal(changed, np.arange(3) == number % 3)
            fresh = np.asarray(new.threshold)[number % 3]
            assert fresh.min() >= -20 and fresh.max() <= 0
        assert eqx.tree_equal(before.target, state.target) and eqx.tree_equal(before.online.agent, state.online.agent)
    first = learner.init(jax.random.key(0)).online
    assert first.critics.fc2.threshold.max() > -5 > first.agent.fc2.threshold.max()


# Actors.


def reference_actors(learner: MATD3Learner, state, batch: Batch):
    """A plain loop over agents. Separate networks have separate Adams, all others share one."""
    adam = optax.adam(learner.settings.actor_lr, eps=1e-8)
    actor, separate = state.online.agent, learner.sharing.separate_networks
    trained, fixed = eqx.partition(actor, eqx.is_inexact_array)
    moments = [adam.init(jax.tree.map(lambda leaf: leaf[0], trained)) for _ in range(2 + SPEC.agents)]
    moments = moments if separate else adam.init(trained)
    balance = Balance.empty(learner.sharing.penalties().window * SPEC.agents)
    x = learner.views.agents(batch.local, batch.state, jnp.arange(SPEC.agents))
    role = jnp.broadcast_to(jnp.arange(SPEC.agents), x.shape[:2])
    penalties, losses = learner.sharing.penalties(), []

    def network(own, trained, identity):
        if separate:
            own = jax.tree.map(lambda leaf, row: leaf.at[identity].set(row), trained, own)
        return eqx.combine(own, fixed)

    def task(own, trained, identity, agent):
        joint = batch.action.at[:, agent].set(network(own, trained, identity)(x, role)[:, agent])
        values = state.online.critics(learner.views.critics(batch.state, joint))
        return -jnp.mean(values if learner.settings.actor_q == "mean" else values[0])

    @jax.jit
    def look(own, trained, identity, agent):
        return task(own, trained, identity, agent), network_regularisers(network(own, trained, identity))

    @jax.jit
    @jax.grad
    def gradient(own, trained, identity, agent, coefficient):
        terms = network_regularisers(network(own, trained, identity))
        extra = sum(weight * terms[name] for name, weight in penalties.fixed if name in terms)
        return task(own, trained, identity, agent) + extra + coefficient * terms.get("diversity", 0.0)

    for agent in range(SPEC.agents):
        identity = agent if actor.clusters is None else int(actor.clusters[agent])
        own = jax.tree.map(lambda leaf, identity=identity: leaf[identity], trained) if separate else trained
        loss, terms = look(own, trained, identity, agent)
        losses.append(float(loss))
        coefficient = 0.0
        if "diversity" in terms:
            balance = balance.push(loss, terms["diversity"])
            coefficient = float(balance.coefficient(penalties.diversity))
        held = moments[identity] if separate else moments
        updates, held = adam.update(gradient(own, trained, identity, agent, coefficient), held)
        own = optax.apply_updates(own, updates)
        if separate:
            moments[identity] = held
            trained = jax.tree.map(lambda leaf, row, identity=identity: leaf.at[identity].set(row), trained, own)
        else:
            trained, moments = own, held
    if separate:
        moments = jax.tree.map(lambda *leaves: jnp.stack(leaves), *moments[: actor.fc1.identities])
    return eqx.combine(trained, fixed), moments, balance, np.mean(losses)


@pytest.mark.parametrize(
    ("method", "changes", "sharing"),
    [
        ("fups_id", {}, {}),
        ("nops", {"actor_q": "first"}, {}),
        ("seps", {}, {}),
        ("prism", {}, {"diversity": 0.1, "window": 2}),
        ("kaleidoscope", {}, {"diversity": 0.1}),
    ],
    ids=["fups_id", "nops", "seps", "prism", "kaleidoscope"],
)
def test_actors_step_one_after_the_other_as_in_a_plain_loop(method, changes, sharing):
    learner = make(method, {"actor_lr": 1e-2} | changes, **sharing)
    state, batch = started(learner), batch_of()
    after, metrics = compiled(learner)[1](state, batch, jnp.int32(0))
    actor, moments, balance, loss = reference_actors(learner, state, batch)
    assert metrics["actor_loss"] == pytest.approx(loss, rel=1e-3)
    # Adam divides by the gradient's size, so entries with tiny gradients carry rounding errors of either computation.
    large = jax.tree.map(lambda m: np.abs(np.asarray(m)) > 1e-6, optax.tree_utils.tree_get(moments, "mu"))
    trained = eqx.filter(after.online.agent, eqx.is_inexact_array)
    for new, wanted, sure in zip(*map(jax.tree.leaves, (trained, eqx.filter(actor, eqx.is_inexact_array), large)),
                                 strict=True):  # fmt: skip
        assert_allclose(np.where(sure, new, 0), np.where(sure, wanted, 0), rtol=0, atol=5e-4)
    counts = optax.tree_utils.tree_get(after.actor_optimiser, "count")
    assert_array_equal(counts, {"nops": [1, 1, 1], "seps": [1, 2]}.get(method, 3))
    assert_allclose(after.actor_balance.task, balance.task, rtol=1e-3, atol=1e-5)
    assert state.actor_balance.task.size == 3 * learner.sharing.penalties().window
    assert eqx.tree_equal(after.online.critics, state.online.critics)


def test_momentum_never_moves_the_network_of_another_cluster():
    """Everybody steps, then only agent 1 does: the numbers and moments of the other cluster stand still."""
    learner = make("seps", {"actor_lr": 1e-2})
    state, batch = started(learner), batch_of()
    state, _ = compiled(learner)[1](state, batch, jnp.int32(0))
    x = learner.views.agents(batch.local, batch.state, jnp.asarray([1]))

    @jax.jit
    def only_one(state):
        start = Steps(state.online.agent, state.actor_optimiser, state.actor_balance)
        task = lambda alone, now: jnp.mean(alone(x, jnp.zeros((7, 1), jnp.int32)))  # noqa: E731
        return learner._sequence.run(start, task, (jnp.asarray([1]),), jnp.int32(0))[0]

    after = only_one(state)
    before = (eqx.filter(state.online.agent, eqx.is_inexact_array), state.actor_optimiser)
    new = (eqx.filter(after.actor, eqx.is_inexact_array), after.optimiser)
    for ours, old in zip(jax.tree.leaves(new), jax.tree.leaves(before), strict=True):
        changed = np.asarray(ours != old).reshape(2, -1).any(axis=1)
        assert_array_equal(changed, [True, False])  # agent 1 is in cluster 0


@pytest.mark.parametrize(("method", "times"), [("fups_id", 3), ("nops", 1), ("prism", 3)])
def test_targets_follow_once_for_each_agent_that_uses_them(method, times):
    learner = make(method, {"actor_lr": 1e-2})
    state, batch = started(learner), batch_of()
    after, _ = compiled(learner)[1](state, batch, jnp.int32(0))

    def repeated(old, new, times):
        for _ in range(times):
            old = 0.9 * np.asarray(old) + 0.1 * np.asarray(new)
        return old

    for part, number in (("agent", times), ("critics", 1)):
        trees = [eqx.filter(getattr(nets, part), eqx.is_inexact_array)
                 for nets in (state.target, after.online, after.target)]  # fmt: skip
        for old, new, ours in zip(*map(jax.tree.leaves, trees), strict=True):
            assert_allclose(ours, repeated(old, new, number), rtol=1e-5, atol=1e-6)


def test_clusters_follow_by_their_size_and_single_averages_are_one_flag_away():
    learner = make("seps")
    actor = started(learner).online.agent
    rates = polyak_rates(actor, learner.sharing, 0.1, agents=3, repeat=True)
    assert_allclose(rates, [0.1, 0.19], rtol=1e-6)  # labels 1, 0, 1
    for method in ("seps", "fups_id", "nops"):
        once = polyak_rates(started(make(method)).online.agent, METHODS[method](), 0.1, agents=3, repeat=False)
        assert_allclose(once, 0.1, rtol=1e-6)


def test_many_agents_are_computed_one_after_the_other_with_the_same_numbers(monkeypatch):
    batch = batch_of()
    for method in ("prism", "seps", "nops", "snp"):
        learner = make(method)
        actor = started(learner).online.agent
        at_once = learner.actions(actor, batch.local, batch.state)
        assert_allclose(at_once, slow_actions(learner, actor, batch.state), rtol=1e-3, atol=1e-5)
        with monkeypatch.context() as patch:
            patch.setattr("prism_marl.learners.matd3_updates.AT_ONCE", 0)
            in_turn = learner.actions(actor, batch.local, batch.state)
            alone, _ = learner.update_actors(started(learner), batch, jnp.int32(0))
        assert_allclose(in_turn, at_once, rtol=1e-4, atol=1e-6)
        together, _ = learner.update_actors(started(learner), batch, jnp.int32(0))
        close(alone.online.agent, together.online.agent, rtol=1e-4, atol=1e-6)


def test_long_inputs_are_not_repeated_for_every_critic(monkeypatch):
    learner, x = make("kaleidoscope"), jnp.asarray(np.random.default_rng(0).normal(size=(7, 11)), jnp.float32)
    members = started(learner).online.critics
    short, repeated = members.first(x), f"f32[{members.fc1.identities},7,11]"
    assert repeated in str(jax.make_jaxpr(members.first)(x))
    monkeypatch.setattr("prism_marl.networks.critic.LONG", 0)
    assert repeated not in str(jax.make_jaxpr(members.first)(x))
    assert_allclose(members.first(x), short, rtol=1e-5, atol=1e-6)


def test_agents_with_observations_of_their_own():
    spec = EnvSpec("t", agents=3, observation=4, state=12, actions=2, roles=3, horizon=9, kind="continuous")
    learner = MATD3(**SIZES).learner(METHODS["multihead"](), spec, width=WIDTH)
    state, batch = learner.init(jax.random.key(0)), batch_of(spec=spec)
    state, metrics = jax.jit(learner.update_critics)(state, batch, jax.random.key(1))
    state, more = jax.jit(learner.update_actors)(state, batch, jnp.int32(0))
    assert all(np.isfinite(value) for value in (metrics | more).values())


# Settings.


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"warmup": 5}, ["learner.warmup", "7"]),
        ({"buffer": 41}, ["learner.buffer", "42"]),
        ({"n_step": 0}, ["learner.n_step", "5"]),
        ({"tau": 2.0}, ["learner.tau", "0.005"]),
        ({"explore": -1.0}, ["learner.explore", "0.1"]),
        ({"train_interval": 30}, ["learner.train_interval", "20"]),
    ],
)
def test_wrong_settings_are_named(change, words):
    with pytest.raises(UserError) as error:
        MATD3(**(SIZES | {"train_interval": 5} | change)).validate(SPEC, envs=2)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_kinds_of_actions_must_fit():
    discrete = EnvSpec("d", 3, 4, 4, 5, 3, 9)
    with pytest.raises(UserError, match="MATD3 needs continuous actions, but 'd' has discrete ones; use qmix"):
        MATD3().validate(discrete, envs=10)
    few = EnvSpec("r", 3, 4, 4, 5, 2, 9, "continuous")
    with pytest.raises(UserError, match=r"sharing\.masks: .* 'agent'"):
        MATD3().learner(METHODS["prism"](masks="role"), few, width=8)


@pytest.mark.parametrize("method", ["fups_id", "nops", "prism", "kaleidoscope", "snp"])
def test_an_accelerators_forms_make_the_same_updates(method, monkeypatch):
    """Traced as for a GPU that rounds, computed by a CPU, which does not."""
    learner = make(method, {"actor_lr": 1e-2, "critic_lr": 1e-2})
    state, batch, key = started(learner), batch_of(), jax.random.key(3)

    def updated():
        def both(state):
            state, first = learner.update_critics(state, batch, key)
            state, second = learner.update_actors(state, batch, jnp.int32(0))
            return state, first | second

        return jax.jit(both)(state)

    here = updated()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with jax.default_matmul_precision("tensorfloat32"):
        there = updated()
    for part, optimiser in (("agent", "actor_optimiser"), ("critics", "critic_optimiser")):
        moments = optax.tree_utils.tree_get(getattr(here[0], optimiser), "mu")
        sure = jax.tree.map(lambda m: np.abs(np.asarray(m)) > 1e-5, moments)  # Adam also makes steps of rounding errors
        before, ours, theirs = (
            eqx.filter(getattr(each.online, part), eqx.is_inexact_array) for each in (state, here[0], there[0])
        )
        moved = 0.0
        for old, one, other, known in zip(*map(jax.tree.leaves, (before, ours, theirs, sure)), strict=True):
            assert_allclose(np.where(known, one, 0), np.where(known, other, 0), rtol=0, atol=2e-3)
            moved = max(moved, np.max(np.abs(np.where(known, one - old, 0))))
        assert moved > 9e-3  # a step of Adam: whoever leaves the update out is noticed
    close(here[1], there[1], rtol=1e-3, atol=1e-4)
