"""Which series are kept, and which kernel smooths each: from totals to `policy.Readings`.

Three signals per workload: work (requests waiting, running and held), KV-cache use, GPU engine activity. Each is a
ring of one value per scrape interval, the highest of that interval, and rises with one half-life and falls with
another: fast up, slow down, smoothed once. Request rates come from a counter's ring and from scrape times, never
from the times at which somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from exporter.model import Floats

from .intake import Mask, Rows, Totals
from .kernels import counter_rate, ewma_fast_slow
from .policy import Signal
from .windows import Windows

# 128 intervals of 5 s are 10 minutes: ten half-lives of the default fall, by which the oldest value weighs 1/1024.
LENGTH = 128

# Requests per second are for people: a minute is what `top` and dashboards show elsewhere.
RATE_WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class Smoothing:
    """Half-lives in seconds of one workload's signals. `up_s` 0 takes a rise at once."""

    up_s: float = 5.0
    down_s: float = 60.0


class Signals:
    """The rings of all workloads. Row `workload * len(Signal) + signal` is one series."""

    def __init__(self, smoothing: Sequence[Smoothing], interval_s: float) -> None:
        self._rows = len(smoothing)
        self._interval = interval_s
        self._windows = Windows(self._rows * len(Signal), LENGTH)
        self._finished = Windows(self._rows, LENGTH)
        self._up = np.repeat(np.array([s.up_s for s in smoothing], dtype=float), len(Signal))
        self._down = np.repeat(np.array([s.down_s for s in smoothing], dtype=float), len(Signal))

    def adopt(self, other: Signals, pairs: Iterable[tuple[int, int]]) -> None:
        """Take over the rings of workloads that both know, given as (own row, other's row)."""
        for mine, theirs in pairs:
            self._finished.copy_row(mine, other._finished, theirs)
            for signal in Signal:
                self._windows.copy_row(mine * len(Signal) + signal, other._windows, theirs * len(Signal) + signal)

    def observe(self, rows: Rows, totals: Totals, complete: Mask, now: float) -> None:
        """Add what is now known of these workloads.

        complete: shape (rows,): every source of it is fresh. A part of a sum is a lower bound, not a value: it never
                  enters a ring (the policy takes it as a floor).
        """
        whole = rows[complete]
        for signal, column in (
            (Signal.WORK, totals.work()),
            (Signal.KV_CACHE, totals.kv_cache),
            (Signal.GPU_ENGINE, totals.gpu_engine),
        ):
            _keep_highest(self._windows, whole * len(Signal) + signal, column[complete], now, self._interval)
        _keep_highest(self._finished, whole, totals.finished[complete], now, self._interval)

    def smooth(self, rows: Rows, now: float) -> Floats:
        """The smoothed signals of these workloads, shape (rows, len(Signal)); NaN where nothing was ever observed."""
        series = (rows[:, None] * len(Signal) + np.arange(len(Signal))).ravel()
        rings = self._windows
        smoothed = ewma_fast_slow(
            rings.times[series], rings.values[series], rings.head[series], self._up[series], self._down[series], now
        )
        return smoothed.reshape(len(rows), len(Signal))

    def rates(self, rows: Rows, now: float) -> Floats:
        """Requests finished per second, shape (rows,); NaN where no counter is known."""
        rings = self._finished
        window = np.full(len(rows), RATE_WINDOW_S)
        return counter_rate(rings.times[rows], rings.values[rows], rings.head[rows], window, now)


def _keep_highest(windows: Windows, series: Rows, values: Floats, now: float, interval: float) -> None:
    """One value per interval: within it, a higher one replaces the last, so a ring spans LENGTH intervals whatever
    the number of pages that land.
    """
    newest = (windows.head[series] - 1) % windows.times.shape[1]
    last_at = windows.times[series, newest]
    # Half an interval of slack: scrapes jitter, and a value that comes early is the next one, not the same.
    due = ~(now - last_at < 0.5 * interval)
    windows.push(series[due], np.full(int(due.sum()), now), values[due])
    early = ~due
    here = series[early], newest[early]
    windows.values[here] = np.fmax(windows.values[here], values[early])
