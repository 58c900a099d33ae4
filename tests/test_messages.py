"""What people type wrong, and how soon they get an answer."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
import pytest

from prism_marl import api, cli
from prism_marl.errors import UserError, install_command
from prism_marl.experiment import config
from prism_marl.experiment.presets import preset
from prism_marl.runs.signals import stop_signals
from prism_marl.sharing import METHODS, Prism
from prism_marl.training.compiling import waited_for

LBF = "lbf/4x4-2p-1f"


@pytest.fixture
def said(capsys, monkeypatch, tmp_path):
    """Call a command in an empty folder: its exit code and its one sentence."""
    monkeypatch.chdir(tmp_path)

    def call(*argv):
        code = cli.main(list(argv))
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("prism-marl: ") and err.count("\n") == 1
        return code, err

    return call


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["train", LBF, "--lr", "0.001"], "did you mean '--learner.lr'?"),
        (["train", LBF, "--lr=0.001"], "--lr: there is no such option; did you mean '--learner.lr'?"),
        (["train", "reach/2", "--lr", "0.001"], "did you mean '--learner.actor_lr' or '--learner.critic_lr'?"),
        (["train", "--lr", "1"], "did you mean '--learner.lr'?"),
        (["train", LBF, "--epsilon-anneal", "9"], "did you mean '--learner.epsilon_anneal'?"),
        (["train", LBF, "--common", "0.5"], "did you mean '--sharing.common'?"),
        (["train", LBF, "--sharing.comon", "0.5"], "did you mean '--sharing.common'?"),
        (["train", LBF, "--leaner.lr", "0.5"], "--leaner.lr: there is no such option; did you mean '--learner.lr'?"),
        (["train", LBF, "--learner.eval_every", "5"], "did you mean '--run.eval_every'?"),
        (["train", LBF, "--sede", "5"], "did you mean '--seed'?"),
        (["train", LBF, "--zzz.x", "5"], "known: learner, network, run, sharing, task"),
        (["sweep", LBF, "--set", "lr=1", "--out", "x"], "did you mean '--learner.lr'?"),
        (["footprint", LBF, "--method", "prism", "--sharing.comon", "1"], "did you mean '--sharing.common'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_misspelt_field_is_suggested_with_its_whole_name(said, words, hint):
    code, err = said(*words)
    assert code == 2 and hint in err


def test_every_field_that_is_suggested_exists():
    held = preset(LBF, "prism")
    for path, value, _ in config.options(held):
        last = path.rpartition(".")[2]
        assert f"'--{path}'" in config.nearest_option(f"--{last}", [p for p, _, _ in config.options(held)])
        assert held.with_option(path, str(value).strip("()")) == held


def test_a_folder_that_is_no_run_is_not_trained_into(said, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("x")
    for words in (["train", LBF], ["demo"], ["train", LBF, "--sinks", "tensorboard"]):
        code, err = said(*words, "--out", "thesis", "--steps", "50")
        assert code == 2 and "thesis is not empty (it holds 'chapter.tex') and not a run folder" in err
    code, err = said("train", "--extend", "100", "--out", "new")
    assert code == 2 and "new is not a run folder" in err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["chapter.tex", "thesis"]


def test_a_run_may_begin_where_one_was_killed_before_its_config(tmp_path, monkeypatch):
    began: list[Path] = []
    for name in (".lock", "log.txt", "progress.json", "start.safetensors", ".config.json.7.tmp"):
        (tmp_path / name).write_text("")
    monkeypatch.setattr(api, "run_experiment", lambda experiment, folder, *_, **__: began.append(folder))
    api.train(LBF, out=tmp_path, progress=False)
    assert began == [tmp_path]


def test_report_of_folders_without_runs_is_refused(said, tmp_path):
    (tmp_path / "empty" / "deeper").mkdir(parents=True)
    for out in ([], ["--out", "page"], ["--out", "page.html"]):
        code, err = said("report", "empty", *out)
        assert code == 2 and "there are no runs in empty" in err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["deeper", "empty"]


@pytest.mark.parametrize("command", ["eval", "play"])
def test_a_film_makes_no_folders(said, tmp_path, trained, command):
    option = {"eval": "--render", "play": "--out"}[command]
    code, err = said(command, str(trained), option, "films/x.gif")
    assert code == 2 and f"{option}: there is no folder 'films'" in err
    code, err = said(command, str(trained), option, "/prism-marl-films/x.gif")
    assert code == 2 and "there is no folder '/prism-marl-films'" in err
    assert not Path("/prism-marl-films").exists() and not any(tmp_path.iterdir())


class Notes:
    """A monitor that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)

    def progress(self, steps: int, rate: float, text: str) -> None: ...

    def recorded(self, folder: Path) -> None: ...


