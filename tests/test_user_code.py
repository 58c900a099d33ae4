"""Methods, learners and tasks from files of the user's: ``--module``, ``register``, and what a run folder keeps."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prism_marl import cli, envs, learners, sharing
from prism_marl.envs import Family
from prism_marl.errors import UserError
from prism_marl.experiment import plugins
from prism_marl.experiment.presets import preset
from prism_marl.runs import runner
from prism_marl.runs.folder import load_experiment
from prism_marl.runs.user_files import recorded_files, user_files
from tiny import rows_of

EXAMPLES = Path(__file__).parents[1] / "examples"
SIZES = "--steps 16 --eval-every 8 --eval-episodes 2 --width 4 --envs 2 --run.measures 0"
SMALL = [*SIZES.split(), "--learner.batch", "2", "--learner.buffer", "8"]

MINE = """
from dataclasses import dataclass
from typing import ClassVar, Literal
from prism_marl.sharing import FuPS, register
import {helper}

@register
@dataclass(frozen=True)
class {name}(FuPS):
    label: ClassVar[str] = "{name}"
    method: Literal["{lower}"] = "{lower}"
    scale: float = {helper}.SCALE  # of nothing
"""


@pytest.fixture(autouse=True)
def registries(monkeypatch):
    """What a test registers or loads is gone after it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    loaded = set(sys.modules)
    places = [sharing.METHODS, learners.LEARNERS, envs.registry._FAMILIES]
    before = [dict(place) for place in places]
    yield
    for place, kept in zip(places, before, strict=True):
        place.clear()
        place.update(kept)
    for name in set(sys.modules) - loaded:
        if name.startswith((plugins.PREFIX, "helper_", "pettingzoo_game")):
            del sys.modules[name]


def write(folder: Path, name: str) -> Path:
    """A file with a method, and one beside it that it imports."""
    lower = name.lower()
    (folder / f"helper_{lower}.py").write_text("SCALE = 1.0\n")
    path = folder / f"{lower}.py"
    path.write_text(MINE.format(name=name, lower=lower, helper=f"helper_{lower}"))
    return path


def test_three_files_make_a_run_of_ones_own(tmp_path, capsys, monkeypatch):
    """Method, learner and task from one file each, through train, eval, footprint, list and report."""
    monkeypatch.chdir(tmp_path)
    names = ("add_sharing_method", "add_learner", "add_environment")
    modules = [word for name in names for word in ("--module", str(EXAMPLES / f"{name}.py"))]
    words = ["--sharing", "own_bias", "--learner", "hysteretic", "--learner.leniency", "0.5", *SMALL, *modules]
    assert cli.main(["train", "spread/3", *words, "--out", "run"]) == 0
    recorded = recorded_files(Path("run"))
    assert list(recorded) == ["add_environment.py", "add_learner.py", "add_sharing_method.py"]
    assert recorded == user_files(load_experiment(Path("run")))
    assert cli.main(["eval", "run", "--episodes", "2", "--render", "text", *modules]) == 0
    assert "return" in capsys.readouterr().out
    assert cli.main(["report", "run", *modules]) == 0 and Path("run/report.html").exists()
    capsys.readouterr()
    assert cli.main(["footprint", "spread/3", "--method", "own_bias", "fups", "--width", "8", "--json", *modules]) == 0
    assert [row["method"] for row in json.loads(capsys.readouterr().out)["methods"]] == ["own_bias", "fups"]
    assert cli.main(["list", "--json", *modules]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"spread", "own_bias", "hysteretic"} <= {
        row.get("name", row.get("family")) for part in listed.values() for row in part
    }


def test_a_sweep_gives_its_modules_to_its_workers(tmp_path):
    """In processes of their own, and with files that the sweep itself does not name."""
    module, out = write(tmp_path, "Swept"), tmp_path / "runs"
    command = [sys.executable, "-m", "prism_marl.cli", "sweep", "roles/2", "--sharing", "swept", *SMALL, "--jobs", "1"]
    command += ["--module", str(module), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=os.environ)
    assert done.returncode == 0, done.stderr
    (run,) = (out / "roles-2").iterdir()
    assert len(rows_of(run)) == 3 and set(recorded_files(run)) == {"swept.py", "helper_swept.py"}


