"""Which change of an answer is worth an Event, and its sentence. Pure.

It knows two Decisions on one workload, one after the other, and refuses to know who hears of it and how often. A first
Decision is no change: a restart tells nobody anything. One that is only observed moves
nothing, and that it is from now on, or no more, is somebody's own doing.

Worked example: from `serving` at 2 to `asleep`, idle since 312 s, `news` is `(Kind.ASLEEP,)` and `sentence` of it
"asleep: idle for 5m12s, and its waker is the queue on http://epp:9090/metrics".
"""

from __future__ import annotations

from enum import StrEnum

from scaler.config.scalars import write_duration
from scaler.model import Decision, Evidence, Reason

NORMAL, WARNING = "Normal", "Warning"
_UNSEEN = "nothing would see the next request"
_NOTHING_SEES = "nothing would see a request at zero replicas"  # as in the evidence's notes
_STALE_SHOWN = 3  # who else is silent is on /metrics and in `tidegate explain`


class EventReason(StrEnum):
    """An Event's reason: one word, for columns and for machines."""

    ASLEEP = "Asleep"
    WOKEN = "Woken"
    HELD = "Held"
    INCOMPLETE = "Incomplete"
    UNKNOWN = "Unknown"
    CAPPED = "Capped"
    NO_WAKER = "NoWaker"
    WAKE_SOURCE_LOST = "WakeSourceLost"
    BRAKE_ENDED = "BrakeEnded"

    @property
    def type(self) -> str:
        """Warning is what somebody should look at."""
        return NORMAL if self in {EventReason.ASLEEP, EventReason.WOKEN, EventReason.BRAKE_ENDED} else WARNING

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
    EventReason.NO_WAKER: "StayAwake",
    EventReason.WAKE_SOURCE_LOST: "StayAtZero",
    EventReason.BRAKE_ENDED: "ReleaseBrake",
}
_REASONS = {
    Reason.UNKNOWN: EventReason.UNKNOWN,
    Reason.CAPPED: EventReason.CAPPED,
    Reason.INCOMPLETE: EventReason.INCOMPLETE,
}


def news(before: Decision | None, after: Decision, at: float) -> tuple[EventReason, ...]:
    """What has happened between two answers. at: POSIX seconds of the second."""
    if before is None or before.observed or after.observed:
        return ()
    if (before.reason, before.active, before.evidence.brake) == (after.reason, after.active, after.evidence.brake):
        return ()
    found = (_of_zero(before, after), _of_reason(before, after), _of_brake(before, after, at))
    return tuple(kind for kind in found if kind is not None)


def _of_zero(before: Decision, after: Decision) -> EventReason | None:
    if before.active and not after.active:
        return EventReason.ASLEEP
    return EventReason.WOKEN if after.active and not before.active and after.known else None


def _of_reason(before: Decision, after: Decision) -> EventReason | None:
    if after.reason is before.reason:
        return None
    if after.reason is Reason.HELD:
        return EventReason.HELD if before.known else None  # from unknown it can only have become better
    if after.reason is Reason.NO_WAKER:
        # At zero it is not kept awake: it stays at zero, and nothing would take it up again.
        return EventReason.NO_WAKER if after.active else EventReason.WAKE_SOURCE_LOST
    if after.reason is Reason.INCOMPLETE and not after.active and not after.evidence.waker:
        return EventReason.WAKE_SOURCE_LOST
    return _REASONS.get(after.reason)


def _of_brake(before: Decision, after: Decision, at: float) -> EventReason | None:
    """One that somebody takes away needs no Event: they know."""
    until, brake = before.evidence.brake_until, before.evidence.brake
    over = brake is not None and brake != after.evidence.brake and until is not None and until <= at
    return EventReason.BRAKE_ENDED if over else None


