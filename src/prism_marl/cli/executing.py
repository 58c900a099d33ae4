"""Shared by ``sweep`` and ``reproduce``: the options of executors, and the summary at the end."""

import argparse
from pathlib import Path

from rich.console import Console

from prism_marl.cli.arguments import Arguments, whole
from prism_marl.reports.finals import final_of
from prism_marl.reports.load import load_run
from prism_marl.reports.merge import merge_seeds
from prism_marl.reports.outcome import final_words
from prism_marl.sweeps.executors import EXECUTORS, Executor, make_executor
from prism_marl.sweeps.grid import Sweep, SweepOutcome, folder_of, is_finished
from prism_marl.sweeps.live_view import labels


def add_executor_options(parser: Arguments) -> None:
    """Options that choose an executor."""
    parser.add_argument("--executor", default="local", help=f"{' or '.join(EXECUTORS)} (default: local)")
    parser.add_argument(
        "--jobs", type=whole, help="local: experiments at a time (default: one per GPU, or per two cores)"
    )
    parser.add_argument(
        "--address", help="ray: address of a running cluster, or auto (default: a new cluster on this machine)"
    )
    parser.add_argument("--cpus", type=whole, help="ray: cores of one experiment (default: 1)")
    parser.add_argument("--gpus", type=float, help="ray: GPUs of one experiment (default: 1 if the cluster has any)")


def chosen_executor(found: argparse.Namespace) -> Executor:
    """The executor of the options."""
    return make_executor(found.executor, jobs=found.jobs, address=found.address, cpus=found.cpus, gpus=found.gpus)


def conclude(outcome: SweepOutcome, sweep: Sweep, out: Path) -> int:
    """List the failed experiments and count the others; returns the exit code."""
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    names = {folder_of(experiment, out): label for experiment, label in labels(sweep.experiments).items()}
    for failure in outcome.failed:
        console.print(f"failed: {names[failure.folder]}: {failure.error} ({failure.folder})", style="red")
    for line in merged_finals(sweep, out):
        console.print(line)
    counts = [
        f"{len(outcome.finished)} finished",
        f"{len(outcome.skipped)} had been finished before" if outcome.skipped else "",
        f"{len(outcome.failed)} failed" if outcome.failed else "",
    ]
    console.print(f"{', '.join(filter(None, counts))}; runs are in {out}")
    return 1 if outcome.failed else 0


def merged_finals(sweep: Sweep, out: Path) -> list[str]:
    """A line for every set of finished experiments that differ in their seeds alone: the final return of all seeds."""
    folders = [folder_of(experiment, out) for experiment in sweep.experiments]
    runs = [load_run(folder, spectra_limit=0, replay_limit=0) for folder in folders if is_finished(folder)]
    lines = []
    for run in merge_seeds(runs):
        final = final_of(run.evaluations)
        if run.name in {folder.name for folder in folders} or final is None:
            continue
        lines.append(
            f"{run.task} {run.method}: final return {final_words(*final.interval(), len(final.values))} "
            f"of folders that differ in seeds alone ({run.name})"
        )
    return lines
