"""What only several runs together show: who beats whom, and what a comparison lacks."""

from collections.abc import Sequence
from typing import Any

from prism_marl.reports import stats
from prism_marl.reports.figures import method_style
from prism_marl.reports.finals import FEWEST_SEEDS, SEED, Final, final_of, settled, why_no_winner, winner
from prism_marl.reports.load import Run

MOST_NAMED = 3  # runs in a sentence
MATRIX_RUNS = 16  # all methods of this package, once; a larger table is no longer read


def tasks_of(runs: Sequence[Run]) -> list[str]:
    """The tasks in the order of first appearance."""
    return list(dict.fromkeys(run.task for run in runs))


def improvement_tables(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """For each task with two runs or more: the chance that the run of a row beats the run of a column.

    ``table[i][j]`` is [chance, low, high] on the final return, None on the diagonal, and ``sure[i][j]`` whether that
    is more than a coin toss; ``runs`` are places in the list given, highest first, and at most ``MATRIX_RUNS``. One
    half of the table is computed: the chance of the other side is one minus it, ties counting half. ``winner`` is the
    place of the run that ends clearly highest, or None, and then ``why`` says why.
    """
    tables = []
    for task in tasks_of(runs):
        finals = {
            index: final
            for index, run in enumerate(runs)
            if run.task == task and (final := final_of(run.evaluations)) is not None
        }
        if len(finals) < 2:
            continue
        order = sorted(finals, key=lambda index: -stats.interquartile_mean(finals[index].values))
        best = winner([finals[index] for index in order])
        tables.append(
            {"task": task, "of": len(finals)}
            | _matrix([finals[index] for index in order[:MATRIX_RUNS]])
            | {"runs": order[:MATRIX_RUNS], "winner": None if best is None else order[best]}
            | {"why": "" if best is not None else why_no_winner(list(finals.values()))}
        )
    return tables


def _matrix(finals: Sequence[Final]) -> dict[str, Any]:
    table: list[list[Any]] = [[None] * len(finals) for _ in finals]
    sure = [[False] * len(finals) for _ in finals]
    for row, ours in enumerate(finals):
        for column, theirs in enumerate(finals[:row]):
            chance, low, high = stats.improvement_interval(ours.values, theirs.values, seed=SEED)
            table[row][column] = [chance, low, high]
            table[column][row] = [1 - chance, 1 - high, 1 - low]
            sure[row][column] = sure[column][row] = settled([chance, low, high], ours, theirs)
    return {"table": table, "sure": sure}


def few_seeds(runs: Sequence[Run], labels: Sequence[str]) -> str:
    """One sentence that says what runs of few seeds do not show; empty where all have enough."""
    counted = [(len(run.evaluations), f"{label} on {run.task}") for run, label in zip(runs, labels, strict=True)]
    few = [(count, who) for count, who in counted if 0 < count < FEWEST_SEEDS]
    if not few:
        return ""
    if len(runs) == 1:
        seeds = "one seed" if few[0][0] == 1 else f"{few[0][0]} seeds"
        return (
            f"This run has {seeds}: with fewer than five, its numbers do not show how the method does on other seeds, "
            "or that it is better or worse than another method."
        )
    rest = len(few) - MOST_NAMED
    named = ", ".join(who for _, who in few[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
    which = f"All {len(runs)} runs" if len(few) == len(runs) else f"{len(few)} of {len(runs)} runs ({named})"
    return (
        f"{which} {'has' if len(few) == 1 else 'have'} fewer than five seeds: their numbers do not show how a method "
        "does on other seeds, or that it is better or worse than another method."
    )


def missing(
    runs: Sequence[Run], labels: Sequence[str], notes: Sequence[Sequence[str]], empty: Sequence[str]
) -> list[dict[str, Any]]:
    """What a reader should know before trusting the page, as {who, what} with the same words gathered."""
    found = [{"who": "The comparison", "what": what} for what in _gaps(runs, empty)]
    for run, label, said in zip(runs, labels, notes, strict=True):
        found += [{"who": f"{label} on {run.task}, folder {run.name}", "what": what} for what in said]
    gathered: dict[str, list[str]] = {}
    for note in found:
        gathered.setdefault(note["what"], []).append(note["who"])
    return [{"what": what, "who": who} for what, who in gathered.items()]


def _gaps(runs: Sequence[Run], empty: Sequence[str]) -> list[str]:
    """Folders without a run, methods that one task has and another has not, and unequal numbers of seeds and steps."""
    gaps = [f"The folder {folder} holds no run: its experiment never wrote a file." for folder in empty]
    if not runs:
        gaps.append("There are no runs, so there is nothing to draw.")
    methods = list(dict.fromkeys(run.method for run in runs))
    for task in tasks_of(runs):
        members = [run for run in runs if run.task == task]
        lacking = [
            method_style(m).label for m in methods if m not in {run.method for run in members if run.evaluations}
        ]
        if lacking and len(methods) > 1:
            gaps.append(f"{task} has no evaluations of {', '.join(lacking)}.")
        seeds = {len(run.evaluations) for run in members if run.evaluations}
        if len(seeds) > 1:
            gaps.append(
                f"On {task} runs have {min(seeds)} to {max(seeds)} seeds: intervals of few seeds are too narrow."
            )
        gaps += _unequal_lengths(task, members)
    return gaps


def _unequal_lengths(task: str, members: Sequence[Run]) -> list[str]:
    """Final returns taken at very different steps do not compare."""
    ends = [min(curve.steps[-1] for curve in run.evaluations) for run in members if run.evaluations]
    if not ends or min(ends) >= 0.9 * max(ends):
        return []
    between = f"between step {min(ends):,.0f} and {max(ends):,.0f}"
    return [f"On {task} runs end {between}: their final returns come after different amounts of training."]
