"""``prism-marl footprint``: the size of sharing methods, counted on the networks that training would use."""

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from prism_marl import sharing
from prism_marl.cli.arguments import Arguments, known_fields, some_path, whole
from prism_marl.cli.screen import show, show_json, table
from prism_marl.envs import describe
from prism_marl.errors import UserError
from prism_marl.experiment import config
from prism_marl.experiment.presets import method_settings, preset
from prism_marl.paper import budgets
from prism_marl.paper.budgets import LARGEST_WIDTH, Cell, Fit
from prism_marl.sharing import METHODS, Sharing

LARGEST_BUDGET = 10**15


@dataclass(frozen=True)
class Row:
    """One method on the chosen task."""

    settings: Sharing
    fit: Fit
    trainable: int
    agents: int

    def as_dict(self, budget: int | None) -> dict[str, Any]:
        """Plain numbers for JSON."""
        size = self.fit.size
        row = {
            "method": self.settings.method,
            "label": self.settings.label,
            "settings": config.to_dict(self.settings),
            "width": self.fit.width,
            "parameters": size.parameters,
            "trainable": self.trainable,
            "shared": size.shared,
            "private": size.private,
            "private_per_agent": size.private / self.agents,
            "bytes": size.bytes,
            "overhead": size.ratio,
        }
        if budget is not None:
            row |= {"off_budget": size.parameters - budget, "note": self.fit.note}
        return row


def run(argv: list[str]) -> int:
    """Entry point of the command; returns 1 if a number differs from the published one."""
    options, fields = _parse(argv)
    answer: dict[str, Any] = {}
    parts: list[Table | str] = []
    code = 0
    if options.task is not None:
        rows = _measure(options, fields)
        answer |= {
            "task": options.task,
            "agents": rows[0].agents,
            "budget": options.budget,
            "methods": [row.as_dict(options.budget) for row in rows],
        }
        parts += _method_table(options.task, rows, options.budget)
    if options.paper:
        published = budgets.published()
        cells = [*budgets.budget_cells(published), *budgets.scaling_cells(published)]
        wrong = [cell for cell in cells if not cell.agrees]
        code = 1 if wrong else 0
        answer["paper"] = {
            "agrees": not wrong,
            "cells": [asdict(cell) | {"agrees": cell.agrees} for cell in cells],
        }
        parts += _paper_tables(cells)
    if options.plot is not None:
        answer["scaling"] = _plot(options.plot)
        parts.append(f"agent-scaling study: {options.plot}")
    if options.json:
        show_json(answer)
    else:
        show(*parts)
    return code


