"""One sentence for one decision: the answer, its reason, and the numbers that decided. Pure.

Worked example: "3 replicas, serving: 40 requests wait or run and a replica should carry 16".

The words for what a workload is doing: six states, a reason for each answer, what keeps KEDA and the HPA from doing
what they are told, and how loudly to say it.

A state is what its GPUs are doing now, in the same six words as the accounts; a reason is why the answer is what it is.
The page reads this table as JSON, so it cannot say other words than the terminal.

Worked example: `REASONS[Reason.NO_WAKER]` is "no waker", a notice, fourth in the order of trouble.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from math import isnan
from typing import Any

import numpy as np

from scaler.model import Decision, Reason
from scaler.policy.columns import Signal

from .steps import clock, count, largest, lasting, number, ready_replicas
from .trace import Case


def summary(case: Case) -> str:
    replicas = case.verdict.replicas
    answer = "no answer" if isnan(replicas) else count(replicas, "replica")
    why = _grouped if _group_decides(case) else _WHY[case.reason]
    return f"{answer}, {case.reason}: {why(case)}"


def _group_decides(case: Case) -> bool:
    """Is it its group alone that wants so many? Where it holds its own answer, that is said first."""
    asked = case.aside.asked
    return asked > 0.0 and asked == case.verdict.replicas and case.alone.replicas < asked and not case.held


def _grouped(case: Case) -> str:
    return f"its group asks for {count(case.aside.asked, 'replica')} of it; alone {_alone(case)}"


def _serving(case: Case) -> str:
    signal, hand = largest(case), f"{count(case.work, 'request')} wait or run"
    if signal is None:
        return hand
    target, value = dict(case.plan.spec.targets)[signal], float(case.seen.signals[signal])
    if signal is Signal.WORK:
        smooth = "" if value == case.work else f" ({number(value)} smoothed)"
        return f"{hand}{smooth} and a replica should carry {number(target)}"
    what = "of its KV cache is used" if signal is Signal.KV_CACHE else "of its GPUs' engines are active"
    return f"{number(value)} {what} and it should be {number(target)}; {hand}"


def _queued(case: Case) -> str:
    waiting = float(np.nansum([case.seen.waiting, case.seen.held]))
    if not waiting:
        return "somebody was turned away for want of a replica"
    return f"{count(waiting, 'request')} wait and none is being worked on"


def _gpu_busy(case: Case) -> str:
    return f"no request is seen, and its busiest GPU is {number(case.seen.busiest_gpu)} active"


def _loading(case: Case) -> str:
    if not case.seen.wanted > 0.0:
        return "a start is under way, and nothing is ready yet"
    return f"{number(ready_replicas(case))} of {count(case.seen.wanted, 'replica')} ready, the rest load"


def _warm(case: Case) -> str:
    since = case.after.idle_since
    if isnan(since):
        return "nothing of its own is to be done, and it is kept awake"
    idle = f"nothing has been to do for {lasting(case.at - since)}"
    if not case.may_sleep:
        return f"{idle}, and its minimum is {case.plan.spec.minimum}"
    return f"{idle}, and it is kept warm for {lasting(case.stands.keep_warm)}"


def _asleep(case: Case) -> str:
    since = case.after.idle_since
    idle = "" if isnan(since) else f" for {lasting(case.at - since)}"
    return f"nothing has been to do{idle}, and what lives at zero replicas would show the next request"


def _held(case: Case) -> str:
    since = case.after.held_since
    stands = (
        "what is seen to do is asked for"
        if case.plan.spec.jobs and case.after.replicas > 0
        else "the last answer stands"
    )
    return f"readings are missing, and {stands}" + ("" if isnan(since) else f", since {clock(since)}")


def _incomplete(case: Case) -> str:
    since = case.after.incomplete_since
    when = "" if isnan(since) else f" since {clock(since)}"
    return f"some readings are lower bounds{when}, so replicas may rise and none is taken away; {_known(case)}"


def _known(case: Case) -> str:
    return "no request is known" if isnan(case.work) else f"{count(case.work, 'request')} at least in hand"


def _unknown(case: Case) -> str:
    since = case.after.held_since
    if isnan(since):
        return "what is there, and whether it has anything to do, nobody says: an error to whoever asks"
    held = "and no number of Jobs is held" if case.plan.spec.jobs else "with no answer to hold any more"
    return f"readings are missing since {clock(since)}, {held}: an error to whoever asks"


def _no_waker(_: Case) -> str:
    return "nothing is to be done, and nothing that lives at zero replicas would show the next request"


def _scheduled(case: Case) -> str:
    return f"a schedule decides; without it {_alone(case)}"


def _frozen(case: Case) -> str:
    return f"somebody's brake decides; without it {_alone(case)}"


def _alone(case: Case) -> str:
    replicas = case.alone.replicas
    return "nothing would be known" if isnan(replicas) else f"it would be {count(replicas, 'replica')}"


def _capped(case: Case) -> str:
    return f"{number(case.demand)} are asked for, and {case.plan.spec.maximum} are the most that is allowed"


_WHY: Mapping[Reason, Callable[[Case], str]] = {
    Reason.SERVING: _serving,
    Reason.QUEUED: _queued,
    Reason.GPU_BUSY: _gpu_busy,
    Reason.LOADING: _loading,
    Reason.WARM: _warm,
    Reason.ASLEEP: _asleep,
    Reason.HELD: _held,
    Reason.INCOMPLETE: _incomplete,
    Reason.UNKNOWN: _unknown,
    Reason.NO_WAKER: _no_waker,
    Reason.SCHEDULED: _scheduled,
    Reason.FROZEN: _frozen,
    Reason.CAPPED: _capped,
}


class WorkloadState(StrEnum):
    """What a workload's GPUs are doing. The order is the one they are listed in."""

    SERVING = "serving"
    IDLE_WARM = "idle_warm"
    LOADING = "loading"
    PENDING = "pending"
    ASLEEP = "asleep"
    UNKNOWN = "unknown"


