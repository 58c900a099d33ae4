"""How many steps until a team that has grown, or a robot with a damaged leg, is as good as one trained from scratch?

    python benchmarks/grow_team.py train --study team --out runs/grow     # five seeds; continues where it stopped
    python benchmarks/grow_team.py train --study leg --out runs/leg --side-by-side 4
    python benchmarks/grow_team.py train --out runs/tiny --tiny           # the same in a minute, to see that it works
    python benchmarks/grow_team.py rows --out runs/grow --keep docs/rows/NAME    # one JSON line for each seed
    python benchmarks/grow_team.py draw --keep docs/rows/NAME --picture docs/pictures/NAME.png   # figure and table

``team``: three foragers become five and eight, with room for eight in observation and id (``-places8``), so that
networks keep their sizes. ``leg``: the motors of one leg keep a quarter of their torque. Every method trains the first
task; then it goes on from there and begins anew (``scratch``), with equal settings and budgets. Going on, Prism and
LoRASA learn private numbers alone (``private``, which is ``--freeze shared``), and Prism, as a control, everything
(``all``). NoPS shares nothing and FuPS+ID has nothing private, so these learn all. A seed has recovered at the first
evaluation whose return reaches ``SHARE`` of the interquartile mean with which the same method ends from scratch on that
task.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import learn
import numpy as np

from prism_marl import api, envs
from prism_marl.experiment.experiment import Experiment
from prism_marl.reports.figures import method_style
from prism_marl.reports.finals import final_of
from prism_marl.reports.load import SeedCurve, load_evaluations
from prism_marl.reports.stats import interquartile_mean
from prism_marl.sharing.footprint import footprint

SHARE = 0.9
STARTS = {  # of a method's runs on a later task
    "prism": ("private", "all", "scratch"),
    "lorasa": ("private", "scratch"),
    "nops": ("all", "scratch"),
    "fups_id": ("all", "scratch"),
}
FREEZE = {"private": "shared", "all": "nothing"}
LEARNS = {"private": "private numbers", "all": "everything"}


@dataclass(frozen=True)
class Study:
    """A first task and those that follow it."""

    first: str
    later: tuple[str, ...]
    steps: tuple[int, int]  # of the first task and of every later one
    every: int  # steps between evaluations
    episodes: int
    options: dict[str, str] = field(default_factory=dict)


TINY = {"width": "8", "envs": "4"}
LBF = {"learner": "mappo"}
TEAM, LEG = "lbf/{}-{}p-{}f-places8", "mamujoco/halfcheetah-2x3"
STUDIES = {
    "team": Study(
        TEAM.format("5x5", 3, 1), tuple(TEAM.format("5x5", n, 1) for n in (5, 8)), (1_000_000, 300_000), 25_000, 50, LBF
    ),
    "leg": Study(LEG, (f"{LEG}-damaged0",), (200_000, 150_000), 10_000, 5, {"envs": "10", "learner.warmup": "5000"}),
}
TINY_STUDIES = {
    "team": Study(
        TEAM.format("5x5", 3, 1),
        tuple(TEAM.format("5x5", n, 1) for n in (5, 8)),
        (400, 200),
        100,
        4,
        TINY | LBF,
    ),
    "leg": Study(
        LEG,
        (f"{LEG}-damaged0",),
        (600, 400),
        200,
        1,
        TINY
        | {
            "learner.warmup": "200",
            "learner.critic_width": "8",
            "learner.batch": "4",
            "learner.buffer": "64",
            "learner.train_interval": "10",
        },
    ),
}


@dataclass(frozen=True)
class Case:
    """One run of a study."""

    method: str
    task: str
    start: str  # "first", or one of ``STARTS``

    @property
    def name(self) -> str:
        return f"{self.method}-{self.task.partition('/')[2]}-{self.start}"


def first_of(study: Study, method: str) -> Case:
    """The run that a method's later ones go on from."""
    return Case(method, study.first, "first")


def later_of(study: Study, methods: list[str]) -> Iterator[Case]:
    """All runs that follow the first ones."""
    return (Case(method, task, start) for method in methods for task in study.later for start in STARTS[method])


