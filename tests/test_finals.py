"""One definition of "final" for terminal, page, figures and tables, and no winner where the seeds name none."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from prism_marl.monitor import Quiet
from prism_marl.paper.numbers import final_numbers
from prism_marl.reports import comparison_figures, page_data, stats
from prism_marl.reports.comparison import improvement_tables
from prism_marl.reports.finals import Final, final_of, final_return, settled, why_no_winner, winner
from prism_marl.reports.load import SeedCurve, load_run
from prism_marl.reports.outcome import number_words, tell_outcome
from prism_marl.reports.page import render_page
from prism_marl.reports.page_data import load_study
from prism_marl.reports.start import start_sentence
from prism_marl.runs.masks import StartCounts
from synthetic import make_run, write_jsonl


def curve(seed, steps, values, name="return"):
    return SeedCurve(seed, np.array(steps, float), {name: np.array(values, float)})


def final(*values: float) -> Final:
    return Final(1.0, np.array(values))


def test_final_is_the_last_step_that_all_seeds_have_reached():
    """Seed 0 has nothing at step 15, between 2 at 10 and 6 at 20; seed 1 ends there."""
    curves = [curve(0, [0, 10, 20], [0, 2, 6]), curve(1, [0, 5, 15], [0, 1, 9])]
    found = final_of(curves)
    assert found is not None and found.step == 15
    assert found.values.tolist() == [4.0, 9.0]
    early = final_of(curves, until=12)
    assert early is not None and (early.step, early.values.tolist()) == (10, [2.0, 5.0])
    assert final_of(curves, "won") is None and final_of([]) is None and final_of(curves, until=-1) is None


def ragged(folder: Path) -> Path:
    """A run whose seeds end at different steps, so that every other reading of "final" gives another number."""
    path = make_run(folder, evaluations=4, seeds=5, spectra=False, replays=0)
    rows = [
        {"evaluation": n, "seed": seed, "step": 100 * n + 10 * seed * n, "return": float((n + 1) ** 2 * (seed + 1))}
        for n in range(4)
        for seed in range(5)
    ]
    write_jsonl(path / "eval.jsonl", rows)
    return path


def test_terminal_page_figure_and_tables_say_the_same(tmp_path, capsys):
    path = ragged(tmp_path)
    run = load_run(path)
    found = final_of(run.evaluations)
    assert found is not None and found.step == 300, "seed 0 ends there"
    value = stats.interquartile_mean(found.values)
    assert final_return(path) == pytest.approx(value)
    assert final_numbers(run)["final"][0] == pytest.approx(value)
    scores = page_data.page_data(load_study([path]), {})["runs"][0]["scores"]
    assert (scores["final"][0], scores["steps"]) == (pytest.approx(value), 300)
    table = improvement_tables([run, run])[0]
    axis = comparison_figures.final_returns([run, run], [table]).axes[0]
    dots = np.asarray(axis.collections[1].get_offsets())[:, 0]
    np.testing.assert_allclose(sorted(dots), sorted([*found.values, value]))
    root = Path(__file__).parents[1] / "benchmarks" / "learn.py"
    spec = importlib.util.spec_from_file_location("learn_script", root)
    assert spec and spec.loader
    learn = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(learn)
    told = learn.summary(path)
    assert str([round(one, 3) for one in sorted(found.values.tolist())]) in told and "at step 300" in told
    (tmp_path / "kept").mkdir()
    path.rename(tmp_path / "kept" / path.name)
    learn.draw(tmp_path / "kept", None, ["return"], float("inf"))
    assert f"| 300 | {value:.3f} [" in capsys.readouterr().out


class Told(Quiet):
    """What a monitor is told."""

    def __init__(self):
        self.bar, self.notes = (0, 0.0, ""), []

    def progress(self, steps, rate, text):
        self.bar = (steps, rate, text)

    def note(self, text):
        self.notes.append(text)


def test_the_terminal_ends_with_the_final_return_and_the_speed_of_the_page(tmp_path):
    """Neither the latest evaluation nor the speed of the last stretch: both would be other numbers here."""
    path = ragged(tmp_path)
    timing = [{"steps": 1000, "seconds": 1.0, "steps_per_second": 1000.0}, {"steps": 1000, "seconds": 3.0}]
    write_jsonl(
        path / "timing.jsonl", [{**row, "evaluation": 1 + n, "compile_seconds": 9.0} for n, row in enumerate(timing)]
    )
    told = Told()
    tell_outcome(path, told, 300)
    study = load_study([path])
    shown = page_data.page_data(study, {})["runs"][0]
    middle, low, high = shown["scores"]["words"]
    assert told.bar == (300, 500.0, f"final return {middle}")
    assert told.notes == [
        f"final return {middle} (interquartile mean of 5 seeds, 95% interval {low} to {high}), 500 steps/s"
    ]
    assert shown["timing"] == {"seconds": 4.0, "rate": 500.0, "compile": 9.0, "words": "500 steps/s"}
    assert f"return of {middle} (interquartile mean of 5 seeds, 95% interval {low} to {high})" in lede(study)
    assert float(middle) == pytest.approx(shown["scores"]["final"][0], rel=5e-3)


@pytest.mark.parametrize(("value", "words"), [
    (0.0, "0.00"), (0.8321, "0.832"), (-12.34, "-12.3"), (999.4, "999"), (4523.4, "4,523"), (12.0, "12.0"),
    (2e-5, "2.00e-05"), (3e12, "3.00e+12"), (float("nan"), "unknown"),
])  # fmt: skip
def test_numbers_are_written_with_three_digits(value, words):
    assert number_words(value) == words


@pytest.mark.parametrize("rows", [[], [{"seconds": 2.0}], [{"steps": 4, "seconds": 0}]])
def test_without_timing_there_is_no_speed(tmp_path, rows):
    path = ragged(tmp_path)
    write_jsonl(path / "timing.jsonl", rows)
    told = Told()
    tell_outcome(path, told, 300)
    assert told.bar[1] == 0.0
    assert told.notes[0].startswith("final return ") and told.notes[0].endswith(")")
    assert page_data.page_data(load_study([path]), {})["runs"][0]["timing"]["words"] == ""


CLEAR = [final(1, 2, 3, 4, 5), final(11, 12, 13, 14, 15), final(6, 7, 8, 9, 10)]


def test_a_winner_is_named_where_its_interval_lies_above_all_others():
    assert winner(CLEAR) == 1
    assert winner([*CLEAR, final(5, 10, 14, 18, 20)]) is None
    assert why_no_winner([*CLEAR, final(5, 10, 14, 18, 20)]) == "the highest intervals overlap"


def test_no_winner_is_named_with_fewer_than_five_seeds():
    few = [final(*one.values[:4]) for one in CLEAR]
    assert winner(few) is None and why_no_winner(few) == "a run has fewer than five seeds"
    assert winner([CLEAR[1], few[0]]) is None, "an interval of few seeds is too narrow to be above"
    assert winner(CLEAR[:1]) is None, "nobody to win against"


@pytest.mark.parametrize(("chance", "seeds", "sure"), [
    ((0.7, 0.51, 0.9), 5, True), ((0.3, 0.1, 0.49), 5, True), ((0.7, 0.5, 0.9), 5, False), ((1.0, 1.0, 1.0), 4, False),
])  # fmt: skip
def test_a_probability_is_more_than_a_coin_toss_if_its_interval_says_so(chance, seeds, sure):
    assert settled(chance, final(*range(seeds)), final(*range(5))) is sure


def study(folder: Path, ends: dict[str, float], seeds: int = 5, task: str = "lbf/a"):
    """Runs whose seeds end a tenth apart around a value."""
    for method, end in ends.items():
        path = make_run(folder, method=method, task=task, evaluations=2, seeds=seeds, spectra=False, replays=0)
        rows = [{"evaluation": n, "seed": seed, "step": n, "return": n * (end + seed / 10)}
                for n in range(2) for seed in range(seeds)]  # fmt: skip
        write_jsonl(path / "eval.jsonl", rows)
    return load_study([folder])


def lede(found) -> str:
    return render_page(found).partition('<p class="lede">')[2].partition("</p>")[0]


def test_the_page_names_a_clear_winner(tmp_path):
    found = study(tmp_path, {"prism": 1.0, "fups": 3.0})
    assert lede(found).startswith("FuPS ends highest with a return of 3.20 ")
    assert "Prism ends at 1.20 " in lede(found)
    data = page_data.page_data(found, {})
    assert [(one["family"], data["runs"][one["run"]]["method"]) for one in data["winners"]] == [("FuPS", "fups")]


@pytest.mark.parametrize(("ends", "seeds", "why"), [
    ({"prism": 1.0, "fups": 1.1}, 5, "the highest intervals overlap"),
    ({"prism": 1.0, "fups": 3.0}, 4, "a run has fewer than five seeds"),
])  # fmt: skip
def test_the_page_names_no_winner_where_there_is_none(tmp_path, ends, seeds, why):
    found = study(tmp_path, ends, seeds)
    assert "highest with" not in lede(found) and lede(found).startswith("Prism ends at a return of")
    highest = f"The highest final return is {ends['fups'] + 0.1 * (seeds - 1) / 2:.2f}, of FuPS."
    assert lede(found).endswith(f" {highest} No method is named the winner: {why}.")
    assert page_data.page_data(found, {})["winners"] == [{"task": "lbf/a", "run": None, "family": None, "why": why}]


def test_of_many_tasks_only_clear_ones_are_counted(tmp_path):
    for task, ends in {"a": {"prism": 3.0, "fups": 1.0}, "b": {"prism": 1.0, "fups": 1.1}}.items():
        study(tmp_path / task, ends, task=f"lbf/{task}")
    text = lede(load_study([tmp_path]))
    assert text.startswith("One method ends clearly highest on 1 of the 2 tasks on which several methods were")
    assert "trained: Prism on 1. " in text
    assert "No winner is named on the other 1: the highest intervals overlap." in text
    assert "on any of the" not in text
    (tmp_path / "c").mkdir()
    none = study(tmp_path / "c", {"prism": 1.0, "fups": 1.1}, task="lbf/c")
    both = load_study([tmp_path / "b", tmp_path / "c"])
    assert lede(both).startswith("No method is named the winner on any of the 2 tasks") and len(none.runs) == 2


def test_only_settled_probabilities_are_coloured(tmp_path):
    """Between FuPS and NoPS the interval holds one half: white, in the figure and by the page's own data."""
    found = study(tmp_path, {"prism": 3.0, "fups": 1.0, "nops": 1.05})
    (table,) = found.improvement
    names = [found.runs[index].method for index in table["runs"]]
    prism, fups, nops = (names.index(name) for name in ("prism", "fups", "nops"))
    sure = np.array(table["sure"])
    assert sure[prism, fups] and sure[fups, prism] and sure[prism, nops]
    assert not sure[fups, nops] and not sure[nops, fups] and not sure.diagonal().any()
    shown = comparison_figures.improvement_matrices(found.runs, found.improvement).axes[0].images[0].get_array()
    assert shown[fups, nops] == shown[nops, fups] == 0.5, "the middle of the colours is white"
    assert (shown[prism, fups], shown[fups, prism]) == (1.0, 0.0)
    assert shown.mask.diagonal().all()