def _parse(argv: list[str]) -> tuple[argparse.Namespace, list[tuple[str, str]]]:
    parser = Arguments(
        "footprint",
        "Count the shared and private parameters of agent networks under every sharing method. Nothing is trained.",
        epilog="With one method you can change its settings: --method prism --sharing.common 0.25",
    )
    parser.add_argument("task", nargs="?", help="for example lbf/10x10-3p-3f; see 'prism-marl list'")
    parser.add_argument("--method", nargs="+", default=[], metavar="NAME", help="methods to compare (default: all)")
    parser.add_argument("--width", type=whole, metavar="N", help="hidden units (default: the task's preset)")
    parser.add_argument(
        "--budget", type=whole, metavar="N", help="choose each method's width so that it has about N parameters"
    )
    parser.add_argument(
        "--paper", action="store_true", help="compare our counts with the paper's tables; exit code 1 if one differs"
    )
    parser.add_argument(
        "--plot", type=some_path, metavar="FILE", help="plot parameters against the number of agents (.png or .pdf)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_modules()
    options, fields = parser.parse_with_fields(argv, known_fields)
    parser.load_modules(options)
    if options.task is None:  # `--method prism lbf/10x10-3p-3f`: the word with a slash is the task
        options.task = next((word for word in options.method if "/" in word), None)
        options.method = [word for word in options.method if word != options.task]
    _check(options, fields)
    return options, fields


def _check(options: argparse.Namespace, fields: list[tuple[str, str]]) -> None:
    if options.task is None:
        if options.method or fields or options.width is not None or options.budget is not None:
            raise UserError("task: methods, widths and budgets need a task, for example lbf/10x10-3p-3f")
        if not options.paper and options.plot is None:
            raise UserError("task: name one, for example lbf/10x10-3p-3f, or use --paper or --plot FILE.png")
    if options.width is not None and options.budget is not None:
        raise UserError("--budget: this option chooses the width; leave out --width")
    for name, value, high in (("width", options.width, LARGEST_WIDTH), ("budget", options.budget, LARGEST_BUDGET)):
        if value is not None and not 1 <= value <= high:
            near = min(max(value, 1), high)
            raise UserError(f"--{name}: {value} is outside 1 to {high}; the nearest valid value is {near}")
    if options.plot is not None and options.plot.suffix.lower() not in (".png", ".pdf"):
        near = options.plot / "scaling.png" if options.plot.is_dir() else options.plot.with_suffix(".png")
        raise UserError(f"--plot: '{options.plot}' must end in .png or .pdf; the nearest valid value is '{near}'")


def _measure(options: argparse.Namespace, fields: list[tuple[str, str]]) -> list[Row]:
    spec = describe(options.task)
    rows = []
    for settings in _chosen(options.task, options.method, fields):
        settings.validate()
        if options.budget is not None:
            fit = budgets.fit_width(options.task, settings, options.budget)
        else:
            width = options.width or preset(options.task, settings.method).network.width
            fit = Fit(width, budgets.count(options.task, settings, width))
        rows.append(Row(settings, fit, budgets.trainable(options.task, settings, fit.width), spec.agents))
    return rows


def _chosen(task: str, names: list[str], fields: list[tuple[str, str]]) -> list[Sharing]:
    """The settings of the methods on the command line, in their order, each once."""
    everything = not names or "all" in names
    asked = METHODS if everything else dict.fromkeys(sharing.method(name).method for name in names)
    settings = [method_settings(task, name) for name in asked]
    for path, text in fields:
        group, _, field = path.partition(".")
        if group != "sharing":
            raise UserError(f"--{path}: only sharing.* can be changed here; set the width with --width")
        if len(settings) != 1:
            raise UserError(f"--{path}: a setting needs exactly one method, for example --method prism")
        settings = [config.override(settings[0], field, text, "sharing")]
    return settings


def _method_table(task: str, rows: list[Row], budget: int | None) -> list[Table | str]:
    numbers = ("width", "total", "trained", "shared", "private", "/agent", "memory", "ratio")
    extra = () if budget is None else ("off",)
    title = f"{task}, {rows[0].agents} agents" + ("" if budget is None else f", budget {budget:,}")
    made = table(title, ("method",), (*numbers, *extra))
    for row in rows:
        size = row.fit.size
        made.add_row(
            row.settings.label,
            str(row.fit.width),
            *(f"{number:,}" for number in (size.parameters, row.trainable, size.shared, size.private)),
            f"{size.private / row.agents:,.1f}".removesuffix(".0"),
            _memory(size.bytes),
            f"{size.ratio:.4f}",
            *(f"{size.parameters - budget:+,}" for budget in [budget] if budget is not None),
        )
    return [
        made,
        "\ntotal: shared and private parameters, mask entries included; trained: parameters that learn; "
        "private: those of single agents; /agent: private parameters of one agent; ratio: private / total",
        *(f"{row.settings.label}: {row.fit.note}" for row in rows if row.fit.note),
    ]


def _memory(size: int) -> str:
    """Bytes with a unit, such that there are one to four digits before the point."""
    amount, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    return f"{amount:,.1f} {units[0]}"


def _paper_tables(cells: list[Cell]) -> list[Table | str]:
    """One table for each task of the budget study, one for all agent counts of the scaling study."""
    parts: list[Table | str] = []
    titles = {cell: cell.task if cell.setting in budgets.BUDGETS else "agent scaling, width 256" for cell in cells}
    for title in dict.fromkeys(titles.values()):
        scaling = not title.startswith(("smacv2", "mamujoco"))
        made = table(
            f"\n{title}" if parts else title,
            ("method", "agents" if scaling else "budget"),
            ("width", "paper", "ours", ""),
        )
        for cell in (cell for cell in cells if titles[cell] == title):
            number = "{:.4f}" if scaling else "{:,}"
            made.add_row(
                METHODS[cell.method].label,
                cell.setting,
                str(cell.width),
                number.format(cell.paper),
                number.format(cell.ours),
                "equal" if cell.agrees else "DIFFERS",
            )
        parts.append(made)
    parts.append("\nThe captions of the paper's two SMACv2 tables are swapped; here each has its true race.")
    wrong = sum(not cell.agrees for cell in cells)
    parts.append(f"{len(cells) - wrong} of {len(cells)} numbers agree with the paper.")
    return parts


def _plot(path: Path) -> dict[str, Any]:
    from prism_marl.paper import scaling  # imports matplotlib

    points = scaling.scaling_study()
    scaling.write_figure(scaling.scaling_figure(points), path)
    return {"file": str(path), "points": [asdict(point) for point in points]}
