"""``prism-marl train`` and ``eval`` as a user meets them."""

import io
import os
import shutil
from pathlib import Path
from typing import Any

import jax
import pytest
from PIL import Image
from rich.console import Console

from prism_marl import api, cli
from prism_marl.cli import demo, eval
from prism_marl.cli.arguments import Arguments
from prism_marl.errors import UserError
from prism_marl.experiment import config
from prism_marl.experiment.presets import preset
from prism_marl.monitor import ProgressBar
from prism_marl.reports.load import load_run
from prism_marl.reports.start import parted
from prism_marl.runs import checkpoint
from prism_marl.runs.machine import configure_jax
from prism_marl.runs.trained import load_trained
from prism_marl.sharing import METHODS
from synthetic import make_run
from tiny import foraging, record

LBF = "lbf/10x10-3p-3f"


@pytest.fixture
def prism_marl(capsys, monkeypatch, tmp_path):
    """Call a command in an empty folder: exit code, output, messages."""
    monkeypatch.chdir(tmp_path)

    def call(*argv):
        code = cli.main(list(argv))
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], ["task"]),
        (["lbf/10x10-3p-3"], [LBF]),
        (["lfb/10x10-3p-3f"], [f"'{LBF}'"]),
        (["lbf/10x10-3p-3f\n\x1b[31m"], ["task"]),
        (["рой/4"], ["task"]),
        (["smacv2/terran_5_vs_5"], ["smacv2.git", "'skirmish/terran_5_vs_5'"]),
        (["mamujoco/ant-2x4"], ["mamujoco/ant-2x4", "'ant-4x2'"]),
        ([LBF, "--sharing", "prsim"], ["prsim", "'prism'"]),
        ([LBF, "--sharing"], ["--sharing"]),
        ([LBF, "--preset", "papre"], ["papre", "'paper'"]),
        ([LBF, "--sede", "3"], ["--sede", "'--seed'"]),
        ([LBF, "--sharing.comon", "0.5"], ["--sharing.comon", "'--sharing.common'"]),
        ([LBF, "--leaner.lr", "0.5"], ["--leaner.lr", "'--learner.lr'"]),
        ([LBF, "--learner.lr"], ["--learner.lr", "needs a value"]),
        ([LBF, "--learner.lr", "--width", "8"], ["--learner.lr", "needs a value"]),
        ([LBF, "--learner.lr", "fast"], ["--learner.lr", "number"]),
        ([LBF, "--learner.lr", "nan"], ["--learner.lr", "number"]),
        ([LBF, "--learner.lr=inf"], ["--learner.lr", "number"]),
        ([LBF, "--learner.lr", "1e39"], ["learner.lr", "too large"]),
        ([LBF, "--learner.lr.x", "1"], ["learner.lr.x", "no fields"]),
        ([LBF, "--learner.batch", "9999999999999999999999"], ["learner.batch", "too large"]),
        ([LBF, "--learner.target_interval", "3e9"], ["learner.target_interval", "too large"]),
        ([LBF, "--learner.last_action", "maybe"], ["learner.last_action", "true or false"]),
        ([LBF, "--sharing.method", "fups"], ["sharing.method"]),
        ([LBF, "--steps", "0"], ["run.steps", "nearest valid value is 1"]),
        ([LBF, "--steps", "-5"], ["run.steps"]),
        ([LBF, "--steps", "1.5"], ["--steps", "whole number"]),
        ([LBF, "--steps", "1e400"], ["--steps", "whole number"]),
        ([LBF, "--seeds", "5000"], ["run.seeds", "4096"]),
        ([LBF, "--width", "0"], ["network.width"]),
        ([LBF, "--learner.buffer", "2000000000"], ["GiB", "learner.buffer"]),
        ([LBF, "--learner.hypernet", "2000000000"], ["GiB", "networks"]),
        ([LBF, "--sharing", "seps", "--sharing.clusters", "4"], ["sharing.clusters"]),
        ([LBF, "word"], ["word"]),
        ([LBF, "--out", ""], ["--out", "empty name"]),
    ],
    ids=lambda value: " ".join(value).strip() if isinstance(value, list) else None,
)
def test_bad_input_is_answered_in_one_sentence_and_leaves_nothing(prism_marl, tmp_path, argv, words):
    code, out, err = prism_marl("train", *argv)
    assert code == 2 and out == ""
    assert err.startswith("prism-marl: ") and err.count("\n") == 1 and "Traceback" not in err
    assert err.removesuffix("\n").isprintable()
    for word in words:
        assert word in err
    assert os.listdir(tmp_path) == []  # noqa: PTH208


