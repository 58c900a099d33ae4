"""The queue of runs behind docs/results.md, in the order of their use: what is kept, what waits, and the next slice.

    python benchmarks/evidence.py                                        # how much of the queue is kept, what is next
    python benchmarks/evidence.py --minutes 24 --side-by-side 9 --slower 2.6 --tf32   # run the next entries for so long
    python benchmarks/evidence.py --only 2 --minutes 24                  # of one section

An entry is one method on one task with five seeds. Its rows are kept in ``docs/rows/evidence/SECTION/TASK/RUN``; it is
done when its last evaluation is there, whoever ran it and wherever. A slice takes the first entries that are not done
and whose expected time fits, and runs them side by side; nine robots at once take 2.6 times as long as one alone
(docs/results.md), which ``--slower`` says. When the time is up, unfinished ones are stopped: the same
command with the same ``--out`` continues them, and a machine without that folder begins them anew. Nothing that was
kept is run again or replaced.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import learn

from prism_marl.experiment import config
from prism_marl.experiment.experiment import Experiment
from prism_marl.experiment.presets import preset
from prism_marl.paper import plan, speeds
from prism_marl.paper.performance import METHODS, ROBOTS
from prism_marl.paper.registry import TARGETS
from prism_marl.paper.scales import SCALES, resized
from prism_marl.paper.target import reproduced
from prism_marl.sharing import METHODS as METHODS_HERE

ROWS = Path(__file__).parents[1] / "docs" / "rows" / "evidence"
ALL = (*METHODS[:3], "fups_id_svd", *METHODS[3:])
BATTLES = tuple(f"skirmish/{race}_5_vs_5" for race in ("terran", "protoss", "zerg"))
LONG_TASKS = ("mamujoco/ant-4x2", BATTLES[0])
LONG = ("prism", "fups_id_svd", "kaleidoscope", "fups_id", "nops")
FIRST: dict[str, dict[str, int]] = {  # the length that comes first, and evaluations that do not cost more than training
    "lbf": {"run.steps": 3_000_000},
    "mamujoco": {"run.steps": 1_000_000, "run.eval_every": 50_000, "run.eval_episodes": 10},
    "skirmish": {"run.steps": 1_200_000, "run.eval_every": 50_000, "run.envs": 32},
}
LATER_STEPS = 3_000_000
ON_POLICY = ("prism", "fups_id_svd", "hypermarl", "kaleidoscope", "fups_id", "nops", "fups")
ON_POLICY_TASKS: dict[str, dict[str, int]] = {  # most of the physics first: it takes longest
    "mamujoco/ant-4x2": {"run.steps": 700_000, "run.eval_every": 50_000, "run.eval_episodes": 10},
    # A rollout of 3,200 steps as in the preset, but of a quarter of its length: on an accelerator it takes a quarter.
    BATTLES[0]: {
        "run.steps": 3_000_000, "run.eval_every": 100_000, "run.envs": 32, "learner.length": 100,
    },
    "mamujoco/halfcheetah-2x3": {"run.steps": 1_000_000, "run.eval_every": 50_000, "run.eval_episodes": 10},
    "lbf/10x10-3p-3f": {"run.steps": 4_000_000, "run.eval_every": 100_000},
}  # fmt: skip


WHICH: dict[str, tuple[str, dict[str, int]]] = {  # tasks of "which method when": who learns it, and for how long
    "roles/4": ("qmix", {}),
    "navigation/4-same": ("qmix", {}),
    "navigation/4-half": ("qmix", {}),
    "navigation/4-different": ("qmix", {}),
    "dispersion/4": ("mappo", {}),
    "lbf/8x8-2p-2f-coop": ("mappo", {"run.steps": 1_000_000, "run.eval_every": 100_000}),
    "warehouse/1x3-1h-2ag-3req-t100": ("mappo", {"run.steps": 2_000_000, "run.eval_every": 200_000}),
}


@dataclass(frozen=True)
class Entry:
    """One run of the queue."""

    section: str
    experiment: Experiment

    @property
    def kept(self) -> Path:
        """Where its rows are, once it is done."""
        return self.experiment.folder(ROWS / self.section)

    @property
    def done(self) -> bool:
        return learn.all_rows_there(self.kept)


def queue() -> list[Entry]:
    """All entries in order; an experiment that two sections need is run for the first of them."""
    found: dict[Experiment, Entry] = {}
    for section, experiments in sections().items():
        for experiment in experiments:
            found.setdefault(experiment, Entry(section, experiment))
    return list(found.values())


def sections() -> dict[str, list[Experiment]]:
    """The experiments of every section, most wanted first."""
    return {
        "1-robots": [made(f"mamujoco/{robot}", method) for robot in ROBOTS for method in ALL],
        "2-battles": [made(task, method) for task in BATTLES for method in ALL],
        "3-budgets": list(of_targets("fig-budgets")),
        "4-ablations": list(of_targets("fig-regularisers", "fig-common-ratio", "fig-masking")),
        "5-longer": [with_steps(made(task, method), LATER_STEPS) for task in LONG_TASKS for method in LONG],
        "6-on-policy": [on_policy(task, method) for task in ON_POLICY_TASKS for method in ON_POLICY],
        "7-which": [which(task, method) for task in WHICH for method in METHODS_HERE],
    }


def made(task: str, method: str) -> Experiment:
    """The experiment of the paper's figure with five seeds, at the length that comes first. Every section counts steps
    in the same way, so that a run serves all that need it."""
    return at_first_length(reproduced(task, method))


def on_policy(task: str, method: str) -> Experiment:
    """MAPPO with five seeds."""
    return changed(preset(task, method, learner="mappo"), ON_POLICY_TASKS[task])


def which(task: str, method: str) -> Experiment:
    """A task's preset with five seeds, for the comparison of all methods."""
    learner, options = WHICH[task]
    return changed(preset(task, method, learner=learner), options | {"run.measures": 0})  # returns are what is compared