def command(case: Case, study: Study, out: Path, seeds: int) -> list[str]:
    """What a user would type."""
    steps = study.steps[case.start != "first"]
    words = {
        "seeds": seeds,
        "steps": steps,
        "eval-every": study.every,
        "eval-episodes": study.episodes,
        "save-every": 1000,
    }
    if case.method == "lorasa":  # both phases, where it begins anew
        words["sharing.switch_step"] = steps // 2
    if case.start in FREEZE:
        words |= {"from": out / first_of(study, case.method).name, "freeze": FREEZE[case.start]}
    extra = [text for name, value in (words | study.options).items() for text in (f"--{name}", str(value))]
    return learn.command(case.task, case.method, out / case.name, extra)


def train(out: Path, study: Study, methods: list[str], seeds: int, side_by_side: int, cores: int | None) -> list[Path]:
    """All runs that are not finished; the folders of those that failed."""
    failed: list[Path] = []
    for cases in ([first_of(study, method) for method in methods], list(later_of(study, methods))):
        left = [case for case in cases if not (out / case.name / "done").exists()]
        ready = [
            case
            for case in left
            if case.start in ("first", "scratch") or (out / first_of(study, case.method).name / "done").exists()
        ]
        commands = {out / case.name: command(case, study, out, seeds) for case in ready}
        if commands:
            failed += learn.run_all(commands, side_by_side, lambda folder: False, cores)
    return failed


def rows(out: Path, study: Study, methods: list[str]) -> list[dict[str, Any]]:
    """One row for each seed of each case; ``steps_to_recover`` is null where a seed never does."""
    found: list[dict[str, Any]] = []
    for case in later_of(study, methods):
        scratch, folder = (
            final_of(load_evaluations(out / Case(case.method, case.task, "scratch").name)),
            out / case.name,
        )
        if scratch is None or not (folder / "eval.jsonl").exists():
            continue
        target = SHARE * float(interquartile_mean(scratch.values))
        run = api.load_run(folder)
        machine = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
        private = private_numbers(run.experiment)
        for curve in load_evaluations(folder):
            found.append(
                {
                    "method": case.method,
                    "task": case.task,
                    "start": case.start,
                    "seed": curve.seed,
                    "target": round(target, 6),
                    "steps_to_recover": steps_to(curve, target),
                    "private_per_agent": private,
                    "curve": curve_of(curve),
                    "commit": machine.get("commit"),
                    "device": machine.get("device"),
                }
            )
    return found


def curve_of(curve: SeedCurve) -> list[list[float]]:
    """Steps and returns, shortened."""
    pairs = zip(curve.steps, curve.metrics["return"], strict=True)
    return [[float(step), round(float(value), 6)] for step, value in pairs]


def steps_to(curve: SeedCurve, target: float) -> float | None:
    """The step of the first evaluation whose return reaches a target."""
    reached = np.flatnonzero(curve.metrics["return"] >= target)
    return float(curve.steps[reached[0]]) if reached.size else None


def private_numbers(experiment: Experiment) -> float:
    """Numbers that belong to one agent alone."""
    spec = envs.describe(experiment.task)
    learner = experiment.learner.learner(experiment.sharing, spec, width=experiment.network.width)
    return footprint(jax.eval_shape(learner.build_agent, jax.random.key(0))).private / spec.agents


LINES = {"private": "-", "all": "--", "scratch": ":"}
SAID = {"private": "private numbers go on", "all": "everything goes on", "scratch": "from scratch"}


def draw(found: list[dict[str, Any]], picture: Path) -> None:
    """Curves of every later task, dotted where a team began anew; and the last returns of those that went on, over the
    private numbers of one agent."""
    from matplotlib.figure import Figure

    tasks = list(dict.fromkeys(row["task"] for row in found))
    figure = Figure(figsize=(3.6 * (len(tasks) + 1), 4.2), layout="constrained")
    *panels, right = figure.subplots(1, len(tasks) + 1)
    for place, (task, panel) in enumerate(zip(tasks, panels, strict=True)):
        panel.set_title(task, fontsize=8)
        panel.set_xlabel("thousand environment steps")
        for method, start, own in groups(found, task):
            style = method_style(method)
            steps, values = mean_curve(own)
            label = f"{style.label}, {SAID[start]}"
            panel.plot(steps / 1000, values, color=style.light, linestyle=LINES[start], label=label)
            if start in FREEZE:
                numbers = 1 + own[0]["private_per_agent"]  # a method without any has a place on the axis, too
                fill = style.light if start == "private" else "none"
                right.scatter(numbers, values[-1], edgecolors=style.light, color=fill, marker="os^v"[place % 4])
    panels[0].set_ylabel("return, interquartile mean")
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize=6, ncols=3, loc="outside lower center")
    right.set_title("filled: private numbers alone were learned", fontsize=8)
    right.set_xscale("log")
    right.set_xlabel("private numbers of an agent, plus one")
    right.set_ylabel("last return of those that went on")
    figure.savefig(picture, dpi=130)


