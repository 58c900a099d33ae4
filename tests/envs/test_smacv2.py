"""The contract with the real SMACv2, kept with a stand-in that speaks its interface and dies on request."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prism_marl import envs
from prism_marl.collect.host_episodes import HostEpisodes
from prism_marl.envs.base import Concurrent
from prism_marl.envs.python import smacv2
from prism_marl.envs.python.rows import Games, PythonRows
from prism_marl.envs.python.smacv2 import SMACv2
from prism_marl.envs.python.smacv2_game import configuration
from prism_marl.errors import UserError
from prism_marl.experiment.experiment import Experiment, Net, Run
from prism_marl.learners import QMix
from prism_marl.runs import runner
from prism_marl.sharing import method

TASK = "smacv2/terran_2_vs_2"
STOP, DIE, VANISH, RAISE, WIN = 1, 2, 3, 4, 6  # what the stand-in does when the first agent chooses this action

STAND_IN = '''
import os
import numpy as np

class Distribution:
    def __init__(self):
        self.rng = np.random.default_rng()
    def generate(self):
        return float(self.rng.random())

class StarCraftCapabilityEnvWrapper:
    """Two agents against two enemies by smacv2's interface. It kills its process on action 2, reports a replaced game
    on action 3, raises on action 4, wins on action 6, and runs out of time after four other steps."""
    def __init__(self, **settings):
        assert settings["map_name"] == "10gen_terran" and settings["continuing_episode"], settings
        assert settings["capability_config"]["n_units"] == 2, settings
        self.env_key_to_distribution_map = {"team_gen": Distribution()}
        self.clock, self.start, self.alive = 0, 0.0, True

    def get_env_info(self):
        sizes = {"n_agents": 2, "n_actions": 8, "obs_shape": 34, "state_shape": 42, "episode_limit": 200}
        return sizes | {"n_agents": int(os.environ.get("STAND_IN_AGENTS", "2"))}

    def reset(self):
        if os.environ.get("STAND_IN_BROKEN"):
            raise RuntimeError("no game here\\nat all")
        self.clock, self.alive = 0, True
        self.start = self.env_key_to_distribution_map["team_gen"].generate()
        return self.get_obs(), self.get_state()

    def step(self, actions):
        assert isinstance(actions, list) and len(actions) == 2
        if actions[0] == 2:
            os._exit(7)
        if actions[0] == 3:
            return 0, True, {}
        if actions[0] == 4:
            raise ConnectionError("lost")
        self.clock += 1
        info = {"battle_won": actions[0] == 6, "dead_allies": 1, "dead_enemies": 2}
        if self.clock == 4:
            info["episode_limit"] = True
        return 0.5, self.clock == 4 or actions[0] == 6, info

    def get_obs(self):
        obs = [np.full(34, self.start, np.float32) for _ in range(2)]
        obs[0][-3:], obs[1][-3:] = (0, 0, 1), (0, 0, 0)
        obs[0][0] = self.clock
        return obs

    def get_state(self):
        return np.full(42, self.start, np.float64)

    def get_avail_actions(self):
        return [[0, 1, 1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0, 0, 0]]

    def close(self):
        pass
'''


@pytest.fixture
def installed(tmp_path: Path, monkeypatch) -> None:
    """The stand-in under the name of the package, for this process and those it starts."""
    package = tmp_path / "smacv2" / "env"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.fixture
def game(installed):
    env = envs.make_python(TASK)
    yield env
    env.close()


def test_without_the_package_one_sentence_says_what_to_install_and_what_to_play():
    with pytest.raises(UserError, match=r"pip install .*smacv2.git'; 'skirmish/terran_5_vs_5' needs neither$"):
        envs.make_python("smacv2/terran_5_vs_5")
    with pytest.raises(UserError, match="needs no '-published'; write 'smacv2/zerg_5_vs_5'"):
        envs.make_python("smacv2/zerg_5_vs_5-published")
    with pytest.raises(UserError, match=r"'smacv2/zerg_5_vs5' is not .* did you mean 'zerg_5_vs_5'"):
        envs.describe("smacv2/zerg_5_vs5")
    spec, twin = envs.describe("smacv2/protoss_5_vs_5"), envs.describe("skirmish/protoss_5_vs_5")
    assert (spec.observation, spec.state, spec.actions, spec.metrics) == (92, 130, 11, twin.metrics)


def test_the_configuration_is_the_shipped_one():
    zerg = configuration("zerg", 10, 11)
    team = zerg["capability_config"]["team_gen"]
    assert zerg["map_name"] == "10gen_zerg" and zerg["capability_config"]["n_enemies"] == 11
    assert dict(zip(team["unit_types"], team["weights"], strict=True)) == {
        "zergling": 0.45,
        "hydralisk": 0.45,
        "baneling": 0.1,
    }
    assert team["exception_unit_types"] == ["baneling"] and zerg["use_unit_ranges"] and zerg["obs_own_pos"]


def test_episodes_speak_our_records(game: SMACv2):
    obs = game.reset(3)
    assert obs.local.shape == (2, 34) and obs.local.dtype == obs.state.dtype == np.float32
    assert obs.avail.dtype == bool and obs.avail[1].tolist() == [True] + [False] * 7
    assert obs.role.tolist() == [2, 0]  # the type bits; nothing is type 0
    again, other = game.reset(3), game.reset(4)
    np.testing.assert_array_equal(obs.local, again.local)  # the seed decides
    assert not np.array_equal(obs.local, other.local)
    step = game.step(np.array([STOP, 0]))
    assert not step.terminated and not step.truncated and float(step.reward) == 0.5 and step.obs.local[0, 0] == 1
    step = game.step(np.array([WIN, 0]))
    assert step.terminated and not step.truncated
    assert {name: float(value) for name, value in step.metrics.items()} == {
        "battle_won": 1,
        "dead_allies": 1,
        "dead_enemies": 2,
    }
    game.reset(5)
    for _ in range(4):
        step = game.step(np.array([STOP, 0]))
    assert step.truncated and not step.terminated and game.restarts == 0 and game.scene() is None


@pytest.mark.parametrize(("action", "lost"), [(DIE, 1), (RAISE, 1), (VANISH, 0)])
def test_a_lost_game_cuts_its_episode_short_and_the_next_one_is_played(game: SMACv2, action: int, lost: int):
    game.reset(1)
    before = game.step(np.array([STOP, 0]))
    game.begin_step(np.array([action, 0]))
    step = game.step(np.array([action, 0]))
    assert step.truncated and not step.terminated and float(step.reward) == 0 and game.restarts == lost
    np.testing.assert_array_equal(step.obs.local, before.obs.local)  # what is bootstrapped from is what was seen last
    assert float(step.metrics["battle_won"]) == 0
    game.begin_reset(1)
    assert game.reset(1).local[0, 0] == 0 and game.step(np.array([WIN, 0])).terminated


def test_a_game_killed_from_outside_or_too_slow_is_replaced(game: SMACv2, monkeypatch):
    game.reset(1)
    assert game._process is not None
    game._process.process.kill()
    assert game.reset(2).local.shape == (2, 34) and game.restarts == 1
    monkeypatch.setattr(smacv2, "PATIENCE", 0.0)
    assert game.step(np.array([STOP, 0])).truncated and game.restarts == 2
    monkeypatch.setattr(smacv2, "PATIENCE", 300.0)
    game.reset(3)
    process = game._process
    game.close()
    assert process is not None and game._process is None and process.process.poll() == 0  # it ended when asked to


def test_a_game_that_never_starts_or_has_other_sizes_is_one_sentence(installed, monkeypatch):
    monkeypatch.setenv("STAND_IN_BROKEN", "1")
    game: Any = envs.make_python(TASK)
    with pytest.raises(UserError, match=r"in 3 tries \(RuntimeError: no game here\); .*'skirmish/terran_2_vs_2'"):
        game.reset(0)
    game.close()
    monkeypatch.setenv("STAND_IN_AGENTS", "3")
    with pytest.raises(UserError, match="has n_agents 3, not 2; install it as"):
        envs.make_python(TASK)


def test_a_game_that_is_always_lost_ends_the_run(game: SMACv2):
    for action in [VANISH] * 9 + [WIN] + [VANISH] * 9:
        game.reset(0)
        assert game.step(np.array([action, 0])).truncated == (action == VANISH)
    assert game.dropped == 18
    game.reset(0)
    with pytest.raises(UserError, match=r"lost 10 episodes in a row \(smacv2 has replaced its game\); .*'skirmish/"):
        game.step(np.array([VANISH, 0]))


def test_all_games_are_told_what_to_do_before_the_first_is_waited_for():
    calls: list[str] = []

    class Fake:
        def __init__(self, name: str):
            self.name, self.spec = name, envs.describe(TASK)

        def begin_reset(self, seed: int) -> None:
            calls.append(f"begin {self.name}")

        def reset(self, seed: int) -> Any:
            calls.append(f"reset {self.name}")
            return smacv2.observation(np.zeros((2, 34)), np.ones((2, 8), bool), np.zeros(42))

        def begin_step(self, action: np.ndarray) -> None:
            calls.append(f"go {self.name}")

        def step(self, action: np.ndarray) -> Any:
            calls.append(f"step {self.name}")
            metrics = dict.fromkeys(self.spec.metrics, 0.0)
            obs = smacv2.observation(np.zeros((2, 34)), np.ones((2, 8), bool), np.zeros(42))
            return smacv2.outcome(obs, 0.0, terminated=True, truncated=False, metrics=metrics)

    games: list[Any] = [Fake("a"), Fake("b")]
    assert isinstance(games[0], Concurrent)
    names = iter(games)
    rows = PythonRows(Games(lambda: next(names)), 2)
    learner = QMix(last_action=True).learner(method("fups_id")(), envs.describe(TASK), width=4)
    HostEpisodes(rows, np.array([[1, 2]]), 2, learner.template()).step(np.zeros((1, 2, 2), int))
    assert calls == ["begin a", "begin b", "reset a", "reset b", "go a", "go b", "step a", "step b"]


def test_rows_of_it_go_on_with_new_episodes_because_its_dice_cannot_be_replayed(installed):
    rows = envs.make_rows(TASK, 2)
    assert isinstance(rows, PythonRows) and not rows.replayable
    rows.reset(np.arange(2), np.array([3, 4]))
    seen = rows.observe().local
    rows.step(np.array([[STOP, 0], [STOP, 0]]))
    held = rows.snapshot()
    rows.restore(held)
    np.testing.assert_array_equal(rows.observe().local, seen)  # the first observation, and no action played
    rows.close()


def test_the_host_loop_trains_on_it(installed, tmp_path: Path):
    small = QMix(batch=2, buffer=4, embed=4, hypernet=4, epsilon_anneal=100, last_action=True, time_limit_ends=False)
    schedule = Run(steps=12, seeds=1, envs=1, eval_every=12, eval_episodes=1, measures=0)
    prism: Any = method("prism")(masks="role")
    folder = runner.run(Experiment(TASK, prism, small, Net(width=4), schedule), tmp_path / "run")
    rows = (folder / "eval.jsonl").read_text().splitlines()
    assert len(rows) == 2 and '"battle_won"' in rows[0] and (folder / "done").exists()
