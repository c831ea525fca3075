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
from numba import types

from exporter.model import Floats
from scaler.columns import Array, Columns, Mask, Rows
from scaler.jit import FLOATS, INDICES, NUMBER, in_place_kernel

from .columns import WARM, Constraints, Readings, Specs
from .estimators.cold_start import Starts
from .estimators.error_budget import ErrorBudget, Traffic
from .estimators.further_hour import SHORTEST_COUNTED_S, RecordedPauses
from .estimators.histograms import decayed_time
from .estimators.idle_time import Gaps
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


_SERIES, _MASK = types.Array(types.float64, 1, "C"), types.Array(types.bool_, 1, "A", readonly=True)


@in_place_kernel(types.void(FLOATS, INDICES, _MASK, FLOATS, FLOATS, _SERIES, types.int64[::1], _SERIES))
def _bound(
    floors: Floats,
    reasons: Rows,
    expected: Mask,
    slow: Floats,
    lease_max: Floats,
    floor: Floats,
    reason: Rows,
    lease: Floats,
) -> None:
    """Writes the floors, their reasons, and the leases. slow: seconds that one start of ten exceeds; NaN unknown."""
    for i in range(floor.shape[0]):
        floor[i] = max(floors[i], 1.0) if expected[i] else floors[i]
        reason[i] = WARM if expected[i] and not floors[i] > 0.0 else reasons[i]
        lease[i] = lease_max[i] if np.isnan(slow[i]) else min(LEASE_STARTS * slow[i] + LEASE_MORE_S, lease_max[i])


@in_place_kernel(types.void(INDICES, *9 * (FLOATS,), _MASK, _MASK, *4 * (_SERIES,), types.bool_[::1]))
def _read_demand(
    rows: Rows,
    queued: Floats,
    held: Floats,
    running: Floats,
    is_ready: Floats,
    wanted: Floats,
    busiest_gpu: Floats,
    active_at: Floats,
    refused_at: Floats,
    gpu_quiet: Floats,
    expected: Mask,
    asleep: Mask,
    waiting: Floats,
    work: Floats,
    risen_at: Floats,
    ready: Floats,
    busy: Mask,
) -> None:
    """Writes what the readings show of `rows`. gpu_quiet, expected: of all workloads.

    waiting, work: requests without a first token, and all. risen_at: POSIX seconds when a request last came; NaN never.
    ready: replicas. busy: there is demand.
    """
    for i in range(rows.shape[0]):
        waiting[i] = (0.0 if np.isnan(queued[i]) else queued[i]) + (0.0 if np.isnan(held[i]) else held[i])
        work[i] = waiting[i] + (0.0 if np.isnan(running[i]) else running[i])
        risen_at[i] = np.fmax(active_at[i], refused_at[i])  # a rejected request is demand too
        ready[i] = np.fmax(is_ready[i], 1.0) if asleep[i] else is_ready[i]
        # A model that is being loaded works on its GPUs, and DCGM shows it half a minute late. If no request came, it
        # must not count as the return that it was loaded for: each rest would be estimated shorter than the last.
        loading = is_ready[i] < wanted[i] or expected[rows[i]] or asleep[i]
        busy[i] = work[i] > 0.0 or (busiest_gpu[i] > gpu_quiet[rows[i]] and not loading)


