"""Python files that a user names on the command line, executed as modules. Nothing else is ever executed.

Such a file registers sharing methods, learners and task families (``sharing.register``, ``learners.register``,
``envs.register``). It may import files that lie beside it.
"""

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from prism_marl.errors import UserError

PREFIX = "prism_marl_user_"  # of the names that such modules get


def any_loaded() -> bool:
    """Whether code of the user's takes part in this process."""
    return any(name.startswith(PREFIX) for name in sys.modules)


def load_modules(words: Iterable[str | Path]) -> tuple[Path, ...]:
    """Execute the files that ``--module`` names, each once; their absolute paths."""
    paths = tuple(dict.fromkeys(Path(word).resolve() for word in words))
    for path in paths:
        load_file(path)
    return paths


def load_file(path: Path) -> ModuleType:
    """Execute a Python file once and return it as a module."""
    path = path.resolve()
    name = f"{PREFIX}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UserError(f"{path}: there is no such Python file")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # last, as nothing of ours may be found there
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses look their module up by name
    try:
        spec.loader.exec_module(module)
    except UserError as error:
        del sys.modules[name]
        raise UserError(f"{path.name}: {error}", code=error.code) from None
    except Exception as error:
        del sys.modules[name]
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        place = f", line {lines[-1]}" if lines else ""
        raise UserError(f"{path.name}{place}: {type(error).__name__}: {error}") from None
    return module
