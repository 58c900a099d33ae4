"""Figures exist, say something when there is nothing to draw, and follow the data."""

import dataclasses

import numpy as np
import pytest

from prism_marl.reports import figures
from prism_marl.reports.load import Run, load_run, load_runs
from prism_marl.sharing import METHODS
from synthetic import make_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for index, method in enumerate(("prism", "kaleidoscope", "newcomer$")):
        make_run(folder, method=method, evaluations=6, seeds=3, seed=index, name=f"run{index}")
    return load_runs([folder])


def pixels(figure):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba()).copy()


def test_every_figure_is_written_as_png_and_pdf(runs, tmp_path):
    drawn = {
        "curves": figures.learning_curves(runs),
        "spectra": figures.spectra_heatmaps(runs[0], times=3),
        "masks": figures.mask_differences(runs[0], "fc1", times=3),
        "footprint": figures.footprint_bars(runs[0].footprint),
    }
    for name, figure in drawn.items():
        png, pdf = figures.save_figure(figure, tmp_path / "deep" / name)
        assert png.read_bytes().startswith(b"\x89PNG")
        assert pdf.read_bytes().startswith(b"%PDF")
        assert pixels(figure).std() > 5


def test_the_same_run_gives_the_same_file_and_another_run_another(runs, tmp_path):
    first, _ = figures.save_figure(figures.learning_curves(runs[:1]), tmp_path / "first")
    again, _ = figures.save_figure(figures.learning_curves(runs[:1]), tmp_path / "again")
    other, _ = figures.save_figure(figures.learning_curves(runs[1:2]), tmp_path / "other")
    assert first.read_bytes() == again.read_bytes()
    assert first.read_bytes() != other.read_bytes()


def test_spectra_change_over_training(runs):
    early = pixels(figures.spectra_heatmaps(runs[0], "fc2", times=2, seed_index=0))
    other_seed = pixels(figures.spectra_heatmaps(runs[0], "fc2", times=2, seed_index=1))
    assert early.shape == other_seed.shape
    assert (early != other_seed).any()


def test_nothing_to_draw_is_said_and_not_raised(tmp_path):
    empty = Run("empty", "task", "fups")
    for figure in (
        figures.learning_curves([empty]),
        figures.learning_curves([]),
        figures.spectra_heatmaps(empty),
        figures.mask_differences(empty),
        figures.footprint_bars([]),
    ):
        assert pixels(figure).size


def test_a_single_evaluation_is_drawn_as_a_dot(tmp_path):
    run = load_run(make_run(tmp_path, evaluations=1, seeds=1))
    assert (pixels(figures.learning_curves([run])) < 128).any()


def test_known_methods_have_their_own_colour_and_unknown_ones_a_stable_one():
    styles = [figures.method_style(method) for method in METHODS]
    assert set(figures.COLOURS) == set(METHODS)
    assert len({style.light for style in styles}) == len({style.dark for style in styles}) == len(METHODS)
    assert figures.method_style("mine") == figures.method_style("mine")
    assert figures.method_style("mine").label == "mine"
    assert [style.label for style in styles] == [method.label for method in METHODS.values()]


def test_runs_of_one_method_are_named_by_the_settings_in_which_they_differ():
    runs = [Run(f"x{value}", "t", "prism", {"sharing": {"ortho": value, "common": 0.5}}) for value in (0.0, 0.1)]
    assert figures.run_labels([*runs, Run("y", "t", "fups")]) == ["Prism (ortho 0.0)", "Prism (ortho 0.1)", "FuPS"]
    assert figures.run_labels([runs[0], runs[0]]) == ["Prism (x0.0)", "Prism (x0.0)"]


def test_a_name_that_no_font_has_is_no_warning(tmp_path):
    run = load_run(make_run(tmp_path, evaluations=2, seeds=1, method="\u2028$\u4e2d\x07", replays=0))
    png, _ = figures.save_figure(figures.learning_curves([run, run]), tmp_path / "odd")
    assert png.stat().st_size > 1000


def test_very_many_lines_are_named_by_method(runs):
    many = [dataclasses.replace(runs[index % 2], name=f"n{index}") for index in range(18)]
    (legend,) = figures.learning_curves(many).legends
    assert [text.get_text() for text in legend.get_texts()] == ["Prism", "Kaleidoscope"]


def test_two_runs_of_one_method_are_told_apart():
    twins = [Run("a", "t", "prism"), Run("b", "t", "prism"), Run("c", "u", "prism")]
    assert figures.run_labels(twins) == ["Prism (a)", "Prism (b)", "Prism"]
    assert figures.dash_indices(twins) == [0, 1, 0]
