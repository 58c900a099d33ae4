"""Data is never run: no pickle, no eval, no shell, no code named by a file, and no connection to anywhere."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import prism_marl
from prism_marl import cli
from tiny import small

SOURCE = Path(prism_marl.__file__).parent
MODULES = {
    "pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "jsonpickle", "yaml",
    "multiprocessing", "code", "codeop", "runpy", "socket", "ssl", "http", "urllib", "ftplib", "smtplib",
    "requests", "httpx", "aiohttp", "socketserver", "xmlrpc", "webbrowser", "telnetlib", "ctypes", "tarfile",
    "zipfile",
}  # fmt: skip
CALLS = {
    "eval", "exec", "compile", "__import__", "np.load", "numpy.load", "jnp.load", "jax.numpy.load",
    "np.fromfile", "os.system", "os.popen", "importlib.import_module", "sys.path.append", "sys.path.insert",
}  # fmt: skip
FLAGS = ("shell", "allow_pickle")
ALLOWED = {
    ("__init__.py", "importlib.import_module"): "a part of this package, from the table beside it",
    ("cli/__init__.py", "importlib.import_module"): "a command from the table COMMANDS",
    ("envs/base.py", "importlib.import_module"): "a package that an extra installs, named in our source",
    ("envs/python/modules.py", "importlib.import_module"): "the module that a user names as the task",
    ("envs/python/modules.py", "sys.path.append"): "that module may lie in the current folder",
    ("experiment/plugins.py", "sys.path.append"): "files beside one that a user names with --module",
    ("sweeps/executors/__init__.py", "importlib.import_module"): "an executor from the table beside it",
    ("policies/files.py", "zipfile"): "policies as NPZ: read into memory up to a limit, without objects",
    ("runs/trackers.py", "importlib.import_module"): "the package of a tracker that a user names",
    ("envs/mamujoco/camera.py", "importlib.import_module"): "MuJoCo's renderer, by its one name",
    ("envs/mamujoco/camera.py", "ctypes.util"): "asks which graphics libraries are there",
    ("cli/completion.py", "importlib.import_module"): "a command from the table COMMANDS",
}


def uses(source: str) -> set[str]:
    """Everything in a file that could run what it reads, or reach out."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.partition(".")[0] in MODULES}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in MODULES:
            found.add(str(node.module))
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name == "importlib.import_module" and isinstance(node.args[0], ast.Constant):
                name = str(node.args[0].value).partition(".")[0]  # no more than an import statement
                found |= {name} & MODULES
            found |= {name} & CALLS
            switched = [word for word in node.keywords if word.arg in FLAGS and ast.unparse(word.value) != "False"]
            found |= {f"{word.arg}=" for word in switched}
    return found


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("import pickle", "pickle"),
        ("from pickle import loads", "pickle"),
        ("import http.client", "http.client"),
        ("eval(x)", "eval"),
        ("np.load(path)", "np.load"),
        ("np.savez(path, allow_pickle=True)", "allow_pickle="),
        ("subprocess.run(x, shell=True)", "shell="),
        ("subprocess.run(x, shell=y)", "shell="),
        ("os.system(x)", "os.system"),
        ("importlib.import_module('pickle')", "pickle"),
        ("importlib.import_module(x)", "importlib.import_module"),
    ],
)
def test_the_search_finds_what_it_looks_for(line, name):
    assert name in uses(line)


def test_nothing_in_the_source_runs_data_or_reaches_out():
    found = {
        (path.relative_to(SOURCE).as_posix(), name)
        for path in SOURCE.rglob("*.py")
        for name in uses(path.read_text(encoding="utf-8"))
    }
    assert found == set(ALLOWED)


PROGRAM = """
import socket, sys

def refuse(*arguments, **options):
    raise AssertionError(f"a socket was asked for: {arguments}")

socket.socket.__init__ = refuse
socket.socketpair = socket.create_connection = socket.getaddrinfo = refuse
from prism_marl import cli

out = sys.argv[1]
small = "--width 4 --learner.embed 4 --learner.hypernet 4 --learner.batch 2 --learner.buffer 8 --envs 2"
code = cli.main(f"train roles/2 --sharing fups --steps 8 --eval-every 8 --eval-episodes 2 {small} --out {out}".split())
sys.exit(code or cli.main(["report", out]))
"""


def test_training_and_reporting_open_no_socket(tmp_path):
    """Where the system lends it, the process has no network either: not even a library could reach out."""
    alone = ["unshare", "-r", "-n"]
    try:
        lent = subprocess.run([*alone, "true"], capture_output=True).returncode == 0
    except OSError:
        lent = False
    command = [*(alone if lent else []), sys.executable, "-c", PROGRAM, str(tmp_path / "run")]
    environment = os.environ | {"HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "done").exists() and (tmp_path / "run" / "report.html").exists()


def test_a_module_that_only_a_file_names_is_not_imported(tmp_path, monkeypatch, capsys):
    """A stranger's folder may hold a module and a config.json that names it: watching the team would run it."""
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "evil.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    config = small("roles/2", "fups").changed(task="pettingzoo/given.evil").to_json()
    (folder / "config.json").write_text(config)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert cli.main(["eval", "given"]) == 2
    assert "add --module given.evil if you trust it" in capsys.readouterr().err
    assert cli.main(["eval", "given", "--module", "given.other"]) == 2
    assert not (tmp_path / "ran").exists()
    assert cli.main(["eval", "given", "--module", "given.evil"]) == 2
    assert (tmp_path / "ran").exists() and "has no parallel_env" in capsys.readouterr().err


def test_every_package_of_the_lock_is_reviewed():
    root = Path(__file__).parents[1]
    locked = re.findall(r"^([A-Za-z0-9._-]+)==", (root / "requirements.lock").read_text(), re.MULTILINE)
    page = (root / "docs" / "security.md").read_text(encoding="utf-8")
    reviewed = set(re.findall(r"`([\w.-]+)`", page.partition("## Dependencies")[2]))
    assert locked and set(locked) - reviewed == set()
