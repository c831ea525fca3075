"""From landed pages to Decisions: the one place where intake, signals and policy meet. Pure; `now` is an argument.

Two ways in. `land` takes one page and decides the workloads it speaks of, upwards only; `sweep` decides all of them,
because time passes for those that hear nothing (staleness, decay, keep-warm). Both return the Decisions that changed;
who publishes them is not this room's business.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isnan
from typing import NamedTuple

import numpy as np

from exporter.attribution import Names, Owners, owners_by_name
from exporter.model import Floats, PodKey, ReplicaCount, Samples, Target, WorkloadKey, without_user

from . import gpu_evidence, recollection
from .board import Decision, Evidence, Objective, Reason
from .intake import Intake, Source
from .pod_numbers import Chosen, PodNumbers
from .policy import (
    REASONS,
    Groups,
    Membership,
    Memory,
    Signal,
    Spec,
    Specs,
    Standing,
    Verdicts,
    answered,
    choose,
    closure,
    decide_groups,
    imputed,
)
from .queue_pages import Waker
from .signals import Signals, Smoothing
from .slots import Mask, Rows
from .state import Array, Columns, State, copy_into, named, pairs, translated
from .totals import Totals

OBJECTIVE_NAMES = {Signal.WORK: "work", Signal.KV_CACHE: "kv_cache", Signal.GPU_ENGINE: "gpu_engine"}


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything about one workload that the decider needs.

    queue:       only this queue of its pages; None is all.
    pod_pattern: glob of its pods' names; None is those its controller would make.
    observed:    decided and published, and nobody may ask for it.
    member:      of which group; None is: it stands by itself.
    """

    workload: WorkloadKey
    spec: Spec
    smoothing: Smoothing = field(default=Smoothing())
    queue: str | None = None
    pod_pattern: str | None = None
    observed: bool = False
    member: Membership | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """The answers that were returned last, by column: what is news is asked of whole arrays. `at`: POSIX seconds."""

    replicas: Floats
    active: Mask
    reason: Rows
    at: Floats

    @classmethod
    def nothing(cls, rows: int) -> Told:
        blank = Verdicts.blank(rows)  # its reason is nobody's
        return cls(blank.replicas, blank.active, blank.reason, at=np.full(rows, np.nan))

    def of(self, rows: Rows) -> tuple[Verdicts, Floats]:
        """The answers of some workloads, and when they were given."""
        demand = np.empty((len(rows), 0))
        return Verdicts(self.replicas[rows], self.active[rows], self.reason[rows], demand), self.at[rows]

    def differs(self, rows: Rows, verdicts: Verdicts) -> Mask:
        before, after = self.replicas[rows], verdicts.replicas
        same: Mask = (before == after) | (np.isnan(before) & np.isnan(after))
        same &= (self.active[rows] == verdicts.active) & (self.reason[rows] == verdicts.reason)
        return ~same

    def columns(self) -> dict[str, Array]:
        return named("told", {name: getattr(self, name) for name in self.__slots__})

    def tell(self, rows: Rows, verdicts: Verdicts, at: Floats) -> None:
        self.replicas[rows], self.active[rows], self.reason[rows] = verdicts.replicas, verdicts.active, verdicts.reason
        self.at[rows] = at


class Heard(NamedTuple):
    """A page: the workloads it speaks of, and its receipt in POSIX seconds."""

    rows: Rows
    at: float


@dataclass(frozen=True, slots=True)
class Seen:
    """What the Decisions of some workloads are made of; every part has a slot for each of `rows`."""

    rows: Rows
    totals: Totals
    imputed: Mask
    floor: Floats
    asked: Floats  # replicas that its group asks for
    together: Mask  # it sleeps and wakes with its group
    smoothed: Floats
    verdicts: Verdicts
    decided_at: Floats


