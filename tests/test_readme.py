"""The README does what it says: its code runs as printed, its commands at a small size."""

import shlex
from pathlib import Path

import pytest

import prism_marl as pm
from pages import ROOT, SMALL, commands, steps
from prism_marl import cli
from prism_marl.learners import LEARNERS
from prism_marl.sharing import METHODS

README = ROOT / "README.md"
TRAINED = "runs/mine"  # the run that commands begin, extend, watch and export; of other trainings, settings are read
SIZES = f"{SMALL} --seeds 1 --steps 96 --eval-every 48 --eval-episodes 4"


def smaller(words: list[str]) -> list[str]:
    """The same command for a reader with seconds instead of minutes."""
    if words[1] == "sweep":
        return [*words, "--plan"]
    if "--extend" in words:
        return [word.replace("5M", "144") for word in words]
    if words[1] == "train" and "--options" not in words:
        return [*words, *SIZES.split()] if TRAINED in words else [*words, "--options"]
    return words


def test_every_command_works(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = commands(README)
    assert {words[1] for words in found} >= set(cli.COMMANDS) - {"demo", "cache", "completion"}
    for words in found:
        code, said = cli.main(smaller(words)[1:]), capsys.readouterr()
        assert code == 0, f"{shlex.join(words)}: {said.err}"
        assert words[1] != "sweep" or "8 experiments" in said.out, said.out
    for name in ("team.onnx", "page/index.html", "runs/mine/done"):
        assert (tmp_path / name).exists(), name


def code_blocks() -> list[str]:
    return [step.text for step in steps(README) if step.kind == "code"]


def test_the_first_code_trains_draws_and_acts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    settings = '"learner.batch": 4, "learner.embed": 4, "learner.hypernet": 4, "run.measures": 0'
    code = code_blocks()[0]
    assert "steps=3_000," in code and len(code.strip().splitlines()) <= 20
    small = code.replace("steps=3_000,", f"steps=96, eval_every=48, width=8, progress=False, options={{{settings}}},")
    exec(compile(small, "README.md", "exec"), {})
    assert "(32, 4)" in capsys.readouterr().out
    for name in ("curve.png", "runs/team.npz", "runs/page/index.html"):
        assert (tmp_path / name).stat().st_size > 100


def test_the_code_with_layers_runs_and_its_gradient_exists():
    names: dict[str, object] = {}
    exec(compile(code_blocks()[1], "README.md", "exec"), names)
    assert names["y"].shape == (64, 4, 32) and names["W"].shape == (4, 32, 16)
    assert set(names["terms"]) == {"orthogonality", "diversity"} and float(names["loss"]) == float(names["loss"])


def test_tables_name_every_method_and_learner():
    text = README.read_text()
    assert all(f"`{name}`" in text for name in (*METHODS, *LEARNERS))
    assert pm.__version__


@pytest.mark.parametrize(
    "target",
    [
        line.split(":")[0]
        for line in (ROOT / "Makefile").read_text().splitlines()
        if line.startswith(("demo:", "test:", "docs:", "torch:"))
    ],
)
def test_make_has_the_targets_it_names(target):
    assert f"make {target}" in README.read_text() and Path(ROOT / "Makefile").exists()
