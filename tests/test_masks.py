"""The share of mask differences that the start explains, counted by hand and on the rows that are kept."""

from pathlib import Path

import numpy as np
import pytest

from prism_marl.reports.load import load_run
from prism_marl.runs.folder import write_spectra
from prism_marl.runs.masks import explained_by_start, first_spectra, over_layers, shares_by_start

ROWS = Path(__file__).parents[1] / "docs" / "rows"


def arrays(start, on):
    """One seed, one evaluation before training and one after."""
    return np.stack([start, start])[:, None], np.stack([np.ones_like(on), on])[:, None]


def test_pairs_are_counted_by_hand():
    start = np.array([[9.0, 0.3, 0.5, 0.2], [9.0, 0.2, 0.6, 0.2], [9.0, 0.1, -0.7, 0.1]])  # sizes count, not signs
    on = np.array([[1, 1, 0, 1], [1, 0, 1, 0], [0, 0, 0, 0]], dtype=bool)
    # Direction 1: 0 on, 1 and 2 off: both explained. Direction 2: 1 on, 0 off (explained), 2 off (not). Direction 3:
    # 0 on, 1 off (tied), 2 off (explained). Direction 0 is common and does not count.
    found = explained_by_start(*arrays(start, on), common=1)
    assert [part.tolist() for part in found] == [[4], [1], [6]]
    assert found.shares.tolist() == [(4 + 0.5) / 6]


def test_seeds_are_counted_apart_and_layers_together():
    start = np.array([[[2.0], [1.0]], [[1.0], [2.0]], [[1.0], [2.0]]])  # three seeds, two identities, one direction
    now = np.array([[[1], [0]], [[1], [0]], [[1], [1]]], dtype=bool)
    layers = {"fc1": (start, now), "fc2": (start, now)}
    assert shares_by_start(layers, layers, {"fc1": 0, "fc2": 0})[:2].tolist() == [1.0, 0.0]
    assert np.isnan(shares_by_start(layers, layers, {"fc1": 0, "fc2": 0})[2]), "no two masks differ"
    one = explained_by_start(np.stack([start, start]), np.stack([now, now]))
    both = over_layers([one, one])
    assert [part.tolist() for part in both] == [[2, 0, 0], [0, 0, 0], [2, 2, 0]]
    assert both.total().shares.tolist() == [0.5]


def test_chance_is_one_half_and_a_sorted_end_is_all():
    rng = np.random.default_rng(0)
    start, on = rng.random((2, 1, 6, 400)), rng.random((2, 1, 6, 400)) < 0.5
    assert explained_by_start(start, on).shares[0] == pytest.approx(0.5, abs=0.02)
    on[-1] = start[0] > 0.5
    assert explained_by_start(start, on).shares.tolist() == [1.0]


def test_what_a_run_continues_with_is_what_it_began_with(tmp_path):
    assert first_spectra(tmp_path) is None
    (tmp_path / "spectra").mkdir()
    values, on = np.arange(6, dtype=np.float32).reshape(1, 2, 3), np.array([[[1, 0, 1], [1, 1, 0]]], dtype=bool)
    write_spectra(tmp_path, 0, [0], {"fc1": (values, on)}, {"fc1": 1})
    found = first_spectra(tmp_path)
    assert found is not None and list(found) == ["fc1"]
    np.testing.assert_array_equal(found["fc1"][0], values)
    np.testing.assert_array_equal(found["fc1"][1], on)
    (tmp_path / "spectra" / "000000.safetensors").write_bytes(b"damaged")
    assert first_spectra(tmp_path) is None


@pytest.mark.parametrize(("setting", "explained", "pairs"), [("paper", 405, 405), ("still", 20, 22)])
def test_kept_runs_show_the_dice(setting, explained, pairs):
    """HalfCheetah with agreeing masks moved apart, as was the default, and left alone."""
    spectra = load_run(ROWS / "mamujoco-halfcheetah-2x3" / setting / "prism", spectra_limit=2, replay_limit=0).spectra
    assert spectra is not None
    counts = [explained_by_start(layer.spectrum, layer.mask, layer.common) for layer in spectra.layers]
    total = over_layers(counts).total()
    assert (int(total.explained[0]), int(total.pairs[0])) == (explained, pairs)
