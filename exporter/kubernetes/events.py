"""An Event of the Kubernetes API: what happened to an object, where `kubectl describe` shows it. Documents and values.

It is written by events.k8s.io/v1, which has a series for what happens again and in which all but the series is for
good; core/v1, whose objects are the same, has only counters that the server no longer looks after. kubectl reads them
as core/v1: `describe` asks for the UID of the object, and shows `series.count` as "x4 over 12m". What is worth an
Event, and how often, is not for this room to say.

Worked example: of `Happening(Subject("apps/v1", Ref("ai", "Deployment", "chat"), "4711"), None, "Normal", "Asleep",
"Sleep", "asleep: idle for 5m", 0.0)`, `document(that, "tidegate-0")` is what to POST to `path("ai")`; the same again a
minute later is `series(2, 60.0)` to PATCH `path("ai", name)` with.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from .fields import micro_time
from .objects import Ref
from .protocol import ApiFailure, Document, start

EVENTS = "/apis/events.k8s.io/v1/namespaces/{}/events"
CONTROLLER = "tidegate"
LONGEST_NOTE = 1024  # bytes (NoteLengthLimit of Kubernetes' validation, which is Go's len); more would be refused


class Subject(NamedTuple):
    """The object that an Event is on. api_version: "apps/v1". uid: without the right one `kubectl describe` shows
    nothing.
    """

    api_version: str
    ref: Ref
    uid: str


class Happening(NamedTuple):
    """related: another object that has a part in it. type: "Normal" or "Warning". reason: one word, as `Asleep`, for
    machines and columns; action: what was done; note: a sentence. at: POSIX seconds.
    """

    subject: Subject
    related: Subject | None
    type: str
    reason: str
    action: str
    note: str
    at: float


class Events(Protocol):
    """What whoever tells of something asks of the API. Each call raises ApiFailure."""

    async def write_event(self, happening: Happening, instance: str) -> str:
        """Create it; returns its name. instance: which process says so."""

    async def repeat_event(self, namespace: str, name: str, count: int, at: float) -> None:
        """It has happened so often by now, 2 at least. If it is not kept any more (an hour, as a rule), the
        ApiFailure's status is 404.
        """


def path(namespace: str, name: str = "") -> str:
    """Of one, or of all in the namespace, where a new one is posted."""
    own = EVENTS.format(quote(namespace, safe=""))
    return f"{own}/{quote(name, safe='')}" if name else own


def right(namespace: str) -> str:
    """What to give Tidegate, should RBAC not allow it."""
    rule = 'apiGroups ["events.k8s.io"], resources ["events"], verbs ["create", "patch"]'
    words = f"give Tidegate's ServiceAccount a ClusterRole, or a Role in {namespace}, with {rule}"
    return f"{words}, or set kubernetes.events: false"


def document(happening: Happening, instance: str) -> Document:
    related = {} if happening.related is None else {"related": _reference(happening.related)}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        # The server adds what makes the name unlike any other, and cuts it where it is too long for that. It refuses a
        # prefix that ends with a dot.
        "metadata": {"generateName": f"{happening.subject.ref.name}-", "namespace": happening.subject.ref.namespace},
        "eventTime": micro_time(happening.at),
        "reportingController": CONTROLLER,
        "reportingInstance": instance[:128],
        "type": happening.type,
        "reason": happening.reason,
        "action": happening.action,
        "note": _cut(happening.note),
        "regarding": _reference(happening.subject),
        **related,
    }


def series(count: int, at: float) -> Document:
    """A merge patch. count: of all times, the first included; the API takes none below 2."""
    return {"series": {"count": count, "lastObservedTime": micro_time(at)}}


def name(asked: str, body: bytes) -> str:
    """Of the Event that the API answers with. Raises ApiFailure if that is none."""
    try:
        found = json.loads(body)["metadata"]["name"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise _no_event(asked, body) from error
    if not isinstance(found, str) or not found:
        raise _no_event(asked, body)
    return found


def _no_event(asked: str, body: bytes) -> ApiFailure:
    return ApiFailure(None, f"{asked}: no Event: {start(body)!r}")


def _reference(subject: Subject) -> dict[str, Any]:
    namespace, kind, called = subject.ref
    known = {"uid": subject.uid} if subject.uid else {}
    return {"apiVersion": subject.api_version, "kind": kind, "namespace": namespace, "name": called, **known}


def _cut(note: str) -> str:
    written, more = note.encode(), "…".encode()
    if len(written) <= LONGEST_NOTE:
        return note
    return (written[: LONGEST_NOTE - len(more)] + more).decode(errors="ignore")
