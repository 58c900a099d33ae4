"""Which Python files of the user's an experiment comes from: recorded in its folder, compared when it goes on.

``modules.json`` holds the name and the SHA-256 of every such file: those that define the sharing method, the learner
and the task, and what these import from the user's own files. Nothing that it names is ever executed.
"""

import functools
import hashlib
import json
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from prism_marl import envs
from prism_marl.envs.python.pettingzoo import foreign_module
from prism_marl.errors import UserError
from prism_marl.experiment.experiment import Experiment
from prism_marl.learners import LEARNERS
from prism_marl.registration import module_name
from prism_marl.sharing import METHODS
from prism_marl.storage.files import HeldFolder, parse_object, read_text, write_atomically

FILE = "modules.json"
INSTALLED = ("site-packages", "dist-packages")  # code that has a version
SHOWN = 12  # digits of a digest in a sentence


def user_files(experiment: Experiment) -> dict[str, str]:
    """Name and SHA-256 of the user's files behind an experiment, in alphabetical order."""
    parts = [*type(experiment.sharing).__mro__, *type(experiment.learner).__mro__]
    waiting = {module_name(part) for part in [*parts, envs.builder(envs.family_of(experiment.task))]}
    waiting |= {foreign_module(experiment.task) or ""}
    found: dict[str, Path] = {}
    while waiting:
        name = waiting.pop()
        if name not in found and (path := _own_file(name)):
            found[name] = path
            waiting |= {_origin(value) for value in vars(sys.modules[name]).values()}
    paths = sorted(set(found.values()), key=lambda path: (path.name, path))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def record_user_files(experiment: Experiment, folder: Path, inside: HeldFolder | None = None) -> None:
    """Write the record once; later, refuse files that have changed."""
    found, recorded = user_files(experiment), recorded_files(folder)
    if (folder / FILE).exists() and recorded is None:
        raise UserError(f"{folder / FILE}: cannot be read; restore it or choose another --out")
    if recorded is None:
        if found:
            rows = [{"name": name, "sha256": digest} for name, digest in found.items()]
            write_atomically(folder / FILE, (json.dumps(rows, indent=1) + "\n").encode(), inside)
        return
    digests = set(recorded.values())
    for name, digest in found.items():
        if digest not in digests:
            was = f"it was {recorded[name][:SHOWN]}" if name in recorded else "this file was not there"
            raise UserError(
                f"{name}: this file (sha256 {digest[:SHOWN]}) is not the one that the run in {folder} was started with "
                f"({was}), so its numbers would change; restore the file or choose another --out"
            )


def recorded_files(folder: Path) -> dict[str, str] | None:
    """Name and digest of each recorded file; None without a record that can be read."""
    try:
        rows = parse_object(read_text(folder / FILE, folder))
        found = {row["name"]: row["sha256"] for row in rows}
    except (OSError, ValueError, TypeError, KeyError, RecursionError, UserError):
        return None
    texts = [text for pair in found.items() for text in pair]
    return found if all(isinstance(text, str) and len(text) <= 255 for text in texts) else None


def explain_unknown_names(text: str, folder: Path) -> None:
    """Raise ``UserError`` where a config names a method, learner or task that a file of the user's has registered, and
    that file is not loaded here. Any other fault of the text is for its reader."""
    recorded = recorded_files(folder)
    unknown = _unknown(text)
    if recorded and unknown:
        options = " ".join(f"--module {Path(name).name}" for name in recorded)
        raise UserError(f"{unknown} comes from a Python file of the user's; add {options} if you trust its code")


def _unknown(text: str) -> str | None:
    """What a config names that nobody has registered."""
    try:
        data = parse_object(text)
        named = [
            ("method", data["sharing"]["method"], METHODS),
            ("learner", data["learner"]["algorithm"], LEARNERS),
            ("task family", str(data["task"]).partition("/")[0], envs.families()),
        ]
        return next((f"the {what} '{name}' of this run" for what, name, known in named if name not in known), None)
    except (ValueError, TypeError, KeyError, RecursionError, UserError):
        return None


def _own_file(name: str) -> Path | None:
    """The file of a module that belongs to the user: not ours, not Python's, not an installed package's."""
    module, top = sys.modules.get(name), name.partition(".")[0]
    if module is None or top in ("", "prism_marl", "builtins") or top in sys.stdlib_module_names:
        return None
    path = getattr(module, "__file__", None)
    if path is None or any(part in INSTALLED for part in Path(path).parts):
        return None
    return Path(path).resolve() if Path(path).is_file() else None


def _origin(value: Any) -> str:
    """The module that something in a module comes from."""
    if isinstance(value, ModuleType):
        return value.__name__
    return module_name(value if isinstance(value, type | FunctionType | functools.partial) else type(value))
