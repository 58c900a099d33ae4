"""One self-contained HTML page from run folders: no network, no server, opens from a file.

Data travels as JSON inside the page and reaches the screen as text, never as markup, so a hostile run name stays
a name. The content policy admits only the page's own script, by its hash.
"""

import base64
import hashlib
import html
import json
import math
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from prism_marl import __version__, stats
from prism_marl.plots import METHODS, dash_indices, method_style, run_labels
from prism_marl.recordings import LayerSpectra, Replay, evenly_spaced, worth_keeping
from prism_marl.results import Run, SeedCurve, load_runs, metric_names, on_common_grid

SCRIPTS = ("core.js", "chart.js", "learning.js", "spectrum.js", "replay.js", "page.js")
SPECTRA_FRAMES = 60
SPECTRA_BYTES = 2_000_000  # for all runs of a page together
MANY = 8  # with more runs than this each brings less detail
_COUNTERS = ("episodes", "updates")  # numbers in an evaluation row that are not worth a curve


def write_report(runs: Sequence[Path], out: Path, title: str | None = None) -> Path:
    """Write the page for all runs at or below the given folders; ``out`` appears whole or not at all."""
    page = render_page(in_reading_order(load_runs(runs)), title)
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace", newline="\n") as file:
            file.write(page)
        Path(name).chmod(0o644)  # mkstemp hides the file from others; a report is there to be shown
        Path(name).replace(out)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return out


def in_reading_order(runs: Sequence[Run]) -> list[Run]:
    """Runs by task, and within a task by method, Prism first, so that every page lists them alike."""
    tasks = list(dict.fromkeys(run.task for run in runs))
    rank = {method: index for index, method in enumerate(METHODS)}
    return sorted(runs, key=lambda run: (tasks.index(run.task), rank.get(run.method, len(rank)), run.method))


def render_page(runs: Sequence[Run], title: str | None = None) -> str:
    """The whole page as text; the same runs give the same text."""
    folder = resources.files("prism_marl") / "page"
    script = "\n".join((folder / name).read_text(encoding="utf-8") for name in SCRIPTS)
    data = page_data(runs)
    heading = title or _default_title(runs)
    parts = {
        "title": html.escape(heading),
        "lede": html.escape(_lede(runs, data)),
        "style": (folder / "style.css").read_text(encoding="utf-8"),
        "script": script,
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "data": _script_safe_json(data),
    }
    template = (folder / "template.html").read_text(encoding="utf-8")
    # One pass: a title that spells a placeholder is not expanded again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def page_data(runs: Sequence[Run]) -> dict[str, Any]:
    """Everything the page draws, as plain JSON values."""
    reference = _reference_runs(runs)
    labels, dashes = run_labels(runs), dash_indices(runs)
    return {
        "version": __version__,
        "headline": _headline_index(runs),
        "runs": [
            _run_data(run, labels[index], dashes[index], reference.get(run.task), len(runs))
            for index, run in enumerate(runs)
        ],
    }


