"""The benchmark behind the scaling figure: a row, a refusal and a picture."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from prism_marl.experiment.presets import method_settings
from prism_marl.paper.budgets import count, trainable
from prism_marl.paper.scaling import write_figure

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def scaling(monkeypatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import scaling  # pyright: ignore[reportMissingImports]

    return scaling


def options(**changes: Any) -> argparse.Namespace:
    values = {"batch": 8, "width": 8, "updates": 6, "seconds": 5.0, "memory": None}
    return argparse.Namespace(**(values | changes))


def test_a_row_says_what_was_counted_and_what_was_measured(scaling, monkeypatch):
    monkeypatch.setattr(scaling, "PHYSICS", 1)
    row = scaling.measure("fups_id", 2, options())
    task = "mamujoco/swimmer-2x2"
    settings = method_settings(task, "fups_id")
    assert row["parameters"] == count(task, settings, 8).parameters
    assert row["trainable"] == trainable(task, settings, 8) and row["private_per_agent"] == 0
    assert row["updates"] == 6 and row["stretches"] == 2 and row["update_ms"] >= row["fastest_ms"] > 0
    assert row["transitions"] == "synthetic" and "refused" not in row
    # actors and critics online and as targets, and two moments of Adam for each
    assert row["state_bytes"] == pytest.approx(4 * (row["actor_bytes"] + 4 * row["critic_parameters"]), rel=0.01)
    assert row["needed_bytes"] >= row["state_bytes"] + row["temporary_bytes"] and row["peak_of"] == "process"


def test_what_cannot_fit_is_refused_in_one_sentence_before_it_is_compiled(scaling, monkeypatch):
    monkeypatch.setattr(scaling, "make_program", None)
    row = scaling.measure("kaleidoscope", 1024, options(width=256, memory=16.0))
    assert "at least" in row["refused"] and "16.00 GiB may be used" in row["refused"] and "--width" in row["refused"]
    assert row["needed_bytes"] > 16 * 2**30 and "update_ms" not in row and row["private_per_agent"] > 10**6


def test_refused_rows_are_part_of_the_figure(scaling, tmp_path):
    from scaling_figure import figure  # pyright: ignore[reportMissingImports]

    measured = {"parameters": 10_000, "state_bytes": 2**20, "needed_bytes": 2**21, "update_ms": 3.0}
    rows = [{"method": method, "agents": agents} | measured for method in ("prism", "snp") for agents in (2, 16)]
    rows += [{"method": "kaleidoscope", "agents": 16, "parameters": 10**6, "needed_bytes": 2**34, "refused": "why"}]
    rows += [{"method": "kaleidoscope", "agents": 1024, "refused": "ended with code -9: killed"}]
    made = figure(rows)
    _, memory, speed = made.axes
    assert [line.get_marker() for line in memory.get_lines()].count("x") == 1
    assert [text.get_text() for text in memory.texts] == ["refused"] and len(speed.get_lines()) == 2
    write_figure(made, tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 10_000
