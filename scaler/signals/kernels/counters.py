"""What a counter says: how fast it rises, and when it last did.

A counter only rises, until its process restarts and it begins at 0 again. So of two values in order, the increase is
their difference, or, if the second is smaller, the second: all of it was counted since the restart (what was counted
between the first value and the restart is lost). This is the rule of Prometheus' `rate`, without its extrapolation
to the edges of the window: the time is that between the samples, never that of a call.

Worked example: 100, 160, 20, 50 at seconds 0, 10, 20, 30 is 60 + 20 + 30 = 110 in 30 s: 3.67 per second, and it
last rose at second 30.
"""

from __future__ import annotations

from math import isnan

import numpy as np

from exporter.model import Floats
from scaler.jit import FLOATS, NUMBER, RESULT, RINGS, Indices, kernel


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


@kernel(RESULT(*RINGS))
def last_rise(times: Floats, values: Floats, head: Indices) -> Floats:
    """POSIX seconds of the last sample that was an increase; NaN if none in the ring was.

    A first value is no increase: nobody knows when it was counted. A restart at 0 is none either, one above 0 is.
    """
    rows, length = times.shape
    if not (values.shape == times.shape and len(head) == rows):
        raise ValueError("last_rise: times, values and head must have the same rows")
    rises = np.full(rows, np.nan)
    for row in range(rows):
        before = np.nan
        for step in range(length):
            slot = (head[row] + step) % length
            at, value = times[row, slot], values[row, slot]
            if isnan(at) or isnan(value):
                continue
            if value > before or (value < before and value > 0.0):
                rises[row] = at
            before = value
    return rises
