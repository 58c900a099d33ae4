"""QMIX against a slow computation of the same numbers, episode by episode and step by step."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from prism_marl.learners import QMix, QMixLearner, packed, padding
from prism_marl.learners.base import Mode, Trajectory
from prism_marl.learners.regularisation import Balance, regularised
from prism_marl.learners.rewards import RewardScale
from prism_marl.learners.value import Memory
from prism_marl.sharing import METHODS, network_regularisers
from prism_marl.types import EnvSpec, Observation

SPEC = EnvSpec("toy", agents=3, observation=4, state=5, actions=4, roles=3, horizon=5)
SIZES = {"batch": 4, "buffer": 8, "embed": 4, "hypernet": 6, "gamma": 0.9, "time_limit_ends": False}
LENGTHS = (2, 5, 5, 3)  # ends early, meets the clock, ends with the clock, meets an early clock
ENDS = (True, False, True, False)


def make(method: str = "fups_id", learner: dict | None = None, **sharing) -> QMixLearner:
    return QMixLearner(QMix(**(SIZES | (learner or {}))), METHODS[method](**sharing), SPEC, width=8)


def batch_of(seed: int = 0, padding: float = 7.0) -> Trajectory:
    """Random episodes [b, t, ...] whose slots after the end hold nonsense."""
    rng = np.random.default_rng(seed)
    b, t, a, u = len(LENGTHS), SPEC.horizon, SPEC.agents, SPEC.actions
    valid = np.arange(t) < np.array(LENGTHS)[:, None]
    ended = (np.arange(t) == np.array(LENGTHS)[:, None] - 1) & np.array(ENDS)[:, None]
    avail = rng.random((b, t + 1, a, u)) < 0.6
    avail |= rng.integers(0, u, (b, t + 1, a, 1)) == np.arange(u)  # at least one
    local, state = rng.normal(size=(b, t + 1, a, SPEC.observation)), rng.normal(size=(b, t + 1, SPEC.state))
    after = np.arange(t + 1) > np.array(LENGTHS)[:, None]
    local[after], state[after] = padding, -padding
    reward = np.where(valid, rng.normal(size=(b, t)), padding)
    role = np.broadcast_to(np.arange(a), (b, t + 1, a))
    action = rng.integers(0, u, (b, t, a))
    obs = zip((local, state, avail, role), (np.float32, np.float32, bool, np.int16), strict=True)
    return Trajectory(
        obs=Observation(*(jnp.asarray(leaf.astype(kind)) for leaf, kind in obs)),
        next_obs=None,
        action=jnp.asarray(action.astype(np.int16)),
        reward=jnp.asarray(reward.astype(np.float32)),
        agent_reward=None,
        terminated=jnp.asarray(ended),
        truncated=None,
        valid=jnp.asarray(valid),
    )


@functools.cache
def started(learner: QMixLearner):
    """A state whose target differs from the online network, whose masks (if any) differ between agents, and whose
    singular vectors (if any) are not orthonormal."""
    state = jax.jit(learner.init)(jax.random.key(0))
    rng = np.random.default_rng(1)

    def drawn(path, leaf):
        name = jax.tree_util.keystr(path)
        if name.endswith(".threshold"):
            return jnp.asarray(rng.normal(-1.5, size=leaf.shape), leaf.dtype)
        return jnp.asarray(1.2 * np.asarray(leaf)) if name.endswith(".U") else leaf

    def larger(leaf):
        return jnp.asarray(1.5 * np.asarray(leaf)) if eqx.is_inexact_array(leaf) else leaf

    agent = jax.tree_util.tree_map_with_path(drawn, state.online.agent)
    return eqx.tree_at(lambda s: (s.online.agent, s.target), state, (agent, jax.tree.map(larger, state.target)))


def slow_values(learner: QMixLearner, agent, batch: Trajectory):
    """Action values [b, t+1, a, u], one cell after the other, with inputs put together by hand."""
    number, slots = batch.obs.local.shape[:2]
    hidden, values = jnp.zeros((number, SPEC.agents, learner.width)), []
    for t in range(slots):
        last = jnp.zeros((number, SPEC.agents, SPEC.actions))
        if t > 0:
            last = jnp.eye(SPEC.actions)[batch.action[:, t - 1]]
        me = jnp.broadcast_to(jnp.eye(SPEC.agents), (number, SPEC.agents, SPEC.agents))
        parts = [batch.obs.local[:, t], last, me] if learner.settings.last_action else [batch.obs.local[:, t], me]
        hidden, q = agent(hidden, jnp.concatenate(parts, axis=-1), batch.obs.role[:, t])
        values.append(q)
    return jnp.stack(values, axis=1)


def slow_targets(learner: QMixLearner, state, batch: Trajectory) -> np.ndarray:
    """Double Q over legal actions and the recursion of TD(lambda), in plain loops."""
    online = np.asarray(jax.jit(lambda agent: slow_values(learner, agent, batch))(state.online.agent))
    target = np.asarray(jax.jit(lambda agent: slow_values(learner, agent, batch))(state.target.agent))
    avail, picked = np.asarray(batch.obs.avail), np.zeros(online.shape[:3], np.float32)
    assert (online.argmax(-1) != np.where(avail, online, -np.inf).argmax(-1)).sum() > 5  # legality must matter
    for place in np.ndindex(*picked.shape):
        legal = [u for u in range(SPEC.actions) if avail[place][u]]
        best = max(legal, key=lambda u, place=place: online[place][u])
        picked[place] = target[place][best]
    mixed = np.asarray(state.target.mixer(jnp.asarray(picked), batch.obs.state))
    gamma, lam, out = learner.settings.gamma, learner.settings.td_lambda, np.zeros((len(LENGTHS), SPEC.horizon))
    for b, (length, ends) in enumerate(zip(LENGTHS, ENDS, strict=True)):
        following = 0.0 if ends else float(mixed[b, length])
        for t in reversed(range(length)):
            bootstrap = 0.0 if ends and t == length - 1 else float(mixed[b, t + 1])
            out[b, t] = float(batch.reward[b, t]) + gamma * ((1 - lam) * bootstrap + lam * following)
            following = out[b, t]
    return out


def slow_loss(learner: QMixLearner, online, targets: np.ndarray, batch: Trajectory):
    values = slow_values(learner, online.agent, batch)[:, :-1]
    chosen = jnp.take_along_axis(values, batch.action[..., None].astype(int), axis=-1)[..., 0]
    error = online.mixer(chosen, batch.obs.state[:, :-1]) - targets
    squares = [jnp.sum(error[b, :length] ** 2) for b, length in enumerate(LENGTHS)]
    return (0.5 if learner.settings.half_loss else 1.0) * sum(squares) / sum(LENGTHS)


def standardised(batch: Trajectory) -> Trajectory:
    """Rewards after one look at this batch, padding included; the memory before it weighs 1e-4."""
    reward = np.asarray(batch.reward, np.float64)
    weight = np.array([1e-4, reward.size])
    mean = weight[1] * reward.mean() / weight.sum()
    variance = (weight @ [1 + mean**2, reward.var(ddof=1) + (reward.mean() - mean) ** 2]) / weight.sum()
    return batch._replace(reward=jnp.asarray((reward - mean) / np.sqrt(variance), jnp.float32))


@functools.cache
def by_jax(learner: QMixLearner):
    """The compiled update."""
    return jax.jit(lambda state, batch: learner.improve(state, batch, jnp.int32(0)))


def leaves_close(ours, theirs, **tolerance) -> bool:
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    return all(np.allclose(one, other, **tolerance) for one, other in pairs)


# Clips so hard that Adam's eps counts.
BATTLES = {"last_action": True, "td_lambda": 0.6, "half_loss": True, "standardise_rewards": True, "clip": 1e-7}
ONE_STEP = {"last_action": False, "td_lambda": 0.0, "half_loss": False}


@pytest.mark.parametrize("shortest", [1, 20])  # packed, and as a padded block
def test_one_update_equals_the_slow_computation(shortest, monkeypatch):
    monkeypatch.setattr(packed, "SHORTEST", shortest)
    by_jax.cache_clear()
    learner, batch = make(learner=BATTLES), batch_of()
    state = started(learner)
    targets = slow_targets(learner, state, standardised(batch))
    slow, gradient = jax.jit(jax.value_and_grad(lambda online: slow_loss(learner, online, targets, batch)))(
        state.online
    )
    after, metrics = by_jax(learner)(state, batch)
    assert metrics["loss"] == metrics["td_loss"]
    assert np.isclose(metrics["loss"], slow, rtol=1e-4)
    norm = np.sqrt(sum(float(np.vdot(leaf, leaf)) for leaf in jax.tree.leaves(gradient)))
    assert np.isclose(metrics["grad_norm"], norm, rtol=1e-3)
    clipped = jax.tree.map(lambda leaf: np.asarray(leaf) * min(1.0, 1e-7 / norm), gradient)
    moment = optax.tree_utils.tree_get(after.optimiser, "mu")
    largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(clipped))
    assert leaves_close(moment, jax.tree.map(lambda g: 0.1 * g, clipped), rtol=1e-2, atol=1e-4 * largest)
    lr = learner.settings.lr
    own = jax.tree.map(lambda m: 10 * np.asarray(m), moment)
    expected = jax.tree.map(lambda w, g: np.asarray(w) - lr * g / (np.abs(g) + 1e-8), state.online, own)
    assert leaves_close(after.online, expected, rtol=0, atol=2e-2 * lr)


def test_slots_after_the_end_do_not_matter():
    learner = make(learner=BATTLES | {"standardise_rewards": False})
    state = started(make(learner=BATTLES))
    loss = jax.jit(lambda batch: learner.improve(state, batch, jnp.int32(0))[1])
    one, other = loss(batch_of(padding=7.0)), loss(batch_of(padding=-100.0))
    assert one.keys() == other.keys() and all(np.isclose(one[name], other[name], rtol=1e-5) for name in one)


def test_gradients_reach_agent_and_mixer_and_never_the_target():
    learner, batch = make(learner=ONE_STEP), batch_of()
    state = started(learner)
    episode = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), batch)

    def loss(online, target):
        cost, (_, steps) = learner._costs(online, target, episode, None)
        return cost / steps

    value, (to_online, to_target) = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(state.online, state.target)
    targets = slow_targets(learner, state, batch)
    slow = jax.jit(lambda online: slow_loss(learner, online, targets, batch))(state.online)
    assert np.isclose(value, slow, rtol=1e-4)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(to_online))
    assert all(np.abs(leaf).max() == 0 for leaf in jax.tree.leaves(to_target))


def test_the_target_is_copied_at_its_interval_and_labels_and_masks_never_change():
    learner, labels = make("adaps", {"target_interval": 3}, ratio=0.4, random_masks=True), jnp.array([1, 0, 1])
    places = lambda s: (s.online.agent.clusters, s.target.agent.clusters)  # noqa: E731
    state, update, same = eqx.tree_at(places, started(learner), (labels, labels)), by_jax(learner), eqx.tree_equal
    fixed = eqx.partition(state.online, eqx.is_inexact_array)[1]
    assert any(leaf.dtype == bool and not leaf.all() for leaf in jax.tree.leaves(fixed))
    for number in range(1, 8):
        before = state
        state, _ = update(state, batch_of(number))
        assert state.updates == number
        assert not same(state.online, before.online)
        assert bool(same(state.target, state.online if number % 3 == 0 else before.target))
        assert bool(same(eqx.partition(state.online, eqx.is_inexact_array)[1], fixed))


def test_a_slow_target_moves_by_its_share_and_keeps_its_labels():
    learner = make("adaps", {"target_rate": 0.25}, ratio=0.4, random_masks=True)
    state = started(make("adaps", {"target_interval": 3}, ratio=0.4, random_masks=True))
    moved = jax.jit(learner._follow)(state.target, state.online, jnp.int32(1))
    expected = jax.tree.map(
        lambda old, new: 0.75 * np.asarray(old) + 0.25 * np.asarray(new) if eqx.is_inexact_array(old) else old,
        state.target,
        state.online,
    )
    assert leaves_close(moved, expected, rtol=1e-5)


def test_diversity_enters_with_the_coefficient_of_a_window_that_holds_the_present():
    learner = make("prism", {"lr": 1e-2}, window=2, ortho=0.5)
    state, update, task, apart = started(learner), by_jax(learner), [], []
    for number in range(3):
        state, metrics = update(state, batch_of(number))
        task.append(float(metrics["td_loss"]))
        apart.append(float(metrics["diversity"]))
        assert apart[-1] < 0 < metrics["orthogonality"]
        expected = abs(5.0 * np.mean(task[-2:]) / np.mean(apart[-2:]))
        assert np.isclose(metrics["diversity_coefficient"], expected, rtol=1e-4)
        whole = task[-1] + expected * apart[-1] + 0.5 * float(metrics["orthogonality"])
        assert np.isclose(metrics["loss"], whole, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("method", "ortho"), [("prism", 0.5), ("kaleidoscope", 0.0)])
def test_the_coefficient_is_a_number_to_the_gradient(method, ortho):
    learner = make(method, {"lr": 1e-2}, window=2, **({"ortho": ortho} if ortho else {}))
    agent = started(learner).online.agent
    balance = Balance.empty(2).push(jnp.float32(9.0), jnp.float32(-1.0)).push(jnp.float32(4.0), jnp.float32(-3.0))
    trained, fixed = eqx.partition(agent, eqx.is_inexact_array)

    def task(trained):
        return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(trained))

    def ours(trained):
        return regularised(task(trained), eqx.combine(trained, fixed), learner.sharing.penalties(), balance)[0]

    def by_hand(trained, coefficient):
        found = network_regularisers(eqx.combine(trained, fixed))
        return task(trained) + coefficient * found["diversity"] + ortho * found.get("orthogonality", 0.0)

    apart = float(jax.jit(network_regularisers)(agent)["diversity"])
    coefficient = abs(5.0 * (4.0 + float(task(trained))) / (-3.0 + apart))
    one, gradient = jax.jit(jax.value_and_grad(ours))(trained)
    other, expected = jax.jit(jax.value_and_grad(by_hand))(trained, coefficient)
    assert np.isclose(one, other, rtol=1e-5)
    assert leaves_close(gradient, expected, rtol=1e-4, atol=1e-5)
    pushed = zip(jax.tree.leaves(gradient), jax.tree.leaves(trained), strict=True)
    assert max(np.abs(np.asarray(leaf) - 2 * np.asarray(weight)).max() for leaf, weight in pushed) > 1e-2


def observation(number: int, seed: int = 3) -> Observation:
    rng = np.random.default_rng(seed)
    shape = (number, SPEC.agents)
    avail = rng.random((*shape, SPEC.actions)) < 0.5
    avail[..., 2] |= ~avail.any(-1)
    return Observation(
        jnp.asarray(rng.normal(size=(*shape, SPEC.observation)), jnp.float32),
        jnp.zeros((number, SPEC.state)),
        jnp.asarray(avail),
        jnp.broadcast_to(jnp.arange(SPEC.agents), shape),
    )


def acting(number: int, epsilon: float, draw: float | None = None, mode: Mode = "explore"):
    """Greedy choices by hand, and what ``act`` chose; ``draw`` replaces its random numbers."""
    rates = {"epsilon_start": epsilon, "epsilon_finish": epsilon}
    learner, obs = make(learner={"last_action": True} | rates), observation(number)
    agent = jax.jit(learner.build_agent)(jax.random.key(1))
    hidden = jax.random.normal(jax.random.key(2), (number, SPEC.agents, 8))
    last = jnp.full((number, SPEC.agents), -1).at[::2].set(1)
    me = jnp.broadcast_to(jnp.eye(SPEC.agents), (number, SPEC.agents, SPEC.agents))
    one_hot = jnp.where(last[..., None] == jnp.arange(SPEC.actions), 1.0, 0.0)
    after, values = jax.jit(agent.__call__)(hidden, jnp.concatenate([obs.local, one_hot, me], axis=-1), obs.role)
    greedy = np.where(obs.avail, values, -np.inf).argmax(-1)

    def act(draw):
        with pytest.MonkeyPatch.context() as patch:
            if draw is not None:
                patch.setattr(jax.random, "uniform", lambda key, shape: jnp.broadcast_to(draw, shape))
            memory = Memory(hidden, last)
            return learner.act(agent, memory, obs, jax.random.key(9), jnp.int32(0), mode)

    memory, action, extras = jax.jit(act)(draw)
    assert np.allclose(memory.hidden, after, atol=1e-6) and extras == ()
    assert (memory.last_action == action).all()  # which is what the agents read next
    legal = np.take_along_axis(np.asarray(obs.avail), np.asarray(action)[..., None], -1)
    assert legal.all()
    return greedy, np.asarray(action), np.asarray(obs.avail)


def test_acting_is_greedy_over_legal_actions_without_exploration():
    for mode in ("explore", "greedy"):
        greedy, action, _ = acting(500, 0.0, mode=mode)
        assert (action == greedy).all()


def test_random_play_asks_no_network():
    """Before learning, all legal actions are equally likely, and the memory stays as it was."""
    learner, obs = make(), observation(5_000)
    agent = learner.build_agent(jax.random.key(1))
    memory = learner.memory(agent, 5_000)
    act = jax.jit(lambda memory, obs: learner.act(agent, memory, obs, jax.random.key(9), jnp.int32(0), "random"))
    after, action, _ = act(memory, obs)
    assert (after.hidden == memory.hidden).all() and (after.last_action == action).all()
    here = np.asarray(obs.avail).all(-1)
    counts = np.bincount(np.asarray(action)[here], minlength=SPEC.actions)
    assert np.abs(counts - here.sum() / SPEC.actions).max() < 5 * np.sqrt(here.sum() / SPEC.actions)


def test_exploration_is_uniform_over_legal_actions():
    _, action, avail = acting(20_000, 1.0)
    patterns = np.unique(avail.reshape(-1, SPEC.actions), axis=0)
    assert len(patterns) == 2**SPEC.actions - 1
    for pattern in patterns:
        here = (avail == pattern).all(-1)
        counts = np.bincount(action[here], minlength=SPEC.actions)[pattern]
        expected = here.sum() / pattern.sum()
        assert ((counts - expected) ** 2 / expected).sum() < 25  # chi-square with at most 3 degrees of freedom


def test_exploration_happens_as_often_as_it_should():
    greedy, action, avail = acting(20_000, 0.3)
    wrong = 0.3 * (1 - 1 / avail.sum(-1))  # a random action is the greedy one now and then
    number = action.size
    assert abs((action != greedy).sum() - wrong.sum()) < 5 * np.sqrt(number * 0.25)


def test_a_draw_just_below_epsilon_is_still_legal():
    """An optimising compiler multiplies by 1 / epsilon, and that may round up to one."""
    rates = np.linspace(0.05, 0.95, 500, dtype=np.float32)
    below = np.nextafter(rates, np.float32(0))
    worst = np.flatnonzero(below * (np.float32(1) / rates) >= 1)[0]
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        acting(50, float(rates[worst]), draw=float(below[worst]))
    finally:
        jax.config.update("jax_disable_most_optimizations", True)


def test_random_actions_until_the_clusters_are_known():
    learner = make("seps", {"epsilon_anneal": 100}, pretraining=1_000)
    assert [float(learner.epsilon(jnp.int32(step))) for step in (0, 500, 999)] == [1.0, 1.0, 1.0]
    assert np.isclose(learner.epsilon(jnp.int32(1_000)), 0.05)


def test_reward_scale_equals_a_direct_computation_over_everything_seen():
    """Steps that no episode of a batch has reached do not count; zeros behind the end of a shorter episode do."""
    rng = np.random.default_rng(0)
    first, second = (rng.normal(3.0, 2.0, size=(5, 7)).astype(np.float32), np.zeros((6, 2), np.float32))
    second[:4, 0], second[:2, 1] = rng.normal(size=4) - 8, rng.normal(size=2) - 8
    reached = np.arange(6)[:, None] < np.array([4, 2])
    scale = RewardScale.fresh()
    scale = scale.update(jnp.asarray(first), jnp.ones((5, 7), bool)).update(jnp.asarray(second), jnp.asarray(reached))
    batches = [first, second[:4]]
    sizes = np.array([1e-4, *(batch.size for batch in batches)])
    means = np.array([0.0, *(batch.mean() for batch in batches)])
    spreads = np.array([1.0, *(batch.var(ddof=1) for batch in batches)])
    mean = (sizes * means).sum() / sizes.sum()
    variance = (sizes * (spreads + (means - mean) ** 2)).sum() / sizes.sum()
    assert np.isclose(scale.count, sizes.sum(), rtol=1e-6)
    assert np.isclose(scale.mean, mean, rtol=1e-5)
    assert np.isclose(scale.variance, variance, rtol=1e-5)
    assert np.allclose(scale.apply(jnp.asarray(first)), (first - mean) / np.sqrt(variance), rtol=1e-4)


@pytest.mark.parametrize("valid", [True, False])
def test_a_single_reward_has_no_spread_of_its_own_and_a_lost_batch_changes_nothing_to_nan(valid):
    scale = RewardScale.fresh().update(jnp.array([[2.0]]), jnp.array([[valid]]))
    assert np.isfinite(scale.apply(jnp.array([2.0]))).all() and scale.count == np.float32(1e-4 + valid)


def test_one_block_in_fewer_rows_gives_the_same_update(monkeypatch):
    """Of four episodes in two, three and four rows; every one of these versions must be the whole computation."""
    learner = make("fups_id", learner={"standardise_rewards": True})
    state = started(learner)
    whole = jax.jit(lambda state, batch: learner.improve(state, batch, jnp.int32(0)))
    expected = [whole(state, shorter(longest)) for longest in (2, 3, 5)]
    monkeypatch.setattr(packed, "WORTHWHILE", 1)
    monkeypatch.setattr(padding, "in_blocks", lambda: False)
    cut = jax.jit(lambda state, batch: learner.improve(state, batch, jnp.int32(0)))
    for longest, wanted in zip((2, 3, 5), expected, strict=True):
        assert eqx.tree_equal(cut(state, shorter(longest)), wanted, rtol=1e-4, atol=1e-6)


def shorter(longest: int) -> Trajectory:
    batch = batch_of()
    return batch._replace(valid=batch.valid & (jnp.arange(SPEC.horizon) < longest))


@pytest.mark.parametrize("method", ["fups_id", "prism", "snp", "seps"])
def test_episodes_in_fewer_rows_give_the_same_update(method, monkeypatch):
    """Rows for two and for three of the four episodes, against the padded block."""
    learner = make(method, learner={"standardise_rewards": True, "last_action": True, "td_lambda": 0.6})
    state = started(learner)
    whole = jax.jit(lambda state, batch: learner.improve(state, batch, jnp.int32(0)))
    expected = [whole(state, shorter(longest)) for longest in (2, 5)]
    monkeypatch.setattr(packed, "SHORTEST", 1)
    in_rows = jax.jit(lambda state, batch: learner.improve(state, batch, jnp.int32(0)))
    for longest, wanted in zip((2, 5), expected, strict=True):
        assert eqx.tree_equal(in_rows(state, shorter(longest)), wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("in_blocks", [True, False])
def test_seeds_side_by_side_compute_one_length_and_not_all(in_blocks, monkeypatch):
    monkeypatch.setattr(packed, "WORTHWHILE", 1)
    monkeypatch.setattr(packed, "SHORTEST", 1)
    monkeypatch.setattr(padding, "in_blocks", lambda: in_blocks)
    learner, batches = make(), jax.tree.map(lambda *leaves: jnp.stack(leaves), batch_of(0), batch_of(1))
    states = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), started(learner))

    def both(axis):
        update = functools.partial(learner.improve, axis=axis)
        return jax.make_jaxpr(jax.vmap(update, (0, 0, None), axis_name="seeds"))(states, batches, jnp.int32(0))

    without = 1 if in_blocks else 0  # without a name all lengths are computed; the loop over packed rows stays a loop
    assert _branches(both("seeds")) == 1 and _branches(both(None)) == without


def _branches(program) -> int:
    """Branches, and loops whose end is one number for all seeds."""
    loops = [equation.params["cond_jaxpr"] for equation in program.eqns if equation.primitive.name == "while"]
    agreed = [loop for loop in loops if not any(inner.primitive.name == "reduce_or" for inner in loop.eqns)]
    return len(agreed) + sum(equation.primitive.name == "cond" for equation in program.eqns)
