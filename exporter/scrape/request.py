"""Requests targets and parses their responses: bytes to samples, or the reason of the failure.

Large responses are parsed in threads, so that none delays a tick. An exception costs the response that raised it.

Worked example: `parse(b"", reader, scanner, at)` is `Failure(EMPTY, …)`; the detail of `parse(b"[]", …)` begins "JSON,
not metrics: trtllm-serve has JSON at /metrics".
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from exporter.budget import Budget
from exporter.catalog import Reader, SourcesDown, UnknownKind
from exporter.clock import Clock
from exporter.model import Credentials, Failure, FailureKind, Samples, Target
from exporter.textformat import Page, TooManySeries

from .pace import TurnPace

# A response of 256 KiB takes about 4 ms the first time and 0.2 ms from then on, twice what handing it to a thread
# takes; one of 1 MiB would hold up the event loop for 14 ms at first.
THREAD_BYTES = 1 << 18
# Requests that are sent in one turn of the event loop, at 0.1 ms each.
SENT_AT_ONCE = 32
# A response is parsed in milliseconds, so few threads are enough; asyncio's own have other work.
THREADS = 2

_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_HTML = (b"<!doctype", b"<html", b"<head", b"<body", b"<?xml")


class Pages(Protocol):
    async def fetch(self, url: str, access: Credentials) -> bytes | Failure: ...


class PageScanner(Protocol):
    """Bytes to series and values; remembers the last response of one target."""

    def scan(self, body: bytes) -> Page: ...


class ScrapeEndpoint(NamedTuple):
    """The URL, kind and credentials of a scrape, the same for every workload that uses it."""

    url: str
    kind: str
    access: Credentials

    @classmethod
    def of(cls, target: Target) -> ScrapeEndpoint:
        return cls(target.url, target.kind, target.access)


@dataclass(eq=False, slots=True)
class Requests:
    """The state of the requests to one target.

    slow: the last one timed out. missed: one had been sent, or was slow, when a round began. task: the one under way.
    fetching: it has been sent and has no response yet; otherwise it waits for its turn or is parsed.
    """

    reader: Reader
    scanner: PageScanner
    slow: bool = False
    missed: bool = False
    fetching: bool = False
    task: asyncio.Task[None] | None = None


class Requester:
    """Sends at most `concurrency` requests at once.

    bodies:  bytes of the large responses that may wait for a thread or be parsed there.
    faulted: gets an exception that was raised while a response was processed ("response"), and the target.
    """

    def __init__(
        self,
        pages: Pages,
        clock: Clock,
        concurrency: int,
        bodies: Budget,
        faulted: Callable[[str, Target, Exception], None],
    ) -> None:
        self._pages, self._clock, self._bodies, self._faulted = pages, clock, bodies, faulted
        self._turns = asyncio.Semaphore(concurrency)
        # Targets that timed out last time share half of the turns: a lost node's pods, each of which holds its turn
        # until the time-out, would otherwise keep all others waiting.
        self._slow_turns = asyncio.Semaphore(max(1, concurrency // 2))
        self._pace = TurnPace(SENT_AT_ONCE)
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="parse")

    async def request(self, target: Target, requests: Requests) -> tuple[float, float, Samples | Failure]:
        """(POSIX seconds of receipt, seconds that the request took, outcome)."""
        async with self._slow_turns if requests.slow else nullcontext(), self._turns:
            await self._pace.turn()
            began = self._clock.now()
            try:
                requests.fetching = True
                try:
                    body = await self._pages.fetch(target.url, target.access)
                finally:
                    requests.fetching = False
                at = self._clock.now()
                outcome = body if isinstance(body, Failure) else await self._parse(body, requests, at)
            except Exception as error:  # noqa: BLE001 - a response that trips a bug costs itself
                self._faulted("response", target, error)
                at, outcome = self._clock.now(), internal(error)
        requests.slow = isinstance(outcome, Failure) and outcome.kind is FailureKind.TIMEOUT
        return at, at - began, outcome

    async def _parse(self, body: bytes, requests: Requests, at: float) -> Samples | Failure:
        if len(body) <= THREAD_BYTES:
            return parse(body, requests.reader, requests.scanner, at)
        with self._bodies.share() as share:
            if not share.resize(len(body)):
                return Failure(FailureKind.TOO_LARGE, f"{len(body)} bytes, and other large responses wait before it")
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self.threads, parse, body, requests.reader, requests.scanner, at)


def internal(error: Exception) -> Failure:
    """The failure that an exception of Tidegate's own code is."""
    return Failure(FailureKind.INTERNAL, f"please report: {type(error).__name__}: {error}")


def read(body: bytes, reader: Reader, scanner: PageScanner, at: float) -> Samples | Failure:
    """As `parse`, with an exception as a Failure."""
    try:
        return parse(body, reader, scanner, at)
    except Exception as error:  # noqa: BLE001 - a response that trips a bug costs itself
        return internal(error)


def parse(body: bytes, reader: Reader, scanner: PageScanner, at: float) -> Samples | Failure:
    """The samples of a response. `at`: POSIX seconds of receipt."""
    if not body or body.isspace():
        return Failure(FailureKind.EMPTY, "HTTP 200 with an empty body, as exporters respond while they reload")
    try:
        page = scanner.scan(body)
    except TooManySeries as error:
        return Failure(FailureKind.TOO_LARGE, str(error))
    rest = page.layout.rest
    if not len(page.values) and not (rest is not None and (rest.signs or rest.names)):
        return Failure(FailureKind.UNREADABLE, foreign(body) or "no line is a valid sample")
    try:
        return reader.read(page, at)
    except SourcesDown as error:
        return Failure(FailureKind.PARTIAL, str(error))
    except UnknownKind as error:
        return Failure(FailureKind.UNREADABLE, str(error))


def foreign(body: bytes) -> str | None:
    """Describes a body without samples (JSON, HTML ...) as part of a sentence; None if it is not recognized."""
    for magic, name in _COMPRESSED.items():
        if body.startswith(magic):
            return f"compressed ({name}): unpack it first"
    if body.startswith(_UTF16) or body[1:8:2] == b"\0\0\0\0" or body[0:8:2] == b"\0\0\0\0":
        return "text in UTF-16: metrics must be UTF-8"
    start = body[:64].lstrip().lower()
    if start.startswith(_HTML):
        return "HTML: a login page, an error or a web site; is the path right?"
    if start.startswith((b"{", b"[")):
        return _json(body)
    return None


def _json(body: bytes) -> str | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if isinstance(document, list):
        return (
            "JSON, not metrics: trtllm-serve has JSON at /metrics, and Prometheus metrics at /prometheus/metrics with "
            "return_perf_metrics set"
        )
    if isinstance(document, dict) and _is_prometheus_response(document):
        return "a response of the Prometheus API: query such a server with `prometheus:` in the configuration"
    return "JSON, not metrics: is the path right?"


def _is_prometheus_response(document: dict[Any, Any]) -> bool:
    return document.get("status") in ("success", "error") and ("data" in document or "errorType" in document)
