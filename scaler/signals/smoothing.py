"""Stores the recent values of every signal in rings, and smooths them: fast up, slow down. Pure.

Three signals per workload: work (requests waiting, running and held), KV-cache use, GPU engine activity. Each has one
value per scrape interval, the highest of that interval. The rate of finished requests is computed from the ring of a
counter and from scrape times.

A ring is a row of three arrays. A slot that was never written has time NaN and value NaN; a gap has its time and value
NaN. Neither is ever 0. `head` is the slot to be written next and, once the ring is full, the oldest: from `head` on,
once around, the slots are in order of time. In a ring that is not full yet the empty ones come first.

Worked example, one row of length 3 after pushes of 5, 6, 7, 8 at seconds 1, 2, 3, 4:

    times [[4, 2, 3]]   values [[8, 6, 7]]   head [1]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numba import types

from exporter.model import Floats
from scaler.columns import Array, Columns, Mask, Rows, named
from scaler.jit import FLOATS, INDICES, NUMBER, in_place_kernel, part
from scaler.policy.columns import SMOOTHED, Signal

from .aggregate import Aggregate
from .kernels import MEMO, counter_rate, ewma_fast_slow, ewma_resumed

# 128 intervals of 5 s are 10 minutes: ten half-lives of the default fall, by which the oldest value weighs 1/1024.
LENGTH = 128

# Requests per second are for people: a minute is usual in `top` and on dashboards.
RATE_WINDOW_S = 60.0

MOST_STRETCHES = 64  # of rows that are copied slice by slice

FINISHED = SMOOTHED
BLOCKS = SMOOTHED + 1
# The names of the blocks in a checkpoint.
RINGS = (*(signal.name.lower() for signal in Signal if signal < SMOOTHED), "finished")
# The highest possible value of each block: a ratio, or a count that a float represents exactly.
_HIGHEST = tuple(1.0 if name in {"kv_cache", "gpu_engine"} else 2.0**53 for name in RINGS)


@dataclass(frozen=True, slots=True)
class HalfLives:
    """Half-lives in seconds of one workload's signals. `up_s` 0 takes a rise at once."""

    up_s: float = 5.0
    down_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Rings:
    """One workload's windows, oldest first. times: shape (values,), POSIX seconds. values: (SMOOTHED, values)."""

    times: Floats
    values: Floats


