"""Decides which change of a decision is worth an Event, and writes its sentence. Pure.

It compares two successive decisions about one workload. A first decision is no change, so a restart writes nothing. A
workload that is only observed has no Events, nor does the switch to or from `mode: observe`, which a person made.

Worked example: from `serving` at 2 to `asleep`, idle since 312 s, `news` is `(EventReason.ASLEEP,)`, and `sentence` of
that is "asleep: idle for 5 min, and its wake source is the queue on http://epp:9090/metrics".
"""

from __future__ import annotations

from enum import StrEnum

from scaler.model import Decision, Evidence, Reason

from .summary import NO_WAKE_SOURCE, idle, incomplete, replicas, stale

NORMAL, WARNING = "Normal", "Warning"
_NOTE = "nothing would see a request at zero replicas"  # as in the notes of the evidence
_SHOWN = 3  # names in a sentence; all are on /metrics and in `tidegate explain`


class EventReason(StrEnum):
    """An Event's reason: one word, for columns and for machines."""

    ASLEEP = "Asleep"
    WOKEN = "Woken"
    HELD = "Held"
    INCOMPLETE = "Incomplete"
    UNKNOWN = "Unknown"
    CAPPED = "Capped"
    CAPACITY_LIMITED = "CapacityLimited"
    NO_WAKE_SOURCE = "NoWakeSource"
    WAKE_SOURCE_LOST = "WakeSourceLost"
    BRAKE_ENDED = "BrakeEnded"
    ENGINES_ASLEEP = "EnginesAsleep"
    ENGINES_WOKEN = "EnginesWoken"

    @property
    def type(self) -> str:
        """Warning if a person should act."""
        return NORMAL if self in _NORMAL else WARNING

    @property
    def action(self) -> str:
        return _ACTIONS[self]


_ACTIONS = {
    EventReason.ASLEEP: "Sleep",
    EventReason.WOKEN: "Wake",
    EventReason.HELD: "Hold",
    EventReason.INCOMPLETE: "Hold",
    EventReason.UNKNOWN: "GiveUp",
    EventReason.CAPPED: "Cap",
    EventReason.CAPACITY_LIMITED: "Cap",
    EventReason.NO_WAKE_SOURCE: "StayAwake",
    EventReason.WAKE_SOURCE_LOST: "StayAtZero",
    EventReason.BRAKE_ENDED: "ReleaseBrake",
    EventReason.ENGINES_ASLEEP: "Sleep",
    EventReason.ENGINES_WOKEN: "Wake",
}
_NORMAL = frozenset(
    {
        EventReason.ASLEEP,
        EventReason.WOKEN,
        EventReason.BRAKE_ENDED,
        EventReason.ENGINES_ASLEEP,
        EventReason.ENGINES_WOKEN,
    }
)
_REASONS = {
    Reason.UNKNOWN: EventReason.UNKNOWN,
    Reason.CAPPED: EventReason.CAPPED,
    Reason.CAPACITY_LIMITED: EventReason.CAPACITY_LIMITED,
    Reason.INCOMPLETE: EventReason.INCOMPLETE,
}


def news(before: Decision | None, after: Decision, at: float) -> tuple[EventReason, ...]:
    """The Events of a change. at: POSIX seconds of the second decision."""
    if before is None or before.observed or after.observed:
        return ()
    if _compared(before) == _compared(after):
        return ()
    found = (_of_zero(before, after), _of_reason(before, after), _of_brake(before, after, at), _of_sleep(before, after))
    return tuple(reason for reason in found if reason is not None)


def _compared(decision: Decision) -> tuple[object, ...]:
    return decision.reason, decision.active, decision.evidence.brake, decision.evidence.sleep_tier


def _of_sleep(before: Decision, after: Decision) -> EventReason | None:
    """The Event of engines that sleep or wake while their replica stays; going to zero and back has its own."""
    match before.evidence.sleep_tier, after.evidence.sleep_tier:
        case "ready", "asleep":
            return EventReason.ENGINES_ASLEEP
        case "asleep", "ready":
            return EventReason.ENGINES_WOKEN
    return None


def _of_zero(before: Decision, after: Decision) -> EventReason | None:
    if before.active and not after.active:
        return EventReason.ASLEEP
    return EventReason.WOKEN if after.active and not before.active and after.replicas is not None else None


