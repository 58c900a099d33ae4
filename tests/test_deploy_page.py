"""The commands of docs/deploy.md, one after the other, as a reader would type them; and the example without us."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

import pages
import prism_marl as pm
from prism_marl import cli
from prism_marl.errors import UserError

ROOT = pages.ROOT
PAGE = ROOT / "docs/deploy.md"


def commands() -> list[list[str]]:
    return pages.commands(PAGE)


def run(words: list[str]) -> None:
    if words[0] != "python":
        pages.run_command(words)
        return
    example = [sys.executable, "-W", "error", str(ROOT / words[1]), *words[2:]]
    done = subprocess.run(example, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"return \d\.\d+ in \d+ steps\n", done.stdout)


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """A folder in which the whole page was followed."""
    folder = tmp_path_factory.mktemp("a reader's folder")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for words in commands():
            run(words)
    return folder


def test_every_command_of_the_page_works(followed):
    assert {words[1] for words in commands() if words[0] == "prism-marl"} == {"train", "play", "export", "report"}
    for name in ("team.onnx", "team.npz", "files for robots/first.safetensors", "runs/team/policy-seed-0.onnx"):
        told = json.loads((followed / f"{name}.json").read_text())
        assert told["observation"][0]["name"] == "food0.row" and told["actions"][5]["name"] == "load"
        assert told["contract"]["finished"] and told["contract"]["run"]
    assert json.loads((followed / "team.npz.json").read_text())["contract"]["steps"] >= 2000


def test_the_python_of_the_page_works(followed, monkeypatch, capsys):
    monkeypatch.chdir(followed)
    (block,) = [step.text for step in pages.steps(PAGE) if step.kind == "code"]
    exec(compile(block, "deploy.md", "exec"), {})  # our own page
    assert "food0.row" in capsys.readouterr().out


def test_numpy_and_onnx_play_the_same_episode(followed):
    command = [sys.executable, str(ROOT / "examples/play_policy.py")]
    said = [
        subprocess.run([*command, str(followed / name), "3"], capture_output=True, text=True, check=True).stdout
        for name in ("team.onnx", "team.npz")
    ]
    assert said[0] == said[1]


def test_an_extended_run_has_the_policy_of_its_new_end(followed):
    policy = pm.load_policy(followed / "runs/team")
    assert policy.contract.finished and policy.contract.steps >= 3000
    again = pm.load_policy(followed / "team.npz")
    assert again.contract.steps < policy.contract.steps and again.contract.run == policy.contract.run


def test_export_says_what_it_did(followed, capsys):
    team = str(followed / "runs/team")
    assert cli.main(["export", team, "--out", str(followed / "x.npz"), "--factored"]) == 0
    said = capsys.readouterr().out
    for words in ("prism on lbf/5x5-2p-1f, 2 agents, seed 0", "from checkpoint", "the end of the run"):
        assert words in said
    for words in ("parameters", "multiply-adds", "microseconds a call (batch 1, one core", "with shared factors"):
        assert words in said


def test_a_run_that_is_not_finished_says_from_which_checkpoint(followed, capsys, tmp_path):
    import shutil

    folder = shutil.copytree(followed / "runs/team", tmp_path / "team")
    (folder / "done").unlink()
    for path in (folder / "policies").iterdir():
        path.unlink()
    policy = pm.load_policy(folder, seed=0)
    assert not policy.contract.finished and policy.contract.checkpoint > 0
    finished = pm.load_policy(followed / "runs/team")
    obs = np.ones((3, 2, 9))
    np.testing.assert_array_equal(policy.act(obs, policy.reset(3))[0], finished.act(obs, finished.reset(3))[0])
    assert cli.main(["export", str(folder), "--out", str(tmp_path / "x.npz")]) == 0
    assert "a run that is not finished" in capsys.readouterr().out
    finished.contract.checkpoint  # noqa: B018 - a policy of an older checkpoint is not taken for the newest
    shutil.copytree(followed / "runs/team/policies", folder / "policies", dirs_exist_ok=True)
    newest = max((folder / "checkpoints").iterdir())
    newest.rename(newest.with_name("99999999.safetensors"))
    assert not pm.load_policy(folder).contract.finished


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--seed", "7"], "seed: this run has seeds 0 to 0, not 7"),
        (["--agent", "2"], "--agent: 2 is outside 0 to 1"),
        (["--out", "x.pt"], "--out: x.pt must end in .onnx, .safetensors, .npz"),
        (["--out", "x.npz", "--format", "onnx"], "--out: x.npz does not end in .onnx"),
        (["--agent", "0", "--team"], "not allowed with"),
        (["--format", "tflite"], "invalid choice"),
    ],
)
def test_wrong_words_cost_a_sentence(followed, words, complaint, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["export", str(followed / "runs/team"), *words]) == 2
    assert complaint in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_where_onnx_is_not_installed_the_command_says_what_to_install(followed, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r"pip install .*'prism-marl\[onnx\]'"):
        pm.export(followed / "runs/team", followed / "never.onnx")
    assert not (followed / "never.onnx").exists()
