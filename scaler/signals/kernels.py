"""Computes averages and rates of many series at once. Importing the module compiles it.

A kernel takes the rings of `scaler.signals.smoothing.Windows` (times and values of shape (rows, length), `head` of
shape (rows,)), one parameter per row, and `now` in POSIX seconds. It returns one float64 per row, in the unit of the
values (rates: per second). It has no clock and keeps nothing: the ring is the memory, so a restart changes no result.

- Unknown is NaN: an empty ring, or only gaps. A gap (NaN value) is skipped; the value before it still counts.
- The times of a row rise (`Windows.push`). A sample from after `now` counts as one of `now`.
- A series is constant between two samples. The maximum age of the last sample is the caller's business.
- A row with the parameter NaN returns NaN. Rows are independent; arrays of unequal rows raise ValueError.

The average is that of Eckner ("Algorithms for Unevenly Spaced Time Series: Moving Averages and Other Rolling
Operators", 2019, "last-point interpolation"). Over `dt` seconds of a value x, an average s with half-life h moves

    s += alpha * (x - s)        alpha = 1 - 2 ** (-dt / h)

With a half-life of 0 it is the last value, also in the moment that the value arrives.

The rate is that of Prometheus' `rate`, without its extrapolation to the edges of the window: the time is that between
the samples. A counter that falls was restarted at 0, so all of the smaller value is increase.

Worked example: 2, then 10 at second 100, then 2 from second 110 on, with half-lives of 0 s up and 60 s down: the
average is 10 at second 100, and 2 + 8/2 = 6 at second 170. A counter with 100, 160, 20, 50 at seconds 0, 10, 20, 30
rises by 60 + 20 + 30 = 110 in 30 s: 3.67 per second.
"""

from __future__ import annotations

from math import expm1, isnan, log

import numpy as np

from exporter.model import Floats
from scaler.jit import FLOATS, NUMBER, RESULT, RINGS, TABLE, Indices, kernel, part

_LN2 = log(2.0)
MEMO = 6  # numbers that `ewma_resumed` remembers of a ring


@kernel(NUMBER(NUMBER, NUMBER))
def _alpha(dt: float, half_life_s: float) -> float:
    """The share of the distance that an average moves in `dt` seconds. expm1 keeps the digits of a small dt."""
    if half_life_s <= 0.0:
        return 1.0
    return -expm1(-_LN2 * dt / half_life_s)


@part
def _through(
    times: Floats, values: Floats, head: Indices, row: int, up: float, down: float, now: float
) -> tuple[float, float, float]:
    """The average at the last known value, that value, and its time; NaN if no value is known."""
    length = times.shape[1]
    state = last = since = np.nan
    rise = rise_s = fall = fall_s = np.nan  # the share of a rise, and of a fall, and of how many seconds it is
    slot = head[row] % length
    for _ in range(length):
        at, value = times[row, slot], values[row, slot]
        slot = slot + 1 if slot + 1 < length else 0
        if isnan(at) or isnan(value):
            continue
        at = min(at, now)
        if isnan(since):
            state = value
        elif last > state:
            if at - since != rise_s:  # samples are regular, and expm1 is most of the work
                rise_s = at - since
                rise = _alpha(rise_s, up)
            state += rise * (last - state)
        elif last < state:
            if at - since != fall_s:
                fall_s = at - since
                fall = _alpha(fall_s, down)
            state += fall * (last - state)
        last, since = value, at
    return state, last, since


@kernel(RESULT(*RINGS, FLOATS, FLOATS, NUMBER))
def ewma_fast_slow(times: Floats, values: Floats, head: Indices, up_s: Floats, down_s: Floats, now: float) -> Floats:
    """Average up to `now` that rises with half-life `up_s` and falls with `down_s`. A constant value is never crossed.

    It starts at the first known value. NaN if no value is known.
    """
    rows = times.shape[0]
    if not (values.shape == times.shape and len(head) == len(up_s) == len(down_s) == rows):
        raise ValueError("ewma_fast_slow: times, values, head, up_s and down_s must have the same rows")
    average = np.full(rows, np.nan)
    for row in range(rows):
        up, down = up_s[row], down_s[row]
        if isnan(up) or isnan(down):
            continue
        state, last, since = _through(times, values, head, row, up, down, now)
        average[row] = state + _alpha(now - since, up if last > state else down) * (last - state)
    return average


@kernel(RESULT(*RINGS, FLOATS, FLOATS, NUMBER, TABLE))
def ewma_resumed(
    times: Floats, values: Floats, head: Indices, up_s: Floats, down_s: Floats, now: float, memo: Floats
) -> Floats:
    """As `ewma_fast_slow`, bit for bit, without a second pass over a ring in which nothing has been written since.

    memo: shape (rows, MEMO), NaN at first, and again for rings that are replaced: what was computed for each ring, and
          the head, time and value of its newest slot then. A ring with a value later than `now` is not remembered.
    """
    rows, length = times.shape
    average = np.full(rows, np.nan)
    for row in range(rows):
        up, down = up_s[row], down_s[row]
        if isnan(up) or isnan(down):
            continue
        newest = head[row] - 1 if head[row] else length - 1
        at, value = times[row, newest], values[row, newest]
        state, last, since = memo[row, 0], memo[row, 1], memo[row, 2]
        same = memo[row, 3] == head[row] and memo[row, 4] == at and memo[row, 5] == value
        if not (same and at <= now):
            state, last, since = _through(times, values, head, row, up, down, now)
            memo[row, 0], memo[row, 1], memo[row, 2] = state, last, since
            memo[row, 3], memo[row, 4], memo[row, 5] = head[row], at if at <= now else np.nan, value
        average[row] = state + _alpha(now - since, up if last > state else down) * (last - state)
    return average


@kernel(RESULT(*RINGS, FLOATS, NUMBER))
def counter_rate(times: Floats, values: Floats, head: Indices, window_s: Floats, now: float) -> Floats:
    """Increase per second over the samples measured since `now - window_s`; NaN with fewer than two."""
    rows, length = times.shape
    if not (values.shape == times.shape and len(head) == len(window_s) == rows):
        raise ValueError("counter_rate: times, values, head and window_s must have the same rows")
    rates = np.full(rows, np.nan)
    for row in range(rows):
        start = now - window_s[row]
        first = last = before = np.nan
        increase = 0.0
        for step in range(length):
            slot = (head[row] + step) % length
            at, value = times[row, slot], values[row, slot]
            if isnan(value) or not at >= start:
                continue
            if isnan(first):
                first = at
            else:
                increase += value - before if value >= before else value
            last, before = at, value
        if last > first:
            rates[row] = increase / (last - first)
    return rates
