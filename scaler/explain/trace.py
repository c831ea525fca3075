"""Holds one decision of the log as plain numbers, with what follows from them, and summarizes it in a sentence. Pure.

It runs the policy's own kernel twice: as the decision was made, for the memory that it left, and without overrides,
for the verdict that these changed.

Worked example: of a workload that a schedule's floor of 3 holds up, `case.verdict.replicas` is 3 and
`case.plain.replicas` is 0: it would be asleep without the schedule. A sentence is "3 replicas, serving: 40 requests
wait or run and a replica should carry 16".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np

from scaler.engine.decision_log import Entry
from scaler.model import Reason
from scaler.policy.columns import REASONS, Constraints, Signal, Specs
from scaler.policy.kernel import answered, step
from scaler.workloads.spec import WorkloadSpec

from .formats import clock, counted, lasting, number


@dataclass(frozen=True, slots=True)
class Case:
    """One slot of each column, as plain numbers.

    readings, constraints, before, verdict, aside: of the entry. after: the memory after the decision.
    plain:    the verdict without overrides; keep-warm time and start-up grace as in the entry.
    complete: every reading of its demand was fresh, or is known to be zero.
    """

    entry: Entry
    readings: Any
    constraints: Any
    before: Any
    verdict: Any
    aside: Any
    after: Any
    plain: Any
    complete: bool

    @classmethod
    def of(cls, entry: Entry) -> Case:
        given = entry.given
        specs = Specs.stack([entry.plan.spec])
        raise_only = bool(given.when.raise_only[0])
        _, after = step(specs, given.readings, given.standing, given.memory, entry.at, raise_only=raise_only)
        without = Constraints.plain(specs)._replace(keep_warm=given.standing.keep_warm, lease=given.standing.lease)
        plain, _ = step(specs, given.readings, without, given.memory, entry.at)
        return cls(
            entry=entry,
            readings=_slot(given.readings),
            constraints=_slot(given.standing),
            before=_slot(given.memory),
            verdict=_slot(given.verdicts),
            aside=_slot(given.aside),
            after=_slot(after),
            plain=_slot(plain),
            complete=bool(answered(specs, given.readings, given.memory)[0]),
        )

    @property
    def plan(self) -> WorkloadSpec:
        return self.entry.plan

    @property
    def at(self) -> float:
        """POSIX seconds."""
        return self.entry.at

    @property
    def raise_only(self) -> bool:
        """A scrape was the occasion, not a tick."""
        return bool(self.entry.given.when.raise_only[0])

    @property
    def may_sleep(self) -> bool:
        spec = self.plan.spec
        return spec.minimum == 0 if spec.sleeps is None else spec.sleeps

    @property
    def demand(self) -> float:
        """The largest demand of its objectives, in replicas; NaN if none is known."""
        demands = self.verdict.demand[~np.isnan(self.verdict.demand)]
        return float(demands.max()) if len(demands) else np.nan

    @property
    def largest(self) -> Signal | None:
        """The objective with the largest demand; None if none is known or above zero."""
        demands = ((float(self.verdict.demand[signal]), signal) for signal, _ in self.plan.spec.targets)
        _, signal = max(((d, s) for d, s in demands if d > 0.0), key=lambda pair: pair[0], default=(0.0, None))
        return signal

    @property
    def ready(self) -> float:
        """Ready replicas, by the cluster or by the pods that answer."""
        return float(self.readings.pods_fresh if isnan(self.readings.ready) else self.readings.ready)

    @property
    def held(self) -> bool:
        """A reading was missing, so the last decision holds."""
        return not np.isnan(self.after.held_since) and not self.aside.imputed

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
    why = _grouped if _group_decides(case) else _SENTENCES[reason]
    return f"{decision}, {reason}: {why(case)}"


def _group_decides(case: Case) -> bool:
    """Whether only its group needs so many replicas. If its own decision is held, that is said first."""
    asked_for = case.aside.asked
    return asked_for > 0.0 and asked_for == case.verdict.replicas and case.plain.replicas < asked_for and not case.held


def _grouped(case: Case) -> str:
    return f"its group needs {counted(case.aside.asked, 'replica')} of it; alone {_without(case)}"


def _serving(case: Case) -> str:
    signal, hand = case.largest, f"{counted(case.work, 'request')} wait or run"
    if signal is None:
        return hand
    target, value = dict(case.plan.spec.targets)[signal], float(case.readings.signals[signal])
    if signal is Signal.WORK:
        smooth = "" if value == case.work else f" ({number(value)} smoothed)"
        return f"{hand}{smooth} and a replica should carry {number(target)}"
    what = "of its KV cache is used" if signal is Signal.KV_CACHE else "of its GPUs' engines are active"
    return f"{number(value)} {what} and the target is {number(target)}; {hand}"


def _queued(case: Case) -> str:
    waiting = float(np.nansum([case.readings.waiting, case.readings.held]))
    if not waiting:
        return "a request was rejected because no replica existed"
    return f"{counted(waiting, 'request')} wait and none is in progress"


def _gpu_busy(case: Case) -> str:
    return f"no requests, and the activity of its busiest GPU is {number(case.readings.busiest_gpu)}"


def _loading(case: Case) -> str:
    if not case.readings.wanted > 0.0:
        return "a start is in progress, and nothing is ready yet"
    return f"{number(case.ready)} of {counted(case.readings.wanted, 'replica')} ready, the rest load"


def _warm(case: Case) -> str:
    since = case.after.idle_since
    if isnan(since):
        return "it has no work of its own, and is kept awake"
    idle = f"idle for {lasting(case.at - since)}"
    if not case.may_sleep:
        return f"{idle}, and its minimum is {case.plan.spec.minimum}"
    return f"{idle}, and kept warm for {lasting(case.constraints.keep_warm)}"


def _asleep(case: Case) -> str:
    since = case.after.idle_since
    idle = "idle" if isnan(since) else f"idle for {lasting(case.at - since)}"
    return f"{idle}, and a wake source shows the next request"


def _held(case: Case) -> str:
    since = case.after.held_since
    jobs = case.plan.spec.jobs and case.after.replicas > 0
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


def _no_wake_source(_: Case) -> str:
    return "idle, but nothing that lives at zero replicas would show the next request"


def _scheduled(case: Case) -> str:
    return f"a schedule decides; without it {_without(case)}"


def _frozen(case: Case) -> str:
    return f"a brake decides; without it {_without(case)}"


def _without(case: Case) -> str:
    replicas = case.plain.replicas
    return "nothing would be known" if isnan(replicas) else f"it would be {counted(replicas, 'replica')}"


def _capped(case: Case) -> str:
    return f"{number(case.demand)} are needed, and the maximum is {case.plan.spec.maximum}"


_SENTENCES: Mapping[Reason, Callable[[Case], str]] = {
    Reason.SERVING: _serving,
    Reason.QUEUED: _queued,
    Reason.GPU_BUSY: _gpu_busy,
    Reason.LOADING: _loading,
    Reason.WARM: _warm,
    Reason.ASLEEP: _asleep,
    Reason.HELD: _held,
    Reason.INCOMPLETE: _incomplete,
    Reason.UNKNOWN: _unknown,
    Reason.NO_WAKE_SOURCE: _no_wake_source,
    Reason.SCHEDULED: _scheduled,
    Reason.FROZEN: _frozen,
    Reason.CAPPED: _capped,
}
