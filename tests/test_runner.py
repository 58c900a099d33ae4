"""Runs: the same bytes every time, whatever interrupts them, and refusals that cost nothing."""

import fcntl
import json
import os
import shutil
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

from prism_marl.errors import UserError
from prism_marl.experiment import config
from prism_marl.learners.value import ValueLearner
from prism_marl.monitor import Quiet
from prism_marl.runs import checkpoint, memory, runner
from prism_marl.runs import folder as run_folder
from tiny import final_state, foraging, record, same_arrays, small


class Notes(Quiet):
    """Keeps what a user would read."""

    def __init__(self):
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def rows(folder: Path, name: str = "eval") -> int:
    path = folder / f"{name}.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_finished_run_holds_what_it_should(trained):
    table = [json.loads(line) for line in (trained / "eval.jsonl").read_text().splitlines()]
    assert [(row["evaluation"], row["seed"]) for row in table] == [(n, seed) for n in range(41) for seed in (5, 6)]
    assert all(row["step"] >= 100 * row["evaluation"] for row in table)
    assert (table[0]["step"], table[0]["return"] >= 0) == (0, True)
    learning = [json.loads(line) for line in (trained / "train.jsonl").read_text().splitlines()]
    assert all(np.isfinite(row["loss"]) and row["epsilon"] <= 1 for row in learning)
    assert len(list((trained / "spectra").iterdir())) == 41
    assert len(checkpoint.paths(trained / "checkpoints")) == checkpoint.KEEP
    timing = [json.loads(line) for line in (trained / "timing.jsonl").read_text().splitlines()]
    assert all(row["steps_per_second"] > 0 for row in timing)
    updates = final_state(trained)["seeds.state.updates"]
    assert updates.tolist() == updates.tolist()[:1] * 2 and updates[0] > 40


def command(folder: Path) -> list[str]:
    experiment = foraging()
    words = [sys.executable, "-m", "prism_marl.cli", "train", "--sharing", experiment.sharing.method]
    for path, value, _ in config.options(experiment):
        words += [f"--{path}", str(value)] if "." in path else []
    return [*words, experiment.task, "--out", str(folder)]


