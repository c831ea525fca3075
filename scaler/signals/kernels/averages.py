"""Averages that forget: plain, with a fast and a slow side, and with a trend.

A series is known at irregular times and constant in between (Eckner, "Algorithms for Unevenly Spaced Time Series:
Moving Averages and Other Rolling Operators", 2019, "last-point interpolation"). Over `dt` seconds of a value x, an
average s with half-life h moves

    s += alpha * (x - s)        alpha = 1 - 2 ** (-dt / h)

Worked example: half-life 10 s, value 0 at second 0 and 8 from second 10 on. At second 10 the average is still 0: the
8 has stood for no time yet. At second 20 it is 4, at second 30 it is 6.

A half-life of 0 follows at once: the average is the last value, also in the very moment it arrives.
"""

from __future__ import annotations

from math import expm1, isnan, log

import numpy as np

from exporter.model import Floats
from scaler.jit import FLOATS, NUMBER, PAIR, RESULT, RINGS, Indices, kernel

_LN2 = log(2.0)


@kernel(NUMBER(NUMBER, NUMBER))
def _alpha(dt: float, half_life_s: float) -> float:
    """What share of the way is gone in `dt` seconds. expm1 keeps the digits of a small dt over a long half-life."""
    if half_life_s <= 0.0:
        return 1.0
    return -expm1(-_LN2 * dt / half_life_s)


@kernel(RESULT(*RINGS, FLOATS, NUMBER))
def ewma(times: Floats, values: Floats, head: Indices, half_life_s: Floats, now: float) -> Floats:
    """Average up to `now`, each value weighted by the time it stood and by half per `half_life_s` of age.

    The first known value is where the average starts. NaN while no value is known.
    """
    rows, length = times.shape
    if not (values.shape == times.shape and len(head) == len(half_life_s) == rows):
        raise ValueError("ewma: times, values, head and half_life_s must have the same rows")
    average = np.full(rows, np.nan)
    for row in range(rows):
        half_life = half_life_s[row]
        state = last = since = np.nan
        for step in range(length):
            slot = (head[row] + step) % length
            if isnan(times[row, slot]) or isnan(values[row, slot]):
                continue
            at, value = min(times[row, slot], now), values[row, slot]
            if isnan(since):
                state = value
            else:
                state += _alpha(at - since, half_life) * (last - state)
            last, since = value, at
        average[row] = state + _alpha(now - since, half_life) * (last - state)
    return average


@kernel(RESULT(*RINGS, FLOATS, FLOATS, NUMBER))
def ewma_fast_slow(times: Floats, values: Floats, head: Indices, up_s: Floats, down_s: Floats, now: float) -> Floats:
    """As `ewma`, rising with half-life `up_s` and falling with `down_s`. A value that stands is never crossed.

    Example: up 0 s, down 60 s. 2, then 10 at second 100, then 2 from second 110: the answer is 10 at second 100,
    and 2 + 8/2 = 6 at second 170.
    """
    rows, length = times.shape
    if not (values.shape == times.shape and len(head) == len(up_s) == len(down_s) == rows):
        raise ValueError("ewma_fast_slow: times, values, head, up_s and down_s must have the same rows")
    average = np.full(rows, np.nan)
    for row in range(rows):
        up, down = up_s[row], down_s[row]
        if isnan(up) or isnan(down):
            continue
        state = last = since = np.nan
        for step in range(length):
            slot = (head[row] + step) % length
            if isnan(times[row, slot]) or isnan(values[row, slot]):
                continue
            at, value = min(times[row, slot], now), values[row, slot]
            if isnan(since):
                state = value
            else:
                state += _alpha(at - since, up if last > state else down) * (last - state)
            last, since = value, at
        average[row] = state + _alpha(now - since, up if last > state else down) * (last - state)
    return average


@kernel(PAIR(*RINGS, FLOATS, FLOATS, NUMBER))
def holt(
    times: Floats, values: Floats, head: Indices, level_half_life_s: Floats, trend_half_life_s: Floats, now: float
) -> tuple[Floats, Floats]:
    """Level at `now` and trend per second: Holt's linear method (1957) at irregular times.

    The first two values give level y1 and trend (y1 - y0)/(t1 - t0). From then on, as in Wright ("Forecasting data
    published at irregular time intervals using an extension of Holt's method", 1986), with dt the time passed:

        level' = level + trend*dt + V*error     error = y - (level + trend*dt)
        trend' = trend + U*((level' - level)/dt - trend)
        V = 1 - 2**(-dt/level_half_life_s)
        U = (1 - 2**(-dt/h)) / (1 - 2**(-(t - t0)/h))     h = trend_half_life_s

    The denominator of U shares all the weight among the slopes seen so far, so a start does not count as a
    slope of 0 and a straight line is followed exactly from its second value on. Unlike Wright's own weights ours
    shrink with dt: two values a millisecond apart are no evidence of a trend of thousands per second.
    With one value the level is known and the trend is NaN.
    """
    rows, length = times.shape
    parameters = len(level_half_life_s) == len(trend_half_life_s) == rows
    if not (values.shape == times.shape and len(head) == rows and parameters):
        raise ValueError("holt: times, values, head and the half-lives must have the same rows")
    levels, trends = np.full(rows, np.nan), np.full(rows, np.nan)
    for row in range(rows):
        level_h, trend_h = level_half_life_s[row], trend_half_life_s[row]
        if isnan(level_h) or isnan(trend_h):
            continue
        level = trend = first = last = np.nan
        seen = 0
        for step in range(length):
            slot = (head[row] + step) % length
            at, value = times[row, slot], values[row, slot]
            if isnan(at) or isnan(value):
                continue
            seen += 1
            dt = at - last
            if seen == 1:
                level, first = value, at
            elif seen == 2:  # noqa: PLR2004 - two points make a line
                level, trend = value, (value - level) / dt
            else:
                change = trend * dt
                change += _alpha(dt, level_h) * (value - (level + change))
                share = _alpha(dt, trend_h) / _alpha(at - first, trend_h)
                level += change
                trend += share * (change / dt - trend)
            last = at
        levels[row] = level if seen == 1 else level + trend * max(now - last, 0.0)
        trends[row] = trend
    return levels, trends
