"""Invariants of the decaying histograms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.policy.estimators.histograms import EPSILON, GROWTH, Histograms, scale

WEEK = 7 * 86400.0
EDGES = scale(1.0, GROWTH, 86400.0)


def filled(*values, rows=1, at=0.0, row=0):
    histograms = Histograms(rows, EDGES, WEEK)
    for value in values:
        histograms.add(np.array([row]), np.array([float(value)]), at)
    return histograms


def add(histograms, value, at, row=0):
    histograms.add(np.array([row]), np.array([float(value)]), at)


def test_worked_example_of_the_module():
    histograms = filled(71, 78)
    add(histograms, 300, at=WEEK)
    assert histograms.weight(WEEK).tolist() == [2.0]
    assert histograms.quantile(0.5).round(1).tolist() == [80.1]


def test_buckets_begin_at_zero_grow_by_a_twentieth_and_hold_the_longest():
    assert EDGES[:3].round(4).tolist() == [0.0, 1.0, 2.05]
    widths = np.diff(EDGES)
    np.testing.assert_allclose(widths[1:] / widths[:-1], GROWTH)
    assert EDGES[-2] < 86400.0 <= EDGES[-1]


def test_value_beyond_all_buckets_is_the_beginning_of_the_last():
    assert filled(1e9).quantile(0.5).tolist() == [EDGES[-1]]
    assert filled(10.0, 1e9).quantile(0.9).tolist() == [EDGES[-1]]


def test_without_samples_the_result_is_unknown():
    histograms = filled(5.0, rows=2)
    assert np.isnan(histograms.quantile(0.5)).tolist() == [False, True]
    assert np.isnan(histograms.shares()).any(axis=1).tolist() == [False, True]
    assert histograms.weight(0.0).tolist() == [1.0, 0.0]


def test_invalid_lengths_are_ignored():
    histograms = filled(np.nan, np.inf, -1.0)
    assert histograms.weight(0.0).tolist() == [0.0]
    assert np.isnan(histograms.reference).all()


def test_value_counts_half_after_a_half_life():
    histograms = filled(10.0)
    assert histograms.weight(WEEK).tolist() == [0.5]
    assert histograms.weight(3 * WEEK).tolist() == [0.125]


def test_ten_years_of_values_weigh_as_much_as_the_last_weeks():
    # One a week: 1 + 1/2 + 1/4 + … = 2. The reference has been moved eight times meanwhile.
    histograms = filled()
    for week in range(520):
        add(histograms, 10.0 + week, at=week * WEEK)
    assert histograms.weight(519 * WEEK) == pytest.approx([2.0], abs=1e-5)
    assert np.isfinite(histograms.weights).all()
    assert histograms.quantile(0.5)[0] == pytest.approx(529.0, rel=0.06)


def test_value_older_than_the_first_weighs_less():
    histograms = filled(10.0, at=WEEK)
    add(histograms, 1000.0, at=0.0)
    assert histograms.weight(WEEK).tolist() == [1.5]


def test_two_values_of_one_workload_in_one_call_both_count():
    histograms = filled()
    histograms.add(np.array([0, 0]), np.array([5.0, 5.0]), 0.0)
    assert histograms.weight(0.0).tolist() == [2.0]


def test_censored_value_is_spread_over_longer_values():
    # 10, 100, 100 and 1000 seconds, and one that was 50 seconds when it was lost from sight: it is one of the longer
    # three, two thirds of it like those of 100.
    histograms = filled(10, 100, 100, 1000)
    histograms.add_at_least(np.array([0]), np.array([50.0]), 0.0)
    weights = histograms.weights[0][histograms.weights[0] > EPSILON]
    assert weights == pytest.approx([1.0, 2.0 + 2 / 3, 1.0 + 1 / 3])


def test_censored_value_may_end_in_its_own_bucket():
    histograms = filled(50, 1000)
    histograms.add_at_least(np.array([0]), np.array([50.0]), 0.0)
    assert histograms.weights[0][histograms.weights[0] > EPSILON] == pytest.approx([1.5, 1.5])


def test_longest_censored_value_counts_as_its_bound():
    histograms = filled(10)
    histograms.add_at_least(np.array([0]), np.array([5000.0]), 0.0)
    assert histograms.weight(0.0).tolist() == [2.0]
    assert histograms.quantile(0.9)[0] == pytest.approx(5000, rel=GROWTH - 1)


@given(st.lists(st.floats(0, 80000), min_size=1, max_size=50), st.floats(0, 1))
@settings(max_examples=200)
def test_no_quantile_is_too_short_or_a_bucket_too_long(values, q):
    got = filled(*values).quantile(q)[0]
    exact = np.quantile(values, q, method="inverted_cdf")
    assert exact <= got <= exact * GROWTH + 1.0 + 1e-6


def test_state_survives_and_one_of_other_buckets_is_not_taken():
    old = filled(5.0, rows=3, row=1)
    new = Histograms(2, EDGES, WEEK)
    new.take("h", old.columns("h"), np.array([0]), np.array([1]))
    assert new.weight(0.0).tolist() == [1.0, 0.0]
    other = Histograms(2, scale(1.0, 1.1, 86400.0), WEEK)
    other.take("h", old.columns("h"), np.array([0]), np.array([1]))
    other.take("h", {}, np.array([0]), np.array([1]))
    assert other.weight(0.0).tolist() == [0.0, 0.0]
