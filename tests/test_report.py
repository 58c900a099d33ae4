"""The page: complete, safe against hostile names, tolerant of holes, small and quick."""

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from prism_marl import cli
from prism_marl.errors import UserError
from prism_marl.reports import page as page_module
from prism_marl.reports import page_curves, page_data, page_figures
from prism_marl.reports.comparison import few_seeds
from prism_marl.reports.load import Run, SeedCurve
from prism_marl.reports.page import write_page, write_report
from prism_marl.scene import FOE, GOAL, SHIELD
from synthetic import FOOTPRINT, make_run, write_json, write_jsonl

HOSTILE = "</script><!--<img src=x onerror=alert(1)>\u2028{{data}}'\"&"


class Outline(HTMLParser):
    """Tags with their attributes, and the text of every script."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.title, self._open = [], [], "", ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        if self._open == "script":
            self.scripts[-1] += data
        if self._open == "title":
            self.title += data


def data_of(page):
    return json.loads(Outline(page).scripts[0])


def written(tmp_path, *runs, **options):
    return write_report(runs, tmp_path / "out" / "index.html", **options).read_text(encoding="utf-8")


def test_the_page_holds_everything_and_asks_for_nothing(tmp_path):
    page = written(tmp_path, make_run(tmp_path / "runs", evaluations=8))
    outline = Outline(page)
    assert outline.title == "Prism on lbf/10x10-3p-3f"
    ids = {attributes.get("id") for _, attributes in outline.tags}
    assert {
        "learning",
        "scores",
        "settings",
        "spectrum",
        "replay",
        "footprint",
        "training",
        "record",
        "missing",
        "data",
    } <= ids
    assert not [tag for tag, attributes in outline.tags if attributes.get("src")]
    links = [attributes["href"] for _, attributes in outline.tags if attributes.get("href")]
    assert all(link.startswith(("#", "data:")) for link in links)
    assert "@import" not in page
    assert re.findall(r"https?://[^\s\"']+", page) == ["http://www.w3.org/2000/svg"]


def test_the_data_follow_the_run(tmp_path):
    (run,) = data_of(written(tmp_path, make_run(tmp_path / "runs", evaluations=8)))["runs"]
    assert run["label"] == "Prism"
    assert set(run["curves"]) == {"return", "length", "collected"}
    assert {name: curve["seeds"]["count"] for name, curve in run["curves"].items()} == dict.fromkeys(run["curves"], 5)
    assert {curve["seeds"]["count"] for curve in run["training"].values()} == {5}
    final, low, high = run["scores"]["final"]
    assert low <= final <= high
    assert len(run["footprint"]) == len(FOOTPRINT)
    assert len(run["replays"][0]["frames"]) > 5
    assert ["sharing.common", "0.6"] in run["config"]
    assert run["notes"] == []


def test_spectra_survive_the_encoding(tmp_path):
    from prism_marl.reports.load import load_run

    path = make_run(tmp_path / "runs", evaluations=5)
    spectra = data_of(written(tmp_path, path))["runs"][0]["spectra"]
    loaded = load_run(path).spectra
    assert loaded is not None
    for layer, truth in zip(spectra["layers"], loaded.layers, strict=True):
        raw = np.frombuffer(base64.b64decode(layer["bytes"]), dtype=np.uint8).reshape(truth.mask.shape)
        np.testing.assert_array_equal(raw > 0, truth.mask)
        values = np.where(raw > 0, (raw.astype(float) - 1) / 254 * layer["top"], 0)
        np.testing.assert_allclose(values, np.abs(truth.spectrum) * truth.mask, atol=layer["top"] / 254)
        assert layer["apart"]["y"][0] == 0.0
        assert layer["apart"]["y"][-1] > 0.1


def test_hostile_strings_stay_strings(tmp_path):
    path = make_run(tmp_path / "runs", evaluations=3, method=HOSTILE, task=HOSTILE, name="x<img onerror=1>")
    write_json(path / "machine.json", {HOSTILE: HOSTILE})
    write_json(path / "footprint.json", [{"method": HOSTILE, "label": HOSTILE, "parameters": 5}])
    shape = {"kind": HOSTILE, "x": 1, "y": 1, "size": 1, "colour": 0, "label": HOSTILE}
    frame = {"width": 2, "height": 2, "caption": HOSTILE, "extra": {HOSTILE: 1}, "shapes": [shape]}
    write_json(path / "replays" / "evil.json", {"title": HOSTILE, "return": None, "frames": [frame]})
    page = written(tmp_path, path, title=HOSTILE)
    outline = Outline(page)
    assert "img" not in {tag for tag, _ in outline.tags}
    assert len(outline.scripts) == 2
    assert outline.title == HOSTILE
    assert data_of(page)["runs"][0]["task"] == HOSTILE
    assert "<" not in outline.scripts[0]


def test_the_scripts_never_parse_markup():
    script = "".join(
        (page_module.resources.files("prism_marl.reports") / "assets" / n).read_text() for n in page_module.SCRIPTS
    )
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "fetch("):
        assert way not in script


def test_the_content_policy_admits_the_script_of_the_page_and_no_other(tmp_path):
    outline = Outline(written(tmp_path, make_run(tmp_path / "runs", evaluations=2)))
    digest = base64.b64encode(hashlib.sha256(outline.scripts[1].encode()).digest()).decode()
    (policy,) = [attributes["content"] for tag, attributes in outline.tags if "http-equiv" in attributes]
    assert f"script-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


def test_an_empty_run_still_gives_a_page_that_says_what_is_missing(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "eval.jsonl").write_text("")
    page = written(tmp_path, tmp_path / "runs")
    (run,) = data_of(page)["runs"]
    assert run["scores"] is None
    assert run["curves"] == {}
    assert any("no learning curve" in note for note in run["notes"])
    assert "No evaluation has been written yet." in page


def test_values_that_are_not_numbers_become_null(tmp_path):
    path = make_run(tmp_path / "runs", evaluations=3, seeds=1)
    rows = [{"seed": 0, "step": step, "return": math.nan if step == 1 else 1.0, "won": math.inf} for step in range(3)]
    write_jsonl(path / "eval.jsonl", rows)
    write_json(path / "footprint.json", [{"method": "prism", "parameters": 10, "private": math.nan}])
    page = written(tmp_path, path)
    for text in (Outline(page).scripts[0],):
        assert "NaN" not in text
        assert "Infinity" not in text
    run = data_of(page)["runs"][0]
    assert run["curves"]["return"]["y"] == [1.0, 1.0]
    assert run["footprint"][0]["private"] is None
    assert any("no finite return" in note for note in run["notes"])
    assert "one seed, so no interval" in page


@pytest.mark.parametrize(("seeds", "said"), [
    ([5, 6], ""), ([], ""), ([0], ""), ([1], "This run has one seed: with fewer than five,"),
    ([4], "This run has 4 seeds: with fewer than five,"), ([2, 3], "All 2 runs have fewer than five seeds:"),
    ([2, 5], "1 of 2 runs (Run 0 on t) has fewer"),
    ([2, 5, 1, 1, 1], "4 of 5 runs (Run 0 on t, Run 2 on t, Run 3 on t and 1 more) have fewer"),
])  # fmt: skip
def test_few_seeds_are_warned_of_in_one_sentence(seeds, said):
    curve = SeedCurve(0, np.zeros(1), {})
    runs = [Run("r", "t", "m", evaluations=(curve,) * count) for count in seeds]
    warning = few_seeds(runs, [f"Run {index}" for index in range(len(runs))])
    assert warning.startswith(said) and bool(warning) == bool(said) and warning.count(".") <= 1
    assert not warning or warning.endswith("on other seeds, or that it is better or worse than another method.")


def test_single_seeds_are_packed_without_loss_to_the_eye():
    values = np.random.default_rng(0).normal(size=(3, 7))
    found = page_curves.packed(values)
    share = np.frombuffer(base64.b64decode(found["bytes"]), "<u2").reshape(3, 7) / page_curves.LEVELS
    np.testing.assert_allclose(found["low"] + share * (found["high"] - found["low"]), values, atol=1e-4)
    assert set(base64.b64decode(page_curves.packed(np.full((2, 2), 7.0))["bytes"])) == {0}, "all alike"
    page_curves.packed(np.array([[-1.7e308, 1.7e308]]))  # their difference is no number


def test_two_methods_are_compared_both_ways(tmp_path):
    make_run(tmp_path / "runs", method="fups", evaluations=5)
    make_run(tmp_path / "runs", method="prism", evaluations=5, seed=1)
    data = data_of(written(tmp_path, tmp_path / "runs"))
    assert [run["method"] for run in data["runs"]] == ["prism", "fups"]
    assert data["runs"][data["headline"]]["method"] == "prism"
    (table,) = data["improvement"]
    assert [data["runs"][index]["method"] for index in table["runs"]] == ["prism", "fups"]
    ours, theirs = table["table"][0][1], table["table"][1][0]
    assert table["table"][0][0] is None
    assert 0.5 < ours[0] <= 1.0
    assert theirs == pytest.approx([1 - ours[0], 1 - ours[2], 1 - ours[1]])


def test_the_spectra_are_capped(tmp_path, monkeypatch):
    path = make_run(tmp_path / "runs", evaluations=70)
    monkeypatch.setattr(page_curves, "SPECTRA_BYTES", 70_000)
    run = data_of(written(tmp_path, path))["runs"][0]
    assert len(run["spectra"]["steps"]) == 60
    assert run["spectra"]["seeds"] == 2
    assert any("2 of 5 seeds" in note for note in run["notes"])


def test_masks_of_roles_are_called_roles(tmp_path):
    path = make_run(tmp_path / "runs", evaluations=2)
    config = json.loads((path / "config.json").read_text())
    config["sharing"]["masks"] = "role"
    write_json(path / "config.json", config)
    assert data_of(written(tmp_path, path))["runs"][0]["spectra"]["word"] == "role"


def test_the_same_runs_give_the_same_page(tmp_path):
    path = make_run(tmp_path / "runs", evaluations=4)
    first = written(tmp_path, path)
    assert written(tmp_path, path) == first
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["index.html"]


def test_a_failed_write_leaves_the_old_page_and_no_litter(tmp_path, monkeypatch):
    path = make_run(tmp_path / "runs", evaluations=2)
    before = written(tmp_path, path)
    monkeypatch.setattr(page_module.Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(UserError, match="disk full"):
        write_report([path], tmp_path / "out" / "index.html")
    assert (tmp_path / "out" / "index.html").read_text(encoding="utf-8") == before
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["index.html"]


def test_the_command_writes_a_file_or_a_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(page_module, "planned_figures", lambda *_: [])
    path = make_run(tmp_path / "runs", evaluations=2, seeds=1, replays=0, spectra=False)
    wanted = {
        (): path / "report.html",
        ("--out", str(tmp_path / "one.html")): tmp_path / "one.html",
        ("--out", str(tmp_path / "page")): tmp_path / "page" / "index.html",
    }
    for words, page in wanted.items():
        assert cli.main(["report", str(path), *words]) == 0
        assert capsys.readouterr().out.strip() == str(page)
        assert page.is_file()
    assert cli.main(["report", str(tmp_path / "nowhere")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_a_wrong_folder_is_the_users_business(tmp_path):
    with pytest.raises(UserError, match="there is no folder"):
        write_report([tmp_path / "nowhere"], tmp_path / "index.html")


def test_many_runs_bring_less_each_and_the_page_stays_small(tmp_path, monkeypatch):
    opened = []
    reading = page_data.load_run
    monkeypatch.setattr(
        page_data, "load_run", lambda folder, **limits: opened.append(limits) or reading(folder, **limits)
    )
    monkeypatch.setattr(page_data, "REPLAY_SHAPES", 1500)
    for index in range(40):
        method = FOOTPRINT[index % len(FOOTPRINT)][0]
        make_run(tmp_path / "runs", method=method, task=f"lbf/{index // 8}", evaluations=40, seed=index, replays=2)
    study = page_data.load_study([tmp_path / "runs"])
    page = page_module.render_page(study)
    data = data_of(page)
    assert len(data["runs"]) == len(opened) == 40  # every folder is read once
    figures = page_figures.planned_figures(study.runs, study.improvement)
    assert [figure.key.split(":")[0] for figure in figures] == [
        "learning", "scores", "improvement", "footprint", "spectrum", "diversity", "training"
    ]  # fmt: skip
    assert {limits["replay_limit"] for limits in opened} == {1}
    assert {limits["spectra_limit"] for limits in opened} == {30}
    assert len(page) < 2_500_000
    assert {len(run["curves"]["return"]["x"]) for run in data["runs"]} == {100}
    shown = [run["replays"] for run in data["runs"] if run["replays"]]
    assert 0 < len(shown) < 40  # as many as there is room for, and the others are told of
    assert any("more replays" in note["what"] and len(note["who"]) > 20 for note in data["missing"])


def test_folders_of_one_name_are_told_apart_by_what_is_above_them(tmp_path):
    for folder, seed in (("one/x", 0), ("two/x", 1), ("three", 2)):
        make_run(tmp_path / folder, name="prism" if "x" in folder else "alone", evaluations=2, seeds=1, seed=seed)
    (tmp_path / "link").symlink_to(tmp_path / "one")
    study = page_data.load_study([tmp_path / name for name in ("one", "two", "three", "link")])
    assert [run.name for run in study.runs] == ["one/x/prism", "two/x/prism", "alone"]


def test_what_is_missing_is_said_for_the_whole_comparison(tmp_path):
    make_run(tmp_path / "runs", method="prism", task="lbf/a", evaluations=6, replays=0)
    make_run(tmp_path / "runs", method="fups", task="lbf/a", evaluations=3, seeds=2, replays=0)
    make_run(tmp_path / "runs", method="prism", task="lbf/b", evaluations=6, seed=1, replays=0)
    broken = make_run(tmp_path / "runs", method="prism", task="lbf/b", evaluations=6, seed=2, replays=0)
    (broken / "eval.jsonl").write_text('{"evaluation": 0, "se\n' + (broken / "eval.jsonl").read_text()[:-20])
    (tmp_path / "runs" / "died" / "early").mkdir(parents=True)
    (tmp_path / "runs" / "died" / "early" / "log.txt").write_text("out of memory")
    missing = data_of(written(tmp_path, tmp_path / "runs"))["missing"]
    said = " ".join(note["what"] for note in missing)
    for part in (
        "The folder runs/died/early holds no run",
        "lbf/b has no evaluations of FuPS.",
        "On lbf/a runs have 2 to 5 seeds",
        "On lbf/a runs end between step 100",
        "2 of 31 rows of eval.jsonl cannot be read",
    ):
        assert part in said


def test_folders_without_runs_give_a_page_that_says_so(tmp_path):
    (tmp_path / "runs" / "nothing").mkdir(parents=True)
    page = written(tmp_path, tmp_path / "runs")
    assert "The folders hold no runs yet." in page
    said = [note["what"] for note in data_of(page)["missing"]]
    assert said == [
        "The folder runs/nothing holds no run: its experiment never wrote a file.",
        "There are no runs, so there is nothing to draw.",
    ]


def test_a_page_in_a_folder_has_every_figure_as_png_and_pdf(tmp_path, monkeypatch):
    monkeypatch.setattr(page_figures, "FEW", 0)  # the figures of one run and one layer stand for all
    make_run(tmp_path / "runs", evaluations=3, seeds=2, name="a/b<script>")
    make_run(tmp_path / "runs", method=HOSTILE, evaluations=3, seeds=2, replays=0)
    out = tmp_path / "page"
    (out / "figures").mkdir(parents=True)
    with pytest.raises(UserError, match="of something else"):
        write_page([tmp_path / "runs"], out)
    (out / "figures").rmdir()
    index = write_page([tmp_path / "runs"], out)
    figures = data_of(index.read_text(encoding="utf-8"))["figures"]
    kinds = {key.split(":")[0] for key in figures}
    assert kinds == {"learning", "scores", "improvement", "footprint", "spectrum", "diversity", "training"}
    files = {path.relative_to(out).as_posix() for path in (out / "figures").iterdir()}
    assert files == {f"{stem}.{kind}" for stem in figures.values() for kind in ("png", "pdf")} | {
        "figures/figures.json"
    }
    assert all(re.fullmatch(r"figures/[A-Za-z0-9._+-]+", stem) for stem in figures.values())
    heads = {path.suffix: path.read_bytes()[:4] for path in (out / "figures").glob("*.p*")}
    assert heads == {".png": b"\x89PNG", ".pdf": b"%PDF"}


def test_figures_of_an_earlier_page_go_and_what_is_not_ours_stays(tmp_path, monkeypatch):
    planned = [[0, 1], [0]]
    monkeypatch.setattr(
        page_module, "planned_figures", lambda *all: [page_figures.planned_figures(*all)[n] for n in planned.pop(0)]
    )
    out = tmp_path / "page"
    write_page([make_run(tmp_path / "runs", method="fups", evaluations=2, seeds=1, replays=0)], out)
    made = {path.name for path in (out / "figures").glob("*.p*")}
    (out / "figures" / "notes.png").write_text("mine")
    write_page([tmp_path / "runs"], out)
    left = {path.name for path in (out / "figures").glob("*.p*")}
    assert len(made) == 4 and left == {"curves.png", "curves.pdf", "notes.png"} and left - made == {"notes.png"}
    (out / "index.html").write_text("<p>mine</p>")
    with pytest.raises(UserError, match="give another"):
        write_page([tmp_path / "runs"], out)
    assert (out / "index.html").read_text() == "<p>mine</p>"
    with pytest.raises(UserError, match="this is a file"):
        write_page([tmp_path / "runs"], out / "index.html")


def test_a_replay_written_by_the_runner_is_shown(tmp_path):
    from prism_marl.runs.folder import write_replay
    from prism_marl.runs.run_files import load_replays
    from prism_marl.scene import Scene, Shape

    scene = Scene(5, 5, (Shape("disc", 1.5, 2.5, 0.8, 0, "2", "A"),), caption="step 0")
    write_replay(tmp_path, "seed-0", "greedy episode", 1.0, [scene, scene])
    notes: list[str] = []
    (replay,), _ = load_replays(tmp_path / "replays", notes)
    assert notes == []
    assert replay.frames[0] == scene


def test_the_page_knows_the_colours_that_belong_to_no_agent():
    script = (Path(page_module.__file__).parent / "assets" / "core.js").read_text()
    for colour in (GOAL, FOE, SHIELD):
        assert f'"{colour}": "--' in script
