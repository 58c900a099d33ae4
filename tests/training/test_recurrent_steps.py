"""A learner that has memory, collects single steps and keeps no buffer: what collectors owe it, in every place.

It is a toy: its memory is a running sum of what each agent saw, so that a plain loop over the records knows it.
"""

import functools
import itertools
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from line import AGENTS, FAMILIES, LineGame, after
from prism_marl.collect import host
from prism_marl.collect.base import evaluation_key
from prism_marl.collect.host_rows import EVALUATION, episode_seeds
from prism_marl.envs import registry
from prism_marl.envs.registry import Family
from prism_marl.experiment.experiment import Experiment, Net, Run
from prism_marl.learners.base import Clock, Collection, Settings, Trajectory, shape
from prism_marl.runs import checkpoint
from prism_marl.sharing import NoPS, Sharing
from prism_marl.sharing.base import Experience, RoleLinear
from prism_marl.sharing.dense import materialise
from prism_marl.training.build import make_trainer
from prism_marl.training.state import packed
from prism_marl.types import EnvSpec, Observation

LENGTH, ROWS, SEEDS = 4, 3, 2
PLACES = ("jax", "python", "rows")
KINDS = ("discrete", "continuous")


class Net1(eqx.Module):
    """One layer that reads the observation and the memory."""

    layer: RoleLinear


class ToyState(NamedTuple):
    net: Net1
    key: jax.Array


class Memory(NamedTuple):
    hidden: jax.Array  # [b, a]
    count: jax.Array  # [b]: steps of the episode so far


@dataclass(frozen=True)
class Toy(Settings):
    label: ClassVar[str] = "Toy"
    kinds: ClassVar[tuple[str, ...]] = KINDS
    eval_rule: ClassVar[Literal["exact", "first"]] = "first"

    algorithm: str = "toy"

    def learner(self, sharing: Sharing, spec: EnvSpec, *, width: int, rows: int = 1, steps: int = 0) -> "ToyLearner":
        return ToyLearner(sharing, spec, rows)

    def validate(self, spec: EnvSpec, envs: int) -> None:
        pass


@dataclass(frozen=True)
class ToyLearner:
    sharing: Sharing
    spec: EnvSpec
    rows: int
    collection: ClassVar[Collection] = Collection("steps", LENGTH)
    metrics: ClassVar[tuple[str, ...]] = ("loss",)
    checks: ClassVar[tuple[str, ...]] = ()

    def build_agent(self, key):
        fan_in, identities = self.spec.observation + 1, self.sharing.identities(AGENTS, AGENTS)
        layer = self.sharing.linear(fan_in, self.spec.actions, identities=identities, key=key, kind="actions", depth=0)
        return Net1(layer)

    def init(self, key) -> ToyState:
        key_net, key_train = jax.random.split(key)
        return ToyState(self.build_agent(key_net), key_train)

    def counters(self):
        return ()

    def template(self) -> Trajectory:
        spec, flag = self.spec, shape(LENGTH, dtype=bool)
        obs = Observation(
            shape(LENGTH, AGENTS, spec.observation),
            shape(LENGTH, spec.state),
            shape(LENGTH, AGENTS, spec.actions, dtype=bool),
            shape(LENGTH, AGENTS, dtype="int16"),
        )
        each = () if spec.kind == "discrete" else (spec.actions,)
        return Trajectory(
            obs=obs,
            next_obs=obs,
            action=shape(LENGTH, AGENTS, *each, dtype="int16" if spec.kind == "discrete" else "float32"),
            reward=shape(LENGTH),
            agent_reward=None,
            terminated=flag,
            truncated=flag,
            valid=flag,
            extras={"hidden": shape(LENGTH, AGENTS), "count": shape(LENGTH, dtype="int32")},
        )

    def buffer(self):
        return ()

    def key(self, state: ToyState, clock: Clock, purpose: str):
        key, drawn = jax.random.split(state.key)
        return state._replace(key=key), drawn

    def policy(self, state: ToyState):
        return materialise(state.net)

    def numpy(self):
        return None

    def memory(self, policy, *batch: int) -> Memory:
        return Memory(jnp.zeros((*batch, AGENTS)), jnp.zeros(batch, jnp.int32))

    def act(self, policy, memory: Memory, obs: Observation, key, step, mode):
        x = policy.layer(jnp.concatenate([obs.local, memory.hidden[..., None]], axis=-1), obs.role)
        extras = {"hidden": memory.hidden, "count": memory.count}
        memory = Memory(0.5 * memory.hidden + obs.local[..., 0], memory.count + 1)
        noise = 0.0 if mode == "greedy" else 3 * jax.random.normal(key, x.shape)
        if self.spec.kind == "discrete":
            return memory, jnp.argmax(jnp.where(obs.avail, x + noise, -jnp.inf), axis=-1).astype(jnp.int32), extras
        return memory, jnp.tanh(x + noise), extras

    def add(self, buffer, batch):
        return buffer

    def update(self, state: ToyState, buffer, batch: Trajectory, log, step, clock: Clock):
        """Predict the reward from what was seen and remembered."""

        def loss(net: Net1):
            x = jnp.concatenate([batch.obs.local, batch.extras["hidden"][..., None]], axis=-1)
            values = net.layer(x, batch.obs.role.astype(jnp.int32)).mean(axis=(-2, -1))
            return jnp.mean((values - batch.reward) ** 2) + 0 * jnp.sum(batch.memory.hidden)

        value, gradient = jax.value_and_grad(loss)(state.net)
        net = jax.tree.map(lambda weight, slope: weight - 0.1 * slope, state.net, gradient)
        log = log.add({"loss": value}, step)
        return state._replace(net=net), log, clock._replace(summed=clock.summed + 1)

    def agent(self, state: ToyState):
        return state.net

    def with_agent(self, state: ToyState, agent):
        return state._replace(net=agent)

    def experience(self, buffer) -> Experience:
        raise NotImplementedError

    def row(self, step: int):
        return {}


