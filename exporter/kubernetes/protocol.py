"""Parses responses of the Kubernetes API: bytes in; pages, events and failures out. Defines what a client must offer.

Two requests are enough to follow a resource: a list, page by page, and a watch of what changes after it. An object is
the API's own JSON as a dict. A watch line that cannot be read is dropped and reported; a list that cannot be read in
full is refused.

Worked example: `Api.page(PODS, "ai", "")` returns `ListPage([{...}, {...}], version="4711", after="")`. Then
`Api.watch(PODS, "ai", "4711")` yields `OPENED` and, when a pod changes, `Event("MODIFIED", {...}, "4712")`, which
`event` parses from a line. A line of type ERROR with a Status of code 410 raises `Gone`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

from .resources import Resource, permission

Document = dict[str, Any]

ADDED, MODIFIED, DELETED, BOOKMARK = "ADDED", "MODIFIED", "DELETED", "BOOKMARK"
EXCERPT_BYTES = 300  # of a response, in a message


class ListPage(NamedTuple):
    """A part of a list. version: of the list as a whole. after: continue token of the next page; "" on the last one."""

    items: list[Document]
    version: str
    after: str


class Event(NamedTuple):
    """A change. version: the resource version of the watch after it; "" if the object has none."""

    type: str
    document: Document
    version: str


class Garbled(NamedTuple):
    """A watch line that cannot be read: one change is lost."""

    detail: str


class Opened(NamedTuple):
    """The API has accepted the watch: events follow, and silence means that nothing changes."""


OPENED = Opened()


class ApiFailure(Exception):  # noqa: N818 - a response, or the lack of one, and not an error of this program
    """A request without a usable response.

    status:        of HTTP, or of the API's Status object; None without a response.
    detail:        for people: the request, the response, and the remedy where it is known.
    retry_after_s: how long the API asks clients to wait; None if it does not.
    """

    def __init__(self, status: int | None, detail: str, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.retry_after_s = retry_after_s


class NotFound(ApiFailure):
    """404: the cluster has no such object or resource."""


class Gone(ApiFailure):
    """410: the API no longer has the changes after that version, or the rest of that list. List again."""


class Forbidden(ApiFailure):
    """403 of RBAC."""


class NamespaceTerminating(ApiFailure):
    """403: the namespace is being deleted and accepts nothing new, whatever RBAC allows."""


class CannotConnect(Exception):  # noqa: N818 - the message begins with the name of the file
    """There is no address of the API or no credentials. Names the file and the reason."""


class Api(Protocol):
    async def page(self, resource: Resource, namespace: str | None, after: str) -> ListPage:
        """A page of the list as it is now; `after`: "" for the first. Raises ApiFailure."""

    def watch(
        self, resource: Resource, namespace: str | None, version: str
    ) -> AsyncGenerator[Opened | Event | Garbled, None]:
        """Changes after `version`, as they happen; `OPENED` first.

        Ends when the server ends it, when the connection breaks, or after too long a silence: watch again from the last
        version. Raises ApiFailure if it cannot be opened or the API reports an error.
        """


class ListRequest(NamedTuple):
    """A list or a watch, for messages. verb: "list" or "watch"."""

    verb: str
    resource: Resource
    namespace: str | None

    def __str__(self) -> str:
        if not self.resource.namespaced:
            return f"{self.verb} {self.resource}"
        scope = f"of namespace {self.namespace}" if self.namespace else "of all namespaces"
        return f"{self.verb} {self.resource} {scope}"

    @property
    def permission(self) -> str:
        """The RBAC rule to grant if the request is forbidden."""
        return permission(self.resource, self.namespace, "list", "watch")


class Lines:
    """Splits chunks into lines of any length: an object has up to about 3 MB, more than a stream reader's buffer."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are complete now, without their line feeds and without blank lines."""
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._parts, lines[0]))
            self._parts = []
        self._parts.append(rest)
        return [line for line in lines if line.strip()]