class Severity(StrEnum):
    """Whether somebody should look."""

    TROUBLE = "trouble"  # it is not being decided as it should be
    NOTICE = "notice"  # something a person may want to change
    FINE = "fine"


@dataclass(frozen=True, slots=True)
class Word:
    """How a code is said. rank: its place when trouble comes first, 0 being the worst. state: of a reason, the state
    that it usually goes with, for where a reason is all that is known.
    """

    word: str
    meaning: str
    severity: Severity = Severity.FINE
    rank: int = 0
    state: WorkloadState | None = None


STATES: dict[WorkloadState, Word] = {
    WorkloadState.SERVING: Word("serving", "requests are worked on, or its GPUs work"),
    WorkloadState.IDLE_WARM: Word("idle, warm", "replicas are ready and have nothing to do"),
    WorkloadState.LOADING: Word("loading", "replicas start and none is ready"),
    WorkloadState.PENDING: Word("pending", "replicas wait for a node and none is ready"),
    WorkloadState.ASLEEP: Word("asleep", "no replicas, no GPUs held"),
    WorkloadState.UNKNOWN: Word("unknown", "its sources are silent: nothing is known of it now"),
}

_TROUBLE, _NOTICE, _FINE = Severity.TROUBLE, Severity.NOTICE, Severity.FINE
REASONS: dict[Reason, Word] = {
    Reason.UNKNOWN: Word(
        "unknown", "nothing is known: an error to whoever asks, never a zero", _TROUBLE, 0, WorkloadState.UNKNOWN
    ),
    Reason.HELD: Word(
        "held", "readings are stale: the last answer stands for a while", _TROUBLE, 1, WorkloadState.UNKNOWN
    ),
    Reason.INCOMPLETE: Word(
        "incomplete",
        "a response lacks a series that it had, or has it wrong: replicas may rise, none is taken away",
        _TROUBLE,
        2,
        WorkloadState.UNKNOWN,
    ),
    Reason.NO_WAKER: Word(
        "no waker", "idle, but nothing would see a request at zero replicas", _NOTICE, 3, WorkloadState.IDLE_WARM
    ),
    Reason.CAPPED: Word("capped", "more is needed than the maximum allows", _NOTICE, 4, WorkloadState.SERVING),
    Reason.QUEUED: Word("queued", "requests wait and none is being worked on", _NOTICE, 5, WorkloadState.LOADING),
    Reason.FROZEN: Word("frozen", "a person's brake decides", _NOTICE, 6, WorkloadState.IDLE_WARM),
    Reason.LOADING: Word("loading", "replicas exist and none is ready", _FINE, 7, WorkloadState.LOADING),
    Reason.SERVING: Word("serving", "requests are being worked on", _FINE, 8, WorkloadState.SERVING),
    Reason.GPU_BUSY: Word("GPU busy", "no requests, but its GPUs work", _FINE, 9, WorkloadState.SERVING),
    Reason.SCHEDULED: Word("scheduled", "a schedule's floor or ceiling decides", _FINE, 10, WorkloadState.IDLE_WARM),
    Reason.WARM: Word(
        "warm", "idle, kept for the keep-warm time or by its minimum", _FINE, 11, WorkloadState.IDLE_WARM
    ),
    Reason.ASLEEP: Word("asleep", "idle for the keep-warm time: zero replicas", _FINE, 12, WorkloadState.ASLEEP),
}