def test_the_page_colours_what_is_sure_and_nothing_else():
    script = (Path(page_data.__file__).parent / "assets" / "compare.js").read_text()
    assert "style: sure[row][column] ? chanceStyle(chance) : {}" in script
    assert "style: settled ? chanceStyle(chance) : {}" in script and "settled = sure[row][column]" in script
    assert script.count("chanceStyle(") == 3, "where it is made, and where the square and the list of a phone use it"


@pytest.mark.parametrize(("counts", "word", "parts"), [
    ((97, 0, 100), "agent", ["97% of", "100 cases", "one agent has", "in 97 of them", "lower threshold."]),
    ((1_000, 500, 2_000), "role", ["62% of", "one role has", "and in 500 both started alike, which counts half."]),
    ((2, 0, 2), "agent", ["At the end there are 2 cases", "in 2 of them", "(chance alone: half of them)."]),
    ((1, 0, 1), "agent", ["At the end there is 1 case,", "in 1 of them"]),
    ((0, 8, 8), "agent", ["All masks started alike"]),
])  # fmt: skip
def test_the_share_that_the_start_explains_in_words(counts, word, parts):
    said = start_sentence(StartCounts(*(np.array([count]) for count in counts)), word)
    assert all(part in said for part in parts), said
    assert start_sentence(None, word) == start_sentence(StartCounts(*(np.zeros(1, int),) * 3), word) == ""


def test_the_page_says_how_far_masks_follow_the_draw(tmp_path):
    path = make_run(tmp_path, evaluations=3)
    spectra = page_data.page_data(load_study([path]), {})["runs"][0]["spectra"]
    assert spectra["start"].startswith("100% of the mask differences follow the initial random draw (chance: 50%): ")
    (path / "spectra" / "000000.safetensors").unlink()
    assert page_data.page_data(load_study([path]), {})["runs"][0]["spectra"]["start"] == ""
