"""Sweeps: a grid is what it says, every experiment runs once, and one that fails stops nobody else."""

import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from prism_marl.errors import UserError
from prism_marl.experiment.plugins import load_file
from prism_marl.experiment.presets import preset
from prism_marl.runs import checkpoint
from prism_marl.sharing import METHODS
from prism_marl.sweeps.executors import EXECUTORS, Event, local, make_executor
from prism_marl.sweeps.executors.local import Local, Slot, slots
from prism_marl.sweeps.grid import Sweep, folder_of, grid, is_finished, run_sweep
from tiny import foraging, long_roles, rows_of, same_result, small


def test_a_grid_has_every_combination_once():
    bases = [preset("roles/2", method) for method in ("prism", "fups_id")]
    made = grid(bases, {"learner.lr": [1e-3, "5e-4"], "run.seeds": 5, "run.steps": [10, 20]})
    assert [(e.sharing.method, e.learner.lr, e.run.seeds, e.run.steps) for e in made] == [
        (method, lr, 5, steps) for method in ("prism", "fups_id") for lr in (1e-3, 5e-4) for steps in (10, 20)
    ]
    assert grid(bases[0], {"learner.lr": [1e-3, 0.001]}) == grid(bases[0], {"learner.lr": 1e-3})
    assert grid(bases, {}) == tuple(bases)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sharing.common": [0.5]}, "common.*roles/2 with fups_id"),
        ({"learner.lr": []}, "learner.lr: .* must not be empty"),
        ({"learner.lr": ["fast"]}, "learner.lr: expected a number"),
        ({"run.steps": ["1\n2"]}, "run.steps"),
    ],
)
def test_a_grid_that_cannot_be_made_is_one_sentence(options, words):
    with pytest.raises(UserError, match=words) as error:
        grid([preset("roles/2", method) for method in ("prism", "fups_id")], options)
    assert "\n" not in str(error.value)


MINE = """
from dataclasses import dataclass
from typing import Literal
from prism_marl.sharing import METHODS, FuPS

@dataclass(frozen=True)
class Mine(FuPS):
    method: Literal["mine"] = "mine"

METHODS["mine"] = Mine
print("environments may print what they like")
"""


@pytest.fixture
def mine(tmp_path):
    """A file that registers a method."""
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    load_file(path)
    yield path
    METHODS.pop("mine")


def test_a_sweep_runs_what_is_left_and_lists_what_failed(trained, tmp_path, mine):
    """Finished before; in a damaged folder; and never begun, with a method of the user's and an extra sink."""
    done, broken = foraging(), small("roles/2", "prism")
    fresh = small("roles/2", "mine", run__steps="20", run__eval_every="10")
    shutil.copytree(trained, folder_of(done, tmp_path))
    folder_of(broken, tmp_path).mkdir(parents=True)
    (folder_of(broken, tmp_path) / "config.json").write_text("{")
    events: list[Event] = []
    sweep = Sweep("three", (done, broken, fresh, fresh))
    outcome = run_sweep(sweep, tmp_path, Local(jobs=2), sinks=["tensorboard"], files=[mine], on_event=events.append)
    assert outcome.finished == (folder_of(fresh, tmp_path),) and is_finished(folder_of(fresh, tmp_path))
    assert outcome.skipped == (folder_of(done, tmp_path),)
    assert [failure.folder for failure in outcome.failed] == [folder_of(broken, tmp_path)]
    assert "config.json: this is not JSON" in outcome.failed[0].error and "\n" not in outcome.failed[0].error
    told = [(event.state, event.job.experiment.sharing.method) for event in events]
    assert sorted(told) == [("failed", "prism"), ("finished", "mine"), ("running", "mine"), ("running", "prism")]
    assert (folder_of(fresh, tmp_path) / "log.txt").read_text() == "environments may print what they like\n"
    assert list((folder_of(fresh, tmp_path) / "tensorboard" / "seed-0").iterdir())


