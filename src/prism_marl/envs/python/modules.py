"""Modules that a task names, also the user's own."""

import importlib
import sys
from pathlib import Path
from typing import Any

from prism_marl.envs.base import require
from prism_marl.errors import UserError, install_command


def imported(name: str, path: str) -> Any:
    """Import a module; the current folder is searched last."""
    require("pettingzoo", "pettingzoo")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        missing = str(error.name)
        if path == missing or path.startswith(f"{missing}."):
            raise UserError(
                f"task: '{name}' names a module that does not exist ('{missing}'); "
                "install it or run from the folder that holds it"
            ) from None
        raise UserError(
            f"task: '{name}' needs the module '{missing}', which is not installed: "
            f"{install_command(missing.split('.')[0])}"
        ) from None
    except Exception as error:  # modules of other people may raise anything
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"task: importing '{path}' ends in {type(error).__name__} ({reason}); make `python -c 'import {path}'` work"
        ) from error
