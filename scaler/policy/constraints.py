"""Combines overrides and estimates into the constraints of every workload at one moment.

A start's 90th percentile is the lead of a schedule's floor and the measure of the start-up grace. A rest that is
expected to end is a floor of one replica until it does.

Worked example: 9 of 10 starts of a workload take 90 s or less, so one that was woken is kept up for 240 s at most while
none of its replicas is ready. It has been asleep since 08:00, and its rests last 51 minutes: from 08:47 on one replica
is wanted, with the reason `warm`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from exporter.model import Floats
from scaler.columns import Array, Columns, Mask, Rows, zero_if_unknown

from .columns import WARM, Constraints, Readings, Specs
from .estimators.cold_start import ColdStarts, Starts
from .estimators.error_budget import ErrorBudget, Traffic
from .estimators.further_hour import SHORTEST_COUNTED_S, RecordedPauses
from .estimators.idle_time import Gaps, decayed_time
from .estimators.keep_warm import DAY_S, KeepWarm, KeepWarmRules, Saving, Stakes
from .estimators.sleep_plan import SleepConfig, SleepPlans, SleepRules
from .overrides import ActiveOverride, Brake, OverrideChanges, Overrides, WorkloadOverrides
from .prices import ReplicaCost
from .sizing import UNLEARNED_START_S

# A start that takes twice as long as nine of ten did, and a minute, is no slow start but a failing one; the grace is
# the most that a start which no request waits for any more may cost.
LEASE_STARTS, LEASE_MORE_S = 2.0, 60.0
HOUR_S = 3600.0


class HourlyPrices(NamedTuple):
    """Money, in any unit: of one GPU for an hour, and of an hour in which a person waits for a start."""

    gpu_hour: float
    waiting_hour: float


# An hour of an H100 costs two to four dollars; an hour of a person who waits for a machine, twenty to a hundred.
PRICES = HourlyPrices(gpu_hour=2.5, waiting_hour=30.0)


class KeepWarmConfig(NamedTuple):
    """The configuration of the keep-warm estimator of one workload. Times in seconds.

    learns:   its keep-warm time is estimated; `Spec.keep_warm` holds until then, or always.
    lowest, highest: bounds of an estimated one.
    """

    learns: bool = False
    lowest: float = 0.0
    highest: float = 3600.0


class ConstraintSource:
    """The constraints of a fixed list of workloads, and what they are computed from.

    starts: how long cold starts take; the caller reports the pods.
    sleep:  the plans of sleep mode; the caller reports the wakes.
    """

    def __init__(
        self,
        specs: Specs,
        overrides: Sequence[WorkloadOverrides],
        teaching: Sequence[KeepWarmConfig],
        prices: HourlyPrices,
        fleet: Iterable[Brake] = (),
        sleep: Sequence[SleepConfig | None] = (),
    ) -> None:
        """sleep: the sleep mode of each workload; empty: none has it."""
        rows = len(overrides)
        self._specs, self._prices = specs, prices
        self._fleet = tuple(fleet)
        self._overrides = Overrides(overrides, fleet=self._fleet)
        self._rules = KeepWarmRules(
            learns=np.array([each.learns for each in teaching], dtype=np.bool_),
            constant=specs.keep_warm,
            lowest=np.array([each.lowest for each in teaching], dtype=float),
            highest=np.array([each.highest for each in teaching], dtype=float),
        )
        self._gaps, self._keep_warm, self._budget = Gaps(rows), KeepWarm(self._rules), ErrorBudget(rows)
        self.starts = Starts(rows)
        self.sleep = SleepPlans(SleepRules.stack(list(sleep) or [None] * rows), self._rules, specs)
        self._gpus, self._replica_hour = np.full((2, rows), np.nan)  # of one replica, as last reported
        self._at = np.nan  # POSIX seconds of the last call of `at`
        self._stakes = Stakes(*np.full((len(Stakes._fields), rows), np.nan))  # as of the last call of `rest`

    def reorder(self, overrides: Sequence[WorkloadOverrides]) -> None:
        """Replaces the overrides of all workloads. The end of each brake is reported once."""
        self._overrides = Overrides(overrides, fleet=self._fleet, since=self._overrides.reported_until)

    def replan(self, rows: Rows, fresh: ConstraintSource) -> None:
        """Takes the keep-warm rules of `rows` from `fresh`, which has only these, in their order."""
        for column, new in zip(self._rules, fresh._rules, strict=True):
            column[rows] = new
        self.sleep.replan(rows, fresh.sleep)

    def at(self, now: float) -> Constraints:
        """The constraints at `now`, POSIX seconds."""
        slow = self.starts.zero_times.p90
        # A schedule may begin at zero, or with replicas.
        overrides = self._overrides.at(now, np.fmax(slow, self.starts.times.p90))
        lease = np.minimum(LEASE_STARTS * slow + LEASE_MORE_S, self._specs.lease_max)
        expected = self.expected(now)
        self._at = now
        return Constraints(
            floor=np.where(expected, np.maximum(overrides.floor, 1.0), overrides.floor),
            floor_reason=np.where(expected & ~(overrides.floor > 0.0), WARM, overrides.floor_reason),
            ceiling=overrides.ceiling,
            frozen=overrides.frozen,
            never_down=overrides.never_down,
            keep_warm=self._keep_warm.window(self._gaps.idle_since, now),
            lease=np.where(np.isnan(lease), self._specs.lease_max, lease),
            room=np.full(len(lease), np.inf),
        )

    @property
    def shortest_keep_warm(self) -> Floats:
        """Seconds that each workload is kept warm at least, whatever is estimated or wanted by others."""
        return self._rules.lowest

    def expected(self, now: float) -> Mask:
        """Which workloads rest, and are expected back so soon that a start must begin."""
        return self._keep_warm.expects(self._gaps.idle_since, now) & self._specs.sleeps

    def rest(
        self,
        rows: Rows,
        readings: Readings,
        complete: Mask,
        cost: ReplicaCost,
        finished: Floats,
        now: float,
        asleep: Mask | None = None,
    ) -> None:
        """Updates the estimates with the readings of these workloads, in ascending order.

        cost: of one replica of each. finished: requests, a counter. asleep: whether engines are in sleep mode: their
        replicas are there, and what their GPUs do is no demand.
        """
        waiting = zero_if_unknown(readings.waiting) + zero_if_unknown(readings.held)
        work = waiting + zero_if_unknown(readings.running)
        # A model that is being loaded works on its GPUs, and DCGM shows it half a minute late. If no request came, it
        # must not count as the return that it was loaded for: each rest would be estimated shorter than the last.
        loading = (readings.ready < readings.wanted) | self.expected(now)[rows]
        ready = readings.ready
        if asleep is not None and asleep.any():
            loading |= asleep
            ready = np.where(asleep, np.fmax(ready, 1.0), ready)
        busy = (work > 0.0) | ((readings.busiest_gpu > self._specs.gpu_quiet[rows]) & ~loading)
        self.starts.passed(now)
        # A rejected request is demand too.
        ended = self._gaps.observe(rows, busy, np.fmax(readings.active_at, readings.refused_at), complete, now)
        for last, new in ((self._gpus, cost.gpus), (self._replica_hour, cost.hour)):
            last[rows] = np.where(np.isnan(new), last[rows], new)
        traffic = Traffic(np.where(complete, finished, np.nan), work, waiting, ready)
        start, lowest = self._start_times(), self._rules.lowest
        if asleep is not None:
            self._budget.spend_at_wakes(rows, traffic, ended, asleep, self._specs.ttft[rows], start.mean, now)
        self._budget.observe(rows, traffic, ended, lowest, start.mean, now)
        resting = ~np.isnan(self._gaps.idle_since)
        resting[ended.rows] = False  # a request that came and went: the pause is another one
        self._stakes = self._weigh(start, resting, now)
        self._keep_warm.learn(ended, self._gaps, self.sleep.learn(ended, self._gaps, self._stakes, now), now)

    def _start_times(self) -> ColdStarts:
        """Of the first replica after zero. With an SLO an unmeasured start counts as a usual one: a budget cannot wait
        for the first cold start.
        """
        has_slo = self._specs.itl > 0.0
        return ColdStarts(*(np.where(has_slo & np.isnan(s), UNLEARNED_START_S, s) for s in self.starts.zero_times))

    def _weigh(self, start: ColdStarts, resting: Mask, now: float) -> Stakes:
        """Without the price of its own GPUs a replica costs `prices.gpu_hour` for each. One without a known GPU counts
        as one GPU: batch work on processors is not what this is for.
        """
        any_model = np.where(self._gpus > 0.0, self._gpus, 1.0) * self._prices.gpu_hour
        idle = np.where(self._replica_hour > 0.0, self._replica_hour, any_model) / HOUR_S
        clients = np.ones(len(idle))
        has_slo = self._specs.itl > 0.0
        if has_slo.any():
            clients = np.where(has_slo, self._budget.price(resting, start.mean, now), clients)
        return Stakes(start.mean, start.p90, idle, clients * self._prices.waiting_hour / HOUR_S)

    def returns_at(self, rows: Rows) -> Floats:
        """POSIX seconds when a start in advance of the next request will begin; NaN if none is planned."""
        begins = self._gaps.idle_since[rows] + self._keep_warm.schedule.prewarm_from[rows]
        return np.where(self._specs.sleeps[rows], begins, np.nan)

    def saving(self, rows: Rows) -> Saving:
        """Savings of the estimates, as of the last call of `at`; only readers of the evidence need them."""
        return self._keep_warm.saving(rows, self._at)

    def pauses(self, rows: Rows, since: Floats, now: float) -> RecordedPauses:
        """A copy of the pauses of these workloads, for `further_hour`.

        since: POSIX seconds when each began to be counted.
        """
        histograms, schedule = self._gaps.histograms, self._keep_warm.schedule
        weight = histograms.weight(now, rows)
        counted = np.where(now - since >= SHORTEST_COUNTED_S, decayed_time(now - since, histograms.half_life), np.nan)
        return RecordedPauses(
            weights=histograms.weights[rows],
            edges=histograms.edges,
            number=weight,
            per_day=np.where(self._specs.sleeps[rows], weight / counted * DAY_S, np.nan),
            keep_warm=schedule.keep_warm[rows],
            starts_again=schedule.prewarm_from[rows],
            start=self._stakes.start[rows],
            waiting=self._stakes.waiting[rows],
        )

    @property
    def error_budget(self) -> tuple[Floats, Floats]:
        """Requests that a cold start delays, and the cold starts that the budget covers; NaN without either."""
        shown = (self._specs.itl > 0.0) & self._rules.learns
        return np.where(shown, self._budget.delayed, np.nan), np.where(shown, self._budget.starts_covered, np.nan)

    def news(self) -> OverrideChanges:
        """The changes of overrides since the last call."""
        return self._overrides.news()

    def active_override(self, row: int, now: float) -> ActiveOverride:
        """The active overrides of a workload, as text."""
        return self._overrides.active(row, now)

    def columns(self) -> dict[str, Array]:
        """The state that a checkpoint keeps, one slot per workload."""
        parts = (self._gaps, self._keep_warm, self._budget, self.starts, self.sleep)
        return {name: column for part in parts for name, column in part.columns().items()}

    def take(self, columns: Columns, rows: Rows, source_rows: Rows) -> None:
        """Copies state from `columns[source_rows]` into `rows`, pairwise."""
        for part in (self._gaps, self.starts, self._budget, self._keep_warm, self.sleep):
            part.take(columns, rows, source_rows)

    def go_on(self, other: ConstraintSource, rows: Rows, source_rows: Rows) -> None:
        """Beside `take`, within one process: starts under way go on, and the end of a brake is reported once."""
        self.starts.go_on(other.starts, rows, source_rows)
        self._overrides.reported_until = other._overrides.reported_until
