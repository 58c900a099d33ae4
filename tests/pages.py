"""Follows pages of the documentation as a reader would: their commands and their code, in order, at a small size.

As a program it follows several pages in one folder, one after the other: ``python pages.py FOLDER SIZES PAGE...``.
Tests run it that way where a page defines methods, which a process keeps for good.
"""

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple

from prism_marl import cli

ROOT = Path(__file__).parents[1]
SMALL = (
    "--width 8 --learner.embed 4 --learner.hypernet 4 --learner.batch 4 --learner.buffer 64 --envs 4 --run.measures 0"
)
COMMAND = r"^    ((?:prism-marl|python) [^\n]+)$"
FENCE = r'^```python(?: title="(?P<file>[^"]+)")?\n(?P<code>.*?)^```$'


class Step(NamedTuple):
    """What a reader does next: type a command, save a file, or execute some code."""

    kind: Literal["command", "file", "code"]
    text: str
    file: str = ""

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text, comments=True)


def steps(page: Path) -> list[Step]:
    """All commands and all Python of a page or of a notebook, in order. A code block with a title is a file."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        return [Step("code", "".join(cell["source"])) for cell in cells]
    found = []
    for match in re.finditer(f"{FENCE}|{COMMAND}", re.sub(r" \\\n +", " ", text), re.MULTILINE | re.DOTALL):
        if command := match[3]:
            found.append(Step("command", command))
        else:
            found.append(Step("file" if match["file"] else "code", match["code"], match["file"] or ""))
    return found


def commands(page: Path) -> list[list[str]]:
    """The words of all commands of a page."""
    return [step.words for step in steps(page) if step.kind == "command"]


def run_command(words: list[str], sizes: str = SMALL) -> None:
    """One command of ours; trainings are made smaller."""
    smaller = sizes.split() if words[1] == "train" and "--extend" not in words else []
    assert cli.main([*words[1:], *smaller]) == 0, shlex.join(words)


def follow(page: Path, sizes: str = SMALL, change: tuple[str, str] = ("", "")) -> None:
    """Follow a page in the current folder. ``change`` replaces some of its code, such as the number of steps. Blocks of
    a page are programs of their own, cells of a notebook share their names."""
    shared: dict[str, Any] = {}
    assert any(change[0] in step.text for step in steps(page)), f"{page.name} does not say {change[0]}"
    for step in steps(page):
        code = step.text.replace(*change) if change[0] else step.text
        if step.kind == "command":
            run_command(step.words, sizes)
        elif step.kind == "file":
            Path(step.file).write_text(code, encoding="utf-8")
        else:
            exec(compile(code, page.name, "exec"), shared if page.suffix == ".ipynb" else {})  # our own pages


def main(folder: str, sizes: str, pages: list[str]) -> None:
    """``PAGE?OLD->NEW`` follows a page with a change."""
    import matplotlib as mpl

    mpl.use("Agg")
    os.chdir(folder)
    sys.path.insert(0, folder)  # as a program in this folder has it
    for word in pages:
        name, _, change = word.partition("?")
        old, _, new = change.partition("->")
        follow(ROOT / "docs" / name, sizes, (old, new))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
