"""Learning curves in panels with one legend, and the numbers behind them."""

from dataclasses import replace

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from prism_marl.paper.numbers import final_rows, improvement_rows
from prism_marl.paper.target import Curve, Drawing, Gathered, as_reference
from prism_marl.report.figures import DASHES, STYLE
from prism_marl.report.load import Run, on_common_grid
from prism_marl.report.stats import bootstrap_interval

MUTED = "#555a63"


def curve_drawing(gathered: Gathered, columns: int = 3) -> Drawing:
    """Interquartile mean and 95% interval of every line, final numbers, and how often the reference is better."""
    tables = {"Final return": final_rows(gathered)}
    chances = improvement_rows(gathered)
    if chances:
        tables["Probability that the reference is better"] = chances
    return Drawing(panels_figure(gathered, columns), tables)


def panels_figure(gathered: Gathered, columns: int) -> Figure:
    """One panel for each title, lines of equal label under one legend."""
    panels = gathered.panels
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    with rc_context(STYLE):
        figure = Figure(figsize=(max(5.2, 0.6 + 3.1 * columns), 0.8 + 2.5 * rows), layout="constrained")
        axes = np.asarray(figure.subplots(rows, columns, squeeze=False)).ravel()
        for place, (axis, panel) in enumerate(zip(axes, panels, strict=False)):
            drawn = _draw_panel(axis, panel, gathered.within(panel))
            if drawn and place % columns == 0:
                axis.set_ylabel("episode return\n(IQM, 95% interval)")
            if drawn and place + columns >= len(panels):
                axis.set_xlabel("environment steps")
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        lines = {str(line.get_label()): line for axis in axes for line in axis.get_lines()}
        order = [label for label in dict.fromkeys(curve.label for curve in gathered.curves) if label in lines]
        if order:
            room = figure.get_figwidth() // (
                0.6 + 0.085 * max(map(len, order))
            )  # inches of a line and its longest label
            handles = [lines[label] for label in order]
            figure.legend(handles=handles, loc="outside lower center", ncols=max(1, min(int(room), len(order))))
    return figure


def _draw_panel(axis: Axes, panel: str, lines: list[tuple[Curve, Run]]) -> bool:
    """False where there is nothing to draw, which the panel then says."""
    axis.set_title(panel)
    if not lines:
        axis.set(xticks=[], yticks=[])
        axis.text(0.5, 0.5, "no finished run", ha="center", va="center", transform=axis.transAxes, color=MUTED)
        return False
    for layer, (curve, run) in enumerate(lines):
        grid = on_common_grid(run.evaluations, "return")
        assert grid is not None  # gather() leaves such runs out
        interval = bootstrap_interval([grid.values], seed=0)
        axis.plot(
            grid.steps,
            interval.estimate,
            color=curve.colour,
            linestyle=curve.dashes,
            label=curve.label,
            zorder=3
            + layer
            + 100 * curve.reference
            + 200 * (curve.dashes != "-"),  # equal lines: dashes on a broad one
            linewidth=2.2 if curve.reference else 1.5,
        )
        axis.fill_between(grid.steps, interval.low, interval.high, color=curve.colour, alpha=0.13, linewidth=0)
    axis.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.xaxis.set_major_formatter(FuncFormatter(short_number))
    axis.set_xlim(left=0)
    return True


def variation(base: Curve, option: str, value: float, label: str, place: int, count: int) -> Curve:
    """Prism with one field changed, the ``place``-th of ``count`` values; the paper's own value is the reference."""
    curve = replace(base, label=label, experiment=base.experiment.with_option(option, str(value)))
    if curve.experiment == base.experiment:
        return as_reference(replace(curve, label=f"{label} (Prism)"))
    return replace(curve, colour=ramp(place, count), dashes=DASHES[1 + place % 2])


def ramp(place: int, count: int) -> str:
    """A colour for the place in a row of ``count`` ordered values: light to dark, and never blue, which is Prism's."""
    return to_hex(colormaps["YlOrBr"](0.4 + 0.55 * place / max(count - 1, 1)))


def short_number(value: float, _: object = None) -> str:
    """1,000 as 1K, then M and B."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
