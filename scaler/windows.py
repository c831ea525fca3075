"""Rings: the last values of many series, side by side in four arrays.

This module knows which slot is next. It knows no clock, no quantity and no arithmetic: `scaler.kernels` turns the
rings into signals, and whoever owns a `Windows` remembers which row is whose. A slot nobody wrote has time NaN and
value NaN; a gap (asked, and nothing came) has its time and value NaN. Neither is ever 0.

Worked example, one row of length 3 that was pushed 5, 6, 7, 8 at seconds 1, 2, 3, 4:

    times [[4, 2, 3]]   values [[8, 6, 7]]   head [1]   count [3]

`head` is the slot to be written next and, once the ring is full, the oldest. So from `head` on, once around, the
slots are in order of time; in a ring that is not full yet the empty ones come first.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from exporter.model import Floats

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
