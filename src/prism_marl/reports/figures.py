"""Figures for papers and slides, from loaded runs to PNG and PDF. No pyplot, so no global state."""

import warnings
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

from prism_marl.reports.load import Run, flat_settings, on_common_grid
from prism_marl.reports.stats import bootstrap_interval, mask_distance
from prism_marl.runs.run_files import FootprintRow, LayerSpectra, Spectra, evenly_spaced
from prism_marl.sharing import METHODS
from prism_marl.storage.files import replacing


class MethodStyle(NamedTuple):
    """How a sharing method is written and coloured everywhere."""

    label: str
    light: str  # colour on a light ground
    dark: str  # colour on a dark ground


# After Okabe and Ito: hue and lightness both differ, so lines stay apart in print and without colour vision.
COLOURS = {  # on a light and on a dark ground; labels are the methods' own
    "prism": ("#0a63b0", "#5cb2f7"),
    "kaleidoscope": ("#cf5500", "#ff9a52"),
    "fups": ("#7d7d7d", "#a3a3a3"),
    "fups_id": ("#b98500", "#f0c24b"),
    "fups_id_svd": ("#7446c0", "#b99cff"),
    "nops": ("#22252b", "#e8e8e8"),
    "seps": ("#00855f", "#3fcd9d"),
    "snp": ("#c14a86", "#f391bd"),
    "adaps": ("#3aa0c0", "#7fdcf0"),
    "hypermarl": ("#8a1c1c", "#ff7b7b"),
    "lorasa": ("#4d7a00", "#a8d94a"),
    "spectrum_delta": ("#4453d6", "#98a4ff"),
    "random_spectrum": ("#8c6d8f", "#d3b6d6"),
    "film": ("#7a5c3a", "#d2b48c"),
    "multihead": ("#1f6b6b", "#67c9c4"),
    "experts": ("#a15c00", "#ffc069"),
    "cash": ("#0f7d94", "#8fd8e8"),
    "hps": ("#5a7d00", "#c7e36b"),
    "dico": ("#b0308f", "#ff9ce3"),
    "gradps": ("#1f3f8f", "#8fb0ff"),
    "hetdps": ("#a83232", "#ffa4a4"),
}
SPARE = (("#8a3b12", "#d99a72"), ("#5b6b00", "#b9cc4d"), ("#934a9e", "#d79be0"), ("#005f73", "#6cc3d5"))
LEGEND_LINES = 16
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
    """Label and colours of a method; one without colours gets spare ones that depend on its name alone."""
    light, dark = COLOURS.get(method) or SPARE[zlib.crc32(method.encode(errors="replace")) % len(SPARE)]
    return MethodStyle(METHODS[method].label if method in METHODS else method, light, dark)


def run_labels(runs: Sequence[Run]) -> list[str]:
    """One label per run: its method; where two runs of a task share it, also the settings in which they differ."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.task, run.method), []).append(run)
    told = {id(run): name for group in groups.values() for run, name in zip(group, _apart(group), strict=True)}
    return [method_style(run.method).label + told[id(run)] for run in runs]


def _apart(group: Sequence[Run]) -> list[str]:
    """What tells the runs of one method apart: up to three settings, else the folder's name."""
    if len(group) == 1:
        return [""]
    settings = [dict(flat_settings(run.config)) for run in group]
    names = list(dict.fromkeys(name for one in settings for name in one))
    differing = [name for name in names if len({one.get(name) for one in settings}) > 1]
    chosen = [
        tuple(f"{name.rpartition('.')[2]} {one.get(name, 'none')[:24]}" for name in differing) for one in settings
    ]
    if 0 < len(differing) <= 3 and len(set(chosen)) == len(group):
        return [f" ({', '.join(words)})" for words in chosen]
    return [f" ({run.name})" for run in group]


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
        size = (6.4, 4.4) if len(tasks) == 1 else (1.2 + 3.6 * columns, 2.9 * rows)
        figure = Figure(figsize=size, layout="constrained")
        axes = list(np.asarray(figure.subplots(rows, columns, squeeze=False)).ravel())
        styled = list(zip(runs, zip(run_labels(runs), dash_indices(runs), strict=True), strict=True))
        for axis, task in zip(axes, tasks, strict=False):
            axis.set(title=unmathed(task), xlabel="environment steps", ylabel=unmathed(metric))
            drawn = [_draw_curve(axis, run, metric, *how) for run, how in styled if run.task == task]
            if not any(drawn):
                nothing_to_draw(axis, f"no {unmathed(metric)} recorded")
        for axis in axes[len(tasks) :]:
            axis.set_axis_off()
        _legend(figure, axes, runs)
    return figure


def _legend(figure: Figure, axes: Sequence[Axes], runs: Sequence[Run]) -> None:
    """Each name once for all panels; of very many lines only the methods, whose colours they have."""
    lines: dict[str, Any] = {
        label: line for axis in axes for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    if len(lines) > LEGEND_LINES:
        colours = {line.get_color(): line for line in reversed(lines.values())}
        styles = dict.fromkeys(method_style(run.method) for run in runs)
        lines = {unmathed(style.label): colours[style.light] for style in styles if style.light in colours}
    if lines:
        columns = min(len(lines), 6 if len(axes) > 1 else 4)
        figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=columns, fontsize=7.5)


def _draw_curve(axis: Axes, run: Run, metric: str, label: str, dash: int) -> bool:
    curves = on_common_grid(run.evaluations, metric)
    if curves is None:
        return False
    interval = bootstrap_interval([curves.values], seed=0)
    colour = method_style(run.method).light
    marker = "o" if curves.steps.size == 1 else ""
    line = DASHES[dash % len(DASHES)]
    axis.plot(curves.steps, interval.estimate, color=colour, label=unmathed(label), linestyle=line, marker=marker)
    axis.fill_between(curves.steps, interval.low, interval.high, color=colour, alpha=0.15, linewidth=0)
    return True


