"""Tables and JSON on standard output, the same for every command that prints results."""

import json
import sys
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

AWAY_FROM_TERMINAL = 120  # columns of a file or a pipe


def show(*parts: Table | str) -> None:
    """Print text and tables. Text is wrapped to the terminal; a table without text columns is never cut."""
    terminal = Console(width=None if sys.stdout.isatty() else AWAY_FROM_TERMINAL).width
    unlimited = Console(width=10_000)
    for part in parts:
        rigid = isinstance(part, Table) and all(column.no_wrap for column in part.columns)
        needed = unlimited.measure(part).maximum if rigid else 0
        Console(width=max(terminal, needed), highlight=False, markup=False).print(part)


def show_json(data: Any) -> None:
    """Print one JSON document, for programs."""
    print(json.dumps(data, indent=2))  # noqa: T201


def table(title: str, names: tuple[str, ...], numbers: tuple[str, ...] = (), text: tuple[str, ...] = ()) -> Table:
    """A table with columns of names and numbers, which are never wrapped, and then columns of text, which are."""
    made = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for name in names:
        made.add_column(name, no_wrap=True)
    for name in numbers:
        made.add_column(name, justify="right", no_wrap=True)
    for name in text:
        made.add_column(name, overflow="fold")
    return made


def counted(number: int, thing: str) -> str:
    """A number with its noun."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
