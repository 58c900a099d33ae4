"""Run folders to arrays. Keeps whatever is good and says in plain English what is missing.

Nothing here raises for a damaged file: a run killed in the middle of a row is still worth looking at.
"""

import itertools
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from prism_marl.errors import UserError
from prism_marl.reports.distances import Distances, read_distances
from prism_marl.reports.field import field_of
from prism_marl.reports.rows import read_rows
from prism_marl.runs import history
from prism_marl.runs.rows import BOOKKEEPING
from prism_marl.runs.run_files import (
    FloatArray,
    FootprintRow,
    Replay,
    Spectra,
    evenly_spaced,
    load_deployment,
    load_footprint,
    load_replays,
    load_spectra,
    read_json,
)
from prism_marl.storage.files import number

LONGEST_NAME = 300  # characters of a task or a method on the page
MOST_SEEDS = 256  # of a run
MOST_SETTINGS = 500  # lines of a list of settings
_BEFORE_A_RUN = {".lock", "log.txt"}  # what a folder may hold whose experiment failed before it began


@dataclass(frozen=True)
class SeedCurve:
    """Everything one seed wrote to one file, by rising step."""

    seed: int
    steps: FloatArray  # [n]
    metrics: dict[str, FloatArray]  # each [n]; NaN where a row has no such number


@dataclass(frozen=True)
class Curves:
    """One metric of all seeds on one grid of steps."""

    steps: FloatArray  # [g]
    values: FloatArray  # [seeds, g]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Run:
    """One run folder."""

    name: str
    task: str
    method: str
    config: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    evaluations: tuple[SeedCurve, ...] = ()
    training: tuple[SeedCurve, ...] = ()
    timing: dict[str, FloatArray] = field(default_factory=dict)
    diversity: tuple[SeedCurve, ...] = ()  # how far agents differ; runs of earlier versions do not tell
    distances: dict[int, Distances] = field(default_factory=dict)  # between what agents do, for each seed
    spectra: Spectra | None = None
    replays: tuple[Replay, ...] = ()
    replays_unread: int = 0  # files beyond the limit that was asked for
    footprint: tuple[FootprintRow, ...] = ()
    deployment: dict[str, float] = field(default_factory=dict)  # what the policy of one agent costs, if it is known
    playable: dict[str, Any] | None = None  # the policy and the rules of its game, where the page can play it
    notes: tuple[str, ...] = ()


def find_runs(path: Path, *, allow_none: bool = False) -> list[Path]:
    """The run folders at or below ``path``: those that hold a ``config.json`` or an ``eval.jsonl``."""
    path = Path(path)
    if not path.is_dir():
        raise UserError(f"there is no folder {path}: give a run folder, or a folder of runs")
    found = {marker.parent for name in ("config.json", "eval.jsonl") for marker in path.rglob(name)}
    if not found and not allow_none:
        raise UserError(f"no runs in {path}: a run folder holds config.json and eval.jsonl")
    # A folder inside a run (an exported policy, say) may hold a config.json of its own: it is no run.
    return sorted(folder for folder in found if not found.intersection(folder.parents))


def empty_folders(path: Path, runs: Iterable[Path]) -> list[Path]:
    """Folders at or below ``path``, outside of runs, in which an experiment was to be and never wrote a row."""
    inside = set(runs)
    found = [Path(folder) for folder, below, files in os.walk(path) if not below and not set(files) - _BEFORE_A_RUN]
    return sorted(folder for folder in found if folder not in inside and not inside.intersection(folder.parents))


def load_runs(paths: Iterable[Path]) -> list[Run]:
    """Every run at or below the given folders, each once, in the order given."""
    folders = [folder for path in paths for folder in find_runs(path)]
    return [load_run(folder) for folder in dict.fromkeys(folders)]


