"""MATD3 on rows of the host: its schedule, its numbers whatever interrupts it, and every sharing method in it."""

import functools
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from prism_marl.collect.base import Summary
from prism_marl.collect.host import OWN, HostCollector
from prism_marl.collect.host_rows import first_ended, play_on, step_in_turns
from prism_marl.collect.players import NumpyPlayer
from prism_marl.experiment import config
from prism_marl.experiment.experiment import Experiment
from prism_marl.experiment.presets import preset
from prism_marl.learners.base import Clock, Trajectory
from prism_marl.learners.log import GIVEN, empty_log
from prism_marl.learners.numpy_actors import NumpyActors, dense_policy
from prism_marl.runs import checkpoint, runner
from prism_marl.sharing import METHODS
from prism_marl.sharing.footprint import footprint
from prism_marl.training.build import make_trainer
from prism_marl.training.programs import Programs
from prism_marl.training.state import packed
from prism_marl.types import Observation
from tiny import final_state, same_arrays, small_steps


def rows(folder: Path, name: str = "eval") -> list[dict]:
    path = folder / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# Schedule.


def test_updates_and_policy_updates_follow_the_steps(monkeypatch):
    """Five critic updates an interval; every second of them, across intervals, is followed by the actors."""
    trainer = make_trainer(small_steps(method="fups", learner__policy_freq="2", run__seeds="2"))

    def critics(self, state, batch, key):
        metrics = {"loss": jnp.ones(()), "q": jnp.zeros(()), "critic_loss": jnp.ones(())}
        return eqx.tree_at(lambda s: s.updates, state, state.updates + 1), metrics

    def actors(self, state, batch, step):
        return eqx.tree_at(lambda s: s.critic_resets, state, state.critic_resets + 1), {"actor_loss": jnp.full((), 3.0)}

    monkeypatch.setattr(type(trainer.learner), "update_critics", critics)
    monkeypatch.setattr(type(trainer.learner), "update_actors", actors)
    state = trainer.init()
    batch = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), trainer._host._shapes(state)[1])
    collected = ((), batch, Summary(jnp.full(2, 10, jnp.int32), dict.fromkeys(GIVEN, jnp.ones(2, bool))))
    store, learn = (jax.jit(functools.partial(trainer.absorb, learn=learn)) for learn in (False, True))
    seeds, clock = store(state.seeds, state.clock, *collected)
    for number in (1, 2, 3):
        seeds, clock = learn(seeds, clock, *collected)
        assert_array_equal(seeds.state.updates, [5 * number] * 2)
        assert_array_equal(seeds.state.critic_resets, [5 * number // 2] * 2)
        assert_array_equal(seeds.steps, [10 * (number + 1)] * 2)
        assert [int(counter) for counter in jax.tree.leaves(clock)] == [number + 1, 5 * number, 5 * number, 0]
    assert_allclose(seeds.log.sums["loss"], 15)
    assert_allclose(seeds.log.sums["actor_loss"], 3 * 2 * 7)  # twice the sum, because only one update in two adds to it


def test_learning_begins_with_a_short_piece_however_fast_collecting_was(tmp_path, monkeypatch):
    """Ctrl-C is heard and the progress bar moves between pieces only."""
    aims: list[tuple[str, int]] = []
    original = Programs.get

    def get(programs: Programs, name: str, *arguments):
        if name in ("collect", "learn"):
            aims.append((name, int(arguments[1])))
        return original(programs, name, *arguments)

    monkeypatch.setattr(Programs, "get", get)
    monkeypatch.setattr(runner, "PIECE_SECONDS", 1e3)  # a whole run at any rate that was measured
    runner.run(small_steps(learner__warmup="80", run__steps="400", run__eval_every="400"), tmp_path / "run")
    assert aims == [("collect", 64), ("collect", 80), ("learn", 80 + 64), ("learn", 400)]


@pytest.mark.parametrize("every", [1, 2, 3])
def test_actor_updates_in_fixed_places_are_those_that_are_asked_for(every):
    """The loop without a question, against the loop that asks at every update whether it is time."""
    fixed = make_trainer(small_steps(method="prism", learner__policy_freq=str(every), learner__updates="6")).learner
    state, key, rng = fixed.init(jax.random.key(0)), jax.random.key(1), np.random.default_rng(0)
    ring = fixed.add(fixed.buffer(), random_batch(fixed.template(), 2, rng))
    along = (fixed._chains(key, ring), jax.random.split(key, 6))

    start = (state, empty_log(fixed.metrics, fixed.checks))
    numbered = (*along, 1 + jnp.arange(6))
    ours = jax.jit(lambda carry: fixed._round(carry, ring, jnp.int32(10), numbered))(start)
    critics = jax.jit(lambda carry, *now: fixed._critics(carry, ring, jnp.int32(10), *now))
    actors = jax.jit(lambda carry, batch: fixed._actors(carry, batch, jnp.int32(10)))
    theirs = start
    for number in range(6):
        theirs, batch = critics(theirs, *jax.tree.map(lambda leaf, number=number: leaf[number], along))
        if (number + 1) % every == 0:
            theirs = actors(theirs, batch)
    assert int(ours[0].updates) == 6
    assert not np.array_equal(ours[0].online.agent.fc1.U, state.online.agent.fc1.U)
    ours, theirs = checkpoint.flatten(ours), checkpoint.flatten(theirs)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert_allclose(value, theirs[name], rtol=1e-4, atol=1e-5, err_msg=name)


def random_batch(template: Trajectory, rows: int, rng: np.random.Generator) -> Trajectory:
    """A collection [t, b, ...] of numbers that mean nothing."""

    def drawn(leaf):
        return jnp.asarray(rng.uniform(-1, 1, (leaf.shape[0], rows, *leaf.shape[1:])), leaf.dtype)

    return jax.tree.map(drawn, template)


def test_presets_give_fifty_updates_for_fifty_steps_of_all_environments():
    for task in ("mamujoco/ant-4x2", "mamujoco/walker2d-2x3"):
        settings = preset(task, "prism").learner
        assert (settings.updates, settings.train_interval) == (50, 50)
        assert settings.warmup / (settings.train_interval * preset(task, "prism").run.envs) == 20


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The folder of a small finished run, two seeds, with resets of actors and of critics."""
    return runner.run(resumable(), tmp_path_factory.mktemp("vector") / "run")


def resumable(**changes: str) -> Experiment:
    resets = {
        "learner__warmup_on_top": "true",
        "sharing__reset_interval": "60",
        "sharing__critic_reset_interval": "50",
        "sharing__threshold_shift": "0",
    }
    return small_steps(method="kaleidoscope", run__seeds="2", run__seed="5", **resets, **changes)


def test_a_run_warms_up_on_top_of_its_steps(finished):
    steps = [row["step"] for row in rows(finished) if row["seed"] == 5]
    assert steps == [0, 70, 120, 170, 220]
    assert [row["seed"] for row in rows(finished)] == [5, 6] * 5
    state = final_state(finished)
    assert_array_equal(state["seeds.state.updates"], [100, 100])  # half an update for each of 200 steps
    assert int(state["clock.own.0"]) == 100 and int(state["clock.iteration"]) == 22 and int(state["refreshed"]) == 120
    assert_array_equal(state["seeds.buffer.added"], [220, 220])
    assert_array_equal(
        state["seeds.state.critic_resets"], [3, 3]
    )  # critics start afresh at 50, 100, 150; 200 is too late
    assert int(state["clock.own.1"]) == 150
    assert all(np.isfinite(value) for row in rows(finished, "train") for value in row.values())
    assert "epsilon" not in rows(finished, "train")[0] and len(rows(finished, "train")) == 8


# Whatever interrupts it.


def command(experiment: Experiment, folder: Path) -> list[str]:
    words = [sys.executable, "-m", "prism_marl.cli", "train", "--sharing", experiment.sharing.method]
    for path, value, _ in config.options(experiment):
        words += [f"--{path}", str(value)] if "." in path else []
    return [*words, experiment.task, "--out", str(folder)]


def killed(experiment: Experiment, folder: Path, moment: int) -> None:
    """Kill the run once so many rows are written."""
    process = subprocess.Popen(command(experiment, folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    give_up = time.monotonic() + 300
    while len(rows(folder)) < moment:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < give_up
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait(300) == -signal.SIGKILL
    process.communicate()


def test_a_killed_run_ends_with_the_same_bytes(finished, tmp_path):
    folder = tmp_path / "run"
    killed(resumable(), folder, int(np.random.default_rng().integers(4, 9)))
    assert not (folder / "done").exists()
    runner.run(resumable(), folder)
    for name in ("eval.jsonl", "train.jsonl", "config.json"):
        assert (folder / name).read_bytes() == (finished / name).read_bytes(), name
    assert same_arrays(final_state(folder), final_state(finished))


def advanced(experiment: Experiment, goals: list[int]) -> dict[str, np.ndarray]:
    """A run that is cut at some steps, its state passing through a checkpoint's form and a new trainer each time."""
    state = None
    for goal in goals:
        trainer = make_trainer(experiment)
        if state is None:
            state = trainer.prepare(trainer.advance(trainer.init(), 20, learn=False))
        else:
            state = checkpoint.unflatten(state, trainer.shapes(), "test")
        state = trainer.advance(state, goal, learn=True)
        state = checkpoint.flatten(packed(state))
    return state


def test_overlap_lags_by_one_interval_and_does_not_depend_on_where_it_is_cut():
    whole = advanced(small_steps(method="fups", learner__overlap="true"), [60])
    assert same_arrays(whole, advanced(small_steps(method="fups", learner__overlap="true"), [30, 50, 60]))
    first = advanced(small_steps(method="fups", learner__overlap="true"), [30])
    sequential = advanced(small_steps(method="fups"), [30])  # nothing was learned before the first interval: no lag yet
    assert all(np.array_equal(first[name], value) for name, value in sequential.items())
    after = advanced(small_steps(method="fups"), [60])
    assert any(not np.array_equal(whole[name], value) for name, value in after.items())


def test_a_robot_continues_where_it_stood():
    """Hopper falls early, so episodes begin inside the stretch that is cut; its physics counts in float64."""
    robot = functools.partial(small_steps, "mamujoco/hopper-3x1", "fups", learner__n_step="3")
    whole = advanced(robot(), [60])
    assert whole["snapshot.states"].dtype == np.float64 and whole["seeds.buffer.storage.state"].any()
    assert same_arrays(whole, advanced(robot(), [30, 40, 60]))


def test_a_checkpoint_holds_the_filled_part_of_the_ring():
    experiment = small_steps(method="fups")
    trainer = make_trainer(experiment)
    state = trainer.advance(trainer.init(), 20, learn=False)
    held = checkpoint.flatten(packed(state))
    assert held["seeds.buffer.storage.reward"].shape == (1, 20)
    assert same_arrays(checkpoint.flatten(checkpoint.unflatten(held, trainer.shapes(), "x")), checkpoint.flatten(state))
    assert held["snapshot.drift"].dtype == np.float32 and trainer.shapes().seeds.buffer.storage.reward.size == 120
    wrong = held | {"seeds.buffer.storage.reward": held["seeds.buffer.storage.reward"].astype(np.float64)}
    with pytest.raises(Exception, match="does not fit this experiment"):
        checkpoint.unflatten(wrong, trainer.shapes(), "x")


def test_the_host_keeps_numbers_that_a_device_would_round():
    value = np.array([1 / 3])
    assert checkpoint.unflatten({"a": value}, {"a": np.zeros(1)}, "x")["a"].dtype == np.float64


# Playing.


def clock(iteration: int = 0) -> Clock:
    return Clock(np.int32(iteration), np.int32(0), ())  # pyright: ignore[reportArgumentType]


def collected(trainer, mode: str, policy=None) -> Trajectory:
    """One interval of all seeds [n, t, b, ...]."""
    return trainer.collector.collect(trainer.learner, policy, (), None, None, clock(), mode)[1]


def test_transitions_are_those_of_the_environment():
    """Each row follows its own chain: what comes next is the next observation, unless an episode ended there."""
    trainer = make_trainer(small_steps(method="fups", learner__train_interval="25", run__seeds="2"))
    trainer.init()
    learner, collector = trainer.learner, trainer.collector
    noise, starts = collector._numbers_of(learner, 0, 25, "random")
    assert np.abs(noise).max() <= 1 and noise.std() == pytest.approx(3**-0.5, rel=0.1)
    batch = collected(trainer, "random")
    assert batch.obs.local.shape == (2, 25, 2, 0, 3) and batch.obs.state.shape == (2, 25, 2, 3)
    assert_array_equal(batch.action, noise)
    done = batch.terminated | batch.truncated
    assert done.any() and not (batch.terminated & batch.truncated).any() and batch.valid.all()
    going = ~done[:, :-1]
    assert_array_equal(batch.next_obs.state[:, :-1][going], batch.obs.state[:, 1:][going])
    assert (batch.next_obs.state[:, :-1][~going] != batch.obs.state[:, 1:][~going]).any(axis=-1).all()
    ring = learner.add(learner.buffer(), jax.tree.map(lambda leaf: jnp.asarray(leaf[1]), batch))
    for held, wanted in ((ring.storage.state, batch.obs.state), (ring.storage.done, done)):
        assert_array_equal(held[:50], wanted[1].reshape(50, *wanted.shape[3:]))  # those of one step lie side by side
    alone = HostCollector(collector._build, range(1, 2), 2)
    assert_array_equal(alone._numbers_of(learner, 0, 25, "random")[0][0], noise[1])  # whoever else plays
    assert (collector._numbers_of(learner, 1, 25, "random")[1] != starts).mean() > 0.9


def test_exploration_adds_noise_to_the_actors_and_stays_in_the_box(monkeypatch):
    trainer = make_trainer(small_steps(method="fups"))
    trainer.init()
    monkeypatch.setattr(NumpyActors, "outputs", lambda *_: np.full((1, 2, 3, 2), np.arctanh(0.9), np.float32))
    batch, (noise, _) = collected(trainer, "explore"), trainer.collector._numbers_of(trainer.learner, 0, 5, "explore")
    assert_allclose(batch.action, np.clip(0.9 + 0.1 * noise, -1, 1), atol=1e-6)
    assert (batch.action == 1).any() and noise.shape == (1, 5, 2, 3, 2)


def test_evaluation_takes_the_first_episodes_to_end():
    values = lambda number: {"return": float(number)}  # noqa: E731
    script = [[(0, 1), (1, 2)], [], [(0, 3), (0, 4), (1, 5)], [(0, 6), (1, 7)], [(1, 8)]]
    playing = iter([[type("F", (), {"seed": s, "values": values(v)})() for s, v in step] for step in script])
    ended = first_ended(playing, 2, 3)
    assert [[row["return"] for row in rows] for rows in ended] == [[1, 3, 4], [2, 5, 7]]
    assert len(list(playing)) == 1  # no step more than needed


def test_play_starts_the_next_episode_from_its_own_seed():
    env, starts = make_trainer(small_steps(method="fups")).collector.shared(2), np.array([[[3, 4], [5, 6]]])
    still = NumpyPlayer(lambda *_: np.zeros((1, 2, 3, 2), np.float32), None, None, "greedy")
    begun, reset = [], env.reset
    env.reset = lambda rows, seeds: (begun.append((list(rows), list(seeds))), reset(rows, seeds))
    seen, over = [], 0
    for finished in play_on(env, still, starts):
        over += len(finished)
        seen += [(episode.seed, episode.values["length"]) for episode in finished]
        if over >= 4:
            break
    assert len(seen) == 4 and all(seed == 0 and length <= 10 for seed, length in seen)
    assert begun[0] == ([0, 1], [3, 5])
    wanted = {0: [4, 3], 1: [6, 5]}  # each row by itself, and from the front again when its list ends
    for rows, seeds in begun[1:]:
        assert [wanted[row].pop(0) for row in rows] == seeds


class AllAtOnce:
    """An environment without the means to move some of its rows."""

    def __init__(self, env):
        self.spec, self.number = env.spec, env.number
        self.reset, self.observe, self.step = env.reset, env.observe, env.step


def test_seeds_in_turns_play_what_they_play_all_at_once():
    """Three seeds of a robot that falls: episodes begin while the rows of other seeds are on their way."""
    sizes = {"learner__train_interval": "60", "learner__explore": "0.5", "run__seeds": "3"}
    trainer = make_trainer(small_steps("mamujoco/hopper-3x1", **sizes))
    state, env = trainer.init(), trainer.collector.env
    begun, finished, begin, finish = [], [], env.begin, env.finish
    env.begin = lambda rows, action: (begun.append((rows.start, rows.stop)), begin(rows, action))
    env.finish = lambda rows: (finished.append((rows.start, rows.stop)), finish(rows))[1]
    policy, start = trainer._host.playing_policy(state.seeds.state), env.snapshot()
    in_turns = collected(trainer, "explore", policy)
    assert set(begun) == {(0, 4), (4, 6)} and (in_turns.terminated | in_turns.truncated).any()
    env.restore(start)
    trainer.collector._pool[OWN] = AllAtOnce(env)
    jax.tree.map(assert_array_equal, in_turns, collected(trainer, "explore", policy))
    still = NumpyPlayer(lambda _, part, *__: np.zeros((part.stop - part.start, 2, 3, 1)), None, None, "greedy")
    for _ in step_in_turns(env, 3, still):
        break
    assert sorted(begun) == sorted(finished), "a loop that stops early must wait for rows that still move"
    env.step(np.zeros((6, 3, 1)))
    env.close()


# Every method.


@functools.cache
def played():
    """A ring with random play on reach/3."""
    trainer = make_trainer(small_steps(method="fups", learner__train_interval="60"))
    trainer.init()
    batch = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), collected(trainer, "random"))
    return trainer.learner.add(trainer.learner.buffer(), batch)


