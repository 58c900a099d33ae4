"""Disks that fail and files that change: the last good checkpoint is used, or one sentence says why nothing is."""

import contextlib
import json
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors

from prism_marl import cli
from prism_marl.errors import UserError
from prism_marl.monitor import Quiet
from prism_marl.runs import checkpoint, runner
from prism_marl.runs import folder as run_folder
from prism_marl.runs.rows import Rows
from tiny import final_state, same_arrays, small


def experiment(**changes: str):
    """Two seeds and six evaluations in a second."""
    return small("roles/2", "fups", run__seeds="2", run__steps="60", run__eval_every="10", **changes)


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Path:
    """A run that nothing happened to."""
    return runner.run(experiment(), tmp_path_factory.mktemp("storage") / "run")


@pytest.fixture
def folder(reference: Path, tmp_path: Path) -> Path:
    """The same folder with the last evaluations still to come, as after a kill."""
    copy = tmp_path / "run"
    shutil.copytree(reference, copy)
    (copy / "done").unlink()
    return copy


class Watcher(Quiet):
    """Does something once the run has got to some step, and keeps what is said."""

    def __init__(self, step: int = -1, action: Callable[[], None] = lambda: None):
        self.step, self.action, self.said = step, action, []

    def progress(self, steps: int, rate: float, text: str) -> None:
        if 0 <= self.step <= steps:
            self.step = -1
            self.action()

    def note(self, text: str) -> None:
        self.said.append(text)


def same_result(folder: Path, reference: Path) -> bool:
    rows = all(
        (folder / name).read_bytes() == (reference / name).read_bytes() for name in ("eval.jsonl", "train.jsonl")
    )
    return rows and same_arrays(final_state(folder), final_state(reference)) and (folder / "done").exists()


def stopped(folder: Path, words: str, watcher: Watcher | None = None, code: int = 1, **changes: str) -> str:
    """The sentence with which a run ends, which must have these words and nothing of a traceback."""
    with pytest.raises(UserError, match=words) as error:
        runner.run(experiment(**changes), folder, watcher)
    assert error.value.code == code and "\n" not in str(error.value) and not (folder / "done").exists()
    return str(error.value)


# Writing.


@contextlib.contextmanager
def mounted(place: Path, *options: str) -> Iterator[bool]:
    """A file system of its own at a place, where this process may mount one."""
    place.mkdir(parents=True, exist_ok=True)
    words = ["mount", *options, str(place)]
    able = shutil.which("mount") and subprocess.run(words, capture_output=True, check=False).returncode == 0
    try:
        yield bool(able)
    finally:
        if able:
            subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    """How to fill the disk at a place and to free it again: a real one for root, a limit on file sizes for others."""
    with mounted(place, "-t", "tmpfs", "-o", "size=8m", "tmpfs") as real:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)

        def fill() -> None:
            if not real:
                resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
                return
            with contextlib.suppress(OSError), (place / "filler").open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))

        def free() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            (place / "filler").unlink(missing_ok=True)

        try:
            yield fill, free
        finally:
            free()


def test_a_full_disk_and_a_file_in_the_way_stop_the_run_and_cost_nothing(reference, tmp_path):
    """Checkpoints at every second evaluation: a continued run repeats one evaluation and cuts its rows."""
    with small_disk(tmp_path / "disk") as (fill, free):
        folder = tmp_path / "disk" / "run"
        words = r"cannot be written \((No space left on device|File too large)\); free some space"
        stopped(folder, words, Watcher(15, fill), run__save_every="2")
        free()
        saved = checkpoint.paths(folder / "checkpoints")
        assert len(saved) == 1 and not list(folder.rglob("*.tmp"))

        def obstruct() -> None:
            (folder / "checkpoints").rename(folder / "kept")
            (folder / "checkpoints").write_bytes(b"in the way")

        watcher = Watcher(35, obstruct)
        stopped(
            folder, r"checkpoints.* cannot be written \((File exists|Not a directory)\)", watcher, run__save_every="2"
        )
        assert watcher.said[0] == "continuing from step 0"
        (folder / "checkpoints").unlink()
        (folder / "kept").rename(folder / "checkpoints")
        watcher = Watcher()
        runner.run(experiment(run__save_every="2"), folder, watcher)
        assert watcher.said[0] == "continuing from step 20"
        assert same_result(folder, reference)
        evaluations = [notes_of(path)["notes"]["evaluation"] for path in checkpoint.paths(folder / "checkpoints")]
        assert evaluations == [7, 5]  # the next to come: after number 6, the last, and number 4


def notes_of(path: Path) -> dict:
    with safetensors.safe_open(path, framework="numpy") as file:
        return json.loads(file.metadata()["content"])


def test_a_stop_between_two_checkpoints_saves_where_it_stands(reference, tmp_path, monkeypatch):
    folder, asked = tmp_path / "run", runner.Stop()
    monkeypatch.setattr(runner, "stop_signals", lambda: contextlib.nullcontext(asked))

    def ask() -> None:
        asked.asked = True

    with pytest.raises(UserError, match="stopped at step 30; the same command continues") as error:
        runner.run(experiment(run__save_every="5"), folder, Watcher(25, ask))
    assert error.value.code == 130
    assert len(checkpoint.paths(folder / "checkpoints")) == 2
    asked.asked, watcher = False, Watcher()
    runner.run(experiment(run__save_every="5"), folder, watcher)
    assert watcher.said[0] == "continuing from step 30" and same_result(folder, reference)


