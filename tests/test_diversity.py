"""Runs that measure how far their agents differ: their rows, the command, the function, and the page's data."""

import contextlib
import json
import shutil

import numpy as np
import pytest

import prism_marl as pm
from prism_marl import cli
from prism_marl.errors import UserError
from prism_marl.experiment.presets import preset
from prism_marl.measures.record import measure_now
from prism_marl.reports.distances import read_distances
from prism_marl.reports.load import load_run
from prism_marl.reports.merge import merge_seeds
from prism_marl.reports.page_curves import detail_for
from prism_marl.reports.page_diversity import diversity_data
from prism_marl.runs import checkpoint, runner
from prism_marl.runs.rows import LATER, noted
from prism_marl.training.build import make_trainer
from synthetic import make_run, write_jsonl
from test_hostile_files import CONTENTS
from tiny import rows_of, same_result, small_steps

SIZES = {
    "network.width": 16, "learner.batch": 4, "learner.buffer": 16, "run.envs": 2, "run.eval_episodes": 4,
    "run.steps": 120, "run.eval_every": 30, "run.seeds": 2,
}  # fmt: skip


def separate(measures: int):
    """Networks that have nothing in common; VDN compiles quickly."""
    experiment = preset("roles/4", "nops", learner="vdn")
    for path, value in {**SIZES, "run.measures": measures}.items():
        experiment = experiment.with_option(path, str(value))
    return experiment


@pytest.fixture(scope="module")
def measuring(tmp_path_factory):
    """Five evaluations, all of them measured."""
    return runner.run(separate(9), tmp_path_factory.mktemp("measured") / "run")


def test_rows_say_how_far_agents_differ(measuring):
    rows = rows_of(measuring, "diversity")
    assert [(row["evaluation"], row["seed"]) for row in rows] == [(k, seed) for k in range(5) for seed in (0, 1)]
    for row in rows:
        table = np.array(row["distances"])
        assert table.shape == (4, 4) and row["agents"] == [0, 1, 2, 3]
        assert row["snd"] == pytest.approx(table.sum() / 12, abs=1e-4)
        assert 0 < row["snd"] <= 1 and 0 < row["snd_chance"] <= 1 and row["snd"] == row["snd_by_matrices"]
        assert 0.7 < row["private_share"] < 1.3 and row["mask_distance"] is None
        assert not any(name.startswith("gradient") for name in row)  # they share no parameters


def test_measuring_changes_nothing_else(measuring, tmp_path):
    plain = runner.run(separate(0), tmp_path / "plain")
    assert not (plain / "diversity.jsonl").exists()
    (plain / "config.json").write_bytes((measuring / "config.json").read_bytes())
    assert same_result(plain, measuring)


def test_a_continued_run_measures_the_same(measuring, tmp_path):
    folder = shutil.copytree(measuring, tmp_path / "run")
    (folder / "done").unlink()
    checkpoint.paths(folder / "checkpoints")[0].unlink()
    runner.run(separate(9), folder)
    assert (folder / "diversity.jsonl").read_bytes() == (measuring / "diversity.jsonl").read_bytes()


def test_checkpoints_of_earlier_versions_have_no_seal_of_these_rows():
    seals = {name: [3, "digest"] for name in ("eval", "train", "timing")}
    assert noted({"evaluation": 2, "rows": seals}) == (2, seals | LATER)
    with pytest.raises(UserError, match="does not note"):
        noted({"evaluation": 2, "rows": {"eval": [3, "digest"]}})


def test_measurements_are_evenly_spaced():
    run = preset("roles/4", "nops").with_option("run.steps", "100").with_option("run.eval_every", "10").run
    some = [k for k in range(run.evaluations) if run.__class__(**{**vars(run), "measures": 4}).measured(k)]
    assert some == [0, 3, 6, 9, 10]
    assert not any(run.__class__(**{**vars(run), "measures": 0}).measured(k) for k in range(run.evaluations))