def _of_reason(before: Decision, after: Decision) -> EventReason | None:
    if after.reason is before.reason:
        return None
    if after.reason is Reason.HELD:
        return EventReason.HELD if before.replicas is not None else None  # after unknown it is an improvement
    if after.reason is Reason.NO_WAKE_SOURCE:
        # At zero it is not kept awake: it stays at zero, and nothing would wake it again.
        return EventReason.NO_WAKE_SOURCE if after.active else EventReason.WAKE_SOURCE_LOST
    if after.reason is Reason.INCOMPLETE and not after.active and not after.evidence.wake_source:
        return EventReason.WAKE_SOURCE_LOST
    return _REASONS.get(after.reason)


def _of_brake(before: Decision, after: Decision, at: float) -> EventReason | None:
    """Only the end of its time: a person who removes a brake needs no Event."""
    until, brake = before.evidence.brake_until, before.evidence.brake
    over = brake is not None and brake != after.evidence.brake and until is not None and until <= at
    return EventReason.BRAKE_ENDED if over else None


def sentence(reason: EventReason, before: Decision, after: Decision) -> str:
    evidence = after.evidence
    match reason:
        case EventReason.ASLEEP:
            return f"asleep: {_idle(after)}" + (
                f", and its wake source is {evidence.wake_source}" if evidence.wake_source else ""
            )
        case EventReason.WOKEN:
            return f"awake, {replicas(after)} wanted: {_why_awake(after)}"
        case EventReason.HELD:
            blind = "" if after.replicas or evidence.wake_source else f"; {NO_WAKE_SOURCE}"
            at = f"at {replicas(after)}" if after.replicas else "at zero"
            return f"held {at}, as decided last{blind}: {stale(evidence, _SHOWN)}"
        case EventReason.INCOMPLETE:
            kept = "no replica is removed" if after.active else "stays at zero"
            return f"{kept}: {incomplete(evidence, _SHOWN)}"
        case EventReason.UNKNOWN:
            return f"unknown: {stale(evidence, _SHOWN)}; KEDA and the HPA get an error, never a zero"
        case EventReason.CAPPED:
            return f"capped at {replicas(after)}, its maximum{_needed(evidence)}"
        case EventReason.CAPACITY_LIMITED:
            return f"limited to {replicas(after)} by its share of the GPUs{_needed(evidence)}"
        case EventReason.NO_WAKE_SOURCE:
            return f"not scaled to zero: {_idle(after)}, and {_blind(evidence)}"
        case EventReason.WAKE_SOURCE_LOST:
            lost = before.evidence.wake_source
            return f"stays at zero; {NO_WAKE_SOURCE}: {f'{lost} is gone' if lost else _why_blind(evidence)}"
        case EventReason.BRAKE_ENDED:
            return f"a brake has ended: {before.evidence.brake}"
        case EventReason.ENGINES_ASLEEP | EventReason.ENGINES_WOKEN:
            return _engines(after)


def _engines(decision: Decision) -> str:
    if decision.evidence.sleep_tier == "asleep":
        return f"engines asleep: {_idle(decision)}; {decision.evidence.sleep}"
    return f"engines woken: {_why_awake(decision)}"


def _idle(decision: Decision) -> str:
    """As of the decision."""
    return idle(decision, decision.decided_at)


def _why_awake(decision: Decision) -> str:
    evidence = decision.evidence
    counts = {"waiting": round(evidence.queued or 0.0), "in progress": round(evidence.running or 0.0)}
    parts = [f"{count} {word}" for word, count in counts.items() if count]
    if parts:
        return f"requests: {', '.join(parts)}"
    match decision.reason:
        case Reason.FROZEN if evidence.brake is not None:
            return evidence.brake
        case Reason.SCHEDULED if evidence.schedule is not None:
            return evidence.schedule
        case Reason.WARM if evidence.starts_again_at is not None:
            return "the next request is predicted"
        case Reason.HELD:
            return stale(evidence, _SHOWN)
        case Reason.INCOMPLETE:
            return incomplete(evidence, _SHOWN)
        case Reason.NO_WAKE_SOURCE:
            return _blind(evidence)
    return str(decision.reason)


def _needed(evidence: Evidence) -> str:
    demands = [(each.replicas, each.name) for each in evidence.objectives if each.replicas is not None]
    if not demands:
        return ""
    most, name = max(demands)
    return f": {name} needs {most:.1f}"


def _blind(evidence: Evidence) -> str:
    """Why the next request would not be seen, as a note of the evidence has it."""
    return next((note for note in evidence.notes if _NOTE in note), _NOTE)


def _why_blind(evidence: Evidence) -> str:
    """The cause alone: "the gateway does not answer"."""
    cause, found, _ = _blind(evidence).partition(f", so {_NOTE}")
    return cause if found else "no wake source is known"
