"""Python environments: the adapters against the packages they wrap, and the host loop against the compiled one."""

import json
import os
import signal
import sys
import types
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Sequence
from lbforaging.foraging import ForagingEnv
from pettingzoo import ParallelEnv

from prism_marl import envs
from prism_marl.collect import host
from prism_marl.collect.base import evaluation_key
from prism_marl.collect.host import HostCollector
from prism_marl.envs import base as envs_base
from prism_marl.envs.lbf import HORIZON, LOAD, make_lbf
from prism_marl.envs.python.lbforaging import arguments
from prism_marl.envs.python.pettingzoo import PettingZoo, make_pettingzoo
from prism_marl.errors import UserError
from prism_marl.experiment.experiment import Experiment, Net, Run
from prism_marl.experiment.presets import preset
from prism_marl.learners import QMix
from prism_marl.monitor import Quiet
from prism_marl.runs import runner
from prism_marl.sharing import method
from prism_marl.training.build import make_trainer
from prism_marl.training.state import TrainState
from prism_marl.training.trainer import Trainer

EXAMPLES = Path(__file__).parents[2] / "examples"
LBF = "lbforaging/6x6-2p-1f"
GAME = "pettingzoo/pettingzoo_game?players=3&max_cycles=4"
# the learner's call, not ours
pytestmark = pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated:DeprecationWarning")


@pytest.fixture(autouse=True)
def own_modules(monkeypatch):
    """The example and the toys below are found as a user's modules would be; adding the current folder is undone."""
    monkeypatch.syspath_prepend(str(EXAMPLES))


# lbforaging


@pytest.mark.parametrize("variant", ["10x10-3p-3f", "8x8-2p-2f-coop", "10x10-3p-3f-s2", "8x8-2p-2f-own"])
def test_lbforaging_is_the_package_episode_by_episode(variant: str):
    env = envs.make_python(f"lbforaging/{variant}")
    task = make_lbf(variant)
    assert env.spec == replace(task.spec, name=f"lbforaging/{variant}")
    assert envs.describe(f"lbforaging/{variant}") == env.spec
    rng, rewards = np.random.default_rng(1), 0.0
    for seed in (5, 2**31 - 1, 7, 8):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*precision lowered by casting.*", category=UserWarning)
            direct: Any = ForagingEnv(**arguments(task))
        seen, obs = direct.reset(seed=seed)[0], env.reset(seed)
        foods, over = np.count_nonzero(direct.field), False
        while not over:
            np.testing.assert_array_equal(obs.local, np.stack(seen))
            np.testing.assert_array_equal(obs.state, np.concatenate(seen))
            assert obs.avail.all() and obs.role.tolist() == list(range(task.players))
            # mostly towards the first food, so that some are eaten
            goal = np.argwhere(direct.field)[0]
            action = np.array([toward(p.position, goal, rng) for p in direct.players])
            seen, reward, over, _, _ = direct.step(action.tolist())
            step = env.step(action)
            obs = step.obs
            left = np.count_nonzero(direct.field)
            assert float(step.reward) == pytest.approx(sum(reward), abs=1e-6)
            if task.own:
                np.testing.assert_allclose(step.agent_reward, reward, atol=1e-6)
            assert bool(step.terminated) == (left == 0) and bool(step.terminated | step.truncated) == over
            assert not (step.terminated and step.truncated)
            assert float(step.metrics["collected"]) == pytest.approx((foods - left) / foods)
            rewards += float(step.reward)
        np.testing.assert_array_equal(obs.local, np.stack(seen))
    assert rewards > 0.2
    env.close()


def toward(position, goal, rng: np.random.Generator) -> int:
    row, col = goal[0] - position[0], goal[1] - position[1]
    if rng.random() < 0.2:
        return int(rng.integers(6))
    if abs(row) + abs(col) == 1:
        return LOAD
    if col == 0 or (row != 0 and rng.random() < 0.5):
        return 2 if row > 0 else 1
    return 4 if col > 0 else 3


def test_lbforaging_has_the_registered_settings():
    for ours, theirs in (("10x10-3p-3f-coop-s2", "2s-10x10-3p-3f-coop"), ("8x8-2p-2f", "8x8-2p-2f")):
        assert gymnasium.registry[f"Foraging-{theirs}-v3"].kwargs == arguments(make_lbf(ours))


