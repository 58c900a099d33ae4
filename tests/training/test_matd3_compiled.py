"""MATD3 where collecting and learning are one program: its schedule, a run that is cut, and programs that are kept."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from prism_marl.experiment import plugins
from prism_marl.experiment.experiment import Experiment
from prism_marl.runs import checkpoint, runner
from prism_marl.training.build import make_trainer
from prism_marl.training.trainer import Trainer
from tiny import final_state, rows_of, same_result, small_steps


def experiment() -> Experiment:
    """Two seeds, three evaluations."""
    changes = {
        "run__seeds": "2",
        "run__seed": "5",
        "run__steps": "120",
        "run__eval_every": "40",
        "learner__warmup_on_top": "true",
    }
    return small_steps("reach_jax/3", **changes)


@pytest.fixture(scope="module")
def own_code_only():
    """Other tests of this process may have loaded files of a user's, with which no program is kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugins, "any_loaded", lambda: False)
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory, own_code_only) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    return runner.run(experiment(), folder / "run", cache=folder)


def test_a_run_warms_up_on_top_of_its_steps(finished):
    found = [(row["seed"], row["step"]) for row in rows_of(finished)]
    assert found == [(seed, step) for step in (0, 60, 100, 140) for seed in (5, 6)]
    state = final_state(finished)
    assert_array_equal(state["seeds.state.updates"], [60, 60])  # half an update for each of 120 steps
    assert int(state["clock.own.0"]) == 60 and int(state["clock.iteration"]) == 14
    assert_array_equal(state["seeds.buffer.added"], [140, 140])
    learning = [row["loss"] for row in rows_of(finished, "train")]
    assert len(learning) == 6 and np.isfinite(learning).all()
    assert state["seeds.env.obs.state"].shape == (2, 2, 3)  # where the rows stand is part of what survives


def test_a_run_that_is_cut_ends_with_the_same_bits(finished, tmp_path):
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    checkpoint.paths(folder / "checkpoints")[0].unlink()
    (folder / "done").unlink()
    assert same_result(runner.run(experiment(), folder), finished)


def test_a_second_start_traces_nothing(finished, tmp_path, monkeypatch):
    kept = {path.name.partition("-")[0] for path in (finished.parent / "lowered").iterdir()}
    assert {"networks", "rows", "collect", "learn", "evaluate", "spectra"} <= kept

    def refuse(*arguments, **options):
        raise AssertionError("traced, although it was kept")

    shapes = make_trainer(experiment()).shapes()  # which even a second start traces: checkpoints are read into them
    monkeypatch.setattr(Trainer, "shapes", lambda trainer: shapes)
    for name in ("advance", "evaluate", "_start"):
        monkeypatch.setattr(Trainer, name, refuse)
    assert same_result(runner.run(experiment(), tmp_path / "second", cache=finished.parent), finished)