def table(found: list[dict[str, Any]]) -> str:
    """The same in numbers, as markdown; steps in thousands."""
    lines = [
        "| task | method | private numbers of an agent | what learns | return at once | last return "
        "| from scratch | steps to recover, each seed | from scratch |",
        "|---|---|--:|---|--:|--:|--:|---|---|",
    ]
    for task in dict.fromkeys(row["task"] for row in found):
        sets = {(method, start): own for method, start, own in groups(found, task)}
        for (method, start), own in sets.items():
            scratch = sets.get((method, "scratch"))
            if start not in FREEZE or scratch is None:
                continue
            returns = mean_curve(own)[1]
            cells = [
                task,
                method_style(method).label,
                f"{own[0]['private_per_agent']:,.0f}",
                LEARNS[start],
                *(f"{value:.3g}" for value in (returns[0], returns[-1], mean_curve(scratch)[1][-1])),
                recovered(own),
                recovered(scratch),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def groups(found: list[dict[str, Any]], task: str) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """The seeds of each method and start."""
    for method, starts in STARTS.items():
        for start in starts:
            own = [row for row in found if (row["task"], row["method"], row["start"]) == (task, method, start)]
            if own:
                yield method, start, own


def mean_curve(own: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """The interquartile mean of some seeds at each evaluation, up to the last one that all have."""
    count = min(len(row["curve"]) for row in own)
    curves = np.array([row["curve"][:count] for row in own])
    return curves[:, :, 0].mean(axis=0), np.array([float(interquartile_mean(column)) for column in curves[:, :, 1].T])


def recovered(own: list[dict[str, Any]]) -> str:
    """When each seed reached the target, in thousands of steps."""
    steps = sorted((row["steps_to_recover"] for row in own), key=lambda step: math.inf if step is None else step)
    return " ".join("never" if step is None else f"{step / 1000:.0f}k" for step in steps)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "rows", "draw"))
    parser.add_argument("--study", choices=list(STUDIES), default="team")
    parser.add_argument("--out", type=Path, default=Path("runs/grow"))
    parser.add_argument("--methods", default=",".join(STARTS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, nargs=2, metavar=("FIRST", "LATER"), help="other budgets than the study's")
    parser.add_argument("--side-by-side", type=int, default=1, help="processes at once")
    parser.add_argument("--cores", type=int, help="cores for each of them (default: an equal share)")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--keep", type=Path, help="folder of rows.jsonl (default: --out)")
    parser.add_argument("--picture", type=Path, help="with draw: the figure (default: grow.png beside the rows)")
    found = parser.parse_args()
    study, methods = (TINY_STUDIES if found.tiny else STUDIES)[found.study], found.methods.split(",")
    if found.steps:
        study = replace(study, steps=tuple(found.steps))
    written = (found.keep or found.out) / "rows.jsonl"
    if found.what == "train":
        return 1 if train(found.out, study, methods, found.seeds, found.side_by_side, found.cores) else 0
    if found.what == "rows":
        written.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(row) + "\n" for row in rows(found.out, study, methods)]
        written.write_text("".join(lines), encoding="utf-8")
        print(f"{written}: {len(lines)} rows")
    else:
        kept = [json.loads(line) for line in written.read_text(encoding="utf-8").splitlines()]
        draw(kept, found.picture or written.with_name("grow.png"))
        print(table(kept))
    return 0


if __name__ == "__main__":
    sys.exit(main())