def _run_data(run: Run, label: str, dash: int, reference: Run | None, count: int) -> dict[str, Any]:
    style = method_style(run.method)
    notes = list(run.notes)
    replays = run.replays[: 4 if count <= MANY else 1]
    if len(replays) < len(run.replays):
        notes.append(f"{len(run.replays) - len(replays)} more replays are in the run folder.")
    return {
        "name": run.name,
        "task": run.task,
        "method": run.method,
        "label": label,
        "colour": [style.light, style.dark],
        "dash": dash,
        "seeds": len(run.evaluations),
        "scores": _scores(run, reference),
        "curves": _evaluation_curves(run, 200 if count <= MANY else 100),
        "training": _training_curves(run.training, 200 if count <= MANY else 60),
        "timing": _timing(run),
        "spectra": _spectra_data(run, SPECTRA_BYTES // count, notes),
        "replays": [_replay_data(replay) for replay in replays],
        "footprint": [
            {**vars(row), "colour": [method_style(row.method).light, method_style(row.method).dark]}
            for row in run.footprint
        ],
        "config": _flat(run.config),
        "machine": _flat(run.machine),
        "notes": notes,
    }


def _scores(run: Run, reference: Run | None) -> dict[str, Any] | None:
    """The end points of the return: final, best and mean height as [IQM, low, high]."""
    curves = on_common_grid(run.evaluations, "return")
    if curves is None:
        return None
    points = {
        "final": stats.final_evaluation(curves.values),
        "best": stats.best_evaluation(curves.values),
        "area": stats.area_under_curve(curves.steps, curves.values),
    }
    resamples = stats.POINT_RESAMPLES
    scores: dict[str, Any] = {
        key: list(stats.bootstrap_interval([values], seed=0, resamples=resamples)) for key, values in points.items()
    }
    scores["steps"] = curves.steps[-1]
    other = on_common_grid(reference.evaluations, "return") if reference and reference is not run else None
    if other is not None and reference is not None:
        final = stats.final_evaluation(other.values)
        scores["beaten"] = list(stats.improvement_interval(final, points["final"], seed=0))
        scores["against"] = method_style(reference.method).label
    return scores


def _evaluation_curves(run: Run, points: int) -> dict[str, Any]:
    names = [name for name in metric_names(run.evaluations) if name not in _COUNTERS]
    names.sort(key=lambda name: name != "return")
    curves = {}
    for name in names[:8]:
        grid = on_common_grid(run.evaluations, name, points)
        if grid is None:
            continue
        interval = stats.bootstrap_interval([grid.values], seed=0)
        curves[name] = {
            "x": _whole(grid.steps), "y": interval.estimate, "low": interval.low, "high": interval.high
        }  # fmt: skip
        if name == "return":
            curves[name]["seeds"] = grid.values
    return curves


def _training_curves(curves: Sequence[SeedCurve], points: int) -> dict[str, Any]:
    """Median over seeds and the full range: losses are there to be checked, not compared."""
    result = {}
    for name in metric_names(curves)[:16]:
        grid = on_common_grid(curves, name, points)
        if grid is not None:
            low, high = grid.values.min(axis=0), grid.values.max(axis=0)
            result[name] = {"x": _whole(grid.steps), "y": np.median(grid.values, axis=0), "low": low, "high": high}
    return result


def _timing(run: Run) -> dict[str, float]:
    def of(name: str, reduce: Any) -> float:
        column = run.timing.get(name, np.array([]))
        column = column[np.isfinite(column)]
        return float(reduce(column)) if column.size else math.nan

    rate, compiling = of("steps_per_second", np.median), of("compile_seconds", np.max)
    return {"seconds": of("seconds", np.sum), "rate": rate, "compile": compiling}


def _spectra_data(run: Run, budget: int, notes: list[str]) -> dict[str, Any] | None:
    """Spectra as one byte per value; seeds that do not fit the budget are left out and noted."""
    spectra, sharing = run.spectra, run.config.get("sharing")
    if spectra is None:
        return None
    by_role = isinstance(sharing, dict) and sharing.get("masks") == "role"  # masks per unit type, not per agent
    frames = evenly_spaced(spectra.steps.size, SPECTRA_FRAMES)
    per_seed = sum(frames.size * int(np.prod(layer.mask.shape[2:])) for layer in spectra.layers)
    available = spectra.layers[0].mask.shape[1]
    seeds = max(1, min(available, budget // max(per_seed, 1)))
    if seeds < available:
        notes.append(f"The page carries the spectra of {seeds} of {available} seeds; the folder has the rest.")
    return {
        "steps": _whole(spectra.steps[frames]),
        "seeds": seeds,
        "word": "role" if by_role else "agent",
        "layers": [_layer_data(layer, frames, seeds) for layer in spectra.layers],
    }


def _layer_data(layer: LayerSpectra, frames: np.ndarray, seeds: int) -> dict[str, Any]:
    mask = layer.mask[frames]
    apart = stats.mean_pairwise(stats.mask_distance(mask, layer.common))  # [frames, seeds]
    size = np.abs(layer.spectrum[frames][:, :seeds])
    top = float(size.max()) or 1.0
    # 0 means off; 1 to 255 is the size of a value that is on, in parts of the layer's largest.
    coded = np.where(mask[:, :seeds], 1 + np.rint(size / top * 254), 0).astype(np.uint8)
    return {
        "name": layer.name,
        "common": layer.common,
        "agents": mask.shape[2],
        "rank": mask.shape[3],
        "top": top,
        "bytes": base64.b64encode(coded.tobytes()).decode(),
        "apart": {"y": apart.mean(axis=1), "low": apart.min(axis=1), "high": apart.max(axis=1)},
    }


def _replay_data(replay: Replay) -> dict[str, Any]:
    frames = []
    for scene in worth_keeping(replay.frames):
        shapes = [
            [shape.kind, shape.x, shape.y, shape.size, shape.colour, str(shape.label)[:6], bool(shape.ring)]
            + ([shape.dx, shape.dy] if shape.kind == "bar" else [])
            for shape in scene.shapes
        ]
        frames.append({"caption": scene.caption, "extra": list(scene.extra.items()), "shapes": shapes})
    first = replay.frames[0]
    return {
        "title": replay.title, "score": replay.score, "width": first.width, "height": first.height,
        "grid": first.grid, "frames": frames,
    }  # fmt: skip


def _reference_runs(runs: Sequence[Run]) -> dict[str, Run]:
    """For each task the run that the others are measured against: the first Prism run."""
    return {run.task: run for run in reversed(runs) if run.method == "prism"}


def _headline_index(runs: Sequence[Run]) -> int:
    """The run the page opens with: the first Prism run that has evaluations, else the first that has any."""
    order = sorted(range(len(runs)), key=lambda i: (not runs[i].evaluations, runs[i].method != "prism", i))
    return order[0] if order else 0


def _default_title(runs: Sequence[Run]) -> str:
    tasks = list(dict.fromkeys(run.task for run in runs))
    labels = list(dict.fromkeys(method_style(run.method).label for run in runs))
    what = labels[0] if len(labels) == 1 else f"{len(labels)} sharing methods"
    return f"{what} on {tasks[0] if len(tasks) == 1 else f'{len(tasks)} tasks'}"


def _lede(runs: Sequence[Run], data: Mapping[str, Any]) -> str:
    """The result in one sentence, readable without JavaScript."""
    run = data["runs"][data["headline"]] if runs else None
    if run is None or run["scores"] is None:
        return "No evaluation has been written yet."
    value, low, high = run["scores"]["final"]
    seeds = run["seeds"]
    spread = f"95% interval {low:.3g} to {high:.3g}, {seeds} seeds" if seeds > 1 else "one seed, so no interval"
    return (
        f"{run['label']} ends at a return of {value:.3g} on {run['task']} after {run['scores']['steps']:,.0f} steps "
        f"(interquartile mean; {spread})."
    )


def _flat(value: Any, prefix: str = "") -> list[list[str]]:
    """Nested settings as [dotted name, text] rows."""
    if isinstance(value, Mapping) and prefix.count(".") < 6:
        rows = [row for key, inner in value.items() for row in _flat(inner, f"{prefix}.{key}" if prefix else str(key))]
        return rows or ([[prefix, "none"]] if prefix else [])
    text = value if isinstance(value, str) else json.dumps(value)
    return [[prefix, text[:300]]]


def _whole(steps: np.ndarray) -> list[int]:
    return [round(step) for step in steps.tolist()]


def _script_safe_json(value: Any) -> str:
    """JSON that cannot close its script element: ``<``, ``>`` and ``&`` are written as escapes."""
    text = json.dumps(_plain(value), allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain(value: Any) -> Any:
    """Arrays to lists, floats to five significant digits, NaN and infinity to null."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
