"""Figures for papers and slides, from loaded runs to PNG and PDF. No pyplot, so no global state."""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure

from prism_marl.recordings import FootprintRow, LayerSpectra, evenly_spaced
from prism_marl.results import Run, on_common_grid
from prism_marl.stats import bootstrap_interval, mask_distance


class MethodStyle(NamedTuple):
    """How a sharing method is written and coloured everywhere."""

    label: str
    light: str  # colour on a light ground
    dark: str  # colour on a dark ground


# After Okabe and Ito: hue and lightness both differ, so lines stay apart in print and without colour vision.
METHODS = {
    "prism": MethodStyle("Prism", "#0a63b0", "#5cb2f7"),
    "kaleidoscope": MethodStyle("Kaleidoscope", "#cf5500", "#ff9a52"),
    "fups": MethodStyle("FuPS", "#7d7d7d", "#a3a3a3"),
    "fups_id": MethodStyle("FuPS+ID", "#b98500", "#f0c24b"),
    "fups_id_svd": MethodStyle("FuPS+ID (SVD)", "#7446c0", "#b99cff"),
    "nops": MethodStyle("NoPS", "#22252b", "#e8e8e8"),
    "seps": MethodStyle("SePS", "#00855f", "#3fcd9d"),
    "snp": MethodStyle("SNP-PS", "#c14a86", "#f391bd"),
    "adaps": MethodStyle("AdaPS", "#3aa0c0", "#7fdcf0"),
}
SPARE = (("#8a3b12", "#d99a72"), ("#5b6b00", "#b9cc4d"), ("#934a9e", "#d79be0"), ("#005f73", "#6cc3d5"))
DASHES = ("-", (0, (5, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)))

STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a8f98",
    "axes.labelcolor": "#333740",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e8ec",
    "grid.linewidth": 0.7,
    "xtick.color": "#555a63",
    "ytick.color": "#555a63",
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "figure.dpi": 160,
    "pdf.fonttype": 42,  # text stays text: journals ask for it
}


def method_style(method: str) -> MethodStyle:
    """Label and colours of a method; an unknown one gets a spare colour that depends on its name alone."""
    if method in METHODS:
        return METHODS[method]
    light, dark = SPARE[zlib.crc32(method.encode()) % len(SPARE)]
    return MethodStyle(method, light, dark)


def run_labels(runs: Sequence[Run]) -> list[str]:
    """One label per run: its method, and its folder name where two runs of a task share the method."""
    keys = [(run.task, run.method) for run in runs]
    return [
        method_style(run.method).label if keys.count(key) == 1 else f"{method_style(run.method).label} ({run.name})"
        for run, key in zip(runs, keys, strict=True)
    ]


def dash_indices(runs: Sequence[Run]) -> list[int]:
    """0 for the first run of a method on a task, 1 for the second and so on: same colour, other dashes."""
    keys = [(run.task, run.method) for run in runs]
    return [keys[:index].count(key) for index, key in enumerate(keys)]


