"""Learning curves in panels with one legend, and the numbers behind them."""

from dataclasses import replace

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from prism_marl.paper.numbers import final_rows, improvement_rows
from prism_marl.paper.target import Curve, Gathered, Result, as_reference
from prism_marl.report.figures import DASHES, STYLE
from prism_marl.report.load import Run, on_common_grid
from prism_marl.report.stats import bootstrap_interval

MUTED = "#555a63"


def curve_result(gathered: Gathered, columns: int = 3) -> Result:
    """Curves with their 95% intervals, a table of final numbers, and one of how often the reference is better."""
    tables = {"Final return": final_rows(gathered)}
    chances = improvement_rows(gathered)
    if chances:
        tables["Probability that the reference is better"] = chances
    return Result(panels_figure(gathered, columns), tables)


def panels_figure(gathered: Gathered, columns: int) -> Figure:
    """One panel for each title; all panels have one legend."""
    panels = gathered.panels
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    with rc_context(STYLE):
        figure = Figure(figsize=(max(5.2, 0.6 + 3.1 * columns), 0.8 + 2.5 * rows), layout="constrained")
        axes = np.asarray(figure.subplots(rows, columns, squeeze=False)).ravel()
        for index, (axis, panel) in enumerate(zip(axes, panels, strict=False)):
            plotted = _plot_panel(axis, panel, gathered.within(panel))
            if plotted and index % columns == 0:
                axis.set_ylabel("episode return\n(IQM, 95% interval)")
            if plotted and index + columns >= len(panels):
                axis.set_xlabel("environment steps")
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        lines = {str(line.get_label()): line for axis in axes for line in axis.get_lines()}
        order = [label for label in dict.fromkeys(curve.label for curve in gathered.curves) if label in lines]
        if order:
            inches = 0.6 + 0.085 * max(map(len, order))  # of a line and the longest label
            fitting = int(figure.get_figwidth() // inches)
            handles = [lines[label] for label in order]
            figure.legend(handles=handles, loc="outside lower center", ncols=max(1, min(fitting, len(order))))
    return figure


def _plot_panel(axis: Axes, panel: str, lines: list[tuple[Curve, Run]]) -> bool:
    """Plot the lines; returns False if there are none, which the panel then says."""
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
            # dashed lines are on top, so that a line under them stays visible
            zorder=3 + layer + 100 * curve.reference + 200 * (curve.dashes != "-"),
            linewidth=2.2 if curve.reference else 1.5,
        )
        axis.fill_between(grid.steps, interval.low, interval.high, color=curve.colour, alpha=0.13, linewidth=0)
    axis.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.xaxis.set_major_formatter(FuncFormatter(short_number))
    axis.set_xlim(left=0)
    return True


def variation(base: Curve, option: str, value: float, label: str, index: int, count: int) -> Curve:
    """Prism with one field changed, to value ``index`` of ``count``; with the paper's value it is the reference."""
    curve = replace(base, label=label, experiment=base.experiment.with_option(option, str(value)))
    if curve.experiment == base.experiment:
        return as_reference(replace(curve, label=f"{label} (Prism)"))
    return replace(curve, colour=ramp(index, count), dashes=DASHES[1 + index % 2])


def ramp(index: int, count: int) -> str:
    """The colour of one of ``count`` ordered values: light to dark, and never blue, which is Prism's."""
    return to_hex(colormaps["YlOrBr"](0.4 + 0.55 * index / max(count - 1, 1)))


def short_number(value: float, _: object = None) -> str:
    """1,000 as 1K, then M and B."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