def trained(tmp_path: Path, name: str) -> tuple[Path, Path]:
    module, run = write(tmp_path, name), tmp_path / "run"
    words = ["--sharing", name.lower(), *SMALL, "--module", str(module), "--out", str(run)]
    assert cli.main(["train", "roles/2", *words]) == 0
    return module, run


def forget(*names: str) -> None:
    """As in a new process."""
    for name in names:
        sharing.METHODS.pop(name, None)
        for module in [m for m in sys.modules if m.startswith(plugins.PREFIX + name) or m == f"helper_{name}"]:
            del sys.modules[module]


def test_a_run_says_which_module_it_needs_and_never_runs_it_by_itself(tmp_path, capsys):
    module, run = trained(tmp_path, "Needed")
    forget("needed")
    shutil.copy(module, run / "needed.py")  # a stranger's folder might hold it
    for command in (["eval", str(run)], ["train", "roles/2", "--out", str(run)]):
        assert cli.main(command) == 2
        told = capsys.readouterr().err
        assert "the method 'needed' of this run comes from a Python file of the user's" in told
        assert "--module needed.py" in told and "needed" not in sharing.METHODS
    assert cli.main(["eval", str(run), "--episodes", "2", "--module", str(module)]) == 0


@pytest.mark.parametrize("changed", ["changed.py", "helper_changed.py"])
def test_a_changed_file_does_not_continue_a_run(tmp_path, capsys, changed):
    """Also one that the named file only imports."""
    module, run = trained(tmp_path, "Changed")
    record = recorded_files(run)
    for text, code in (((tmp_path / changed).read_text(), 0), ((tmp_path / changed).read_text() + "# another\n", 2)):
        forget("changed")
        (tmp_path / changed).write_text(text)
        words = ["train", "roles/2", "--sharing", "changed", *SMALL, "--module", str(module), "--out", str(run)]
        assert cli.main(words) == code
    told = capsys.readouterr().err.splitlines()[-1]
    assert changed in told and record[changed][:12] in told and "restore the file or choose another --out" in told
    assert recorded_files(run) == record


def test_a_damaged_record_is_told_before_training(tmp_path, capsys):
    module, run = trained(tmp_path, "Damaged")
    (run / "modules.json").write_text("[1")
    words = ["train", "roles/2", "--sharing", "damaged", *SMALL, "--module", str(module), "--out", str(run)]
    assert cli.main(words) == 2 and "modules.json: cannot be read" in capsys.readouterr().err


def test_what_lives_here_leaves_no_record(tmp_path):
    experiment = preset("roles/2", "fups").with_option("run.steps", "8").with_option("run.eval_every", "8")
    runner.run(experiment.with_option("network.width", "4"), tmp_path / "run")
    assert user_files(experiment) == {} and not (tmp_path / "run" / "modules.json").exists()