class Dicey(LineGame):
    """A game that says that it cannot be replayed."""

    replayable = False


@pytest.fixture(autouse=True, scope="module")
def game():
    with pytest.MonkeyPatch.context() as patch:
        for name, family in (FAMILIES | {"dicey": Family("dicey", (), "for tests", python=Dicey)}).items():
            patch.setitem(registry._FAMILIES, name, family)
        yield


def trainer_in(place: str, kind: str):
    run = Run(seeds=SEEDS, seed=5, envs=ROWS, eval_episodes=3, patience=0.0)
    task = f"{place}/{kind}" if place == "dicey" else f"line_{place}/{kind}"
    return make_trainer(Experiment(task, NoPS(), Toy(), Net(4), run))


def collections(trainer, number: int) -> list[tuple[Trajectory, Any]]:
    """What so many rounds of training collect, and where the rows stand after each."""
    state = trainer.init()
    seeds, clock, found = state.seeds, state.clock, []
    absorb = jax.jit(lambda *given: trainer.absorb(*given, learn=True))

    @jax.jit
    def compiled(seeds, clock):
        policy, (_, keys) = trainer.policies(seeds.state), trainer.keys(seeds.state, clock)
        return trainer.collector.collect(trainer.learner, policy, seeds.env, keys, seeds.steps, clock, "explore")

    for iteration in range(number):
        if trainer.collector.compiled:
            played = compiled(seeds, clock)
        else:
            played = trainer._host._collect(seeds, clock, iteration, None, "explore")
        seeds, clock = absorb(seeds, clock, *played)
        standing = getattr(played[0], "memory", played[0])  # compiled rows stand in more than their memory
        found.append(jax.device_get((played[1], standing)))
        assert np.asarray(seeds.steps).tolist() == [(iteration + 1) * LENGTH * ROWS] * SEEDS
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_memory_and_records_of_rows_that_go_on(place: str, kind: str):
    found = collections(trainer_in(place, kind), 5)
    hidden = np.zeros((SEEDS, ROWS, AGENTS), np.float32)
    count, restarted = np.zeros((SEEDS, ROWS), int), 0
    latest: Any = None  # what followed the latest step, and the rows in which it ended an episode
    for batch, end in found:
        assert_allclose(batch.memory.hidden, hidden, atol=1e-6)  # as the collection before left it
        assert_array_equal(batch.memory.count, count)
        for t in range(LENGTH):
            obs, following = (jax.tree.map(lambda leaf, t=t: leaf[:, t], part) for part in (batch.obs, batch.next_obs))
            if latest is not None:
                goes_on, x = ~latest[1], latest[0]
                assert_array_equal(obs.local[goes_on], x.local[goes_on])
                assert (obs.local[~goes_on][..., 1] == 0).all()  # a fresh episode
            assert_allclose(batch.extras["hidden"][:, t], hidden, atol=1e-6)
            assert_array_equal(batch.extras["count"][:, t], count)
            over = batch.terminated[:, t] | batch.truncated[:, t]
            check_step(obs, following, batch, t, kind)
            hidden, count = 0.5 * hidden + obs.local[..., 0], count + 1
            hidden[over], count[over], latest = 0, 0, (following, over)
            restarted += over.sum()
        assert_allclose(end.hidden, hidden, atol=1e-6)
        assert_array_equal(end.count, count)
        assert batch.valid.all() and batch.agent_reward is None
    assert restarted > 5 and found[-1][1].count.any()  # some began anew, and some were in the middle of an episode
    for (_, end), (batch, _) in itertools.pairwise(found):
        jax.tree.map(assert_array_equal, end, batch.memory)  # to the last bit


