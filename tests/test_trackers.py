"""Trackers get every row once, also from a run that continues, and change nothing."""

import json
import struct
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from tensorboardX.proto.event_pb2 import Event

from prism_marl.errors import UserError
from prism_marl.monitor import Quiet
from prism_marl.runs.trackers import check_sinks, tracked
from tiny import foraging, rows_of


def events(folder: Path) -> list[tuple[str, int, float]]:
    """(tag, step, value) of every scalar in the event files of a folder."""
    found = []
    for path in sorted(folder.iterdir()):
        content, at = path.read_bytes(), 0
        while at < len(content):
            (size,) = struct.unpack_from("<Q", content, at)  # length, its checksum, an event, its checksum
            event = Event.FromString(content[at + 12 : at + 12 + size])
            found += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
            at += 16 + size
    return found


def copy_rows(source: Path, folder: Path, evaluations: range) -> None:
    """The rows of some evaluations, as a run would append them."""
    folder.mkdir(exist_ok=True)
    for name in ("eval", "train"):
        with (folder / f"{name}.jsonl").open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows_of(source, name) if row["evaluation"] in evaluations)


def follow(sink: str, trained: Path, folder: Path) -> None:
    """A run that is interrupted after three evaluations and continues from the second."""
    with tracked(Quiet(), [sink], foraging(), folder) as monitor:
        monitor.recorded(folder)
        for number in range(3):
            copy_rows(trained, folder, range(number, number + 1))
            monitor.recorded(folder)
    for name in ("eval", "train"):
        (folder / f"{name}.jsonl").unlink()
    copy_rows(trained, folder, range(2))
    with tracked(Quiet(), [sink], foraging(), folder) as monitor:
        monitor.recorded(folder)
        for number in range(2, 5):
            copy_rows(trained, folder, range(number, number + 1))
            monitor.recorded(folder)


def expected(folder: Path, seed: int) -> list[tuple[str, int, float]]:
    return [
        (f"{name}/{metric}", row["step"], value)
        for name in ("eval", "train")
        for row in rows_of(folder, name)
        if row["seed"] == seed
        for metric, value in row.items()
        if metric not in ("evaluation", "seed", "step")
    ]


def test_tensorboard_reads_back_every_row_once(trained, tmp_path):
    follow("tensorboard", trained, tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run" / "tensorboard").iterdir()) == ["seed-5", "seed-6"]
    for seed in (5, 6):
        found = sorted(events(tmp_path / "run" / "tensorboard" / f"seed-{seed}"))
        wanted = sorted(expected(tmp_path / "run", seed))
        assert [(tag, step) for tag, step, _ in found] == [(tag, step) for tag, step, _ in wanted]
        assert [value for *_, value in found] == pytest.approx([value for *_, value in wanted], rel=1e-6)
        assert len(found) > 40


class Service:
    """What W&B documents of itself: runs by their id, steps that only grow."""

    def __init__(self):
        self.runs: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        self.finished = 0
        self.settings: dict[str, Any] = {}

    def init(self, *, dir, id, name, group, config, resume):
        assert resume == "allow" and Path(dir).is_dir()
        self.settings = {"name": name, "group": group, "config": config}
        history = self.runs.setdefault(id, [])
        run = types.SimpleNamespace(step=history[-1][0] + 1 if history else 0)

        def log(data, step):
            assert step >= run.step, "W&B would drop this with a warning"
            run.step = step
            history.append((step, data))

        run.log, run.finish = log, self._finish
        return run

    def _finish(self):
        self.finished += 1


def test_wandb_gets_each_evaluation_once(trained, tmp_path, monkeypatch):
    service = Service()
    monkeypatch.setitem(sys.modules, "wandb", service)
    follow("wandb", trained, tmp_path / "run")
    ((name, history),) = service.runs.items()
    assert [step for step, _ in history] == [0, 1, 2, 3, 4] and service.finished == 2
    row = rows_of(trained)[7]
    assert row["evaluation"] == 3 and history[3][1][f"eval/return/seed-{row['seed']}"] == row["return"]
    assert {"train/loss/seed-5", "train/loss/seed-6", "eval/step/seed-5"} <= history[4][1].keys()
    assert name == foraging().folder(Path()).name and service.settings["config"]["task"] == "lbf/4x4-2p-1f"


class Notes(Quiet):
    def __init__(self):
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_tracker_that_does_not_start_is_one_sentence(trained, tmp_path, monkeypatch):
    def init(**settings):
        raise ValueError("no API key\nsee the manual")

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    told = r"^--sinks: wandb failed \(ValueError: no API key\); correct its settings or leave it out$"
    with pytest.raises(UserError, match=told), tracked(Quiet(), ["wandb"], foraging(), tmp_path / "run") as monitor:
        monitor.recorded(tmp_path / "run")  # nothing to hand over yet
        copy_rows(trained, tmp_path / "run", range(1))
        monitor.recorded(tmp_path / "run")


def test_a_tracker_that_fails_later_does_not_stop_the_run(trained, tmp_path, monkeypatch):
    service, notes = Service(), Notes()
    monkeypatch.setitem(sys.modules, "wandb", service)
    with tracked(notes, ["wandb"], foraging(), tmp_path / "run") as monitor:
        copy_rows(trained, tmp_path / "run", range(1))
        monitor.recorded(tmp_path / "run")
        monkeypatch.setattr("prism_marl.runs.trackers.measured", lambda row: 1 / 0)
        for number in (1, 2):
            copy_rows(trained, tmp_path / "run", range(number, number + 1))
            monitor.recorded(tmp_path / "run")
    assert len(notes.notes) == 1 and "ZeroDivisionError" in notes.notes[0] and "the run continues" in notes.notes[0]


def test_sinks_are_known_and_installed_before_anything_starts(monkeypatch):
    assert check_sinks("tensorboard,tensorboard, ") == ("tensorboard",) and check_sinks(None) == ()
    with pytest.raises(UserError, match=r"--sinks: there is no 'tensorbord'; did you mean 'tensorboard'\?"):
        check_sinks("tensorbord")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"--sinks: wandb is not installed: .*pip install .*'prism-marl\[wandb\]'"):
        check_sinks("wandb")
