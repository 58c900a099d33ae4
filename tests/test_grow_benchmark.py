"""The study of teams that grow and of robots that recover: its commands are valid, and its tables say what rows say."""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from prism_marl import cli
from prism_marl.reports.load import SeedCurve

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def study():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        spec = importlib.util.spec_from_file_location("grow_team_benchmark", FOLDER / "grow_team.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, spec.name, module)  # dataclasses look themselves up
        spec.loader.exec_module(module)
        yield module


@pytest.mark.parametrize("name", ["team", "leg"])
@pytest.mark.parametrize("sizes", ["STUDIES", "TINY_STUDIES"])
def test_every_run_of_a_study_has_settings_that_exist(study, sizes, name, tmp_path, capsys):
    chosen, methods = getattr(study, sizes)[name], list(study.STARTS)
    cases = [study.first_of(chosen, method) for method in methods] + list(study.later_of(chosen, methods))
    assert len({case.name for case in cases}) == len(cases) == 4 + 9 * len(chosen.later)
    for case in cases:
        words = study.command(case, chosen, tmp_path, 5)
        frozen = words[words.index("--freeze") + 1] if "--freeze" in words else None
        assert frozen == {"private": "shared", "all": "nothing"}.get(case.start)
        assert cli.main([*words[words.index("train") :], "--options"]) == 0
        assert re.search(
            rf"^--run.steps +{chosen.steps[case.start != 'first']} ", capsys.readouterr().out, re.MULTILINE
        )


def rows_of(start: str, method: str, returns: list[list[float]], private: float, reached: list[float | None]):
    return [
        {
            "method": method, "task": "lbf/x", "start": start, "seed": seed, "private_per_agent": private,
            "steps_to_recover": reached[seed], "curve": [[1000.0 * k, value] for k, value in enumerate(values)],
        }
        for seed, values in enumerate(returns)
    ]  # fmt: skip


def test_the_table_and_the_figure_come_from_the_rows(study, tmp_path):
    found = rows_of("private", "prism", [[0.25, 0.5], [0.75, 1.0]], 60, [1000.0, None])
    found += rows_of("scratch", "prism", [[0.0, 0.5], [0.0, 0.5]], 60, [1000.0, 1000.0])
    found += rows_of("all", "nops", [[0.1, 0.2]], 900, [None])  # without a run from scratch there is nothing to compare
    last = study.table(found).splitlines()[-1]
    assert last == "| lbf/x | Prism | 60 | private numbers | 0.5 | 0.75 | 0.5 | 1k never | 1k 1k |"
    assert len(study.table(found).splitlines()) == 3
    study.draw(found, tmp_path / "grow.png")
    assert (tmp_path / "grow.png").stat().st_size > 10_000


def test_a_seed_recovers_at_the_first_evaluation_that_is_good_enough(study):
    curve = SeedCurve(0, np.array([0.0, 10.0, 20.0, 30.0]), {"return": np.array([0.1, 0.8, 0.5, 0.9])})
    assert study.steps_to(curve, 0.8) == 10
    assert study.steps_to(curve, 0.95) is None
