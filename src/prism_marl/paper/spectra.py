"""How Prism's agents use different singular directions: masked singular values, and their distances between agents."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from prism_marl.paper.target import Curve, Gathered, Result, Target, method_curve
from prism_marl.report.figures import STYLE
from prism_marl.report.load import Run
from prism_marl.report.stats import mask_distance, mean_pairwise, spectrum_distance
from prism_marl.runs.run_files import LayerSpectra, evenly_spaced

TASK = "mamujoco/ant-4x2"
TIMES = 4
FIRST_SEED = 0  # heat maps show one seed; the table has the mean over all


def _curves(real: bool) -> tuple[Curve, ...]:
    return (method_curve(TASK, "prism"),)


def _result(gathered: Gathered) -> Result:
    run = next((run for _, run in gathered.available), None)
    if run is None or run.spectra is None:
        return Result(_empty_figure())
    layer = widest(run.spectra.layers)
    frames = evenly_spaced(run.spectra.steps.size, TIMES)
    return Result(spectra_figure(run, layer, frames), {"How far agents lie apart": _rows(run)})


def widest(layers: Sequence[LayerSpectra]) -> LayerSpectra:
    """The layer with the most directions that are not common."""
    return max(layers, key=lambda layer: layer.mask.shape[-1] - layer.common)


def spectra_figure(run: Run, layer: LayerSpectra, frames: np.ndarray) -> Figure:
    """Top: each agent's masked singular values at several steps, on one scale. Bottom: pairwise L1 distances."""
    assert run.spectra is not None
    steps, values = run.spectra.steps[frames], np.abs(layer.spectrum[frames][:, FIRST_SEED])
    shown = np.ma.masked_where(~layer.mask[frames][:, FIRST_SEED], values)
    own = spectrum_distance(values)
    with rc_context({**STYLE, "axes.grid": False}):
        figure = Figure(figsize=(2.5 + 2.35 * len(frames), 4.6), layout="constrained")
        axes = np.asarray(figure.subplots(2, len(frames), squeeze=False))
        top = {"cmap": "viridis_r", "vmin": 0.0, "vmax": max(float(values[..., layer.common :].max(initial=0)), 1e-9)}
        low = {"cmap": "Oranges", "vmin": 0.0, "vmax": max(float(own.max()), 1e-9)}
        for column, step in enumerate(steps):
            _heatmap(axes[0, column], shown[column][:, layer.common :], layer.common, top)
            axes[0, column].set_title(f"step {step:,.0f}")
            _matrix(axes[1, column], own[column], low)
        axes[0, 0].set_ylabel("agent")
        axes[1, 0].set_ylabel("agent")
        _bar(figure, axes[0], "masked singular value\n(white: off)")
        _bar(figure, axes[1], "L1 distance of\nmasked spectra")
        figure.suptitle(
            f"{run.task}, layer {layer.name}: the {layer.mask.shape[-1] - layer.common} of {layer.mask.shape[-1]} "
            f"directions that agents mask; seed {run.evaluations[FIRST_SEED].seed}",
            fontsize=9.5, x=0.01, ha="left",
        )  # fmt: skip
    return figure


def _heatmap(axis: Axes, table: Any, common: int, look: dict[str, Any]) -> None:
    extent = (common + 0.5, common + table.shape[1] + 0.5, len(table) + 0.5, 0.5)  # directions count from 1
    axis.imshow(table, aspect="auto", extent=extent, interpolation="nearest", **look)
    axis.set_yticks(range(1, len(table) + 1))
    axis.set_xlabel("singular direction")


def _matrix(axis: Axes, table: np.ndarray, look: dict[str, Any]) -> None:
    axis.imshow(table, **look)
    names = [str(agent + 1) for agent in range(len(table))]
    axis.set_xticks(range(len(table)), names)
    axis.set_yticks(range(len(table)), names)
    axis.set_xlabel("agent")
    for (row, column), value in np.ndenumerate(table):
        ink = "white" if value > 0.6 * look["vmax"] else "#333740"
        axis.text(column, row, f"{value:.2g}", ha="center", va="center", fontsize=7, color=ink)


def _bar(figure: Figure, axes: Sequence[Axes], label: str) -> None:
    figure.colorbar(axes[-1].images[0], ax=list(axes), label=label, shrink=0.9)


def _rows(run: Run) -> list[dict[str, Any]]:
    """Means over pairs of agents and over seeds, for every layer at every recorded step."""
    assert run.spectra is not None
    rows = []
    for layer in run.spectra.layers:
        apart = mean_pairwise(spectrum_distance(layer.spectrum)).mean(axis=1)
        differ = mean_pairwise(mask_distance(layer.mask, layer.common)).mean(axis=1)
        for step, far, share in zip(run.spectra.steps, apart, differ, strict=True):
            rows.append({"layer": layer.name, "step": round(float(step)), "mean L1 distance": float(f"{far:.5g}"),
                         "share of masks that differ": float(f"{share:.5g}")})  # fmt: skip
    return rows


def _empty_figure() -> Figure:
    with rc_context(STYLE):
        figure = Figure(figsize=(5.2, 1.6))
        figure.text(0.5, 0.5, f"no finished run of Prism on {TASK} with spectra", ha="center", color="#555a63")
    return figure


TARGETS = (
    Target(
        "fig-spectra",
        "masked singular values of every agent and their pairwise distances during training (Figure 'spectral space')",
        _result,
        _curves,
    ),
)