def changed(experiment: Experiment, options: dict[str, int]) -> Experiment:
    """With five seeds and other values."""
    for path, value in ({"run.seeds": 5} | options).items():
        experiment = experiment.with_option(path, str(value))
    return experiment


def at_first_length(experiment: Experiment) -> Experiment:
    experiment = resized(experiment, SCALES["paper"])
    for path, value in FIRST[experiment.task.partition("/")[0]].items():
        experiment = experiment.with_option(path, str(value))
    return experiment


def with_steps(experiment: Experiment, steps: int) -> Experiment:
    return experiment.with_option("run.steps", str(steps))


def of_targets(*names: str) -> Iterator[Experiment]:
    """The experiments behind figures of the paper, with battles in JAX, at the length that comes first."""
    return (at_first_length(curve.experiment) for name in names for curve in TARGETS[name].curves(False))


def words_for(entry: Entry, folder: Path, tf32: bool) -> list[str]:
    """The command that trains an entry: the preset, and every field in which it differs from it."""
    experiment, learner = entry.experiment, entry.experiment.learner.algorithm
    base = dict(fields(preset(experiment.task, experiment.sharing.method, learner=learner)))
    changed = [word for path, value in fields(experiment) if value != base[path] for word in (f"--{path}", value)]
    words = ["--learner", learner, *changed, *(["--tf32"] if tf32 else [])]
    return learn.command(experiment.task, experiment.sharing.method, folder, words)


def fields(experiment: Experiment) -> Iterator[tuple[str, str]]:
    return ((path, str(value)) for path, value, _ in config.options(experiment) if "." in path)


def chosen(
    waiting: Sequence[Entry], minutes: float, lanes: int, slower: float, out: Path, unknown: float | None = None
) -> dict[Entry, float]:
    """The next entries for which there is time, with the seconds each is expected to take where ``lanes`` of them run
    at once. Each goes to the lane that is free first; one that does not fit leaves its room to later ones. ``unknown``
    are the minutes of one whose time nobody knows: all that its lane has left, if nothing is said."""
    own, known = (speeds.found_in(out) if out.is_dir() else []), speeds.recorded()
    free, found = [60 * minutes] * lanes, {}
    for entry in waiting:
        seconds, _ = plan.time_of(entry.experiment, jax.default_backend(), own, known)
        needed = slower * seconds if seconds else 60 * (unknown or 0.0)  # an unknown time is found out by running
        lane = max(range(lanes), key=lambda index: free[index])
        if needed <= free[lane] and free[lane] > 0:
            free[lane] -= needed or free[lane]
            found[entry] = needed
    return found


