"""Do masks follow the task? Forms of Prism on games in which it is known who needs the same network.

    python benchmarks/masks.py train --out runs/masks                       # continues where it stopped
    python benchmarks/masks.py rows --out runs/masks > docs/rows/masks/groups.jsonl
    python benchmarks/masks.py table docs/rows/masks/groups.jsonl

In ``groups/<agents>-<groups>`` agents of one group need the same play and agents of two groups need different ones.
Two questions for each seed, over all layers: of a pair of agents from two groups and a pair from one group, which has
the more different spectra (``by_group``; chance draws 0.5, ties count one half)? And of all "direction on for p, off
for q", in which share did p begin with the lower threshold (``by_start``; chance 0.5)? A form whose masks follow the
task has ``by_group`` near 1, one whose masks are dice has ``by_start`` near 1. ``random_spectrum`` cannot follow
anything and ``spectrum_delta`` is free to, so they are what nothing and everything look like.
"""

import argparse
import itertools
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from prism_marl import api, envs
from prism_marl.paper.numbers import markdown_table
from prism_marl.reports import stats
from prism_marl.reports.finals import SEED, final_of
from prism_marl.reports.load import load_evaluations
from prism_marl.runs.machine import describe_machine
from prism_marl.runs.masks import explained_by_start, over_layers

TASKS = ("groups/6-3", "groups/8-2")
EQUAL = {"sharing.init": "svd_of_orthogonal"}  # all singular values begin alike
ONE, APART = {"sharing.threshold_init": "shared"}, {"sharing.ties": "apart"}
COLUMNS = {"differ": "masks differ in", "by_group": "by group", "by_start": "by start"}
SOLVED = 0.95


@dataclass(frozen=True)
class Form:
    """One row of the table."""

    name: str
    method: str = "prism"
    options: dict[str, Any] = field(default_factory=dict)


FORMS = (
    Form("still: the paper's letter, the default"),
    Form("apart", options=APART),
    Form("one start for all, apart", options=ONE | APART),
    Form("one start for all, still", options=ONE),
    Form("equal singular values", options=EQUAL),
    Form("equal singular values, one start for all, apart", options=EQUAL | ONE | APART),
    Form("masks on the leading half", options={"sharing.common_part": "trailing"}),
    Form("masks on a random half", options={"sharing.common_part": "random"}),
    Form("thresholds begin near the middle", options={"sharing.threshold_shift": 2.2}),
    Form("the same, one start for all, apart", options={"sharing.threshold_shift": 2.2} | ONE | APART),
    Form("thresholds learn ten times as fast", options={"sharing.threshold_rate": 10.0}),
    Form("diversity 0", options={"sharing.diversity": 0.0}),
    Form("diversity 50", options={"sharing.diversity": 50.0}),
    Form("spectrum + delta", "spectrum_delta"),
    Form("random spectrum", "random_spectrum"),
)


def folder_of(out: Path, task: str, form: Form) -> Path:
    return out / task.replace("/", "-") / form.name.replace(" ", "_").replace(":", "").replace(",", "")


def train(out: Path, tasks: list[str], seeds: int, steps: int) -> None:
    for task, form in itertools.product(tasks, FORMS):
        options = {"run.eval_every": steps // 4, "run.save_every": 1_000, "run.eval_episodes": 32} | form.options
        made = api.make_experiment(task, sharing=form.method, seeds=seeds, steps=steps, options=options)
        print(f"{task}: {form.name}", file=sys.stderr, flush=True)
        api.train(made, out=folder_of(out, task, form), progress=False)


def spectra(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray, int]]:
    """Masked values and masks ``[2, seeds, identities, directions]`` at the start and the end, and what is common."""
    paths = sorted((folder / "spectra").glob("*.safetensors"))
    with safetensors.safe_open(paths[0], "np") as file:
        common = {name[7:]: int(value) for name, value in file.metadata().items() if name.startswith("common.")}
    first, last = (safetensors.numpy.load_file(path) for path in (paths[0], paths[-1]))

    def ends(part: str) -> np.ndarray:
        return np.stack([end[part] for end in (first, last)])

    return {name: (ends(f"{name}.spectrum"), ends(f"{name}.mask"), number) for name, number in common.items()}


def by_group(distance: np.ndarray, group: np.ndarray) -> float:
    """How often a pair of two groups is further apart than a pair of one group, from ``[identities, identities]``."""
    upper = np.triu(np.ones_like(distance, bool), 1)
    same = group[:, None] == group
    between, within = distance[upper & ~same], distance[upper & same]
    return float(np.mean((between[:, None] > within) + 0.5 * (between[:, None] == within)))


def measured(folder: Path, task: str) -> Iterator[dict[str, Any]]:
    """One row for each seed."""
    env: Any = envs.make(task)
    group = np.asarray(env.group)
    layers = spectra(folder)
    final = final_of(load_evaluations(folder))
    assert final is not None
    counts = over_layers([explained_by_start(values, masks, common) for values, masks, common in layers.values()])
    for seed, start in enumerate(counts.shares):
        ends = [values[1, seed] / np.abs(values[0, seed]).max() for values, _, _ in layers.values()]
        distance = np.sum([stats.spectrum_distance(one) for one in ends], axis=0)
        own = [masks[1, seed, :, common:].astype(bool) for _, masks, common in layers.values()]
        parted = np.concatenate([(one.any(0) & ~one.all(0)) for one in own])
        yield {
            "seed": seed,
            "return": float(final.values[seed]),
            "differ": float(parted.mean()) if parted.size else math.nan,
            "by_group": by_group(distance, group),
            "by_start": float(start),
        }


def rows(out: Path, tasks: list[str]) -> None:
    for task, form in itertools.product(tasks, FORMS):
        folder = folder_of(out, task, form)
        machine = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
        about = {"task": task, "form": form.name, "method": form.method, "options": form.options}
        about |= {"commit": machine["commit"], "device": machine["device"], "measured": describe_machine()["commit"]}
        for row in measured(folder, task):
            print(json.dumps(about | {k: None if v != v else v for k, v in row.items()}))


def table_rows(path: Path, task: str) -> list[dict[str, Any]]:
    """One row for each form: interquartile means over seeds with 95% bootstrap intervals."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [row for line in lines if (row := json.loads(line))["task"] == task]
    made = []
    for form, these in itertools.groupby(found, key=lambda row: row["form"]):
        seeds = list(these)
        solved = sum(row["return"] >= SOLVED for row in seeds)
        cells = {COLUMNS[name]: interval([row[name] for row in seeds]) for name in COLUMNS}
        made.append(
            {f"`{task}`, form of Prism": form, f"return of {SOLVED} or more": f"{solved} of {len(seeds)}"} | cells
        )
    return made


def interval(values: list[float | None]) -> str:
    known = np.array([value for value in values if value is not None])
    if known.size == 0:
        return "no mask differs"
    middle, low, high = stats.bootstrap_interval([known], seed=SEED)
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]" + ("" if known.size == len(values) else f" ({known.size} seeds)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "rows", "table"))
    parser.add_argument("rows", nargs="?", type=Path, help="table: the file of rows")
    parser.add_argument("--out", type=Path, default=Path("runs/masks"))
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--steps", type=int, default=20_000)
    found = parser.parse_args()
    if found.what == "train":
        train(found.out, found.tasks, found.seeds, found.steps)
    elif found.what == "rows":
        rows(found.out, found.tasks)
    else:
        for task in found.tasks:
            print("\n".join(["", *markdown_table(table_rows(found.rows, task))]))


if __name__ == "__main__":
    main()
