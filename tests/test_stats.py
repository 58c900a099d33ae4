"""Statistics against numbers worked out by hand."""

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from prism_marl.reports import stats

finite = st.floats(-1e6, 1e6, allow_nan=False)


def test_iqm_of_five_seeds_is_the_mean_of_the_middle_three():
    assert stats.interquartile_mean([100.0, 1.0, 2.0, 3.0, -50.0]) == pytest.approx(2.0)


@pytest.mark.parametrize(("count", "expected"), [(1, 0.0), (2, 0.5), (3, 1.0), (4, 1.5), (7, 3.0), (8, 3.5)])
def test_iqm_drops_the_floor_of_a_quarter_at_each_end(count, expected):
    values = np.arange(count, dtype=float)
    cut = count // 4
    assert stats.interquartile_mean(values) == pytest.approx(expected)
    assert stats.interquartile_mean(values) == pytest.approx(values[cut : count - cut].mean())


def test_iqm_keeps_the_time_axis():
    values = np.array([[0.0, 10.0], [1.0, 20.0], [2.0, 30.0], [9.0, -99.0]])
    np.testing.assert_allclose(stats.interquartile_mean(values), [1.5, 15.0])


def test_iqm_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="no values"):
        stats.interquartile_mean([])


@given(st.lists(finite, min_size=1, max_size=20))
def test_iqm_lies_within_the_values_and_ignores_their_order(values):
    result = stats.interquartile_mean(values)
    slack = 1e-6 * max(1.0, abs(float(result)))
    assert min(values) - slack <= result <= max(values) + slack
    assert stats.interquartile_mean(values[::-1]) == pytest.approx(result)


def test_interval_of_one_seed_has_no_width():
    interval = stats.bootstrap_interval([[0.7]], seed=0)
    assert (interval.estimate, interval.low, interval.high) == pytest.approx((0.7, 0.7, 0.7))


def test_interval_of_two_seeds_is_their_range():
    # Resamples are {a,a}, {a,b}, {b,b} with probabilities 1/4, 1/2, 1/4: 2.5% and 97.5% points are a and b.
    interval = stats.bootstrap_interval([[0.0, 1.0]], seed=0)
    assert (interval.estimate, interval.low, interval.high) == pytest.approx((0.5, 0.0, 1.0))


def test_strata_are_redrawn_apart():
    # Each task has one seed, so no resample can change anything. Drawing from the pool would.
    interval = stats.bootstrap_interval([[0.0], [10.0]], seed=0)
    assert (interval.estimate, interval.low, interval.high) == pytest.approx((5.0, 5.0, 5.0))


def test_interval_equals_the_plain_loop():
    values = np.random.default_rng(3).normal(size=(5, 4))
    draws = np.random.default_rng(11).integers(5, size=(500, 5))
    plain = np.array([stats.interquartile_mean(values[np.sort(rows)]) for rows in draws])
    interval = stats.bootstrap_interval([values], seed=11, resamples=500)
    np.testing.assert_allclose(interval.low, np.percentile(plain, 2.5, axis=0))
    np.testing.assert_allclose(interval.high, np.percentile(plain, 97.5, axis=0))


def test_interval_depends_on_the_seed_alone():
    values = np.random.default_rng(0).normal(size=(7, 3))
    first = stats.bootstrap_interval([values], seed=1)
    again = stats.bootstrap_interval([values], seed=1)
    np.testing.assert_array_equal(first.low, again.low)
    assert (first.low <= first.estimate).all()
    assert (first.estimate <= first.high).all()


def test_interval_covers_the_true_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(5)
    hits = 0
    for trial in range(200):
        interval = stats.bootstrap_interval([rng.normal(size=40)], seed=trial, resamples=500)
        hits += interval.low <= 0.0 <= interval.high
    assert 0.88 <= hits / 200 <= 0.99


def test_an_empty_stratum_is_an_error():
    with pytest.raises(ValueError, match="at least one seed"):
        stats.bootstrap_interval([[1.0], []], seed=0)


def test_area_under_a_triangle_is_half_its_height():
    assert stats.area_under_curve([0.0, 10.0], [0.0, 4.0]) == pytest.approx(2.0)


def test_area_weighs_uneven_steps():
    # 1 for 3 of 4 steps, then a ramp from 1 to 3: (3 * 1 + 1 * 2) / 4
    np.testing.assert_allclose(stats.area_under_curve([0, 3, 4], [[1, 1, 3], [2, 2, 2]]), [1.25, 2.0])