def test_a_run_that_ends_before_its_exploration_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(api, "run_experiment", lambda *_, **__: None)

    def warned(steps: int, **options) -> list[str]:
        notes = Notes()
        settings = {f"learner.{name}": value for name, value in options.items()}
        api.train(LBF, out=tmp_path / "run", steps=steps, progress=notes, options=settings)
        return [text for text in notes.said if text.startswith("warning: ")]

    (sentence,) = warned(50_000, epsilon_anneal=200_000)
    assert "learner.epsilon_anneal" in sentence and "76% of the actions are still random" in sentence
    assert warned(200_000, epsilon_anneal=200_000) == []
    assert warned(50, epsilon_anneal=200_000, epsilon_start=0.05) == []
    (sentence,) = [text for text in preset(LBF, "seps").with_option("run.steps", "50000").warnings() if text]
    assert "sharing.pretraining" in sentence and "nothing is learned" in sentence


def test_settings_and_layers_of_a_library_user_are_refused_in_words():
    with pytest.raises(UserError, match=r"sharing.common: 2.0 is outside \[0, 1\]; the nearest valid value is 1.0"):
        Prism(common=2.0)
    for name, method in METHODS.items():
        layer: Any = method().linear  # pyright: ignore[reportCallIssue]
        key = jax.random.key(0)
        with pytest.raises(UserError, match=r"kind: there is no 'hiden'; did you mean 'hidden'\?"):
            layer(4, 4, identities=2, key=key, kind="hiden", depth=0)
        with pytest.raises(UserError, match="identities: 0 is not a positive number"):
            layer(4, 4, identities=0, key=key, kind="hidden", depth=0)
        assert layer(4, 4, identities=2, key=key, kind="hidden", depth=0).identities == 2, name


def test_the_command_for_an_extra_is_for_the_python_that_runs(monkeypatch, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    command = install_command(extra="onnx")
    assert command == f"{sys.executable} -m pip install 'prism-marl[onnx]'"
    python = tmp_path / "with space" / "bin" / "python"
    monkeypatch.setattr(sys, "executable", str(python))
    assert install_command("a==1", "b") == f"'{python}' -m pip install 'a==1' 'b'"
    monkeypatch.chdir(tmp_path)
    assert install_command("a") == "'with space/bin/python' -m pip install 'a'"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # an environment of uv has no pip
    assert install_command("a") == "uv pip install --python 'with space/bin/python' 'a'"


def test_ctrl_c_ends_waiting_for_the_compiler_at_once():
    begun, go_on = time.monotonic(), threading.Event()
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    stopped = pytest.raises(UserError, match="stopped while compiling")
    with stopped as error, stop_signals() as stop, stop.while_compiling():
        waited_for(lambda: go_on.wait(30))
    assert error.value.code == 130 and time.monotonic() - begun < 5
    go_on.set()
    assert waited_for(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        waited_for(lambda: 1 // 0)


def test_ctrl_c_while_a_run_compiles_is_answered_within_two_seconds(tmp_path):
    """A process of its own and an empty cache; it names the run just before its first program is compiled."""
    changes = {"PRISM_MARL_CACHE": str(tmp_path / "cache"), "JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}
    command = [sys.executable, "-m", "prism_marl.cli", "train", "roles/4", "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, env=os.environ | changes, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        asked = time.monotonic()
        said += process.stderr.read()
        assert process.wait(60) == 130
        took = time.monotonic() - asked
    assert "prism-marl: stopped while compiling; the same command continues from there\n" in said
    assert "Traceback" not in said and took < 2, said
    assert not (tmp_path / "run" / "done").exists()
