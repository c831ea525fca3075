"""Holds one decision of the log as plain numbers, with its trace, and summarizes it in a sentence. Pure.

The policy's own kernel decides the entry again, for the memory that it left and for the trace. Explanations format
both, and decide nothing themselves.

Worked example: a schedule's floor of 3 keeps a workload awake: `case.verdict.replicas` is 3 and `case.trace.replicas`
is 0, because it would be asleep without the schedule. A sentence is "3 replicas, serving: 40 requests wait or run and a
replica should carry 16".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, isnan
from typing import Any

import numpy as np

from scaler.engine.decision_log import Entry
from scaler.model import Reason
from scaler.policy.columns import (
    CAPACITY_LIMITED,
    FROZEN,
    NO_REASON,
    REASONS,
    SCHEDULED,
    Constraints,
    MemorySlot,
    Signal,
    Specs,
    unused_objectives,
)
from scaler.policy.kernel import traced
from scaler.policy.trace import STALE, DecisionTrace
from scaler.workloads.spec import WorkloadSpec

from .formats import clock, counted, lasting, number


@dataclass(frozen=True, slots=True)
class Case:
    """One slot of each column, as plain numbers.

    readings, constraints, before, verdict, aside: of the entry.
    after, trace: what the kernel made of them: the next memory, as if at a tick, and how it came about.
    raise_only: a scrape was the occasion, not a tick.
    """

    entry: Entry
    readings: Any
    constraints: Any
    before: Any
    verdict: Any
    aside: Any
    after: MemorySlot
    trace: DecisionTrace
    raise_only: bool

    @classmethod
    def of(cls, entry: Entry) -> Case:
        given = entry.given
        when, readings, constraints, before, verdict, aside = map(_slot, given)
        after, trace = traced(Specs.stack([entry.plan.spec]), given.readings, given.standing, given.memory, entry.at)
        return cls(entry, readings, constraints, before, verdict, aside, after, trace, when.raise_only)

    def without(self, override: int) -> MemorySlot:
        """What the kernel decides at a tick without the overrides of this reason; the floor of its group stays."""
        given, mine = self.entry.given, self.constraints
        if mine.floor_reason == override:
            mine = mine._replace(floor=self.aside.group_floor, floor_reason=NO_REASON)
        if override == SCHEDULED:
            mine = mine._replace(ceiling=inf)
        if override == FROZEN:
            mine = mine._replace(frozen=False, never_down=False)
        if override == CAPACITY_LIMITED:
            mine = mine._replace(room=inf)
        constraints = Constraints._make(np.array([value]) for value in mine)
        return traced(Specs.stack([self.plan.spec]), given.readings, constraints, given.memory, self.at)[0]

    @property
    def plan(self) -> WorkloadSpec:
        return self.entry.plan

    @property
    def at(self) -> float:
        """POSIX seconds."""
        return self.entry.at

    @property
    def may_sleep(self) -> bool:
        return bool(Specs.stack([self.plan.spec]).sleeps[0])

    @property
    def targets(self) -> tuple[tuple[Signal, float], ...]:
        """The objectives that count, and the target of each: the SLO, or what it falls back to while it is unknown."""
        spec = self.plan.spec
        unused = unused_objectives(spec, sized=not isnan(self.verdict.demand[Signal.SLO]))
        return tuple(each for each in spec.targets if each[0] not in unused)

    @property
    def largest(self) -> Signal | None:
        """The objective with the largest demand; None if none is known or above zero."""
        return None if self.trace.winner < 0 else Signal(self.trace.winner)

    @property
    def ready(self) -> float:
        """Ready replicas, by the cluster or by the pods that answer."""
        return float(self.readings.pods_fresh if isnan(self.readings.ready) else self.readings.ready)

    @property
    def held(self) -> bool:
        """A reading was missing, so the last decision holds."""
        return bool(self.trace.branch == STALE)

    @property
    def work(self) -> float:
        """Requests waiting, running and held, as far as readings are fresh; NaN if none is."""
        readings = self.readings
        parts = [part for part in (readings.waiting, readings.running, readings.held) if not np.isnan(part)]
        return sum(parts) if parts else np.nan


def _slot(columns: Any) -> Any:
    """The first slot of every column: numbers where it has columns."""
    return type(columns)(*(column[0] if column.ndim > 1 else column[0].item() for column in columns))


def summary(case: Case) -> str:
    """The decision, its reason, and the numbers behind it, in one sentence."""
    reason, replicas = REASONS[case.verdict.reason], case.verdict.replicas
    decision = "no answer" if isnan(replicas) else counted(replicas, "replica")
    in_group, alone = case.aside.group_floor, case.trace.replicas
    # Only its group needs so many. If its own decision is held, that is said first.
    if in_group > 0.0 and in_group == replicas > alone and not case.held:
        return f"{decision}, {reason}: its group needs {counted(in_group, 'replica')} of it; alone {_would_be(alone)}"
    return f"{decision}, {reason}: {_SENTENCES[reason](case)}"


def _serving(case: Case) -> str:
    signal, hand = case.largest, f"{counted(case.work, 'request')} wait or run"
    if signal is None:
        return hand
    target, value = dict(case.plan.spec.targets)[signal], float(case.readings.signals[signal])
    if signal is Signal.WORK:
        smooth = "" if value == case.work else f" ({number(value)} smoothed)"
        return f"{hand}{smooth} and a replica should carry {number(target)}"
    if signal is Signal.SLO:
        work = float(case.aside.latest[signal])
        if case.plan.spec.start_within is not None:
            return f"{hand}, and {number(value)} replicas start each job in time"
        needs = "it" if case.plan.spec.slo is None else "the SLO"
        return f"{hand}; work for {counted(work, 'replica')} arrives, and {needs} needs {number(value)}"
    what = "of its KV cache is used" if signal is Signal.KV_CACHE else "of its GPUs' engines are active"
    return f"{number(value)} {what} and the target is {number(target)}; {hand}"


def _queued(case: Case) -> str:
    waiting = float(np.nansum([case.readings.waiting, case.readings.held]))
    if not waiting:
        return "a request was rejected because no replica existed"
    return f"{counted(waiting, 'request')} wait and none is in progress"


def _loading(case: Case) -> str:
    if not case.readings.wanted > 0.0:
        return "a start is in progress, and nothing is ready yet"
    return f"{number(case.ready)} of {counted(case.readings.wanted, 'replica')} ready, the rest load"


def _idle(case: Case) -> str:
    since = case.after.idle_since
    return "idle" if isnan(since) else f"idle for {lasting(case.at - since)}"


def _warm(case: Case) -> str:
    if isnan(case.after.idle_since):
        return "it has no work of its own, and is kept awake"
    idle = _idle(case)
    if not case.may_sleep:
        return f"{idle}, and its minimum is {case.plan.spec.minimum}"
    return f"{idle}, and kept warm for {lasting(case.constraints.keep_warm)}"


def _held(case: Case) -> str:
    since = case.after.held_since
    jobs = case.plan.spec.jobs and case.verdict.replicas > 0
    what = "the requests that are known decide" if jobs else "the last decision holds"
    return f"readings are missing, and {what}" + ("" if isnan(since) else f", since {clock(since)}")


def _incomplete(case: Case) -> str:
    since = case.after.incomplete_since
    when = "" if isnan(since) else f" since {clock(since)}"
    hand = "no request is known" if isnan(case.work) else f"at least {counted(case.work, 'request')} in hand"
    return f"some readings are lower bounds{when}, so replicas may rise and none is removed; {hand}"


def _unknown(case: Case) -> str:
    since = case.after.held_since
    if isnan(since):
        return "neither its replicas nor its work are known: callers get an error"
    held = "and a number of Jobs is never held" if case.plan.spec.jobs else "and no decision can be held"
    return f"readings are missing since {clock(since)}, {held}: callers get an error"


def _capacity_limited(case: Case) -> str:
    alone, room = case.without(CAPACITY_LIMITED).replicas, case.constraints.room
    return f"{number(alone)} are wanted, and its share of the GPUs has room for {number(room)}"


def _would_be(replicas: float) -> str:
    return "nothing would be known" if isnan(replicas) else f"it would be {counted(replicas, 'replica')}"


_SENTENCES: Mapping[Reason, Callable[[Case], str]] = {
    Reason.SERVING: _serving,
    Reason.QUEUED: _queued,
    Reason.GPU_BUSY: lambda case: (
        f"no requests, and the activity of its busiest GPU is {number(case.readings.busiest_gpu)}"
    ),
    Reason.LOADING: _loading,
    Reason.WARM: _warm,
    Reason.ASLEEP: lambda case: f"{_idle(case)}, and a wake source shows the next request",
    Reason.HELD: _held,
    Reason.INCOMPLETE: _incomplete,
    Reason.UNKNOWN: _unknown,
    Reason.NO_WAKE_SOURCE: lambda _: "idle, but nothing that lives at zero replicas would show the next request",
    Reason.SCHEDULED: lambda case: f"a schedule decides; without it {_would_be(case.without(SCHEDULED).replicas)}",
    Reason.FROZEN: lambda case: f"a brake decides; without it {_would_be(case.without(FROZEN).replicas)}",
    Reason.CAPACITY_LIMITED: _capacity_limited,
    Reason.CAPPED: lambda case: f"{number(case.trace.demand)} are needed, and the maximum is {case.plan.spec.maximum}",
}
