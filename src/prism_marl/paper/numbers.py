"""The numbers of a figure or table as rows of plain values, and the files with them."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prism_marl.paper.budgets import Cell
from prism_marl.paper.target import Gathered, Result
from prism_marl.reports import stats
from prism_marl.reports.figures import method_style, save_figure
from prism_marl.reports.finals import SEED, Final, final_of
from prism_marl.reports.load import Run, on_common_grid
from prism_marl.storage.files import write_atomically


def final_rows(gathered: Gathered) -> list[dict[str, Any]]:
    """Final, best and mean return of every line, over its seeds."""
    return [{"panel": curve.panel, "line": curve.label, **final_numbers(run)} for curve, run in gathered.available]


def final_numbers(run: Run) -> dict[str, Any]:
    """Final, best and mean return of a run as [IQM, low, high] over its seeds, and the final return of each seed."""
    final, grid = final_values(run), on_common_grid(run.evaluations, "return")
    assert grid is not None  # there is a final value
    points = {"best": stats.best_evaluation(grid.values)}
    points["mean over training"] = stats.area_under_curve(grid.steps, grid.values)
    numbers: dict[str, Any] = {"steps": round(final.step), "final": [*final.interval()]}
    for name, values in points.items():
        numbers[name] = [*stats.bootstrap_interval([values], seed=SEED, resamples=stats.POINT_RESAMPLES)]
    return numbers | {"each seed": sorted(final.values.tolist())}


def final_values(run: Run, until: float = np.inf) -> Final:
    """The final return of a run that has one, or the return at its last evaluation up to a step."""
    final = final_of(run.evaluations, until=until)
    if final is None:
        raise ValueError(f"the run {run.name} has no evaluations")
    return final


def improvement_rows(gathered: Gathered) -> list[dict[str, Any]]:
    """For every other line the probability that the reference's final return is higher, per panel and per group."""
    pairs: dict[tuple[str, str, str], dict[str, tuple[Any, Any]]] = {}
    for panel in gathered.panels:
        finals = {curve: final_values(run).values for curve, run in gathered.within(panel)}
        reference = next((curve for curve in finals if curve.reference), None)
        for curve, values in finals.items():
            if reference and not curve.reference:
                names = (reference.label, curve.label, curve.group)
                pairs.setdefault(names, {})[panel] = (finals[reference], values)
    rows = []
    for (reference, label, group), tasks in pairs.items():
        taken = {panel: [pair] for panel, pair in tasks.items()}
        if len(tasks) > 1:
            taken[f"all {len(tasks)} {group} panels".replace("  ", " ")] = [*tasks.values()]
        for panel, together in taken.items():
            chance = stats.stratified_improvement(together, seed=SEED)
            rows.append({"panel": panel, "reference": reference, "against": label, "probability": [*chance]})
    return rows


def cell_rows(cells: Iterable[Cell], setting: str) -> list[dict[str, Any]]:
    """Published numbers beside ours."""
    return [
        {
            "task": cell.task,
            setting: cell.setting,
            "method": method_style(cell.method).label,
            "width": cell.width,
            "paper": cell.paper,
            "ours": cell.ours,
            "agrees": cell.agrees,
        }
        for cell in cells
    ]


def write_result(result: Result, stem: Path, heading: str, facts: Mapping[str, Any]) -> list[Path]:
    """Write ``stem.png`` and ``stem.pdf`` if there is a figure, ``stem.json`` and ``stem.md`` always."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    written = list(save_figure(result.figure, stem)) if result.figure else []
    content = {**facts, "bootstrap_seed": SEED, "tables": result.tables}
    texts = {"json": json.dumps(_plain(content), indent=1) + "\n", "md": as_markdown(heading, result, facts)}
    for ending, text in texts.items():
        path = stem.with_name(f"{stem.name}.{ending}")
        write_atomically(path, text.encode())
        written.append(path)
    return written


def as_markdown(heading: str, result: Result, facts: Mapping[str, Any]) -> str:
    """All tables; an interval is written as value [low, high]."""
    parts = [f"# {heading}", ""]
    for title, rows in result.tables.items():
        parts += [f"## {title}", "", *(markdown_table(rows) if rows else ["Nothing has been run."]), ""]
    missing = facts.get("missing", ())
    if missing:
        parts += ["## Missing", "", *(f"- {sentence}" for sentence in missing), ""]
    return "\n".join(parts)


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of a table whose columns are the keys of the first row."""
    names = list(rows[0])
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    return lines + [f"| {' | '.join(_cell(name, row[name]) for name in names)} |" for row in rows]


def _cell(name: str, value: Any) -> str:
    if isinstance(value, list) and name == "each seed":
        return " ".join(_digits(one) for one in value)
    if isinstance(value, list):
        estimate, low, high = map(_digits, value)
        return f"{estimate} [{low}, {high}]"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value).replace("|", "\\|")


def _digits(value: float) -> str:
    """Three decimals for small numbers (foraging), none for large ones (robots)."""
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"


def _plain(value: Any) -> Any:
    """The value in JSON's types: numpy's numbers as Python's, and None for NaN and infinity."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