def check_step(obs: Observation, following: Observation, batch: Trajectory, t: int, kind: str) -> None:
    """What followed is what the game made of the action, also where the episode ended with it."""
    action, x = batch.action[:, t], obs.state[..., 0]
    if kind == "discrete":
        assert np.take_along_axis(obs.avail, action[..., None].astype(int), axis=-1).all()
    gone = after(x, action.astype(np.float32), kind)
    assert_allclose(following.state[..., 0], gone, atol=1e-6)
    assert_allclose(following.state[..., 1], obs.state[..., 1] + 0.2, atol=1e-6)
    assert_allclose(batch.reward[:, t], 1 - gone**2, atol=1e-6)
    assert_array_equal(batch.terminated[:, t], abs(following.state[..., 0]) > 1)
    late = (following.state[..., 1] > 0.99) & ~batch.terminated[:, t]
    assert_array_equal(batch.truncated[:, t], late)


def advanced(place: str, kind: str, goals: list[int], folder) -> dict[str, np.ndarray]:
    """A run that is killed at some steps: a new trainer goes on from the file each time."""
    like = None
    for number, goal in enumerate(goals):
        trainer = trainer_in(place, kind)
        state = trainer.init() if like is None else checkpoint.load(like, trainer.shapes())[0]
        advance = lambda state, goal=goal, trainer=trainer: trainer.advance(state, goal, learn=True)  # noqa: E731
        state = (jax.jit(advance) if trainer.collector.compiled else advance)(state)
        like = checkpoint.save(folder, number + 1, checkpoint.flatten(packed(state)), {})
    return checkpoint.flatten(state)


@pytest.mark.parametrize("place", PLACES)
def test_a_run_that_is_killed_ends_with_the_same_bits(place: str, tmp_path):
    each = LENGTH * ROWS
    whole = advanced(place, "discrete", [5 * each], tmp_path / "whole")
    cut = advanced(place, "discrete", [2 * each, 3 * each, 5 * each], tmp_path / "cut")
    assert whole.keys() == cut.keys() and int(whole["clock.iteration"]) == 5
    for name, value in whole.items():
        assert_array_equal(value, cut[name], err_msg=name)
    assert any(".count" in name and value.any() for name, value in whole.items())  # in the middle of an episode


def test_a_game_that_cannot_be_replayed_begins_anew_and_so_does_its_memory():
    trainer = trainer_in("dicey", "discrete")
    state = trainer.advance(trainer.init(), 2 * LENGTH * ROWS, learn=True)
    held = checkpoint.flatten(packed(state))
    assert np.asarray(state.seeds.env.count).any()
    later = trainer_in("dicey", "discrete")
    state = checkpoint.unflatten(held, later.shapes(), "test")
    assert np.asarray(state.seeds.env.count).any()  # it is in the file
    later.collector.restore(state.snapshot)
    batch = later._host._collect(state.seeds, state.clock, 2, None, "explore")[1]
    assert not np.asarray(batch.memory.count).any() and not np.asarray(batch.memory.hidden).any()
    assert (np.asarray(batch.obs.state)[:, 0, :, 1] == 0).all()
    again = later._host._collect(state.seeds, state.clock, 3, None, "explore")[1]  # once is enough
    assert np.asarray(again.memory.count).any()


# Evaluation against a loop that plays one row after the other.