def page(request: ListRequest, body: bytes) -> ListPage:
    """A page of a list. Raises ApiFailure if the body is not one."""
    try:
        response = json.loads(body)
        version, after = response["metadata"]["resourceVersion"], response["metadata"].get("continue") or ""
        items = response["items"] or []  # Go writes an empty list as null now and then
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ApiFailure(None, f"{request}: not a list of the Kubernetes API: {excerpt(body)!r}") from error
    if not (isinstance(items, list) and isinstance(version, str) and version and isinstance(after, str)):
        raise ApiFailure(None, f"{request}: a list without items or resourceVersion: {excerpt(body)!r}")
    return ListPage([_without_managed_fields(item) for item in items], version, after)


def event(request: ListRequest, line: bytes) -> Event | Garbled:
    """One line of a watch. Raises ApiFailure if it reports an error, which ends the watch."""
    try:
        parsed = json.loads(line)
        type_, document = parsed["type"], parsed["object"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return Garbled(f"{request}: a line that cannot be read: {excerpt(line)!r}")
    if not (isinstance(type_, str) and isinstance(document, dict)):
        return Garbled(f"{request}: a line that is not an event: {excerpt(line)!r}")
    if type_ == "ERROR":
        code = document.get("code")
        raise _failure(request, request.permission, code if isinstance(code, int) else None, document, "")
    metadata = document.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return Event(type_, document, version if isinstance(version, str) else "")


def section(action: object, body: bytes, key: str) -> Document:
    """The object at `key` of a response; an empty one if there is none. Raises ApiFailure if the body is no object."""
    try:
        found = json.loads(body).get(key) or {}
    except (ValueError, RecursionError, AttributeError):
        found = None
    if not isinstance(found, dict):
        raise ApiFailure(None, f"{action}: not a response of the Kubernetes API: {excerpt(body)!r}")
    return found


def failure(action: object, grant: str, status: int, body: bytes, retry_after: str | None = None) -> ApiFailure:
    """The failure for an HTTP status.

    action: the request, for the message. grant: for the message if RBAC refuses it. retry_after: that header.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    wait_s = float(retry_after) if retry_after is not None and retry_after.isdecimal() else None
    return _failure(action, grant, status, document, excerpt(body), wait_s)


def excerpt(body: bytes) -> str:
    """The beginning of a response, for a message."""
    return body[:EXCERPT_BYTES].decode(errors="replace").strip()


def _failure(
    action: object, grant: str, status: int | None, document: Any, text: str, retry_after_s: float | None = None
) -> ApiFailure:
    """document: a Status object, or any JSON. text: shown where it has no message."""
    message = document.get("message") if isinstance(document, dict) else None
    message = message if message and isinstance(message, str) else text
    reason = f": the API server says: {message}" if message else ""
    match status:
        case HTTPStatus.UNAUTHORIZED:
            hint = "it does not know us: is the token, or the kubeconfig's user, of this cluster, and not expired?"
            return ApiFailure(status, f"{action}: HTTP 401, {hint}{reason}", retry_after_s)
        case HTTPStatus.FORBIDDEN if _is_terminating(document):
            return NamespaceTerminating(status, f"{action}: HTTP 403{reason}", retry_after_s)
        case HTTPStatus.FORBIDDEN:
            return Forbidden(status, f"{action}: HTTP 403, RBAC does not allow it: {grant}{reason}", retry_after_s)
        case HTTPStatus.NOT_FOUND:
            return NotFound(status, f"{action}: HTTP 404, the cluster has no such resource{reason}", retry_after_s)
        case HTTPStatus.GONE:
            return Gone(status, f"{action}: HTTP 410{reason}", retry_after_s)
    shown = "an error" if status is None else f"HTTP {status}"
    return ApiFailure(status, f"{action}: {shown}{reason}", retry_after_s)


def _is_terminating(status: Any) -> bool:
    """Whether a namespace that is being deleted refused the request (plugin/pkg/admission/namespace/lifecycle)."""
    details = status.get("details") if isinstance(status, dict) else None
    causes = details.get("causes") if isinstance(details, dict) else None
    return isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("reason") == "NamespaceTerminating" for cause in causes
    )


def _without_managed_fields(item: Any) -> Document:
    """Drops the bookkeeping of `kubectl apply`, a third of an object, while a list of thousands is collected.

    An item that is not an object becomes an empty one, which is counted as malformed later.
    """
    if not isinstance(item, dict):
        return {}
    metadata = item.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
    return item