def test_area_of_a_single_evaluation_is_its_value():
    assert stats.area_under_curve([5.0], [0.3]) == pytest.approx(0.3)


def test_best():
    curves = [[0.0, 3.0, 1.0], [2.0, 1.0, 0.5]]
    np.testing.assert_allclose(stats.best_evaluation(curves), [3.0, 2.0])


def test_probability_of_improvement_counts_ties_as_half():
    # Pairs: 1>0, 1=1, 2>0, 2>1 -> (1 + 1/2 + 1 + 1) / 4
    assert stats.probability_of_improvement([1.0, 2.0], [0.0, 1.0]) == pytest.approx(0.875)
    assert stats.probability_of_improvement([1.0], [1.0, 1.0]) == pytest.approx(0.5)


@given(st.lists(finite, min_size=1, max_size=8), st.lists(finite, min_size=1, max_size=8))
def test_the_two_probabilities_sum_to_one(ours, theirs):
    forward = stats.probability_of_improvement(ours, theirs)
    assert forward + stats.probability_of_improvement(theirs, ours) == pytest.approx(1.0)


def test_improvement_interval_of_a_clear_winner_is_certain():
    interval = stats.improvement_interval([5.0, 6.0, 7.0], [1.0, 2.0], seed=0)
    assert (interval.estimate, interval.low, interval.high) == (1.0, 1.0, 1.0)


def test_improvement_over_tasks_is_the_mean_of_the_tasks():
    # First task: all 3 x 1 pairs won. Second: (0 + 1/2) / 2. Pooling the seven seeds would give another number.
    interval = stats.stratified_improvement([([5, 6, 7], [1]), ([1.0, 2.0], [2.0])], seed=0)
    assert interval.estimate == pytest.approx((1.0 + 0.25) / 2)
    # The first task never changes; the second is 0, 1/4 or 1/2 with probabilities 1/4, 1/2, 1/4.
    assert (interval.low, interval.high) == pytest.approx((0.5, 0.75))


def test_improvement_over_tasks_does_not_see_their_units():
    small, large = ([0.1, 0.4, 0.2], [0.3, 0.2]), ([1000.0, 4000.0, 2000.0], [3000.0, 2000.0])
    first = stats.stratified_improvement([small, small], seed=4)
    assert stats.stratified_improvement([small, large], seed=4) == first


def test_improvement_is_the_published_mann_whitney_statistic():
    rng = np.random.default_rng(2)
    ours, theirs = rng.integers(6, size=7).astype(float), rng.integers(6, size=5).astype(float)
    statistic = scipy.stats.mannwhitneyu(ours, theirs, alternative="greater", method="asymptotic").statistic
    assert stats.probability_of_improvement(ours, theirs) == pytest.approx(statistic / 35)


def test_improvement_interval_over_all_resamples_of_two_and_two():
    # Every one of the 4 x 4 resamples is equally likely; the drawn ones must have their percentiles.
    ours, theirs = np.array([1.0, 3.0]), np.array([0.0, 2.0])
    pairs = list(itertools.product(range(2), repeat=2))
    exact = [stats.probability_of_improvement(ours[list(a)], theirs[list(b)]) for a in pairs for b in pairs]
    interval = stats.improvement_interval(ours, theirs, seed=1, resamples=20_000, level=0.5)
    assert (interval.low, interval.high) == pytest.approx(tuple(np.percentile(exact, [25, 75])))


def test_iqm_is_the_published_trimmed_mean():
    values = np.random.default_rng(1).normal(size=(6, 11))
    np.testing.assert_allclose(stats.interquartile_mean(values), scipy.stats.trim_mean(values, 0.25))
    pooled = stats.bootstrap_interval([values[:2, 0], values[:, 1]], seed=0).estimate
    assert pooled == pytest.approx(scipy.stats.trim_mean([*values[:2, 0], *values[:, 1]], 0.25))


def test_interval_over_all_resamples_of_three_seeds():
    # 27 equally likely resamples; with three seeds nothing is dropped, so the means are k/3.
    exact = [np.mean(rows) for rows in itertools.product([0.0, 1.0, 2.0], repeat=3)]
    interval = stats.bootstrap_interval([[0.0, 1.0, 2.0]], seed=0, resamples=stats.POINT_RESAMPLES, level=0.9)
    assert (interval.low, interval.high) == pytest.approx(tuple(np.percentile(exact, [5, 95])))


