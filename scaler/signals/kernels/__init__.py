"""Arithmetic over all series at once: averages, windows, rates, steps. Importing this package compiles it.

Every kernel takes the rings of `scaler.signals.smoothing.smoothing.Windows` (times and values of shape (rows,
length), `head` of shape
(rows,)), one parameter per row, and `now` in POSIX seconds; it answers one float64 per row, in the unit of the values
(rates: per second). It knows no clock, no names, and keeps nothing from one call to the next: the ring is the
memory, so an answer after a restart is the answer before it.

- Unknown is NaN: an empty ring, or only gaps. A gap (NaN value) is skipped; the value before it still stands.
- A row's times rise, as `Windows.push` sees to. A sample stamped after `now` counts as one of now.
- Between two samples a series is constant. How old the last one may be is the caller's question.
- A row whose parameter is NaN answers NaN. Rows do not touch each other; arrays of unequal rows raise ValueError.

Worked example:

    rings = Windows(rows=1, length=64)
    rings.push(np.array([0]), np.array([100.0]), np.array([8.0]))
    ewma(rings.times, rings.values, rings.head, np.array([10.0]), 110.0)    # [8.]

`twins` says the same in plain NumPy.
"""

from .averages import ewma, ewma_fast_slow, holt
from .counters import counter_rate, last_rise
from .spans import window_max, window_mean, window_quantile
from .steps import hysteresis

__all__ = [
    "counter_rate",
    "ewma",
    "ewma_fast_slow",
    "holt",
    "hysteresis",
    "last_rise",
    "window_max",
    "window_mean",
    "window_quantile",
]
