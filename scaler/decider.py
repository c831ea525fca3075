"""From landed pages to Decisions: the one place where intake, signals and policy meet. Pure; `now` is an argument.

Two ways in. `land` takes one page and decides the workloads it speaks of, upwards only; `sweep` decides all of them,
because time passes for those that hear nothing (staleness, decay, keep-warm). Both return the Decisions that changed;
who publishes them is not this room's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from exporter.model import Floats, ReplicaCount, Samples, Target, WorkloadKey

from .board import Decision, Evidence, Objective, Reason
from .intake import Intake, Rows, Source, Totals, owner_lookup
from .policy import REASONS, Memory, Signal, Spec, Specs, Verdicts, answered, choose, step
from .signals import Signals, Smoothing

OBJECTIVE_NAMES = {Signal.WORK: "work", Signal.KV_CACHE: "kv_cache", Signal.GPU_ENGINE: "gpu_engine"}


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything about one workload that the decider needs.

    queue:       only this queue of its pages; None is all.
    pod_pattern: glob of its pods' names; None is those its controller would make.
    """

    workload: WorkloadKey
    spec: Spec
    smoothing: Smoothing = field(default=Smoothing())
    queue: str | None = None
    pod_pattern: str | None = None


class Decider:
    """Remembers what it has seen and answered of a fixed list of workloads."""

    def __init__(self, plans: Sequence[Plan], *, interval_s: float, fresh_intervals: float) -> None:
        """`interval_s`: seconds between scrapes of one page; a reading is fresh for `fresh_intervals` of them."""
        self.plans = tuple(plans)
        self._specs = Specs.stack([plan.spec for plan in plans])
        self._memory = Memory.blank(len(plans))
        self._intake = Intake(
            [Source(p.workload, p.spec.pods, p.queue) for p in plans],
            owner_lookup({plan.workload: plan.pod_pattern for plan in plans}),
            limit_s=interval_s * fresh_intervals,
        )
        self._signals = Signals([plan.smoothing for plan in plans], interval_s)
        self._published: list[Decision | None] = [None] * len(plans)
        self._touched: set[int] = set()

    def listed(self, workload: WorkloadKey, pods: int | None) -> None:
        """How many of a workload's pods should answer; None while that is not known."""
        self._intake.listed(workload, pods)

    def expect(self, target: Target) -> None:
        self._intake.expect(target)
        self._touched.update(self._intake.rows_of(target))

    def missed(self, target: Target) -> None:
        """A scrape brought nothing: nothing is decided by that, but the evidence will say so."""
        self._touched.update(self._intake.rows_of(target))

    def counted(self, workload: WorkloadKey, count: ReplicaCount | None) -> None:
        self._intake.counted(workload, count)

    def retire(self, target: Target) -> None:
        self._touched.update(self._intake.rows_of(target))
        self._intake.retire(target)

    def land(self, target: Target, samples: Samples, at: float, now: float) -> list[Decision]:
        """Take in one page and decide whom it speaks of; answers may rise or activate, never fall."""
        rows = self._intake.land(target, samples, at)
        self._touched.update(rows)
        return self._decide(np.array(rows, dtype=np.int64), now, raise_only=True) if rows else []

    def sweep(self, now: float) -> list[Decision]:
        """Decide everything, because time has passed."""
        changed = self._decide(np.arange(len(self.plans)), now, raise_only=False)
        self._touched.clear()
        return changed

    def forget_answers(self) -> None:
        """Somebody else has answered meanwhile: the next sweep returns every Decision again."""
        self._published = [None] * len(self.plans)

    def adopt(self, other: Decider) -> None:
        """A new configuration: workloads that stay keep what was remembered and answered of them."""
        old = {plan.workload: row for row, plan in enumerate(other.plans)}
        for row, plan in enumerate(self.plans):
            before = old.get(plan.workload)
            if before is not None:
                for mine, theirs in zip(self._memory, other._memory, strict=True):
                    mine[row] = theirs[before]
        self._signals.adopt(
            other._signals, [(row, old[plan.workload]) for row, plan in enumerate(self.plans) if plan.workload in old]
        )

    def _decide(self, rows: Rows, now: float, *, raise_only: bool) -> list[Decision]:
        if not len(rows):
            return []
        specs, memory = choose(rows, self._specs), choose(rows, self._memory)
        totals = self._intake.totals(rows, now)
        complete = answered(specs, totals.seen, memory)
        self._signals.observe(rows, totals, complete, now)
        smoothed = np.where(totals.said(), self._signals.smooth(rows, now), np.nan)
        verdicts, memory = step(specs, totals.seen._replace(signals=smoothed), memory, now, raise_only=raise_only)
        for column, after in zip(self._memory, memory, strict=True):
            column[rows] = after
        return self._changes(rows, totals, smoothed, verdicts, memory, now, raise_only)

    def _changes(
        self,
        rows: Rows,
        totals: Totals,
        smoothed: Floats,
        verdicts: Verdicts,
        memory: Memory,
        now: float,
        raise_only: bool,
    ) -> list[Decision]:
        """Objects are built for answers that changed; where only the evidence did, once per sweep."""
        rates = self._signals.rates(rows, now)
        changed = []
        for place, row in enumerate(rows):
            before = self._published[row]
            replicas, active, reason = _answer(verdicts, place)
            same = before is not None and (before.replicas, before.active, before.reason) == (replicas, active, reason)
            if same and (raise_only or row not in self._touched):
                continue
            decision = Decision(
                workload=self.plans[row].workload,
                replicas=replicas,
                active=active,
                reason=reason,
                decided_at=before.decided_at if same and before is not None else now,
                measured_at=_or_none(totals.seen.measured_at[place]),
                held_since=_or_none(memory.held_since[place]),
                idle_since=_or_none(memory.idle_since[place]),
                evidence=self._evidence(int(row), place, totals, smoothed, verdicts, rates, now),
            )
            self._published[row] = decision
            changed.append(decision)
        return changed

    def _evidence(
        self,
        row: int,
        place: int,
        totals: Totals,
        smoothed: Floats,
        verdicts: Verdicts,
        rates: Floats,
        now: float,
    ) -> Evidence:
        seen, plan = totals.seen, self.plans[row]
        return Evidence(
            waiting=_or_none(seen.waiting[place]),
            running=_or_none(seen.running[place]),
            held_by_gateway=_or_none(seen.held[place]),
            kv_cache_used=_or_none(totals.kv_cache[place]),
            gpu_engine_active=_or_none(totals.gpu_engine[place]),
            requests_per_second=_or_none(rates[place]),
            replicas_wanted=_whole(seen.wanted[place]),
            replicas_ready=_whole(seen.ready[place]),
            objectives=tuple(
                Objective(
                    name=OBJECTIVE_NAMES[signal],
                    value=_or_none(smoothed[place, signal]),
                    target=target,
                    replicas=_or_none(verdicts.demand[place, signal]),
                )
                for signal, target in plan.spec.targets
            ),
            stale=self._intake.stale(plan.workload, now),
            notes=_notes(plan.spec, totals, place, _answer(verdicts, place)[2]),
        )


def _answer(verdicts: Verdicts, place: int) -> tuple[int | None, bool, Reason]:
    replicas = verdicts.replicas[place]
    return (
        None if np.isnan(replicas) else int(replicas),
        bool(verdicts.active[place]),
        REASONS[verdicts.reason[place]],
    )


def _notes(spec: Spec, totals: Totals, place: int, reason: Reason) -> tuple[str, ...]:
    """What a person would ask next."""
    notes = []
    if reason is Reason.NO_WAKER:
        silent = bool(totals.seen.gateway_fresh[place])
        notes.append(
            "the gateway's page shows no queue of its own, so nothing would see a request at zero replicas"
            if silent
            else "no gateway is configured, so nothing would see a request at zero replicas"
            if not spec.gateway
            else "the gateway does not answer, so nothing would see a request at zero replicas"
        )
    if totals.seen.gpus_stale[place]:
        notes.append("its GPUs are not seen at present, so idleness cannot be proven")
    if reason in (Reason.HELD, Reason.UNKNOWN) and np.isnan(totals.seen.pods_listed[place]) and spec.pods:
        notes.append("the list of its pods is not known")
    return tuple(notes)


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _whole(value: float) -> int | None:
    return None if np.isnan(value) else int(value)
