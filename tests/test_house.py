"""The house rules of docs/design.md that a machine can check: who imports whom, and how long things are."""

import ast
from pathlib import Path

import pytest

import prism_marl
from prism_marl.learners import LEARNERS
from prism_marl.sharing import METHODS

SOURCE = Path(prism_marl.__file__).parent
ROOMS = (  # from the top: a room imports rooms above it and its own files, never a room below
    "types", "errors", "storage", "registration", "scene", "monitor",
    "sharing", "networks", "buffers", "learners", "envs", "collect", "experiment", "training", "policies", "measures",
    "runs", "sweeps", "render", "reports", "paper", "torch", "api", "cli",
)  # fmt: skip
LONGEST_FUNCTION = 50
LONGEST_FILE = 310
MOST_AT_THE_ROOT = 8
FILES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))


def room_of(module: str) -> str:
    """The part of a dotted or slashed name that stands first inside the package."""
    return module.removeprefix("prism_marl.").replace("/", ".").removesuffix(".py").partition(".")[0]


def imported_rooms(source: str) -> set[str]:
    """The rooms that a file imports, wherever in the file it does so, but for what only type checkers read."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "prism_marl":
            names = [node.module] if node.module != "prism_marl" else [f"prism_marl.{a.name}" for a in node.names]
            found |= {room_of(str(name)) for name in names}
        elif isinstance(node, ast.Import):
            found |= {room_of(a.name) for a in node.names if a.name.startswith("prism_marl.")}
    return found & set(ROOMS)


def test_every_file_stands_in_a_room():
    assert {room_of(name) for name in FILES} - {"__init__"} <= set(ROOMS)
    assert len([name for name in FILES if "/" not in name]) <= MOST_AT_THE_ROOT


@pytest.mark.parametrize("name", [name for name in FILES if name != "__init__.py"])
def test_imports_go_up(name):
    place = ROOMS.index(room_of(name))
    below = {room for room in imported_rooms((SOURCE / name).read_text()) if ROOMS.index(room) > place}
    if place < ROOMS.index("sharing"):  # single files at the root: all of one row
        below -= set(ROOMS[: ROOMS.index("sharing")])
    assert not below, f"{name} imports {sorted(below)}, which stand below it"


def test_the_check_of_imports_sees_every_form():
    forms = ("from prism_marl.cli import x", "from prism_marl import cli", "import prism_marl.cli as c")
    assert all(imported_rooms(form) == {"cli"} for form in forms)


@pytest.mark.parametrize("name", FILES)
def test_functions_and_files_stay_short(name):
    text = (SOURCE / name).read_text()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, functions) and (node.end_lineno or 0) - node.lineno + 1 > LONGEST_FUNCTION
    ]
    assert not long
    assert len(text.splitlines()) <= LONGEST_FILE


OWN_NAMES = ("sharing", "learners", "paper", "experiment")  # rooms that may tell methods or learners apart by name


def names_asked(source: str) -> set[str]:
    """Names and classes of methods and learners that a file compares with, or asks for with ``isinstance``."""
    classes = {cls.__name__ for cls in (*METHODS.values(), *LEARNERS.values())}
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            words = {part.value for part in (node.left, *node.comparators) if isinstance(part, ast.Constant)}
            found |= {word for word in words if word in METHODS or word in LEARNERS}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            asked = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
            found |= asked & (classes | {f"{name}Learner" for name in classes})
    return found


@pytest.mark.parametrize("name", [name for name in FILES if room_of(name) not in OWN_NAMES])
def test_nobody_asks_which_method_or_learner_is_in_use(name):
    assert not names_asked((SOURCE / name).read_text())


def test_the_check_of_names_sees_every_form():
    assert names_asked("if method == 'prism': pass") == {"prism"}
    assert names_asked("isinstance(x, (A, MATD3Learner))") == {"MATD3Learner"}
    assert not names_asked("make('prism')")