@pytest.mark.parametrize(
    "argv",
    [
        ["--sharing.common", "0.2", LBF],
        [LBF, "--sharing.common", "0.2"],
        ["--sharing.common=0.2", LBF],
        ["--sharing", "prism", "--sharing.common", "0.2", LBF, "--seed", "0"],
    ],
    ids=" ".join,
)
def test_fields_may_stand_anywhere(prism_marl, argv):
    code, out, err = prism_marl("train", *argv, "--options")
    assert (code, err) == (0, "")
    assert "--sharing.common               0.2 " in out


def test_words_that_look_like_fields_are_taken_whole():
    parser = Arguments("train", "")
    parser.add_argument("task")
    parser.add_argument("--out")
    found, fields = parser.parse_with_fields(["--a.b=c=d", "--out", "x.y", "--a.c", "-0.5", "the.task", "--a.d="])
    assert (found.task, found.out) == ("the.task", "x.y")
    assert fields == [("a.b", "c=d"), ("a.c", "-0.5"), ("a.d", "")]
    with pytest.raises(UserError, match=r"--a\.b: this option needs a value"):
        parser.parse_with_fields(["task", "--a.b"])


@pytest.mark.parametrize("method", METHODS)
def test_options_lists_every_field_with_its_meaning(prism_marl, method):
    code, out, _ = prism_marl("train", LBF, "--sharing", method, "--options", "--width", "13")
    assert code == 0
    lines = out.splitlines()
    experiment = preset(LBF, method).with_option("network.width", "13")
    rows = [row for row in config.options(experiment) if "." in row[0]]
    assert len(lines) == len(rows)
    for line, (path, value, about) in zip(lines, rows, strict=True):
        name, shown, *meaning = line.split(maxsplit=2)
        assert (name, shown) == (f"--{path}", str(value)) and len(about) > 5
        possible = config.choices(experiment, path)
        assert meaning == [f"{about} [{', '.join(possible)}]" if possible else about]
        assert not possible or str(value) in possible
    assert "[learner, exact, first]" in out


def test_a_user_without_a_home_keeps_no_programs(monkeypatch):
    """As in a container that is started under a number that nobody has."""

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    for name in ("PRISM_MARL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert configure_jax() is None


def test_short_options_set_the_run(monkeypatch, prism_marl, tmp_path):
    seen: list[tuple] = []
    monkeypatch.setattr(api, "run_experiment", lambda *arguments, **_: seen.append(arguments))
    words = ["--steps", "3e3", "--seeds", "2", "--seed", "1_0", "--envs", "4", "--eval-every", "7"]
    code, _, err = prism_marl("train", LBF, *words, "--eval-episodes", "8", "--width", "9", "--run.seeds", "3")
    assert code == 0, err
    experiment, folder, _, cache = seen[0]
    assert cache == Path(os.environ["PRISM_MARL_CACHE"])
    run = experiment.run
    assert (run.steps, run.seeds, run.seed, run.envs, run.eval_every, run.eval_episodes) == (3000, 3, 10, 4, 7, 8)
    assert experiment.network.width == 9
    assert folder == experiment.folder(folder.parents[1]) and folder.parts[0] == "runs"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["nowhere"], ["nowhere", "not a run folder"]),
        ([], ["run"]),
        (["nowhere", "--rendr", "x.gif"], ["--rendr", "'--render'"]),
        (["nowhere", "--episodes", "x"], ["--episodes", "whole number"]),
    ],
)
def test_eval_of_nothing_is_one_sentence(prism_marl, argv, words):
    code, out, err = prism_marl("eval", *argv)
    assert code == 2 and out == "" and err.count("\n") == 1
    assert all(word in err for word in words)


def test_eval_of_a_folder_without_a_checkpoint_or_with_a_broken_config(prism_marl, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text(foraging().to_json())
    code, _, err = prism_marl("eval", str(folder))
    assert code == 2 and "no checkpoint yet" in err and err.count("\n") == 1
    for content in (b"{", b"\xff\xfe", b"[" * 100_000, b'{"format": 1}'):
        (folder / "config.json").write_bytes(content)
        code, _, err = prism_marl("eval", str(folder))
        assert code == 2 and err.count("\n") == 1 and "Traceback" not in err


def test_eval_shows_numbers_and_an_episode_as_a_film_and_as_text(prism_marl, trained, tmp_path, capsys):
    before = record(trained)
    code, out, err = prism_marl("eval", str(trained), "--episodes", "4", "--render", "x.gif", "--episode", "2")
    assert (code, err) == (0, "")
    assert "Prism on lbf/4x4-2p-1f" in out and "collected" in out and "4 greedy episodes" in out
    with Image.open(tmp_path / "x.gif") as film:
        frames = getattr(film, "n_frames", 1)
    assert f"in {frames - 1} steps: x.gif" in out
    # what follows looks at the same state again: compiling once is enough
    trainer, state, _ = load_trained(trained, 4)
    eval.render(trainer, state, 1, 2, "text")
    shown = capsys.readouterr().out
    assert shown.count("step ") >= 2 and "A" in shown and "return" in shown
    with pytest.raises(UserError, match=r"endings: \.gif, \.mp4"):
        eval.render(trainer, state, 0, 0, "x.avi")
    assert record(trained) == before


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--render", "text", "--seed", "4"], ["--seed", "5 to 6"]),
        (["--render", "text", "--episode", "-1"], ["--episode"]),
        (["--render", "text", "--episode", "99999999999"], ["--episode"]),
        (["--episodes", "0"], ["run.eval_episodes"]),
    ],
)
def test_eval_refuses_what_is_not_there(prism_marl, trained, monkeypatch, argv, words):
    monkeypatch.setattr(eval, "show_numbers", lambda trainer, state: None)
    code, _, err = prism_marl("eval", str(trained), *argv)
    assert code == 2 and err.count("\n") == 1 and all(word in err for word in words)


