"""Decides workloads from landed responses: joins latest samples, signals and policy. Pure; `now` is an argument.

`land` takes one response and decides its workloads, upwards only. `sweep` decides all workloads, because time passes
also without responses (staleness, decay, keep-warm). Both return the Decisions that changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from math import inf, nan
from typing import Any, NamedTuple

import numpy as np

from exporter.attribution import KnownPods, Owners, owners_by_name
from exporter.kubernetes.objects import Pod
from exporter.model import Floats, GpuPart, ReplicaCount, Samples, Target, WorkloadKey
from scaler.columns import Array, Columns, Identities, Mask, Rows, State, copy_into, named, pairs, plausible, translated
from scaler.model import Decision
from scaler.policy.columns import Constraints, Memory, Specs, Verdicts
from scaler.policy.constraints import PRICES, ConstraintSource, HourlyPrices
from scaler.policy.estimators.cold_start import ColdStarts
from scaler.policy.estimators.further_hour import FurtherHour, further_hour
from scaler.policy.groups import Decided, Groups, closure, decide_groups
from scaler.policy.kernel import answered, choose
from scaler.policy.overrides import Brake
from scaler.policy.prices import PriceList
from scaler.signals.aggregate import Aggregate
from scaler.signals.gpus import no_price
from scaler.signals.latest import LatestSamples, TargetRules
from scaler.signals.queues import has_served
from scaler.signals.smoothing import Rings, Smoother
from scaler.signals.usage import UsageHistograms, usage_of
from scaler.workloads.gpu_supply import GpuSupply
from scaler.workloads.spec import WorkloadSpec

from . import checkpoint
from .accounting import Circumstances, FleetGpus, Ledger, SweepAnswers, look, replica_cost
from .decision_log import Aside, Charts, DecisionHistory, DecisionLog, Given, flat
from .evidence import EvidenceSources, SweepColumns, decisions
from .published import EVERY, PendingDecisions, Published
from .sharing import GpuLimits, Idleness
from .sizes import Sizes
from .sleep_tiers import SleepTiers
from .variants import Variants

LATE_TICKS = 5.0  # a sweep that is later has been missed


class Arrival(NamedTuple):
    """Responses that landed together: the rows of their workloads, and each one's last receipt in POSIX seconds."""

    rows: Rows
    at: Floats


