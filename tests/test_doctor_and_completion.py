"""``prism-marl doctor`` and ``prism-marl completion``."""

import json
import shutil
import socket
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from prism_marl import cli
from prism_marl.cli import requirements
from prism_marl.cli.arguments import Arguments, captured_parser
from prism_marl.cli.completion import vocabulary
from prism_marl.envs.registry import families
from prism_marl.experiment import config
from prism_marl.experiment.presets import preset
from prism_marl.learners import LEARNERS
from prism_marl.sharing import METHODS
from prism_marl.storage.cache import Cache


@pytest.fixture
def examined(capsys, monkeypatch):
    """The findings of the doctor by section and name, and its exit code."""

    def call() -> tuple[int, dict[str, dict[str, dict[str, str]]]]:
        code = cli.main(["doctor", "--json"])
        told = json.loads(capsys.readouterr().out)
        return code, {section: {row["name"]: row for row in rows} for section, rows in told.items()}

    return call


def test_the_doctor_finds_everything_here_and_asks_no_network(examined, monkeypatch, tmp_path, capsys):
    def connect(*_):
        raise AssertionError("the doctor uses the network")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setenv("PRISM_MARL_CACHE", str(tmp_path / "cache"))
    Cache(tmp_path / "cache" / "lowered").write("one", b"x" * 2**20)
    code, told = examined()
    assert code == 0
    assert told["Versions"]["jax"]["about"] == metadata.version("jax") and told["Versions"]["jax"]["state"] == "ok"
    assert told["Devices"]["cpu 0"]["state"] == "ok"
    assert set(told["Extras"]) == set(requirements.extras_of("prism-marl")) - {"dev"}
    assert told["Extras"]["mujoco"]["state"] == "ok" and "mujoco 3.4.0" in told["Extras"]["mujoco"]["about"]
    assert "1 file, 1.0 of 1024 MiB" in told["Cached programs"]["lowered programs"]["about"]
    assert told["Programs and libraries"]["ffmpeg"]["state"] == "ok"
    assert cli.main(["doctor"]) == 0
    assert "Everything that a run needs works." in capsys.readouterr().out


def test_the_doctor_names_the_command_for_what_is_missing(examined, monkeypatch):
    versions = {"mujoco": "3.9.0", "onnx": None, "jax": "0.1.0", "optax": None}
    real = requirements._version
    monkeypatch.setattr(requirements, "_version", lambda name: versions.get(name, real(name)))
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.delenv("CHROME", raising=False)
    code, told = examined()
    assert code == 1
    assert told["Versions"]["jax"]["state"] == told["Versions"]["optax"]["state"] == "broken"
    assert "0.1.0, needed is >=" in told["Versions"]["jax"]["about"]
    assert "pip install 'optax>=" in told["Versions"]["optax"]["remedy"]
    for extra in ("mujoco", "onnx"):
        assert told["Extras"][extra]["state"] == "missing"
        assert f"pip install 'prism-marl[{extra}]'" in told["Extras"][extra]["remedy"]
    assert "mujoco must be ==3.4.0" in told["Extras"]["mujoco"]["about"]
    assert told["Programs and libraries"]["browser"]["state"] == "missing"


def test_a_device_that_computes_nothing_is_broken(examined, monkeypatch):
    def devices(*_):
        raise RuntimeError("Unable to initialize backend 'cuda'\nand a page of details")

    monkeypatch.setattr("jax.devices", devices)
    code, told = examined()
    assert code == 1
    assert told["Devices"]["jax"]["about"] == "cannot compute (RuntimeError: Unable to initialize backend 'cuda')"


@pytest.mark.parametrize(
    ("version", "wanted", "fit"),
    [
        ("3.4.0", "==3.4.0", True),
        ("3.4", "==3.4.0", True),
        ("3.5.0", "==3.4.0", False),
        ("0.10.2", ">=0.5.3", True),
        ("0.5.2", ">=0.5.3", False),
        ("2.0.0rc1", ">=1.9,<3", True),
        ("3.0", ">=1.9,<3", False),
        ("1.0", "", True),
        ("1.0", "~=9", True),  # not known, so not held against it
    ],
)
def test_versions_are_compared_by_their_numbers(version, wanted, fit):
    assert requirements.fits(version, wanted) is fit


