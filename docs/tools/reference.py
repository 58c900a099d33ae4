"""Writes the pages of the reference from docstrings, from the comments beside settings and from the commands' help.

    python docs/tools/reference.py build/docs

Nothing in them is typed by hand, so nothing can drift from the code. `make docs` calls this before mkdocs.
"""

import contextlib
import dataclasses
import inspect
import io
import os
import re
import sys
import types
import typing
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import prism_marl as pm
from prism_marl import cli
from prism_marl.experiment import config
from prism_marl.experiment.experiment import Net, Run
from prism_marl.learners import LEARNERS
from prism_marl.sharing import METHODS

SECTIONS = {"Args:": "Arguments", "Returns:": "Returns", "Raises:": "Raises"}


def main(folder: Path) -> None:
    """Writes all pages below ``folder``."""
    (folder / "reference").mkdir(parents=True, exist_ok=True)
    for name, text in {"api": api_page(), "settings": settings_page(), "commands": commands_page()}.items():
        (folder / "reference" / f"{name}.md").write_text(text, encoding="utf-8")


def api_page() -> str:
    """All of ``prism_marl.__all__``: functions first, then classes, then packages."""
    objects = {name: getattr(pm, name) for name in pm.__all__}
    order = {
        "Functions": {k: v for k, v in objects.items() if inspect.isfunction(v)},
        "Classes": {k: v for k, v in objects.items() if inspect.isclass(v)},
        "Packages": {k: v for k, v in objects.items() if inspect.ismodule(v)},
    }
    assert sum(len(part) for part in order.values()) == len(objects)
    parts = ["# Python", "`import prism_marl as pm` offers these names. This page is written from the docstrings."]
    for title, part in order.items():
        parts.append(f"## {title}")
        for name, found in part.items():
            parts.append(f"### pm.{name}")
            write = _package if inspect.ismodule(found) else _class if inspect.isclass(found) else _function
            parts.append(write(name, found))
    return "\n\n".join(parts) + "\n"


def settings_page() -> str:
    """Every field that a user can set, of the run, the network, each learner and each sharing method."""
    parts = [
        "# Settings",
        "Each field can be set on the command line (`--learner.lr 1e-3`) and in Python "
        '(`options={"learner.lr": 1e-3}`). Defaults here are those of the classes; a preset changes some of them for '
        "each family of tasks. `prism-marl train TASK --options` prints the values that a run would have. Explanations "
        "are the comments beside the fields in the code.",
        "## Run and network",
        _table(Run, "run"),
        _table(Net, "network"),
        "## Learners",
        "`--learner NAME` chooses one, `--learner.FIELD VALUE` sets a field.",
    ]
    for name, learner in LEARNERS.items():
        parts += [f"### {name}", _summary(learner), _table(learner, "learner")]
    parts += ["## Sharing methods", "`--sharing NAME` chooses one, `--sharing.FIELD VALUE` sets a field."]
    for name, method in METHODS.items():
        parts += [f"### {name}", _summary(method), _table(method, "sharing")]
    return "\n\n".join(parts) + "\n"


def commands_page() -> str:
    """What ``prism-marl COMMAND --help`` prints."""
    parts = ["# Command line", _printed(["--help"])]
    for name, about in cli.COMMANDS.items():
        parts += [f"## {name}", f"{about[0].upper()}{about[1:]}.", _printed([name, "--help"])]
    return "\n\n".join(parts) + "\n"


def _printed(words: list[str]) -> str:
    os.environ["COLUMNS"] = "100"  # argparse breaks lines there, whatever the terminal
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        cli.main(words)
    return f"```text\n{out.getvalue().strip()}\n```"


def _table(settings: type, group: str) -> str:
    rows, hints = config.options(settings(), group), typing.get_type_hints(settings)
    if not rows:
        return "No settings."
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for path, value, about in rows:
        kind = _kind(hints[path.removeprefix(f"{group}.")])
        lines.append(f"| `{path}` | {kind} | `{_shown(value)}` | {_cell(about)} |")
    return "\n".join(lines)