def test_another_seed_gives_another_interval_and_its_level_sets_the_width():
    values = np.random.default_rng(0).normal(size=9)
    of = {
        (seed, level): stats.bootstrap_interval([values], seed=seed, level=level)
        for seed in (1, 2)
        for level in (0.5, 0.95)
    }
    assert of[1, 0.95] != of[2, 0.95]
    assert of[1, 0.95].low < of[1, 0.5].low < of[1, 0.5].high < of[1, 0.95].high


def test_a_lost_seed_is_not_taken_for_the_best():
    values = np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [4.0, np.nan]])
    np.testing.assert_allclose(stats.interquartile_mean(values), [2.5, np.nan])
    with pytest.raises(ValueError, match="not a number"):
        stats.probability_of_improvement([1.0, np.nan], [0.0])


def test_spectrum_distance_is_the_sum_of_differences():
    spectrum = [[3.0, 1.0, 0.0], [3.0, 0.0, 0.5]]
    np.testing.assert_allclose(stats.spectrum_distance(spectrum), [[0.0, 1.5], [1.5, 0.0]])


def test_mask_distance_counts_only_maskable_directions():
    mask = [[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 0, 1]]
    expected = np.array([[0.0, 0.5, 1.0], [0.5, 0.0, 0.5], [1.0, 0.5, 0.0]])
    np.testing.assert_allclose(stats.mask_distance(mask, common=2), expected)
    np.testing.assert_allclose(stats.mask_distance(mask), expected / 2)
    assert stats.mean_pairwise(expected) == pytest.approx(2.0 / 3.0)


def test_mask_distance_without_maskable_directions_or_pairs_is_zero():
    np.testing.assert_array_equal(stats.mask_distance(np.ones((2, 3, 4)), common=4), np.zeros((2, 3, 3)))
    assert stats.mean_pairwise(np.zeros((1, 1))) == 0.0


def test_the_interval_of_repeated_values_is_that_of_all_of_them_written_out():
    rng = np.random.default_rng(3)
    values, times = rng.normal(size=(7, 4)), np.array([1, 5, 2, 9, 1, 3, 4])
    values[2] = values[5]  # ties
    for level in (0.95, 0.5, 1.0):
        tail = 50 * (1 - level)
        expected = np.percentile(np.repeat(values, times, axis=0), [tail, 100 - tail], axis=0)
        np.testing.assert_allclose(stats._repeated_percentiles(values, times, level), expected, atol=1e-12)


def test_the_mean_of_pairs_needs_no_table_of_pairs():
    mask = np.random.default_rng(0).random((4, 3, 7, 9)) < 0.4
    for common in (0, 3, 9):
        found = stats.mean_mask_distance(mask, common)
        np.testing.assert_allclose(found, stats.mean_pairwise(stats.mask_distance(mask, common)), rtol=1e-12)
    assert stats.mean_mask_distance(np.ones((2, 1, 3))).tolist() == [0.0, 0.0]
    assert stats.mean_mask_distance(np.eye(20_000, 4, dtype=bool)).shape == ()  # 200 million pairs


def test_redrawn_tables_are_counted_exactly():
    wins = np.random.default_rng(0).choice([0.0, 0.5, 1.0], (6, 4))
    found = stats._redrawn_means(wins, 500, np.random.default_rng(1))
    rng = np.random.default_rng(1)
    rows, columns = rng.integers(6, size=(500, 6)), rng.integers(4, size=(500, 4))
    np.testing.assert_array_equal(found, wins[rows[:, :, None], columns[:, None, :]].mean(axis=(1, 2)))


def test_many_seeds_get_fewer_resamples(monkeypatch):
    drawn = []
    draws = stats._stratified_draws
    monkeypatch.setattr(stats, "_stratified_draws", lambda *these: drawn.append(these[1]) or draws(*these))
    values = np.random.default_rng(0).random((300, 40))
    for few, wanted in ((5, 2_000), (300, 2_000)):
        stats.bootstrap_interval([values[:few]], seed=0)
        assert drawn.pop() == wanted
    monkeypatch.setattr(stats, "MOST_REDRAWN", 12_000_000 // 10)
    monkeypatch.setattr(stats, "AT_ONCE", 50_000)
    low = stats.bootstrap_interval([values], seed=0)
    assert drawn == [stats.FEWEST_RESAMPLES] and (low.low <= low.estimate).all() and (low.estimate <= low.high).all()
