"""Which series are kept, and which kernel smooths each: from totals to `policy.Readings`.

Three signals per workload: work (requests waiting, running and held), KV-cache use, GPU engine activity. Each is a
ring of one value per scrape interval, the highest of that interval, and rises with one half-life and falls with
another: fast up, slow down, smoothed once. Request rates come from a counter's ring and from scrape times, never
from the times at which somebody asks.

Rings: the last values of many series, side by side in four arrays.

This module knows which slot is next. It knows no clock, no quantity and no arithmetic:
`scaler.signals.smoothing.kernels` turns the
rings into signals, and whoever owns a `Windows` remembers which row is whose. A slot nobody wrote has time NaN and
value NaN; a gap (asked, and nothing came) has its time and value NaN. Neither is ever 0.

Worked example, one row of length 3 that was pushed 5, 6, 7, 8 at seconds 1, 2, 3, 4:

    times [[4, 2, 3]]   values [[8, 6, 7]]   head [1]   count [3]

`head` is the slot to be written next and, once the ring is full, the oldest. So from `head` on, once around, the
slots are in order of time; in a ring that is not full yet the empty ones come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

import numpy as np
from numba import types
from numpy.typing import NDArray

from exporter.model import Floats
from scaler.columns import Array, Columns, Mask, Rows, named
from scaler.jit import FLOATS, INDICES, NUMBER, kernel
from scaler.policy.columns import Signal

from .aggregate import Aggregate
from .kernels import counter_rate, ewma_fast_slow

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
class HalfLives:
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

    def __init__(self, smoothing: Sequence[HalfLives], interval_s: float) -> None:
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
        """The rings as `scaler.columns` wants them; live. All of a workload's are written at the same moments, so its
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

    def observe(self, rows: Rows, totals: Aggregate, complete: Mask, at: float) -> None:
        """Add what is known of these workloads since a page was received at `at`, POSIX seconds.

        complete: shape (rows,): every source of it is fresh. A part of a sum is a lower bound, not a value: it never
                  enters a ring (the policy takes it as a floor).
        """
        rings = self._windows
        _keep_highest(
            rings.times, rings.values, rings.head, rings.count,
            rows, totals.latest, totals.finished, complete, at, self._interval,
        )  # fmt: skip

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


_RINGS = types.Array(types.float64, 2, "C")
_INDICES = types.Array(types.int64, 1, "C")


@kernel(
    types.void(
        _RINGS, _RINGS, _INDICES, _INDICES, INDICES, types.Array(types.float64, 2, "A", readonly=True), FLOATS,
        types.Array(types.bool_, 1, "A", readonly=True), NUMBER, NUMBER,
    )
)  # fmt: skip
def _keep_highest(
    times: Floats,
    values: Floats,
    head: Rows,
    count: Rows,
    rows: Rows,
    latest: Floats,
    finished: Floats,
    complete: Mask,
    at: float,
    interval: float,
) -> None:
    """Write one value per interval into each ring of `rows`: within it a higher one replaces the last, so a ring spans
    LENGTH intervals whatever the number of responses that land. The rings of a workload are written together.
    """
    workloads, length = times.shape[0] // BLOCKS, times.shape[1]
    for index in range(rows.shape[0]):
        if not complete[index]:
            continue
        for block in range(BLOCKS):
            series = block * workloads + rows[index]
            value = finished[index] if block == FINISHED else latest[index, block]
            slot = head[series]
            newest = slot - 1 if slot else length - 1
            # Half an interval of slack: scrapes jitter, and a value that comes early is the next one, not the same.
            if at - times[series, newest] < 0.5 * interval:
                values[series, newest] = np.fmax(values[series, newest], value)
            else:
                times[series, slot] = at
                values[series, slot] = value if np.isfinite(value) else np.nan
                head[series] = (slot + 1) % length
                count[series] = min(count[series] + 1, length)


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


Indices: TypeAlias = NDArray[np.int64]


