"""Run folders, whole and damaged."""

import gzip
import json
import shutil
import tarfile
import time

import numpy as np
import pytest
from safetensors.numpy import save_file

from prism_marl.errors import UserError
from prism_marl.reports.load import SeedCurve, find_runs, load_run, load_runs, metric_names, on_common_grid
from prism_marl.runs.run_files import evenly_spaced, number
from synthetic import make_run, write_json, write_jsonl


def curve(seed, steps, values):
    return SeedCurve(seed, np.array(steps, dtype=float), {"return": np.array(values, dtype=float)})


def test_a_whole_run_loads_without_notes(tmp_path):
    run = load_run(make_run(tmp_path, evaluations=6))
    assert run.notes == ()
    assert (run.task, run.method, len(run.evaluations)) == ("lbf/10x10-3p-3f", "prism", 5)
    assert {"return", "length", "collected"} <= set(metric_names(run.evaluations))
    assert run.timing["steps_per_second"].shape == (5,)
    assert run.spectra is not None
    assert [layer.name for layer in run.spectra.layers] == ["fc1", "fc2", "fc3", "fc4"]
    assert run.spectra.layers[1].mask.shape == (6, 5, 3, 64)
    assert run.spectra.layers[1].mask[..., : run.spectra.layers[1].common].all()
    assert run.replays[0].frames[0].shapes[0].kind == "square"
    assert {row.method for row in run.footprint} >= {"prism", "nops"}


def test_a_folder_of_runs_and_a_run_given_twice(tmp_path):
    first = make_run(tmp_path / "a", evaluations=3)
    make_run(tmp_path / "b", method="fups", evaluations=3)
    (first / "policy").mkdir()
    write_json(first / "policy" / "config.json", {})  # an exported policy is not a run
    assert len(find_runs(tmp_path)) == 2
    assert [run.method for run in load_runs([first, tmp_path])] == ["prism", "fups"]


