"""What the page draws, from loaded runs to plain values. The more runs, the less detail each of them brings."""

import base64
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from prism_marl import __version__
from prism_marl.reports import stats
from prism_marl.reports.comparison import improvement_tables, missing
from prism_marl.reports.field import give_room, with_common
from prism_marl.reports.figures import COLOURS, dash_indices, method_style, run_labels
from prism_marl.reports.finals import SEED, final_of
from prism_marl.reports.load import (
    Run,
    SeedCurve,
    empty_folders,
    find_runs,
    flat_settings,
    load_run,
    metric_names,
    on_common_grid,
)
from prism_marl.reports.merge import merge_seeds
from prism_marl.reports.start import mask_sentences
from prism_marl.runs.run_files import LayerSpectra, Replay, evenly_spaced, worth_keeping

HEADLINE = "prism"  # the method whose run stands first, where several were trained
SPECTRA_FRAMES = 60
SPECTRA_BYTES = 2_000_000  # for all runs of a page together
FEW = 16  # up to so many runs bring much detail
REPLAY_SHAPES = 120_000  # the same for replays: shapes of all frames, some 6 MB
_COUNTERS = ("episodes", "updates")  # numbers in an evaluation row that are not worth a curve


@dataclass(frozen=True)
class Study:
    """The runs of one page, in reading order, and the folders that hold nothing."""

    runs: tuple[Run, ...]
    empty: tuple[str, ...] = ()

    @cached_property
    def improvement(self) -> list[dict[str, Any]]:
        """Who beats whom, for the page and for its figures."""
        return improvement_tables(self.runs)


@dataclass(frozen=True)
class Detail:
    """How much one run may bring to a page of so many."""

    returns: int  # points of the return's curve
    others: int  # points of every other curve
    replays: int
    frames: int  # of the spectra
    spectra: int  # bytes


