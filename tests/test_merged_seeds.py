"""Folders that differ in their seeds alone are one run on the page, in its statistics and after a sweep."""

import json
from pathlib import Path

import numpy as np
import pytest

from prism_marl.cli.executing import merged_finals
from prism_marl.reports.finals import final_of
from prism_marl.reports.load import load_run
from prism_marl.reports.merge import merge_seeds
from prism_marl.reports.page import render_page
from prism_marl.reports.page_data import Study, load_study, page_data
from prism_marl.runs import runner
from prism_marl.sweeps.grid import Sweep, folder_of, grid
from synthetic import make_run, write_json, write_jsonl
from tiny import small


def job(folder: Path, seed: int, *, method: str = "prism", evaluations: int = 6, **settings) -> Path:
    """The folder of a job of one seed."""
    path = make_run(folder, method=method, evaluations=evaluations, seeds=1, seed=seed, name=f"{method}-{seed}")
    for name in ("eval", "train"):
        rows = [json.loads(line) for line in (path / f"{name}.jsonl").read_text().splitlines()]
        write_jsonl(path / f"{name}.jsonl", [row | {"seed": seed} for row in rows])
    config = json.loads((path / "config.json").read_text())
    config["run"] |= {"seed": seed, "seeds": 1, "steps": 250_000, **settings}
    write_json(path / "config.json", config)
    return path


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    for method in ("prism", "fups"):
        for seed in range(5):
            job(folder, seed, method=method)
    return folder


def test_one_seed_for_each_job_is_one_run_of_five(jobs):
    runs = load_study([jobs]).runs
    assert [(run.method, len(run.evaluations)) for run in runs] == [("prism", 5), ("fups", 5)]
    whole = runs[0]
    assert [curve.seed for curve in whole.evaluations] == [curve.seed for curve in whole.training] == list(range(5))
    assert whole.config["run"]["seeds"] == 5 and whole.name == "prism-0 + prism-1 + prism-2 and 2 more"
    assert whole.spectra is not None and whole.spectra.layers[0].mask.shape[1] == 5
    alone = [load_run(jobs / f"prism-{seed}") for seed in range(5)]
    ends = [final_of(run.evaluations).values[0] for run in alone]  # pyright: ignore[reportOptionalMemberAccess]
    assert final_of(whole.evaluations).values == pytest.approx(ends, abs=1e-3)  # pyright: ignore[reportOptionalMemberAccess]
    assert whole.timing["seconds"].sum() == pytest.approx(sum(run.timing["seconds"].sum() for run in alone))
    assert not whole.notes


def test_the_comparison_is_made_over_all_seeds(jobs):
    data = page_data(load_study([jobs]), {})
    assert [run["seeds"] for run in data["runs"]] == [5, 5]
    assert data["winners"][0]["why"] != "a run has fewer than five seeds"
    assert np.isfinite(data["improvement"][0]["table"][0][1]).all()


def test_what_differs_otherwise_stays_apart(tmp_path):
    first = job(tmp_path, 0)
    same_seed = job(tmp_path / "again", 0)
    longer = job(tmp_path / "longer", 1, eval_every=10)
    short = job(tmp_path / "short", 2, evaluations=3)
    whole = job(tmp_path / "more", 3)
    runs = merge_seeds([load_run(path) for path in (first, same_seed, longer, short, whole)])
    assert [sorted(curve.seed for curve in run.evaluations) for run in runs] == [[0, 3], [0], [1], [2]]
    assert any("not finished" in note for note in runs[3].notes)


def test_a_sweep_says_what_its_seeds_make_together(tmp_path):
    base = small("roles/2", "fups", run__steps="60", run__eval_every="30")
    sweep = Sweep("seeds", grid(base, {"run.seed": [0, 1, 2]}))
    for experiment in sweep.experiments:
        runner.run(experiment, folder_of(experiment, tmp_path))
    (line,) = merged_finals(sweep, tmp_path)
    assert line.startswith("roles/2 fups: final return ") and "(interquartile mean of 3 seeds, 95% interval" in line


def test_the_page_says_what_an_agents_policy_costs(tmp_path):
    path = make_run(tmp_path, evaluations=4)
    costs = {"agents": 3, "bytes": 140_312, "factored_bytes": 90_000, "multiply_adds": 34_496, "microseconds": 41.5}
    write_json(path / "deployment.json", costs | {"runtime": "numpy 2.4"})
    run = load_run(path)
    assert run.deployment == costs
    assert '"microseconds":41.5' in render_page(Study((run,))).replace(" ", "")
    (path / "deployment.json").write_text('{"bytes": "many", "microseconds": 1e999}')
    assert load_run(path).deployment == {}


def test_a_finished_run_notes_what_an_agents_policy_costs(trained):
    found = load_run(trained).deployment
    assert found["microseconds"] > 0 and found["bytes"] >= 4 * found["parameters"] > found["multiply_adds"] > 0