def test_no_command_does_anything_before_it_parses():
    for name in cli.COMMANDS:
        found = captured_parser(__import__(f"prism_marl.cli.{name}", fromlist=["run"]).run)
        assert found.prog == f"prism-marl {name}"
    assert not Arguments.captured


def test_the_vocabulary_has_all_that_the_parsers_and_registries_have():
    known = vocabulary()
    assert list(known) == list(cli.COMMANDS)
    train = known["train"]
    assert set(train.options["--sharing"].words) == set(METHODS)
    assert set(train.options["--learner"].words) == set(LEARNERS)
    assert set(train.words) == {example for family in families().values() for example in family.examples}
    for path, _, about in config.options(preset("lbf/4x4-2p-1f", "prism")):
        assert path == "task" or (about and train.options[f"--{path}"].about)
    assert not train.options["--tf32"].takes and train.options["--out"].files and known["report"].files
    assert known["play"].words == ["halfcheetah", "lbf"]


ASKED = [
    ("tr", ["train"]),
    ("footprint lbf/1", ["lbf/10x10-3p-3f", "lbf/10x10-3p-3f-s2"]),
    ("train lbf/10x10-3p-3f --sharing pr", ["prism"]),
    ("train --learner ", ["ippo", "iql", "mappo", "matd3", "qmix", "vdn"]),
    ("train --tf32 --learner.epsilon_a", ["--learner.epsilon_anneal"]),
    ("train lbf/10x10-3p-3f --steps ", []),
    ("sweep lbf/10x10-3p-3f --sharing prism fups_id_", ["fups_id_svd"]),
    ("export --format o", ["onnx"]),
    ("export --out te", ["team of mine"]),
    ("report te", ["team of mine"]),
    ("play l", ["lbf"]),
    ("completion z", ["zsh"]),
]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """The script of every shell in a folder with one file."""
    folder = tmp_path_factory.mktemp("completion")
    (folder / "team of mine").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for shell in ("bash", "zsh", "fish"):
            done: list[str] = []
            patch.setattr("builtins.print", lambda text, done=done, **_: done.append(text))
            assert cli.main(["completion", shell]) == 0
            (folder / f".{shell}").write_text("".join(done))
    return folder


def test_bash_completes(scripts):
    lines = ["set -u", "source ./.bash"]
    for typed, _ in ASKED:
        words = " ".join(f"'{word}'" for word in f"prism-marl {typed}".split(" "))
        lines.append(
            f"COMP_WORDS=({words}) COMP_CWORD={len(typed.split(' '))} COMPREPLY=(); _prism_marl prism-marl '' ''"
        )
        lines.append('printf "%s|" "${COMPREPLY[@]:-}"; echo')
    done = subprocess.run(["bash", "-c", "\n".join(lines)], cwd=scripts, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    answers = [[word for word in line.split("|") if word] for line in done.stdout.splitlines()]
    assert dict(zip([typed for typed, _ in ASKED], answers, strict=True)) == dict(ASKED)
    bound = subprocess.run(["bash", "-c", "source ./.bash; complete -p prism-marl"], cwd=scripts, capture_output=True)
    assert bound.stdout == b"complete -F _prism_marl prism-marl\n"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_scripts_hold_the_same_words(scripts, shell):
    """Where the shell is installed, it also reads the script."""
    text = (scripts / f".{shell}").read_text()
    for word in ("kaleidoscope", "lbf/10x10-3p-3f", "learner.epsilon_anneal", "halfcheetah", "footprint"):
        assert word in text
    if program := shutil.which(shell):
        assert subprocess.run([program, "-n", f".{shell}"], cwd=scripts, check=False).returncode == 0
        assert shell == "zsh" or fish_answer(program, scripts) == ["prism"]


def fish_answer(program: str, folder: Path) -> list[str]:
    asked = 'source ./.fish; complete -C "prism-marl train lbf/10x10-3p-3f --sharing pr"'
    done = subprocess.run([program, "-c", asked], cwd=folder, capture_output=True, text=True, check=True)
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]
