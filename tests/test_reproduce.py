"""Targets: the paper's experiments and no others, figures from rows alone, and plans that tell the truth."""

import importlib.util
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from prism_marl.cli import main
from prism_marl.errors import UserError
from prism_marl.experiment.presets import preset
from prism_marl.paper import budgets, guide, plan, registry, speeds
from prism_marl.paper.registry import TARGETS
from prism_marl.paper.scales import SCALES, at_scale
from prism_marl.paper.settings import setting_rows
from prism_marl.paper.target import Curve, Gathered, Target, gather
from prism_marl.reports import stats
from prism_marl.reports.load import load_run
from prism_marl.runs.runner import make_trainer
from prism_marl.sweeps.grid import folder_of
from synthetic import make_run
from tiny import foraging, small

TRAINED = [name for name, target in TARGETS.items() if target.curves(False)]


def experiments(name: str, scale: str = "paper", real: bool = False):
    return TARGETS[name].sweep(at_scale(TARGETS[name].curves(real), SCALES[scale])).experiments


def test_every_figure_has_the_experiments_that_the_paper_lists():
    number = {"fig-lbf": 8, "fig-smacv2": 24, "fig-mamujoco": 48, "fig-budgets": 32, "fig-regularisers": 18,
              "fig-common-ratio": 6, "fig-masking": 6, "fig-spectra": 1}  # fmt: skip
    assert {name: len(experiments(name)) for name in TRAINED} == number
    assert {e.task for e in experiments("fig-smacv2", real=True)} == {
        f"smacv2/{race}_5_vs_5" for race in ("terran", "protoss", "zerg")
    }


@pytest.mark.parametrize("scale", ["smoke", "laptop"])
def test_every_experiment_is_valid_and_runs_to_the_end_of_its_schedules(scale):
    for experiment in {e for name in TRAINED for e in experiments(name, scale)}:
        experiment.validate()
        assert experiment.run.seeds == SCALES[scale].seeds
        assert getattr(experiment.sharing, "pretraining", 0) < experiment.run.steps / 2
        assert getattr(experiment.learner, "warmup", 0) < experiment.run.steps


def test_at_the_paper_scale_only_the_number_of_seeds_is_not_the_preset():
    for experiment in experiments("fig-mamujoco") + experiments("fig-lbf"):
        name = "paper" if experiment.task.startswith("mamujoco") else "default"
        expected = preset(experiment.task, experiment.sharing.method, name)
        assert experiment == expected.changed(run=replace(expected.run, seeds=5))


def test_figures_share_their_runs(tmp_path):
    folders = {name: {folder_of(e, tmp_path) for e in experiments(name, "laptop")} for name in TRAINED}
    performance = folders["fig-smacv2"] | folders["fig-mamujoco"]
    assert {path.name.partition("-")[0] for path in folders["fig-masking"] - performance} == {"fups_id_svd"}
    assert folders["fig-spectra"] < folders["fig-mamujoco"]
    assert len(folders["fig-regularisers"] & performance) == 2 and len(folders["fig-common-ratio"] & performance) == 2
    nops = [path for path in folders["fig-budgets"] & performance if path.name.startswith("nops")]
    assert len(nops) == 4, "the full budget of NoPS is its own size"


def test_ablations_change_one_weight_and_budgets_one_width():
    for term, name in (("diversity", "diversity"), ("ortho", "orthogonality")):
        curves = [c for c in TARGETS["fig-regularisers"].curves(False) if c.panel == f"mamujoco/ant-4x2, {name}"]
        default = preset("mamujoco/ant-4x2", "prism").sharing
        assert [getattr(c.experiment.sharing, term) / getattr(default, term) for c in curves] == pytest.approx(
            [0, 0.5, 1, 2, 10]
        )
        assert all(replace(c.experiment.sharing, **{term: getattr(default, term)}) == default for c in curves)
    assert {c.experiment.sharing.common for c in TARGETS["fig-common-ratio"].curves(False)} == {0, 0.25, 0.5}
    widths = budgets.published()["widths"]
    for curve in TARGETS["fig-budgets"].curves(True):
        pair = widths[curve.experiment.task][curve.experiment.sharing.method]
        assert curve.experiment.network.width == pair[curve.panel.endswith("half")]