def test_an_episode_depends_on_its_seed_and_not_on_the_one_before():
    env = envs.make_python("lbforaging/5x5-4p-2f")
    first = env.reset(3)
    for _ in range(20):
        env.step(np.array([1, 2, 3, 4]))
    again = env.reset(3)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert not np.array_equal(env.reset(4).local, first.local)


def test_the_scene_is_drawn_by_the_twin():
    env = envs.make_python("lbforaging/10x10-3p-3f")
    env.reset(1)
    env.step(np.array([0, 0, LOAD]))
    scene = env.scene()
    assert scene is not None and scene.width == 10 and len(scene.shapes) == 6
    assert scene.caption == "step 1/50, 0% of the food collected"


@pytest.mark.parametrize(
    ("variant", "hint"),
    [
        ("10x10", "did you mean 'lbforaging/10x10-3p-3f'"),
        ("10x10-1p-3f", "'lbforaging/10x10-1p-3f' has players 1, .* try 2"),
        ("8x6-2p-1f", "not square.* use 'lbf/8x6-2p-1f' or 'lbforaging/8x8-2p-1f'"),
    ],
)
def test_impossible_foraging_is_refused_under_its_own_name(variant: str, hint: str):
    with pytest.raises(UserError, match=hint):
        envs.describe(f"lbforaging/{variant}")


def test_a_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "lbforaging.foraging", None)
    with pytest.raises(UserError, match=r"pip install .*'prism-marl\[lbforaging\]'"):
        envs.make_python("lbforaging/10x10-3p-3f")
    monkeypatch.setitem(sys.modules, "absent_package", None)
    with pytest.raises(UserError, match=r"pip install .*'prism-marl\[pettingzoo\]'"):
        envs_base.require("absent_package", "pettingzoo")


# pettingzoo


class Toy(ParallelEnv):
    """Three unequal agents. ``ends`` maps an agent to the step of its end and whether it is a true one."""

    metadata = {"name": "toy_v0"}  # noqa: RUF012

    def __init__(self, ends: dict[str, tuple[int, bool]] | None = None, *, own_state: bool = False):
        self.possible_agents = ["a", "b", "c"]
        self.ends, self.own_state, self.sent = ends or {}, own_state, []

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        seen = {"a": Box(-9, 9, (2,)), "b": Box(-9, 9, (3,)), "c": Box(-9, 9, (2, 2))}
        return Dict(observation=seen["b"], action_mask=Box(0, 1, (3,), np.int8)) if agent == "b" else seen[agent]

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        return {"a": Discrete(2), "b": Discrete(3, start=5), "c": Discrete(4)}[agent]

    def reset(self, seed: int | None = None, options: Any = None):
        self.agents, self.clock, self.seed = list(self.possible_agents), 0, seed
        return self._observe(), self._infos()

    def step(self, actions: dict[str, int]):
        self.sent.append(actions)
        self.clock += 1
        playing = self.agents
        done = {agent: self.ends.get(agent, (99, True)) for agent in playing}
        ends = {agent: self.clock >= when and true for agent, (when, true) in done.items()}
        cuts = {agent: self.clock >= when and not true for agent, (when, true) in done.items()}
        observed, infos = self._observe(), self._infos()
        self.agents = [agent for agent in playing if not ends[agent] and not cuts[agent]]
        return observed, {agent: float(self.clock) for agent in playing}, ends, cuts, infos

    def state(self) -> np.ndarray:
        if not self.own_state:
            raise NotImplementedError
        return np.array([[self.clock, 7]])

    def _observe(self) -> dict[str, Any]:
        now = float(self.clock + 1)
        mask = np.array([0, 1, self.clock % 2], np.int8)
        seen = {
            "a": np.full(2, now, np.float32),
            "b": {"observation": np.full(3, now, np.float32), "action_mask": mask},
            "c": np.full((2, 2), -now, np.float32),
        }
        return {agent: seen[agent] for agent in self.agents}

    def _infos(self) -> dict[str, Any]:
        return {agent: {"action_mask": np.array([1, 0], np.int8)} if agent == "a" else {} for agent in self.agents}


