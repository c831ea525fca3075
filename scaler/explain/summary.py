"""Names what a workload is doing, why, and what blocks KEDA and the HPA: words and clauses. Pure.

A state is what its GPUs do now, in the six words of the ledger; a reason is why the decision is what it is; an obstacle
is why a controller does not follow it. The live page reads the tables as JSON, so its words are those of the terminal.
A clause is a reason with its numbers; the sentence of an explanation is in `trace`.

Worked example: `REASONS[Reason.NO_WAKE_SOURCE]` is "no wake source", a notice, the fourth by severity. The clause of
a workload that is idle for 90 s of its 300 s of keep-warm time is "idle for 1 min, kept warm for 5 min".
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from scaler.model import Decision, Evidence, Reason

from .formats import UNKNOWN, count, listed, ratio, span


class WorkloadState(StrEnum):
    """The use of a workload's GPUs, in the order of listing."""

    SERVING = "serving"
    IDLE_WARM = "idle_warm"
    LOADING = "loading"
    PENDING = "pending"
    ASLEEP = "asleep"
    UNKNOWN = "unknown"


class Severity(StrEnum):
    """Whether a person should act."""

    PROBLEM = "problem"  # it is not being decided as it should be
    NOTICE = "notice"  # a person may want to change something
    FINE = "fine"


@dataclass(frozen=True, slots=True)
class Word:
    """The text of a code. rank: its position by severity, 0 being the worst. state: of a reason, the usual state, for
    where only the reason is known.
    """

    word: str
    meaning: str
    severity: Severity = Severity.FINE
    rank: int = 0
    state: WorkloadState | None = None


STATES: dict[WorkloadState, Word] = {
    WorkloadState.SERVING: Word("serving", "requests are in progress, or its GPUs are active"),
    WorkloadState.IDLE_WARM: Word("idle, warm", "replicas are ready and have nothing to do"),
    WorkloadState.LOADING: Word("loading", "replicas start and none is ready"),
    WorkloadState.PENDING: Word("pending", "replicas wait for a node and none is ready"),
    WorkloadState.ASLEEP: Word("asleep", "no replicas, no GPUs held"),
    WorkloadState.UNKNOWN: Word("unknown", "its readings are stale or missing"),
}

_PROBLEM, _NOTICE, _FINE = Severity.PROBLEM, Severity.NOTICE, Severity.FINE
_SERVING, _WARM, _UNKNOWN = WorkloadState.SERVING, WorkloadState.IDLE_WARM, WorkloadState.UNKNOWN
REASONS: dict[Reason, Word] = {
    Reason.UNKNOWN: Word("unknown", "no readings: callers get an error, never a zero", _PROBLEM, 0, _UNKNOWN),
    Reason.HELD: Word("held", "readings are stale: the last decision holds for a while", _PROBLEM, 1, _UNKNOWN),
    Reason.INCOMPLETE: Word(
        "incomplete", "a series is missing or invalid: replicas may rise, none is removed", _PROBLEM, 2, _UNKNOWN
    ),
    Reason.NO_WAKE_SOURCE: Word("no wake source", "idle, but nothing would see a request at zero", _NOTICE, 3, _WARM),
    Reason.CAPPED: Word("capped", "more is needed than the maximum allows", _NOTICE, 4, _SERVING),
    Reason.CAPACITY_LIMITED: Word("GPU-limited", "more is needed than its share of the GPUs", _NOTICE, 5, _SERVING),
    Reason.QUEUED: Word("queued", "requests wait and none is in progress", _NOTICE, 6, WorkloadState.LOADING),
    Reason.FROZEN: Word("frozen", "a brake decides", _NOTICE, 7, _WARM),
    Reason.LOADING: Word("loading", "replicas exist and none is ready", _FINE, 8, WorkloadState.LOADING),
    Reason.SERVING: Word("serving", "requests are in progress", _FINE, 9, _SERVING),
    Reason.GPU_BUSY: Word("GPU busy", "no requests, but its GPUs are active", _FINE, 10, _SERVING),
    Reason.SCHEDULED: Word("scheduled", "a schedule's floor or ceiling decides", _FINE, 11, _WARM),
    Reason.WARM: Word("warm", "idle, kept for the keep-warm time or by its minimum", _FINE, 12, _WARM),
    Reason.ASLEEP: Word("asleep", "idle for the keep-warm time: zero replicas", _FINE, 13, WorkloadState.ASLEEP),
}