def test_lines_of_a_panel_can_be_told_apart_and_a_method_has_one_colour():
    for name in TRAINED:
        curves = TARGETS[name].curves(False)
        for panel in Gathered(curves).panels:
            looks = [(c.colour, c.dashes) for c in curves if c.panel == panel]
            assert len(set(looks)) == len(looks)
    known = {
        (c.label, c.colour) for name in ("fig-lbf", "fig-mamujoco", "fig-masking") for c in TARGETS[name].curves(False)
    }
    assert len({label for label, _ in known}) == len(known)


def test_the_tables_agree_with_the_paper():
    assert all(row["agrees"] for row in setting_rows())
    for name in ("table-budgets", "table-scaling"):
        (rows,) = TARGETS[name].plot(Gathered()).tables.values()
        assert rows and all(row["agrees"] for row in rows)


def put_runs(curves: tuple[Curve, ...], runs: Path, methods: tuple[str, ...]) -> dict[str, Path]:
    """Finished runs of some methods, with made-up rows in the folders of the curves' experiments."""
    places = {}
    for number, curve in enumerate(curves):
        method = curve.experiment.sharing.method
        if method in methods:
            folder = folder_of(curve.experiment, runs)
            make_run(folder.parent, name=folder.name, method=method, task=curve.experiment.task, seed=number)
            (folder / "done").touch()
            places[method] = folder
    return places


