"""What the page draws, from loaded runs to plain values. The more runs, the less detail each of them brings."""

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from prism_marl import __version__
from prism_marl.reports import stats
from prism_marl.reports.comparison import few_seeds, improvement_tables, missing
from prism_marl.reports.field import give_room, with_common
from prism_marl.reports.figures import COLOURS, dash_indices, method_style, run_labels
from prism_marl.reports.finals import FEWEST_SEEDS
from prism_marl.reports.load import Run, empty_folders, find_runs, flat_settings, load_run
from prism_marl.reports.merge import merge_seeds
from prism_marl.reports.page_curves import (
    MOST_SINGLE,
    Detail,
    detail_for,
    evaluation_curves,
    scores,
    timing,
    training_curves,
    whole,
)
from prism_marl.reports.page_diversity import diversity_data
from prism_marl.reports.start import mask_sentences
from prism_marl.runs.run_files import LayerSpectra, Replay, evenly_spaced, worth_keeping

HEADLINE = "prism"  # the method whose run stands first, where several were trained
REPLAY_SHAPES = 120_000  # for all runs of a page together: shapes of all frames, some 6 MB


@dataclass(frozen=True)
class Study:
    """The runs of one page, in reading order, and the folders that hold nothing."""

    runs: tuple[Run, ...]
    empty: tuple[str, ...] = ()

    @cached_property
    def improvement(self) -> list[dict[str, Any]]:
        """Who beats whom, for the page and for its figures."""
        return improvement_tables(self.runs)


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
        "fewest": FEWEST_SEEDS,
        "single": MOST_SINGLE,
        "warning": few_seeds(runs, labels),
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
        "scores": scores(run),
        "curves": evaluation_curves(run, detail),
        "training": training_curves(run.training, detail.others),
        "timing": timing(run),
        "diversity": diversity_data(run, detail),
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
        "steps": whole(spectra.steps[frames]),
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