@in_place_kernel(types.bool_(INDICES, FLOATS, FLOATS, _SERIES, _SERIES, *3 * (FLOATS,), NUMBER, *3 * (_SERIES,)))
def _weigh(
    rows: Rows,
    new_gpus: Floats,
    new_hour: Floats,
    gpus: Floats,
    hour: Floats,
    mean: Floats,
    slow: Floats,
    itl: Floats,
    gpu_hour: float,
    start: Floats,
    lead: Floats,
    idle: Floats,
) -> bool:
    """Writes the first three columns of `Stakes`. Returns whether a workload has an SLO.

    new_gpus, new_hour: `ReplicaCost` of `rows`; gpus, hour: as last reported. mean, slow: of the starts of the first
    replica after zero. With an SLO an unmeasured start counts as a usual one: a budget cannot wait for the first cold
    start. Without the price of its own GPUs a replica costs `gpu_hour` for each. One without a known GPU counts as one
    GPU: batch work on processors is not what this is for.
    """
    for i in range(rows.shape[0]):
        gpus[rows[i]] = gpus[rows[i]] if np.isnan(new_gpus[i]) else new_gpus[i]
        hour[rows[i]] = hour[rows[i]] if np.isnan(new_hour[i]) else new_hour[i]
    any_slo = False
    for i in range(start.shape[0]):
        has_slo = itl[i] > 0.0
        any_slo = any_slo or has_slo
        start[i] = UNLEARNED_START_S if has_slo and np.isnan(mean[i]) else mean[i]
        lead[i] = UNLEARNED_START_S if has_slo and np.isnan(slow[i]) else slow[i]
        any_model = (gpus[i] if gpus[i] > 0.0 else 1.0) * gpu_hour
        idle[i] = (hour[i] if hour[i] > 0.0 else any_model) / HOUR_S
    return any_slo


@in_place_kernel(types.void(FLOATS, FLOATS, NUMBER, _SERIES))
def _price_waits(itl: Floats, clients: Floats, waiting_hour: float, waiting: Floats) -> None:
    """Writes the last column of `Stakes`. clients: by the error budget of an SLO; without one it is a single client."""
    for i in range(waiting.shape[0]):
        waiting[i] = (clients[i] if itl[i] > 0.0 else 1.0) * waiting_hour / HOUR_S


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
        expected, keep_warm = self._keep_warm.at(self._gaps.idle_since, self._specs.sleeps, now)
        (floor, lease, room), reason = np.empty((3, len(slow))), np.empty(len(slow), dtype=np.int64)
        _bound(overrides.floor, overrides.floor_reason, expected, slow, self._specs.lease_max, floor, reason, lease)
        room[:] = np.inf
        self._at = now
        return Constraints(
            floor=floor,
            floor_reason=reason,
            ceiling=overrides.ceiling,
            frozen=overrides.frozen,
            never_down=overrides.never_down,
            keep_warm=keep_warm,
            lease=lease,
            room=room,
        )

    @property
    def shortest_keep_warm(self) -> Floats:
        """Seconds that each workload is kept warm at least, whatever is estimated or wanted by others."""
        return self._rules.lowest

    def expected(self, now: float) -> Mask:
        """Which workloads rest, and are expected back so soon that a start must begin."""
        return self._keep_warm.at(self._gaps.idle_since, self._specs.sleeps, now)[0]

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
        none = np.zeros(len(rows), dtype=np.bool_)
        (waiting, work, risen, ready), busy = np.empty((4, len(rows))), np.empty(len(rows), dtype=np.bool_)
        _read_demand(
            rows, readings.waiting, readings.held, readings.running, readings.ready, readings.wanted,
            readings.busiest_gpu, readings.active_at, readings.refused_at, self._specs.gpu_quiet, self.expected(now),
            none if asleep is None else asleep, waiting, work, risen, ready, busy,
        )  # fmt: skip
        self.starts.passed(now)
        ended = self._gaps.observe(rows, busy, risen, complete, now)
        start, lead, idle, _ = self._stakes
        _, slow, mean = self.starts.zero_times
        last, gpu_hour = (self._gpus, self._replica_hour), self._prices.gpu_hour
        any_slo = _weigh(rows, *cost, *last, mean, slow, self._specs.itl, gpu_hour, start, lead, idle)
        traffic = Traffic(np.where(complete, finished, np.nan), work, waiting, ready)
        if asleep is not None:
            self._budget.spend_at_wakes(rows, traffic, ended, asleep, self._specs.ttft[rows], start, now)
        self._budget.observe(rows, traffic, ended, self._rules.lowest, start, now)
        if any_slo:
            resting = ~np.isnan(self._gaps.idle_since)
            resting[ended.rows] = False  # a request that came and went: the pause is another one
            self._budget.price(resting, start, now)
        _price_waits(self._specs.itl, self._budget.clients, self._prices.waiting_hour, self._stakes.waiting)
        self._keep_warm.learn(ended, self._gaps, self.sleep.learn(ended, self._gaps, self._stakes, now), now)

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
