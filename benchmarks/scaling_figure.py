"""The figure of ``scaling.py``; a file of its own, because machines that measure need no matplotlib."""

from collections.abc import Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, StrMethodFormatter

from prism_marl.paper.scaling import MARKS
from prism_marl.reports.figures import STYLE, method_style

METHODS = ("kaleidoscope", "snp", "fups_id", "prism")  # later ones are drawn on top


def figure(rows: Sequence[dict[str, Any]]) -> Figure:
    """Parameters, memory and time against agents, one line per method; a cross is what was refused."""
    with rc_context(STYLE):
        made = Figure(figsize=(9.6, 3.5), layout="constrained")
        panels = made.subplots(1, 3)
        for axis, title, label, columns in zip(
            panels,
            ("Parameters of the actors", "Memory of an update", "Time of an update"),
            ("numbers, masks included", "state (line), all that is needed (dots)", "milliseconds"),
            (("parameters", None), ("state_bytes", "needed_bytes"), ("update_ms", None)),
            strict=True,
        ):
            for layer, method in enumerate(METHODS):
                _line(axis, [row for row in rows if row["method"] == method], method, columns, layer)
            axis.set(title=title, xlabel="agents", ylabel=label, yscale="log")
            axis.set_xscale("log", base=2)
            teams = sorted({row["agents"] for row in rows})
            axis.set_xlim(teams[0] / 1.4, teams[-1] * 1.4)  # the same in all panels, whatever was refused
            axis.xaxis.set_major_locator(FixedLocator(teams))
            axis.xaxis.set_major_formatter(StrMethodFormatter("{x:.0f}"))
            axis.xaxis.set_minor_locator(NullLocator())
        panels[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value, ("", "K", "M", "B"))))
        units = (" B", " kB", " MB", " GB", " TB")  # powers of ten, because the ticks are
        panels[1].yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value, units)))
        handles = [line for line in panels[0].get_lines() if not str(line.get_label()).startswith("_")]
        made.legend(handles=handles, loc="outside lower center", ncols=len(METHODS))
    return made


def _line(axis: Axes, rows: list[dict[str, Any]], method: str, columns: tuple[str, str | None], layer: int) -> None:
    style, (marker, dashes), (column, beside) = method_style(method), MARKS[method], columns
    known = [(row["agents"], row[column]) for row in rows if row.get(column)]
    drawn: dict[str, Any] = {"color": style.light, "zorder": 3 + layer}
    if known:
        axis.plot(*_across(known), label=style.label, linestyle=dashes, marker=marker, markersize=5, **drawn)
    if not beside:
        return
    for refused in (False, True):
        places = [(row["agents"], row[beside]) for row in rows if beside in row and ("refused" in row) == refused]
        if places and not refused:
            axis.plot(*_across(places), linestyle=":", **drawn)
        elif places:
            axis.plot(*_across(places), linestyle="", marker="x", markersize=8, **drawn)
            for place in places:
                axis.annotate("refused", place, fontsize=7, xytext=(-6, -2), textcoords="offset points", ha="right")


def _across(places: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in places], [y for _, y in places]


def _short(value: float, units: tuple[str, ...]) -> str:
    power = 0
    while value >= 1000 and power < len(units) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.3g}{units[power]}"