# By the codes of `outcome_inputs.OutcomeCode`. The other codes need no attention: the outcome is reached, it is on its
# way, or the state explains it.
OBSTACLES: dict[str, Word] = {
    "controller_error": Word("cannot scale", "the HPA or KEDA reports that it cannot scale", _PROBLEM),
    "two_hpas": Word("two HPAs", "several HPAs target it, and Kubernetes follows none", _PROBLEM),
    "no_hpa": Word("no HPA", "KEDA has created no HPA: nothing scales from one to many", _PROBLEM),
    "fallback": Word("fallback", "readings are unknown, and KEDA uses its fallback", _PROBLEM),
    "no_scaler": Word("no scaler", "no ScaledObject and no HPA targets it", _NOTICE),
    "other_metrics": Word("other metrics", "its HPA or ScaledObject scales by other metrics", _NOTICE),
    "no_wake_source": Word("stuck at zero", "at zero, and without KEDA nothing scales it up", _NOTICE),
    "paused": Word("paused", "a KEDA annotation pauses it", _NOTICE),
    "disabled": Word("disabled", "its HPA may not scale in this direction", _NOTICE),
    "at_max": Word("HPA at maximum", "the HPA's maximum is less than the published number", _NOTICE),
    "at_min": Word("HPA at minimum", "the HPA's minimum is more than the published number", _FINE),
    "in_band": Word("within tolerance", "the HPA ignores so small a change", _FINE),
    "rate_limited": Word("rate limited", "the HPA scales as fast as its policies allow", _FINE),
    "stabilised": Word("stabilized", "the HPA waits for its stabilization window", _FINE),
    "cooling_down": Word("cooling down", "KEDA waits for its cooldownPeriod", _FINE),
}

_BUSY = {Reason.SERVING, Reason.GPU_BUSY, Reason.CAPPED, Reason.CAPACITY_LIMITED}
_STARTING = {Reason.LOADING, Reason.QUEUED}
NO_WAKE_SOURCE = "nothing would see the next request"


def state(decision: Decision) -> WorkloadState:
    """The use of its GPUs. A held workload is unknown; a held one at zero is still asleep.

    A workload that is decided at zero and still has replicas, or holds their GPUs, is not asleep yet.
    """
    evidence = decision.evidence
    if decision.replicas == 0 and not evidence.replicas_wanted and not evidence.gpus_held:
        return WorkloadState.ASLEEP
    if decision.replicas is None or decision.reason in (Reason.HELD, Reason.UNKNOWN):
        return WorkloadState.UNKNOWN
    if decision.reason is Reason.INCOMPLETE and not (evidence.running or evidence.waiting):
        return WorkloadState.UNKNOWN
    none_ready = evidence.replicas_ready == 0
    if none_ready and evidence.replicas_pending and evidence.replicas_pending >= (evidence.replicas_wanted or 1):
        return WorkloadState.PENDING
    if none_ready or decision.reason in _STARTING:
        return WorkloadState.LOADING
    if decision.reason in _BUSY or evidence.running or evidence.waiting:
        return WorkloadState.SERVING
    return WorkloadState.IDLE_WARM


def words_document() -> dict[str, Any]:
    """The tables as JSON-able data, in the order in which they are listed."""

    def entries(table: dict[Any, Word]) -> list[dict[str, Any]]:
        return [{"code": str(code), **asdict(word)} for code, word in table.items()]

    return {"states": entries(STATES), "reasons": entries(REASONS), "hindrances": entries(OBSTACLES)}