def learning_curves(runs: Sequence[Run], metric: str = "return") -> Figure:
    """Interquartile mean and 95% bootstrap interval over seeds, one panel per task."""
    tasks = list(dict.fromkeys(run.task for run in runs)) or ["no runs"]
    columns = min(len(tasks), 3)
    rows = -(-len(tasks) // columns)
    with rc_context(STYLE):
        figure = Figure(figsize=(1.2 + 3.6 * columns, 2.9 * rows), layout="constrained")
        axes = np.asarray(figure.subplots(rows, columns, squeeze=False)).ravel()
        for axis, task in zip(axes, tasks, strict=False):
            axis.set(title=_plain(task), xlabel="environment steps", ylabel=_plain(metric))
            drawn = False
            for run, label, dash in zip(runs, run_labels(runs), dash_indices(runs), strict=True):
                drawn |= run.task == task and _draw_curve(axis, run, metric, label, dash)
            if drawn:
                axis.legend(fontsize=7.5)
            else:
                _say_nothing(axis, f"no {_plain(metric)} recorded")
        for axis in axes[len(tasks) :]:
            axis.set_axis_off()
    return figure


def _draw_curve(axis: Axes, run: Run, metric: str, label: str, dash: int) -> bool:
    curves = on_common_grid(run.evaluations, metric)
    if curves is None:
        return False
    interval = bootstrap_interval([curves.values], seed=0)
    colour = method_style(run.method).light
    marker = "o" if curves.steps.size == 1 else ""
    line = DASHES[dash % len(DASHES)]
    axis.plot(curves.steps, interval.estimate, color=colour, label=_plain(label), linestyle=line, marker=marker)
    axis.fill_between(curves.steps, interval.low, interval.high, color=colour, alpha=0.15, linewidth=0)
    return True


def spectra_heatmaps(run: Run, layer: str | None = None, *, times: int = 4, seed_index: int = 0) -> Figure:
    """Each identity's masked singular values at several times; white means the direction is off."""
    chosen, frames = _layer_and_times(run, layer, times)
    with rc_context({**STYLE, "axes.grid": False}):
        count = max(len(frames), 1)
        identities = chosen.mask.shape[2] if chosen else 1
        figure = Figure(figsize=(7.2, 0.7 + count * (0.45 + 0.16 * identities)), layout="constrained")
        axes = np.asarray(figure.subplots(count, 1, squeeze=False)).ravel()
        if chosen is None or run.spectra is None:
            _say_nothing(axes[0], "this run has no spectra")
            return figure
        size = np.abs(chosen.spectrum[:, seed_index])
        image = None
        for axis, frame in zip(axes, frames, strict=True):
            shown = np.ma.masked_where(~chosen.mask[frame, seed_index], size[frame])
            image = axis.imshow(shown, aspect="auto", cmap="viridis_r", vmin=0, vmax=max(float(size.max()), 1e-9))
            axis.axvline(chosen.common - 0.5, color="#cf5500", linewidth=1)
            axis.set(title=f"{_plain(chosen.name)}, step {run.spectra.steps[frame]:,.0f}", ylabel="agent")
            axis.set_yticks(range(identities))
        axes[-1].set_xlabel("singular direction (right of the line: each agent's own choice)")
        if image is not None:
            figure.colorbar(image, ax=list(axes), label="|masked singular value|", shrink=0.8)
    return figure


def mask_differences(run: Run, layer: str | None = None, *, times: int = 4, seed_index: int = 0) -> Figure:
    """Share of maskable directions on which two identities differ, at several times."""
    chosen, frames = _layer_and_times(run, layer, times)
    with rc_context({**STYLE, "axes.grid": False}):
        count = max(len(frames), 1)
        figure = Figure(figsize=(1.0 + 1.9 * count, 2.3), layout="constrained")
        axes = np.asarray(figure.subplots(1, count, squeeze=False)).ravel()
        if chosen is None or run.spectra is None:
            _say_nothing(axes[0], "this run has no masks")
            return figure
        image = None
        for axis, frame in zip(axes, frames, strict=True):
            table = mask_distance(chosen.mask[frame, seed_index], chosen.common)
            image = axis.imshow(table, cmap="Oranges", vmin=0, vmax=1)
            axis.set(title=f"step {run.spectra.steps[frame]:,.0f}", xlabel="agent")
            axis.set_xticks(range(len(table)))
            axis.set_yticks(range(len(table)))
            if len(table) <= 8:
                for (row, column), value in np.ndenumerate(table):
                    ink = "white" if value > 0.6 else "#333740"
                    axis.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=ink)
        axes[0].set_ylabel(f"{_plain(chosen.name)}: agent")
        if image is not None:
            figure.colorbar(image, ax=list(axes), label="masks that differ", shrink=0.8)
    return figure


def _layer_and_times(run: Run, layer: str | None, times: int) -> tuple[LayerSpectra | None, list[int]]:
    """The named layer, or the one with most directions of its own, and evenly spaced evaluations."""
    if run.spectra is None:
        return None, []
    named = [candidate for candidate in run.spectra.layers if candidate.name == layer]
    chosen = named[0] if named else max(run.spectra.layers, key=lambda one: one.mask.shape[-1] - one.common)
    return chosen, [int(index) for index in evenly_spaced(run.spectra.steps.size, times)]


def footprint_bars(rows: Sequence[FootprintRow]) -> Figure:
    """Parameters of each method, and how many of them belong to single agents; logarithmic."""
    with rc_context(STYLE):
        figure = Figure(figsize=(6.4, 0.9 + 0.34 * max(len(rows), 1)), layout="constrained")
        axis = figure.subplots()
        if not rows:
            _say_nothing(axis, "no footprint recorded")
            return figure
        place = np.arange(len(rows))
        for offset, key, alpha in ((-0.19, "parameters", 1.0), (0.19, "private", 0.45)):
            for index, row in enumerate(rows):
                value = getattr(row, key)
                if value > 0:  # a logarithmic axis has no zero
                    colour = method_style(row.method).light
                    axis.barh(place[index] + offset, value, height=0.36, color=colour, alpha=alpha)
                    axis.annotate(f" {value:,.0f}", (value, place[index] + offset), va="center", fontsize=7)
        axis.set(xscale="log", xlabel="parameters (full bar: all, pale bar: private to one agent)")
        axis.set_yticks(place, [_plain(row.label) for row in rows])
        axis.invert_yaxis()
        axis.margins(x=0.12)
        axis.grid(visible=False, axis="y")
    return figure


def save_figure(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Write ``stem.png`` and ``stem.pdf``; the same data gives the same bytes."""
    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    png, pdf = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.pdf")
    with rc_context(STYLE):
        FigureCanvasAgg(figure)
        figure.savefig(png, metadata={"Software": None})
        FigureCanvasPdf(figure)
        figure.savefig(pdf, metadata={"CreationDate": None, "Producer": None, "Creator": None})
    return png, pdf


def _say_nothing(axis: Axes, why: str) -> None:
    axis.set_axis_off()
    axis.text(0.5, 0.5, why, ha="center", va="center", transform=axis.transAxes, color="#555a63")


def _plain(text: str) -> str:
    """``text`` without mathtext (a stray dollar sign would not parse) and short enough for a title."""
    return text.replace("$", r"\$")[:60]
