"""Write the tables of all kept runs into docs/results.md and its appendix: their numbers, and what their masks follow.

python benchmarks/results.py
"""

from pathlib import Path
from typing import Any

import masks

from prism_marl.paper.numbers import final_numbers, final_values, markdown_table
from prism_marl.reports import stats
from prism_marl.reports.finals import SEED
from prism_marl.reports.load import Run, find_runs, load_run
from prism_marl.reports.start import counts_by_start
from prism_marl.sharing import METHODS

Kept = dict[str, list[Run]]
DOCS = Path(__file__).parents[1] / "docs"
PAGES = (DOCS / "results.md", DOCS / "results-appendix.md")
BEGIN, END = "<!-- {} written by benchmarks/results.py -->", "<!-- end -->"


def kept_runs() -> Kept:
    """Runs by the folder below docs/rows that holds them: one setting each."""
    settings: Kept = {}
    for folder in find_runs(DOCS / "rows"):
        if "explored" not in folder.parts:  # stopped early or of one seed, told apart on the page
            settings.setdefault(str(folder.parent.relative_to(DOCS / "rows")), []).append(load_run(folder))
    return settings


def number_rows(kept: Kept) -> list[dict[str, Any]]:
    """One row for each run, within a setting by final return."""
    made = []
    for setting, runs in kept.items():
        ours = [run for run in runs if run.method == "prism"]
        numbers = {run.name: final_numbers(run) for run in runs}
        for run in sorted(runs, key=lambda run: -numbers[run.name]["final"][0]):
            row = {"rows": setting, "method": METHODS[run.method].label, "seeds": len(run.evaluations)}
            row |= {"critics": critics_of(run), "ties": ties_of(run)}
            row |= {name: value for name, value in numbers[run.name].items() if name != "each seed"}
            compared = ours and run.method != "prism"
            chance = stats.improvement_interval(*at_equal_steps(ours[0], run), seed=SEED) if compared else None
            made.append(row | {"Prism is better": [*chance] if chance else ""})
    return made


def critics_of(run: Run) -> str:
    """Whether the critics of a robot's run had LayerNorm: the default, or for Kaleidoscope by its own setting."""
    learner, own = run.config["learner"], run.method == "kaleidoscope"
    if learner.get("algorithm") != "matd3":
        return ""
    return "LayerNorm" if learner.get("critic_layernorm") or own else "plain"


def ties_of(run: Run) -> str:
    """What Prism did with masks that agree; rows from before there was a choice do not say it."""
    return run.config["sharing"].get("ties", "not recorded") if run.method == "prism" else ""


def at_equal_steps(one: Run, other: Run) -> tuple[Any, Any]:
    """Returns of two runs where the shorter one ends; what a run oversteps its goal by does not count."""
    until = 1.01 * min(final_values(one).step, final_values(other).step)
    return final_values(one, until).values, final_values(other, until).values


def mask_rows(kept: Kept) -> list[dict[str, Any]]:
    """For each run of Prism with spectra: how many final differences of its masks follow the initial thresholds."""
    made = []
    for setting, run in ((setting, run) for setting, runs in kept.items() for run in runs if run.method == "prism"):
        counts = counts_by_start(run.spectra) if run.spectra else None
        if counts is None:
            continue
        (explained, _, pairs), (share,) = (int(part[0]) for part in counts), counts.shares
        made.append(
            {"rows": setting, "ties": run.config["sharing"]["ties"], "masks differ in": pairs,
             "of which the start explains": explained, "share": f"{100 * share:.0f}%"}
        )  # fmt: skip
    return made


def blocks() -> dict[str, str]:
    """The parts of the page between two marks, by what they hold."""
    kept = kept_runs()
    tables = {"numbers": number_rows(kept), "masks": mask_rows(kept)}
    forms = DOCS / "rows" / "masks" / "groups.jsonl"
    tables |= {f"forms on {task}": masks.table_rows(forms, task) for task in masks.TASKS}
    return {name: "\n".join([BEGIN.format(name), "", *markdown_table(rows), "", END]) for name, rows in tables.items()}


def main() -> None:
    """Every table stands on the page that has its marks."""
    made = blocks()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name, block in made.items():
            before, mark, rest = text.partition(BEGIN.format(name))
            text = before + block + rest.partition(END)[2] if mark else text
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