class Smoother:
    """The rings of all workloads, in blocks: all of the first signal, of the second, …, and last the counters of
    finished requests. Series `block * workloads + row` is one ring.
    """

    def __init__(self, smoothing: Sequence[HalfLives], interval_s: float) -> None:
        self._rows = len(smoothing)
        self._interval = interval_s
        self._windows = Windows(self._rows * BLOCKS, LENGTH)
        self._memo = np.full((self._rows * SMOOTHED, MEMO), np.nan)
        self._up = np.tile(np.array([s.up_s for s in smoothing], dtype=float), SMOOTHED)
        self._down = np.tile(np.array([s.down_s for s in smoothing], dtype=float), SMOOTHED)

    def replan(self, rows: Rows, fresh: Smoother) -> None:
        """Takes the half-lives of `rows` from `fresh`, which has only these, in their order."""
        series = self._series(rows, SMOOTHED)
        self._up[series], self._down[series] = fresh._up, fresh._down
        self._memo[series] = np.nan

    def columns(self) -> dict[str, Array]:
        """The state that a checkpoint keeps; live arrays. All rings of a workload have the same times, stored once."""
        rings, first = self._windows, slice(self._rows)
        columns: dict[str, Array] = {"times": rings.times[first], "head": rings.head[first]}
        for block, name in enumerate(RINGS):
            columns[name] = rings.values[block * self._rows : (block + 1) * self._rows]
        return named("windows", columns)

    def take(self, columns: Columns, rows: Rows, source_rows: Rows, now: float = inf) -> None:
        """Copies rings from `columns[source_rows]` into `rows`, pairwise.

        now: POSIX seconds: without values that a ring of this length would have lost by then, and later ones.
        """
        self._memo[:] = np.nan
        times, head = columns.get("windows.times"), columns.get("windows.head")
        if (
            times is None
            or head is None
            or (times.ndim, times.dtype.kind, head.ndim, head.dtype.kind) != (2, "f", 1, "i")
        ):
            return
        blocks = [columns.get(f"windows.{name}") for name in RINGS]
        if now == inf and times.shape[1] == LENGTH:
            found = stretches(rows, source_rows)
            same = [values for values in blocks if values is not None and values.shape == times.shape]
            if len(same) == BLOCKS and len(found) <= MOST_STRETCHES:
                self._copy(found, times, head, same)
                return
        at = times[source_rows]
        if now < inf:
            at[~((at <= now) & (at >= now - LENGTH * self._interval))] = np.nan
            at[~_ascending(at, head[source_rows])] = np.nan
        for block, source in enumerate(blocks):
            fits = source is not None and source.shape == times.shape and source.dtype.kind == "f"
            # A signal that is missing has gaps at those moments: the rings of a workload keep the same times.
            values = source[source_rows] if source is not None and fits else np.full(at.shape, np.nan)
            if now < inf:
                values[~((values >= 0.0) & (values <= _HIGHEST[block]))] = np.nan
            self._windows.take(block * self._rows + rows, at, values, head[source_rows])

    def _copy(self, found: Sequence[tuple[slice, slice]], times: Array, head: Array, blocks: Sequence[Array]) -> None:
        """Copies rings of this process and of this length, without arrays between, which would cost as much again."""
        rings = self._windows
        for target, source in found:
            for block, values in enumerate(blocks):
                series = slice(block * self._rows + target.start, block * self._rows + target.stop)
                rings.times[series], rings.values[series] = times[source], values[source]
                rings.head[series] = head[source]

    def observe(self, rows: Rows, totals: Aggregate, complete: Mask, at: Floats) -> None:
        """Adds the aggregates of these workloads after the last response of each was received at `at`, POSIX seconds.

        complete: shape (rows,): all targets are fresh. A part of a sum is a lower bound, not a value: it never enters a
                  ring (for the policy it is a floor).
        """
        rings = self._windows
        _keep_highest(
            rings.times, rings.values, rings.head,
            rows, totals.latest, totals.finished, complete, at, self._interval,
        )  # fmt: skip

    def smooth(self, rows: Rows, now: float) -> Floats:
        """The smoothed signals of these workloads, shape (rows, SMOOTHED); NaN without values.

        rows: ascending, no row twice.
        """
        rings = self._windows
        # A sweep reads all rings: a slice copies none, and most have nothing new.
        if len(rows) == self._rows:
            each = slice(self._rows * SMOOTHED)
            windows = rings.times[each], rings.values[each], rings.head[each]
            smoothed = ewma_resumed(*windows, self._up, self._down, now, self._memo)
        else:
            series = self._series(rows, SMOOTHED)
            windows = rings.times[series], rings.values[series], rings.head[series]
            smoothed = ewma_fast_slow(*windows, self._up[series], self._down[series], now)
        return np.ascontiguousarray(smoothed.reshape(SMOOTHED, len(rows)).T)

    def rings(self, row: int) -> Rings:
        """A copy of one workload's rings."""
        rings, series = self._windows, self._series(np.array([row]), SMOOTHED)
        order = (rings.head[row] + np.arange(LENGTH)) % LENGTH
        written = order[~np.isnan(rings.times[row, order])]
        return Rings(rings.times[row, written], rings.values[series[:, None], written])

    def rates(self, rows: Rows, now: float) -> Floats:
        """Requests finished per second, shape (rows,); NaN without a counter."""
        rings, series = self._windows, FINISHED * self._rows + rows
        window = np.full(len(rows), RATE_WINDOW_S)
        return counter_rate(rings.times[series], rings.values[series], rings.head[series], window, now)

    def _series(self, rows: Rows, blocks: int) -> Rows:
        """The series of these workloads in the first blocks, block by block."""
        return (np.arange(blocks)[:, None] * self._rows + rows).ravel()


def stretches(rows: Rows, source_rows: Rows) -> list[tuple[slice, slice]]:
    """The pairs of rows as slices in which both rise by one. A list with one workload more is two of them."""
    if not len(rows):
        return []
    ends = (np.flatnonzero((np.diff(rows) != 1) | (np.diff(source_rows) != 1)) + 1).tolist()
    return [
        (
            slice(int(rows[first]), int(rows[last - 1]) + 1),
            slice(int(source_rows[first]), int(source_rows[last - 1]) + 1),
        )
        for first, last in zip([0, *ends], [*ends, len(rows)], strict=True)
    ]


_RINGS = types.Array(types.float64, 2, "C")
_INDICES = types.Array(types.int64, 1, "C")


