"""Tests the invariants of the average, with their arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.signals.kernels import ewma_fast_slow
from tests.scaler.signals.kernels import reference_kernels
from tests.scaler.signals.kernels.reference_kernels import at_times

NOTHING = float("nan")
SERIES = st.lists(st.tuples(st.floats(0.05, 3600.0), st.floats(-1e6, 1e6)), min_size=1, max_size=16)
HALF_LIFE_S = st.floats(0.0, 1e6)


def average(ring, half_life_s, now):
    """The average with equal half-lives for rise and fall."""
    return ewma_fast_slow(*ring, half_life_s, half_life_s, now)[0]


@pytest.mark.parametrize(("now", "expected"), [(10.0, 0.0), (20.0, 4.0), (30.0, 6.0), (40.0, 7.0)])
def test_average_covers_half_of_the_difference_in_each_half_life(rings, row, now, expected):
    # 0 until second 10, then 8; half-life 10 s: 8 - 8/2, 8 - 8/4, 8 - 8/8.
    ring = rings([(0, 0), (10, 8)])
    assert average(ring, row(10), now) == pytest.approx(expected)


def test_value_counts_for_its_duration_and_not_for_its_repetitions(rings, row):
    # 4 lasts 10 s of [0, 20], 12 the other 10: 4 + (12 - 4)/2 = 8, whether 12 is read once or six times.
    once = rings([(0, 4), (10, 12)])
    often = rings([(0, 4), (10, 12), (11, 12), (12, 12), (13, 12), (14, 12), (19, 12)])
    assert average(once, row(10), 20.0) == pytest.approx(8.0)
    assert average(often, row(10), 20.0) == pytest.approx(8.0)


def test_gap_changes_no_average(rings, row):
    # 4 lasts through the gap at second 5: 4 + (12 - 4)/2 = 8 as without it.
    assert average(rings([(0, 4), (5, NOTHING), (10, 12), (15, NOTHING)]), row(10), 20.0) == pytest.approx(8.0)


def test_half_life_of_zero_yields_the_last_value_at_once(rings, row):
    ring = rings([(0, 4), (10, 12)])
    assert average(ring, row(0), 10.0) == 12.0
    assert ewma_fast_slow(*ring, row(0), row(60), 10.0)[0] == 12.0


def test_average_of_one_value_is_that_value(rings, row):
    assert average(rings([(0, 7)]), row(10), 1e6) == 7.0


def test_sample_from_the_future_counts_as_one_of_now(rings, row):
    # The clock of a target is 5 s ahead: half-life 0 uses the sample at once, a longer one gives it no duration yet.
    ring = rings([(0, 4), (15, 12)])
    assert average(ring, row(0), 10.0) == 12.0
    assert average(ring, row(10), 10.0) == 4.0


@settings(max_examples=100, deadline=None)
@given(SERIES, HALF_LIFE_S, HALF_LIFE_S, st.floats(0.0, 1e5))
def test_average_is_within_the_range_of_its_values(rings, row, samples, up_s, down_s, later_s):
    series = at_times(samples)
    values = [value for _, value in series]
    tolerance = 1e-9 * max(1.0, *map(abs, values))
    result = ewma_fast_slow(*rings(series), row(up_s), row(down_s), series[-1][0] + later_s)[0]
    assert min(values) - tolerance <= result <= max(values) + tolerance


@settings(max_examples=100, deadline=None)
@given(SERIES, HALF_LIFE_S, st.floats(0.0, 1e5))
def test_average_with_equal_half_lives_is_the_plain_one(rings, row, samples, half_life_s, later_s):
    series = at_times(samples)
    now = series[-1][0] + later_s
    expected = reference_kernels.ewma(*rings(series), row(half_life_s), now)[0]
    largest = max(1.0, *(abs(value) for _, value in series))
    assert average(rings(series), row(half_life_s), now) == pytest.approx(expected, rel=1e-7, abs=1e-9 * largest)


@settings(max_examples=100, deadline=None)
@given(SERIES, HALF_LIFE_S, HALF_LIFE_S, st.floats(0.0, 1e5))
def test_fast_up_slow_down_is_never_below_the_slow_average(rings, row, samples, one_s, other_s, later_s):
    up_s, down_s = sorted([one_s, other_s])
    series = at_times(samples)
    now = series[-1][0] + later_s
    tolerance = 1e-9 * max(1.0, *(abs(value) for _, value in series))
    slow = average(rings(series), row(down_s), now)
    assert ewma_fast_slow(*rings(series), row(up_s), row(down_s), now)[0] >= slow - tolerance


@settings(max_examples=100, deadline=None)
@given(HALF_LIFE_S, HALF_LIFE_S, st.floats(0.05, 3600.0))
def test_fast_up_slow_down_rises_at_least_as_fast_as_it_falls(rings, row, one_s, other_s, seconds):
    up_s, down_s = sorted([one_s, other_s])
    up, down = rings([(0, 0), (1, 8)]), rings([(0, 8), (1, 0)])
    risen = ewma_fast_slow(*up, row(up_s), row(down_s), 1.0 + seconds)[0]
    fallen = 8.0 - ewma_fast_slow(*down, row(up_s), row(down_s), 1.0 + seconds)[0]
    assert risen >= fallen - 1e-9


def test_peak_applies_at_once_and_decays_by_halves(rings, row):
    # Up at once to 10 at second 100; from second 110 on it is 2: 2 + (10 - 2)/2 = 6 one minute later.
    ring = rings([(0, 2), (100, 10), (110, 2)])
    assert ewma_fast_slow(*ring, row(0), row(60), 110.0)[0] == 10.0
    assert ewma_fast_slow(*ring, row(0), row(60), 170.0)[0] == pytest.approx(6.0)
