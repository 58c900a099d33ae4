"""What a sweep shows while it runs."""

import io
import json
import re

import pytest
from rich.console import Console

from prism_marl.experiment.presets import preset
from prism_marl.runs.progress import ProgressFile, read_progress
from prism_marl.sweeps.executors import Event, Job
from prism_marl.sweeps.grid import folder_of, grid
from prism_marl.sweeps.live_view import SweepView, duration, labels, last_return

BASES = [preset("roles/2", "fups"), preset("roles/3", "nops")]
SWEEP = grid(BASES, {"learner.lr": [1e-3, 5e-4], "run.steps": 1000, "run.seeds": 2})


@pytest.fixture
def runs(tmp_path):
    """The first is half done, the second finished, the others have not begun."""
    for number, experiment in enumerate(SWEEP[:2]):
        folder = folder_of(experiment, tmp_path)
        folder.mkdir(parents=True)
        rows = [{"evaluation": n, "seed": seed, "return": n + seed / 2} for n in range(3) for seed in range(2)]
        (folder / "eval.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"evaluation": 3, "se')
        ProgressFile(folder, 1000).progress(500, 50.0 if number == 0 else 0.0, "return")
    (folder_of(SWEEP[1], tmp_path) / "done").touch()
    return tmp_path


def shown(runs, *, terminal: bool, height: int = 30) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=150, height=height, color_system=None)
    with SweepView(SWEEP, runs, console) as view:
        view.on_event(Event(Job(SWEEP[0], folder_of(SWEEP[0], runs)), "running"))
        view.on_event(Event(Job(SWEEP[2], folder_of(SWEEP[2], runs)), "failed", "[red]the disk is full"))
    return console.file.getvalue()


def test_a_terminal_shows_a_table(runs):
    last = shown(runs, terminal=True).rpartition("experiment")[2]
    rows = [re.split(r"\s{2,}", line.strip()) for line in last.splitlines()]
    assert ["roles/2 fups learner.lr=0.001", "running", "500 / 1,000", "2.250", "50", "20 s"] in rows
    assert ["roles/2 fups learner.lr=0.0005", "skipped", "1,000", "2.250"] in rows
    assert ["roles/3 nops learner.lr=0.001", "failed"] in rows
    assert ["roles/3 nops learner.lr=0.0005", "waiting"] in rows
    assert "1 running, 1 failed, 1 waiting, 1 skipped" in last


def test_the_return_of_a_finished_run_is_the_final_one_of_page_and_tables(runs):
    asked = []
    console = Console(file=io.StringIO(), force_terminal=True, width=150, height=30, color_system=None)
    view = SweepView(SWEEP, runs, console, final=lambda folder: asked.append(folder) or 7.0)
    cells = [view._cells(experiment)[1] for experiment in SWEEP[:2]]
    assert cells == ["2.250", "7.000"], "one that runs shows its latest evaluation"
    assert [view._cells(SWEEP[1])[1] for _ in range(3)] == ["7.000"] * 3 and len(asked) == 1, "read once"


def test_a_small_terminal_shows_what_matters_most(runs):
    last = shown(runs, terminal=True, height=7).rpartition("experiment")[2]
    assert "running" in last and "nops learner.lr=0.001 " in last and "fups learner.lr=0.0005" not in last


def test_elsewhere_it_is_one_line_for_each_change(runs):
    lines = [line.partition(" ")[2] for line in shown(runs, terminal=False).splitlines()]
    assert lines == [
        "running roles/2 fups learner.lr=0.001",
        "failed roles/3 nops learner.lr=0.001: [red]the disk is full",
    ]


def test_labels_name_what_differs():
    one, other = preset("roles/2", "fups"), preset("roles/2", "fups").with_option("network.width", "13")
    assert list(labels([one, one]).values()) == ["roles/2 fups"]
    assert list(labels([one, other]).values()) == [
        f"roles/2 fups network.width={one.network.width}",
        "roles/2 fups network.width=13",
    ]


def test_what_cannot_be_read_is_not_shown(tmp_path):
    assert last_return(tmp_path) is None and read_progress(tmp_path) is None
    (tmp_path / "eval.jsonl").write_text('[]\n{"evaluation": 1, "return": null}\nnonsense\n')
    (tmp_path / "progress.json").write_text('{"steps": 3')
    assert last_return(tmp_path) is None and read_progress(tmp_path) is None
    strange = ["1e999", "-1e999", "NaN", "1" + "0" * 400]
    rows = [f'{{"evaluation": {number}, "return": {number}}}' for number in strange]
    rows += ['{"evaluation": 1, "return": Infinity}', '{"evaluation": 1, "return": -Infinity}']
    (tmp_path / "eval.jsonl").write_text("\n".join([*rows, '{"evaluation": 1, "return": 0.5}']))
    assert last_return(tmp_path) == 0.5
    sound = {"steps": 1, "total": 2, "rate": 1.0, "text": "", "pid": 3, "time": 4.0}
    for name in ("steps", "rate", "time", "pid"):
        for number in strange[:3]:
            text = json.dumps(sound | {name: "@"}).replace('"@"', number)
            (tmp_path / "progress.json").write_text(text)
            assert read_progress(tmp_path) is None, text
    (tmp_path / "progress.json").write_text(json.dumps(sound))
    assert read_progress(tmp_path)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (61, "1 min 01 s"), (7260, "2 h 01 min"), (1e300, ""), (float("inf"), ""), (float("nan"), "")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text
