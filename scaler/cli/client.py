"""Fetches what commands read: a metrics page, by its URL or as a file, and a document of a running Tidegate. Blocks.

URLs are fetched with the daemon's own client (`exporter.sources.http`): one deadline for the whole answer, a bound on
its size, no redirects, and an error where a compressed body is not complete. So a page that `tidegate read` shows is
one that the daemon would read.

Worked example: `document("http://localhost:8080", "/api/v1/accounts", timeout=10.0)` is that document; where nobody
listens it raises Unanswered("http://localhost:8080/api/v1/accounts: Connection refused. ...").
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from exporter.model import Credentials, Failure, FailureKind
from exporter.sources.http import HttpLimits, HttpPages
from scaler.config.model import Scrape

# Of a file or a document. What is larger is neither, and reading on would only fill the memory.
LARGEST = 64 * 2**20
HINT = "Is it Tidegate's HTTP port (8080)? In a cluster: kubectl -n tidegate port-forward svc/tidegate 8080"

Given = TypeVar("Given")


class Unanswered(Exception):  # noqa: N818 - named for what happened
    """There is no document. The message says where it was looked for, and what to do.

    status: of the HTTP answer, None where there was none. said: the error in it; "" where that is not Tidegate's.
    """

    def __init__(self, words: str, status: int | None = None, said: str = "") -> None:
        super().__init__(words)
        self.status, self.said = status, said


def document(server: str, path: str, timeout: float) -> dict[str, Any]:
    """server: the URL of its HTTP listener. timeout: seconds, for the whole of it. Raises Unanswered."""
    url = server.rstrip("/") + path
    answer = _fetched(lambda http: http.get(url, Credentials()), HttpLimits(timeout, LARGEST))
    if isinstance(answer, Failure):
        raise Unanswered(f"{url}: {answer.detail}. {HINT}")
    try:
        said = json.loads(answer.body)
    except (ValueError, RecursionError):
        said = None
    if answer.status == HTTPStatus.OK and isinstance(said, dict):
        return said
    why = said.get("error") if isinstance(said, dict) else None
    words = why or f"HTTP {answer.status} {answer.reason}, and no document of Tidegate's. {HINT}"
    raise Unanswered(f"{url}: {words}", answer.status, why or "")


def page(source: str, timeout: float) -> bytes:
    """source: an http(s) URL, a file, or - for standard input. timeout: seconds, of a URL. Raises Unanswered."""
    if source == "-":
        return _all_of(sys.stdin.buffer, source)
    if source.startswith(("http://", "https://")):
        limits = HttpLimits(timeout, Scrape().body_limit)
        body = _fetched(lambda http: http.fetch(source, Credentials()), limits)
        if isinstance(body, Failure):
            raise Unanswered(f"{source}: {body.detail}. {_to_the_daemon(body)}")
        return body
    try:
        with Path(source).open("rb") as file:
            return _all_of(file, source)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise Unanswered(f"{source}: {getattr(error, 'strerror', None) or error}") from error


def _all_of(file: BinaryIO, source: str) -> bytes:
    body = file.read(LARGEST + 1)
    if len(body) > LARGEST:
        raise Unanswered(f"{source}: larger than {LARGEST >> 20} MiB, so no page of metrics")
    return body


def _fetched(ask: Callable[[HttpPages], Awaitable[Given]], limits: HttpLimits) -> Given:
    async def fetch() -> Given:
        http = HttpPages(limits)
        try:
            return await ask(http)
        finally:
            await http.close()

    # Not asyncio.run, which waits without a limit for name look-ups that hang.
    loop = asyncio.new_event_loop()
    fetching = loop.create_task(fetch())
    try:
        return loop.run_until_complete(fetching)
    finally:
        if not fetching.done():  # Ctrl-C
            fetching.cancel()
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(fetching)
        loop.close()


def _to_the_daemon(failure: Failure) -> str:
    """What this failure of a target means to the daemon, as a sentence."""
    sentence = f'The daemon would count a failed scrape ("{failure.kind}") and learn nothing from this target'
    if failure.kind is FailureKind.STATUS and failure.detail.startswith("HTTP 3"):
        return f"{sentence}: it follows no redirect; give the final address"
    if failure.kind is FailureKind.TIMEOUT:
        return f"{sentence}: its limit is scrape.timeout"
    return sentence