def test_full_sharing_is_exactly_zero_on_the_host():
    """Rows on the host, actors in numpy: agents of one network cannot be told apart."""
    trainer = make_trainer(small_steps("reach/3", "fups"))
    with contextlib.closing(trainer):
        (row,) = measure_now(trainer, trainer.init(), 0, 2)
    zero = ("snd", "snd_by_matrices", "private_share", "private_share.fc1")
    assert all(row[name] == 0 for name in zero) and not np.any(row["distances"])
    assert row["snd_chance"] > 0 and -1 <= row["gradient_cosine"] <= 1


@pytest.fixture
def prism_marl(capsys):
    def call(*words):
        code = cli.main(list(map(str, words)))
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_the_command_and_the_function_agree(measuring, prism_marl):
    code, out, _ = prism_marl("diversity", measuring, "--episodes", 4, "--json")
    told = json.loads(out)
    assert code == 0 and told["method"] == "nops" and [one["seed"] for one in told["seeds"]] == [0, 1]
    found = pm.diversity(measuring, episodes=4)
    assert found["distances"].shape == (2, 4, 4)
    for name in ("snd", "snd_chance", "private_share.fc4"):
        assert found[name].tolist() == [one[name] for one in told["seeds"]]
    assert told["seeds"][0]["mask_distance"] is None and np.isnan(found["mask_distance"]).all()


def test_the_tables_say_how_to_read_them(measuring, prism_marl):
    code, out, err = prism_marl("diversity", measuring, "--seed", 1, "--episodes", 4)
    assert code == 0 and not err
    for words in (
        "NoPS on roles/4: 4 episodes of each seed",
        "agent 4",
        "gru.hidden",
        "chance:",
        "0 = unrelated",
        "1    ",
    ):
        assert words in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--seed", 7), "--seed: this run has seeds 0 to 1, not 7"),
        (("--episodes", 0), "--episodes: 0 is outside 1 to 1000; leave it out to play 16 or fewer"),
    ],
)
def test_refusals(measuring, prism_marl, words, sentence):
    code, out, err = prism_marl("diversity", measuring, *words)
    assert code == 2 and not out and err == f"prism-marl: {sentence}\n"


def test_the_page_gets_tables_and_curves(measuring):
    data = diversity_data(load_run(measuring), detail_for(1))
    assert data is not None and data["tables"]["agents"] == [0, 1, 2, 3] and len(data["tables"]["steps"]) == 5
    rows = rows_of(measuring, "diversity")
    np.testing.assert_allclose(
        data["tables"]["values"][-1], (np.array([r["distances"] for r in rows[-2:]])).mean(axis=0)
    )
    assert len(data["curves"]["snd"]["y"]) == 5 and "gru.input" in data["layers"]["private_share"]
    assert not data["layers"]["gradient_cosine"]


def test_runs_of_earlier_versions_and_damaged_rows(tmp_path):
    path = make_run(tmp_path, evaluations=3, seeds=2, spectra=False)
    rows = rows_of(path, "diversity")
    bad = [
        {**rows[0], "distances": [[0, 1]]},
        {**rows[0], "distances": "x"},
        {**rows[0], "agents": [0] * 99},
        {"seed": 0},
    ]
    write_jsonl(path / "diversity.jsonl", [*bad, *rows[2:]])
    run = load_run(path)
    assert [len(one.steps) for one in run.distances.values()] == [1, 1]
    (path / "diversity.jsonl").unlink()
    without = load_run(path)
    assert diversity_data(without, detail_for(1)) is None and not any("diversity" in note for note in without.notes)


@pytest.mark.parametrize("content", CONTENTS)
def test_hostile_rows_are_left_out(tmp_path, content):
    (tmp_path / "diversity.jsonl").write_bytes(CONTENTS[content])
    assert not read_distances(tmp_path / "diversity.jsonl")


def test_seeds_of_several_folders_are_one_table(tmp_path):
    one = load_run(make_run(tmp_path, evaluations=5, seeds=2, name="a", spectra=False))
    path = make_run(tmp_path, evaluations=5, seeds=2, name="b", spectra=False)
    for name in ("eval", "train", "diversity"):
        write_jsonl(path / f"{name}.jsonl", [{**row, "seed": row["seed"] + 2} for row in rows_of(path, name)])
    (both,) = merge_seeds([one, load_run(path)])
    assert sorted(both.distances) == [0, 1, 2, 3] and len(both.diversity) == 4