def check(learner, state, agent) -> None:
    """Finite numbers; the same actions on the host as on the device; a footprint that counts the leaves."""
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state) if leaf.dtype == np.float32)
    drift = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    on_device = learner.actions(agent, jnp.zeros((4, 0, 3)), jnp.asarray(drift))
    layers = jax.tree.map(lambda leaf: np.asarray(leaf)[None], dense_policy(agent, 3))
    on_host = learner.numpy()(layers, slice(0, 1), np.zeros((1, 4, 0, 3)), drift[None], None, "greedy")[0]
    assert_allclose(on_host, on_device, rtol=1e-4, atol=1e-5)
    none = jnp.zeros((4, 3, 0), bool)
    obs = Observation(jnp.zeros((4, 0, 3)), jnp.asarray(drift), none, none)
    _, dense, _ = learner.act(dense_policy(agent, 3), (), obs, jax.random.key(0), jnp.int32(0), "greedy")
    assert_allclose(dense, on_device, rtol=1e-4, atol=1e-5)
    leaves = jax.tree.leaves(agent)
    size = footprint(jax.eval_shape(learner.build_agent, jax.random.key(0)))
    assert size.parameters == sum(leaf.size for leaf in leaves) and size.bytes == sum(leaf.nbytes for leaf in leaves)