def test_unequal_agents_are_padded_and_masked():
    env = PettingZoo("pettingzoo/toy", Toy(), horizon=3)
    spec = env.spec
    assert (spec.agents, spec.observation, spec.state, spec.actions, spec.roles) == (3, 4, 12, 4, 3)
    assert spec.state_is_joint and spec.horizon == 3 and spec.version.startswith("toy_v0, pettingzoo ")
    obs = env.reset(4)
    assert env.env.seed == 4
    assert obs.local.tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [-1, -1, -1, -1]]
    np.testing.assert_array_equal(obs.state, obs.local.reshape(-1))
    assert obs.avail.astype(int).tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 1]]
    step = env.step(np.array([0, 1, 3]))
    assert env.env.sent == [{"a": 0, "b": 6, "c": 3}]  # b's actions start at 5
    assert float(step.reward) == 3 and step.obs.avail[1].tolist() == [False, True, True, False]
    assert spec.reward == "agent" and step.agent_reward.sum() == 3 and len(step.agent_reward) == 3
    assert step.obs.role.tolist() == [0, 1, 2] and step.obs.local.dtype == np.float32
    assert not step.terminated and not step.truncated
    env.step(np.array([0, 1, 3]))
    last = env.step(np.array([0, 1, 3]))
    assert last.truncated and not last.terminated and last.obs.local.any(axis=1).all()


def test_the_dead_see_nothing_and_do_nothing():
    env = PettingZoo("pettingzoo/toy", Toy({"b": (1, True), "c": (2, False), "a": (3, True)}), horizon=9)
    env.reset(0)
    dead = env.step(np.array([0, 1, 3]))
    assert dead.obs.local[1].tolist() == [0, 0, 0, 0] and dead.obs.avail[1].tolist() == [True, False, False, False]
    assert float(dead.reward) == 3 and not dead.terminated and not dead.truncated
    cut = env.step(np.array([0, 0, 3]))
    assert env.env.sent[-1] == {"a": 0, "c": 3}
    assert cut.obs.local[2].tolist() == [-3, -3, -3, -3] and not cut.truncated  # its last sight is kept for one step
    end = env.step(np.array([0, 0, 0]))
    assert env.env.sent[-1] == {"a": 0} and float(end.reward) == 3
    assert end.obs.local.tolist() == [[0] * 4] * 3 and end.terminated and not end.truncated


@pytest.mark.parametrize(
    ("ends", "terminated"),
    [
        ({"a": (2, True), "b": (2, True), "c": (2, True)}, True),
        ({"a": (2, False), "b": (2, False), "c": (2, False)}, False),
        ({"a": (1, False), "b": (2, True), "c": (2, True)}, True),
        ({"a": (1, True), "b": (2, True), "c": (2, False)}, False),  # c could have gone on
    ],
)
def test_who_leaves_last_decides_how_an_episode_ends(ends: dict[str, tuple[int, bool]], terminated: bool):
    env = PettingZoo("pettingzoo/toy", Toy(ends), horizon=9)
    env.reset(0)
    first, second = env.step(np.array([0, 1, 0])), env.step(np.array([0, 1, 0]))
    assert not first.terminated and not first.truncated
    assert bool(second.terminated) == terminated and bool(second.truncated) != terminated
    assert second.obs.local.any() != terminated  # what is bootstrapped from is there


def test_the_environment_may_bring_its_own_state():
    env = PettingZoo("pettingzoo/toy", Toy(own_state=True), horizon=9)
    assert env.spec.state == 2 and not env.spec.state_is_joint
    env.reset(0)
    assert env.step(np.array([0, 1, 0])).obs.state.tolist() == [1, 7]
    assert PettingZoo("pettingzoo/toy", Toy(own_state=True), horizon=9, joint=True).spec.state_is_joint
    env.env.own_state = False
    with pytest.raises(UserError, match=r"gave 2 numbers at first and fails at step 2; .*toy\?state=joint"):
        env.step(np.array([0, 1, 0]))


def provide(monkeypatch, name: str, **content: Any) -> None:
    module = types.ModuleType(name)
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, name, module)


