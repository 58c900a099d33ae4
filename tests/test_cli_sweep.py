"""``prism-marl sweep`` as a user meets it."""

import json
import os
import re
import shlex

import pytest

from prism_marl import cli
from prism_marl.experiment.presets import preset
from prism_marl.sweeps.grid import folder_of, grid


@pytest.fixture
def sweep(capsys, monkeypatch, tmp_path):
    """Call the command in an empty folder: exit code, output, messages."""
    monkeypatch.chdir(tmp_path)

    def call(*argv):
        code = cli.main(["sweep", *argv])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def planned(out: str) -> list[str]:
    """The experiments of a plan."""
    return [re.split(r"\s{2,}", line)[3] for line in out.splitlines() if line.startswith("starts")]


def test_a_plan_prints_the_grid_and_touches_nothing(sweep, tmp_path):
    words = "roles/2 roles/3 --sharing prism fups --set learner.lr=1e-3,5e-4 --seeds 5 --steps 100 --plan"
    code, out, err = sweep(*shlex.split(words))
    assert (code, err) == (0, "")
    assert planned(out) == [
        f"{task} {method} learner.lr={lr}"
        for task in ("roles/2", "roles/3")
        for method in ("prism", "fups")
        for lr in ("0.001", "0.0005")
    ]
    assert "8 experiments; 4,000 environment steps at most are left" in out
    assert os.listdir(tmp_path) == []  # noqa: PTH208
    first = grid(preset("roles/2", "prism"), {"run.seeds": 5, "run.steps": 100, "learner.lr": 1e-3})[0]
    assert folder_of(first, "runs").name in out
    assert planned(sweep("roles/2", "--learner.lr", "1e-3,5e-4", "--plan")[1]) == [
        "roles/2 prism learner.lr=0.001",
        "roles/2 prism learner.lr=0.0005",
    ]


FILES = {
    "sweep.json": json.dumps({"tasks": ["roles/2"], "sharing": ["fups", "nops"], "options": {"run.steps": [1, 2]}}),
    "list.py": """
from prism_marl.experiment.presets import preset
from prism_marl.sweeps.grid import grid
sweep = grid([preset("roles/2", method) for method in ("fups", "nops")], {"run.steps": [1, 2]})
""",
    "function.py": """
from prism_marl.experiment.presets import preset
from prism_marl.sweeps.grid import Sweep, grid
def sweep():
    return Sweep("mine", grid([preset("roles/2", m) for m in ("fups", "nops")], {"run.steps": [1, 2]}))
""",
}


@pytest.mark.parametrize("name", FILES)
def test_a_sweep_from_a_file(sweep, tmp_path, name):
    (tmp_path / name).write_text(FILES[name])
    code, out, err = sweep(name, "--plan", "--seeds", "3")
    assert (code, err) == (0, "")
    assert planned(out) == [f"roles/2 {method} run.steps={n}" for method in ("fups", "nops") for n in (1, 2)]
    assert "18 environment steps" in out


@pytest.mark.parametrize(
    ("content", "argv", "words"),
    [
        ("", ["roles/2", "--set", "learner.lr"], ["--set", "FIELD=VALUE"]),
        ("", ["roles/2", "--set", "learner.rl=1"], ["--learner.rl", "'--learner.lr'", "roles/2 with prism"]),
        ("", ["roles/2", "--set", "run.steps=1,0"], ["run.steps", "nearest valid value is 1"]),
        ("", ["rolse/2"], ["task", "roles"]),
        ("", ["roles/2", "--sharing", "prsim"], ["'prism'"]),
        ("", ["roles/2", "--sinks", "tensorbord"], ["'tensorboard'"]),
        ("", ["roles/2", "--executor", "slurm"], ["slurm", "local, ray"]),
        ("", ["roles/2", "--address", "auto"], ["--address", "'local'"]),
        ("", ["roles/2", "--jobs", "0"], ["--jobs", "nearest valid value is 1"]),
        ("", ["roles/2", "--executor", "ray", "--cpus", "0"], ["--cpus", "nearest valid value is 1"]),
        ("", ["x.py"], ["no 'sweep'"]),
        ("sweep = 3", ["x.py"], ["holds a int"]),
        ("sweep = []", ["x.py"], ["no experiment"]),
        ("sweep = [][1]", ["x.py"], ["x.py, line 1", "IndexError"]),
        ("sweep = []", ["x.py", "roles/2"], ["roles/2", "one file"]),
        ("sweep = []", ["x.py", "--sharing", "prism"], ["--sharing", "x.py"]),
        ("[", ["x.json"], ["x.json", "not JSON"]),
        ("[]", ["x.json"], ["x.json", "tasks"]),
        ('{"taks": []}', ["x.json"], ["'taks'", "'tasks'"]),
        ('{"tasks": "roles/2"}', ["x.json"], ["tasks", "list of names"]),
        ('{"tasks": ["roles/2"], "sharing": ["fups"], "options": 3}', ["x.json"], ["options", "object"]),
        ("", ["none.json"], ["none.json", "cannot be used"]),
        ("", ["none.py"], ["none.py", "no such"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input_is_answered_in_one_sentence_and_leaves_nothing(sweep, tmp_path, content, argv, words):
    for name in ("x.py", "x.json"):
        (tmp_path / name).write_text(content)
    code, out, err = sweep(*argv)
    assert code == 2 and out == ""
    assert err.startswith("prism-marl: ") and err.count("\n") == 1 and "Traceback" not in err
    for word in words:
        assert word in err
    assert sorted(set(os.listdir(tmp_path)) - {"__pycache__"}) == ["x.json", "x.py"]  # noqa: PTH208


def test_failures_are_listed_at_the_end_and_make_the_exit_code(sweep, tmp_path):
    experiments = grid(preset("roles/2", "fups"), {"run.steps": [10, 20]})
    done, broken = (folder_of(experiment, tmp_path / "runs") for experiment in experiments)
    for folder in (done, broken):
        folder.mkdir(parents=True)
    (done / "done").touch()
    (broken / "config.json").write_text("{")
    code, out, err = sweep("roles/2", "--sharing", "fups", "--set", "run.steps=10,20")
    assert code == 1 and out == ""
    *_, failure, count = err.splitlines()
    assert failure.startswith("failed: roles/2 fups run.steps=20: config.json: this is not JSON")
    assert failure.endswith(f"({broken.relative_to(tmp_path)})")
    assert count == "0 finished, 1 had been finished before, 1 failed; runs are in runs"
    (broken / "done").touch()
    code, _, err = sweep("roles/2", "--sharing", "fups", "--set", "run.steps=10,20")
    assert code == 0 and "2 had been finished before" in err
