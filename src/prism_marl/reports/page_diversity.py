"""How far the agents of a run differ, as the page gets it: tables of distances over time, and curves."""

from typing import Any

import numpy as np

from prism_marl.reports.load import Run, on_common_grid
from prism_marl.reports.page_curves import Detail, whole
from prism_marl.runs.run_files import evenly_spaced

OF_ALL = ("snd", "snd_chance", "snd_by_matrices")  # with their range over seeds
BY_LAYER = ("private_share", "gradient_cosine")
MOST_LAYERS = 16
MOST_POINTS = 40  # of a curve; a run measures twenty times by default
MOST_CELLS = 20_000  # of the tables of a run


def diversity_data(run: Run, detail: Detail) -> dict[str, Any] | None:
    """None where the run does not tell."""
    if not run.diversity:
        return None
    names = list(dict.fromkeys(name for curve in run.diversity for name in curve.metrics))
    layers = {
        measure: [name.removeprefix(f"{measure}.") for name in names if name.startswith(f"{measure}.")][:MOST_LAYERS]
        for measure in BY_LAYER
    }
    points = min(MOST_POINTS, detail.others) if detail.replays > 1 else max(8, detail.others // 4)
    curves: dict[str, Any] = {}
    for name in [*OF_ALL, *(f"{measure}.{layer}" for measure, found in layers.items() for layer in found)]:
        grid = on_common_grid(run.diversity, name, points)
        if grid is not None:  # as training signals: the median over seeds, and their range
            curves[name] = {"x": whole(grid.steps), "y": np.median(grid.values, axis=0)}
            if name in OF_ALL:
                curves[name] |= {"low": grid.values.min(axis=0), "high": grid.values.max(axis=0)}
    return {"curves": curves, "layers": layers, "tables": distance_tables(run, points)} if curves else None


def distance_tables(run: Run, points: int = MOST_POINTS) -> dict[str, Any] | None:
    """The mean over seeds of the distances between what agents do, at all times that all seeds have."""
    found = list(run.distances.values())
    if not found or any(one.agents != found[0].agents for one in found):
        return None
    count = min(len(one.steps) for one in found)  # seeds are measured together, at slightly different steps
    frames = evenly_spaced(count, max(2, min(points, MOST_CELLS // found[0].tables[0].size)))
    return {
        "agents": list(found[0].agents),
        "steps": whole(np.mean([one.steps[:count] for one in found], axis=0)[frames]),
        "values": np.mean([one.tables[:count] for one in found], axis=0)[frames],
    }