def test_missing_folders_are_the_users_business(tmp_path):
    with pytest.raises(UserError, match="there is no folder"):
        find_runs(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no runs in"):
        find_runs(tmp_path)
    with pytest.raises(UserError, match="no run folder"):
        load_run(tmp_path / "nowhere")


def test_a_half_written_last_row_is_left_out_and_noted(tmp_path):
    path = make_run(tmp_path, evaluations=4)
    with (path / "eval.jsonl").open("a") as file:
        file.write('{"evaluation": 4, "seed": 0, "st')
    run = load_run(path)
    assert all(seed.steps.size == 4 for seed in run.evaluations)
    assert run.notes == ("The last row of eval.jsonl is half-written and was left out.",)


def test_rubbish_rows_are_counted(tmp_path):
    path = make_run(tmp_path, evaluations=3, seeds=1)
    rows = (path / "eval.jsonl").read_text()
    extra = '[1, 2]\n{"seed": 0}\n{"seed": "x", "step": 3}\n\n'
    (path / "eval.jsonl").write_text("\x00\xff nonsense\n" + extra + rows, encoding="utf-8")
    run = load_run(path)
    assert run.evaluations[0].steps.size == 3
    assert any("2 of" in note and "cannot be read" in note for note in run.notes)
    assert any("2 rows of eval.jsonl have no seed or no step" in note for note in run.notes)


def test_an_empty_folder_gives_an_empty_run_that_says_so(tmp_path):
    run = load_run(tmp_path)
    assert run.evaluations == ()
    assert run.spectra is None
    missing = " ".join(run.notes)
    for name in ("config.json", "machine.json", "eval.jsonl", "train.jsonl", "timing.jsonl", "no evaluations"):
        assert name in missing


def test_damaged_side_files_are_noted_and_the_rest_is_kept(tmp_path):
    path = make_run(tmp_path, evaluations=4)
    (path / "config.json").write_text("[1]")
    (path / "machine.json").write_text('{"jax"')
    (path / "footprint.json").write_text('{"not": "a list"}')
    (path / "spectra" / "000002.safetensors").write_bytes(b"\x00" * 5)
    write_json(path / "replays" / "bad.json", {"frames": [{"width": -1, "height": 2, "shapes": []}]})
    write_json(path / "replays" / "worse.json", ["frames"])
    run = load_run(path)
    assert run.method == "unknown"
    assert run.spectra is not None
    assert run.spectra.steps.size == 3
    assert len(run.replays) == 1
    text = " ".join(run.notes)
    for part in ("config.json does not hold", "machine.json cannot be read", "1 spectra files", "bad.json"):
        assert part in text


def test_spectra_of_another_shape_are_left_out(tmp_path):
    path = make_run(tmp_path, evaluations=3)
    odd = np.ones((1, 2, 3), dtype=np.float32)
    save_file({"fc1.spectrum": odd, "fc1.mask": odd.astype(np.uint8)}, path / "spectra" / "000000.safetensors")
    run = load_run(path)
    assert run.spectra is not None
    assert run.spectra.steps.size == 2
    assert any("other shapes" in note for note in run.notes)


def test_archived_spectra_are_read_without_unpacking(tmp_path):
    path = make_run(tmp_path, evaluations=4)
    loose = load_run(path).spectra
    with tarfile.open(path / "spectra.tar.gz", "w:gz") as archive:
        archive.add(path / "spectra", arcname="spectra")
    shutil.rmtree(path / "spectra")
    packed = load_run(path).spectra
    assert loose is not None
    assert packed is not None
    np.testing.assert_array_equal(packed.steps, loose.steps)
    for ours, theirs in zip(packed.layers, loose.layers, strict=True):
        np.testing.assert_array_equal(ours.spectrum, theirs.spectrum)
        assert (ours.name, ours.common) == (theirs.name, theirs.common)
    assert not (path / "spectra").exists()
    (path / "spectra.tar.gz").write_bytes((path / "spectra.tar.gz").read_bytes()[:300])
    assert load_run(path).notes == ("spectra.tar.gz cannot be read and was left out.",)


def test_an_archive_that_claims_terabytes_is_left_alone(tmp_path):
    path = make_run(tmp_path, evaluations=2, spectra=False)
    claim = tarfile.TarInfo("spectra/000000.safetensors")
    claim.size = 2**42
    (path / "spectra.tar.gz").write_bytes(gzip.compress(claim.tobuf() + bytes(10_240)))
    run = load_run(path)
    assert run.spectra is None
    assert run.notes == ("1 spectra files cannot be read and were left out.",)


def test_seeds_that_have_their_steps_are_not_called_short(tmp_path):
    path = make_run(tmp_path, evaluations=6, seeds=2, replays=0)
    rows = [json.loads(line) for line in (path / "eval.jsonl").read_text().splitlines()]
    later = [{**rows[-1], "evaluation": 5 + k, "step": rows[-1]["step"] + 50_000 * k} for k in range(1, 5)]
    write_jsonl(path / "eval.jsonl", rows + later)  # one seed goes on because the other was slow
    assert load_run(path).notes == ()


def test_a_seed_that_lost_one_evaluation_is_called_short_however_few_there_are(tmp_path):
    path = make_run(tmp_path, evaluations=3, seeds=2, replays=0)
    rows = [json.loads(line) for line in (path / "eval.jsonl").read_text().splitlines()]
    write_jsonl(path / "eval.jsonl", [row for row in rows if (row["evaluation"], row["seed"]) != (2, 1)])
    (note,) = load_run(path).notes
    assert note.startswith("Seed 1 stops at step ") and "where the shortest seed ends" in note


def test_spectra_without_metadata_take_their_step_from_the_evaluations(tmp_path):
    path = make_run(tmp_path, evaluations=2, seeds=1, spectra=False)
    (path / "spectra").mkdir()
    mask = np.array([[[1, 1, 0], [1, 1, 1]]], dtype=np.uint8)
    tensors = {"fc1.spectrum": mask.astype(np.float32), "fc1.mask": mask}
    save_file(tensors, path / "spectra" / "000001.safetensors")
    run = load_run(path)
    assert run.spectra is not None
    assert run.spectra.steps[0] == run.evaluations[0].steps[1]
    assert run.spectra.layers[0].common == 2  # the leading directions that nobody switches off


def test_a_repeated_evaluation_of_a_resumed_run_counts_once_and_the_later_row_wins(tmp_path):
    rows = [
        {"evaluation": 0, "seed": 0, "step": 0, "return": 0.0},
        {"evaluation": 1, "seed": 0, "step": 100, "return": 0.1},
        {"evaluation": 1, "seed": 0, "step": 104, "return": 0.7},
    ]
    write_jsonl(tmp_path / "eval.jsonl", rows)
    (seed,) = load_run(tmp_path).evaluations
    assert seed.steps.tolist() == [0, 104]
    assert seed.metrics["return"].tolist() == [0.0, 0.7]


def test_unfinished_runs_and_short_seeds_are_noted(tmp_path):
    path = make_run(tmp_path, evaluations=10, seeds=3)
    rows = [json.loads(line) for line in (path / "eval.jsonl").read_text().splitlines()]
    kept = [row for row in rows if row["evaluation"] < (4 if row["seed"] == 1 else 8) and row["seed"] < 2]
    write_jsonl(path / "eval.jsonl", kept)
    text = " ".join(load_run(path).notes)
    for part in ("Seed 1 stops", "Only 2 of 3 planned seeds", "not finished"):
        assert part in text


def test_the_grid_is_the_union_of_steps_cut_to_the_shortest_range():
    grid = on_common_grid([curve(0, [0, 10, 20], [0, 1, 2]), curve(1, [5, 15], [1, 1])], "return", points=9)
    assert grid is not None
    assert grid.steps.tolist() == [5, 10, 15]
    np.testing.assert_allclose(grid.values, [[0.5, 1.0, 1.5], [1.0, 1.0, 1.0]])
    assert grid.seeds == (0, 1)


def test_missing_values_are_bridged_and_seeds_without_the_metric_left_out():
    empty = SeedCurve(2, np.array([0.0]), {})
    grid = on_common_grid([curve(0, [0, 1, 2], [0, np.nan, 4]), empty], "return")
    assert grid is not None
    assert grid.steps.tolist() == [0, 2]
    assert grid.seeds == (0,)
    assert on_common_grid([empty], "return") is None


def test_seeds_that_never_overlap_have_no_common_grid():
    assert on_common_grid([curve(0, [0, 1], [0, 0]), curve(1, [5, 6], [0, 0])], "return") is None


def test_numbers_and_indices():
    assert number(3) == 3.0
    for odd in (True, "3", None, [1], 10**400):
        assert np.isnan(number(odd))
    assert evenly_spaced(5, 60).tolist() == [0, 1, 2, 3, 4]
    assert evenly_spaced(101, 3).tolist() == [0, 50, 100]
    assert evenly_spaced(4, 1).tolist() == [3]


def test_forty_runs_load_quickly(tmp_path):
    for index in range(40):
        make_run(tmp_path, evaluations=100, seed=index, spectra=False, replays=0)
    start = time.perf_counter()
    assert len(load_runs([tmp_path])) == 40
    assert time.perf_counter() - start < 20.0
