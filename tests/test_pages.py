"""The documentation does what it says: tutorial, how-to pages and notebook are followed; the reference is complete."""

import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest

import prism_marl as pm
from pages import ROOT, SMALL, commands, follow, steps
from prism_marl import cli
from prism_marl.experiment import config
from prism_marl.learners import LEARNERS
from prism_marl.sharing import METHODS

DOCS = ROOT / "docs"
SIZES = f"{SMALL} --seeds 1 --steps 96 --eval-every 48 --eval-episodes 4"
FIELDS = {"learner.embed": 4, "learner.hypernet": 4, "learner.batch": 4, "learner.buffer": 64, "run.measures": 0}
LONG = 'seeds=2, steps=STEPS, eval_every=STEPS // 12, out="runs/first"'
SHORT = f'seeds=1, steps=96, eval_every=48, eval_episodes=4, envs=4, width=8, options={FIELDS}, out="runs/prism"'


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A folder in which the tutorial and then the notebook were followed, and what was printed. The notebook's run is
    one of the tutorial's, so it is there already."""
    folder = tmp_path_factory.mktemp("a reader's folder")
    command = [sys.executable, str(ROOT / "tests/pages.py"), str(folder), SIZES]
    pages = ["tutorial.md", f"first-run.ipynb?{LONG}->{SHORT}"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([*command, *pages], capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def test_the_tutorial_works_as_printed(reader):
    folder, said = reader
    assert {words[1] for words in commands(DOCS / "tutorial.md")} == {"train", "footprint", "eval", "report"}
    assert (folder / "curves.png").stat().st_size > 10_000
    page = (folder / "page.html").read_text()
    assert all(label in page for label in ("Prism", "FuPS", "Own gain"))
    assert "--sharing.spread" in said and "deviation of the gains from 1" in said
    sizes = {row["method"]: row for row in json.loads((folder / "runs/own_gain/footprint.json").read_text())}
    assert 0 < sizes["own_gain"]["private"] < sizes["nops"]["private"]


def test_the_notebook_works(reader):
    folder, _ = reader
    assert (folder / "first.html").stat().st_size > 10_000
    notebook = json.loads((DOCS / "first-run.ipynb").read_text())
    assert notebook["nbformat"] == 4 and not any(cell.get("outputs") for cell in notebook["cells"])


def test_curves_are_read_as_the_page_on_pandas_says(reader, monkeypatch, capsys):
    monkeypatch.chdir(reader[0])
    (block,) = [
        step.text for step in steps(DOCS / "pandas.md") if "dataframe" not in step.text and "pd." not in step.text
    ]
    exec(compile(block, "pandas.md", "exec"), {})
    assert "(1, 3) (0,)" in capsys.readouterr().out


@pytest.mark.filterwarnings("default")
def test_tables_are_read_as_the_page_on_pandas_says(reader, monkeypatch, capsys):
    monkeypatch.chdir(reader[0])
    (reader[0] / "runs/own_gain").rename(reader[0] / "own_gain")  # its method is not known in this process
    follow(DOCS / "pandas.md")
    assert "fups" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["choose.md", "faq.md"])
def test_commands_that_only_show_something_work(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    follow(DOCS / name, sizes="")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["extend-environment.md", "extend-learner.md", "extend-method.md"])
def test_commands_with_a_file_of_the_examples_are_understood(name):
    """In processes of their own, because the files register names; that they train is tests/test_examples.py."""
    found = commands(DOCS / name)
    assert found
    for words in found:
        command = [sys.executable, "-m", "prism_marl.cli", *words[1:], "--options"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0 and "--run.steps" in done.stdout, done.stderr


def reference():
    """The program that writes the reference, as a module."""
    spec = importlib.util.spec_from_file_location("reference", DOCS / "tools/reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_has_every_name_and_every_field(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    program = reference()
    api = program.api_page()
    assert all(f"### pm.{name}\n" in api for name in pm.__all__)
    assert "`` " not in api
    settings = program.settings_page()
    for group, known in (("learner", LEARNERS), ("sharing", METHODS)):
        for name, cls in known.items():
            part = settings.split(f"### {name}\n")[1].split("\n### ")[0]
            assert all(f"| `{path}` |" in part for path, _, _ in config.options(cls(), group))
    assert all(f"## {name}\n" in program.commands_page() for name in cli.COMMANDS)


@pytest.mark.parametrize("cls", [*METHODS.values(), *LEARNERS.values()], ids=lambda cls: cls.__name__)
def test_every_field_has_a_meaning_in_words(cls):
    for path, _, about in config.options(cls()):
        assert len(about.split()) >= 1, f"{path} is not explained"
        assert not re.match(r"\([a-z]′?\)|\.\.\.", about), f"{path}: '{about}' needs another page to be understood"


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text()
    listed = set(re.findall(r": ([\w/-]+\.md)$", text, re.MULTILINE))
    assert {path.name for path in DOCS.glob("*.md")} <= listed


def test_links_lead_to_files():
    for page in [*DOCS.glob("*.md"), ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
