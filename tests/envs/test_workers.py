"""Environments in worker processes: real ones that exit their process, sleep for ever, or raise in a step."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prism_marl import envs
from prism_marl.envs.python.rows import PythonRows
from prism_marl.envs.workers import pool
from prism_marl.envs.workers.channel import Channel, pack, unpack
from prism_marl.envs.workers.pool import RemoteEnv, WorkerPool
from prism_marl.errors import UserError
from prism_marl.monitor import Quiet
from prism_marl.report import load
from prism_marl.runs import runner
from tiny import small

GO, RAISE, HANG, DIE = range(4)
GAME = '''
import os, time
import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv
from prism_marl.scene import Scene

class Game(ParallelEnv):
    """The first agent's action may end the process, sleep for ever or raise; with ``fate``, so may the seed."""
    metadata = {"name": "fragile"}
    possible_agents = ["a", "b"]

    def __init__(self, fate=0, controls=False, broken=False):
        self.max_cycles, self.fate, self.controls, self.broken = 6, fate, controls, broken

    def observation_space(self, agent):
        return Box(-9, 9, (3,), np.float32)

    def action_space(self, agent):
        return Box(-1, 1, (2,), np.float32) if self.controls else Discrete(4)

    def reset(self, seed=None, options=None):
        if self.broken and seed:
            os._exit(9)
        self.agents, self.clock, self.rng = ["a", "b"], 0, np.random.default_rng(seed)
        self.doomed = self.fate and seed and seed % self.fate == 0
        return self._look(), {a: {} for a in self.agents}

    def step(self, actions):
        self.clock += 1
        action = actions["a"]
        chosen = int(np.rint(2 + action[0])) if self.controls else 0 if self.fate else int(action)
        if self.doomed and self.clock == 3 or chosen == 3:
            os._exit(7)
        if chosen == 2 and not self.controls:
            time.sleep(10**6)
        if chosen == 1 and not self.controls:
            raise RuntimeError("no more\\nplaying")
        over = self.clock >= self.max_cycles
        seen, players = self._look(), self.agents
        self.agents = [] if over else players
        same = lambda value: dict.fromkeys(players, value)
        return seen, same(0.5), same(over), same(False), {a: {} for a in players}

    def scene(self):
        return Scene(3.0, 3.0, (), caption=f"step {self.clock}")

    def _look(self):
        return {a: np.append(self.rng.random(2), self.clock).astype(np.float32) for a in self.agents}

def parallel_env(**settings):
    return Game(**settings)
