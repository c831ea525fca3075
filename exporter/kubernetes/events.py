"""Builds Kubernetes Events, which `kubectl describe` shows beside an object.

Events are written by events.k8s.io/v1, where a series counts repetitions and all other fields are immutable. The same
objects by core/v1 have only counters that the server no longer maintains. kubectl reads them as core/v1: `describe`
selects by the UID of the object, and shows `series.count` as "x4 over 12m".

Worked example: of `Happening(Subject("apps/v1", Ref("ai", "Deployment", "chat"), "4711"), None, "Normal", "Asleep",
"Sleep", "asleep: idle for 5m", 0.0)`, `document(happening, "tidegate-0")` is the body to POST. When it happens again
a minute later, `series(2, 60.0)` is the body to PATCH it with.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from .fields import micro_time
from .objects import Ref
from .protocol import ApiFailure, Document, excerpt, section

CONTROLLER = "tidegate"
LONGEST_NOTE = 1024  # bytes (NoteLengthLimit of Kubernetes' validation, which uses Go's len); longer ones are refused
LONGEST_INSTANCE = 128  # characters of reportingInstance


class Subject(NamedTuple):
    """The object of an Event. api_version: "apps/v1". uid: `kubectl describe` selects Events by it."""

    api_version: str
    ref: Ref
    uid: str


class EventRecord(NamedTuple):
    """related: another object that is involved. type: "Normal" or "Warning". reason: one word, such as `Asleep`.
    action: what was done. note: a sentence. at: POSIX seconds.
    """

    subject: Subject
    related: Subject | None
    type: str
    reason: str
    action: str
    note: str
    at: float


class Events(Protocol):
    """The API calls that an event writer uses. Each raises ApiFailure."""

    async def write_event(self, happening: EventRecord, instance: str) -> str:
        """Create it; returns its name. instance: the process that reports it."""

    async def repeat_event(self, namespace: str, name: str, count: int, at: float) -> None:
        """Set its count, at least 2. If the Event has expired (after an hour, as a rule), the ApiFailure's status is
        404.
        """


def document(happening: EventRecord, instance: str) -> Document:
    related = {} if happening.related is None else {"related": _reference(happening.related)}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        # The server makes the name unique, and cuts it where it is too long for that. It refuses a prefix that ends
        # with a dot.
        "metadata": {"generateName": f"{happening.subject.ref.name}-", "namespace": happening.subject.ref.namespace},
        "eventTime": micro_time(happening.at),
        "reportingController": CONTROLLER,
        "reportingInstance": instance[:LONGEST_INSTANCE],
        "type": happening.type,
        "reason": happening.reason,
        "action": happening.action,
        "note": _shortened(happening.note),
        "regarding": _reference(happening.subject),
        **related,
    }


def series(count: int, at: float) -> Document:
    """A merge patch. count: all occurrences, the first included; the API refuses less than 2."""
    return {"series": {"count": count, "lastObservedTime": micro_time(at)}}


def name(action: str, body: bytes) -> str:
    """The name of a created Event. Raises ApiFailure if the body is none."""
    found = section(action, body, "metadata").get("name")
    if not isinstance(found, str) or not found:
        raise ApiFailure(None, f"{action}: no Event: {excerpt(body)!r}")
    return found


def _reference(subject: Subject) -> dict[str, Any]:
    namespace, kind, name = subject.ref
    uid = {"uid": subject.uid} if subject.uid else {}
    return {"apiVersion": subject.api_version, "kind": kind, "namespace": namespace, "name": name, **uid}


def _shortened(note: str) -> str:
    encoded, ellipsis = note.encode(), "…".encode()
    if len(encoded) <= LONGEST_NOTE:
        return note
    return (encoded[: LONGEST_NOTE - len(ellipsis)] + ellipsis).decode(errors="ignore")
