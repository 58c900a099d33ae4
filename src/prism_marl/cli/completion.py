"""``prism-marl completion``: a script that completes commands, options and their values in bash, zsh or fish.

It is made from the parsers of the commands and from the registries, so it knows what they know. The script holds all
words itself: pressing Tab starts no Python.
"""

import argparse
import importlib
from collections.abc import Iterable

from prism_marl.cli import COMMANDS
from prism_marl.cli.arguments import Arguments, captured_parser, every_field, some_path
from prism_marl.cli.completion_scripts import WRITERS, Command, Option
from prism_marl.envs.registry import families
from prism_marl.experiment.presets import VARIANTS
from prism_marl.learners import LEARNERS
from prism_marl.paper.registry import TARGETS
from prism_marl.paper.scales import SCALES
from prism_marl.policies.examples import example_names
from prism_marl.runs.trackers import TRACKERS
from prism_marl.sharing import METHODS
from prism_marl.sweeps.executors import EXECUTORS

WITH_FIELDS = ("train", "sweep", "footprint")  # commands that take --group.field
WITH_FILES = ("out", "module", "render", "plot", "begin_from", "run", "runs", "what")  # words that may be files
HOW = {
    "bash": "prism-marl completion bash > ~/.local/share/bash-completion/completions/prism-marl",
    "zsh": 'prism-marl completion zsh > "${fpath[1]}/_prism-marl"',
    "fish": "prism-marl completion fish > ~/.config/fish/completions/prism-marl.fish",
}


def run(argv: list[str]) -> int:
    """Print the script of one shell."""
    ways = "; ".join(f"{shell}: {way}" for shell, way in HOW.items())
    parser = Arguments(
        "completion",
        "Print a script that completes commands, tasks, methods, learners, options and their values.",
        epilog=f"Put it where the shell looks for such scripts, for example {ways}".replace("%", "%%"),
    )
    parser.add_argument("shell", choices=list(WRITERS), help="whose script")
    found = parser.parse_strictly(argv)
    print(WRITERS[found.shell](vocabulary()), end="")  # noqa: T201
    return 0


def vocabulary() -> dict[str, Command]:
    """All commands with what can follow them."""
    return {name: _described(name, about) for name, about in COMMANDS.items()}


def _described(name: str, about: str) -> Command:
    parser = captured_parser(importlib.import_module(f"prism_marl.cli.{name}").run)
    made = Command(about)
    for action in parser._actions:
        words, files = _values(name, action)
        if not action.option_strings:
            made.words += words
            made.files = made.files or files
            continue
        several = action.nargs in ("+", "*")
        option = Option(action.help or "", action.nargs != 0, words, files, several)
        made.options |= dict.fromkeys(action.option_strings, option)
    for path, meaning in every_field().items() if name in WITH_FIELDS else ():
        if name != "footprint" or path.startswith("sharing."):
            made.options[f"--{path}"] = Option(meaning)
    return made


def _values(command: str, action: argparse.Action) -> tuple[list[str], bool]:
    """The words that an argument can have, and whether it can be a file."""
    if action.choices is not None:
        return [str(choice) for choice in action.choices], False
    known: dict[str, Iterable[str]] = {
        "sharing": METHODS,
        "method": METHODS,
        "learner": LEARNERS,
        "preset": VARIANTS,
        "target": TARGETS,
        "scale": SCALES,
        "executor": EXECUTORS,
        "sinks": TRACKERS,
        "task": _tasks(),
        "what": example_names() if command == "play" else _tasks(),
    }
    files = action.type is some_path or action.dest in WITH_FILES
    return sorted(known.get(action.dest, ())), files


def _tasks() -> list[str]:
    return [example for family in families().values() for example in family.examples]
