"""What stands for every workload at a moment, whatever is read of it: people's orders, and what its past has taught.

Orders are `scaler.policy.overrides`; what is learned of rests and starts is `scaler.policy.estimators`; what becomes
of both is the
policy's. Here they meet: a start's 90th percentile is the lead of a schedule's floor and the measure of the lease, and
a rest that is expected to end is a floor of one replica until it does.

Worked example: 9 of 10 starts of a workload take 90 s or less, so one that was woken is kept up for 240 s at most while
none of its replicas is ready. It has been asleep since 08:00, and its rests last 51 minutes: from 08:47 on one replica
is wanted, with the reason `warm`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from exporter.model import Floats
from scaler.columns import Array, Columns, Mask, Rows
from scaler.model import Reason

from .columns import REASONS, Constraints, Readings, Specs
from .estimators.cold_start import Starts
from .estimators.idle_time import Gaps
from .estimators.keep_warm import KeepWarm, KeepWarmRules, Saving, Stakes
from .overrides import ActiveOverride, Brake, OverrideChanges, Overrides, ReasonCodes, WorkloadOverrides

# A woken workload whose start takes twice as long as nine of ten did, and a minute, has met something else than a slow
# start; the lease is what a start that nobody waits for any more may cost.
LEASE_STARTS, LEASE_MORE_S = 2.0, 60.0
_CODES = ReasonCodes(REASONS.index(Reason.SCHEDULED), REASONS.index(Reason.FROZEN))
_WARM = REASONS.index(Reason.WARM)
_NOTHING_SAID = ActiveOverride()
HOUR_S = 3600.0


class HourlyPrices(NamedTuple):
    """Money, in any unit: of one GPU for an hour, and of an hour in which somebody waits for a start."""

    gpu_hour: float
    waiting_hour: float


# An hour of an H100 costs two to four dollars; somebody's hour, at work and waiting for a machine, twenty to a hundred.
PRICES = HourlyPrices(gpu_hour=2.5, waiting_hour=30.0)


class Teaching(NamedTuple):
    """What a workload's owner says of learning. Times in seconds.

    learns:   its keep-warm time is learned; `Spec.keep_warm` is what holds until then, or always.
    lowest, highest: bounds of a learned one.
    """

    learns: bool = False
    lowest: float = 0.0
    highest: float = 3600.0


class ConstraintSource:
    """What stands, and what it is made of, of a fixed list of workloads.

    starts: how long cold starts take; whoever watches pods tells it of them.
    """

    def __init__(
        self,
        specs: Specs,
        ordered: Sequence[WorkloadOverrides],
        teaching: Sequence[Teaching],
        prices: HourlyPrices,
        fleet: Iterable[Brake] = (),
    ) -> None:
        rows = len(ordered)
        self._specs, self._prices = specs, prices
        self._fleet = tuple(fleet)
        self._order(ordered)
        self._rules = KeepWarmRules(
            learns=np.array([each.learns for each in teaching], dtype=np.bool_),
            constant=specs.keep_warm,
            lowest=np.array([each.lowest for each in teaching], dtype=float),
            highest=np.array([each.highest for each in teaching], dtype=float),
        )
        self._gaps, self._keep_warm = Gaps(rows), KeepWarm(self._rules)
        self.starts = Starts(rows)
        self._gpus = np.full(rows, np.nan)  # of one replica, as last seen
        self._saving = Saving(*np.full((2, rows), np.nan))

    def _order(self, ordered: Sequence[WorkloadOverrides]) -> None:
        self._orders = Overrides(ordered, _CODES, fleet=self._fleet)
        self._ordered = [bool(self._fleet or each.brakes or each.schedules) for each in ordered]

    def reorder(self, ordered: Sequence[WorkloadOverrides]) -> None:
        """Replaces the overrides of all workloads. The end of each brake is reported once."""
        told_until = self._orders.told_until
        self._order(ordered)
        self._orders.told_until = told_until

    def replan(self, rows: Rows, fresh: ConstraintSource) -> None:
        """Takes the rules of learning of `rows` from `fresh`, which has only these, in their order."""
        for mine, new in zip(self._rules, fresh._rules, strict=True):
            mine[rows] = new

    def at(self, now: float) -> Constraints:
        """What stands at `now`, POSIX seconds."""
        orders, plain = self._orders.at(now, self.starts.times.p90), Constraints.plain(self._specs)
        lease = np.minimum(LEASE_STARTS * self.starts.times.p90 + LEASE_MORE_S, self._specs.lease_max)
        expected = self.expected(now)
        self._saving = self._keep_warm.saving(now)
        return plain._replace(
            floor=np.where(expected, np.maximum(orders.floor, 1.0), orders.floor),
            floor_reason=np.where(expected & ~(orders.floor > 0.0), _WARM, orders.floor_reason),
            ceiling=orders.ceiling,
            frozen=orders.frozen,
            never_down=orders.never_down,
            keep_warm=self._keep_warm.window(self._gaps.idle_since, now),
            lease=np.where(np.isnan(lease), plain.lease, lease),
        )

    def expected(self, now: float) -> Mask:
        """Who rests, and is expected back so soon that a start must begin."""
        return self._keep_warm.expects(self._gaps.idle_since, now) & self._specs.sleeps

    def rest(self, rows: Rows, seen: Readings, known: Mask, each: Floats, now: float) -> None:
        """What is seen of these workloads, of whom all is known where `known` says so. each: GPUs of a replica."""
        busy = np.nan_to_num(seen.waiting) + np.nan_to_num(seen.running) + np.nan_to_num(seen.held) > 0.0
        # A model that is being loaded works on its GPUs, and DCGM shows it half a minute late. If nobody came, it
        # must not pass for the return that it was loaded for: each rest would be learned to be shorter than the last.
        loading = (seen.ready < seen.wanted) | self.expected(now)[rows]
        busy |= (seen.busiest_gpu > self._specs.gpu_quiet[rows]) & ~loading
        self.starts.passed(now)
        # Who was turned away has come all the same.
        ended = self._gaps.observe(rows, busy, np.fmax(seen.active_at, seen.refused_at), known, now)
        self._gpus[rows] = np.where(np.isnan(each), self._gpus[rows], each)
        self._keep_warm.learn(ended, self._gaps, self._stakes(), now)

    def _stakes(self) -> Stakes:
        """A replica of which no GPU was ever seen has one: batch work on processors is not what this is for."""
        gpus = np.where(self._gpus > 0.0, self._gpus, 1.0)
        idle = gpus * self._prices.gpu_hour / HOUR_S
        waiting = np.full(len(gpus), self._prices.waiting_hour / HOUR_S)
        return Stakes(self.starts.times.p50, self.starts.times.p90, idle, waiting)

    def returns_at(self, rows: Rows) -> Floats:
        """POSIX seconds when a start will begin in advance of the next request; NaN: none is foreseen."""
        begins = self._gaps.idle_since[rows] + self._keep_warm.schedule.prewarm_from[rows]
        return np.where(self._specs.sleeps[rows], begins, np.nan)

    def saving(self, rows: Rows) -> Saving:
        """As of the last moment that `at` was asked about."""
        return Saving(*(column[rows] for column in self._saving))

    def news(self) -> OverrideChanges:
        """Of the orders; it is spoken of once."""
        return self._orders.news()

    def said(self, row: int, now: float) -> ActiveOverride:
        """The orders that hold for a workload, for people."""
        return self._orders.said(row, now) if self._ordered[row] else _NOTHING_SAID

    def columns(self) -> dict[str, Array]:
        """What must survive, one slot per workload."""
        return {**self._gaps.columns(), **self._keep_warm.columns(), **self.starts.columns()}

    def take(self, columns: Columns, rows: Rows, others: Rows) -> None:
        """Own `rows` from the slots `others` of somebody's columns."""
        for part in (self._gaps, self.starts, self._keep_warm):
            part.take(columns, rows, others)

    def go_on(self, other: ConstraintSource, rows: Rows, others: Rows) -> None:
        """Besides what was taken, in one process: starts under way go on, and ends of orders are told once."""
        self.starts.go_on(other.starts, rows, others)
        self._orders.told_until = other._orders.told_until