def run_slice(entries: Sequence[Entry], found: argparse.Namespace) -> list[Path]:
    """Run entries until they end or the time is up, and keep the rows of those that are done. Returns what failed."""
    end = time.monotonic() + 60 * found.minutes
    folders = {entry: entry.experiment.folder(found.out / entry.section) for entry in entries}
    commands = {folder: words_for(entry, folder, found.tf32) for entry, folder in folders.items()}
    failed = learn.run_all(
        commands,
        found.side_by_side,
        lambda folder: time.monotonic() > end or learn.all_rows_there(folder),
        found.cores,
        begin=lambda: time.monotonic() < end,
    )
    for entry, folder in folders.items():
        if learn.all_rows_there(folder) and not entry.done:
            learn.keep(folder, entry.kept)
            print(f"kept {entry.kept.relative_to(ROWS)}: {learn.summary(folder)}", flush=True)
    return failed


def show(entries: Sequence[Entry]) -> None:
    """How far each section is, and what comes next."""
    waiting = [entry for entry in entries if not entry.done]
    for section in dict.fromkeys(entry.section for entry in entries):
        those = [entry for entry in entries if entry.section == section]
        left = [entry for entry in those if not entry.done]
        seconds = [plan.time_of(entry.experiment, "gpu", [], speeds.recorded())[0] for entry in left]
        known = sum(found for found in seconds if found)
        text = [f"about {plan.in_words(known)} on one GPU, one after the other"] if known else []
        text += [f"{sum(not found for found in seconds)} of unknown time"] if not all(seconds) else []
        print(f"{section:<12} {len(those) - len(left):>3} of {len(those)} done; left: {', '.join(text) or 'nothing'}")
    for entry in waiting[:10]:
        run = entry.experiment.run
        print(f"next: {entry.section} {entry.kept.parent.name} {entry.kept.name}, {run.seeds} x {run.steps:,} steps")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, help="run for so long; without it the queue is only shown")
    parser.add_argument("--only", default="", help="sections that begin with this, for example 2")
    parser.add_argument("--out", type=Path, default=Path("runs/evidence"), help="folder of the whole runs")
    parser.add_argument("--side-by-side", type=int, default=1, help="runs at once")
    parser.add_argument("--cores", type=int, help="cores for each of them (default: an equal share)")
    parser.add_argument("--slower", type=float, default=1.0, help="how much longer a run takes among the others")
    parser.add_argument("--unknown", type=float, help="minutes of a run whose time is not known (default: all)")
    parser.add_argument("--tf32", action="store_true", help="products on a GPU with inputs rounded to TF32")
    found = parser.parse_args()
    entries = [entry for entry in queue() if entry.section.startswith(found.only)]
    if not entries:
        parser.error(f"--only: no section begins with '{found.only}'; there are {', '.join(sections())}")
    if found.minutes is None:
        show(entries)
        return 0
    waiting = [entry for entry in entries if not entry.done]
    able = [entry for entry in waiting if not plan.why_not(entry.experiment.task)]
    print(f"{len(entries) - len(waiting)} entries are done, {len(waiting) - len(able)} cannot run here", flush=True)
    taken = chosen(able, found.minutes, found.side_by_side, found.slower, found.out, found.unknown)
    if waiting and not taken:
        print(f"nothing of it is expected to end in {found.minutes:g} minutes; ask for more with --minutes")
    for entry, seconds in taken.items():
        print(f"runs: {entry.section} {entry.kept.name}, expected {plan.in_words(seconds or None)}", flush=True)
    return 1 if run_slice(list(taken), found) else 0


if __name__ == "__main__":
    sys.exit(main())
