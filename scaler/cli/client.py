"""Fetches a metrics page (by URL or from a file) or a JSON document of a running daemon. Blocks.

URLs are fetched with the daemon's client (`exporter.sources.http`): one deadline for the whole response, a size limit,
no redirects, and an error if a compressed body is incomplete. So `tidegate read` shows what the daemon would scrape.

Worked example: `document("http://localhost:8080", "/api/v1/accounts", timeout_s=10.0)` returns the document. If nothing
listens there, it raises Unanswered("http://localhost:8080/api/v1/accounts: Connection refused. ...").
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

# Of a file or a document. Anything larger is neither, and would only fill the memory.
LARGEST_BYTES = 64 * 2**20
HINT = "Is it Tidegate's HTTP port (8080)? In a cluster: kubectl -n tidegate port-forward svc/tidegate 8080"

Response = TypeVar("Response")


class Unanswered(Exception):  # noqa: N818 - named for what happened
    """There is no document. The message has its address, the error and a hint.

    status: of the HTTP response, None without one. error: of the daemon's error document, "" without one.
    """

    def __init__(self, message: str, status: int | None = None, error: str = "") -> None:
        super().__init__(message)
        self.status, self.error = status, error


def document(server: str, path: str, timeout_s: float) -> dict[str, Any]:
    """server: URL of the daemon's HTTP listener. timeout_s: of the whole request. Raises Unanswered."""
    url = server.rstrip("/") + path
    response = _fetch(lambda http: http.get(url, Credentials()), HttpLimits(timeout_s, LARGEST_BYTES))
    if isinstance(response, Failure):
        raise Unanswered(f"{url}: {response.detail}. {HINT}")
    try:
        parsed = json.loads(response.body)
    except (ValueError, RecursionError):
        parsed = None
    if response.status == HTTPStatus.OK and isinstance(parsed, dict):
        return parsed
    error = parsed.get("error") if isinstance(parsed, dict) else None
    message = error or f"HTTP {response.status} {response.reason}, not a document of Tidegate. {HINT}"
    raise Unanswered(f"{url}: {message}", response.status, error or "")


def page(source: str, timeout_s: float) -> bytes:
    """source: an http(s) URL, a file, or - for standard input. timeout_s: for a URL. Raises Unanswered."""
    if source == "-":
        return _read(sys.stdin.buffer, source)
    if source.startswith(("http://", "https://")):
        limits = HttpLimits(timeout_s, Scrape().body_limit)
        body = _fetch(lambda http: http.fetch(source, Credentials()), limits)
        if isinstance(body, Failure):
            raise Unanswered(f"{source}: {body.detail}. {_consequence(body)}")
        return body
    try:
        with Path(source).open("rb") as file:
            return _read(file, source)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise Unanswered(f"{source}: {getattr(error, 'strerror', None) or error}") from error


def _read(file: BinaryIO, source: str) -> bytes:
    body = file.read(LARGEST_BYTES + 1)
    if len(body) > LARGEST_BYTES:
        raise Unanswered(f"{source}: larger than {LARGEST_BYTES >> 20} MiB, not a metrics page")
    return body


def _fetch(request: Callable[[HttpPages], Awaitable[Response]], limits: HttpLimits) -> Response:
    async def fetch() -> Response:
        http = HttpPages(limits)
        try:
            return await request(http)
        finally:
            await http.close()

    # Not asyncio.run, which waits for hanging name look-ups without a limit.
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


def _consequence(failure: Failure) -> str:
    """The effect of this failure of a target on the daemon, as a sentence."""
    sentence = f'The daemon would count a failed scrape ("{failure.kind}") and get no data from this target'
    if failure.kind is FailureKind.STATUS and failure.detail.startswith("HTTP 3"):
        return f"{sentence}: it follows no redirect; give the final address"
    if failure.kind is FailureKind.TIMEOUT:
        return f"{sentence}: its limit is scrape.timeout"
    return sentence