def _kind(hint: Any) -> str:
    """A type as a user would say it; of a choice its values."""
    if get_origin(hint) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(hint))
    if get_origin(hint) in (types.UnionType, typing.Union):
        return " or ".join(_kind(one) for one in get_args(hint))
    names = {int: "integer", float: "number", bool: "true or false", str: "text", type(None): "`None`"}
    return names.get(hint, f"`{hint}`")


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    """Text in a table: signs that Markdown would read stay what they are, in code only the bar ends a cell."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part.replace("|", r"\|") if part.startswith("`") else re.sub(r"([|*_\[\]<>])", r"\\\1", part) for part in parts
    )


def _summary(cls: type) -> str:
    return _prose((inspect.getdoc(cls) or "").partition("\n\n")[0])


def _function(name: str, function: Any) -> str:
    return f"```python\n{name}{_signature(function)}\n```\n\n{_docstring(function)}"


def _signature(function: Any) -> str:
    """The call as it is typed, one parameter for each line where there are many."""
    found = inspect.signature(function)
    parameters = [one for one in found.parameters.values() if one.name != "self"]
    text = str(found.replace(parameters=parameters))
    text = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text).replace("'", '"')  # annotations that were strings
    if len(text) < 80:
        return text
    inner, returned = text[1:].rsplit(") ->", 1)
    parts = re.split(r", (?![^\[(]*[\])])", inner)
    return "(\n" + "".join(f"    {part},\n" for part in parts) + f") ->{returned}"


def _class(name: str, cls: type) -> str:
    head = f"{name}({', '.join(f.name for f in dataclasses.fields(cls))})" if dataclasses.is_dataclass(cls) else name
    parts = [f"```python\nclass {head}\n```", _docstring(cls)]
    for member, found in vars(cls).items():
        if member.startswith("_"):
            continue
        if isinstance(found, staticmethod):
            found = found.__func__
        if isinstance(found, property) or hasattr(found, "attrname"):  # cached_property
            parts.append(f"**`{name}.{member}`**: {_prose(inspect.getdoc(found) or '')}")
        elif inspect.isfunction(found):
            parts.append(_function(f"{name}.{member}", found))
    return "\n\n".join(parts)


def _package(name: str, package: Any) -> str:
    lines = [_docstring(package), "| name | what |", "|---|---|"]
    for member in package.__all__:
        found = getattr(package, member)
        own = inspect.getdoc(found) if not isinstance(found, dict) else f"the {len(found)} names: {', '.join(found)}"
        lines.append(f"| `pm.{name}.{member}` | {_cell(_prose(own or '').partition(chr(10) + chr(10))[0])} |")
    return lines[0] + "\n\n" + "\n".join(line.replace("\n", " ") for line in lines[1:])


def _docstring(found: Any) -> str:
    """A docstring as Markdown: its sections become lists, indented examples become code."""
    blocks = []
    for block in re.split(r"\n\s*\n", inspect.getdoc(found) or ""):
        first, _, rest = block.partition("\n")
        if first in SECTIONS:
            body = inspect.cleandoc(rest)
            blocks.append(f"**{SECTIONS[first]}**\n\n{_list(body) if first == 'Args:' else _prose(body)}")
        elif block.startswith("    "):
            blocks.append(f"```python\n{inspect.cleandoc(block)}\n```")
        else:
            blocks.append(_prose(block))
    return "\n\n".join(blocks)


def _list(body: str) -> str:
    items = re.split(r"\n(?=\w+: )", body)
    return "\n".join(re.sub(r"^(\w+): ", r"* `\1`: ", _prose(re.sub(r"\n\s+", " ", item))) for item in items)


def _prose(text: str) -> str:
    return re.sub(r"``(.+?)``", r"`\1`", text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
