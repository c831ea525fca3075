"""Laws of the averages that forget, with their arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.signals.kernels import ewma, ewma_fast_slow, holt

NOTHING = float("nan")
SERIES = st.lists(st.tuples(st.floats(0.05, 3600.0), st.floats(-1e6, 1e6)), min_size=1, max_size=16)
HALF_LIFE_S = st.floats(0.0, 1e6)


def at_times(samples):
    times = np.cumsum([step for step, _ in samples])
    return [(at, value) for at, (_, value) in zip(times, samples, strict=True)]


@pytest.mark.parametrize(("now", "expected"), [(10.0, 0.0), (20.0, 4.0), (30.0, 6.0), (40.0, 7.0)])
def test_an_average_goes_half_the_way_in_each_half_life(rings, row, now, expected):
    # 0 until second 10, then 8; half-life 10 s: 8 - 8/2, 8 - 8/4, 8 - 8/8.
    ring = rings([(0, 0), (10, 8)])
    assert ewma(*ring, row(10), now)[0] == pytest.approx(expected)


def test_a_value_counts_for_as_long_as_it_stood_not_for_how_often_it_was_seen(rings, row):
    # 4 stood 10 s of [0, 20], 12 the other 10: 4 + (12 - 4)/2 = 8, whether 12 was read once or six times.
    once = rings([(0, 4), (10, 12)])
    often = rings([(0, 4), (10, 12), (11, 12), (12, 12), (13, 12), (14, 12), (19, 12)])
    assert ewma(*once, row(10), 20.0)[0] == pytest.approx(8.0)
    assert ewma(*often, row(10), 20.0)[0] == pytest.approx(8.0)


def test_a_gap_changes_no_average(rings, row):
    # 4 stands through the gap at second 5: 4 + (12 - 4)/2 = 8 as without it.
    assert ewma(*rings([(0, 4), (5, NOTHING), (10, 12), (15, NOTHING)]), row(10), 20.0)[0] == pytest.approx(8.0)


def test_a_half_life_of_zero_is_the_last_value_in_the_moment_it_arrives(rings, row):
    ring = rings([(0, 4), (10, 12)])
    assert ewma(*ring, row(0), 10.0)[0] == 12.0
    assert ewma_fast_slow(*ring, row(0), row(60), 10.0)[0] == 12.0


def test_one_value_is_its_own_average_forever(rings, row):
    assert ewma(*rings([(0, 7)]), row(10), 1e6)[0] == 7.0


def test_a_sample_from_the_future_counts_as_one_of_now(rings, row):
    # A page's clock runs 5 s ahead: half-life 0 believes it at once, a longer one gives it no time yet.
    ring = rings([(0, 4), (15, 12)])
    assert ewma(*ring, row(0), 10.0)[0] == 12.0
    assert ewma(*ring, row(10), 10.0)[0] == 4.0


@settings(max_examples=100, deadline=None)
@given(SERIES, HALF_LIFE_S, HALF_LIFE_S, st.floats(0.0, 1e5))
def test_an_average_never_leaves_the_values_it_is_made_of(rings, row, samples, up_s, down_s, later_s):
    series = at_times(samples)
    values = [value for _, value in series]
    dust = 1e-9 * max(1.0, *map(abs, values))
    average = ewma_fast_slow(*rings(series), row(up_s), row(down_s), series[-1][0] + later_s)[0]
    assert min(values) - dust <= average <= max(values) + dust


@settings(max_examples=100, deadline=None)
@given(SERIES, HALF_LIFE_S, st.floats(0.0, 1e5))
def test_with_equal_half_lives_fast_and_slow_are_the_plain_average(rings, row, samples, half_life_s, later_s):
    series = at_times(samples)
    now = series[-1][0] + later_s
    both = ewma_fast_slow(*rings(series), row(half_life_s), row(half_life_s), now)
    assert ewma(*rings(series), row(half_life_s), now)[0] == both[0]


@settings(max_examples=100, deadline=None)
@given(SERIES, HALF_LIFE_S, HALF_LIFE_S, st.floats(0.0, 1e5))
def test_fast_up_slow_down_is_never_below_the_slow_average(rings, row, samples, one_s, other_s, later_s):
    up_s, down_s = sorted([one_s, other_s])
    series = at_times(samples)
    now = series[-1][0] + later_s
    dust = 1e-9 * max(1.0, *(abs(value) for _, value in series))
    slow = ewma(*rings(series), row(down_s), now)[0]
    assert ewma_fast_slow(*rings(series), row(up_s), row(down_s), now)[0] >= slow - dust


@settings(max_examples=100, deadline=None)
@given(HALF_LIFE_S, HALF_LIFE_S, st.floats(0.05, 3600.0))
def test_fast_up_slow_down_rises_at_least_as_fast_as_it_falls(rings, row, one_s, other_s, seconds):
    up_s, down_s = sorted([one_s, other_s])
    up, down = rings([(0, 0), (1, 8)]), rings([(0, 8), (1, 0)])
    risen = ewma_fast_slow(*up, row(up_s), row(down_s), 1.0 + seconds)[0]
    fallen = 8.0 - ewma_fast_slow(*down, row(up_s), row(down_s), 1.0 + seconds)[0]
    assert risen >= fallen - 1e-9


def test_a_peak_is_taken_at_once_and_let_go_by_halves(rings, row):
    # Up at once to 10 at second 100; from second 110 on 2 stands: 2 + (10 - 2)/2 = 6 one minute later.
    ring = rings([(0, 2), (100, 10), (110, 2)])
    assert ewma_fast_slow(*ring, row(0), row(60), 110.0)[0] == 10.0
    assert ewma_fast_slow(*ring, row(0), row(60), 170.0)[0] == pytest.approx(6.0)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(0.1, 600.0), min_size=2, max_size=16),
    st.floats(-1e3, 1e3),
    st.floats(-10.0, 10.0),
    st.floats(0.0, 1e5),
    st.floats(0.0, 1e5),
)
def test_holt_follows_a_straight_line_exactly(rings, row, steps_s, start, slope, level_s, trend_s):
    times = np.cumsum(steps_s)
    ring = rings([(at, start + slope * at) for at in times])
    level, trend = holt(*ring, row(level_s), row(trend_s), times[-1] + 60.0)
    assert trend[0] == pytest.approx(slope, rel=1e-6, abs=1e-6)
    assert level[0] == pytest.approx(start + slope * (times[-1] + 60.0), rel=1e-6, abs=1e-3)


def test_one_value_has_a_level_and_no_trend(rings, row):
    level, trend = holt(*rings([(0, 7), (1, NOTHING)]), row(30), row(60), 100.0)
    assert level[0] == 7.0
    assert np.isnan(trend[0])


def test_holt_weighs_an_error_by_the_time_it_had_to_show_itself(rings, row):
    # Both half-lives 10 s; 0, 0, 8 at seconds 0, 10, 20. Level and trend are 0 after the second value.
    # V = 1/2: level' = 0 + 8/2 = 4, a slope of 4/10 = 0.4 per second.
    # U = (1 - 1/2) / (1 - 1/4) = 2/3: trend' = 0 + 2/3 * 0.4 = 0.2667 per second.
    # Five seconds on, the level is 4 + 5 * 0.2667 = 5.333.
    level, trend = holt(*rings([(0, 0), (10, 0), (20, 8)]), row(10), row(10), 25.0)
    assert trend[0] == pytest.approx(4 / 15)
    assert level[0] == pytest.approx(4 + 4 / 3)


def test_two_values_a_millisecond_apart_are_no_evidence_of_a_steep_trend(rings, row):
    # Ten seconds of 5, then 6 a millisecond after the last 5: a slope of 1000 per second for 1 ms of some 10 s.
    quiet = [(second, 5) for second in range(11)]
    _, trend = holt(*rings([*quiet, (10.001, 6)]), row(0), row(60), 11.0)
    assert 0.0 < trend[0] < 0.2


def test_a_sample_from_the_future_does_not_pull_a_forecast_back(rings, row):
    # The line 2 per second, its last point stamped 3 s ahead of `now`: level is that point, not 2 * 3 below it.
    level, trend = holt(*rings([(0, 0), (10, 20)]), row(0), row(0), 7.0)
    assert (level[0], trend[0]) == (20.0, 2.0)
