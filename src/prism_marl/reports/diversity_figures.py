"""The figure of how agents differ: the distances between them at the end, and system neural diversity over time."""

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from prism_marl.reports.figures import STYLE, method_style, nothing_to_draw
from prism_marl.reports.load import Run, on_common_grid
from prism_marl.reports.page_diversity import distance_tables

LINES = {"snd": ("agents of this run", "-"), "snd_by_matrices": ("by their matrices alone", ":")}
CHANCE = "snd_chance"


def differences(run: Run) -> Figure:
    """Which agents act differently in the end, and how much all of them do over training."""
    with rc_context(STYLE):
        figure = Figure(figsize=(8.4, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[1, 1.7])
        _table(figure, left, run)
        colour = method_style(run.method).light
        for name, (label, dash) in LINES.items():
            _line(right, run, name, label, dash, colour)
        _line(right, run, CHANCE, "chance: separate fresh networks", "--", "#666e7b")
        right.set(xlabel="environment steps", ylabel="system neural diversity")
        right.set_ylim(bottom=0)
        right.legend(fontsize=7)
    return figure


def _line(axis: Axes, run: Run, name: str, label: str, dash: str, colour: str) -> None:
    """The median over seeds and their range."""
    grid = on_common_grid(run.diversity, name)
    if grid is not None:
        axis.plot(grid.steps, np.median(grid.values, axis=0), dash, color=colour, label=label)
        axis.fill_between(grid.steps, grid.values.min(axis=0), grid.values.max(axis=0), color=colour, alpha=0.12)


def _table(figure: Figure, axis: Axes, run: Run) -> None:
    found = distance_tables(run)
    if found is None:
        nothing_to_draw(axis, "no table of distances")
        return
    last, names = found["values"][-1], [str(agent + 1) for agent in found["agents"]]
    top = float(found["values"].max()) or 1.0
    image = axis.imshow(last, cmap="Oranges", vmin=0, vmax=top)
    axis.grid(visible=False)
    axis.set(title=f"step {found['steps'][-1]:,.0f}", xlabel="agent", ylabel="agent")
    axis.set_xticks(range(len(names)), names)
    axis.set_yticks(range(len(names)), names)
    if len(names) <= 8:
        for (row, column), value in np.ndenumerate(last):
            ink = "white" if value > 0.6 * top else "#333740"
            axis.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=ink)
    figure.colorbar(image, ax=axis, label="distance of what they do", shrink=0.8)