def interrupted(folder: Path, moment, number: int) -> tuple[int, str]:
    """Start the command, send a signal at some moment, wait for the end: exit code and messages."""
    process = subprocess.Popen(command(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    give_up = time.monotonic() + 300
    while not moment():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < give_up
        time.sleep(0.002)
    process.send_signal(number)
    return process.wait(300), process.communicate()[0]


def test_a_run_that_is_killed_and_stopped_again_and_again_ends_with_the_same_bytes(trained, tmp_path):
    folder = tmp_path / "run"
    rng = np.random.default_rng()  # other moments every time, on purpose: all must give the same
    begun, some = 0, int(rng.integers(3, 20))

    def after(number: int):
        return lambda: rows(folder) >= begun + number

    def later() -> bool:
        if rows(folder) < begun + some:
            return False
        time.sleep(float(rng.uniform(0, 0.1)))
        return True

    code, _ = interrupted(folder, later, signal.SIGKILL)
    assert code == -signal.SIGKILL and not (folder / "done").exists()
    begun = rows(folder)
    for number in (signal.SIGINT, signal.SIGTERM):
        code, said = interrupted(folder, after(5), number)
        assert code == 130 and not (folder / "done").exists()
        last = [line for line in said.splitlines() if line.startswith("prism-marl: ")]
        assert len(last) == 1 and "the same command continues" in last[0] and "Traceback" not in said
        begun = rows(folder)
    end = subprocess.run(command(folder), capture_output=True, text=True, timeout=300, check=False)
    assert end.returncode == 0, end.stderr
    assert "continuing from step" in end.stderr
    assert record(folder) == record(trained)
    assert same_arrays(final_state(folder), final_state(trained))
    assert not list(folder.rglob("*.tmp"))


def test_a_damaged_checkpoint_costs_the_way_from_the_one_before_and_no_more(trained, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    (folder / "done").unlink()
    newest, older = checkpoint.paths(folder / "checkpoints")
    newest.write_bytes(newest.read_bytes()[:-1])
    notes = Notes()
    runner.run(foraging(), folder, notes)
    assert any(newest.name in text and "going back to the one before" in text for text in notes.said)
    assert any(text.startswith("continuing from step") for text in notes.said)
    assert record(folder) == record(trained) and older.name != newest.name


def test_a_folder_in_use_is_refused(trained, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.setattr(runner, "check_memory", lambda trainer: None)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="in use by another process") as error:
            runner.run(foraging(), folder)
    assert error.value.code == 1
    assert os.listdir(folder) == [".lock"]  # noqa: PTH208


@pytest.mark.parametrize("change", [("run.seed", "6"), ("run.steps", "5000"), ("learner.lr", "0.1")])
def test_a_folder_belongs_to_one_experiment(trained, tmp_path, monkeypatch, change):
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    monkeypatch.setattr(runner, "check_memory", lambda trainer: None)
    with pytest.raises(UserError, match="holds another experiment"):
        runner.run(foraging().with_option(*change), folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_what_does_not_fit_is_refused_before_it_is_allocated(tmp_path, monkeypatch):
    experiment = foraging()
    needed = runner.make_trainer(experiment).buffer_bytes()
    like = jax.eval_shape(runner.make_trainer(experiment).init)
    assert needed == sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(like.seeds.buffer))

    zeros = jnp.zeros

    def traced(*arguments):
        array = zeros(*arguments)
        assert isinstance(array, jax.core.Tracer), "allocated"
        return array

    monkeypatch.setattr(jnp, "zeros", traced)
    monkeypatch.setattr(memory, "free_bytes", lambda: needed - 1)
    with pytest.raises(UserError, match=r"replay needs .* GiB are free: lower learner\.buffer or run\.seeds"):
        runner.run(experiment, tmp_path / "run")
    monkeypatch.undo()
    monkeypatch.setattr(memory, "free_bytes", lambda: needed + 10_000)
    with pytest.raises(UserError, match=r"networks and replay need .* lower network\.width"):
        runner.run(experiment, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_nonsense_stops_the_run_and_keeps_the_last_checkpoint(tmp_path):
    folder = tmp_path / "run"
    experiment = small("roles/2", "fups", run__steps="200", run__eval_every="50", run__seed="3", learner__lr="1e30")
    with pytest.raises(
        UserError, match=r"seed 3: .*loss.* not finite at step \d+; the last checkpoint is kept; lower learner.lr or"
    ) as error:
        runner.run(experiment, folder)
    assert error.value.code == 1 and "\n" not in str(error.value)
    assert rows(folder) == 1 and rows(folder, "train") == 0 and not (folder / "done").exists()
    like = runner.make_trainer(experiment).shapes()
    state, notes, complaints = checkpoint.load_newest(folder / "checkpoints", like, run_folder.owner(folder))
    assert complaints == [] and notes["evaluation"] == 1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.seeds.state.online))


@pytest.mark.parametrize(("envs", "updates"), [("1", 15), ("8", 16)])
def test_more_environments_keep_the_ratio_of_updates_to_episodes(monkeypatch, envs, updates):
    """One update for every 4 episodes, once there are 8: sixty-four episodes of one step pay for 15 or 16."""
    experiment = small("roles/2", "fups", run__envs=envs, learner__episodes_per_update="4", learner__batch="8")

    def counted(self, state, batch, step, *, axis=None):
        return eqx.tree_at(lambda state: state.updates, state, state.updates + 1), {"loss": jnp.ones(())}

    monkeypatch.setattr(ValueLearner, "improve", counted)  # only the count matters here, and it compiles at once
    trainer = runner.make_trainer(experiment)
    state = jax.jit(lambda: trainer.advance(trainer.init(), jnp.int32(64), learn=True))()
    assert int(state.seeds.steps[0]) == 64 == int(state.seeds.buffer.added[0])
    assert (
        state.seeds.state.updates.tolist() == [updates] == [int(state.clock.summed)] == [state.seeds.log.sums["loss"]]
    )


def test_a_path_that_cannot_be_written_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(runner, "check_memory", lambda trainer: None)
    with pytest.raises(UserError, match=r"cannot be used .*; choose another --out"):
        runner.run(foraging(), tmp_path / "file" / "run")
    with pytest.raises(UserError, match="is not a run folder"):
        run_folder.load_experiment(tmp_path)
