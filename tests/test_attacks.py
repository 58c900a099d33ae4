"""What an attack on the program has found, injected again: folders that go away, games that lie, files that want too
much, machines that change. Nothing wrong is written, nothing of the user's is lost, and every reader has bounds."""

import ast
import contextlib
import errno
import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

import corpus
from prism_marl import api, cli
from prism_marl.collect.base import LOST
from prism_marl.collect.host import HostCollector
from prism_marl.envs import registry
from prism_marl.envs.python.base import observation, outcome
from prism_marl.envs.python.rows import Games, PythonRows
from prism_marl.errors import UserError
from prism_marl.monitor import ProgressBar, Quiet
from prism_marl.policies.export import export_policy
from prism_marl.policies.files import load_policy
from prism_marl.policies.policy import Policy
from prism_marl.reports.load import load_run
from prism_marl.reports.page import write_page, write_report
from prism_marl.runs import checkpoint, history, machine, runner, xla_cache
from prism_marl.runs.archive import read_members
from prism_marl.runs.folder import locked
from prism_marl.runs.progress import ProgressFile, read_progress
from prism_marl.runs.trained import load_trained
from prism_marl.runs.warm_start import kept_networks
from prism_marl.storage.cache import MAGIC, Cache, cache_limit
from prism_marl.storage.files import HeldFolder, parse_json, refuse_deep
from prism_marl.sweeps.executors import Event, Job, local
from prism_marl.sweeps.executors.base import do_job
from prism_marl.sweeps.grid import folder_of, run_sweep
from prism_marl.types import EnvSpec, Observation, Step
from synthetic import make_run
from tiny import rows_of, same_result, small


def experiment(**changes: str):
    """Two seeds and six evaluations in a second."""
    return small("roles/2", "fups", run__seeds="2", run__seed="5", run__steps="60", run__eval_every="10", **changes)


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Path:
    """A run that nothing happened to."""
    return runner.run(experiment(), tmp_path_factory.mktemp("attacks") / "run")


class Watcher(Quiet):
    """Does something once the run has got to some step, and keeps what is said."""

    def __init__(self, step: int, action: Any):
        self.step, self.action, self.said = step, action, []

    def progress(self, steps: int, rate: float, text: str) -> None:
        if 0 <= self.step <= steps:
            self.step = -1
            self.action()

    def note(self, text: str) -> None:
        self.said.append(text)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def deleted(folder: Path) -> None:
    """As ``rm -rf``, again where a checkpoint was just being written."""
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


# A folder that goes away while a run writes into it.


@pytest.mark.parametrize("fate", ["deleted", "moved", "replaced"])
def test_a_run_whose_folder_goes_away_ends_and_writes_nothing_there(reference, tmp_path, fate):
    folder, away = tmp_path / "base" / "run", tmp_path / "away"
    other = reference  # another run, with a lock file of its own

    def vanish() -> None:
        deleted(folder) if fate == "deleted" else folder.rename(away)
        if fate == "replaced":
            shutil.copytree(other, folder)

    with pytest.raises(UserError, match="was moved, deleted or replaced") as error:
        runner.run(experiment(), folder, Watcher(25, vanish))
    assert error.value.code == 1 and "\n" not in str(error.value)
    if fate == "replaced":
        assert content(folder) == content(other)
        shutil.rmtree(folder)
    assert not folder.exists()
    if fate != "deleted":
        assert not (away / "done").exists()
        away.rename(folder)
        assert same_result(runner.run(experiment(), folder), reference)


def test_the_lock_is_looked_at_before_every_kind_of_writing(reference, tmp_path):
    folder = tmp_path / "run"
    with locked(folder) as held:
        rows = runner.Rows(folder / "eval.jsonl", held)
        rows.append([{"a": 1}])
        folder.rename(tmp_path / "away")
        shutil.copytree(reference, folder)
        before = content(folder)
        writer = checkpoint.Writer(folder / "checkpoints", "mine", held)
        writer.save(99_999_999, {"x": np.zeros(1)}, {})
        for write in (
            writer.wait,
            lambda: rows.append([{"a": 2}]),
            lambda: checkpoint.write_atomically(folder / "done", b"", held),
            lambda: checkpoint.write_atomically(folder / "spectra" / "1", b"", held),
        ):
            with pytest.raises(UserError, match="was moved, deleted or replaced"):
                write()
        writer.close()
        assert content(folder) == before


