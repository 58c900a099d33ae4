"""A trained team of three grows to five and to eight: how many steps until it is as good as one trained from scratch?

    python benchmarks/grow_team.py train --out runs/grow                  # five seeds; continues where it stopped
    python benchmarks/grow_team.py train --out runs/grow-tiny --tiny      # the same in a minute, to see that it works
    python benchmarks/grow_team.py rows --out runs/grow                   # one JSON line for each seed, to rows.jsonl
    python benchmarks/grow_team.py draw --out runs/grow                   # the figure, from rows.jsonl alone

Level-Based Foraging with room for eight agents in observation and id (``-places8``), so that networks keep their
sizes. Prism and LoRASA learn private numbers alone (``--freeze shared``); NoPS has no shared numbers and FuPS+ID no
private ones, so these learn all. A seed has recovered at the first evaluation whose return reaches ``SHARE`` of the
interquartile mean with which the same method ends from scratch on that team.
"""

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from prism_marl import api, envs
from prism_marl.experiment.experiment import Experiment
from prism_marl.reports.figures import method_style
from prism_marl.reports.finals import final_of
from prism_marl.reports.load import SeedCurve, load_evaluations
from prism_marl.reports.stats import interquartile_mean
from prism_marl.runs.machine import describe_machine
from prism_marl.runs.warm_start import Freeze
from prism_marl.sharing.footprint import footprint

SHARE = 0.9
FIRST, LATER = 3, (5, 8)
TASK = "lbf/{field}-{players}p-{foods}f-places8"
FREEZE: dict[str, Freeze] = {"prism": "shared", "lorasa": "shared", "nops": "nothing", "fups_id": "nothing"}
SIZES = {  # steps of the first run, of grown teams and of teams from scratch; evaluations
    False: {"field": "8x8", "foods": 3, "first": 2_000_000, "steps": 1_000_000, "every": 25_000, "episodes": 100},
    True: {"field": "5x5", "foods": 1, "first": 400, "steps": 200, "every": 100, "episodes": 4},
}
TINY = {"network.width": 8, "learner.batch": 4, "learner.buffer": 64, "learner.embed": 4, "learner.hypernet": 4}


@dataclass(frozen=True)
class Case:
    """One run of the study."""

    method: str
    players: int
    grown: bool

    @property
    def name(self) -> str:
        return f"{self.method}-{self.players}p-{'grown' if self.grown else 'scratch'}"


CASES = tuple(Case(method, players, grown) for method in FREEZE for players in LATER for grown in (True, False))


def experiment(case: Case, *, tiny: bool, seeds: int, first: bool = False) -> Experiment:
    """What a case trains; ``first`` is the team of three that all grow from."""
    size = SIZES[tiny]
    players = FIRST if first else case.players
    task = TASK.format(field=size["field"], players=players, foods=size["foods"])
    options: dict[str, Any] = dict(TINY) if tiny else {"run.envs": 8, "learner.episodes_per_update": 1}
    steps = size["first"] if first else size["steps"]
    if case.method == "lorasa":  # both phases of the first run, and of one from scratch
        options["sharing.switch_step"] = steps // 2
    how = {"steps": steps, "seeds": seeds, "eval_every": size["every"], "eval_episodes": size["episodes"]}
    return api.make_experiment(task, sharing=case.method, options=options, **how)


def train(out: Path, *, tiny: bool, seeds: int) -> None:
    """All runs that are not finished, one after the other."""
    for method in FREEZE:
        begun = Case(method, FIRST, grown=False)
        source = out / f"{method}-{FIRST}p"
        api.train(experiment(begun, tiny=tiny, seeds=seeds, first=True), out=source)
        for case in (case for case in CASES if case.method == method):
            how: dict[str, Any] = {"begin_from": source, "freeze": FREEZE[method]} if case.grown else {}
            api.train(experiment(case, tiny=tiny, seeds=seeds), out=out / case.name, **how)


