"""Laws of peak, mean and quantile over a window, with their arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.signals.kernels import window_max, window_mean, window_quantile

SERIES = st.lists(st.tuples(st.floats(0.05, 3600.0), st.floats(-1e6, 1e6)), min_size=1, max_size=16)
STAIRS = [(0, 4), (20, 10), (30, 6)]  # 4 until second 20, 10 until 30, 6 from then on


@pytest.mark.parametrize(
    ("now", "window_s", "peak", "mean", "median"),
    [
        (40, 15, 10, 110 / 15, 6),  # 10 for 5 s, 6 for 10 s: (50 + 60) / 15; 6 held for 10 of 15
        (40, 30, 10, 200 / 30, 6),  # 4 and 10 and 6 for 10 s each: (40 + 100 + 60) / 30; 4 for a third, 6 for two
        (40, 10, 6, 6, 6),  # 10 ended in the moment the window opened
        (35, 1, 6, 6, 6),  # no sample in it: the value in force
        (40, 1000, 10, 240 / 40, 4),  # known for 40 s only: (80 + 100 + 60) / 40; 4 for 20 of 40
        (40, 0, 6, 6, 6),  # nothing but the last value
    ],
)
def test_a_window_sees_what_stood_in_it_for_as_long_as_it_stood(rings, row, now, window_s, peak, mean, median):
    ring = rings(STAIRS)
    assert window_max(*ring, row(window_s), float(now))[0] == peak
    assert window_mean(*ring, row(window_s), float(now))[0] == pytest.approx(mean)
    assert window_quantile(*ring, row(window_s), row(0.5), float(now))[0] == median


def test_a_peak_counts_from_the_moment_it_is_seen(rings, row):
    # 9 arrives now: it has stood for no time, so the mean is still 4, and the peak is 9.
    ring = rings([(0, 4), (10, 9)])
    assert window_max(*ring, row(60), 10.0)[0] == 9.0
    assert window_mean(*ring, row(60), 10.0)[0] == 4.0
    assert window_quantile(*ring, row(60), row(0.99), 10.0)[0] == 4.0
    assert window_quantile(*ring, row(60), row(1.0), 10.0)[0] == 9.0


def test_a_window_shorter_than_the_scrape_interval_is_never_empty(rings, row):
    ring = rings([(0, 3), (15, 5)])
    assert window_max(*ring, row(1), 29.0)[0] == 5.0
    assert window_mean(*ring, row(1), 14.0 + 15.0)[0] == 5.0


def test_a_gap_does_not_end_the_value_before_it(rings, row):
    # 8 stands from second 0 to 30 although second 10 brought nothing: (30*8 + 10*4) / 40 = 7.
    ring = rings([(0, 8), (10, float("nan")), (30, 4)])
    assert window_mean(*ring, row(100), 40.0)[0] == pytest.approx(7.0)


def test_a_sample_from_the_future_is_a_peak_now_and_has_stood_for_no_time(rings, row):
    ring = rings([(0, 4), (25, 9)])
    assert window_max(*ring, row(10), 20.0)[0] == 9.0
    assert window_mean(*ring, row(10), 20.0)[0] == 4.0
    # Of two from the future the later one is the last value.
    ring = rings([(0, 4), (25, 9), (30, 5)])
    for kernel in (window_max, window_mean):
        assert kernel(*ring, row(0), 20.0)[0] == 5.0


@pytest.mark.parametrize(("q", "expected"), [(0.0, 1), (0.25, 1), (0.26, 2), (0.75, 3), (0.76, 4), (1.0, 4)])
def test_a_quantile_is_a_value_that_was_there(rings, row, q, expected):
    # 3, 1, 4, 2 for 10 s each: 1 covers a quarter of the time, 2 the second, 3 the third, 4 the last.
    ring = rings([(0, 3), (10, 1), (20, 4), (30, 2)])
    assert window_quantile(*ring, row(40), row(q), 40.0)[0] == expected


def test_an_unknown_q_has_no_quantile(rings, row):
    assert np.isnan(window_quantile(*rings(STAIRS), row(40), row("nan"), 40.0)[0])


@settings(max_examples=100, deadline=None)
@given(SERIES, st.floats(0.0, 1e5), st.floats(0.0, 1e5), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_quantiles_rise_from_the_smallest_value_to_the_peak(rings, row, samples, later_s, window_s, one_q, other_q):
    times = np.cumsum([step for step, _ in samples])
    ring = rings([(at, value) for at, (_, value) in zip(times, samples, strict=True)])
    now = times[-1] + later_s
    qs = [0.0, *sorted([one_q, other_q]), 1.0]
    quantiles = [window_quantile(*ring, row(window_s), row(q), now)[0] for q in qs]
    assert quantiles == sorted(quantiles)
    assert quantiles[-1] == window_max(*ring, row(window_s), now)[0]
    dust = 1e-9 * max(1.0, *(abs(value) for _, value in samples))
    assert quantiles[0] - dust <= window_mean(*ring, row(window_s), now)[0] <= quantiles[-1] + dust


@settings(max_examples=100, deadline=None)
@given(SERIES, st.floats(0.0, 1e5), st.floats(0.0, 1e5), st.floats(0.0, 1e5))
def test_a_longer_window_never_has_a_lower_peak(rings, row, samples, later_s, one_s, other_s):
    times = np.cumsum([step for step, _ in samples])
    ring = rings([(at, value) for at, (_, value) in zip(times, samples, strict=True)])
    short, long = sorted([one_s, other_s])
    now = times[-1] + later_s
    assert window_max(*ring, row(short), now)[0] <= window_max(*ring, row(long), now)[0]
