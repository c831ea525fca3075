"""What the Kubernetes API says, read: bytes in, pages, events and failures out.

Nothing here knows a socket, nor what a pod is. A line of a watch that cannot be read costs itself and says so; a list
that cannot be read whole is no list.

Worked example: `event(asked, b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"4790"}}}')` is
`Event("BOOKMARK", {...}, "4790")`; the same with `"type":"ERROR"` and a Status of code 410 raises `Gone`.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, NamedTuple

from .api import Absent, ApiFailure, Document, Event, Garbled, Gone, Page, Refused
from .resources import Resource

SHOWN = 300  # characters of an answer that get into a sentence


class Asked(NamedTuple):
    """What was asked, for the sentences. verb: "list" or "watch"."""

    verb: str
    resource: Resource
    namespace: str | None

    def __str__(self) -> str:
        if not self.resource.namespaced:
            return f"{self.verb} {self.resource}"
        where = f"of namespace {self.namespace}" if self.namespace else "of all namespaces"
        return f"{self.verb} {self.resource} {where}"


class Lines:
    """Lines out of chunks, however long: an object has up to about 3 MB, more than a reader's buffer."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are complete now, without their line feeds; empty ones are left out."""
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._parts, lines[0]))
            self._parts = []
        self._parts.append(rest)
        return [line for line in lines if line.strip()]


def page(asked: Asked, body: bytes) -> Page:
    """A page of a list. Raises ApiFailure if it is none."""
    try:
        answer = json.loads(body)
        version, after = answer["metadata"]["resourceVersion"], answer["metadata"].get("continue") or ""
        items = answer["items"] or []  # Go writes an empty list as null now and then
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ApiFailure(None, f"{asked}: not a list as the Kubernetes API answers: {start(body)!r}") from error
    if not (isinstance(items, list) and isinstance(version, str) and version and isinstance(after, str)):
        raise ApiFailure(None, f"{asked}: a list without items or resourceVersion: {start(body)!r}")
    return Page([_lean(item) for item in items], version, after)


def event(asked: Asked, line: bytes) -> Event | Garbled:
    """One line of a watch. Raises ApiFailure if it says that the watch is over."""
    try:
        said = json.loads(line)
        happened, document = said["type"], said["object"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return Garbled(f"{asked}: a line that cannot be read: {start(line)!r}")
    if not (isinstance(happened, str) and isinstance(document, dict)):
        return Garbled(f"{asked}: a line that is not an event: {start(line)!r}")
    if happened == "ERROR":
        code = document.get("code")
        raise _broken(asked, code if isinstance(code, int) else None, _message(document), None)
    metadata = document.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return Event(happened, document, version if isinstance(version, str) else "")


def failure(asked: Asked, status: int, retry_after: str | None, body: bytes) -> ApiFailure:
    """What an HTTP status other than 200 means. retry_after: the header of that name."""
    try:
        message = _message(json.loads(body))
    except (ValueError, RecursionError):
        message = ""
    wait_s = float(retry_after) if retry_after is not None and retry_after.isdecimal() else None
    return _broken(asked, status, message or start(body), wait_s)


def _broken(asked: Asked, status: int | None, message: str, retry_after_s: float | None) -> ApiFailure:
    says = f": the API server says: {message}" if message else ""
    match status:
        case HTTPStatus.UNAUTHORIZED:
            hint = "it does not know us: is the token, or the kubeconfig's user, of this cluster, and not expired?"
            return ApiFailure(status, f"{asked}: HTTP 401, {hint}{says}", retry_after_s)
        case HTTPStatus.FORBIDDEN:
            return Refused(status, f"{asked}: HTTP 403, {_right(asked)}{says}", retry_after_s)
        case HTTPStatus.NOT_FOUND:
            return Absent(status, f"{asked}: HTTP 404, the cluster has no such resource{says}", retry_after_s)
        case HTTPStatus.GONE:
            return Gone(status, f"{asked}: HTTP 410{says}", retry_after_s)
    what = "an error" if status is None else f"HTTP {status}"
    return ApiFailure(status, f"{asked}: {what}{says}", retry_after_s)


def _right(asked: Asked) -> str:
    """What to give whom."""
    resource = asked.resource
    kind = "ClusterRole" if asked.namespace is None or not resource.namespaced else f"Role in {asked.namespace}"
    return (
        f'RBAC does not allow it: give Tidegate\'s ServiceAccount a {kind} with apiGroups ["{resource.group}"], '
        f'resources ["{resource.name}"], verbs ["list", "watch"]'
    )


def _message(status: Any) -> str:
    """Of the API's Status object."""
    message = status.get("message") if isinstance(status, dict) else None
    return message if isinstance(message, str) else ""


def start(body: bytes) -> str:
    """So much of it as fits into a message."""
    return body[:SHOWN].decode(errors="replace").strip()


def _lean(item: Any) -> Document:
    """Without the bookkeeping of `kubectl apply`, a third of an object, while a list of thousands is collected. What
    is no object at all stays one malformed document, for whoever counts those.
    """
    if not isinstance(item, dict):
        return {}
    metadata = item.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
    return item
