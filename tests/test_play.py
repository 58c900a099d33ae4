"""``prism-marl play``: the examples that come with the package, run folders, and policy files of strangers."""

import dataclasses
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prism_marl import cli
from prism_marl.policies import Policy, read_policy, write_policy
from prism_marl.policies.episode import play_episode
from prism_marl.policies.examples import FOLDER, example_names, load_example

DOCS = Path(__file__).parents[1] / "docs"
LARGEST = 200 * 1024  # bytes of an example


@pytest.fixture
def said(capsys, monkeypatch, tmp_path):
    """Call the command in an empty folder: exit code, output, messages."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        code = cli.main(["play", *map(str, words)])
        return code, *capsys.readouterr()

    return call


def test_the_examples_are_small_and_documented(said):
    assert example_names() == ("halfcheetah", "lbf")
    page = (DOCS / "deploy.md").read_text(encoding="utf-8")
    code, out, _ = said("--list")
    assert code == 0
    for name in example_names():
        assert (FOLDER / f"{name}.safetensors").stat().st_size <= LARGEST
        contract = load_example(name).contract
        for part in (f"`{name}`", contract.task, f"{contract.steps:,}"):
            assert part in page, part
        assert all(part in out for part in (name, contract.task, contract.learner))


def test_the_foraging_example_is_shown_at_once_and_collects_the_food(said):
    code, out, err = said("lbf", "--episode", "1")
    assert (code, err) == (0, "")
    assert "*" in out and "A" in out and "B" in out and out.count("step ") > 3
    totals = [list(play_episode(load_example("lbf"), number))[-1].total for number in range(12)]
    assert np.mean(totals) > 0.7
    assert re.search(rf"return {totals[1]:.3f} in \d+ steps$", out.strip())
    again = said("lbf", "--episode", "1")[1]
    assert again == out and said("lbf", "--episode", "2")[1] != out


def test_the_robot_example_runs_and_becomes_a_film(said, tmp_path, monkeypatch):
    moments = play_episode(load_example("halfcheetah"))
    total = next(moment.total for number, moment in enumerate(moments) if number == 200)
    moments.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert total > 200  # 200 steps of 0.05 s at more than one metre a second
    monkeypatch.setattr("prism_marl.cli.filming.FILM_FRAMES", 5)
    code, out, _ = said("halfcheetah", "--out", "robot.gif")
    assert code == 0 and "in 1000 steps: robot.gif" in out
    with Image.open(tmp_path / "robot.gif") as film:
        assert getattr(film, "n_frames", 1) == 5


def test_without_mujoco_the_robot_is_one_sentence(said, monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    code, out, err = said("halfcheetah", "--out", "robot.gif")
    assert code == 2 and out == "" and err.count("\n") == 1 and "pip install 'prism-marl[mujoco]'" in err


def test_a_run_and_its_exported_policy_play_the_same_episode(said, trained, tmp_path):
    code, out, _ = said(trained, "--seed", "6")
    assert code == 0 and "lbf/4x4-2p-1f" in out
    shutil.copy(trained / "policies" / "seed-6.safetensors", tmp_path / "mine.safetensors")
    assert said("mine.safetensors")[1] == out
    code, _, err = said(trained, "--seed", "9")
    assert code == 2 and "seeds 5 to 6, not 9" in err


def test_a_terminal_shows_every_step(said, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("prism_marl.cli.play.PAUSE", 0.0)
    code, out, _ = said("lbf")
    assert code == 0 and re.search(r"return \d\.\d+ in \d+ steps", out)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ([], "say what; known: halfcheetah, lbf"),
        (["lbff"], "did you mean 'lbf'?"),
        (["nowhere.safetensors"], "there is no policy file nowhere.safetensors"),
        (["lbf", "--out", "x.avi"], "--out: cannot write 'x.avi'; .gif, .mp4 are known"),
        (["lbf", "--out", ""], "--out"),
        (["lbf", "--episode", "-1"], "--episode: -1 is outside"),
        (["lbf", "--camera"], "--camera: pictures need a file; add --out"),
        (["lbf", "--camera", "--out", "x.gif"], "'lbf/"),
        ([".."], "not a run folder"),
    ],
    ids=str,
)
def test_what_cannot_be_played_is_one_sentence(said, tmp_path, words, hint):
    code, out, err = said(*words)
    assert code == 2 and out == "" and err.count("\n") == 1 and hint in err, err
    assert not any(tmp_path.iterdir())


def changed(policy: Policy, path: Path, **fields) -> Path:
    return write_policy(Policy(dataclasses.replace(policy.contract, **fields), policy.tensors), path)


def test_a_strangers_file_runs_no_code_and_is_not_believed(said, tmp_path):
    policy = load_example("lbf")
    (tmp_path / "stranger.py").write_text("raise SystemExit('code of a stranger has run')\n")
    path = changed(policy, tmp_path / "stranger.safetensors", task="pettingzoo/stranger")
    code, _, err = said(path)
    assert code == 2 and "the policy file names the Python module 'stranger'" in err and "--module stranger" in err
    for task, hint in (("lbf/9x9-3p-1f", "this policy is for 2 agents"), ("nothing/4", "there is no 'nothing/4'")):
        code, _, err = said(changed(policy, tmp_path / "other.safetensors", task=task))
        assert code == 2 and hint in err and err.count("\n") == 1
    assert read_policy(path).contract.task == "pettingzoo/stranger"