def load_run(folder: Path, *, spectra_limit: int = 60, replay_limit: int = 4) -> Run:
    """One run folder; at most so many evenly spaced spectra and so many replays are read."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"there is no run folder {folder}")
    notes: list[str] = []
    config = _object(read_json(folder / "config.json", folder, notes), "config.json", notes)
    evaluations = _seed_curves(read_rows(folder / "eval.jsonl", notes), "eval.jsonl", notes)
    sharing = config.get("sharing")
    differences = folder / "diversity.jsonl"
    measured = _seed_curves(read_rows(differences, notes), differences.name, notes) if differences.exists() else ()
    replays, unread = load_replays(folder / "replays", notes, replay_limit)
    run = Run(
        name=folder.resolve().name,
        task=str(config.get("task", "unknown task"))[:LONGEST_NAME],
        method=str(sharing.get("method", "unknown"))[:LONGEST_NAME] if isinstance(sharing, dict) else "unknown",
        config=config,
        machine=_object(read_json(folder / "machine.json", folder, notes), "machine.json", notes),
        evaluations=evaluations,
        training=_seed_curves(read_rows(folder / "train.jsonl", notes), "train.jsonl", notes),
        timing=_columns(read_rows(folder / "timing.jsonl", notes)),
        diversity=measured,
        distances=read_distances(differences),
        spectra=load_spectra(folder / "spectra", [curve.steps for curve in evaluations], spectra_limit, notes),
        replays=replays,
        replays_unread=unread,
        footprint=load_footprint(folder / "footprint.json", notes),
        deployment=load_deployment(folder / "deployment.json", notes),
        playable=field_of(folder, str(config.get("task", ""))),
    )
    notes.extend(history.told(run.machine))
    notes.extend(completeness(run))
    return Run(**{**run.__dict__, "notes": tuple(notes)})


def load_evaluations(folder: Path) -> tuple[SeedCurve, ...]:
    """The evaluations of a run folder alone: quick, and silent about what is missing."""
    notes: list[str] = []
    return _seed_curves(read_rows(Path(folder) / "eval.jsonl", notes), "eval.jsonl", notes)


def load_timing(folder: Path) -> dict[str, FloatArray]:
    """The columns of a run folder's timing alone, as silently."""
    return _columns(read_rows(Path(folder) / "timing.jsonl", []))


def on_common_grid(curves: Sequence[SeedCurve], metric: str, points: int | None = None) -> Curves | None:
    """All seeds that have ``metric``, interpolated linearly onto one grid of steps; None if there are none.

    The grid is the union of the steps of all seeds, cut to the range that every seed covers: each point has
    a value of every seed, no seed is extrapolated, and the set of seeds never changes along the curve (an
    average over survivors would flatter). The union is thinned to ``points``, by default as many as the
    longest seed has.
    """
    kept = []
    for curve in curves:
        good = np.isfinite(curve.metrics.get(metric, np.full(curve.steps.shape, np.nan)))
        if good.any():
            kept.append((curve.seed, curve.steps[good], curve.metrics[metric][good]))
    if not kept:
        return None
    first, last = max(steps[0] for _, steps, _ in kept), min(steps[-1] for _, steps, _ in kept)
    union = np.unique(np.concatenate([steps for _, steps, _ in kept]))
    grid = union[(union >= first) & (union <= last)]
    if grid.size == 0:
        return None
    grid = grid[evenly_spaced(grid.size, points or max(steps.size for _, steps, _ in kept))]
    values = np.stack([np.interp(grid, steps, values) for _, steps, values in kept])
    return Curves(grid, values, tuple(seed for seed, _, _ in kept))


def metric_names(curves: Sequence[SeedCurve]) -> list[str]:
    """Every metric that at least one seed wrote, in the order of first appearance."""
    return list(dict.fromkeys(name for curve in curves for name in curve.metrics))


def flat_settings(value: Any, prefix: str = "") -> list[list[str]]:
    """Nested settings as [dotted name, text] rows."""
    if isinstance(value, Mapping) and prefix.count(".") < 6:
        some = itertools.islice(value.items(), MOST_SETTINGS)
        inner = [(f"{prefix}.{key}"[-LONGEST_NAME:] if prefix else str(key)[:LONGEST_NAME], one) for key, one in some]
        rows = [row for name, one in inner for row in flat_settings(one, name)]
        return rows[:MOST_SETTINGS] or ([[prefix, "none"]] if prefix else [])
    text = value if isinstance(value, str) else json.dumps(value)
    return [[prefix, text[:300]]]