def test_eval_says_when_it_uses_an_older_checkpoint(prism_marl, trained, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    newest, _ = checkpoint.paths(folder / "checkpoints")
    newest.write_bytes(b"")
    monkeypatch.setattr(eval, "show_numbers", lambda trainer, state: None)
    code, _, err = prism_marl("eval", str(folder))
    assert code == 0 and err.count("\n") == 1
    assert newest.name in err and "using the one before" in err


def test_the_demo_never_removes_another_run(prism_marl, trained, tmp_path, monkeypatch):
    folder = tmp_path / "demo" / "prism"
    shutil.copytree(trained, folder)
    monkeypatch.setattr(demo, "demo_experiment", lambda method, steps: foraging().with_option("run.seed", "9"))
    code, _, err = prism_marl("demo", "--out", str(folder.parent))
    assert code == 2 and "holds another experiment" in err
    assert record(folder) == record(trained)


def test_a_demo_begins_anew_and_leaves_what_is_not_its_own(prism_marl, trained, tmp_path, monkeypatch):
    folder = tmp_path / "demo" / "prism"
    shutil.copytree(trained, folder)
    (folder / "other run").mkdir()
    (folder / "notes.txt").write_text("mine")
    monkeypatch.setattr(demo, "METHODS", {"prism": {}})
    monkeypatch.setattr(demo, "demo_experiment", lambda method, steps: foraging())
    monkeypatch.setattr(demo, "run_experiment", lambda *_: None)
    monkeypatch.setattr(demo, "write_report", lambda runs, page, title: page)
    monkeypatch.setattr(demo, "summary", lambda runs: [])
    assert prism_marl("demo", "--out", str(folder.parent))[0] == 0
    left = {path.name for path in folder.iterdir()} - {".lock"}
    assert left == {"config.json", "other run", "notes.txt"}


def test_what_the_demo_trains_can_be_trained_and_only_masks_tell_its_agents_apart():
    for method in demo.METHODS:
        experiment = demo.demo_experiment(method, 1_000)
        experiment.validate()
        assert experiment.run.steps == 1_000 and not experiment.sharing.reads_id()
    prism = demo.demo_experiment("prism").sharing
    layer: Any = prism.linear(18, 8, identities=3, key=jax.random.key(0), kind="input", depth=0)
    same = layer.dense()
    assert (same == same[:1]).all() and prism.penalties().diversity == 0


def test_the_demo_says_what_became_of_the_masks(tmp_path):
    runs = [load_run(make_run(tmp_path, method=method, evaluations=4, seeds=2)) for method in ("prism", "fups")]
    table, masks = demo.summary(runs)
    assert runs[0].spectra is not None and not isinstance(table, str)
    first, last, total = parted(runs[0].spectra)
    assert 0 == first < last <= total
    assert f"{first} of {total} own directions before training (all seeds) and differ in {last} now" in str(masks)
    assert table.row_count == 2


@pytest.mark.parametrize(("width", "lines"), [(80, 2), (140, 1)])
def test_a_progress_bar_shows_whole_numbers_in_any_terminal(width, lines):
    out = io.StringIO()
    with ProgressBar(1000, "Prism · skirmish/terran_5_vs_5 · 5 seed(s)", Console(file=out, width=width)) as bar:
        bar.progress(500, 127000.0, "return -12.345  loss 1234.5670")
    shown = out.getvalue()
    assert shown.count("\n") == lines and "…" not in shown and shown.startswith("Prism · skirmish/terran_5_vs_5")
    assert all(word in shown for word in ("50%", "127,000 steps/s", "return -12.345  loss 1234.5670", "0:00:00"))


def test_commands_are_suggested(prism_marl):
    code, _, err = prism_marl("trian")
    assert code == 2 and "'train'" in err
    assert prism_marl()[0] == 0 and prism_marl("--help")[1].startswith("usage")
    assert prism_marl("--version")[1].startswith("prism-marl ")
