"""The measure behind ``benchmarks/masks.py``, and the rows that are kept of it."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
import masks  # noqa: E402

GROUP = np.array([0, 0, 1, 1])


@pytest.mark.parametrize(
    ("positions", "share"),
    [
        ([0, 1, 10, 11], 1.0),  # both groups are close together: 4 pairs between, 2 within, all 8 comparisons won
        ([0, 10, 1, 11], 0.25),  # between: 1, 11, 9, 1; within: 10, 10; only 11 wins, twice of eight
        ([0, 0, 0, 0], 0.5),  # nobody differs: ties
    ],
)
def test_pairs_of_two_groups_are_compared_with_pairs_of_one(positions, share):
    places = np.array(positions, float)
    assert masks.by_group(np.abs(places[:, None] - places), GROUP) == pytest.approx(share)


def test_a_measure_without_values_says_so():
    assert masks.interval([None, None]) == "no mask differs"
    assert masks.interval([0.5, 0.5, None]) == "0.50 [0.50, 0.50] (2 seeds)"


def test_kept_rows_have_every_form_and_the_page_their_numbers(capsys):
    path = ROOT / "docs" / "rows" / "masks" / "groups.jsonl"
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(found) == len(masks.TASKS) * len(masks.FORMS) * 16
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    for task in masks.TASKS:
        for form in masks.FORMS:
            rows = [row for row in found if (row["task"], row["form"]) == (task, form.name)]
            line = next(line for line in page.splitlines() if line.startswith(f"| {form.name} |"))
            assert masks.interval([row["by_group"] for row in rows]) in line