def spectra_heatmaps(run: Run, layer: str | None = None, *, times: int = 4, seed_index: int = 0) -> Figure:
    """Each identity's masked singular values at several times; white means the direction is off."""
    chosen, frames = layer_and_times(run, layer, times)
    with rc_context({**STYLE, "axes.grid": False}):
        count = max(len(frames), 1)
        identities = chosen.mask.shape[2] if chosen else 1
        figure = Figure(figsize=(7.2, 0.7 + count * (0.45 + 0.16 * identities)), layout="constrained")
        axes = np.asarray(figure.subplots(count, 1, squeeze=False)).ravel()
        if chosen is None or run.spectra is None:
            nothing_to_draw(axes[0], "this run has no spectra")
            return figure
        size = np.abs(chosen.spectrum[:, seed_index])
        image = None
        for axis, frame in zip(axes, frames, strict=True):
            shown = np.ma.masked_where(~chosen.mask[frame, seed_index], size[frame])
            image = axis.imshow(shown, aspect="auto", cmap="viridis_r", vmin=0, vmax=max(float(size.max()), 1e-9))
            axis.axvline(chosen.common - 0.5, color="#cf5500", linewidth=1)
            axis.set(title=f"{unmathed(chosen.name)}, step {run.spectra.steps[frame]:,.0f}", ylabel="agent")
            axis.set_yticks(range(identities))
        axes[-1].set_xlabel("singular direction (right of the line: each agent's own choice)")
        if image is not None:
            figure.colorbar(image, ax=list(axes), label="|masked singular value|", shrink=0.8)
    return figure


def mask_differences(run: Run, layer: str | None = None, *, times: int = 4, seed_index: int = 0) -> Figure:
    """Share of maskable directions on which two identities differ, at several times."""
    chosen, frames = layer_and_times(run, layer, times)
    with rc_context({**STYLE, "axes.grid": False}):
        count = max(len(frames), 1)
        figure = Figure(figsize=(1.0 + 1.9 * count, 2.3), layout="constrained")
        axes = np.asarray(figure.subplots(1, count, squeeze=False)).ravel()
        if chosen is None or run.spectra is None:
            nothing_to_draw(axes[0], "this run has no masks")
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
        axes[0].set_ylabel(f"{unmathed(chosen.name)}: agent")
        if image is not None:
            figure.colorbar(image, ax=list(axes), label="masks that differ", shrink=0.8)
    return figure


def layer_and_times(run: Run, layer: str | None, times: int) -> tuple[LayerSpectra | None, list[int]]:
    """The named layer, or the one with most directions of its own, and evenly spaced evaluations."""
    if run.spectra is None:
        return None, []
    named = [candidate for candidate in run.spectra.layers if candidate.name == layer]
    chosen = named[0] if named else widest_layer(run.spectra)
    return chosen, [int(index) for index in evenly_spaced(run.spectra.steps.size, times)]


def widest_layer(spectra: Spectra) -> LayerSpectra:
    """The layer with most directions of the identities' own."""
    return max(spectra.layers, key=lambda one: one.mask.shape[-1] - one.common)


def footprint_bars(rows: Sequence[FootprintRow]) -> Figure:
    """Parameters of each method, and how many of them belong to single agents; logarithmic."""
    with rc_context(STYLE):
        figure = Figure(figsize=(6.4, 0.9 + 0.34 * max(len(rows), 1)), layout="constrained")
        axis = figure.subplots()
        if not rows:
            nothing_to_draw(axis, "no footprint recorded")
            return figure
        draw_footprint(axis, rows)
    return figure


def draw_footprint(axis: Axes, rows: Sequence[FootprintRow]) -> None:
    """Two bars for each method: all parameters, and those that belong to single agents."""
    place = np.arange(len(rows))
    for offset, key, alpha in ((-0.19, "parameters", 1.0), (0.19, "private", 0.45)):
        for index, row in enumerate(rows):
            value = getattr(row, key)
            if value > 0:  # a logarithmic axis has no zero
                colour = method_style(row.method).light
                axis.barh(place[index] + offset, value, height=0.36, color=colour, alpha=alpha)
                axis.annotate(f" {value:,.0f}", (value, place[index] + offset), va="center", fontsize=7)
    axis.set(xscale="log", xlabel="parameters (full bar: all, pale bar: private, all agents together)")
    axis.set_yticks(place, [unmathed(row.label) for row in rows])
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.grid(visible=False, axis="y")


def save_figure(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Write ``stem.png`` and ``stem.pdf``, each whole or not at all; the same data gives the same bytes."""
    stem = Path(stem)
    png, pdf = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.pdf")
    with rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a name in another script
        FigureCanvasAgg(figure)
        with replacing(png) as temporary:
            figure.savefig(temporary, format="png", metadata={"Software": None})
        figure.set_layout_engine("none")  # the places are found: the second file need not search them again
        FigureCanvasPdf(figure)
        with replacing(pdf) as temporary:
            figure.savefig(temporary, format="pdf", metadata={"CreationDate": None, "Producer": None, "Creator": None})
    return png, pdf


def nothing_to_draw(axis: Axes, why: str) -> None:
    """Say in place of a picture why there is none."""
    axis.set_axis_off()
    axis.text(0.5, 0.5, why, ha="center", va="center", transform=axis.transAxes, color="#555a63")


def unmathed(text: str) -> str:
    """``text`` without mathtext (a stray dollar sign would not parse), control characters and great length."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:60]).replace("$", r"\$")