class Windows:
    """Rings of the last values of many series; the oldest value is overwritten.

    times:  (rows, length) POSIX seconds, NaN in an empty slot.
    values: (rows, length) in the unit of the series, NaN in a gap.
    head:   (rows,) the slot to be written next.
    count:  (rows,) slots written, at most `length`.

    `grow` replaces the arrays, so take them from here at each use. Readers must not write to them.
    """

    __slots__ = ("count", "head", "times", "values")

    def __init__(self, rows: int, length: int) -> None:
        if rows < 0 or length < 1:
            raise ValueError(f"windows: rows must be at least 0 and length at least 1, got {rows} and {length}")
        self.times: Floats = np.full((rows, length), np.nan)
        self.values: Floats = np.full((rows, length), np.nan)
        self.head: Indices = np.zeros(rows, np.int64)
        self.count: Indices = np.zeros(rows, np.int64)

    def push(self, rows: Indices, at: Floats, values: Floats) -> None:
        """Append one value to each of `rows`.

        A time that is not after the row's last is ignored: the page was read twice and measured once. So is a time
        that is not finite. A value that is not finite is a gap. Name a row once per call; of two entries for it
        the later one counts. The caller refuses times after its own clock: one stamp from next year would make the
        row deaf until then.
        """
        last = self.times[rows, self.head[rows] - 1]  # -1, of an unwrapped ring, is the empty last slot: NaN
        new = np.isfinite(at) & ~(at <= last)
        row = rows[new]
        slot = self.head[row]
        self.times[row, slot] = at[new]
        self.values[row, slot] = np.where(np.isfinite(values[new]), values[new], np.nan)
        self.head[row] = (slot + 1) % self.times.shape[1]
        self.count[row] = np.minimum(self.count[row] + 1, self.times.shape[1])

    def grow(self, rows: int) -> None:
        """Have at least `rows` rows in all; new ones are empty, old ones keep their number and what they hold."""
        more = rows - self.times.shape[0]
        if more <= 0:
            return
        fresh = Windows(more, self.times.shape[1])
        self.times = np.concatenate([self.times, fresh.times])
        self.values = np.concatenate([self.values, fresh.values])
        self.head = np.concatenate([self.head, fresh.head])
        self.count = np.concatenate([self.count, fresh.count])

    def clear(self, rows: Indices) -> None:
        """Forget what `rows` hold, so that another series may have them."""
        self.times[rows] = np.nan
        self.values[rows] = np.nan
        self.head[rows] = 0
        self.count[rows] = 0

    def take(self, rows: Indices, times: Floats, values: Floats, head: Indices) -> None:
        """Hold in `rows` what somebody else's rings held, which may be longer or shorter; the newest values stay.

        times, values: (len(rows), slots); head: (len(rows),), the slot to be written next. They may come from a peer
        or an old disk: a head that is no slot makes that ring empty.
        """
        length, theirs = self.times.shape[1], times.shape[1]
        if theirs != length:
            times, values, head = _of_length(length, times, values, head)
        right = (head >= 0) & (head < length)
        if not right.all():
            self.clear(rows[~right])
            rows, times, values, head = rows[right], times[right], values[right], head[right]
        self.times[rows], self.values[rows], self.head[rows] = times, values, head
        self.count[rows] = length - np.isnan(times).sum(axis=1)


def _of_length(length: int, times: Floats, values: Floats, head: Indices) -> tuple[Floats, Floats, Indices]:
    """The same rings with more slots or fewer, the oldest first: what is empty comes before them, as in any ring."""
    theirs = times.shape[1]
    order = (head[:, None] + np.arange(theirs)) % theirs
    kept = min(length, theirs)
    longer = np.full((2, len(head), length), np.nan)
    for own, other in zip(longer, (times, values), strict=True):
        own[:, length - kept :] = np.take_along_axis(other, order, axis=1)[:, theirs - kept :]
    return longer[0], longer[1], np.where((head >= 0) & (head < theirs), 0, -1)
