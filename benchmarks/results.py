"""Write the table of all kept runs into docs/results.md.

python benchmarks/results.py
"""

from pathlib import Path
from typing import Any

from prism_marl.paper.numbers import final_numbers, final_values, markdown_table
from prism_marl.report import stats
from prism_marl.report.finals import SEED
from prism_marl.report.load import Run, find_runs, load_run
from prism_marl.sharing import METHODS

DOCS = Path(__file__).parents[1] / "docs"
BEGIN, END = "<!-- written by benchmarks/results.py -->", "<!-- end -->"


def kept_runs() -> dict[str, list[Run]]:
    """Runs by the folder below docs/rows that holds them: one setting each."""
    settings: dict[str, list[Run]] = {}
    for folder in find_runs(DOCS / "rows"):
        if "explored" not in folder.parts:  # stopped early, told apart on the page
            settings.setdefault(str(folder.parent.relative_to(DOCS / "rows")), []).append(load_run(folder))
    return settings


def rows() -> list[dict[str, Any]]:
    """One row for each run, within a setting by final return."""
    made = []
    for setting, runs in kept_runs().items():
        ours = [run for run in runs if run.method == "prism"]
        numbers = {run.name: final_numbers(run) for run in runs}
        for run in sorted(runs, key=lambda run: -numbers[run.name]["final"][0]):
            row = {"rows": setting, "method": METHODS[run.method].label, "seeds": len(run.evaluations)}
            row |= {name: value for name, value in numbers[run.name].items() if name != "each seed"}
            compared = ours and run.method != "prism"
            chance = stats.improvement_interval(*at_equal_steps(ours[0], run), seed=SEED) if compared else None
            made.append(row | {"Prism is better": [*chance] if chance else ""})
    return made


def at_equal_steps(one: Run, other: Run) -> tuple[Any, Any]:
    """Returns of two runs where the shorter one ends; what a run oversteps its goal by does not count."""
    until = 1.01 * min(final_values(one).step, final_values(other).step)
    return final_values(one, until).values, final_values(other, until).values


def block() -> str:
    """The part of the page between the two marks."""
    return "\n".join([BEGIN, "", *markdown_table(rows()), "", END])


def main() -> None:
    page = DOCS / "results.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(before + block() + after, encoding="utf-8")


if __name__ == "__main__":
    main()