def test_settings_in_the_name_reach_the_environment(monkeypatch):
    made: list[dict[str, Any]] = []

    def parallel_env(**settings: Any) -> Toy:
        made.append(settings)
        return Toy()

    provide(monkeypatch, "toy_settings", parallel_env=parallel_env)
    env = make_pettingzoo("toy_settings?size=3&noise=0.5&wrap=true&mode=fast&limit=none&horizon=12")
    assert made == [{"size": 3, "noise": 0.5, "wrap": True, "mode": "fast", "limit": None}]
    assert env.spec.horizon == 12 and env.spec.name.startswith("pettingzoo/toy_settings?size=3")
    assert make_pettingzoo("toy_settings?max_cycles=25").spec.horizon == 25
    assert envs.describe(GAME).horizon == 4 and envs.describe(GAME).agents == 3  # from the environment itself


def space(**spaces: Any) -> type[Toy]:
    return type("Other", (Toy,), {name: (lambda self, agent, held=held: held) for name, held in spaces.items()})


@pytest.mark.parametrize(
    ("variant", "content", "hint"),
    [
        ("no-module", {}, "must name a module with parallel_env"),
        ("nowhere_to_be_found.game", {}, "does not exist .'nowhere_to_be_found'.; install it or run from the folder"),
        ("toy", {}, "'toy' has no parallel_env; add a function"),
        ("toy", {"parallel_env": Toy}, "how long an episode may last; write 'pettingzoo/toy.horizon=200'"),
        ("toy?horizon=0", {"parallel_env": Toy}, "whole number from 1 to"),
        ("toy?horizon=soon", {"parallel_env": Toy}, "whole number from 1 to"),
        ("toy?horizon", {"parallel_env": Toy}, "'horizon' .* is not name=value"),
        ("toy?horizon=2&horizon=3", {"parallel_env": Toy}, "comes twice"),
        ("toy?state=mine&horizon=2", {"parallel_env": Toy}, "can only be 'joint'"),
        ("toy?size=3&horizon=2", {"parallel_env": Toy}, "refuses its settings .*'size'.*; change what follows"),
        (
            "toy?horizon=2",
            {"parallel_env": space(action_space=Box(0, np.inf, (2,)))},
            "'a' a Box that is not of bounded",
        ),
        ("toy?horizon=2", {"parallel_env": space(action_space=MultiDiscrete([2, 2]))}, "'a' MultiDiscrete actions"),
        ("toy?horizon=2", {"parallel_env": space(observation_space=Sequence(Discrete(2)))}, "a Sequence space.* Box"),
        ("toy?horizon=2", {"parallel_env": lambda: types.SimpleNamespace()}, "list 'possible_agents'"),
    ],
)
def test_what_cannot_be_played_is_refused_in_one_sentence(monkeypatch, variant: str, content: dict, hint: str):
    provide(monkeypatch, "toy", **content)
    with pytest.raises(UserError, match=hint) as error:
        make_pettingzoo(variant)
    assert "\n" not in str(error.value)


def test_modules_that_do_not_import_are_named(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "lacks_something.py").write_text("import something_else_entirely\n")
    (tmp_path / "fails_at_once.py").write_text("raise RuntimeError('no display')\n")
    with pytest.raises(UserError, match=r"module 'something_else_entirely'.*pip install .*'something_else_entirely'"):
        make_pettingzoo("lacks_something")
    with pytest.raises(UserError, match=r"ends in RuntimeError \(no display\); make"):
        make_pettingzoo("fails_at_once")


def test_an_empty_mask_is_refused_while_playing():
    class Stuck(Toy):
        def _infos(self) -> dict[str, Any]:
            return {agent: {"action_mask": np.zeros(2)} if agent == "a" else {} for agent in self.agents}

    with pytest.raises(UserError, match="gives agent 'a' no legal action at step 0"):
        PettingZoo("pettingzoo/stuck", Stuck(), horizon=2).reset(0)


# the host loop


