"""Servers with Prometheus' query API, and the shelf where the pages of their last answers lie.

One question brings the pages of many sources, and the scrape loop asks for one page at a time: so a discovery asks the
server (`PromqlTargets.refresh`) and lays the pages on the shelf, and `fetch` takes them from there. Whatever is not of
a PromQL source is fetched over HTTP as ever, so the loop needs only this one to ask.

Worked example: with `shelf == {"promql+http://p:9090?kind=vllm&pod=chat-0": page}`, fetching that URL is `page`, and
fetching "http://10.0.0.7:8000/metrics" asks 10.0.0.7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from weakref import WeakValueDictionary

from exporter.model import Credentials, Failure, FailureKind

from ..http import OK, HttpPages, HttpResponse
from .answer import PromqlSeries, read_answer, read_refusal
from .query import SCHEME, PromqlQuery, promql

# An answer of 64 KiB (20 pods' 200 series) takes about 5 ms to read and print again, which a tick can wait for.
THREAD_BYTES = 1 << 16
# Prometheus answers 20 queries at a time (--query.max-concurrency), and others have questions too.
QUESTIONS = 10

Made = TypeVar("Made")
Make = Callable[[tuple[PromqlSeries, ...]], Made]


class Promql:
    """One for all servers. `shelf`: what the last answers say, by the URL of a target."""

    def __init__(self, http: HttpPages) -> None:
        self.shelf: dict[str, bytes | Failure] = {}
        self._http = http
        # While somebody asks a server. A reload may name other servers each time.
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        # Not asyncio's own threads: they are shared with lookups of names, which may hang.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="promql")

    async def fetch(self, url: str, access: Credentials) -> bytes | Failure:
        """The page's bytes, or why there are none."""
        if not url.startswith(SCHEME):
            return await self._http.fetch(url, access)
        return self.shelf.get(url) or Failure(FailureKind.EMPTY, "the server's last answer does not have this source")

    async def ask(
        self, query: PromqlQuery, window_s: float, make: Make[Made | Failure], at: float | None = None
    ) -> Made | Failure:
        """What `make` makes of the last `window_s` seconds of a query's series, or why there are none.

        `at`: the end of the window, POSIX seconds; None is now, by the server's own clock. A large answer is read in a
        thread, and so is `make` called there.
        """
        form = {"query": promql(query, window_s), "partial_response": "false", "dedup": "true"}
        if at is not None:
            form["time"] = f"{at:.3f}"
        answer = await self._answer(query, form)
        if isinstance(answer, Failure):
            return answer
        if answer.status != OK:
            return _refusal(answer, query)
        if len(answer.body) <= THREAD_BYTES:
            return _made(answer.body, make)
        return await asyncio.get_running_loop().run_in_executor(self._thread, _made, answer.body, make)

    async def _answer(self, query: PromqlQuery, form: dict[str, str]) -> HttpResponse | Failure:
        """One of few at a time; who does not get a turn in time has not been answered in time."""
        turns = self._turns.setdefault(query.base, asyncio.Semaphore(QUESTIONS))
        limit = self._http.limits.timeout_s
        try:
            async with asyncio.timeout(limit):
                await turns.acquire()
        except TimeoutError:
            return Failure(FailureKind.TIMEOUT, f"no turn to ask within {limit:g} s: the server is slow")
        try:
            return await self._http.post(f"{query.base}/api/v1/query", query.access, form)
        finally:
            turns.release()

    def close(self) -> None:
        """Let the thread go. The session is the one's who opened it."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _made(body: bytes, make: Make[Made | Failure]) -> Made | Failure:
    series = read_answer(body)
    return series if isinstance(series, Failure) else make(series)


def _refusal(answer: HttpResponse, query: PromqlQuery) -> Failure:
    status = f"HTTP {answer.status} {answer.reason}".rstrip()
    said = read_refusal(answer.body)
    if said is None:
        return Failure(FailureKind.STATUS, status)
    return Failure(FailureKind.STATUS, f"{status}: {said} (selector: {query.selector or 'none'})")