def rows(out: Path) -> list[dict[str, Any]]:
    """One row for each seed of each case; ``steps_to_recover`` is null where a seed never does."""
    found: list[dict[str, Any]] = []
    for case in CASES:
        scratch = final_of(load_evaluations(out / f"{case.method}-{case.players}p-scratch"))
        if scratch is None:
            continue
        target = SHARE * float(interquartile_mean(scratch.values))
        run = api.load_run(out / case.name)
        commit = describe_machine().get("commit")
        for curve in load_evaluations(out / case.name):
            found.append(
                {
                    "method": case.method,
                    "players": case.players,
                    "start": "grown" if case.grown else "scratch",
                    "freeze": FREEZE[case.method] if case.grown else "nothing",
                    "seed": curve.seed,
                    "target": round(target, 6),
                    "steps_to_recover": steps_to(curve, target),
                    "first_return": float(curve.metrics["return"][0]),
                    "final_return": float(curve.metrics["return"][-1]),
                    "steps": float(curve.steps[-1]),
                    "private_per_agent": private_numbers(run.experiment),
                    "task": run.experiment.task,
                    "commit": commit,
                }
            )
    return found


def steps_to(curve: SeedCurve, target: float) -> float | None:
    """The step of the first evaluation whose return reaches a target."""
    reached = np.flatnonzero(curve.metrics["return"] >= target)
    return float(curve.steps[reached[0]]) if reached.size else None


def private_numbers(experiment: Experiment) -> float:
    """Numbers that belong to one agent alone."""
    spec = envs.describe(experiment.task)
    learner = experiment.learner.learner(experiment.sharing, spec, width=experiment.network.width)
    return footprint(jax.eval_shape(learner.build_agent, jax.random.key(0))).private / spec.agents


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Steps to recover for each method and team, and the return of grown teams over the private numbers of an agent."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    cases = [case for case in CASES if any(_belongs(row, case) for row in found)]
    for place, case in enumerate(cases):
        own = [row for row in found if _belongs(row, case)]
        steps = [row["steps_to_recover"] if row["steps_to_recover"] is not None else math.nan for row in own]
        style = method_style(case.method)
        left.scatter([place] * len(own), steps, color=style.light, marker="o" if case.grown else "x")
        missing = sum(math.isnan(step) for step in steps)
        if missing:
            left.annotate(f"{missing} never", (place, 1), xycoords=("data", "axes fraction"), ha="center", va="bottom")
        if case.grown:
            # One more than the numbers, so that a method without any has a place on the axis.
            numbers = [1 + row["private_per_agent"] for row in own]
            label = f"{style.label}, {case.players} agents"
            returns = [row["final_return"] for row in own]
            right.scatter(
                numbers, returns, color=style.light, marker="o" if case.players == LATER[0] else "s", label=label
            )
    words = [f"{method_style(c.method).label}\n{c.players}, {'grown' if c.grown else 'scratch'}" for c in cases]
    left.set_xticks(range(len(cases)), words, rotation=90, fontsize=7)
    left.set_ylabel(f"steps to {SHARE:.0%} of the return from scratch")
    right.set_xscale("log")
    right.set_xlabel("private numbers of an agent, plus one")
    right.set_ylabel("final return of the grown team")
    right.legend(fontsize=7)
    figure.savefig(path, dpi=150)


def _belongs(row: dict[str, Any], case: Case) -> bool:
    return (row["method"], row["players"], row["start"] == "grown") == (case.method, case.players, case.grown)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("train", "rows", "draw"))
    parser.add_argument("--out", type=Path, default=Path("runs/grow"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tiny", action="store_true")
    found = parser.parse_args()
    written = found.out / "rows.jsonl"
    if found.what == "train":
        train(found.out, tiny=found.tiny, seeds=found.seeds)
    elif found.what == "rows":
        written.write_text("".join(json.dumps(row) + "\n" for row in rows(found.out)), encoding="utf-8")
        print(written)
    else:
        lines = written.read_text(encoding="utf-8").splitlines()
        draw([json.loads(line) for line in lines], found.out / "grow_team.png")
        print(found.out / "grow_team.png")


if __name__ == "__main__":
    main()
