"""What the rest of the project asks of a Kubernetes API, and the ways in which it can fail. No client is in here.

Two questions are enough: a list, page by page, and a watch, which tells what happened since. An object is the
API's own JSON as a dict; what it means is not for this room to say.

Worked example: `page(PODS, "ai", "")` is `Page([{...}, {...}], version="4711", after="")`, and
`watch(PODS, "ai", "4711")` yields `OPENED`, then `Event("MODIFIED", {...}, "4712")` when a pod changes.

What the Kubernetes API says, read: bytes in, pages, events and failures out.

Nothing here knows a socket, nor what a pod is. A line of a watch that cannot be read costs itself and says so; a list
that cannot be read whole is no list.

Worked example: `event(asked, b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"4790"}}}')` is
`Event("BOOKMARK", {...}, "4790")`; the same with `"type":"ERROR"` and a Status of code 410 raises `Gone`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

from .resources import Resource

Document = dict[str, Any]

ADDED, MODIFIED, DELETED, BOOKMARK = "ADDED", "MODIFIED", "DELETED", "BOOKMARK"


class ListPage(NamedTuple):
    """A part of a list. version: of the list as a whole. after: what to ask the next page with; "" on the last one."""

    items: list[Document]
    version: str
    after: str


class Event(NamedTuple):
    """One thing that happened. version: where the watch now is; "" if the object does not say."""

    type: str
    document: Document
    version: str


class Garbled(NamedTuple):
    """Something happened, and the line that told it was not readable: one change is lost."""

    detail: str


class Opened(NamedTuple):
    """The API has taken the watch: what comes from here on is news, and silence means that there is none."""


OPENED = Opened()


class ApiFailure(Exception):  # noqa: N818 - it is an answer, or the lack of one, and no error of ours
    """No answer, or none to work with.

    status:        of HTTP, or of the API's own Status object; None if nobody answered.
    detail:        a sentence for a person: what was asked, what came, and what to do where we know it.
    retry_after_s: how long the API asks us to leave it alone; None if it does not say.
    """

    def __init__(self, status: int | None, detail: str, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.retry_after_s = retry_after_s


class Absent(ApiFailure):
    """404: the cluster has no such resource."""


class Gone(ApiFailure):
    """410: the API has forgotten what came after that version, or the rest of that list. A new list is due."""


class Forbidden(ApiFailure):
    """403: it is there, and not for us."""


class Ending(ApiFailure):
    """403: its namespace is being deleted and takes nothing new, whatever our rights are."""


class CannotConnect(Exception):  # noqa: N818 - it is said to a person, and the word is the message
    """Nothing says where the API is or who we are; names the file and the reason."""


class Api(Protocol):
    async def page(self, resource: Resource, namespace: str | None, after: str) -> ListPage:
        """A page of the list as it is now; `after`: "" for the first. Raises ApiFailure."""

    def watch(
        self, resource: Resource, namespace: str | None, version: str
    ) -> AsyncGenerator[Opened | Event | Garbled, None]:
        """What happened after `version`, as it happens; `OPENED` first.

        Ends when the server ends it, when the connection breaks, or when it has been silent for too long: all three
        mean to ask again from the last version. Raises ApiFailure if it cannot be opened or the API breaks it off.
        """


SHOWN = 300  # characters of an answer that get into a sentence


class ListRequest(NamedTuple):
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


def page(asked: ListRequest, body: bytes) -> ListPage:
    """A page of a list. Raises ApiFailure if it is none."""
    try:
        answer = json.loads(body)
        version, after = answer["metadata"]["resourceVersion"], answer["metadata"].get("continue") or ""
        items = answer["items"] or []  # Go writes an empty list as null now and then
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ApiFailure(None, f"{asked}: not a list as the Kubernetes API answers: {start(body)!r}") from error
    if not (isinstance(items, list) and isinstance(version, str) and version and isinstance(after, str)):
        raise ApiFailure(None, f"{asked}: a list without items or resourceVersion: {start(body)!r}")
    return ListPage([_lean(item) for item in items], version, after)


def event(asked: ListRequest, line: bytes) -> Event | Garbled:
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


def failure(asked: ListRequest, status: int, retry_after: str | None, body: bytes) -> ApiFailure:
    """What an HTTP status other than 200 means. retry_after: the header of that name."""
    try:
        message = _message(json.loads(body))
    except (ValueError, RecursionError):
        message = ""
    wait_s = float(retry_after) if retry_after is not None and retry_after.isdecimal() else None
    return _broken(asked, status, message or start(body), wait_s)


def _broken(asked: ListRequest, status: int | None, message: str, retry_after_s: float | None) -> ApiFailure:
    says = f": the API server says: {message}" if message else ""
    match status:
        case HTTPStatus.UNAUTHORIZED:
            hint = "it does not know us: is the token, or the kubeconfig's user, of this cluster, and not expired?"
            return ApiFailure(status, f"{asked}: HTTP 401, {hint}{says}", retry_after_s)
        case HTTPStatus.FORBIDDEN:
            return Forbidden(status, f"{asked}: HTTP 403, {_right(asked)}{says}", retry_after_s)
        case HTTPStatus.NOT_FOUND:
            return Absent(status, f"{asked}: HTTP 404, the cluster has no such resource{says}", retry_after_s)
        case HTTPStatus.GONE:
            return Gone(status, f"{asked}: HTTP 410{says}", retry_after_s)
    what = "an error" if status is None else f"HTTP {status}"
    return ApiFailure(status, f"{asked}: {what}{says}", retry_after_s)


def _right(asked: ListRequest) -> str:
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
