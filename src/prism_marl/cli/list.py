"""``prism-marl list``: tasks, sharing methods, learners and presets."""

import inspect
from typing import Any

from prism_marl.cli.arguments import Arguments
from prism_marl.cli.screen import show, show_json, table
from prism_marl.envs.registry import families
from prism_marl.experiment.presets import VARIANTS
from prism_marl.learners import LEARNERS
from prism_marl.sharing import METHODS

_WITHOUT_CHANGES = {
    "default": "nothing: the paper's settings for the task, but on lbf those that EPyMARL's authors tuned",
    "paper": "nothing: the paper's settings for the task, also on lbf",
}


def run(argv: list[str]) -> int:
    """Entry point of the command."""
    parser = Arguments("list", "List tasks, sharing methods, learners and presets.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_modules()
    found = parser.parse_strictly(argv)
    parser.load_modules(found)
    known = catalogue()
    if found.json:
        show_json(known)
    else:
        _show_tables(known)
    return 0


def catalogue() -> dict[str, list[dict[str, Any]]]:
    """Everything in the registries."""
    return {
        "tasks": [
            {
                "family": name,
                "pattern": family.pattern,
                "examples": list(family.examples),
                "about": family.about,
                "playable": any(build is not None for build in (family.make, family.python, family.rows)),
            }
            for name, family in families().items()
        ],
        "methods": [{"name": name, "label": cls.label, "about": _summary(cls)} for name, cls in METHODS.items()],
        "learners": [
            {"name": name, "label": cls.label, "actions": list(cls.kinds), "about": _summary(cls)}
            for name, cls in LEARNERS.items()
        ],
        "presets": [{"name": name, "changes": changes} for name, changes in VARIANTS.items()],
    }


def _show_tables(known: dict[str, list[dict[str, Any]]]) -> None:
    tasks = table("Tasks", ("family", "examples"), text=("name pattern, and what it is",))
    for row in known["tasks"]:
        tasks.add_row(row["family"], "\n".join(row["examples"]), f"{row['pattern']}\n{row['about']}")
    methods = table("\nSharing methods", ("name", "label"), text=("about",))
    for row in known["methods"]:
        methods.add_row(row["name"], row["label"], row["about"])
    learners = table("\nLearners", ("name", "label", "actions"), text=("about",))
    for row in known["learners"]:
        learners.add_row(row["name"], row["label"], ", ".join(row["actions"]), row["about"])
    presets = table("\nPresets", ("name",), text=("settings that it changes",))
    for row in known["presets"]:
        changes = ", ".join(f"{name}={value}" for name, value in row["changes"].items())
        presets.add_row(row["name"], changes or _WITHOUT_CHANGES[row["name"]])
    show(tasks, methods, learners, presets)


def _summary(cls: type) -> str:
    """The first paragraph of the docstring, as one line."""
    return " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].split())