def test_a_pettingzoo_file_is_a_module_too(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task, module = "pettingzoo/pettingzoo_game?players=2", str(EXAMPLES / "pettingzoo_game.py")
    words = ["--sharing", "fups", *SMALL, "--run.patience", "0", "--out", "run"]
    assert cli.main(["train", task, *words, "--module", module]) == 0
    assert list(recorded_files(Path("run"))) == ["pettingzoo_game.py"]
    assert cli.main(["eval", "run", "--episodes", "2"]) == 2
    assert "add --module pettingzoo_game if you trust it" in capsys.readouterr().err
    assert cli.main(["eval", "run", "--episodes", "2", "--module", module]) == 0


def test_words_after_module_that_cannot_work(tmp_path, capsys):
    for word in ("none.py", "folder/none.py"):
        assert cli.main(["list", "--module", word]) == 2
        assert "there is no such Python file" in capsys.readouterr().err
    bad = tmp_path / "bad.py"
    bad.write_text("x = 1\ny = 1 / 0\n")
    assert cli.main(["train", "roles/2", "--module", str(bad)]) == 2
    assert "bad.py, line 2: ZeroDivisionError" in capsys.readouterr().err
    taken = tmp_path / "taken.py"
    taken.write_text(MINE.format(name="Prism", lower="prism", helper="math").replace("math.SCALE", "1.0"))
    assert cli.main(["train", "roles/2", "--module", str(taken)]) == 2
    assert "taken.py: sharing method: there is already a sharing method 'prism'; choose" in capsys.readouterr().err


def test_the_same_file_may_register_twice_and_another_may_not(tmp_path):
    """As a program and as a module, say."""
    first = write(tmp_path, "Twice")
    module = plugins.load_file(first)
    assert plugins.load_modules([first, str(first)]) == (first.resolve(),)
    again = importlib.util.spec_from_file_location("again", first)
    copy = importlib.util.module_from_spec(again)
    sys.modules["again"] = copy
    again.loader.exec_module(copy)
    assert sharing.METHODS["twice"] is copy.Twice is not module.Twice
    (tmp_path / "other").mkdir()
    with pytest.raises(UserError, match="there is already a sharing method 'twice'"):
        plugins.load_file(write(tmp_path / "other", "Twice"))
    del sys.modules["again"]


CLASS = """
from dataclasses import dataclass
from typing import ClassVar, Literal
from prism_marl.sharing import FuPS, Sharing
from prism_marl.learners.value_settings import ValueSettings

@dataclass(frozen=True)
class Mine({base}):
    label: ClassVar[str] = "Mine"
    {body}
"""


@pytest.mark.parametrize(
    ("base", "body", "words"),
    [
        ("FuPS", "pass", "already a sharing method 'fups'"),
        ("FuPS", "method: str = 'mine'", r"Mine\.method: its type must allow this one name"),
        ("FuPS", "method: Literal['My own'] = 'My own'", "'My own' cannot be a name"),
        ("Sharing", "x: int = 0", r"Mine\.method: this field names the sharing method"),
        ("Sharing", "method: Literal['mine'] = 'mine'", "Mine: linear is not defined"),
        ("FuPS", "label: ClassVar[str] = 1; method: Literal['mine'] = 'mine'", r"Mine\.label: pages need a name"),
        ("ValueSettings", "algorithm: Literal['qmix'] = 'qmix'", "Mine: learner is not defined"),
        (
            "ValueSettings",
            "algorithm: Literal['qmix'] = 'qmix'; learner = print",
            "there is already a learner 'qmix'",
        ),
        (
            "ValueSettings",
            "algorithm: Literal['mine'] = 'mine'; learner = print; kinds: ClassVar[str] = 'discrete'",
            r"Mine\.kinds: 'discrete' does not say which actions",
        ),
        (
            "ValueSettings",
            "algorithm: Literal['mine'] = 'mine'; learner = print; eval_rule: ClassVar[str] = 'all'",
            r"Mine\.eval_rule: 'all' is not a rule",
        ),
    ],
)
def test_a_class_that_cannot_be_registered_is_one_sentence(tmp_path, base, body, words):
    path = tmp_path / "mine_class.py"
    path.write_text(CLASS.format(base=base, body=body))
    cls = plugins.load_file(path).Mine
    with pytest.raises(UserError, match=words):
        (learners if base == "ValueSettings" else sharing).register(cls)


def test_what_is_no_frozen_dataclass_is_refused():
    class Bare(sharing.FuPS):
        pass

    for thing, words in ((Bare, "frozen dataclass"), (int, "subclass of")):
        with pytest.raises(UserError, match=words):
            sharing.register(thing)
    with pytest.raises(UserError, match="int: the settings of a learner are a frozen dataclass"):
        learners.register(int)


@pytest.mark.parametrize(
    ("name", "family", "words"),
    [
        ("lbf", Family("p", (), "a", make=print), "there is already a task family 'lbf'"),
        ("a/b", Family("p", (), "a", make=print), "'a/b' cannot be a name"),
        ("mine", Family("p", (), "a"), "built in 0 ways"),
        ("mine", Family("p", (), "a", make=print, python=print), "built in 2 ways"),
        ("mine", Family("p", (), "a", rows=print), "add shape="),
        ("mine", Family("p", (), "a", python=print, workers=True), "leave out workers=True"),
    ],
)
def test_a_family_that_cannot_be_registered_is_one_sentence(name, family, words):
    with pytest.raises(UserError, match=words):
        envs.register(name, family)


def test_a_sweep_file_that_only_lists_experiments_may_change(tmp_path):
    """Its digest decides nothing, so it is not recorded; a method that it defines is."""
    path = tmp_path / "listing.py"
    path.write_text("from prism_marl.experiment.presets import preset\nsweep = [preset('roles/2', 'fups')]\n")
    (experiment,) = plugins.load_file(path).sweep
    assert user_files(experiment) == {}
