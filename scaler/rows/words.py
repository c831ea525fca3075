"""The words for what a workload is doing: six states, a reason for each answer, what keeps KEDA and the HPA from doing
what they are told, and how loudly to say it.

A state is what its GPUs are doing now, in the same six words as the accounts; a reason is why the answer is what it is.
The page reads this table as JSON, so it cannot say other words than the terminal.

Worked example: `REASONS[Reason.NO_WAKER]` is "no waker", a notice, fourth in the order of trouble.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from ..board import Decision, Reason


class State(StrEnum):
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
    state: State | None = None


STATES: dict[State, Word] = {
    State.SERVING: Word("serving", "requests are worked on, or its GPUs work"),
    State.IDLE_WARM: Word("idle, warm", "replicas are ready and have nothing to do"),
    State.LOADING: Word("loading", "replicas start and none is ready"),
    State.PENDING: Word("pending", "replicas wait for a node and none is ready"),
    State.ASLEEP: Word("asleep", "no replicas, no GPUs held"),
    State.UNKNOWN: Word("unknown", "its sources are silent: nothing is known of it now"),
}

_TROUBLE, _NOTICE, _FINE = Severity.TROUBLE, Severity.NOTICE, Severity.FINE
REASONS: dict[Reason, Word] = {
    Reason.UNKNOWN: Word(
        "unknown", "nothing is known: an error to whoever asks, never a zero", _TROUBLE, 0, State.UNKNOWN
    ),
    Reason.HELD: Word("held", "readings are stale: the last answer stands for a while", _TROUBLE, 1, State.UNKNOWN),
    Reason.INCOMPLETE: Word(
        "incomplete",
        "a response lacks a series that it had, or has it wrong: replicas may rise, none is taken away",
        _TROUBLE,
        2,
        State.UNKNOWN,
    ),
    Reason.NO_WAKER: Word(
        "no waker", "idle, but nothing would see a request at zero replicas", _NOTICE, 3, State.IDLE_WARM
    ),
    Reason.CAPPED: Word("capped", "more is needed than the maximum allows", _NOTICE, 4, State.SERVING),
    Reason.QUEUED: Word("queued", "requests wait and none is being worked on", _NOTICE, 5, State.LOADING),
    Reason.FROZEN: Word("frozen", "a person's brake decides", _NOTICE, 6, State.IDLE_WARM),
    Reason.LOADING: Word("loading", "replicas exist and none is ready", _FINE, 7, State.LOADING),
    Reason.SERVING: Word("serving", "requests are being worked on", _FINE, 8, State.SERVING),
    Reason.GPU_BUSY: Word("GPU busy", "no requests, but its GPUs work", _FINE, 9, State.SERVING),
    Reason.SCHEDULED: Word("scheduled", "a schedule's floor or ceiling decides", _FINE, 10, State.IDLE_WARM),
    Reason.WARM: Word("warm", "idle, kept for the keep-warm time or by its minimum", _FINE, 11, State.IDLE_WARM),
    Reason.ASLEEP: Word("asleep", "idle for the keep-warm time: zero replicas", _FINE, 12, State.ASLEEP),
}

# By the codes of `scaler.outlook`, of which the others are no news: it is done, it will be, or the state says why not.
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


def state(decision: Decision) -> State:
    """What its GPUs are doing. A held answer is one about which nothing is known now; a held sleeper still sleeps.

    Who is told to sleep and still has replicas, or their GPUs, does not sleep yet.
    """
    seen = decision.evidence
    if decision.replicas == 0 and not seen.replicas_wanted and not seen.gpus_held:
        return State.ASLEEP
    if decision.replicas is None or decision.reason in (Reason.HELD, Reason.UNKNOWN):
        return State.UNKNOWN
    if decision.reason is Reason.INCOMPLETE and not (seen.running or seen.waiting):
        return State.UNKNOWN
    none_ready = seen.replicas_ready == 0
    if none_ready and seen.replicas_pending and seen.replicas_pending >= (seen.replicas_wanted or 1):
        return State.PENDING
    if none_ready or decision.reason in _STARTING:
        return State.LOADING
    if decision.reason in _BUSY or seen.running or seen.waiting:
        return State.SERVING
    return State.IDLE_WARM


def words_document() -> dict[str, Any]:
    """The tables as JSON-able data, in the order in which they are listed."""

    def entries(table: dict[Any, Word]) -> list[dict[str, Any]]:
        return [{"code": str(code), **asdict(word)} for code, word in table.items()]

    return {"states": entries(STATES), "reasons": entries(REASONS), "hindrances": entries(HINDRANCES)}
