"""What a series did during the last `window_s` seconds: its peak, its mean, its quantile.

A series is constant between two known values, so the value that was in force when the window opened belongs to it,
and a window shorter than the scrape interval is never empty. How old the last value may be is not asked here:
whoever calls knows the interval and drops what is stale.

Worked example: 4 from second 0, 10 from second 20, 6 from second 30; now 40, window 15 s, so from 25 to 40.
10 stood for 5 s of it and 6 for 10 s: the peak is 10, the mean (5*10 + 10*6)/15 = 7.33, the median 6.

A window of 0 seconds is the last value.
"""

from __future__ import annotations

from math import inf, isnan

import numpy as np

from exporter.model import Floats
from scaler.jit import FLOATS, NUMBER, RESULT, RINGS, Indices, kernel


@kernel(RESULT(*RINGS, FLOATS, NUMBER))
def window_max(times: Floats, values: Floats, head: Indices, window_s: Floats, now: float) -> Floats:
    """Largest value in force at any moment after `now - window_s`; NaN while no value is known."""
    rows, length = times.shape
    if not (values.shape == times.shape and len(head) == len(window_s) == rows):
        raise ValueError("window_max: times, values, head and window_s must have the same rows")
    peaks = np.full(rows, np.nan)
    for row in range(rows):
        start = now - window_s[row]
        peak, until = -inf, inf
        for step in range(length):  # newest first: a value stood until the one after it
            slot = (head[row] - 1 - step) % length
            if isnan(times[row, slot]) or isnan(values[row, slot]):
                continue
            if not until > start:  # or the window is not known
                break
            at, value = min(times[row, slot], now), values[row, slot]
            peak, until = max(peak, value), at
        if until < inf:
            peaks[row] = peak
    return peaks


@kernel(RESULT(*RINGS, FLOATS, NUMBER))
def window_mean(times: Floats, values: Floats, head: Indices, window_s: Floats, now: float) -> Floats:
    """Mean over the part of the window since when a value is known, weighted by the time each stood:
    the integral of the step function over its length. NaN while no value is known.
    """
    rows, length = times.shape
    if not (values.shape == times.shape and len(head) == len(window_s) == rows):
        raise ValueError("window_mean: times, values, head and window_s must have the same rows")
    means = np.full(rows, np.nan)
    for row in range(rows):
        start = now - window_s[row]
        newest, until = np.nan, inf
        area = stood = 0.0
        for step in range(length):
            slot = (head[row] - 1 - step) % length
            if isnan(times[row, slot]) or isnan(values[row, slot]):
                continue
            if not until > start:  # or the window is not known
                break
            at, value = min(times[row, slot], now), values[row, slot]
            if isnan(newest):
                newest = value
            seconds = max(0.0, min(until, now) - max(at, start))
            area += seconds * value
            stood += seconds
            until = at
        means[row] = area / stood if stood > 0.0 else newest
    return means


@kernel(NUMBER(FLOATS, FLOATS, NUMBER, NUMBER))
def _pick(ranked: Floats, seconds: Floats, q: float, newest: float) -> float:
    """The value of rank `q`; `newest` if none has stood for any time."""
    total = 0.0
    for k in range(len(ranked)):
        total += seconds[k]
    if total == 0.0:
        return newest
    stood = 0.0
    for k in range(len(ranked)):
        stood += seconds[k]
        if stood >= q * total and q < 1.0:
            return float(ranked[k])
    return float(ranked[-1]) if q >= 1.0 else np.nan


@kernel(RESULT(*RINGS, FLOATS, FLOATS, NUMBER))
def window_quantile(times: Floats, values: Floats, head: Indices, window_s: Floats, q: Floats, now: float) -> Floats:
    """Smallest value that the series did not exceed for at least a share `q` (0..1) of the window's time.

    The inverse of the distribution function weighted by time (Hyndman and Fan's type 1, 1996): always a value that
    was there, never one between. q = 0 is the smallest value in the window and q = 1 the largest, even one that
    has stood for no time yet. NaN while no value is known.
    """
    rows, length = times.shape
    if not (values.shape == times.shape and len(head) == len(window_s) == len(q) == rows):
        raise ValueError("window_quantile: times, values, head, window_s and q must have the same rows")
    quantiles = np.full(rows, np.nan)
    ranked, seconds = np.empty(length), np.empty(length)  # scratch, sorted by value as it fills
    for row in range(rows):
        start = now - window_s[row]
        newest, until = np.nan, inf
        kept = 0
        for step in range(length):
            slot = (head[row] - 1 - step) % length
            if isnan(times[row, slot]) or isnan(values[row, slot]):
                continue
            if not until > start:  # or the window is not known
                break
            at, value = min(times[row, slot], now), values[row, slot]
            if isnan(newest):
                newest = value
            place = kept
            while place > 0 and ranked[place - 1] > value:
                ranked[place], seconds[place] = ranked[place - 1], seconds[place - 1]
                place -= 1
            ranked[place], seconds[place] = value, max(0.0, min(until, now) - max(at, start))
            kept += 1
            until = at
        quantiles[row] = _pick(ranked[:kept], seconds[:kept], q[row], newest)
    return quantiles