def interrupt_once_begun(folder: Path) -> None:
    """Ctrl-C for this process when a run has written its first evaluation: from then on there is something to save."""

    def watch() -> None:
        give_up = time.monotonic() + 300
        while time.monotonic() < give_up and not (folder / "eval.jsonl").exists():
            time.sleep(0.002)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()


@pytest.fixture
def ctrl_c_is_heard():
    """A shell lets what it starts in the background ignore Ctrl-C, the test run included."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_ctrl_c_lets_workers_save_and_the_same_sweep_ends_with_the_same_bytes(tmp_path, undisturbed):
    folder = folder_of(long_roles(), tmp_path)
    with pytest.raises(UserError, match="stopped; 0 of 1 experiments are finished; the same command cont") as error:
        run_sweep([long_roles()], tmp_path, on_event=lambda event: interrupt_once_begun(folder))
    assert error.value.code == 130 and not is_finished(folder)
    saved = checkpoint.paths(folder / "checkpoints")[0].stem
    assert saved.endswith(f"{1 + rows_of(folder)[-1]['evaluation']:03d}"), "it saved after its last row"
    assert run_sweep([long_roles()], tmp_path).finished == (folder,)
    assert same_result(folder, undisturbed)


def test_a_worker_that_dies_is_a_failure_with_its_signal(tmp_path, monkeypatch):
    monkeypatch.setattr(
        local, "WORKER", [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
    )
    outcome = run_sweep([foraging()], tmp_path)
    assert outcome.failed[0].error.startswith("the worker was ended by signal 9 (Killed); see ")


def test_the_machine_is_shared_out(monkeypatch):
    monkeypatch.setattr(local, "visible_gpus", list)
    monkeypatch.setattr(local, "core_numbers", lambda: [0, 1, 2, 4, 5, 7])
    assert slots(None, 99) == [Slot((0, 1)), Slot((2, 4)), Slot((5, 7))]
    assert slots(None, 1) == [Slot((0, 1, 2, 4, 5, 7))]
    assert slots(7, 99) == [Slot()] * 7
    monkeypatch.setattr(local, "visible_gpus", lambda: ["0", "3"])
    halves = [((0, 1, 2), "0"), ((4, 5, 7), "3")]
    assert slots(None, 99) == [Slot(cores, (("CUDA_VISIBLE_DEVICES", gpu),)) for cores, gpu in halves]
    assert [dict(slot.environment) for slot in slots(3, 99)] == [
        {"CUDA_VISIBLE_DEVICES": gpu, "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.450"} for gpu in "030"
    ]
    assert [slot.cores for slot in slots(3, 99)] == [(0, 1), (2, 4), (5, 7)]
    with pytest.raises(UserError, match=r"--jobs: 0 .* nearest valid value is 1"):
        Local(jobs=0)


def test_executors_are_found_by_name_and_a_stranger_adds_one(tmp_path, monkeypatch):
    class Pretending:
        def __init__(self, speed: int = 1):
            self.speed = speed

        def run(self, jobs):
            for job in jobs:
                yield Event(job, "failed", f"too slow at {self.speed}")

    monkeypatch.setitem(EXECUTORS, "pretending", Pretending)
    assert run_sweep([foraging()], tmp_path, "pretending").failed[0].error == "too slow at 1"
    for name, settings, words in (
        ("locla", {}, "executor: there is no 'locla'; did you mean 'local'?"),
        ("pretending", {"speed": None, "jobs": 2}, "--jobs: the executor 'pretending' has no such setting"),
    ):
        with pytest.raises(UserError, match=words):
            make_executor(name, **settings)


def test_files_of_the_user_are_executed_once_and_their_errors_are_one_sentence(tmp_path):
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text("values = []\n")
    bad.write_text("x = 1\ny = x / 0\n")
    assert load_file(good) is load_file(good) and load_file(good).values == []
    with pytest.raises(UserError, match=r"bad\.py, line 2: ZeroDivisionError"):
        load_file(bad)
    with pytest.raises(UserError, match="no such Python file"):
        load_file(tmp_path / "none.py")