'''


@pytest.fixture(autouse=True)
def game(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "fragile_game.py").write_text(GAME)
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    monkeypatch.setattr(pool, "usable_cores", lambda: 1)  # all in one worker


def remote_envs(number: int, task: str = "pettingzoo/fragile_game", patience: float = 60.0) -> list[RemoteEnv]:
    workers = WorkerPool(task, envs.describe(task), patience)
    return [workers.make_env() for _ in range(number)]


def play(hosts: list[Any], actions: list[int]) -> list[Any]:
    for host, action in zip(hosts, actions, strict=True):
        if isinstance(host, RemoteEnv):
            host.begin_step(np.array([action, GO], np.int32))
    return [host.step(np.array([action, GO], np.int32)) for host, action in zip(hosts, actions, strict=True)]


def same(one: Any, other: Any) -> None:
    np.testing.assert_equal(one._asdict(), other._asdict())


def test_messages_come_as_they_were_sent_however_long_and_however_many():
    ours, theirs = os.pipe(), os.pipe()
    here, there = Channel(ours[0], theirs[1]), Channel(theirs[0], ours[1])
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.bool_(True), "c": np.zeros((0, 4), np.int64)}
    words, found = unpack(pack({"x": [1, None, "ü"]}, arrays))
    assert words == {"x": [1, None, "ü"]}
    for name, value in arrays.items():
        assert found[name].dtype == value.dtype and np.array_equal(found[name], value)
    for number in range(50):  # far more than two pipes hold, in both directions, before anybody reads
        here.send(bytes([number]) * 10_000)
        there.send(bytes([number]) * 10_000)
    for number in range(50):
        assert there.receive(5) == bytes([number]) * 10_000 == here.receive(5)
    with pytest.raises(TimeoutError):
        here.receive(0.01)
    there.close()
    with pytest.raises(EOFError):
        here.receive(5)
    here.close()


def test_who_is_lost_loses_an_episode_and_the_others_lose_nothing():
    """Deaths, hangs and exceptions of one game; the others in its worker go on as if they had been alone."""
    hosts, alone = remote_envs(3, patience=1.5), [envs.make_host("pettingzoo/fragile_game") for _ in range(3)]
    for place in range(3):
        same(hosts[place].reset(place + 5), alone[place].reset(place + 5))
    for lost, disaster in ((1, DIE), (0, HANG), (2, RAISE)):
        before = play(hosts, [GO] * 3)
        for step, expected in zip(before, play(alone, [GO] * 3), strict=True):
            same(step.obs, expected.obs)
        actions = [disaster if place == lost else GO for place in range(3)]
        steps = play(hosts, actions)
        assert steps[lost].truncated and not steps[lost].terminated and float(steps[lost].reward) == 0
        same(steps[lost].obs, before[lost].obs)
        for place in {0, 1, 2} - {lost}:
            same(steps[place].obs, play(alone[place : place + 1], [GO])[0].obs)
            assert not hosts[place].lost and float(steps[place].reward) == 1
        assert hosts[lost].lost and hosts[lost].scene() is None
        same(hosts[lost].reset(lost + 20), alone[lost].reset(lost + 20))
        assert not hosts[lost].lost
    assert [host.dropped for host in hosts] == [1, 1, 1]
    drawing = hosts[0].scene()
    assert drawing is not None and drawing.caption.startswith("step ")
    started = hosts[0]._worker._process
    assert started is not None and started.process.poll() is None
    for host in hosts:
        host.close()
    assert started.process.poll() is not None


def test_a_game_that_never_starts_or_is_always_lost_is_one_sentence(monkeypatch):
    monkeypatch.setattr(pool, "LOST_IN_A_ROW", 2)
    (broken,) = remote_envs(1, "pettingzoo/fragile_game?broken=true")
    with pytest.raises(UserError, match=r"could not start an episode in 3 tries \(its process died\)") as error:
        broken.reset(1)
    assert error.value.code == 1
    broken.close()
    (host,) = remote_envs(1)
    with pytest.raises(UserError, match=r"lost 2 episodes in a row \(RuntimeError: no more\)"):
        for seed in range(3):
            host.reset(seed)
            host.step(np.array([RAISE, GO]))
    host.close()


def test_rows_of_continuous_games_go_on_after_a_loss():
    task = "pettingzoo/fragile_game?controls=true"
    rows = PythonRows(envs.host_builder(task, 60.0), 2)
    assert rows.dropped == 0
    action = np.zeros((2, 2, 2), np.float32)
    action[1, 0, 0] = 1.0  # which this game takes for DIE
    step = rows.step(action)
    assert step.truncated.tolist() == [False, True] and rows.lost.tolist() == [False, True] and rows.dropped == 1
    rows.reset(np.array([1]), np.array([8]))
    assert not rows.step(np.zeros_like(action)).truncated.any() and not rows.lost.any()
    rows.close()


class Notes(Quiet):
    """Remembers what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def test_a_run_goes_on_without_the_lost_episodes_and_says_how_many(tmp_path: Path):
    task = "pettingzoo/fragile_game?fate=13"
    schedule = {"run__steps": "120", "run__eval_every": "60", "run__envs": "4", "run__eval_episodes": "4"}
    experiment = small(task, "fups", **schedule, run__patience="60")
    notes = Notes()
    folder = runner.run(experiment, tmp_path / "run", notes)
    rows = [json.loads(line) for line in (folder / "timing.jsonl").read_text().splitlines()]
    lost = sum(row["dropped"] for row in rows)
    assert lost > 0 and any("episodes were dropped because their game died or hung" in text for text in notes.said)
    for row in [json.loads(line) for line in (folder / "eval.jsonl").read_text().splitlines()]:
        assert row["return"] == 6.0 and row["length"] == 6.0  # of whole episodes alone
    assert f"{lost} episodes were dropped" in " ".join(load.load_run(folder).notes)


def test_a_worker_does_not_outlive_its_parent(tmp_path: Path):
    """Also when the parent is killed while an environment hangs."""
    program = (
        "import time, numpy as np; from prism_marl import envs\n"
        "host = envs.host_builder('pettingzoo/fragile_game', 60.0)(); host.reset(1)\n"
        "host.begin_step(np.array([2, 0])); time.sleep(0.5)  # by then it hangs\n"
        "print(host._worker._process.process.pid, flush=True); time.sleep(60)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment)
    assert owner.stdout is not None
    worker = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    owner.stdout.close()
    until = time.monotonic() + 30
    while Path(f"/proc/{worker}/cmdline").exists() and Path(f"/proc/{worker}/cmdline").read_bytes():
        assert time.monotonic() < until
        time.sleep(0.1)