class Decider:
    """Holds the samples, the state and the published decisions of a fixed list of workloads."""

    def __init__(
        self,
        plans: Sequence[WorkloadSpec],
        *,
        interval_s: float,
        fresh_intervals: float,
        owners: Owners | None = None,
        pods: KnownPods | None = None,
        fleet: Sequence[Brake] = (),
        prices: HourlyPrices = PRICES,
        log_bytes: int = 0,
        tick_s: float = 1.0,
        gpu_hours: PriceList | None = None,
    ) -> None:
        """interval_s: seconds between scrapes of one target; a reading is fresh for `fresh_intervals` of them.

        owners: maps pods to workloads; by default by their names.
        pods:   of the cluster; None without one.
        fleet:  brakes of all workloads.
        log_bytes: memory of the decision log; 0 for none.
        tick_s: seconds between sweeps.
        gpu_hours: prices of the accounts; None: none.
        """
        self._price = no_price if gpu_hours is None else gpu_hours.hour
        self._gpu_hour = np.array([plan.gpu_hour for plan in plans], dtype=float)  # NaN for None
        self._fleet = FleetGpus(nan, nan)
        self.plans = tuple(plans)
        self.workloads = tuple(plan.workload for plan in self.plans)
        self._specs = Specs.stack([plan.spec for plan in plans])
        self._memory = Memory.blank(len(plans))
        self._constraints: Constraints | None = None  # as of the last sweep, or of the first response before one
        ordered, teaching, tiers = [p.ordered for p in plans], [p.teaching for p in plans], [p.sleep for p in plans]
        self._constraint_source = ConstraintSource(self._specs, ordered, teaching, prices, fleet, tiers)
        self._interval_s, self._slack_s = interval_s, interval_s * fresh_intervals
        self._tolerance = np.array([plan.tolerance for plan in plans], dtype=float)
        # A sweep counts for as long as a response does, or for some ticks if those are longer.
        self.books = Ledger(len(plans), gap_s=max(self._slack_s, LATE_TICKS * tick_s))
        self.usage = UsageHistograms(len(plans))
        self.observed = np.array([plan.observed for plan in plans], dtype=np.bool_)
        self._groups = Groups.stack([plan.member for plan in plans])
        self.owners = owners or owners_by_name({plan.workload: plan.pod_pattern for plan in plans})
        sharing = self._groups.sharing(self._specs)
        self._latest = LatestSamples(
            [
                TargetRules(p.workload, p.spec.pods, p.queue, p.probe_period, p.spec.gpu_quiet, p.spec.hold, p.spec.slo)
                for p in plans
            ],
            self.owners,
            limit_s=interval_s * fresh_intervals,
            pods=pods,
            sharing=sharing,
            hour=self._price,
        )
        self._sizes = Sizes(self._specs, self._slack_s, Variants(plans, sharing))
        self._signals = Smoother([plan.smoothing for plan in plans], interval_s)
        self._limits = GpuLimits(plans, self.observed)
        self.sleep = SleepTiers(plans, self._constraint_source.sleep, self._latest)
        self._sources = EvidenceSources(self._latest, self._signals, self._constraint_source, self._sizes, self.sleep)
        self._everyone: Rows = np.arange(len(plans))
        self._published = Published.nothing(len(plans))
        self._pending = PendingDecisions(len(plans))
        self._rests = checkpoint.Rests(len(plans))
        self._rows = {plan.workload: row for row, plan in enumerate(plans)}
        self._identities = Identities(self.workloads, [plan.target for plan in plans])
        self._uncounted = checkpoint.Uncounted(self._specs.young)
        self._ended: list[tuple[WorkloadKey | None, Brake]] = []
        self._log = DecisionLog(self.plans, log_bytes)
        self._swept: Given | None = None  # what the last sweep took in and gave out
        self._columns: tuple[SweepColumns, float] | None = None  # of the last sweep, and its time

    def of_plans(self, rows: Rows, plans: Sequence[WorkloadSpec]) -> Decider:
        """A decider of the new plans of `rows` alone, for `replan`. plans: of all workloads."""
        return Decider([plans[row] for row in rows.tolist()], interval_s=self._interval_s, fresh_intervals=1.0)

    def listed(self, workload: WorkloadKey, pods: int | None, leaving: Collection[Target] = ()) -> None:
        """Sets how many of a workload's pods must answer, None if unknown, and which targets need not: those of pods
        that terminate.
        """
        self._latest.listed(workload, pods)
        self._latest.leaving(workload, leaving)

    def expect(self, target: Target) -> None:
        self._latest.expect(target)
        self._pending.changed[self._latest.rows_of(target)] = True

    def missed(self, target: Target) -> None:
        """Records a failed scrape: it decides nothing, but changes the evidence."""
        self._pending.changed[self._latest.rows_of(target)] = True

    def counted(self, workload: WorkloadKey, count: ReplicaCount | None) -> None:
        self._latest.counted(workload, count)
        if workload in self._rows:
            self._uncounted.awaited[self._rows[workload]] = False

    def await_count(self, workload: WorkloadKey) -> None:
        """Its replicas will be counted. A workload without state is not decided before that: see `Uncounted`."""
        self._latest.counted(workload, None)
        if workload in self._rows:
            self._uncounted.awaited[self._rows[workload]] = True

    def set_node_gpus(self, gpus: Sequence[GpuPart] | None) -> None:
        """Sets the GPUs of all nodes; None: unknown."""
        self._fleet = FleetGpus.of(gpus, self._price)

    def set_gpu_supply(self, supply: GpuSupply | None) -> None:
        """Sets the GPUs that all workloads share from the next sweep on; None: unknown, so no decision is limited."""
        self._limits.supply = supply

    def retire(self, target: Target) -> None:
        self._pending.changed[self._latest.rows_of(target)] = True
        self._latest.retire(target)

    def land(self, target: Target, samples: Samples, at: float, now: float) -> list[Decision]:
        """Takes one response and decides its workloads; decisions may rise or activate, never fall."""
        return self.land_together([(target, samples, at)], now)

    def land_together(self, landings: Sequence[tuple[Target, Samples, float]], now: float) -> list[Decision]:
        """Takes responses, each with its receipt in POSIX seconds, then decides their workloads once.

        A request that moved between two targets is in the old reading of the one and the new reading of the other: a
        decision after each response would count it twice. Decisions may rise or activate, never fall.
        """
        touched: dict[int, float] = {}
        for target, samples, at in landings:
            for row in self._latest.land(target, samples, at):
                touched[row] = max(at, touched.get(row, at))
            if target.pod is not None and self._constraint_source.starts.awaits(target.pod) and has_served(samples):
                self._constraint_source.starts.served(target.pod, at)
        rows = np.array(sorted(touched), dtype=np.int64)
        arrival = Arrival(rows, np.array([touched[row] for row in rows.tolist()]))
        self._pending.changed[rows] = True
        decided = closure(self._groups, rows) if self._groups.together[rows].any() else rows
        return self._decide(decided, now, arrival=arrival)

    def distrust(self, target: Target) -> None:
        """A response of the target could not be processed: its readings count as stale."""
        self._pending.changed[self._latest.rows_of(target)] = True
        self._latest.distrust(target)

    def sweep(self, now: float, *, leads: bool = True, most: int = EVERY) -> list[Decision]:
        """Decides all workloads. leads: this replica's ledger is the published one.

        Returns every Decision with a new number or activity, but at most `most`: `rest` returns the others. Of those
        with a new reason alone it returns as many as `PendingDecisions` says; the next sweeps return the rest. `renew`
        returns those with new evidence alone.
        """
        self._pending.most = most
        self._constraints = self._constraint_source.at(now)
        news = self._constraint_source.news()
        self._pending.due[news.rows] = True
        self._ended += [(None if end.row is None else self.plans[end.row].workload, end.brake) for end in news.ended]
        return self._decide(self._everyone, now, leads=leads)

    def renew(self, most: int) -> list[Decision]:
        """Decisions with the evidence of the last sweep, of at most so many of the workloads whose Decision has older
        evidence; none are left once it returns none. A sweep takes a quarter of the time without it, and most evidence
        is never read.
        """
        if self._columns is None:
            return []
        columns, now = self._columns
        superseded = self._published.differs(slice(None), columns.verdicts, columns.number)
        return self._build(columns.choose(self._pending.take_renewable(superseded, most)), now)

    def rest(self, most: int) -> list[Decision]:
        """At most so many of the Decisions that the last sweep has not returned yet; none are left if it returns none.

        A landing in between returns those of its workloads.
        """
        if self._columns is None:
            return []
        columns, now = self._columns
        return self._published_of(columns.choose(self._pending.take_waiting(most)), now)

    def ended_brakes(self) -> list[tuple[WorkloadKey | None, Brake]]:
        """The brakes that ended since the last call, with their workloads; None: a brake of all."""
        ended, self._ended = self._ended, []
        return ended

    def started(self, workload: WorkloadKey, pods: Sequence[Pod], now: float) -> None:
        """Records all pods of a workload that take requests, as the cluster has them now."""
        if (row := self._rows.get(workload)) is not None:
            readings = self._latest.totals(np.array([row]), now).readings
            waiting = float(np.nansum([readings.waiting[0], readings.held[0]]))
            self._constraint_source.starts.observe(row, pods, waiting=waiting > 0.0, now=now)

    @property
    def latest(self) -> LatestSamples:
        """The last response of each target, for readers; no decision uses what they read."""
        return self._latest

    @property
    def start_times(self) -> ColdStarts:
        """How long a start of each workload takes."""
        return self._constraint_source.starts.times

    def past(self, workload: WorkloadKey) -> DecisionHistory | None:
        """The decisions of a workload, as far back as the log goes. Returns None if it is unknown."""
        if (row := self._rows.get(workload)) is None:
            return None
        past = self._log.past(row)
        return past if self._swept is None else past.until(flat(self._swept, np.array([row]))[0], self.plans[row])

    def plan(self, workload: WorkloadKey) -> WorkloadSpec | None:
        """Returns None if the workload is unknown."""
        row = self._rows.get(workload)
        return None if row is None else self.plans[row]

    def further_hour(self, workloads: Collection[WorkloadKey], now: float) -> Callable[[], FurtherHour]:
        """What one more hour of keep-warm would cost and save, of known workloads; computed when called, in any thread.

        now: POSIX seconds. A price is that of the accounts.
        """
        rows = np.array([self._rows[workload] for workload in workloads], dtype=np.int64)
        gpus = np.maximum(self._specs.minimum[rows], 1.0) * self.books.now.each[rows]
        pauses = self._constraint_source.pauses(rows, self.books.since[rows], now)
        return partial(further_hour, pauses, gpus, self.books.now.hour[rows])

    def rings(self, workload: WorkloadKey) -> Rings:
        return self._signals.rings(self._rows[workload])

    def charted(self, workloads: Collection[WorkloadKey]) -> tuple[Sequence[WorkloadKey], Charts]:
        """The known ones of these workloads, and what charts show of each one's past."""
        found = [workload for workload in workloads if workload in self._rows]
        return found, self._log.charted(np.array([self._rows[workload] for workload in found], dtype=np.int64))

    def forget_answers(self) -> None:
        """Another replica has published meanwhile: the next sweep returns every Decision again."""
        self._published = Published.nothing(len(self.plans))
        self._pending.unpublished[:] = True

    def columns(self) -> dict[str, Array]:
        """The state by workload (see `scaler.columns`); live, until the next landing or sweep."""
        return {
            **self._signals.columns(),
            **self._constraint_source.columns(),
            **self.books.columns(),
            **named("memory", self._memory._asdict()),
            **self._published.columns(),
            **self._latest.columns(),
            **self._sizes.columns(),
            **self.sleep.columns(),
            **self.usage.columns(),
        }

    def take(self, columns: Columns, rows: Rows, source_rows: Rows, now: float = inf) -> None:
        """Copies state from `columns[source_rows]` into `rows`, pairwise.

        now: POSIX seconds; without what is too old by then for the windows.
        """
        self._signals.take(columns, rows, source_rows, now)
        self._constraint_source.take(columns, rows, source_rows)
        self._sizes.take(columns, rows, source_rows)
        self.sleep.take(columns, rows, source_rows)
        self.usage.take(columns, rows, source_rows)
        self.books.take(columns, rows, source_rows)
        self._published.take(columns, rows, source_rows, self._tolerance[rows])
        copy_into(named("memory", self._memory._asdict()) | self._latest.columns(), columns, rows, source_rows)
        self._latest.make_sound(rows, now)
        checkpoint.make_sound(self._memory, rows, self._specs, now)
        self._pending.due[rows] = True  # the next sweep returns every decision again, as old as it is
        self._pending.waiting[rows] = False
        self._constraints = None  # estimates hold from now on

    def state(self, now: float, rows: slice = slice(None)) -> State:
        """A copy of the state that survives a restart, of a range of workloads."""
        return self._live_state(now, rows).copied()

    def share(self, workloads: Collection[WorkloadKey] | None, now: float) -> State:
        """A copy of the state of these workloads, or of all, for another replica. Without the counters of single
        targets, which it scrapes itself; with their missing series, which it may never have scraped.
        """
        targets = tuple(self._identities.targets)
        everything = State(now, self.workloads, self.columns(), self._latest.missing(), targets)
        return (everything if workloads is None else everything.only(workloads)).copied()

    def follow_state(self, state: State, now: float) -> None:
        """Takes the state of a replica that decides now: nothing in it waits for a proof."""
        rows, source_rows = pairs(self._identities.all, state.identities)
        sound = plausible(state, now)
        self.take(sound.columns, rows, source_rows, now)
        self._latest.take_missing(sound.tables, rows, source_rows, now)
        self._identities.keep(state.identities, rows, source_rows)
        self._rests.since[rows] = self._rests.until[rows] = np.nan

    def restore(self, state: State, now: float) -> None:
        """Restores the state of the workloads that both have.

        Decisions are kept if they are at most `hold` old. A state from the future is of another clock, or this clock
        was set back: it is moved to now, and is as old as it was ahead. An idle time continues once all targets that
        had counters have answered, and none has counted more; if one has, or not all come back while everything else
        is known, it starts again.
        """
        gap = abs(now - state.at)
        moved = translated(state, now - state.at) if state.at > now else state
        until = now - gap + self._specs.hold
        rows = self._go_on(plausible(moved, now), now, until)
        late = rows[until[rows] < now]
        checkpoint.forget(self._memory, late)
        self._published.tell(late, *Published.nothing(len(self.plans)).of(late))
        self._rests.since[late] = np.nan
        self._rests.until[rows] = until[rows]

    def adopt(self, other: Decider) -> None:
        """Takes the state for a new configuration. Targets are scraped anew. A workload with another scale target than
        before begins without state.
        """
        self._go_on(other._live_state(now=0.0), inf, np.full(len(self.plans), -inf))
        rows, source_rows = self._pairs(other)
        self._go_on_with(other, rows, source_rows)
        self._latest.activity.counted[rows] = other._latest.activity.counted[source_rows]
        # Replicas are counted where they change, whatever the configuration says.
        self._latest.adopt_counts(other._latest, rows, source_rows)
        self._uncounted.adopt(other._uncounted, rows, source_rows)

    def take_over(self, other: Decider) -> None:
        """Takes the state, samples and decisions for another list of workloads with the same scrapes; the other
        decider is not used any more. A workload with another scale target than before begins without state, and
        its targets are still scraped.
        """
        rows, source_rows = self._pairs(other)
        pending, before = self._pending, other._pending
        self.take(other.columns(), rows, source_rows)
        self._identities.keep(other._identities.all, rows, source_rows)
        self._latest.adopt(other._latest, rows, source_rows)
        self._go_on_with(other, rows, source_rows)
        self._rests.adopt(other._rests, rows, source_rows)
        self._uncounted.adopt(other._uncounted, rows, source_rows)
        same = zip(rows.tolist(), source_rows.tolist(), strict=True)
        plans = ((self.plans[mine], other.plans[theirs]) for mine, theirs in same)
        shown = [new.ordered != old.ordered or new.observed != old.observed for new, old in plans]
        pending.due[rows] = before.due[source_rows] | np.array(shown, dtype=np.bool_)
        pending.changed[rows] = (before.changed | before.renewable)[source_rows]

    def replan(self, plans: Sequence[WorkloadSpec], rows: Rows, fresh: Decider) -> None:
        """Replaces the plans of `rows` in place: the same as `take_over` with all plans, for the price of these rows.

        plans: of all workloads; `replaceable` has returned `rows` for them. fresh: a decider of the plans of `rows`
        alone, in their order, without state.
        """
        before, local = self.plans, np.arange(len(rows))
        kept = {name: column[rows] for name, column in self.columns().items()}
        self.plans = tuple(plans)
        for mine, new in zip(self._specs, fresh._specs, strict=True):
            mine[rows] = new  # the rules of learning, the shares of queues and `Uncounted` hold the same arrays
        self._tolerance[rows], self.observed[rows] = fresh._tolerance, fresh.observed
        self._gpu_hour[rows] = fresh._gpu_hour
        self._latest.replan(fresh._latest.sources, rows)
        self._signals.replan(rows, fresh._signals)
        self._limits.replan(rows, fresh._limits)
        self._constraint_source.replan(rows, fresh._constraint_source)
        self.sleep.replan(rows)
        if any(before[row].ordered != self.plans[row].ordered for row in rows.tolist()):
            self._constraint_source.reorder([plan.ordered for plan in self.plans])
        self._log.replan(self.plans, rows)
        # The state is taken as from another decider, so that what the new plans do not allow is made sound.
        copy_into(self.columns(), fresh.columns(), rows, local)
        self.take(kept, rows, local)
        self._swept = self._columns = None  # they were decided under the plans before

    def could_answer(self, decision: Decision) -> bool:
        """Whether the configuration here allows this decision; True for an unknown workload."""
        if (row := self._rows.get(decision.workload)) is None:
            return True
        tolerance, observed = float(self._tolerance[row]), bool(self.observed[row])
        limits = checkpoint.DecisionLimits.of(self._specs, row, tolerance, observed=observed)
        return checkpoint.allows(limits, decision)

    def _go_on_with(self, other: Decider, rows: Rows, source_rows: Rows) -> None:
        self._constraint_source.go_on(other._constraint_source, rows, source_rows)
        self._log.adopt(other._log, rows, source_rows)
        self.books.go_on(other.books, rows, source_rows)
        self._ended += other._ended
        self._pending.go_on(other._pending, rows, source_rows)

    def remember(self, other: Decider) -> None:
        """Takes only the windows of workloads that both have: the other's go further back."""
        self._signals.take(other._signals.columns(), *self._pairs(other))

    def without_state_in(self, other: Decider | None) -> list[WorkloadKey]:
        """The workloads without state there: it lacks them, or has them with another scale target."""
        carried = set() if other is None else set(self._pairs(other)[0].tolist())
        return [workload for row, workload in enumerate(self.workloads) if row not in carried]

    def _pairs(self, other: Decider) -> tuple[Rows, Rows]:
        return pairs(self._identities.all, other._identities.all)

    def _live_state(self, now: float, rows: slice = slice(None)) -> State:
        workloads = tuple(plan.workload for plan in self.plans[rows])
        columns = {name: column[rows] for name, column in self.columns().items()}
        return State(now, workloads, columns, self._latest.tables(rows), tuple(self._identities.targets[rows]))

    def _go_on(self, state: State, now: float, until: Floats) -> Rows:
        """Takes a whole state; idle times wait for a proof. Returns its rows.

        until: POSIX seconds by workload; until then its GPUs count as stale if no target shows them.
        """
        rows, source_rows = pairs(self._identities.all, state.identities)
        self.take(state.columns, rows, source_rows, now)
        self._identities.keep(state.identities, rows, source_rows)
        self._latest.take(state.tables, rows, source_rows, until)
        self._latest.take_missing(state.tables, rows, source_rows, now)
        self._rests.since[rows], self._rests.until[rows] = self._memory.idle_since[rows], np.nan
        self._memory.idle_since[rows] = np.nan
        return rows

    def _enter(self, totals: Aggregate, whole: Mask, verdicts: Verdicts, now: float, *, leads: bool) -> None:
        """Enters what all workloads have done since the last sweep into the ledger."""
        specs = self._specs
        zero = (verdicts.replicas == 0.0) & ~self.observed
        found = Circumstances(whole, zero, specs.minimum, specs.maximum, specs.gpu_quiet, rise_s=self._interval_s)
        answers = SweepAnswers(verdicts.replicas, self.observed, self._hour(totals), self.sleep.prices)
        moment = look(totals, found, answers, self.books.now, now)
        self.books.enter_fleet(self._fleet, now, leads=leads)
        self.books.enter(moment, self._latest.activity.take_counted(), now, leads=leads)

    def _hour(self, totals: Aggregate) -> Floats:
        """The price of one GPU of each workload for an hour; NaN unknown. totals: of all."""
        return np.where(np.isnan(self._gpu_hour), totals.held.hour, self._gpu_hour)

    def _decide(self, rows: Rows, now: float, *, arrival: Arrival | None = None, leads: bool = False) -> list[Decision]:
        """Decides `rows`, which are whole groups.

        arrival: the responses that landed; answers may only rise. None: time has passed, for all workloads.
        """
        if not len(rows):
            return []
        raise_only = arrival is not None
        # A slice copies nothing. Of the memory a copy is compared and logged after it has changed.
        at: Any = slice(int(rows[0]), int(rows[-1]) + 1) if rows[-1] - rows[0] == len(rows) - 1 else rows
        specs, before = choose(at, self._specs), choose(rows, self._memory)
        undecidable = self._uncounted.undecidable(rows, before, now)
        totals = self._latest.totals(rows, now).withhold(undecidable)
        complete, filled = answered(specs, totals.readings, before, now)
        if filled.any():
            totals.impute(filled)
        if arrival is None:
            self._learn(totals, complete, filled, now)
        else:
            self._observe(rows, totals, filled | complete, arrival)
        smoothed = self._sizes.signals(rows, totals, self._signals.smooth(rows, now), now)
        smoothed[np.isnan(totals.latest)] = np.nan  # a smoothed value must not outlive its source
        readings = totals.readings._replace(signals=smoothed)
        if self._constraints is None:
            # Overrides hold from the first response on: a freeze would keep what is raised before the first sweep.
            self._constraints = self._constraint_source.at(now)
        standing, groups = choose(at, self._constraints), choose(at, self._groups)

        def decide(constraints: Constraints) -> Decided:
            return decide_groups(groups, specs, readings, constraints, before, now, raise_only=raise_only)

        decided = decide(standing)
        if arrival is None:
            idleness = Idleness(self._constraint_source.shortest_keep_warm, now)
            standing, decided = self._limits.settle(specs, standing, decided, idleness, decide)
            self._constraints, self._latest.room = standing, standing.room
        else:
            self._constraints = self._limits.rise(rows, decided.verdicts, self._constraints)
        verdicts = decided.verdicts
        self._pending.due[self.sleep.decide(rows, decided, totals, standing, now, raise_only=raise_only)] = True
        was_active, slack_s = self._memory.active[rows], self._slack_s
        self._latest.activity.answered(
            rows, totals.readings, was_active=was_active, verdicts=verdicts, now=now, slack_s=slack_s
        )
        for column, after in zip(self._memory, decided.memory, strict=True):
            column[at] = after
        if arrival is None:
            self._enter(totals, complete, verdicts, now, leads=leads)
            self.usage.add(*usage_of(totals, self._latest.usage(now)), now, self._slack_s)
        self._rests.prove(self._memory, self._latest.awaited, rows, totals.readings, specs.hold, now)
        bounds = (standing, specs.minimum, self._tolerance[at])
        number = self._published.to_publish(at, verdicts, readings.wanted, *bounds, raise_only=raise_only)
        news = self._published.differs(at, verdicts, number)
        noted = news
        if not raise_only:
            moves = self._published.moves(verdicts, number)
            shown = self._pending.next(news, moves, totals.readings.wanted)
            noted = news & self._pending.chosen(shown)
        elif not len(shown := np.flatnonzero(news | self._pending.waiting[rows])):
            return []
        columns = SweepColumns(
            rows=rows,
            totals=totals,
            imputed=filled,
            undecidable=undecidable,
            group_floor=decided.needed,
            together=groups.together,
            smoothed=smoothed,
            verdicts=verdicts,
            number=number,
            tolerance=self._tolerance[at],
            memory=choose(at, self._memory),
            keep_warm=standing.keep_warm,
            room=standing.room,
            decided_at=np.where(news, now, self._published.at[at]),
        )
        self._note(columns, decided, before, noted, now, raise_only=raise_only)
        return self._published_of(columns.choose(shown), now)

    def _learn(self, totals: Aggregate, complete: Mask, filled: Mask, now: float) -> None:
        """Updates the estimates of all workloads. complete: all its targets have answered. filled: some are imputed."""
        cost = replica_cost(totals, self._hour(totals), self.books.now)
        rows, asleep = self._everyone, self.sleep.found_asleep(self._everyone, totals)
        self._constraint_source.rest(rows, totals.readings, complete, cost, totals.finished, now, asleep)
        starts = self._constraint_source.starts.times
        self._pending.due[self._sizes.update(totals, complete | filled, starts, cost.hour, now)] = True

    def _observe(self, rows: Rows, totals: Aggregate, is_value: Mask, arrival: Arrival) -> None:
        """Writes what landed into the windows. Mates of a group that did not land are decided and not observed."""
        if len(arrival.rows) == len(rows):
            self._signals.observe(rows, totals, is_value, arrival.at)
        else:
            here = np.flatnonzero(np.isin(rows, arrival.rows))
            self._signals.observe(rows[here], totals.choose(here), is_value[here], arrival.at)

    def _note(
        self, columns: SweepColumns, decided: Decided, before: Memory, noted: Mask, now: float, *, raise_only: bool
    ) -> None:
        """Writes to the decision log what is returned and differs (`noted`), and after a sweep what is due."""
        rows = columns.rows
        probes = self._latest.activity.probes.verdicts(rows, now)
        aside = Aside.of(columns.totals, columns.imputed, decided.needed, *probes)
        given = Given.of(decided, before, aside, now, raise_only=raise_only)
        if not raise_only:
            noted = noted | self._log.due(rows, now)
            self._swept, self._columns = given, (columns, now)
        self._log.note(rows, given, noted)

    def _published_of(self, changed: SweepColumns, now: float) -> list[Decision]:
        built = self._build(changed, now)
        self._published.tell(changed.rows, changed.verdicts, changed.number, changed.decided_at)  # unless that failed
        return built

    def _build(self, columns: SweepColumns, now: float) -> list[Decision]:
        if not len(columns.rows):
            return []
        built = decisions(self.plans, columns, self._sources, now)
        self._pending.built(columns.rows, columns.totals.readings.wanted)
        return built