# By the codes of `scaler.explain.outcome`, of which the others are no news: it is done, it will be, or the state
# says why not.
HINDRANCES: dict[str, Word] = {
    "controller_error": Word("cannot scale", "the HPA or KEDA says that it cannot scale", _TROUBLE),
    "two_hpas": Word("two HPAs", "several HPAs name it, and Kubernetes obeys none", _TROUBLE),
    "no_hpa": Word("no HPA", "KEDA has made no HPA: nobody goes from one to many", _TROUBLE),
    "fallback": Word("fallback", "nothing is known, and KEDA's fallback takes its place", _TROUBLE),
    "no_scaler": Word("no scaler", "no ScaledObject and no HPA names what it scales", _NOTICE),
    "not_asked": Word("not asked", "its HPA or ScaledObject scales by something else", _NOTICE),
    "no_waker": Word("stuck at zero", "at zero, and without KEDA nobody takes it up", _NOTICE),
    "paused": Word("paused", "one of KEDA's annotations holds it", _NOTICE),
    "disabled": Word("disabled", "its HPA may not scale that way", _NOTICE),
    "at_max": Word("HPA at its most", "its HPA's maximum is less than is told", _NOTICE),
    "at_min": Word("HPA at its least", "its HPA's minimum is more than is told", _FINE),
    "in_band": Word("within tolerance", "its HPA drops a change as small as this", _FINE),
    "rate_limited": Word("rate limited", "its HPA goes there as fast as its policies allow", _FINE),
    "stabilised": Word("stabilised", "its HPA waits for its stabilisation window", _FINE),
    "cooling_down": Word("cooling down", "KEDA waits for its cooldownPeriod", _FINE),
}

_BUSY = {Reason.SERVING, Reason.GPU_BUSY, Reason.CAPPED}
_STARTING = {Reason.LOADING, Reason.QUEUED}


def state(decision: Decision) -> WorkloadState:
    """What its GPUs are doing. A held answer is one about which nothing is known now; a held sleeper still sleeps.

    Who is told to sleep and still has replicas, or their GPUs, does not sleep yet.
    """
    seen = decision.evidence
    if decision.replicas == 0 and not seen.replicas_wanted and not seen.gpus_held:
        return WorkloadState.ASLEEP
    if decision.replicas is None or decision.reason in (Reason.HELD, Reason.UNKNOWN):
        return WorkloadState.UNKNOWN
    if decision.reason is Reason.INCOMPLETE and not (seen.running or seen.waiting):
        return WorkloadState.UNKNOWN
    none_ready = seen.replicas_ready == 0
    if none_ready and seen.replicas_pending and seen.replicas_pending >= (seen.replicas_wanted or 1):
        return WorkloadState.PENDING
    if none_ready or decision.reason in _STARTING:
        return WorkloadState.LOADING
    if decision.reason in _BUSY or seen.running or seen.waiting:
        return WorkloadState.SERVING
    return WorkloadState.IDLE_WARM


def words_document() -> dict[str, Any]:
    """The tables as JSON-able data, in the order in which they are listed."""

    def entries(table: dict[Any, Word]) -> list[dict[str, Any]]:
        return [{"code": str(code), **asdict(word)} for code, word in table.items()]

    return {"states": entries(STATES), "reasons": entries(REASONS), "hindrances": entries(HINDRANCES)}