class Decider:
    """Remembers what it has seen and answered of a fixed list of workloads."""

    def __init__(
        self,
        plans: Sequence[Plan],
        *,
        interval_s: float,
        fresh_intervals: float,
        owners: Owners | None = None,
        names: Names | None = None,
    ) -> None:
        """`interval_s`: seconds between scrapes of one page; a reading is fresh for `fresh_intervals` of them.

        owners: whose pods are; by default told by their names.
        names:  of pods that a page knows by their UID; None where nobody can tell.
        """
        self.plans = tuple(plans)
        self._specs = Specs.stack([plan.spec for plan in plans])
        self._memory = Memory.blank(len(plans))
        self._standing = Standing.plain(self._specs)
        self._groups = Groups.stack([plan.member for plan in plans])
        self._intake = Intake(
            [Source(p.workload, p.spec.pods, p.queue) for p in plans],
            owners or owners_by_name({plan.workload: plan.pod_pattern for plan in plans}),
            limit_s=interval_s * fresh_intervals,
            names=names,
            sharing=self._groups.sharing(self._specs),
        )
        self._signals = Signals([plan.smoothing for plan in plans], interval_s)
        self._everyone: Rows = np.arange(len(plans))
        self._told = Told.nothing(len(plans))
        self._touched = np.zeros(len(plans), dtype=np.bool_)  # heard of since the last sweep
        self._rests = recollection.Rests(len(plans))

    def listed(self, workload: WorkloadKey, pods: int | None, leaving: Collection[Target] = ()) -> None:
        """How many of a workload's pods must answer, None while that is not known, and which targets need not: those
        of pods on their way out.
        """
        self._intake.listed(workload, pods)
        self._intake.leaving(workload, leaving)

    def expect(self, target: Target) -> None:
        self._intake.expect(target)
        self._touched[self._intake.rows_of(target)] = True

    def missed(self, target: Target) -> None:
        """A scrape brought nothing: nothing is decided by that, but the evidence will say so."""
        self._touched[self._intake.rows_of(target)] = True

    def counted(self, workload: WorkloadKey, count: ReplicaCount | None) -> None:
        self._intake.counted(workload, count)

    def retire(self, target: Target) -> None:
        self._touched[self._intake.rows_of(target)] = True
        self._intake.retire(target)

    def land(self, target: Target, samples: Samples, at: float, now: float) -> list[Decision]:
        """Take in one page and decide whom it speaks of; answers may rise or activate, never fall."""
        rows = np.array(sorted(self._intake.land(target, samples, at)), dtype=np.int64)
        self._touched[rows] = True
        return self._decide(closure(self._groups, rows), now, heard=Heard(rows, at))

    def sweep(self, now: float) -> list[Decision]:
        """Decide everything, because time has passed."""
        changed = self._decide(self._everyone, now)
        self._touched[:] = False
        return changed

    def pods(self, namespace: str, chosen: Chosen, now: float) -> Mapping[PodKey, tuple[PodNumbers, ...]]:
        """What is known of a namespace's chosen pods themselves: readings, made when asked. Nothing rests on them."""
        return self._intake.pods(namespace, chosen, now)

    def forget_answers(self) -> None:
        """Somebody else has answered meanwhile: the next sweep returns every Decision again."""
        self._told = Told.nothing(len(self.plans))

    def columns(self) -> dict[str, Array]:
        """All that is remembered by workload, as `scaler.state` wants it; live, until the next landing or sweep."""
        rooms = (named("memory", self._memory._asdict()), self._told.columns(), self._intake.columns())
        return {**self._signals.columns(), **{name: column for room in rooms for name, column in room.items()}}

    def take(self, columns: Columns, rows: Rows, others: Rows, now: float = inf) -> None:
        """Remember of own workloads `rows` what somebody else does of `others`, pair by pair.

        now: POSIX seconds: without what is too old by then to be in our windows.
        """
        self._signals.take(columns, rows, others, now)
        own = (named("memory", self._memory._asdict()), self._told.columns(), self._intake.columns())
        for room in own:
            copy_into(room, columns, rows, others)
        recollection.make_sound(self._memory, rows, now)
        self._touched[rows] = True  # the next sweep gives every answer again, as old as it is

    def state(self, now: float, rows: slice = slice(None)) -> State:
        """All that survives, of a run of workloads. A copy: nothing of it changes any more."""
        return self._live_state(now, rows).copied()

    def restore(self, state: State, now: float) -> None:
        """Go on from a state of the workloads that both know.

        Answers are believed if they are at most `hold` old. A state from the future is another clock's, or ours was
        set back: it is moved to this moment, and is as old as it is ahead. An idle time goes on once all pages that
        counted something before have answered, and none has counted more; if one has, or not all come back while
        everything else is known, it begins anew.
        """
        gap = abs(now - state.at)
        moved = translated(state, now - state.at) if state.at > now else state
        until = now - gap + self._specs.hold
        rows = self._go_on(moved, now, until)
        late = rows[until[rows] < now]
        recollection.forget(self._memory, late)
        self._told.tell(late, *Told.nothing(len(self.plans)).of(late))
        self._rests.since[late] = np.nan
        self._rests.until[rows] = until[rows]

    def adopt(self, other: Decider) -> None:
        """Another list of workloads, or a new configuration: those that stay keep what was remembered of them. Their
        pages are asked anew.
        """
        self._go_on(other._live_state(now=0.0), inf, np.full(len(self.plans), -inf))

    def take_over(self, other: Decider) -> None:
        """Another list of workloads while the same targets go on being asked: what they said and what was answered
        stays too. The other is spent.
        """
        rows, others = self._pairs(other)
        touched = other._touched[others]
        self.take(other.columns(), rows, others)
        self._intake.adopt(other._intake, rows, others)
        self._rests.adopt(other._rests, rows, others)
        self._touched[rows] = touched

    def remember(self, other: Decider) -> None:
        """Take over the windows, and nothing else, of workloads that both know: what they held before is in the
        other's, which knows further back.
        """
        self._signals.take(other._signals.columns(), *self._pairs(other))

    def _pairs(self, other: Decider) -> tuple[Rows, Rows]:
        """Own rows, and the other's, of the workloads that both know."""
        return pairs([plan.workload for plan in self.plans], [plan.workload for plan in other.plans])

    def _live_state(self, now: float, rows: slice = slice(None)) -> State:
        workloads = tuple(plan.workload for plan in self.plans[rows])
        columns = {name: column[rows] for name, column in self.columns().items()}
        return State(now, workloads, columns, self._intake.tables(rows))

    def _go_on(self, state: State, now: float, until: Floats) -> Rows:
        """Remember all of a state; what rests on what happened since waits for its proof. Returns whom it is of.

        until: POSIX seconds by workload: so long its GPUs are owed an answer.
        """
        rows, others = pairs([plan.workload for plan in self.plans], state.workloads)
        self.take(state.columns, rows, others, now)
        self._intake.take(state.tables, rows, others, until)
        self._rests.since[rows], self._rests.until[rows] = self._memory.idle_since[rows], np.nan
        self._memory.idle_since[rows] = np.nan
        return rows

    def _decide(self, rows: Rows, now: float, *, heard: Heard | None = None) -> list[Decision]:
        """`rows`: whole groups. heard: the page that is the occasion; None is: time has passed."""
        if not len(rows):
            return []
        raise_only = heard is not None
        specs, memory = choose(rows, self._specs), choose(rows, self._memory)
        totals = self._intake.totals(rows, now)
        filled = imputed(specs, totals.seen, memory, now)
        totals.impute(filled)
        if heard is not None:
            said = np.flatnonzero(np.isin(rows, heard.rows))
            whole = filled | answered(specs, totals.seen, memory)
            self._signals.observe(rows[said], totals.choose(said), whole[said], heard.at)
        smoothed = self._signals.smooth(rows, now)
        smoothed[np.isnan(totals.latest)] = np.nan  # a smoothed value must not outlive its source
        readings = totals.seen._replace(signals=smoothed)
        standing, groups = choose(rows, self._standing), choose(rows, self._groups)
        verdicts, memory, asked = decide_groups(groups, specs, readings, standing, memory, now, raise_only=raise_only)
        for column, after in zip(self._memory, memory, strict=True):
            column[rows] = after
        self._rests.prove(self._memory, self._intake.awaited, rows, totals.seen, specs.hold, now)
        news = self._told.differs(rows, verdicts)
        decided_at = np.where(news, now, self._told.at[rows])
        # Objects are built for answers that changed; where only the evidence did, once per sweep.
        shown = np.flatnonzero(news if raise_only else news | self._touched[rows])
        if not len(shown):
            return []
        seen = Seen(
            rows=rows[shown],
            totals=totals.choose(shown),
            imputed=filled[shown],
            floor=self._memory.floor[rows[shown]],
            asked=asked[shown],
            together=groups.together[shown],
            smoothed=smoothed[shown],
            verdicts=choose(shown, verdicts),
            decided_at=decided_at[shown],
        )
        decisions = self._decisions(seen, now)
        self._told.tell(seen.rows, seen.verdicts, seen.decided_at)  # last: what is not returned has not been told
        return decisions

    def _decisions(self, seen: Seen, now: float) -> list[Decision]:
        memory: Memory = choose(seen.rows, self._memory)
        replicas, active = _whole(seen.verdicts.replicas), seen.verdicts.active.tolist()
        decided_at, measured_at = seen.decided_at.tolist(), _known(seen.totals.seen.measured_at)
        held_since, idle_since = _known(memory.held_since), _known(memory.idle_since)
        return [
            Decision(
                workload=self.plans[seen.rows[place]].workload,
                replicas=replicas[place],
                active=active[place],
                reason=REASONS[seen.verdicts.reason[place]],
                decided_at=decided_at[place],
                measured_at=measured_at[place],
                held_since=held_since[place],
                idle_since=idle_since[place],
                evidence=evidence,
                observed=self.plans[seen.rows[place]].observed,
            )
            for place, evidence in enumerate(self._evidence(seen, now))
        ]

    def _evidence(self, seen: Seen, now: float) -> Iterator[Evidence]:
        """What each decision rests on. Columns become lists first: numbers are taken out of a list much faster."""
        totals, readings = seen.totals, seen.totals.seen
        waiting, running, held = _known(readings.waiting), _known(readings.running), _known(readings.held)
        kv_cache, gpu_engine = _known(totals.kv_cache), _known(totals.gpu_engine)
        rates = _known(self._signals.rates(seen.rows, now))
        wanted, ready, pending = _whole(readings.wanted), _whole(readings.ready), _whole(readings.pending)
        gpus, any_gpus = totals.gpus, totals.gpus.shown > 0
        held_gpus, seen_gpus = _whole(totals.gpus_held), _whole(np.where(any_gpus, gpus.shown, np.nan))
        lost_gpus = _whole(np.where(any_gpus, gpus.lost, np.nan))
        ceiling, memory = _known(gpus.ceiling), _known(gpus.memory)
        values, demands = [_known(row) for row in seen.smoothed.T], [_known(row) for row in seen.verdicts.demand.T]
        for place, row in enumerate(seen.rows):
            plan = self.plans[row]
            yield Evidence(
                waiting=waiting[place],
                running=running[place],
                held_by_gateway=held[place],
                kv_cache_used=kv_cache[place],
                gpu_engine_active=gpu_engine[place],
                requests_per_second=rates[place],
                replicas_wanted=wanted[place],
                replicas_ready=ready[place],
                replicas_pending=pending[place],
                gpus_held=held_gpus[place],
                gpus_seen=seen_gpus[place],
                gpus_lost=lost_gpus[place],
                gpu_activity=gpu_evidence.activity(totals, place),
                gpu_engine_ceiling=ceiling[place],
                gpu_memory_held_bytes=memory[place],
                waker=_waker(*self._intake.waker(plan.workload, now)),
                objectives=tuple(
                    Objective(OBJECTIVE_NAMES[signal], values[signal][place], target, demands[signal][place])
                    for signal, target in plan.spec.targets
                ),
                stale=self._intake.stale(plan.workload, now),
                notes=_notes(plan.spec, seen, place, has_gateway=self._intake.has_gateway(plan.workload)),
            )


