"""Every figure of the page as PNG and PDF, drawn from the same runs by the same statistics."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from prism_marl.reports import comparison_figures, diversity_figures, figures
from prism_marl.reports.load import Run, metric_names
from prism_marl.reports.page_curves import FEW
from prism_marl.reports.page_data import headline_index

SIZED_TASKS = 4  # sizes differ little between the tasks of a family
DEEP_RUNS = 3  # so many runs get the figures that look inside a run


Draw = Callable[[], Figure]


class Planned(NamedTuple):
    """A figure that the page links to."""

    key: str  # by which the page's script asks for it
    stem: str  # of the files
    draw: Draw


def planned_figures(runs: Sequence[Run], tables: Sequence[dict[str, Any]]) -> list[Planned]:
    """The figures of a page of these runs and their tables of improvement; nothing is drawn yet."""
    wanted = [*_compared(runs, tables), *_inside(runs)]
    taken: set[str] = set()
    return [Planned(key, _file_name(name, taken), draw) for key, name, draw in wanted]


def write_figures(plans: Iterable[Planned], folder: Path) -> list[Path]:
    """Draw them all; the files written."""
    return [path for planned in plans for path in figures.save_figure(planned.draw(), folder / planned.stem)]


def _compared(runs: Sequence[Run], tables: Sequence[dict[str, Any]]) -> Iterable[tuple[str, str, Draw]]:
    """One panel per task in each."""
    if any(run.evaluations for run in runs):
        yield "learning", "curves", partial(figures.learning_curves, runs)
    if tables:
        yield "scores", "finals", partial(comparison_figures.final_returns, runs, tables)
        yield "improvement", "improvement", partial(comparison_figures.improvement_matrices, runs, tables)
    sized = list({run.task: run for run in reversed(runs) if run.footprint}.values())[::-1]
    if sized:
        yield "footprint", "footprint", partial(comparison_figures.footprints, sized[:SIZED_TASKS])


def _inside(runs: Sequence[Run]) -> Iterable[tuple[str, str, Draw]]:
    """Spectra and training signals of the runs that show most: the headline, then those with spectra."""
    first = headline_index(runs)
    order = sorted(range(len(runs)), key=lambda index: (index != first, runs[index].spectra is None, index))
    few = len(runs) <= FEW
    for index in order[: DEEP_RUNS if few else 1]:
        run = runs[index]
        for layer in (run.spectra.layers if few else [figures.widest_layer(run.spectra)]) if run.spectra else ():
            key = f"spectrum:{index}:{layer.name}"
            yield (
                key,
                f"spectrum-{run.name}-{layer.name}",
                partial(comparison_figures.spectrum_over_time, run, layer.name),
            )
        if run.diversity:
            yield f"diversity:{index}", f"diversity-{run.name}", partial(diversity_figures.differences, run)
        if metric_names(run.training):
            yield f"training:{index}", f"training-{run.name}", partial(comparison_figures.training_signals, run)


def _file_name(name: str, taken: set[str]) -> str:
    """A name that every file system takes, and no second figure has."""
    plain = re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip("-.")[:80] or "figure"
    unique, count = plain, 1
    while unique.lower() in taken:
        count += 1
        unique = f"{plain}-{count}"
    taken.add(unique.lower())
    return unique