def clause(decision: Decision, now: float) -> str:
    """The reason with its numbers. now: POSIX seconds, for durations."""
    evidence = decision.evidence
    match decision.reason:
        case Reason.SERVING:
            return work(evidence)
        case Reason.CAPPED:
            return f"{work(evidence)}; {count(evidence.demand)} replicas are needed, the maximum is less"
        case Reason.CAPACITY_LIMITED:
            needed, room = count(evidence.demand), count(evidence.gpu_share_replicas)
            return f"{work(evidence)}; {needed} replicas are needed, its share of the GPUs has room for {room}"
        case Reason.QUEUED:
            return f"{_requests(evidence.queued)} waiting, none in progress"
        case Reason.GPU_BUSY:
            return f"no requests, but its GPUs are active: {ratio(evidence.gpu_engine_active)}"
        case Reason.LOADING:
            return f"{_starting(evidence)}; {_requests(evidence.queued)} waiting"
        case Reason.WARM | Reason.ASLEEP | Reason.NO_WAKE_SOURCE:
            return _resting(decision, now)
        case Reason.HELD:
            since_s = None if decision.held_since is None else now - decision.held_since
            return f"{stale(evidence, 1)}: the last decision holds, for {span(since_s)} now"
        case Reason.INCOMPLETE:
            return f"{incomplete(evidence, 1)}: nothing is scaled down"
        case Reason.UNKNOWN:
            return f"{stale(evidence, 1)}: KEDA and the HPA get an error, never a zero"
        case Reason.SCHEDULED | Reason.FROZEN:
            override = evidence.schedule if decision.reason is Reason.SCHEDULED else evidence.brake
            return override or REASONS[decision.reason].meaning


def idle(decision: Decision, now: float) -> str:
    """Since when there is no work. now: POSIX seconds."""
    return "idle" if decision.idle_since is None else f"idle for {span(now - decision.idle_since)}"


def stale(evidence: Evidence, most: int) -> str:
    """The targets with stale readings, at most so many by name."""
    if evidence.stale:
        return f"no fresh readings from {listed(evidence.stale, most)}"
    return evidence.notes[0] if evidence.notes else "its readings are missing or too old"


def incomplete(evidence: Evidence, most: int) -> str:
    """The incomplete series, at most so many by name."""
    return listed(evidence.incomplete, most) if evidence.incomplete else "some readings are incomplete"


def replicas(decision: Decision) -> str:
    """The decided number: 1 replica, 3 replicas, unknown replicas."""
    many = decision.replicas
    return f"{UNKNOWN if many is None else many} replica{'' if many == 1 else 's'}"


def work(evidence: Evidence) -> str:
    """Requests in progress and waiting."""
    return f"{_requests(evidence.running)} in progress, {count(evidence.queued)} waiting"


def _starting(evidence: Evidence) -> str:
    if evidence.replicas_wanted is None:
        return "none is ready"
    many = f"{evidence.replicas_wanted} replica{'' if evidence.replicas_wanted == 1 else 's'}"
    pending = evidence.replicas_pending
    return f"{many} starting, {pending} without a node" if pending else f"{many} starting"


def _resting(decision: Decision, now: float) -> str:
    evidence, since = decision.evidence, idle(decision, now)
    if decision.reason is Reason.NO_WAKE_SOURCE:
        return f"{since}; {'stays awake' if decision.active else 'stays at zero'}: {NO_WAKE_SOURCE}"
    if decision.reason is Reason.ASLEEP:
        return since if evidence.wake_source is None else f"{since}; wakes by {evidence.wake_source}"
    if evidence.sleep_tier == "asleep":
        return f"{since}; its engines sleep"
    keep_warm_s, idle_since = evidence.keep_warm_s, decision.idle_since
    # Later it is its minimum of replicas, or a start without state, that keeps it awake.
    if keep_warm_s is None or (idle_since is not None and now - idle_since > keep_warm_s):
        return since
    return f"{since}, kept warm for {span(keep_warm_s)}"


def _requests(value: float | None) -> str:
    return f"{count(value)} request{'' if value == 1.0 else 's'}"
