"""Which series are kept, and which kernel smooths each: from totals to `policy.Readings`.

Three signals per workload: work (requests waiting, running and held), KV-cache use, GPU engine activity. Each is a
ring of one value per scrape interval, the highest of that interval, and rises with one half-life and falls with
another: fast up, slow down, smoothed once. Request rates come from a counter's ring and from scrape times, never
from the times at which somebody asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from exporter.model import Floats

from .kernels import counter_rate, ewma_fast_slow
from .policy import Signal
from .slots import Mask, Rows
from .state import Array, Columns, named
from .totals import Totals
from .windows import Windows

# 128 intervals of 5 s are 10 minutes: ten half-lives of the default fall, by which the oldest value weighs 1/1024.
LENGTH = 128

# Requests per second are for people: a minute is what `top` and dashboards show elsewhere.
RATE_WINDOW_S = 60.0

MOST_STRETCHES = 64  # of rows that are copied one by one

FINISHED = len(Signal)
BLOCKS = len(Signal) + 1
# The names of the blocks, for those who keep them.
RINGS = (*(signal.name.lower() for signal in Signal), "finished")
# The highest value of each block that can have been observed: a ratio, or a count that a float has exactly.
_HIGHEST = tuple(1.0 if name in {"kv_cache", "gpu_engine"} else 2.0**53 for name in RINGS)


@dataclass(frozen=True, slots=True)
class Smoothing:
    """Half-lives in seconds of one workload's signals. `up_s` 0 takes a rise at once."""

    up_s: float = 5.0
    down_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Rings:
    """One workload's windows, oldest first. times: shape (values,), POSIX seconds. values: (len(Signal), values)."""

    times: Floats
    values: Floats


class Signals:
    """The rings of all workloads, in blocks: all of the first signal, of the second, …, and last the counters of
    finished requests. Series `block * workloads + row` is one ring.
    """

    def __init__(self, smoothing: Sequence[Smoothing], interval_s: float) -> None:
        self._rows = len(smoothing)
        self._interval = interval_s
        self._windows = Windows(self._rows * BLOCKS, LENGTH)
        self._up = np.tile(np.array([s.up_s for s in smoothing], dtype=float), len(Signal))
        self._down = np.tile(np.array([s.down_s for s in smoothing], dtype=float), len(Signal))

    def replan(self, rows: Rows, fresh: Signals) -> None:
        """Takes the half-lives of `rows` from `fresh`, which has only these, in their order."""
        series = self._series(rows, len(Signal))
        self._up[series], self._down[series] = fresh._up, fresh._down

    def columns(self) -> dict[str, Array]:
        """The rings as `scaler.state` wants them; live. All of a workload's are written at the same moments, so its
        times are there once.
        """
        rings, first = self._windows, slice(self._rows)
        columns: dict[str, Array] = {"times": rings.times[first], "head": rings.head[first]}
        for block, name in enumerate(RINGS):
            columns[name] = rings.values[block * self._rows : (block + 1) * self._rows]
        return named("windows", columns)

    def take(self, columns: Columns, rows: Rows, others: Rows, now: float = inf) -> None:
        """Take over the rings of workloads that both know: own `rows`, and theirs, pair by pair.

        now: POSIX seconds: without what a ring as long as ours would have lost by then, and what is of later than that.
        """
        times, head = columns.get("windows.times"), columns.get("windows.head")
        if (
            times is None
            or head is None
            or (times.ndim, times.dtype.kind, head.ndim, head.dtype.kind) != (2, "f", 1, "i")
        ):
            return
        blocks = [columns.get(f"windows.{name}") for name in RINGS]
        if now == inf and times.shape[1] == LENGTH:
            found = stretches(rows, others)
            same = [values for values in blocks if values is not None and values.shape == times.shape]
            if len(same) == BLOCKS and len(found) <= MOST_STRETCHES:
                self._copy(found, times, head, same)
                return
        at = times[others]
        if now < inf:
            at[~((at <= now) & (at >= now - LENGTH * self._interval))] = np.nan
            at[~_ascending(at, head[others])] = np.nan
        for block, theirs in enumerate(blocks):
            fits = theirs is not None and theirs.shape == times.shape and theirs.dtype.kind == "f"
            # A signal that was not known there has gaps at those moments: the rings of a workload stay in step.
            values = theirs[others] if theirs is not None and fits else np.full(at.shape, np.nan)
            if now < inf:
                values[~((values >= 0.0) & (values <= _HIGHEST[block]))] = np.nan
            self._windows.take(block * self._rows + rows, at, values, head[others])

    def _copy(self, found: Sequence[tuple[slice, slice]], times: Array, head: Array, blocks: Sequence[Array]) -> None:
        """Copies rings of this process and of this length. Arrays between would cost as much again."""
        rings = self._windows
        for own, theirs in found:
            count = LENGTH - np.isnan(times[theirs]).sum(axis=1)
            for block, values in enumerate(blocks):
                series = slice(block * self._rows + own.start, block * self._rows + own.stop)
                rings.times[series], rings.values[series] = times[theirs], values[theirs]
                rings.head[series], rings.count[series] = head[theirs], count

    def observe(self, rows: Rows, totals: Totals, complete: Mask, at: float) -> None:
        """Add what is known of these workloads since a page was received at `at`, POSIX seconds.

        complete: shape (rows,): every source of it is fresh. A part of a sum is a lower bound, not a value: it never
                  enters a ring (the policy takes it as a floor).
        """
        values = np.column_stack([totals.latest[complete], totals.finished[complete]])
        _keep_highest(self._windows, self._series(rows[complete], BLOCKS), values.T.ravel(), at, self._interval)

    def smooth(self, rows: Rows, now: float) -> Floats:
        """The smoothed signals of these workloads, shape (rows, len(Signal)); NaN where nothing was ever observed.

        rows: ascending, no row twice.
        """
        rings = self._windows
        everyone = len(rows) == self._rows
        # A sweep takes all rings as they stand: a slice copies none.
        series = slice(self._rows * len(Signal)) if everyone else self._series(rows, len(Signal))
        smoothed = ewma_fast_slow(
            rings.times[series], rings.values[series], rings.head[series], self._up[series], self._down[series], now
        )
        return np.ascontiguousarray(smoothed.reshape(len(Signal), len(rows)).T)

    def rings(self, row: int) -> Rings:
        """A copy of one workload's."""
        rings, series = self._windows, self._series(np.array([row]), len(Signal))
        order = (rings.head[row] + np.arange(LENGTH)) % LENGTH
        written = order[~np.isnan(rings.times[row, order])]
        return Rings(rings.times[row, written], rings.values[series[:, None], written])

    def rates(self, rows: Rows, now: float) -> Floats:
        """Requests finished per second, shape (rows,); NaN where no counter is known."""
        rings, series = self._windows, FINISHED * self._rows + rows
        window = np.full(len(rows), RATE_WINDOW_S)
        return counter_rate(rings.times[series], rings.values[series], rings.head[series], window, now)

    def _series(self, rows: Rows, blocks: int) -> Rows:
        """The series of these workloads in the first blocks, block by block."""
        return (np.arange(blocks)[:, None] * self._rows + rows).ravel()


