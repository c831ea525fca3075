"""Everything that is learned of a fixed list of workloads, kept together: starts, rests, and what follows from them.

It wires the parts of this room and knows none of their arithmetic. It refuses to know where its columns come from.

Worked example: each tick `observe` says who has demand; `window(now)` is then the keep-warm time of each,
`in_advance(now)` whom to hold at one replica because its return is due, and `starts.times.p90` how long a start takes
to be on the safe side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from exporter.model import Floats

from .gaps import Gaps
from .histogram import Column, Columns, Rows
from .keepwarm import KeepWarm, Rules, Saving
from .stakes import Stakes
from .starts import Starts


class Rates(NamedTuple):
    """Money per second: of one GPU, and of a start for which somebody waits."""

    gpu: float
    waiting: float


class Learned:
    """starts, gaps, keep_warm: the parts; each says what it knows."""

    def __init__(self, rules: Rules, rates: Rates) -> None:
        rows = len(rules.constant)
        self._rules, self._rates = rules, rates
        self._everyone: Rows = np.arange(rows)
        self.starts, self.gaps, self.keep_warm = Starts(rows), Gaps(rows), KeepWarm(rules)

    def observe(self, busy: Column, active_at: Floats, known: Column, gpus: Floats, now: float) -> None:
        """What is so of all workloads `now`, shape (rows,): see `Gaps.observe`.

        gpus: what one replica holds; where that is not known, or none, it is taken to be one.
        """
        self.starts.passed(now)
        ended = self.gaps.observe(self._everyone, busy, active_at, known, now)
        held = np.where(gpus > 0.0, gpus, 1.0)  # not so for NaN
        times = self.starts.times
        stakes = Stakes(times.p50, times.p90, held * self._rates.gpu, np.full(len(held), self._rates.waiting))
        self.keep_warm.learn(ended, self.gaps, stakes, now)

    def window(self, now: float) -> Floats:
        """Seconds idle before zero.

        A start in advance that nobody came for counts as idle only from when it was ready: it is not kept warm for the
        whole time again.
        """
        schedule, rested = self.keep_warm.schedule, now - self.gaps.idle_since
        return np.where(rested >= schedule.prewarm_until, self._rules.lowest, schedule.keep_warm)

    def in_advance(self, now: float) -> Column:
        """Whose return is due: it is to have one replica, though nothing asks for it."""
        schedule, rested = self.keep_warm.schedule, now - self.gaps.idle_since
        return (rested >= schedule.prewarm_from) & (rested < schedule.prewarm_until)

    def saving(self, now: float) -> Saving:
        return self.keep_warm.saving(now)

    def columns(self) -> Columns:
        """What must survive, one slot per workload."""
        return {**self.starts.columns(), **self.gaps.columns(), **self.keep_warm.columns()}

    def take(self, columns: Mapping[str, Column], rows: Rows, others: Rows) -> None:
        """Own `rows` from the slots `others` of such columns; what is missing there, or does not fit, stays."""
        for part in (self.starts, self.gaps, self.keep_warm):
            part.take(columns, rows, others)

    def take_over(self, other: Learned, rows: Rows, others: Rows) -> None:
        """As `take`, from another list of workloads in one process: starts that are under way go on."""
        self.take(other.columns(), rows, others)
        self.starts.take_over(other.starts, rows, others)