@in_place_kernel(
    types.void(
        _RINGS, _RINGS, _INDICES, INDICES, types.Array(types.float64, 2, "A", readonly=True), FLOATS,
        types.Array(types.bool_, 1, "A", readonly=True), FLOATS, NUMBER,
    )
)  # fmt: skip
def _keep_highest(
    times: Floats,
    values: Floats,
    head: Rows,
    rows: Rows,
    latest: Floats,
    finished: Floats,
    complete: Mask,
    at: Floats,
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
            if at[index] - times[series, newest] < 0.5 * interval:
                values[series, newest] = np.fmax(values[series, newest], value)
            else:
                times[series, slot] = at[index]
                values[series, slot] = value if np.isfinite(value) else np.nan
                head[series] = (slot + 1) % length


@part
def _is_new(times: Floats, row: int, slot: int, at: float) -> bool:
    # Before slot 0 is the last one, which is empty until the ring is full: NaN.
    return np.isfinite(at) and not at <= times[row, slot - 1 if slot else times.shape[1] - 1]


@in_place_kernel(types.void(_RINGS, _RINGS, _INDICES, INDICES, FLOATS, FLOATS))
def _append(times: Floats, values: Floats, head: Rows, rows: Rows, at: Floats, new: Floats) -> None:
    """`Windows.push`. Writes first and moves the heads afterwards: of two entries for a row the later one counts."""
    length = times.shape[1]
    for index in range(rows.shape[0]):
        row, slot = rows[index], head[rows[index]]
        if _is_new(times, row, slot, at[index]):
            times[row, slot] = at[index]
            values[row, slot] = new[index] if np.isfinite(new[index]) else np.nan
    for index in range(rows.shape[0]):
        row, slot = rows[index], head[rows[index]]
        # In a ring of one slot it has just replaced the last.
        if times[row, slot] == at[index] and (length == 1 or _is_new(times, row, slot, at[index])):
            head[row] = (slot + 1) % length


def _ascending(times: Floats, head: Rows) -> Mask:
    """Which rings are in the order of their times, from the slot to be written next on; NaN is an empty slot.

    A kernel would compute growth from a step back in time. times: shape (rings, slots), POSIX seconds. head: (rings,).
    """
    slots = times.shape[1]
    if slots == 0:
        return np.ones(len(times), dtype=np.bool_)
    order = (head.astype(np.int64)[:, None] + np.arange(slots)) % slots
    ordered = np.take_along_axis(times, order, axis=1)
    before = np.maximum.accumulate(np.where(np.isnan(ordered), -inf, ordered), axis=1)[:, :-1]
    return np.asarray(~(ordered[:, 1:] <= before).any(axis=1), dtype=np.bool_)


class Windows:
    """Rings of the last values of many series; the oldest value is overwritten.

    times:  (rows, length) POSIX seconds, NaN in an empty slot.
    values: (rows, length) in the unit of the series, NaN in a gap.
    head:   (rows,) the slot to be written next.

    Readers must not write to the arrays.
    """

    __slots__ = ("head", "times", "values")

    def __init__(self, rows: int, length: int) -> None:
        if rows < 0 or length < 1:
            raise ValueError(f"windows: rows must be at least 0 and length at least 1, got {rows} and {length}")
        self.times: Floats = np.full((rows, length), np.nan)
        self.values: Floats = np.full((rows, length), np.nan)
        self.head: Rows = np.zeros(rows, np.int64)

    def push(self, rows: Rows, at: Floats, values: Floats) -> None:
        """Appends one value to each of `rows`, which are unique.

        A time that is not after the row's last, or not finite, is ignored: the response was read twice and measured
        once. A value that is not finite is a gap. The caller rejects times after its clock: after a timestamp of next
        year the row would ignore everything until then.
        """
        _append(self.times, self.values, self.head, rows, at, values)

    def clear(self, rows: Rows) -> None:
        """Empties these rings."""
        self.times[rows] = np.nan
        self.values[rows] = np.nan
        self.head[rows] = 0

    def take(self, rows: Rows, times: Floats, values: Floats, head: Rows) -> None:
        """Replaces `rows` by other rings, which may be longer or shorter; the newest values stay.

        times, values: (len(rows), slots); head: (len(rows),), the slot to be written next. They may come from a peer
        or an old disk: a head that is no slot makes that ring empty.
        """
        length = self.times.shape[1]
        if times.shape[1] != length:
            times, values, head = _of_length(length, times, values, head)
        right = (head >= 0) & (head < length)
        if not right.all():
            self.clear(rows[~right])
            rows, times, values, head = rows[right], times[right], values[right], head[right]
        self.times[rows], self.values[rows], self.head[rows] = times, values, head


def _of_length(length: int, times: Floats, values: Floats, head: Rows) -> tuple[Floats, Floats, Rows]:
    """The same rings with more slots or fewer, the oldest first, after the empty ones."""
    slots = times.shape[1]
    order = (head[:, None] + np.arange(slots)) % slots
    kept = min(length, slots)
    longer = np.full((2, len(head), length), np.nan)
    for target, other in zip(longer, (times, values), strict=True):
        target[:, length - kept :] = np.take_along_axis(other, order, axis=1)[:, slots - kept :]
    return longer[0], longer[1], np.where((head >= 0) & (head < slots), 0, -1)