def detail_for(count: int) -> Detail:
    """Few runs bring everything; four hundred still fit into a page that opens at once."""
    few = count <= FEW
    others = 200 if few else max(20, min(60, 4000 // count))
    frames = SPECTRA_FRAMES if few else max(8, min(SPECTRA_FRAMES, 1200 // count))
    return Detail(200 if few else 100, others, 4 if few else 1, frames, SPECTRA_BYTES // max(count, 1))


def load_study(paths: Sequence[Path]) -> Study:
    """Every run at or below the given folders, each once; those that differ in seeds alone as one."""
    found = [folder for path in paths for folder in find_runs(path, allow_none=True)]
    folders = list(dict.fromkeys(folder.resolve() for folder in found))  # each once, links or not
    detail = detail_for(len(folders))
    names = unique_names(folders)
    runs = [
        replace(load_run(folder, spectra_limit=detail.frames, replay_limit=detail.replays), name=name)
        for folder, name in zip(folders, names, strict=True)
    ]
    # Named from the given folder on: a page that is shown around need not tell where on a disk it was made.
    empty: dict[Path, str] = {}
    for path in map(Path, paths):
        for folder in empty_folders(path, found):
            empty.setdefault(folder.resolve(), str(Path(path.resolve().name) / folder.relative_to(path)))
    return Study(tuple(in_reading_order(merge_seeds(runs))), tuple(empty.values()))


def unique_names(folders: Sequence[Path]) -> list[str]:
    """The last part of each path, and as many parts before it as it takes to tell equal ones apart."""
    lengths = [1] * len(folders)
    while True:
        names = ["/".join(folder.parts[-length:]) for folder, length in zip(folders, lengths, strict=True)]
        often = Counter(names)
        longer = [
            min(length + (often[name] > 1), len(folder.parts))
            for folder, name, length in zip(folders, names, lengths, strict=True)
        ]
        if longer == lengths:
            return names
        lengths = longer


def in_reading_order(runs: Sequence[Run]) -> list[Run]:
    """Runs by task, and within a task by method, Prism first, so that every page lists them alike."""
    tasks = {task: index for index, task in enumerate(dict.fromkeys(run.task for run in runs))}
    rank = {method: index for index, method in enumerate(COLOURS)}
    return sorted(runs, key=lambda run: (tasks[run.task], rank.get(run.method, len(rank)), run.method))


def headline_index(runs: Sequence[Run]) -> int:
    """The run the page opens with: the first Prism run that has evaluations, else the first that has any."""
    order = sorted(range(len(runs)), key=lambda i: (not runs[i].evaluations, runs[i].method != HEADLINE, i))
    return order[0] if order else 0


def page_data(study: Study, figures: Mapping[str, str]) -> dict[str, Any]:
    """Everything the page draws, as values that JSON knows; ``figures`` are the files it links to."""
    runs = study.runs
    labels, dashes, detail = run_labels(runs), dash_indices(runs), detail_for(len(runs))
    room = [REPLAY_SHAPES]
    described = [_run_data(run, labels[i], dashes[i], detail, room) for i, run in enumerate(runs)]
    first = headline_index(runs)
    fields = give_room([run.playable for run in runs], first)
    for one, run, field in zip(described, runs, fields, strict=True):
        one["field"] = field and with_common(field, run.spectra)
    return {
        "version": __version__,
        "headline": first,
        "runs": described,
        "improvement": study.improvement,
        "winners": [_named(table, described) for table in study.improvement],
        "missing": missing(study.runs, labels, [one["notes"] for one in described], study.empty),
        "figures": dict(figures),
    }


def _named(table: Mapping[str, Any], described: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Who is said to win a task; nobody where the seeds do not say so, and why."""
    best = table["winner"]
    family = None if best is None else described[best]["family"]
    return {"task": table["task"], "run": best, "family": family, "why": table["why"]}


def _run_data(run: Run, label: str, dash: int, detail: Detail, room: list[int]) -> dict[str, Any]:
    style = method_style(run.method)
    notes = list(run.notes)
    return {
        "name": run.name,
        "task": run.task,
        "method": run.method,
        "label": label,
        "family": style.label,
        "colour": [style.light, style.dark],
        "dash": dash,
        "seeds": len(run.evaluations),
        "scores": _scores(run),
        "curves": _evaluation_curves(run, detail),
        "training": _training_curves(run.training, detail.others),
        "timing": _timing(run),
        "spectra": _spectra_data(run, detail, notes),
        "replays": _replays(run, room, notes),
        "footprint": [
            {**vars(row), "colour": [method_style(row.method).light, method_style(row.method).dark]}
            for row in run.footprint
        ],
        "deployment": run.deployment,
        "config": flat_settings(run.config),
        "machine": flat_settings({name: fact for name, fact in run.machine.items() if name != "segments"}),
        "notes": notes,
    }


def _scores(run: Run) -> dict[str, Any] | None:
    """The end points of the return: final, best and mean height as [IQM, low, high]."""
    curves = on_common_grid(run.evaluations, "return")
    if curves is None:
        return None
    final = final_of(run.evaluations)
    assert final is not None  # there are curves
    points = {"best": stats.best_evaluation(curves.values), "area": stats.area_under_curve(curves.steps, curves.values)}
    resamples = stats.POINT_RESAMPLES
    scores: dict[str, Any] = {
        key: list(stats.bootstrap_interval([values], seed=SEED, resamples=resamples)) for key, values in points.items()
    }
    return {"final": list(final.interval()), **scores, "steps": final.step}


def _evaluation_curves(run: Run, detail: Detail) -> dict[str, Any]:
    names = [name for name in metric_names(run.evaluations) if name not in _COUNTERS]
    names.sort(key=lambda name: name != "return")
    curves = {}
    for name in names[:8]:
        grid = on_common_grid(run.evaluations, name, detail.returns if name == "return" else detail.others)
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


def _spectra_data(run: Run, detail: Detail, notes: list[str]) -> dict[str, Any] | None:
    """Spectra as one byte per value; seeds and times that do not fit are left out and noted."""
    spectra, sharing = run.spectra, run.config.get("sharing")
    if spectra is None:
        return None
    by_role = isinstance(sharing, dict) and sharing.get("masks") == "role"  # masks per unit type, not per agent
    per_frame = max(1, sum(int(np.prod(layer.mask.shape[2:])) for layer in spectra.layers))
    frames = evenly_spaced(spectra.steps.size, max(2, min(detail.frames, detail.spectra // per_frame)))
    available = spectra.layers[0].mask.shape[1]
    seeds = max(1, min(available, detail.spectra // (per_frame * frames.size)))
    if seeds < available:
        notes.append(f"The page carries the spectra of {seeds} of {available} seeds; the folder has the rest.")
    return {
        "steps": _whole(spectra.steps[frames]),
        "seeds": seeds,
        "word": "role" if by_role else "agent",
        "start": mask_sentences(spectra, "role" if by_role else "agent"),
        "layers": [_layer_data(layer, frames, seeds) for layer in spectra.layers],
    }


def _layer_data(layer: LayerSpectra, frames: np.ndarray, seeds: int) -> dict[str, Any]:
    mask = layer.mask[frames]
    apart = stats.mean_mask_distance(mask, layer.common)  # [frames, seeds]
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


def _replays(run: Run, room: list[int], notes: list[str]) -> list[dict[str, Any]]:
    """The run's episodes as far as the page has room for them; ``room`` is what all runs share."""
    kept = []
    for replay in run.replays:
        frames = worth_keeping(replay.frames)
        room[0] -= sum(len(frame.shapes) for frame in frames)
        if room[0] >= 0:
            kept.append(_replay_data(replay, frames))
    left = len(run.replays) + run.replays_unread - len(kept)
    if left:
        notes.append(f"{left} more replays are in the run folder.")
    return kept


def _replay_data(replay: Replay, scenes: Sequence[Any]) -> dict[str, Any]:
    frames = []
    for scene in scenes:
        shapes = [
            [shape.kind, shape.x, shape.y, shape.size, shape.colour, str(shape.label)[:6], bool(shape.ring)]
            + ([shape.dx, shape.dy] if shape.kind == "bar" else [])
            for shape in scene.shapes
        ]
        frames.append({"caption": scene.caption, "extra": list(scene.extra.items()), "shapes": shapes})
    first = replay.frames[0]
    return {
        "title": replay.title, "score": replay.score, "width": first.width, "height": first.height,
        "grid": first.grid, "legend": first.legend, "frames": frames,
    }  # fmt: skip


def _whole(steps: np.ndarray) -> list[int]:
    return [round(step) for step in steps.tolist()]
