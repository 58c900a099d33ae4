"""How far the agents of a run differ, as the page gets it: tables of distances over time, and curves."""

from typing import Any

import numpy as np

from prism_marl.reports.load import Run, on_common_grid
from prism_marl.reports.page_curves import Detail, curve_data, whole
from prism_marl.runs.run_files import evenly_spaced

OF_ALL = ("snd", "snd_chance", "snd_by_matrices", "mask_distance")
BY_LAYER = ("private_share", "gradient_cosine", "gradients_opposed")
MOST_LAYERS = 16
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
    wanted = [*OF_ALL, *BY_LAYER, *(f"{measure}.{layer}" for measure, found in layers.items() for layer in found)]
    curves = {}
    for name in wanted:
        grid = on_common_grid(run.diversity, name, detail.others)
        if grid is not None:  # as training signals: the median over seeds and their range
            values = grid.values
            curves[name] = curve_data(grid, np.median(values, axis=0), values.min(axis=0), values.max(axis=0))
    return {"curves": curves, "layers": layers, "tables": distance_tables(run)} if curves else None


def distance_tables(run: Run) -> dict[str, Any] | None:
    """The mean over seeds of the distances between what agents do, at all times that all seeds have."""
    found = list(run.distances.values())
    if not found or any(one.agents != found[0].agents for one in found):
        return None
    count = min(len(one.steps) for one in found)  # seeds are measured together, at slightly different steps
    frames = evenly_spaced(count, max(2, MOST_CELLS // found[0].tables[0].size))
    return {
        "agents": list(found[0].agents),
        "steps": whole(np.mean([one.steps[:count] for one in found], axis=0)[frames]),
        "values": np.mean([one.tables[:count] for one in found], axis=0)[frames],
    }
