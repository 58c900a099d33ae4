"""Runs that differ only in their seeds are one run: a cluster may train one seed for each job."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from prism_marl.reports.load import Run, completeness
from prism_marl.runs.run_files import LayerSpectra, Spectra

SEEDS = ("seed", "seeds")  # fields of ``run`` that say which seeds a folder has
AS_FAR = 0.9  # a run that ended before this share of the longest one's steps stays apart: it would cut all curves
MOST_NAMED = 3
MOST_REPLAYS = 4


def merge_seeds(runs: Sequence[Run]) -> list[Run]:
    """The runs, those together that differ in their seeds alone and have no seed in common, where the first of them
    stood."""
    groups: list[list[Run]] = []
    keys: list[str | None] = []
    for run in runs:
        key = _key(run)
        fitting = (place for place, other in enumerate(keys) if other == key and _go_together(groups[place], run))
        place = None if key is None else next(fitting, None)
        if place is None:
            groups.append([run])
            keys.append(key)
        else:
            groups[place].append(run)
    return [merged(group) for group in groups]


def _key(run: Run) -> str | None:
    """All settings but the seeds; None for a folder that has no settings or no rows."""
    settings = run.config.get("run")
    if not isinstance(settings, dict) or not run.evaluations:
        return None
    rest = {name: value for name, value in settings.items() if name not in SEEDS}
    return json.dumps({**run.config, "run": rest}, sort_keys=True)


def _go_together(group: Sequence[Run], run: Run) -> bool:
    """Whether a run has other seeds than a group and has come about as far."""
    taken = {curve.seed for member in group for curve in member.evaluations}
    ends = [_end(member) for member in (*group, run)]
    return not taken.intersection(curve.seed for curve in run.evaluations) and min(ends) >= AS_FAR * max(ends)


def _end(run: Run) -> float:
    return float(min(curve.steps[-1] for curve in run.evaluations))


def merged(group: Sequence[Run]) -> Run:
    """One run with the seeds of all."""
    if len(group) == 1:
        return group[0]
    first = min(group, key=lambda run: min(curve.seed for curve in run.evaluations))
    evaluations = tuple(sorted((curve for run in group for curve in run.evaluations), key=lambda curve: curve.seed))
    training = tuple(sorted((curve for run in group for curve in run.training), key=lambda curve: curve.seed))
    settings = {**first.config["run"], "seed": evaluations[0].seed, "seeds": len(evaluations)}
    replays = [replay for run in group for replay in run.replays]
    made = replace(
        first,
        name=_name([run.name for run in group]),
        config={**first.config, "run": settings},
        evaluations=evaluations,
        training=training,
        timing=_joined_timing(group),
        diversity=tuple(sorted((curve for run in group for curve in run.diversity), key=lambda curve: curve.seed)),
        distances={seed: table for run in group for seed, table in run.distances.items()},
        spectra=_joined_spectra(group),
        replays=tuple(replays[:MOST_REPLAYS]),
        replays_unread=len(replays[MOST_REPLAYS:]) + sum(run.replays_unread for run in group),
    )
    said = dict.fromkeys(note for run in group for note in run.notes)
    own = {note for run in group for note in completeness(run)}
    return replace(made, notes=(*(note for note in said if note not in own), *completeness(made)))


def _name(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMED
    return " + ".join(names[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _joined_timing(group: Sequence[Run]) -> dict[str, Any]:
    names = dict.fromkeys(name for run in group for name in run.timing)
    return {name: np.concatenate([run.timing[name] for run in group if name in run.timing]) for name in names}


def _joined_spectra(group: Sequence[Run]) -> Spectra | None:
    """The spectra of all seeds where all folders have them at the same evaluations, else those of the first that has
    any."""
    found = [run.spectra for run in group if run.spectra is not None]
    if not found:
        return None
    shapes = [[(layer.name, layer.mask.shape[:1] + layer.mask.shape[2:]) for layer in one.layers] for one in found]
    if len(found) < len(group) or any(shape != shapes[0] for shape in shapes):
        return found[0]
    layers = [
        LayerSpectra(
            parts[0].name,
            min(part.common for part in parts),
            np.concatenate([part.spectrum for part in parts], axis=1),
            np.concatenate([part.mask for part in parts], axis=1),
        )
        for parts in zip(*(one.layers for one in found), strict=True)
    ]
    return Spectra(np.mean([one.steps for one in found], axis=0), tuple(layers))