@contextlib.contextmanager
def unwritable(folder: Path) -> Iterator[tuple[str, int]]:
    """Nobody may write here: a read-only mount, or permissions, or an obstacle for root, who ignores permissions.

    Yields the reason and the exit code: a disk is the machine's fault, the wrong place is the user's.
    """
    lock = folder / ".lock"
    with mounted(folder, "--bind", "-o", "ro", str(folder)) as real:
        if real:
            yield "Read-only file system", 1
        elif os.geteuid():
            lock.chmod(0o444)
            folder.chmod(0o555)
            yield "Permission denied", 2
            folder.chmod(0o755)
        else:
            lock.unlink()
            lock.mkdir()
            yield "Is a directory", 2
            lock.rmdir()
            lock.touch()


def test_a_folder_that_can_only_be_read_is_one_sentence_and_can_still_be_looked_at(folder, capsys):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with unwritable(folder) as (why, code):
        stopped(folder, rf"cannot be used \({why}\); .*choose another --out", code=code)
        assert run_folder.load_experiment(folder) == experiment()
        assert cli.main(["report", str(folder), "--out", str(folder.parent / "page.html")]) == 0
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


# Reading.


def swapped(folder: Path) -> None:
    """The newest checkpoint, whole as it is, becomes that of another seed."""
    newest = checkpoint.paths(folder / "checkpoints")[0]
    state, notes = checkpoint.load(newest, runner.make_trainer(experiment()).shapes(), run_folder.owner(folder))
    checkpoint.save(folder / "checkpoints", int(newest.stem), checkpoint.flatten(state), notes, "another seed")


def turned_back(folder: Path) -> None:
    newest, before = checkpoint.paths(folder / "checkpoints")
    newest.write_bytes(before.read_bytes())


def flipped(folder: Path) -> None:
    newest = checkpoint.paths(folder / "checkpoints")[0]
    content = bytearray(newest.read_bytes())
    content[-7] ^= 4
    newest.write_bytes(content)


def without_last_rows(folder: Path) -> None:
    text = (folder / "eval.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "eval.jsonl").write_bytes(b"".join(text[:-1]))


DAMAGES = {
    swapped: "belongs to another experiment",
    turned_back: "was written as number",
    flipped: "its checksum does not match",
    without_last_rows: "eval.jsonl has lost rows",
}


@pytest.mark.parametrize("damage", [swapped, without_last_rows])
def test_the_checkpoint_before_is_used_and_the_end_is_the_same(folder, reference, damage):
    damage(folder)
    watcher = Watcher()
    runner.run(experiment(), folder, watcher)
    assert DAMAGES[damage] in watcher.said[0] and watcher.said[0].endswith("going back to the one before")
    assert watcher.said[1] == "continuing from step 50" and same_result(folder, reference)


@pytest.mark.parametrize("damage", DAMAGES)
def test_without_a_checkpoint_before_the_sentence_says_what_happened_and_nothing_is_changed(folder, damage):
    if damage is turned_back:
        turned_back(folder)
    checkpoint.paths(folder / "checkpoints")[1].unlink()
    if damage is not turned_back:
        damage(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert stopped(folder, DAMAGES[damage]).endswith("can be used: start in a new folder")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_rows_that_were_changed_are_noticed(folder):
    text = (folder / "train.jsonl").read_text()
    (folder / "train.jsonl").write_text(text.replace('"seed": 0', '"seed": 9', 1))
    stopped(folder, r"train\.jsonl does not hold the rows that were written; no other checkpoint")


def test_checkpoints_that_are_gone_do_not_begin_the_run_again_over_its_rows(folder):
    shutil.rmtree(folder / "checkpoints")
    before = (folder / "eval.jsonl").read_bytes()
    stopped(folder, "has training metrics but no checkpoint; put its checkpoints back or use a new folder")
    assert (folder / "eval.jsonl").read_bytes() == before


def test_a_folder_of_an_older_version_is_one_sentence(folder, monkeypatch):
    """Its config.json, which lacks newer fields, is understood; its checkpoints are not, and say so."""
    config = json.loads((folder / "config.json").read_text())
    assert config["run"].pop("save_every") == 1
    (folder / "config.json").write_text(json.dumps(config))
    assert run_folder.load_experiment(folder) == experiment()
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT", "2")
        for path in checkpoint.paths(folder / "checkpoints"):
            checkpoint.save(folder / "checkpoints", int(path.stem), {"x": np.zeros(1)}, {})
    stopped(folder, f"has format 2, this version reads {checkpoint.FORMAT}; no other checkpoint")
    config["format"] = 0
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"format 0 cannot be read by this version \(it reads 1\); use a new folder"):
        runner.run(experiment(), folder)


def test_rows_know_what_they_hold(tmp_path):
    rows = Rows(tmp_path / "rows.jsonl")
    assert rows.complaint(rows.seal()) is None  # nothing was written, and nothing is there
    rows.append([{"a": 1}, {"a": float("inf")}])
    seal = rows.seal()
    rows.append([{"a": 3}])
    again = Rows(tmp_path / "rows.jsonl")
    assert again.complaint(seal) is None and again.complaint(rows.seal()) is None
    again.cut(seal[0])
    assert again.seal() == seal and again.path.read_text() == '{"a": 1}\n{"a": null}\n'
    again.append([{"a": 3}])
    assert again.seal() == rows.seal()
    again.path.write_text('{"a": 1}\n')
    assert again.complaint(seal) == f"rows.jsonl has lost rows: 9 of {seal[0]} bytes are left"
    again.path.unlink()
    assert "0 of" in str(again.complaint(seal))
    again.path.symlink_to("/dev/full")
    with pytest.raises(UserError, match="No space left on device"):
        Rows(again.path).append([{"a": 3}])