def test_nothing_is_written_into_a_run_folder_without_a_look_at_its_lock():
    """Every call in ``runs/`` that writes hands on the held folder, except where nobody holds one yet."""
    writers = {"write_atomically", "write_policy", "write_policies", "write_replay", "write_spectra", "Rows", "Writer"}
    found, without = 0, []
    for path in Path(runner.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in writers:
                said = {ast.unparse(argument) for argument in node.args}
                found += 1
                without += [path.name] * (not said & {"inside", "held", "self.held", "self.inside"})
    assert found > 12 and without == ["warm_start.py"]  # before the start: ``train --from``


def test_progress_brings_no_folder_back(tmp_path):
    progress = ProgressFile(tmp_path / "gone" / "run", 10)
    progress.progress(1, 1.0, "")
    assert not (tmp_path / "gone").exists()
    (tmp_path / "gone" / "run").mkdir(parents=True)
    progress.progress(2, 1.0, "x")
    assert read_progress(tmp_path / "gone" / "run")


def test_an_experiment_whose_folder_is_gone_before_its_turn_fails_alone(tmp_path, monkeypatch):
    done = [sys.executable, "-c", 'print(\'{"error": ""}\')']
    monkeypatch.setattr(local, "WORKER", done)
    sweep = [experiment().with_option("run.eval_every", every) for every in ("10", "20", "30")]
    folders = [folder_of(one, tmp_path) for one in sweep]

    def vanish(event: Event) -> None:
        if event.state == "running" and event.job.folder == folders[0]:
            shutil.rmtree(folders[1])

    outcome = run_sweep(sweep, tmp_path, local.Local(jobs=1), on_event=vanish)
    assert outcome.finished == (folders[0], folders[2])
    assert [one.folder for one in outcome.failed] == [folders[1]] and not folders[1].exists()
    assert "log.txt: cannot be used (No such file or directory); start the sweep again" in outcome.failed[0].error


def test_rows_that_somebody_else_changes_end_the_run(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(UserError, match=r"eval\.jsonl has \d+ bytes, but \d+ were written: somebody else"):
        runner.run(experiment(), folder, Watcher(25, lambda: (folder / "eval.jsonl").unlink()))


def test_a_worker_waits_for_the_one_that_still_saves(tmp_path):
    with locked(tmp_path), pytest.raises(UserError, match="in use by another process"), locked(tmp_path, 0.2):
        pass
    child = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True); "
    words = ["python3", "-c", child + "time.sleep(1)", str(tmp_path / ".lock")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        begun = time.monotonic()
        with locked(tmp_path, 30.0) as held:
            assert isinstance(held, HeldFolder) and time.monotonic() - begun > 0.5


def test_the_worker_of_a_sweep_is_that_patient(tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr(runner, "run", lambda *words, **options: asked.update(options))
    assert do_job(Job(experiment(), tmp_path).to_json()) == ""
    assert asked["patience"] == 60.0


# Games that lie about their returns.


class Game:
    """Two steps. Which game it is decides what befalls it from its first episode on."""

    spec = EnvSpec("lies", 2, observation=1, state=1, actions=2, roles=2, horizon=2)

    def __init__(self, reward: float, lost: bool = False):
        self.reward, self.fragile, self.dropped, self.lost, self.clock = reward, lost, 0, False, 0

    def reset(self, seed: int) -> Observation:
        self.clock, self.lost = 0, False
        return self._seen()

    def step(self, action: np.ndarray) -> Step:
        self.clock += 1
        if self.fragile:
            self.lost, self.dropped = True, self.dropped + 1
            return outcome(self._seen(), 0.0, terminated=False, truncated=True)
        return outcome(self._seen(), self.reward, terminated=False, truncated=self.clock == 2)

    def _seen(self) -> Observation:
        return observation(np.ones((2, 1)), np.ones((2, 2), bool), np.ones(1))

    def scene(self) -> None:
        return None

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "rewards", [[1.0, np.nan, 1.0, None], [1.0, -np.inf, 2.0, 3.0]], ids=["with a loss", "without"]
)
def test_a_return_that_is_no_number_ends_the_run_although_games_were_lost(tmp_path, monkeypatch, rewards):
    """Games by number: one returns nonsense, one dies. Once that was taken for another lost game."""
    kinds = iter([1.0, *rewards])  # the first game is asked for its sizes only
    make = lambda variant: Game(1.0 if (kind := next(kinds, 1.0)) is None else kind, kind is None)  # noqa: E731
    monkeypatch.setitem(registry._FAMILIES, "lies", registry.Family("lies/<x>", (), "for tests", python=make))
    lies = small("lies/x", "fups", run__patience="0", run__steps="20", run__eval_every="10", run__envs="1")
    with pytest.raises(UserError, match=r"^seed 0: return of an evaluation is not finite at step 0"):
        runner.run(lies, tmp_path / "run")
    assert not (tmp_path / "run" / "eval.jsonl").exists()


@pytest.mark.parametrize(
    ("games", "mean", "lost"),
    [
        ([(1.0, False), (2.0, True), (3.0, False), (1.0, False)], 10 / 3, 1),
        ([(1.0, True)] * 4, np.nan, 4),
        ([(1.0, False), (np.nan, False), (1.0, True), (1.0, False)], np.nan, 1),
        ([(1.0, False)] * 4, 2.0, 0),
    ],
)
def test_only_lost_episodes_are_left_out_of_a_mean(games, mean, lost):
    learner = runner.make_trainer(small("roles/2", "fups")).learner
    built = iter([Game(*one) for one in games])
    rows = PythonRows(Games(lambda: next(built)), 4)
    collector = HostCollector(lambda number, own: rows, range(1), 4)

    class Idle:
        in_turns, memory = False, ()

        def act(self, number, seeds, obs):
            return np.zeros((1, 4, 2), np.int32), ()

    collector._player = lambda *_, **__: Idle()  # pyright: ignore
    found = collector.evaluate(learner, None, 0, 4, "exact")
    assert np.allclose(found["return"], [mean], equal_nan=True)
    assert found.get(LOST, np.zeros(1)).tolist() == [lost]


# Reports that would delete or replace what is not theirs.


@pytest.fixture(scope="module")
def drawn(tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("drawn"), method="fups", evaluations=2, seeds=1, replays=0)


def test_a_report_deletes_and_replaces_only_what_it_has_made(drawn, tmp_path):
    out, treasure = tmp_path / "page", tmp_path / "treasure"
    write_page([drawn], out)
    (out / "figures" / "own.png").write_bytes(b"mine")
    write_page([drawn], out)
    assert (out / "figures" / "own.png").read_bytes() == b"mine"
    treasure.mkdir()
    (treasure / "a.png").write_bytes(b"mine")
    shutil.copytree(out / "figures", treasure, dirs_exist_ok=True)
    before = content(treasure)
    shutil.rmtree(out / "figures")
    (out / "figures").symlink_to(treasure)
    with pytest.raises(UserError, match="figures is a link"):
        write_page([drawn], out)
    assert content(treasure) == before
    (out / "figures").unlink()
    (out / "figures").mkdir()
    (out / "figures" / "figures.json").write_text(json.dumps({"files": ["../../treasure/a.png", "/etc/x.png", 3]}))
    (out / "figures" / "curves.png").write_bytes(b"mine")
    with pytest.raises(UserError, match=r"curves\.png: this file was not made by a report"):
        write_page([drawn], out)
    assert (out / "figures" / "curves.png").read_bytes() == b"mine" and content(treasure) == before
    (tmp_path / "thesis.html").write_text("<p>mine</p>")
    with pytest.raises(UserError, match="not a page of prism-marl"):
        write_report([drawn], tmp_path / "thesis.html")
    assert (tmp_path / "thesis.html").read_text() == "<p>mine</p>"


def test_a_report_that_was_killed_can_be_made_again(drawn, tmp_path, monkeypatch):
    from prism_marl.reports import page as page_module

    out = tmp_path / "page"
    with monkeypatch.context() as patch:
        patch.setattr(page_module, "_write_whole", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            write_page([drawn], out)
    assert not (out / "index.html").exists() and (out / "figures" / "curves.png").exists()
    assert write_page([drawn], out).exists()


# A run knows its past.


@pytest.fixture
def begun(reference, tmp_path) -> Path:
    """A run of which the last evaluations are still to come."""
    copy = Path(shutil.copytree(reference, tmp_path / "run"))
    (copy / "done").unlink()
    checkpoint.paths(copy / "checkpoints")[0].unlink()
    return copy


def elsewhere(monkeypatch, **changes: Any) -> None:
    facts = runner.machine_facts
    monkeypatch.setattr(runner, "machine_facts", lambda experiment: facts(experiment) | changes)


def test_a_run_that_goes_on_elsewhere_says_so_and_records_it(begun, monkeypatch):
    first = json.loads((begun / "machine.json").read_text())
    assert [one["step"] for one in first["segments"]] == [0] and first["segments"][0]["jax"] == jax.__version__
    elsewhere(monkeypatch, jax="99.0", flags=first["flags"] | {"XLA_FLAGS": "--fast"})
    before = content(begun)
    with pytest.raises(UserError, match=r"--strict: from step 50 on.*jax 99\.0 instead of") as error:
        runner.run(experiment(), begun, strict=True)
    assert error.value.code == 2 and content(begun) == before
    watcher = Watcher(-1, None)
    runner.run(experiment(), begun, watcher)
    words = f"jax 99.0 instead of {jax.__version__}, XLA_FLAGS --fast instead of "
    assert any(words in said and "from step 50 on" in said for said in watcher.said)
    now = json.loads((begun / "machine.json").read_text())
    assert [one["step"] for one in now["segments"]] == [0, 50] and now["jax"] == first["jax"]
    assert any("From step 50 on" in note and words in note for note in load_run(begun).notes)
    finished = content(begun)
    elsewhere(monkeypatch, jax="100.0")  # a finished run is left as it is, wherever it is opened
    runner.run(experiment(), begun, strict=True)
    assert content(begun) == finished


def test_the_same_machine_goes_on_without_a_word(begun, monkeypatch):
    facts = json.loads((begun / "machine.json").read_text())  # the source may be edited while tests run
    monkeypatch.setattr(runner, "machine_facts", lambda experiment: facts)
    watcher = Watcher(-1, None)
    runner.run(experiment(), begun, watcher, strict=True)
    assert watcher.said == ["continuing from step 50", "compiling ..."]
    assert len(json.loads((begun / "machine.json").read_text())["segments"]) == 1


@pytest.mark.parametrize("text", ["", "[]", "[" * 5000, '{"segments": 3}', '{"segments": [3, {"step": "x"}]}'])
def test_a_strange_record_of_the_past_stops_nobody(begun, text):
    (begun / "machine.json").write_text(text)
    runner.run(experiment(), begun)
    assert load_run(begun).evaluations and isinstance(json.loads((begun / "machine.json").read_text()), dict)


def test_segments_of_rows_that_were_cut_are_gone(tmp_path):
    facts = {"jax": "1"}
    with locked(tmp_path) as held:
        history.begin(tmp_path, facts, held)
        assert "jax 2 instead of 1" in history.resume(tmp_path, 10, {"jax": "2"}, held)
        assert history.resume(tmp_path, 20, {"jax": "2"}, held) == ""
        assert history.resume(tmp_path, 10, facts, held) == ""  # back to before the change
    assert [one["step"] for one in json.loads((tmp_path / "machine.json").read_text())["segments"]] == [0]


def test_whatever_can_change_numbers_begins_a_segment(tmp_path):
    facts: dict[str, Any] = {**machine.describe_machine(), "environment": "roles 1"}
    assert set(history.DECIDING) <= set(facts)
    with locked(tmp_path) as held:
        for name in history.DECIDING:
            history.begin(tmp_path, facts, held)
            other = facts["flags"] | {"x": "y"} if name == "flags" else "another"
            said = history.resume(tmp_path, 10, facts | {name: other}, held)
            assert said.startswith(f"from step 10 on: {'x y' if name == 'flags' else f'{name} another'} instead"), said


@contextlib.contextmanager
def jax_flags(**flags: Any) -> Iterator[None]:
    before = {name: jax.config.values[name] for name in flags}
    for name, value in flags.items():
        jax.config.update(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def test_variables_of_jax_do_not_change_what_is_computed(reference, tmp_path):
    flags = {"jax_default_prng_impl": "rbg", "jax_threefry_partitionable": False}
    with jax_flags(**flags):
        run = api.train(experiment(), out=tmp_path / "run", progress=False)
        assert {name: jax.config.values[name] for name in flags} == flags
    assert same_result(run.folder, reference)


def test_the_commit_is_that_of_a_project_which_holds_our_files(tmp_path, monkeypatch):
    place = tmp_path / "project" / "site-packages" / "prism_marl" / "runs" / "machine.py"
    place.parent.mkdir(parents=True)
    place.write_text("")
    git = ["git", "-C", str(tmp_path / "project"), "-c", "user.name=a", "-c", "user.email=b"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "theirs"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.setattr(machine, "__file__", str(place))
    assert machine._commit() is None
    for words in (["add", "."], ["commit", "-q", "-m", "ours"]):
        subprocess.run([*git, *words], check=True)
    assert machine._commit()


# Files that want more than they are worth.


def header(name: str, size: int, kind: bytes = b"0", digits: bytes | None = None) -> bytes:
    """The first block of a member, with a size that need not be true."""
    block = bytearray(tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT))
    block[124:136] = digits or b"%011o\0" % size
    block[156:157] = kind
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    return bytes(block)


def archive(path: Path, *parts: bytes) -> Path:
    path.write_bytes(gzip.compress(b"".join(parts), 9))
    return path


NEGATIVE = b"\xff" * 11 + b"\x00"  # -256 in base 256: a reader that obeys stays where it is for ever
BOMBS = {
    "negative size": lambda: [header("spectra/1.safetensors", 0, digits=NEGATIVE)],
    "a name of gigabytes": lambda: [header("././@LongLink", 2**31, b"L"), bytes(2**29)],
    "a pax header of gigabytes": lambda: [header("x", 2**31, b"x"), bytes(2**29)],
    "more files than a run has": lambda: [header("x", 0)] * 30_000,
    "zeros": lambda: [header("a.safetensors", 2**29), bytes(2**29)],
}


@pytest.mark.parametrize("parts", BOMBS.values(), ids=BOMBS)
def test_an_archive_cannot_take_time_or_memory(tmp_path, parts):
    path = archive(tmp_path / "spectra.tar.gz", *parts())
    with bounded(seconds=20, megabytes=400), pytest.raises(ValueError):
        read_members(path, ".safetensors")


def test_an_archive_of_spectra_is_read(tmp_path):
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as tar:
        for name, data in (
            ("spectra/000001.safetensors", b"one"),
            ("spectra/notes", b"no"),
            ("../up.safetensors", b""),
        ):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(data), 1.5  # a time with a fraction needs a pax header
            tar.addfile(member, io.BytesIO(data))
    found = read_members(tmp_path / "x.tar.gz", ".safetensors")
    assert found == {"spectra/000001.safetensors": b"one", "../up.safetensors": b""}


@contextlib.contextmanager
def bounded(seconds: float, megabytes: float) -> Iterator[None]:
    """Whatever is done here takes no more than this."""
    tracemalloc.start()
    begun = time.monotonic()
    try:
        yield
        peak, spent = tracemalloc.get_traced_memory()[1] / 1e6, time.monotonic() - begun
    finally:
        tracemalloc.stop()
    assert spent < seconds and peak < megabytes, (spent, peak)


def rows(path: Path, made: Iterator[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in made))


def test_a_page_of_very_many_names_or_seeds_is_made_in_bounds(tmp_path):
    names = {f"metric {n}": 1.0 for n in range(20_000)}
    for name, made in {
        "names": ({"seed": 0, "step": step, "return": 1.0} | names for step in range(3)),
        "seeds": ({"seed": seed, "step": step, "return": seed} for seed in range(8_000) for step in range(3)),
    }.items():
        folder = make_run(tmp_path / name, method="fups", evaluations=2, seeds=1, replays=0)
        rows(folder / "eval.jsonl", made)
        rows(folder / "train.jsonl", iter(rows_of(folder)))
    with bounded(seconds=60, megabytes=700):
        page = write_report([tmp_path / "names", tmp_path / "seeds"], tmp_path / "page.html").read_text()
    assert "has more than 200 metrics" in page and "has more than 256 seeds; 7,744 were left out" in page


def test_half_a_letter_in_a_name_is_shown_as_a_question_mark(tmp_path):
    folder = make_run(tmp_path, method="fups", evaluations=2, seeds=1, replays=0)
    for name in ("config.json", "footprint.json"):
        (folder / name).write_text((folder / name).read_text().replace('"fups"', '"\\ud800"'))
    assert "\\ud800" in json.dumps((folder / "config.json").read_text())
    write_page([folder], tmp_path / "page")


def test_rows_are_read_from_plain_files_only(tmp_path):
    os.mkfifo(tmp_path / "eval.jsonl")
    begun = time.monotonic()
    assert "has lost rows" in str(runner.Rows(tmp_path / "eval.jsonl").complaint([10, "x"]))
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "1" + "0" * 400])
def test_a_replay_of_numbers_that_are_none_is_left_out(tmp_path, number):
    folder = make_run(tmp_path, method="fups", evaluations=2, seeds=1)
    path = folder / "replays" / "seed0.json"
    frame = json.loads(path.read_text())["frames"][0]
    shapes = next(key for key, value in frame.items() if isinstance(value, list) and isinstance(value[0], dict))
    strange = [{**frame, key: "@"} for key, value in frame.items() if isinstance(value, int | float)]
    strange += [{**frame, shapes: [{**frame[shapes][0], key: "@"}]} for key in frame[shapes][0]]
    for one in strange:
        path.write_text(json.dumps({"frames": [one]}).replace('"@"', number))
        load_run(folder)


@pytest.mark.parametrize("steps", ["NaN", "1e999", "[NaN]", "[[[[1]]]]", "[" * 900 + "]" * 900, '"x"'])
def test_spectra_of_no_step_are_left_out(tmp_path, steps):
    folder = make_run(tmp_path, evaluations=2, seeds=1, replays=0)
    tensors = {"fc1.spectrum": np.ones((1, 3, 27), np.float32), "fc1.mask": np.ones((1, 3, 27), np.uint8)}
    save_file(tensors, folder / "spectra" / "000001.safetensors", metadata={"steps": steps})
    write_report([folder], tmp_path / "page.html")


@pytest.mark.parametrize("name", ["config.json", "machine.json", "footprint.json", "replays/seed0.json", "eval.jsonl"])
def test_json_that_is_nested_too_deeply_is_left_out(tmp_path, name):
    folder = make_run(tmp_path, method="fups", evaluations=2, seeds=1)
    for deep in ("[" * 980 + "]" * 980, '{"a":' * 980 + "1" + "}" * 980, '{"task": ' + "[" * 200 + "]" * 200 + "}"):
        (folder / name).write_text(deep)
        write_report([folder], tmp_path / "page.html")
    if name != "eval.jsonl":
        assert "nested too deeply" in (tmp_path / "page.html").read_text()


def test_brackets_in_texts_do_not_nest():
    refuse_deep(json.dumps(["[" * 500, '\\"[[[' * 100, {"{": "\\\\"}]))
    assert parse_json('["\\"[", []]') == ['"[', []]
    begun = time.monotonic()
    refuse_deep("[" * 40 + '\\"' * 2_000_000 + "[" * 40)  # texts that never end
    assert time.monotonic() - begun < 5
    with pytest.raises(ValueError, match="nested too deeply"):
        refuse_deep("[" * 65)


def test_evaluating_does_not_hold_the_replay(tmp_path):
    """A run whose replay would take 13 MB, of which nothing is needed. More items would be long in compiling."""
    settings = {"learner__buffer": "600000", "run__steps": "20", "run__eval_every": "20"}
    folder = runner.run(small("roles/2", "fups", **settings), tmp_path)
    with bounded(seconds=60, megabytes=7):
        trainer, state, _ = load_trained(folder, 2)
    assert trainer.buffer_bytes() > 13e6 and state.seeds.buffer == ()
    trainer.close()
    newest = checkpoint.paths(folder / "checkpoints")[0]
    whole = bytearray(newest.read_bytes())
    whole[-1] ^= 1  # also what is not held is part of what the checksum covers
    newest.write_bytes(whole)
    assert any("checksum" in said for said in load_trained(folder, 2)[2])


def test_a_policy_takes_no_more_memory_than_its_file_is_worth(tmp_path):
    path = corpus.policy(tmp_path, ".npz")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("zeros.npy", bytes(2**28))
    assert path.stat().st_size < 2**20
    with bounded(seconds=10, megabytes=10), pytest.raises(UserError, match="unpacks to more than 256 MiB"):
        load_policy(path)
    path = corpus.policy(tmp_path, ".safetensors")
    os.truncate(path, 2**42)
    with bounded(seconds=10, megabytes=10), pytest.raises(UserError, match="is larger than 4096 MiB"):
        load_policy(path)
    begun = corpus.start(tmp_path)
    os.truncate(begun, 2**42)
    with bounded(seconds=10, megabytes=10), pytest.raises(UserError, match="cannot be read"):
        kept_networks(experiment(), tmp_path)


def hole(path: Path, name: str, shape: list[int], metadata: dict[str, str]) -> None:
    """One array of zeros, which takes gigabytes in memory and nothing on the disk."""
    size = 4 * int(np.prod(shape))
    header = json.dumps(
        {"__metadata__": metadata, name: {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}
    ).encode()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(path, 8 + len(header) + size)


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("x", [2**30], "does not fit this experiment: its arrays have 4,294,967,296 bytes instead of 12"),
        ("x", [1, 1, 2**30], "does not fit"),
        ("replay", [2**26], "checksum does not match"),
        ("replay", [1, 1, 2**26], "checksum does not match"),
    ],
)
def test_a_checkpoint_takes_no_more_memory_than_the_state_that_it_is(tmp_path, name, shape, words):
    path = tmp_path / "checkpoints" / "00000001.safetensors"
    hole(path, name, shape, {"format": checkpoint.FORMAT, "digest": "x", "content": "{}"})
    with bounded(seconds=30, megabytes=100), pytest.raises(UserError, match=words):
        checkpoint.load(path, {"x": np.zeros(3, np.float32)}, without="replay")


# Words that look like markup.


def test_a_path_that_looks_like_markup_is_shown_as_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with ProgressBar(10, "[/x] title") as bar:
        bar.progress(1, 1.0, "[/y]")
        bar.note("done: base[/x]")
    fields = {"run.seeds": "1", "run.steps": "10", "run.eval_every": "10", "run.measures": "0"}
    fields |= {"network.width": "4", "learner.batch": "2", "learner.embed": "4", "learner.hypernet": "4"}
    words = [word for name, value in fields.items() for word in (f"--{name}", value)]
    assert cli.main(["train", "roles/2", "--sharing", "fups", *words, "--out", "base[/x]"]) == 0
    assert "done: base[/x]" in capsys.readouterr().err.replace("\n", "")
    assert cli.main(["eval", "base[/x]", "--episodes", "2"]) == 0


# Times of a stretch that was gone in parts.


def test_a_clean_stop_loses_no_steps_of_timing(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "PIECE_SECONDS", 0.0)  # pieces of 64 steps, so that it stops inside a stretch
    stretch = small("roles/2", "fups", run__steps="600", run__eval_every="300", run__seeds="2")
    folder = tmp_path / "run"
    whole = rows_of(runner.run(stretch, tmp_path / "whole"), "timing")
    for step, stopped in (100, 128), (200, 256):
        with pytest.raises(UserError, match=f"stopped at step {stopped};"):
            runner.run(stretch, folder, Watcher(step, lambda: os.kill(os.getpid(), 2)))
    runner.run(stretch, folder)
    for one, other in zip(rows_of(folder, "timing"), whole, strict=True):
        assert {k: one[k] for k in ("evaluation", "steps")} == {k: other[k] for k in ("evaluation", "steps")}
        assert one["seconds"] > 0
    assert sum(row["steps"] for row in whole) == sum(row["step"] for row in rows_of(folder)[-2:])


# The cache of compiled programs.


def test_swapped_damaged_and_blocking_entries_of_xlas_cache_are_compiled_anew(tmp_path):
    def double(x):
        return (x * 2 + jnp.sin(x)).sum()

    def triple(x):
        return jnp.cos(x * 3).reshape(2, 2)

    x = jnp.arange(4.0)
    flags = {"jax_persistent_cache_min_compile_time_secs": 0.0, "jax_compilation_cache_dir": str(tmp_path)}
    with jax_flags(**flags), xla_cache.restored():
        assert xla_cache.install(tmp_path)

        def computed() -> list[Any]:
            jax.clear_caches()
            return [np.asarray(jax.jit(one)(x)).tolist() for one in (double, triple)]

        wanted = computed()
        named = {word: next(tmp_path.glob(f"jit_{word}*")) for word in ("double", "triple")}
        one, other = (path.read_bytes() for path in named.values())
        for first, second in ((other, one), (one[:-1], b""), (MAGIC + bytes(500), other)):
            named["double"].write_bytes(first)
            named["triple"].write_bytes(second)
            assert computed() == wanted
        for path in named.values():
            path.unlink()
            os.mkfifo(path)
        assert computed() == wanted


def test_a_cache_has_a_bound_and_deletes_only_its_own(tmp_path, monkeypatch, capsys):
    cache = Cache(tmp_path, limit=3_500)
    (tmp_path / "mine.kept").write_bytes(b"not ours, although it is named so")
    os.utime(tmp_path / "mine.kept", (1, 1))
    for number in range(6):
        cache.write(f"key-{number}", bytes([number]) * 1_000)
        os.utime(cache.path(f"key-{number}"), (1_000 + number, 1_000 + number))
        assert cache.read("key-0") == bytes(1_000)  # read again and again: it stays
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"mine.kept", "key-0.kept", "key-4.kept", "key-5.kept"}
    assert cache.read("key-1") is None
    cache.write("huge", bytes(4_000))
    assert cache.read("huge") is None
    monkeypatch.setenv("PRISM_MARL_CACHE", str(tmp_path))
    assert cli.main(["cache"]) == 0 and "machine code of XLA" in capsys.readouterr().out
    assert cli.main(["cache", "--clear"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["mine.kept"]
    monkeypatch.setenv("PRISM_MARL_CACHE_LIMIT", "x")
    with pytest.raises(UserError, match="expected a whole number of MiB"):
        cache_limit()


def test_a_cache_is_looked_through_only_when_it_may_be_full(tmp_path, monkeypatch):
    looks, files = [], Cache.files
    monkeypatch.setattr(Cache, "files", lambda cache: looks.append(found := files(cache)) or found)
    one, other = Cache(tmp_path, limit=40_000), Cache(tmp_path, limit=40_000)
    for number in range(60):  # two processes in turns
        (one, other)[number % 2].write(f"key-{number}", bytes(1_000))
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 40_000
    assert len(list(tmp_path.iterdir())) > 30  # full, and no emptier than it must be
    before = len(looks)
    assert before < 60
    roomy = Cache(tmp_path)
    for number in range(60):
        roomy.write(f"key-{number}", bytes(1_000))
    assert len(looks) == before + 1


def test_a_figure_that_is_interrupted_leaves_the_old_one(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    from prism_marl.paper.scaling import write_figure
    from prism_marl.reports.figures import save_figure

    before = {path.suffix: path.read_bytes() for path in save_figure(Figure(), tmp_path / "x")}

    def half(self, path, **options) -> None:
        Path(path).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", half)
    for again in (
        lambda: save_figure(Figure(figsize=(1, 1)), tmp_path / "x"),
        lambda: write_figure(Figure(figsize=(1, 1)), tmp_path / "x.png"),
        lambda: write_figure(Figure(figsize=(1, 1)), tmp_path / "x.pdf"),
    ):
        with pytest.raises(KeyboardInterrupt):
            again()
    assert {path.suffix: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("ending", [".onnx", ".safetensors", ".npz"])
def test_an_export_that_fails_leaves_the_old_file(tmp_path, monkeypatch, ending):
    path, old = tmp_path / f"old{ending}", load_policy(corpus.policy(tmp_path, ".npz"))
    export_policy(old, path)
    before = content(tmp_path)
    new = Policy(old.contract, old.tensors | {"fc2.bias": np.array([[2.0, 3.0]], np.float32)})

    def full(_) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot be written \(No space left on device\)"):
        export_policy(new, path)
    assert content(tmp_path) == before
    monkeypatch.undo()
    export_policy(new, path)
    assert content(tmp_path)[path.name] != before[path.name]
