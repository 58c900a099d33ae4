"""What ``import prism_marl`` offers."""

import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import prism_marl as pm
from prism_marl import api, cli
from prism_marl.monitor import Quiet
from prism_marl.reports.page_data import load_study, page_data

TINY = {"sharing": "fups_id", "steps": 96, "seeds": 2, "eval_every": 48, "eval_episodes": 4, "width": 8, "envs": 4}
OPTIONS = {"learner.batch": 4, "learner.buffer": 8, "learner.embed": 4, "learner.hypernet": 4, "run.measures": 0}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> pm.Run:
    folder = tmp_path_factory.mktemp("api") / "run"
    return pm.train("roles/2", out=str(folder), progress=False, options=OPTIONS, **TINY)


def test_a_run_is_trained_and_its_curves_are_arrays(run):
    curve = run.curve("return")
    assert run.finished and curve.values.shape == (2, curve.steps.size) and curve.seeds == (0, 1)
    assert curve.steps[0] == 0 and curve.steps[-1] >= 96
    assert np.isfinite(run.curve("loss", "train").values).all()


def test_what_the_command_line_trains_the_api_finds_finished(run, tmp_path, capsys):
    """The same experiment from both sides: the same folder name, the same rows."""
    words = ["--sharing", "fups_id", "--steps", "96", "--seeds", "2", "--eval-every", "48", "--eval-episodes", "4"]
    words += ["--width", "8", "--envs", "4", "--out", str(tmp_path / "cli")]
    for path, value in OPTIONS.items():
        words += [f"--{path}", str(value)]
    assert cli.main(["train", "roles/2", *words]) == 0
    assert (tmp_path / "cli" / "eval.jsonl").read_text() == (run.folder / "eval.jsonl").read_text()
    again = pm.load_run(tmp_path / "cli")
    assert again.experiment == run.experiment and again.finished
    said = " ".join(capsys.readouterr().err.split())
    (shown,) = page_data(load_study([tmp_path / "cli"]), {})["runs"]
    assert f"final return {shown['scores']['words'][0]} (interquartile mean of 2 seeds, 95% interval " in said
    assert f"), {shown['timing']['words']} done: " in said


def test_evaluation_plays_new_episodes(run):
    values = pm.evaluate(str(run.folder), episodes=6)
    assert set(values) == {"return", "length"} and values["return"].shape == (2,)
    assert (run.evaluate(episodes=6)["return"] == values["return"]).all()


def test_a_report_is_written_from_paths_texts_and_runs(run, tmp_path):
    page = pm.report([run, str(run.folder)], out=tmp_path / "page.html", title="Both")
    assert page == tmp_path / "page.html" and "Both" in page.read_text()


def test_rows_as_a_table_need_pandas(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(pm.UserError, match=r"pip install .*'pandas'"):
        run.dataframe()


def test_what_cannot_work_is_one_sentence(run, tmp_path):
    with pytest.raises(pm.UserError, match="there is no 'lbff/"):
        pm.train("lbff/5x5-2p-1f")
    with pytest.raises(pm.UserError, match="steps: an Experiment holds all settings"):
        pm.train(run.experiment, steps=3)
    with pytest.raises(pm.UserError, match="no metric 'retrun'; it has"):
        run.curve("retrun")
    with pytest.raises(pm.UserError, match="is not a run folder"):
        pm.load_run(tmp_path)
    with pytest.raises(pm.UserError, match=r"--run\.stepps: there is no such option"):
        pm.make_experiment("roles/2", stepps=3)


def test_jax_keeps_the_settings_of_whoever_calls(run, monkeypatch):
    seen = []
    monkeypatch.setattr(api, "run_experiment", lambda *_, **__: seen.append(jax.config.jax_default_matmul_precision))
    with jax.default_matmul_precision("bfloat16"):
        pm.train(run.experiment, out=run.folder, progress=Quiet())
        assert jax.config.jax_default_matmul_precision == "bfloat16"
    assert seen == ["highest"]


def test_importing_takes_nothing_with_it():
    code = "import sys, prism_marl; print('jax' in sys.modules, sorted(prism_marl.__all__) == prism_marl.__all__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "True"]


def test_every_public_name_is_there_and_explained():
    for name in pm.__all__:
        assert getattr(pm, name).__doc__, name
    assert (Path(pm.__file__).parent / "py.typed").exists()
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = pm.trian  # pyright: ignore[reportAttributeAccessIssue]