def experiment(task: str, *, steps: int = 40, **learner: Any) -> Experiment:
    small = {"batch": 4, "buffer": 8, "embed": 4, "hypernet": 4, "epsilon_anneal": 100}
    schedule = Run(steps=steps, seeds=2, envs=2, eval_every=steps // 2, eval_episodes=3, measures=0)
    return Experiment(task, method("fups_id")(), QMix(**(small | learner)), Net(width=4), schedule)


def trained(folder: Path) -> dict[str, list[dict[str, float]]]:
    return {
        name: [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        for name in ("eval", "train")
    }


def collected(trainer: Trainer, state: TrainState) -> tuple[Any, Any]:
    """One collection with exploration, from the state's own keys."""
    given = (state.seeds, state.clock, int(state.clock.iteration), None, "explore")
    _, batch, summary = trainer._host._collect(*given)
    return batch, summary


@pytest.mark.parametrize("limit_ends", [True, False])
def test_collected_episodes_keep_the_promises_of_the_compiled_loop(limit_ends: bool):
    settings = experiment(LBF, time_limit_ends=limit_ends).changed(run=Run(seeds=2, envs=8, eval_episodes=3))
    trainer = make_trainer(settings)
    assert isinstance(trainer.collector, HostCollector) and not trainer.collector.compiled
    state = trainer.init()
    batch, summary = collected(trainer, state)
    for leaf, shape in zip(*map(jax.tree.leaves, (batch, trainer.learner.template())), strict=True):
        assert (leaf.shape, leaf.dtype) == ((2, shape.shape[0], 8, *shape.shape[1:]), shape.dtype)
    held = jax.vmap(trainer.learner.add)(state.seeds.buffer, batch).storage
    episodes = trainer.learner.episodes.restored(held)  # as updates read them: [n, b, t, ...]
    valid, ended = np.asarray(episodes.valid), np.asarray(episodes.terminated)
    assert valid.shape == (2, 8, HORIZON) and valid[..., 0].all()
    assert (np.diff(valid.astype(int), axis=-1) <= 0).all()  # once over, always over
    length = valid.sum(axis=-1)
    np.testing.assert_array_equal(length.sum(axis=1), summary.steps)
    assert length.min() < HORIZON  # some episodes end early with so little food: otherwise the test says little
    assert not ended[~valid].any() and not np.asarray(episodes.reward)[~valid].any()
    local, last = np.asarray(episodes.obs.local), np.arange(HORIZON + 1) == length[..., None]
    cleared = (local[last][..., 2] == 0).all(axis=-1).reshape(2, 8)  # no food is left
    assert cleared.any()
    np.testing.assert_array_equal(ended.any(axis=-1), np.ones_like(cleared) if limit_ends else cleared)
    assert (ended <= last[..., 1:]).all()  # at the last step, if at all
    for seed, episode in np.argwhere(length < HORIZON).tolist():
        final = local[seed, episode, length[seed, episode]]
        assert (final[:, 2] == 0).all()  # the last slot of a finished episode is the observation after its last step
        assert (local[seed, episode, length[seed, episode] :] == final).all()
    assert len({local[s, e, 0].tobytes() for s in range(2) for e in range(8)}) > 14  # every episode has its own seed

    again, _ = collected(trainer, state)
    jax.tree.map(np.testing.assert_array_equal, batch, again)
    later, _ = trainer.absorb(state.seeds, state.clock, (), batch, summary, learn=False)
    assert not np.array_equal(*(jax.random.key_data(seeds.state.key) for seeds in (state.seeds, later)))
    trainer.close()


def test_the_example_from_reset_to_result_agrees_with_the_environment():
    """Stored episodes replayed by hand: same observations, masks and rewards in the same slots."""
    trainer = make_trainer(experiment(GAME))
    state = trainer.init()
    starts = host._split(trainer._host._keys_program(state.seeds.state, state.clock), 2)[1]
    batch, summary = collected(trainer, state)
    held = jax.vmap(trainer.learner.add)(state.seeds.buffer, batch).storage
    episodes = trainer.learner.episodes.restored(held)
    env = envs.make_python(GAME)
    for place in np.ndindex(2, 2):
        obs = env.reset(int(starts[place]))
        for t in range(4):
            np.testing.assert_array_equal(episodes.obs.local[place][t], obs.local)
            np.testing.assert_array_equal(episodes.obs.avail[place][t], obs.avail)
            step = env.step(np.asarray(episodes.action[place][t], np.int32))
            assert float(episodes.reward[place][t]) == pytest.approx(float(step.reward))
            obs = step.obs
        np.testing.assert_array_equal(episodes.obs.local[place][4], obs.local)
        assert step.truncated and episodes.terminated[place].tolist() == [False, False, False, True]
    scenes, total = trainer.watch(state, seed=1, number=0)
    assert len(scenes) == 5 and 0 <= total <= 1 and summary.steps.tolist() == [8, 8]


def test_evaluation_is_the_mean_of_the_episodes_that_it_plays():
    """Three episodes of each seed, replayed by hand from their seeds with the policy's own actions."""
    trainer = make_trainer(experiment(LBF))
    state = trainer.init()
    found = trainer.evaluate(state, 4)
    policy = trainer._host.playing_policy(state.seeds.state)
    learner, env = trainer.learner, envs.make_python(LBF)
    for seed in range(2):
        key = evaluation_key(jnp.uint32(seed), jnp.int32(4))[None]
        returns, lengths, alone = [], [], jax.tree.map(lambda leaf, seed=seed: leaf[seed], policy)
        for start in host._split(key, 3)[1][0]:
            obs, memory, step = env.reset(int(start)), learner.memory(alone, 1), None
            total = length = 0
            while step is None or not (step.terminated or step.truncated):
                batched = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], obs)
                memory, action, _ = learner.act(alone, memory, batched, key[0], jnp.int32(0), "greedy")
                step = env.step(np.asarray(action[0]))
                obs, total, length = step.obs, total + float(step.reward), length + 1
            returns.append(total)
            lengths.append(length)
        assert found["return"][seed] == pytest.approx(np.mean(returns), abs=1e-6)
        assert found["length"][seed] == np.mean(lengths)
    trainer.close()


