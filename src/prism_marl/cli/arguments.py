"""argparse that raises ``UserError`` for a wrong word and suggests the nearest valid one."""

import argparse
import dataclasses
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from prism_marl.errors import UserError
from prism_marl.experiment.config import comments, nearest_option, options, read_number
from prism_marl.experiment.experiment import Net, Run
from prism_marl.experiment.plugins import load_modules
from prism_marl.experiment.presets import preset
from prism_marl.learners import LEARNERS
from prism_marl.sharing import METHODS

SHORT = {  # fields with a short option, because most runs set them
    "steps": "run.steps",
    "seeds": "run.seeds",
    "seed": "run.seed",
    "envs": "run.envs",
    "eval_every": "run.eval_every",
    "eval_episodes": "run.eval_episodes",
    "save_every": "run.save_every",
    "width": "network.width",
}


Fields = Callable[[argparse.Namespace], Iterable[str]]
"""Dotted names of fields that can be set, given what was parsed."""


class Arguments(argparse.ArgumentParser):
    """A parser for one command, with options ``--a.b value`` that set fields of a config."""

    captured: ClassVar[bool] = False  # whether a parser is only looked at: see ``captured_parser``

    def __init__(self, command: str, about: str, **kwargs: Any):
        super().__init__(prog=f"prism-marl {command}", description=about, allow_abbrev=False, **kwargs)

    def parse_known_args(self, *arguments: Any, **named: Any) -> Any:
        if Arguments.captured:
            raise _CapturedError(self)
        return super().parse_known_args(*arguments, **named)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.prog.split()[-1]}: {message}; see '{self.prog} --help'")

    def parse_strictly(self, argv: list[str], known_fields: Fields = lambda _: ()) -> argparse.Namespace:
        """Parse; raises if a word is unknown."""
        found, unknown = self.parse_known_args(argv)
        if unknown:
            self._unknown(unknown[0], known_fields(found))
        return found

    def parse_with_fields(
        self, argv: list[str], known_fields: Fields = lambda _: ()
    ) -> tuple[argparse.Namespace, list[tuple[str, str]]]:
        """Parse words that may include ``--dotted.field value`` or ``--dotted.field=value``; raises if one is unknown.

        Fields are removed first, because argparse would take their values for the task. ``known_fields`` are those
        that a hint for an unknown word may name.
        """
        fields, rest = [], []
        words = iter(argv)
        for word in words:
            name, equals, value = word.partition("=")
            if not name.startswith("--") or "." not in name:
                rest.append(word)
                continue
            if not equals:
                value = next(words, "--")
                if value.startswith("--"):
                    raise UserError(f"{name}: this option needs a value")
            fields.append((name[2:], value))
        return self.parse_strictly(rest, known_fields), fields

    def add_modules(self) -> None:
        """``--module FILE``, as often as there are files."""
        about = "your Python file that registers methods, learners or tasks; it is executed; can be repeated"
        self.add_argument("--module", action="append", default=[], metavar="FILE", help=about)

    @staticmethod
    def load_modules(found: argparse.Namespace) -> tuple[Path, ...]:
        """Execute the files, before their names are looked up; where they are."""
        return load_modules(found.module)

    def add_short_fields(self) -> None:
        """``--steps 1000`` for ``--run.steps 1000`` and so on."""
        meanings = {"run": comments(Run), "network": comments(Net)}
        for name, path in SHORT.items():
            group, _, field = path.partition(".")
            about = f"{meanings[group][field]} (--{path})"
            self.add_argument(f"--{name.replace('_', '-')}", type=whole, metavar="N", help=about)

    @staticmethod
    def short_fields(found: argparse.Namespace) -> list[tuple[str, str]]:
        """The short options that were given, as (dotted field, text)."""
        given = {path: getattr(found, name) for name, path in SHORT.items()}
        return [(path, str(value)) for path, value in given.items() if value is not None]

    def _unknown(self, word: str, fields: Iterable[str]) -> NoReturn:
        name = word.partition("=")[0]
        known = [option for action in self._actions for option in action.option_strings]
        hint = nearest_option(name, fields, known)
        raise UserError(f"{name}: there is no such option; {hint}; see '{self.prog} --help'")


class _CapturedError(BaseException):
    def __init__(self, parser: Arguments):
        self.parser = parser


def captured_parser(run: Callable[[list[str]], int]) -> Arguments:
    """The parser of a command. A command makes it when it runs, and does nothing before it parses."""
    Arguments.captured = True
    try:
        run([])
    except _CapturedError as found:
        return found.parser
    finally:
        Arguments.captured = False
    raise AssertionError("every command parses its words")


def known_fields(found: argparse.Namespace) -> list[str]:
    """Fields of the experiment that the parsed words begin, or of all experiments where they begin none."""
    try:
        begun = preset(found.task, found.sharing, found.preset, found.learner)
    except (UserError, AttributeError, TypeError):
        return list(every_field())
    return [path for path, _, _ in options(begun) if "." in path]


def every_field() -> dict[str, str]:
    """Dotted names of the fields of all methods and learners, and of the run, with their meanings."""
    groups = {"sharing": METHODS.values(), "learner": LEARNERS.values(), "network": (Net,), "run": (Run,)}
    found: dict[str, str] = {}
    for group, classes in groups.items():
        for cls in classes:
            meanings = comments(cls)
            for field in dataclasses.fields(cls):
                if field.name not in ("method", "algorithm") and "recorded" not in field.metadata:
                    found.setdefault(f"{group}.{field.name}", meanings.get(field.name, ""))
    return found


def whole(text: str) -> int:
    """A whole number, also written as 3e6, 3_000_000, 3M or 500k."""
    number = read_number(text)
    if number is not None and math.isfinite(number) and number == int(number):
        return int(number)
    raise argparse.ArgumentTypeError(f"expected a whole number, got '{text}'")


def some_path(text: str) -> Path:
    """A file or folder. Raises for an empty name: it would mean the current folder, and comes from variables that are
    not set, as in ``--out "$DIR"``."""
    if not text.strip():
        raise argparse.ArgumentTypeError("expected a file or folder, got an empty name")
    return Path(text)
