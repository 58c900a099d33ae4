"""More figures of the page: end points, who beats whom, spectra with their pairs, training signals."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from prism_marl.reports import stats
from prism_marl.reports.figures import (
    STYLE,
    draw_footprint,
    layer_and_times,
    method_style,
    nothing_to_draw,
    run_labels,
    unmathed,
)
from prism_marl.reports.finals import final_of
from prism_marl.reports.load import Run, metric_names, on_common_grid

CHANCES = LinearSegmentedColormap.from_list("chances", ["#c8641b", "#f7efe6", "#ffffff", "#e6eff7", "#1f6fb5"])
WRITTEN = 4  # up to so many tables have their numbers written into the cells


def final_returns(runs: Sequence[Run], tables: Sequence[dict[str, Any]]) -> Figure:
    """Final return of each run: its seeds, their interquartile mean and its 95% interval; a panel per task."""
    with rc_context(STYLE):
        figure, axes = _panels([table["runs"] for table in tables], width=5.6, row=0.3, columns=2)
        for axis, table in zip(axes, tables, strict=False):
            chosen = [runs[index] for index in table["runs"]]
            _draw_finals(axis, chosen)
            small = 8 if len(tables) <= WRITTEN else 5
            axis.set_yticks(range(len(chosen)), [unmathed(label)[:36] for label in run_labels(chosen)], fontsize=small)
            axis.invert_yaxis()
            axis.set_title(unmathed(table["task"]))
            axis.grid(visible=False, axis="y")
        axes[0].set_xlabel("final return (large dot: interquartile mean, bar: 95% interval, small dots: seeds)")
    return figure


def _draw_finals(axis: Axes, runs: Sequence[Run]) -> None:
    """A small dot for each seed, a bar for the interval, a large dot for the interquartile mean."""
    for place, run in enumerate(runs):
        final = final_of(run.evaluations)
        if final is None:
            continue
        middle, low, high = final.interval()
        colour = method_style(run.method).light
        axis.hlines(place, low, high, color=colour, alpha=0.45, linewidth=4)
        spots, sizes = [*final.values, middle], [*([7.0] * len(final.values)), 30.0]
        axis.scatter(spots, [place] * len(spots), s=sizes, color=colour, linewidths=0)


def improvement_matrices(runs: Sequence[Run], tables: Sequence[dict[str, Any]]) -> Figure:
    """Chance that a seed of the row ends above a seed of the column; a panel per task. White where the seeds do not
    tell it from a coin toss."""
    with rc_context({**STYLE, "axes.grid": False}):
        figure, axes = _panels([table["runs"] for table in tables], width=5.6, row=0.42, columns=2)
        image = None
        for axis, table in zip(axes, tables, strict=False):
            chosen = [runs[index] for index in table["runs"]]
            cells = [[np.nan if cell is None else cell[0] for cell in row] for row in table["table"]]
            shown = np.where(table["sure"], cells, np.where(np.isnan(cells), np.nan, 0.5))
            image = axis.imshow(np.ma.masked_invalid(shown), cmap=CHANCES, vmin=0, vmax=1, aspect="auto")
            names = [unmathed(label)[:24] for label in run_labels(chosen)]
            axis.set_yticks(range(len(chosen)), names, fontsize=7 if len(tables) <= WRITTEN else 5)
            axis.set_title(unmathed(table["task"]))
            if len(tables) > WRITTEN:
                axis.set_xticks([])  # columns stand in the order of the rows
                continue
            axis.set_xticks(range(len(chosen)), names, rotation=40, ha="right", fontsize=7)
            for (row, column), chance in np.ndenumerate(cells):
                if np.isfinite(chance):
                    ink = "white" if abs(shown[row, column] - 0.5) > 0.42 else "#333740"
                    axis.text(column, row, f"{100 * chance:.0f}", ha="center", va="center", fontsize=7, color=ink)
        if image is not None:
            figure.colorbar(
                image,
                ax=list(axes),
                shrink=0.6,
                label="chance that the row beats the column\n(white: its interval holds 1/2, or under five seeds)",
            )
    return figure


def footprints(sized: Sequence[Run]) -> Figure:
    """Parameters of each method, a panel per task, and how many of them belong to single agents; logarithmic."""
    with rc_context(STYLE):
        figure, axes = _panels([run.footprint for run in sized], width=5.6, row=0.3, columns=2)
        for axis, run in zip(axes, sized, strict=False):
            draw_footprint(axis, run.footprint)
            axis.set_title(unmathed(run.task))
    return figure


def _panels(rows: Sequence[Sequence[Any]], *, width: float, row: float, columns: int) -> tuple[Figure, list[Axes]]:
    """As many panels as there are lists, each high enough for the longest; what is left over is empty."""
    count = max(len(rows), 1)
    if count > WRITTEN:
        width, row, columns = 3.6, row / 2, 3
    across = min(count, columns)
    down = -(-count // across)
    height = 1.1 + row * max((len(one) for one in rows), default=1)
    figure = Figure(figsize=(0.8 + width * across, height * down), layout="constrained")
    axes = list(np.asarray(figure.subplots(down, across, squeeze=False)).ravel())
    for axis in axes[len(rows) :]:
        axis.set_axis_off()
    return figure, axes


def spectrum_over_time(run: Run, layer: str, *, times: int = 4, seed_index: int = 0) -> Figure:
    """One layer: masked singular values of each identity, and beside them the masks' pairwise differences."""
    chosen, frames = layer_and_times(run, layer, times)
    with rc_context({**STYLE, "axes.grid": False}):
        if chosen is None or run.spectra is None:
            figure = Figure(figsize=(6.4, 2), layout="constrained")
            nothing_to_draw(figure.subplots(), "this run has no spectra")
            return figure
        identities = chosen.mask.shape[2]
        height = 0.55 + 0.17 * max(identities, 3)
        figure = Figure(figsize=(8.2, 0.6 + len(frames) * height), layout="constrained")
        axes = figure.subplots(len(frames), 2, squeeze=False, width_ratios=(5, 1))
        size = np.abs(chosen.spectrum[:, seed_index])
        values = apart = None
        for (heat, pair), frame in zip(axes, frames, strict=True):
            mask = chosen.mask[frame, seed_index]
            shown = np.ma.masked_where(~mask, size[frame])
            values = heat.imshow(shown, aspect="auto", cmap="viridis_r", vmin=0, vmax=max(float(size.max()), 1e-9))
            heat.axvline(chosen.common - 0.5, color="#cf5500", linewidth=1)
            heat.set_title(f"{unmathed(chosen.name)}, step {run.spectra.steps[frame]:,.0f}")
            heat.set_yticks(range(identities) if identities <= 12 else [])
            heat.tick_params(labelbottom=frame == frames[-1])
            apart = pair.imshow(stats.mask_distance(mask, chosen.common), cmap="Oranges", vmin=0, vmax=1)
            pair.set(xticks=[], yticks=[])
        axes[0][1].set_title("masks differ")
        axes[-1][0].set_xlabel("singular direction (right of the line: each identity's own choice)")
        if values is None or apart is None:
            return figure
        figure.colorbar(values, ax=axes[:, 0].tolist(), label="|masked singular value|", shrink=0.8)
        figure.colorbar(apart, ax=axes[:, 1].tolist(), shrink=0.8)
    return figure


def training_signals(run: Run, most: int = 16) -> Figure:
    """Median over seeds and the full range of every training signal."""
    names = metric_names(run.training)[:most]
    columns = 4
    rows = max(1, -(-len(names) // columns))
    with rc_context({**STYLE, "font.size": 7, "axes.titlesize": 8}):
        figure = Figure(figsize=(9.2, 1.6 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for axis in axes[len(names) :]:
            axis.set_axis_off()
        for axis, name in zip(axes, names, strict=False):
            axis.set_title(unmathed(name.replace("_", " ")))
            curves = on_common_grid(run.training, name)
            if curves is None:
                nothing_to_draw(axis, "no common steps")
                continue
            colour = method_style(run.method).light
            axis.plot(curves.steps, np.median(curves.values, axis=0), color=colour, linewidth=1.2)
            axis.fill_between(
                curves.steps,
                curves.values.min(axis=0),
                curves.values.max(axis=0),
                color=colour,
                alpha=0.15,
                linewidth=0,
            )
    return figure