LIKE_OTHERS = ("experts", "hps", "cash", "hetdps")  # private rows as FiLM's, generated weights as HyperMARL's, groups


@pytest.mark.parametrize("method", [method for method in METHODS if method not in LIKE_OTHERS])
def test_every_method_learns_without_nonsense(method):
    learner, ring = make_trainer(small_steps(method=method)).learner, played()
    state = before = learner.init(jax.random.key(0))  # not compiled: most of its small programs serve all methods
    critics, actors = jax.jit(learner.update_critics), jax.jit(learner.update_actors)
    for number in range(3):
        batch = learner.read(ring, learner.chains(ring, jnp.arange(8) + 8 * number))
        state, metrics = critics(state, batch, jax.random.key(number))
        state, more = actors(state, batch, jnp.int32(2_000_000 * number))  # lorasa changes phase on the way
        assert all(np.isfinite(value) for value in (metrics | more).values())
    assert not eqx.tree_equal(before.online.agent, state.online.agent)
    check(learner, state, state.online.agent)


def test_clusters_are_found_in_random_play_and_reach_the_targets():
    trainer = make_trainer(small_steps(method="adaps", sharing__pretraining="10", sharing__ratio="0.3"))
    state = trainer.prepare(trainer.advance(trainer.init(), 30, learn=False))
    agent, target = (jax.tree.map(lambda leaf: leaf[0], nets.agent)
                     for nets in (state.seeds.state.online, state.seeds.state.target))  # fmt: skip
    assert int(state.prepared) == 1 and sorted(set(agent.clusters.tolist())) == [0, 1]
    assert (~agent.fc1.mask).sum(axis=1).tolist() == [2, 2]  # floor(0.3 * 8) nodes of each cluster are off
    assert_array_equal(target.clusters, agent.clusters)
    assert_array_equal(target.fc1.mask, agent.fc1.mask)
    check(trainer.learner, state.seeds.state, agent)


def test_spectra_are_recorded():
    trainer = make_trainer(small_steps(method="prism", run__seeds="2"))
    found = trainer.spectra(trainer.init())
    assert {name: values.shape for name, (values, _) in found.items()} == {
        "fc1": (2, 3, 6), "fc2": (2, 3, 8), "fc3": (2, 3, 2),
    }  # fmt: skip
