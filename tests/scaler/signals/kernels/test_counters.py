"""Tests the invariants of the rate of a counter, with their arithmetic."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.signals.kernels import counter_rate
from tests.scaler.signals.kernels.reference_kernels import at_times

NOTHING = float("nan")
# Counters count: less than a millionth is no rise, and over an hour it would be rounded to a rate of zero.
MANY = st.floats(0.0, 1e12).map(lambda value: round(value, 6))
VALUES = st.one_of(st.integers(0, 3).map(float), MANY, st.just(NOTHING))
COUNTS = st.lists(st.tuples(st.floats(0.05, 3600.0), VALUES), max_size=16)


def test_rate_is_the_increase_over_the_time_between_the_samples(rings, row):
    # 100 to 190 in 30 s is 3 per second, at any later time.
    ring = rings([(0, 100), (10, 100), (30, 190)])
    assert counter_rate(*ring, row(60), 30.0)[0] == 3.0
    assert counter_rate(*ring, row(60), 45.0)[0] == 3.0


def test_restart_counts_the_new_value_of_the_counter(rings, row):
    # 60 + 20 (after the restart) + 30 = 110 in 30 s.
    ring = rings([(0, 100), (10, 160), (20, 20), (30, 50)])
    assert counter_rate(*ring, row(60), 30.0)[0] == pytest.approx(110 / 30)


def test_rate_uses_only_samples_in_its_window(rings, row):
    # From second 20 on: 50 in 10 s. From 21 on there is one sample, and one sample is no rate.
    ring = rings([(0, 0), (20, 1000), (30, 1050)])
    assert counter_rate(*ring, row(15), 35.0)[0] == 5.0
    assert np.isnan(counter_rate(*ring, row(14), 35.0)[0])


def test_one_sample_is_no_rate_and_not_a_rate_of_zero(rings, row):
    assert np.isnan(counter_rate(*rings([(0, 5), (10, NOTHING)]), row(60), 10.0)[0])


def test_constant_counter_has_a_rate_of_zero(rings, row):
    assert counter_rate(*rings([(0, 5), (10, 5)]), row(60), 10.0)[0] == 0.0


@settings(max_examples=150, deadline=None)
@given(COUNTS, st.floats(0.0, 1e5))
def test_restarted_counter_never_has_a_negative_rate(rings, row, samples, window_s):
    series = at_times(samples)
    now = series[-1][0] if series else 0.0
    rate = counter_rate(*rings(series), row(window_s), now)[0]
    assert np.isnan(rate) or rate >= 0.0


@settings(max_examples=150, deadline=None)
@given(COUNTS)
def test_rate_is_above_zero_exactly_if_the_counter_rose(rings, row, samples):
    series = at_times(samples)
    counts = [value for _, value in series if not np.isnan(value)]
    # A restart at 0 is no rise, one above 0 is.
    rises = any(after > before or 0.0 < after < before for before, after in pairwise(counts))
    assert (counter_rate(*rings(series), row(1e9), 0.0)[0] > 0.0) == rises
