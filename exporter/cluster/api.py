"""What the rest of the project asks of a Kubernetes API, and the ways in which it can fail. No client is in here.

Two questions are enough: a list, page by page, and a watch, which tells what happened since. An object is the
API's own JSON as a dict; what it means is not for this room to say.

Worked example: `page(PODS, "ai", "")` is `Page([{...}, {...}], version="4711", after="")`, and
`watch(PODS, "ai", "4711")` yields `OPENED`, then `Event("MODIFIED", {...}, "4712")` when a pod changes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, NamedTuple, Protocol

from .resources import Resource

Document = dict[str, Any]

ADDED, MODIFIED, DELETED, BOOKMARK = "ADDED", "MODIFIED", "DELETED", "BOOKMARK"


class Page(NamedTuple):
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


class Refused(ApiFailure):
    """403: it is there, and not for us."""


class Ending(ApiFailure):
    """403: its namespace is being deleted and takes nothing new, whatever our rights are."""


class CannotConnect(Exception):  # noqa: N818 - it is said to a person, and the word is the message
    """Nothing says where the API is or who we are; names the file and the reason."""


class Api(Protocol):
    async def page(self, resource: Resource, namespace: str | None, after: str) -> Page:
        """A page of the list as it is now; `after`: "" for the first. Raises ApiFailure."""

    def watch(
        self, resource: Resource, namespace: str | None, version: str
    ) -> AsyncGenerator[Opened | Event | Garbled, None]:
        """What happened after `version`, as it happens; `OPENED` first.

        Ends when the server ends it, when the connection breaks, or when it has been silent for too long: all three
        mean to ask again from the last version. Raises ApiFailure if it cannot be opened or the API breaks it off.
        """