def sentence(kind: EventReason, before: Decision, after: Decision) -> str:
    match kind:
        case EventReason.ASLEEP:
            waker = after.evidence.waker
            return f"asleep: {_idle(after)}" + (f", and its waker is {waker}" if waker else "")
        case EventReason.WOKEN:
            return f"awake, {_replicas(after)} wanted: {_why_awake(after)}"
        case EventReason.HELD:
            blind = "" if after.replicas or after.evidence.waker else f"; {_UNSEEN}"
            at = f"at {_replicas(after)}" if after.replicas else "at zero"
            return f"held {at}, as it was decided last{blind}: {_silent(after.evidence)}"
        case EventReason.INCOMPLETE:
            keeps = "no replica is taken away" if after.active else "stays at zero"
            return f"{keeps}: {_lower_bounds(after.evidence)}"
        case EventReason.UNKNOWN:
            return f"unknown: {_silent(after.evidence)}; whoever asks is told an error, and changes nothing"
        case EventReason.CAPPED:
            return f"capped at {_replicas(after)}, its maximum{_needed(after.evidence)}"
        case EventReason.NO_WAKER:
            return f"not put to sleep: {_idle(after)}, and {_blind(after.evidence)}"
        case EventReason.WAKE_SOURCE_LOST:
            waker = before.evidence.waker
            return f"stays at zero; {_UNSEEN}: {f'{waker} is gone' if waker else _why_blind(after.evidence)}"
        case EventReason.BRAKE_ENDED:
            return f"a brake has ended: {before.evidence.brake}"


def _idle(decision: Decision) -> str:
    """As of the moment of the decision."""
    if decision.idle_since is None:
        return "idle"
    return f"idle for {write_duration(round(max(0.0, decision.decided_at - decision.idle_since)))}"


def _replicas(decision: Decision) -> str:
    return "1 replica" if decision.replicas == 1 else f"{decision.replicas} replicas"


def _why_awake(decision: Decision) -> str:
    evidence = decision.evidence
    waiting = (evidence.waiting or 0.0) + (evidence.held_by_gateway or 0.0)
    counts = {"wait": round(waiting), "run": round(evidence.running or 0.0)}
    parts = [f"{count} {verb}{'s' if count == 1 else ''}" for verb, count in counts.items() if count]
    if parts:
        return f"of its requests {' and '.join(parts)}"
    match decision.reason:
        case Reason.FROZEN if evidence.brake is not None:
            return evidence.brake
        case Reason.SCHEDULED if evidence.schedule is not None:
            return evidence.schedule
        case Reason.WARM if evidence.starts_again_at is not None:
            return "the next request is foreseen"
        case Reason.HELD:
            return _silent(evidence)
        case Reason.INCOMPLETE:
            return _lower_bounds(evidence)
        case Reason.NO_WAKER:
            return _blind(evidence)
    return str(decision.reason)


def _silent(evidence: Evidence) -> str:
    """Whose readings are missing."""
    if not evidence.stale:
        return evidence.notes[0] if evidence.notes else "its readings are missing or too old"
    more = len(evidence.stale) - _STALE_SHOWN
    return f"nothing fresh from {', '.join(evidence.stale[:_STALE_SHOWN])}" + (f" and {more} more" if more > 0 else "")


def _lower_bounds(evidence: Evidence) -> str:
    more = len(evidence.incomplete) - _STALE_SHOWN
    shown = ", ".join(evidence.incomplete[:_STALE_SHOWN]) or "some of its readings are incomplete"
    return shown + (f" and {more} more" if more > 0 else "")


def _needed(evidence: Evidence) -> str:
    demands = [(each.replicas, each.name) for each in evidence.objectives if each.replicas is not None]
    if not demands:
        return ""
    most, name = max(demands)
    return f": {name} asks for {most:.1f}"


def _blind(evidence: Evidence) -> str:
    """Why the next request would not be seen, as the evidence says it."""
    return next((note for note in evidence.notes if _NOTHING_SEES in note), _NOTHING_SEES)


def _why_blind(evidence: Evidence) -> str:
    """The cause alone: "the gateway does not answer"."""
    cause, so, _ = _blind(evidence).partition(f", so {_NOTHING_SEES}")
    return cause if so else "nothing that lives at zero replicas is known"