def starts_of(trainer, evaluation: int, episodes: int, rule: str):
    """For every seed a function of (row, episode of that row, step after which it begins): its first observation and
    what steps it from there."""
    collector = trainer.collector
    if collector.compiled:
        reset = jax.jit(collector.env.reset)
        step = jax.jit(functools.partial(collector.env.step, jax.random.key(0)))
        rows = min(20, episodes) if rule == "first" else episodes

        def of_seed(number: int):
            key = evaluation_key(jnp.uint32(number), jnp.int32(evaluation))

            def begin(row: int, _: int, t: int):
                if rule == "exact":
                    return Played(*reset(jax.random.split(jax.random.split(key)[0], rows)[row]), step)
                at = key if t < 0 else jax.random.split(jax.random.fold_in(key, t + 1), 3)[2]
                return Played(*reset(jax.random.split(at, rows)[row]), step)

            return begin

        return [of_seed(5), of_seed(6)]
    numbers = range(5, 7)
    if rule == "first":
        seeds = episode_seeds(EVALUATION, numbers, evaluation, (min(20, episodes), episodes))
    else:
        keys = jax.vmap(evaluation_key, (0, None))(jnp.arange(5, 7, dtype=jnp.uint32), jnp.int32(evaluation))
        seeds = host._split(keys, episodes)[1][:, :, None]
    return [lambda row, k, t, n=n: InPython(int(seeds[n, row, k])) for n in range(2)]


class Played:
    """One episode in JAX."""

    def __init__(self, state, obs, step):
        self.state, self.obs, self._step = state, obs, step

    def step(self, action):
        self.state, step = self._step(self.state, jnp.asarray(action))
        self.obs = step.obs
        return step


class InPython:
    """One episode of the game in Python, which the rows in numpy also play."""

    def __init__(self, seed: int):
        self.game = LineGame("discrete")
        self.obs = self.game.reset(seed)

    def step(self, action):
        step = self.game.step(action)
        self.obs = step.obs
        return step


def slow_evaluation(learner, policy, begin, episodes: int, rule: str) -> dict[str, float]:
    """One seed: means over the episodes that count."""
    act = jax.jit(functools.partial(learner.act, mode="greedy"))
    rows = min(20, episodes) if rule == "first" else episodes
    games, memory = [begin(row, 0, -1) for row in range(rows)], [learner.memory(policy, 1)] * rows
    played, total, length, ended = [0] * rows, [0.0] * rows, [0] * rows, []
    for t in itertools.count():
        for row in range(rows):
            if rule == "exact" and played[row]:
                continue
            obs = jax.tree.map(lambda part: jnp.asarray(part)[None], games[row].obs)
            memory[row], action, _ = act(policy, memory[row], obs, jax.random.key(0), jnp.int32(0))
            step = games[row].step(np.asarray(action[0]))
            total[row], length[row] = total[row] + float(step.reward), length[row] + 1
            if step.terminated or step.truncated:
                ended.append({"return": total[row], "length": length[row], "edge": float(step.metrics["edge"])})
                played[row] += 1
                if rule == "first":
                    games[row], memory[row] = begin(row, played[row] % episodes, t), learner.memory(policy, 1)
                    total[row], length[row] = 0.0, 0
        if len(ended) >= episodes:  # all that end in the same step count
            assert rule == "first" or len(ended) == episodes
            return {name: float(np.mean([values[name] for values in ended])) for name in ended[0]}
    raise AssertionError


@pytest.mark.parametrize(("rule", "episodes"), [("first", 4), ("first", 25), ("exact", 7)])
@pytest.mark.parametrize("place", PLACES)
def test_evaluation_counts_the_episodes_that_its_rule_names(place: str, rule: str, episodes: int):
    """Rows that start again inside, or play one episode each; memory begins anew with every episode."""
    trainer = trainer_in(place, "discrete")
    learner, policy = trainer.learner, jax.jit(jax.vmap(trainer.learner.policy))(fresh(trainer))
    if place != "jax" and rule == "exact":
        episodes = 18  # more than are played at once
    evaluate = functools.partial(trainer.collector.evaluate, learner, episodes=episodes, rule=rule)
    found = jax.device_get((jax.jit(evaluate) if place == "jax" else evaluate)(policy, jnp.int32(3)))
    for n, begin in enumerate(starts_of(trainer, 3, episodes, rule)):
        alone = jax.tree.map(lambda leaf, n=n: leaf[n], policy)
        wanted = slow_evaluation(learner, alone, begin, episodes, rule)
        assert {name: float(values[n]) for name, values in found.items()} == pytest.approx(wanted, rel=1e-5)


def fresh(trainer) -> ToyState:
    """Networks of two seeds that heed their memory."""
    state = jax.vmap(trainer.learner.init)(jax.vmap(jax.random.key)(jnp.arange(5, 7)))
    return eqx.tree_at(lambda s: s.net.layer.weight, state, 3 * state.net.layer.weight)