def test_foraging_trains_and_the_same_seed_gives_the_same_rows(tmp_path):
    settings = experiment(LBF, steps=200)
    first, second = (trained(runner.run(settings, tmp_path / name)) for name in ("one", "two"))
    assert first == second
    assert [(row["evaluation"], row["seed"]) for row in first["eval"]] == [(e, s) for e in range(3) for s in range(2)]
    assert {"return", "length", "collected"} <= set(first["eval"][0])
    assert first["train"] and all(np.isfinite(list(row.values())).all() for rows in first.values() for row in rows)
    assert first["train"][0]["loss"] > 0 and first["train"][0] != first["train"][1]
    assert (tmp_path / "one" / "done").exists()
    assert json.loads((tmp_path / "one" / "replays" / "seed-0.json").read_text())["frames"]


def test_a_stopped_run_goes_on_as_if_nothing_had_happened(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "PIECE_SECONDS", 0.0)  # stops are heard every 64 steps

    class Impatient(Quiet):
        def progress(self, steps: int, rate: float, text: str) -> None:
            if steps > 170:
                os.kill(os.getpid(), signal.SIGINT)

    settings = experiment(GAME, steps=300)
    whole = trained(runner.run(settings, tmp_path / "whole"))
    with pytest.raises(UserError, match="the same command continues"):
        runner.run(settings, tmp_path / "stopped", Impatient())
    assert len(trained(tmp_path / "stopped")["eval"]) == 4  # between the second and the last evaluation
    assert trained(runner.run(settings, tmp_path / "stopped")) == whole
    assert len(whole["eval"]) == 6 and len(whole["train"]) == 4


def test_presets_and_families():
    assert preset("lbforaging/10x10-3p-3f", "prism").learner == preset("lbf/10x10-3p-3f", "prism").learner
    assert preset(GAME, "prism").network == preset("lbf/10x10-3p-3f", "prism").network
    assert envs.is_compiled("lbf/10x10-3p-3f") and not envs.is_compiled(GAME) and not envs.is_compiled(LBF)
    with pytest.raises(UserError, match="played on the host and cannot be compiled"):
        envs.make(LBF)
    with pytest.raises(UserError, match="does not live in Python"):
        envs.make_python("lbf/10x10-3p-3f")