def stretches(rows: Rows, others: Rows) -> list[tuple[slice, slice]]:
    """The pairs of rows as slices in which both go up by one. A list with one workload more is two of them."""
    if not len(rows):
        return []
    ends = (np.flatnonzero((np.diff(rows) != 1) | (np.diff(others) != 1)) + 1).tolist()
    return [
        (slice(int(rows[first]), int(rows[last - 1]) + 1), slice(int(others[first]), int(others[last - 1]) + 1))
        for first, last in zip([0, *ends], [*ends, len(rows)], strict=True)
    ]


def _keep_highest(windows: Windows, series: Rows, values: Floats, at: float, interval: float) -> None:
    """One value per interval: within it, a higher one replaces the last, so a ring spans LENGTH intervals whatever
    the number of pages that land.
    """
    newest = windows.head[series] - 1  # of an unwrapped ring, -1: the empty last slot
    last_at = windows.times[series, newest]
    # Half an interval of slack: scrapes jitter, and a value that comes early is the next one, not the same.
    early = at - last_at < 0.5 * interval
    if early.any():
        here = series[early], newest[early]
        windows.values[here] = np.fmax(windows.values[here], values[early])
    if not early.all():
        due = ~early
        windows.push(series[due], np.full(len(early) - early.sum(), at), values[due])


def _ascending(times: Floats, head: Rows) -> Mask:
    """Which rings are in the order of their times, from the slot to be written next on; NaN is an empty slot.

    The kernels take a step back in time for growth. times: shape (rings, slots), POSIX seconds. head: shape (rings,).
    """
    slots = times.shape[1]
    if slots == 0:
        return np.ones(len(times), dtype=np.bool_)
    order = (head.astype(np.int64)[:, None] + np.arange(slots)) % slots
    ordered = np.take_along_axis(times, order, axis=1)
    before = np.maximum.accumulate(np.where(np.isnan(ordered), -inf, ordered), axis=1)[:, :-1]
    return np.asarray(~(ordered[:, 1:] <= before).any(axis=1), dtype=np.bool_)
