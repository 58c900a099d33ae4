"""Code that a run folder names runs only if the user names it, too: the folder may be a stranger's."""

import importlib.util
from pathlib import Path

from prism_marl.cli.arguments import Arguments
from prism_marl.envs.python.pettingzoo import foreign_module
from prism_marl.errors import UserError
from prism_marl.experiment.experiment import Experiment
from prism_marl.experiment.plugins import load_modules
from prism_marl.runs.folder import load_experiment


def add_trusted_modules(parser: Arguments) -> None:
    """``--module`` for commands that read a run folder."""
    parser.add_argument(
        "--module",
        action="append",
        default=[],
        metavar="FILE",
        help="your Python file that registers the method, learner or task; or the name of the Python module of "
        "a pettingzoo task, if you trust its code; can be repeated",
    )


def trusted_experiment(folder: Path, modules: list[str]) -> Experiment:
    """The experiment of a folder, after the files among ``modules`` have run and the others were found to be enough."""
    files = [word for word in modules if _is_file(word)]
    loaded = load_modules(files)
    experiment = load_experiment(folder)
    check_trust(experiment.task, {word for word in modules if word not in files}, loaded)
    return experiment


def _is_file(word: str) -> bool:
    """Whether a word after ``--module`` is a file; else it is the name of a module."""
    return Path(word).is_file() or "/" in word


def check_trust(task: str, trusted: set[str], files: tuple[Path, ...], source: str = "config.json") -> None:
    """A module that a file names is run only if the user names it or its file, too: the folder may be a stranger's."""
    module = foreign_module(task)
    if module is not None and module not in trusted and not _is_one_of(module, files):
        raise UserError(
            f"task: {source} names the Python module '{module}', whose code would run; "
            f"add --module {module} if you trust it"
        )


def _is_one_of(module: str, files: tuple[Path, ...]) -> bool:
    """Whether a module would be imported from one of these files; nothing is imported to find out."""
    if not any(file.stem == module for file in files):
        return False
    spec = importlib.util.find_spec(module)
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() in files