def test_a_figure_says_what_is_missing_and_its_numbers_come_from_the_rows(tmp_path, capsys):
    curves = at_scale(TARGETS["fig-lbf"].curves(False), SCALES["laptop"])
    places = put_runs(curves, tmp_path, ("prism", "nops", "fups_id", "snp", "seps"))
    (places["snp"] / "done").unlink()
    rows = places["seps"] / "eval.jsonl"
    rows.write_text(rows.read_text()[:-9])
    (places["fups_id"] / "eval.jsonl").write_text("nothing\n")
    assert main(["reproduce", "fig-lbf", "--scale", "laptop", "--draw-only", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    for sentence in (
        "SNP is not finished yet",
        "AdaPS is not run yet",
        "FuPS+ID is left out",
        "row of eval.jsonl is half",
        "the curves end where the shortest seed ends",  # the seed whose last row that was
    ):
        assert sentence in " ".join(said.split())
    stem = tmp_path / "figures" / "fig-lbf-laptop"
    assert stem.with_suffix(".png").read_bytes()[1:4] == b"PNG" and stem.with_suffix(".pdf").stat().st_size > 5_000
    found = json.loads(stem.with_suffix(".json").read_text())
    finals = {row["line"]: row for row in found["tables"]["Final return"]}
    assert set(finals) == {"Prism", "NoPS", "SePS"} and len(found["missing"]) == 7
    final = [json.loads(line) for line in (places["nops"] / "eval.jsonl").read_text().splitlines()]
    last = [row["return"] for row in final if row["evaluation"] == max(row["evaluation"] for row in final)]
    assert finals["NoPS"]["final"][0] == pytest.approx(stats.interquartile_mean(last), abs=0.05)  # curves end together
    assert f"{finals['NoPS']['final'][0]:.3f}" in stem.with_suffix(".md").read_text()


def test_improvement_over_all_panels_is_the_mean_of_the_panels(tmp_path):
    curves = at_scale(TARGETS["fig-smacv2"].curves(False), SCALES["smoke"])
    put_runs(curves, tmp_path, ("prism", "nops"))
    result = TARGETS["fig-smacv2"].plot(gather(curves, tmp_path))
    rows = result.tables["Probability that the reference is better"]
    assert [row["panel"] for row in rows][-1] == "all 3 panels" and {row["against"] for row in rows} == {"NoPS"}
    assert rows[-1]["probability"][0] == pytest.approx(np.mean([row["probability"][0] for row in rows[:-1]]))


@pytest.mark.parametrize("name", ["fig-regularisers", "fig-lbf"])
def test_nothing_of_a_figure_is_cut_off(name, tmp_path):
    curves = at_scale(TARGETS[name].curves(False), SCALES["laptop"])
    for experiment in TARGETS[name].sweep(curves).experiments:
        folder = folder_of(experiment, tmp_path)
        make_run(folder.parent, name=folder.name, method="prism", evaluations=3, seeds=2, spectra=False)
        (folder / "done").touch()
    figure = TARGETS[name].plot(gather(curves, tmp_path)).figure
    assert figure is not None
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (legend,) = figure.legends
    box = legend.get_window_extent(canvas.get_renderer())
    assert box.x0 >= 0 and box.x1 <= figure.bbox.x1
    assert [text.get_text() for text in legend.get_texts()] == list(dict.fromkeys(c.label for c in curves))


def test_the_spectral_figure_shows_distances_of_the_recorded_spectra(tmp_path):
    target = TARGETS["fig-spectra"]
    curves = at_scale(target.curves(False), SCALES["smoke"])
    assert target.plot(gather(curves, tmp_path)).figure is not None, "a figure that says that there is nothing"
    folder = put_runs(curves, tmp_path, ("prism",))["prism"]
    result = target.plot(gather(curves, tmp_path))
    assert result.figure is not None and len(result.figure.axes) == 2 * 4 + 2
    layer = next(layer for layer in load_run(folder).spectra.layers if layer.name == "fc2")  # pyright: ignore
    by_hand = [np.abs(layer.spectrum[-1, seed, i] - layer.spectrum[-1, seed, j]).sum()
               for seed in range(5) for i in range(3) for j in range(i)]  # fmt: skip
    row = [row for row in result.tables["How far agents lie apart"] if row["layer"] == "fc2"][-1]
    assert row["mean L1 distance"] == pytest.approx(np.mean(by_hand), rel=1e-3)


def test_planned_memory_is_that_of_the_training_state():
    for experiment in (foraging(), preset("mamujoco/hopper-3x1", "prism")):
        state = make_trainer(experiment).shapes()
        held = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
        assert plan.needed_bytes(experiment) == pytest.approx(held, rel=0.01)


SPEED = speeds.Speed("lbf/10x10-3p-3f", "prism", 5, 1, 64, 32, "gpu", "some GPU", 8, 50_000.0, 30.0, 2.0, "2026-01-01")


def test_planned_time_by_hand():
    run = preset("lbf/10x10-3p-3f", "prism")
    five = run.changed(run=replace(run.run, steps=1_000_000, seeds=5, eval_every=500_000))
    assert speeds.seconds_for(five, SPEED) == pytest.approx(30 + 5_000_000 / 50_000 + 3 * 2)
    one = five.changed(run=replace(five.run, seeds=1))
    assert speeds.seconds_for(one, SPEED) == speeds.seconds_for(five, SPEED), "seeds share a GPU"
    host = replace(SPEED, platform="cpu")
    assert speeds.seconds_for(one, host) == pytest.approx(30 + 1_000_000 / 50_000 + 3 * 2)


def test_planned_time_names_its_source_and_prefers_runs_of_this_folder():
    run, other = preset("lbf/10x10-3p-3f", "prism"), replace(SPEED, method="nops", steps_per_second=1.0)
    assert plan.time_of(run, "gpu", [], [other, SPEED])[1] == "measured on some GPU"
    assert plan.time_of(run, "gpu", [], [other])[1] == "measured on some GPU, nops on lbf/10x10-3p-3f"
    assert plan.time_of(run, "gpu", [SPEED], [other])[1] == "a finished run here"
    for nothing in (replace(SPEED, platform="cpu"), replace(SPEED, batch=8), replace(SPEED, task="roles/4")):
        seconds, source = plan.time_of(run, "gpu", [], [nothing])
        assert seconds is None and "not known" in source


def test_a_finished_run_is_a_speed(trained):
    (speed,) = speeds.found_in(trained)
    assert (speed.task, speed.method, speed.seeds, speed.platform) == ("lbf/4x4-2p-1f", "prism", 2, "cpu")
    assert speed.steps_per_second > 0 and speed.rest_seconds is not None
    rows = [json.loads(line) for line in (trained / "timing.jsonl").read_text().splitlines()]
    spent = sum(row["seconds"] for row in rows) + rows[-1]["compile_seconds"]
    assert speeds.seconds_for(foraging(), speed) > 0.5 * spent


def test_recorded_speeds_are_complete():
    assert all(s.steps_per_second > 0 and s.cores > 0 and s.platform in ("cpu", "gpu") for s in speeds.recorded())
    tasks = {(s.platform, s.task.partition("/")[0]) for s in speeds.recorded()}
    assert {("cpu", "lbf"), ("cpu", "skirmish"), ("cpu", "mamujoco"), ("gpu", "lbf")} <= tasks


@pytest.fixture
def toy(monkeypatch) -> Target:
    """A target of three tiny experiments, one of which two lines share."""
    fresh, broken = (small("roles/2", m, run__steps="20", run__eval_every="10") for m in ("fups", "snp"))
    lines = {"A": foraging(), "B": fresh, "C": fresh, "D": broken}
    curves = tuple(Curve("toy", label, e, "#000000", reference=label == "A") for label, e in lines.items())
    target = Target("fig-toy", "for this test", TARGETS["fig-lbf"].plot, lambda real: curves)
    monkeypatch.setitem(registry.TARGETS, "fig-toy", target)
    return target


def test_reproduce_trains_what_is_left_draws_and_tells_what_failed(toy, trained, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(SCALES, "paper", replace(SCALES["paper"], seeds=2))
    done, _, broken = toy.sweep(at_scale(toy.curves(False), SCALES["paper"])).experiments
    shutil.copytree(trained, folder_of(done, tmp_path))
    folder_of(broken, tmp_path).mkdir(parents=True)
    (folder_of(broken, tmp_path) / "config.json").write_text("{")
    assert main(["reproduce", "fig-toy", "--scale", "paper", "--out", str(tmp_path)]) == 1
    said = " ".join("".join(capsys.readouterr()).split())
    assert "2 experiments to run, 1 finished before" in said and "config.json: this is not JSON" in said
    assert "toy: D is not finished yet and left out." in said
    found = json.loads((tmp_path / "figures" / "fig-toy-paper.json").read_text())
    assert [row["line"] for row in found["tables"]["Final return"]] == ["A", "B", "C"]
    assert len(list(tmp_path.glob("roles-2/fups-*"))) == 1, "two lines, one run"


def test_a_plan_starts_nothing(tmp_path, capsys):
    out = tmp_path / "runs"
    assert main(["reproduce", "table-settings", "--plan", "--out", str(out)]) == 0
    assert "nothing is trained" in capsys.readouterr().out
    assert main(["reproduce", "fig-spectra", "--scale", "smoke", "--plan", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "mamujoco/ant-4x2" in said and "2,000 x 2" in said and "MiB" in said and not out.exists()


def test_mistakes_cost_one_sentence(tmp_path, capsys):
    for words, expected in (
        (["fig-lfb"], "did you mean 'fig-lbf'"),
        (["fig-lbf", "--scale", "papre"], "did you mean 'paper'"),
        (["fig-lbf", "--executor", "locl"], "did you mean 'local'"),
        (["fig-lbf", "--jbos", "2"], "did you mean '--jobs'"),
        (["fig-lbf", "--plan", "--draw-only"], "not allowed with"),
    ):
        assert main(["reproduce", *words, "--out", str(tmp_path)]) == 2
        assert expected in capsys.readouterr().err


def test_a_task_that_cannot_run_here_is_one_line(tmp_path, capsys, monkeypatch):
    def absent(task, *_):
        raise UserError(f"task: '{task}' is not here")

    plan.why_not.cache_clear()
    monkeypatch.setattr("prism_marl.envs.make_python", absent)
    command = ["reproduce", "fig-smacv2", "--scale", "smoke", "--real", "--out", str(tmp_path)]
    assert main(command) == 1
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and "fig-smacv2: smacv2/terran_5_vs_5 cannot run here" in said.err
    assert not list(tmp_path.rglob("config.json"))
    plan.why_not.cache_clear()


def test_the_list_and_the_page_name_every_target(capsys):
    assert main(["reproduce"]) == 0
    listed, page = capsys.readouterr().out, (Path(__file__).parents[1] / "docs" / "reproduce.md").read_text()
    for name in TARGETS:
        assert name in listed and f"prism-marl reproduce {name}" in page
    for scale in SCALES:
        assert all(f"`prism-marl reproduce {name} --scale {scale}`" in page for name in TRAINED)
    assert page.startswith(guide.INTRODUCTION)
    laptop = next(line for line in page.splitlines() if "fig-lbf --scale laptop`" in line)
    one = {"fig-lbf": TARGETS["fig-lbf"]}
    assert guide.scale_table(SCALES["laptop"], speeds.recorded(), one)[-1] == laptop, "write the page again"


def test_the_pages_of_results_have_the_numbers_of_the_kept_rows(monkeypatch):
    root = Path(__file__).parents[1]
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    spec = importlib.util.spec_from_file_location("results_page", root / "benchmarks" / "results.py")
    assert spec and spec.loader
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    written = "".join(each.read_text() for each in page.PAGES)
    assert all(block in written for block in page.blocks().values()), "run benchmarks/results.py"


def test_durations_are_said_as_people_say_them():
    words = [plan.in_words(seconds) for seconds in (5, 75, 100, 5_000, 40_000, 200_000, math.nan)]
    assert words == ["5 s", "75 s", "1.7 min", "83 min", "11 h", "2.3 d", "?"]
