"""The measure behind ``benchmarks/masks.py``, and the rows that are kept of it."""

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


def test_kept_rows_have_every_form_on_both_games():
    path = ROOT / "docs" / "rows" / "masks" / "groups.jsonl"
    for task in masks.TASKS:
        made = masks.table_rows(path, task)
        assert [row[f"`{task}`, form of Prism"] for row in made] == [form.name for form in masks.FORMS]
        assert all(row["return of 0.95 or more"].endswith(" of 16") for row in made)