def _object(value: Any, name: str, notes: list[str]) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        notes.append(f"{name} does not hold a JSON object and was left out.")
    return value if isinstance(value, dict) else {}


def _seed_curves(rows: list[dict[str, float]], name: str, notes: list[str]) -> tuple[SeedCurve, ...]:
    """Rows by seed. A resumed run repeats an evaluation: the later row wins."""
    by_seed: dict[int, dict[Any, tuple[float, dict[str, float]]]] = {}
    bad, surplus = 0, set[int]()
    for row in rows:
        seed, step = row.get("seed", math.nan), row.get("step", math.nan)
        if not (math.isfinite(seed) and math.isfinite(step)):
            bad += 1
            continue
        if int(seed) not in by_seed and len(by_seed) == MOST_SEEDS:
            surplus.add(int(seed))
            continue
        evaluation = row.get("evaluation", math.nan)
        key = step if math.isnan(evaluation) else ("evaluation", evaluation)
        by_seed.setdefault(int(seed), {})[key] = (step, row)
    if bad:
        notes.append(f"{bad} rows of {name} have no seed or no step and were left out.")
    if surplus:
        notes.append(f"{name} has more than {MOST_SEEDS:,} seeds; {len(surplus):,} were left out.")
    curves = []
    for seed, table in sorted(by_seed.items()):
        ordered = list(dict(sorted(table.values(), key=lambda pair: pair[0])).items())  # one row per step
        steps = np.array([step for step, _ in ordered])
        curves.append(SeedCurve(seed, steps, _columns([row for _, row in ordered], skip=BOOKKEEPING)))
    return tuple(curves)


def _columns(rows: list[dict[str, float]], skip: Sequence[str] = ()) -> dict[str, FloatArray]:
    """Rows to columns; a column without a single number is dropped."""
    names = dict.fromkeys(name for row in rows for name in row if name not in skip)
    columns = {name: np.array([row.get(name, math.nan) for row in rows]) for name in names}
    return {name: column for name, column in columns.items() if np.isfinite(column).any()}


def _numbers(values: list[Any]) -> FloatArray:
    """Each as a number, NaN where it is none; nearly always all are, and that is quick to see."""
    if set(map(type, values)) == {float}:
        return np.array(values)
    return np.array([number(value) for value in values])


def completeness(run: Run) -> list[str]:
    """What a reader of the curves should know before trusting them."""
    if not run.evaluations:
        return ["There are no evaluations, so there is no learning curve."]
    notes = []
    ends = {curve.seed: curve.steps[-1] for curve in run.evaluations}
    spacing = max((np.diff(curve.steps).max() for curve in run.evaluations if curve.steps.size > 1), default=0.0)
    settings = run.config.get("run")
    planned = settings if isinstance(settings, dict) else {}
    # Seeds go on until the slowest has its steps, so a seed that has its own is not short. All are evaluated at once:
    # one with fewer evaluations has lost some, however far apart they are.
    wanted = np.nan_to_num(number(planned.get("steps")), nan=np.inf)
    goal = min(max(ends.values()) - 1.5 * spacing, wanted)
    most = max(curve.steps.size for curve in run.evaluations)
    for curve in run.evaluations:
        seed, end = curve.seed, ends[curve.seed]
        if end < goal or (curve.steps.size < most and end < min(max(ends.values()), wanted)):
            notes.append(
                f"Seed {seed} stops at step {end:,.0f} of {max(ends.values()):,.0f}; the curves end where "
                "the shortest seed ends."
            )
    lost = sum(
        int((~np.isfinite(curve.metrics["return"])).sum()) for curve in run.evaluations if "return" in curve.metrics
    )
    if lost:
        notes.append(f"{lost} evaluations have no finite return and were left out of the curves.")
    dropped = np.nansum(run.timing.get("dropped", 0.0))
    if dropped > 0:
        notes.append(f"{dropped:,.0f} episodes were dropped because their game died or hung.")
    if len(ends) < number(planned.get("seeds")):
        notes.append(f"Only {len(ends)} of {planned['seeds']} planned seeds have rows.")
    if max(ends.values()) < 0.99 * number(planned.get("steps")):
        notes.append(f"The run is not finished: step {max(ends.values()):,.0f} of {planned['steps']:,}.")
    return notes