def _notes(spec: Spec, about: Seen, place: int, *, has_gateway: bool) -> tuple[str, ...]:
    """What a person would ask next."""
    notes = []
    seen, reason = about.totals.seen, REASONS[about.verdicts.reason[place]]
    if about.imputed[place]:
        notes.append(
            f"{seen.pods_fresh[place]:.0f} of {seen.pods_listed[place]:.0f} ready pods answer; the others are taken to "
            "be like them, which sizes the workload and proves no idleness"
        )
    if reason is Reason.NO_WAKER:
        silent = bool(seen.gateway_fresh[place])
        notes.append(
            "the gateway's page shows no queue of its own, so nothing would see a request at zero replicas"
            if silent
            else "no gateway of its group shows a queue now, so nothing would see a request at zero replicas"
            if about.together[place] and not spec.gateway
            else "no gateway is configured, so nothing would see a request at zero replicas"
            if not spec.gateway
            else "the gateway does not answer, so nothing would see a request at zero replicas"
        )
    if spec.gateway and not has_gateway:
        notes.append("its gateway has no ready address to ask")
    notes += gpu_evidence.notes(about.totals, place, dict(spec.targets).get(Signal.GPU_ENGINE))
    if about.asked[place] > 0.0:
        notes.append(f"its group is awake and asks for {about.asked[place]:.0f} replicas of it at least")
    if about.floor[place] > 0.0:
        notes.append(
            f"begun without a memory: not below the {about.floor[place]:.0f} that the cluster has until enough was seen"
        )
    if reason in (Reason.HELD, Reason.UNKNOWN) and np.isnan(seen.pods_listed[place]) and spec.pods:
        notes.append("the list of its pods is not known")
    return tuple(notes)


def _waker(waker: Waker, url: str) -> str | None:
    match waker:
        case Waker.QUEUE:
            return f"the queue on {without_user(url)}"
        case Waker.REFUSALS:
            return f"refused requests on {without_user(url)}"
        case Waker.NOTHING:
            return None


def _known(column: Floats) -> list[float | None]:
    return [None if isnan(value) else value for value in column.tolist()]


def _whole(column: Floats) -> list[int | None]:
    return [None if isnan(value) else int(value) for value in column.tolist()]
