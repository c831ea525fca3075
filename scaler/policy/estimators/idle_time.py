"""Measures how long workloads rest: from the end of the last demand to the next, as decaying `histograms`. Pure.

The caller decides what demand is (`busy`, `active_at`). A start in advance, loading, and being kept warm are no demand,
so they do not end a rest. A rest that is going on counts nothing until it ends. If no reading came for longer than
`blind_s`, its end is unknown: it lasted until then at least (`Histograms.add_at_least`). A shorter gap in the readings
ends no rest: a request in it would have raised a counter.

Worked example: the last demand is read at 1000 s and is gone at 1005; at 1305 a request waits. A gap of 300 s is over,
and `observe` returns its row with 300.0. Without readings from 1105 to 2105, the gap would be "100 s at least".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from exporter.model import Floats
from scaler.columns import Array, Columns, Mask, Rows, copy_into
from scaler.jit import FLOATS, INDICES, NUMBER, in_place_kernel

from .histograms import EDGES, HALF_LIFE_S, Histograms

BLIND_S = 300.0


class IdleEnds(NamedTuple):
    """Rests that ended: rows, each once at most, and lengths in seconds."""

    rows: Rows
    lengths: Floats


_SERIES, _MASK = types.Array(types.float64, 1, "C"), types.Array(types.bool_, 1, "A", readonly=True)


@in_place_kernel(types.int64(_SERIES, _SERIES, INDICES, _MASK, FLOATS, _MASK, NUMBER, NUMBER, _SERIES, _SERIES))
def _observe(
    idle_since: Floats,
    seen_at: Floats,
    rows: Rows,
    busy: Mask,
    active_at: Floats,
    complete: Mask,
    blind_s: float,
    now: float,
    ended: Floats,
    cut: Floats,
) -> int:
    """`Gaps.observe`, without the histograms. Writes the lengths of the rests that ended, and of those that were cut
    the least lengths; NaN of the other rows. Returns the number of both.
    """
    found = 0
    for i in range(rows.shape[0]):
        ended[i] = cut[i] = np.nan
        if not complete[i]:
            continue
        since, last = idle_since[rows[i]], seen_at[rows[i]]
        resting = not np.isnan(since)
        if resting and now - last > blind_s:
            cut[i] = last - since
            resting = False
            found += 1
        # A counter's rise is older than its response: a request that came and went between ended one rest and began
        # another.
        came_and_went = active_at[i] > since
        begun = since if resting else now
        if resting and (busy[i] or came_and_went):
            begun = min(active_at[i], now) if came_and_went else now
            ended[i] = begun - since
            found += 1
        idle_since[rows[i]] = np.nan if busy[i] else begun
        seen_at[rows[i]] = now
    return found


class Gaps:
    """The rests of a fixed list of workloads.

    idle_since: POSIX seconds since when there has been no demand, shape (rows,); NaN while there is, or not known.
    seen_at:    POSIX seconds when that was last known; NaN never.
    """

    def __init__(self, rows: int, *, half_life: float = HALF_LIFE_S, blind_s: float = BLIND_S) -> None:
        self.histograms = Histograms(rows, EDGES, half_life)
        self.idle_since: Floats = np.full(rows, np.nan)
        self.seen_at: Floats = np.full(rows, np.nan)
        self._blind_s = blind_s

    def observe(self, rows: Rows, busy: Mask, active_at: Floats, complete: Mask, now: float) -> IdleEnds:
        """Takes the state at `now` of each of `rows`, which are unique. Returns the rests that ended.

        busy:      there is demand: requests wait or run, or a GPU of its own works.
        active_at: POSIX seconds when a counter of requests or tokens last rose; NaN never.
        complete:  all readings that would show demand are fresh. The other rows keep their state.
        """
        ended, cut = np.empty((2, len(rows)))
        found = _observe(self.idle_since, self.seen_at, rows, busy, active_at, complete, self._blind_s, now, ended, cut)
        if not found:  # as in most calls
            return IdleEnds(rows[:0], ended[:0])
        is_cut, is_end = ~np.isnan(cut), ~np.isnan(ended)
        self.histograms.add_at_least(rows[is_cut], cut[is_cut], now)
        self.histograms.add(rows[is_end], ended[is_end], now)
        return IdleEnds(rows[is_end], ended[is_end])

    def columns(self) -> dict[str, Array]:
        """The state that a checkpoint keeps, one slot per workload."""
        return {**self.histograms.columns("gaps"), **self._moments()}

    def _moments(self) -> Columns:
        return {"gaps.idle_since": self.idle_since, "gaps.seen_at": self.seen_at}

    def take(self, columns: Columns, rows: Rows, source_rows: Rows) -> None:
        """Copies state from `columns[source_rows]` into `rows`, pairwise; a missing column changes nothing."""
        self.histograms.take("gaps", columns, rows, source_rows)
        copy_into(self._moments(), columns, rows, source_rows)
