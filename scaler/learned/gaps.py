"""How long workloads rest: from the end of the last demand to the next, as histograms.

It knows when a rest began and when demand ended it, and what to do with a rest of which it did not see the end. It
refuses to know what demand is: its caller says who has some (`busy`) and when a counter last rose (`active_at`). Being
started in advance, loading, and being held awake are no demand, and so do not end a rest.

A rest that is going on counts nothing until it ends: it says only that it is longer than it has been so far, and what
is decided for it was decided when it began. One whose end was not seen, because nothing was for longer than `blind_s`,
is known to have lasted until then at least: `Histograms.add_at_least`. A shorter blindness ends no rest: what came and
went in it would have moved a counter.

Worked example: demand was last seen at 1000 s and is gone at 1005; at 1305 a request waits. A gap of 300 s is over, and
`observe` returns its row with 300.0. Had nothing been heard from 1105 on until 2105, the gap would be "100 s at least".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exporter.model import Floats

from ..slots import Mask, Rows
from ..state import Array, Columns, copy_into
from .histogram import GROWTH, Histograms, scale

SHORTEST_S, LONGEST_S = 1.0, 14 * 86400.0
EDGES = scale(SHORTEST_S, GROWTH, LONGEST_S)
# Two weekends. Half as long and a weekend's gaps are forgotten before the next; twice, and a new habit takes a month.
HALF_LIFE_S = 7 * 86400.0
BLIND_S = 300.0


class Ended(NamedTuple):
    """Rests that ended: whose, and how long they were, in seconds. A row stands in it once at the most."""

    rows: Rows
    lengths: Floats


class Gaps:
    """idle_since: POSIX seconds since when there has been no demand, shape (rows,); NaN while there is, or not known.
    seen_at:       POSIX seconds when that was last known; NaN never.
    """

    def __init__(self, rows: int, *, half_life: float = HALF_LIFE_S, blind_s: float = BLIND_S) -> None:
        self.histograms = Histograms(rows, EDGES, half_life)
        self.idle_since: Floats = np.full(rows, np.nan)
        self.seen_at: Floats = np.full(rows, np.nan)
        self._blind_s = blind_s

    def observe(self, rows: Rows, busy: Mask, active_at: Floats, known: Mask, now: float) -> Ended:
        """What is so `now` of each of `rows`, which are named once each.

        busy:      there is demand: requests wait or run, or a GPU of its own works.
        active_at: POSIX seconds when a counter of requests or tokens last rose; NaN never.
        known:     all that would show demand is fresh. Of the others nothing is taken but that.
        Returns the rests that ended.
        """
        since, seen = self.idle_since[rows], self.seen_at[rows]
        resting = ~np.isnan(since)
        cut = known & resting & (now - seen > self._blind_s)
        self.histograms.add_at_least(rows[cut], (seen - since)[cut], now)
        resting &= ~cut

        # A counter's rise is older than its page: a request that came and went in between ended one rest and began
        # another.
        came_and_went = active_at > since
        ended = known & resting & (busy | came_and_went)
        until = np.where(came_and_went, np.minimum(active_at, now), now)
        lengths = (until - since)[ended]
        self.histograms.add(rows[ended], lengths, now)

        begun = np.where(resting & ~ended, since, np.where(ended & came_and_went, until, now))
        self.idle_since[rows] = np.where(known, np.where(busy, np.nan, begun), since)
        self.seen_at[rows] = np.where(known, now, seen)
        return Ended(rows[ended], lengths)

    def columns(self) -> dict[str, Array]:
        """What must survive, one slot per workload."""
        return {**self.histograms.columns("gaps"), **self._moments()}

    def _moments(self) -> Columns:
        return {"gaps.idle_since": self.idle_since, "gaps.seen_at": self.seen_at}

    def take(self, columns: Columns, rows: Rows, others: Rows) -> None:
        """Own `rows` from the slots `others` of somebody's columns; what those lack stays as it is."""
        self.histograms.take("gaps", columns, rows, others)
        copy_into(self._moments(), columns, rows, others)
