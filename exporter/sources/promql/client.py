"""Sends queries to servers with Prometheus' query API, and stores the pages of their last responses by target.

One query returns the pages of many targets, and the scrape loop fetches one page at a time: a discovery queries the
server (`PromqlTargets.refresh`) and stores the pages, and `fetch` returns them. Other URLs are fetched over HTTP.

A query selects exactly the families that the catalog reads, and `up`: an engine's unused histograms are a hundred times
as many series.

Worked example: `promql(query, 45.0)` for kind "llamacpp" and the selector `namespace="ai"` begins
`{__name__=~"llamacpp:kv_cache_usage_ratio|` and ends `|up",namespace="ai"}[45000ms]`. With `pages ==
{"promql+http://p:9090?kind=llamacpp&pod=chat-0": page}`, fetching that URL returns `page`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import urlencode
from weakref import WeakValueDictionary

from exporter.catalog import families
from exporter.model import Credentials, Failure, FailureKind, Role, Target, WorkloadKey

from ..http import OK, HttpPages, HttpResponse
from .decode import PromqlSeries, decode_error, decode_series
from .pages import UP, SeriesOrigin

SCHEME = "promql+"
# A response of 64 KiB (20 pods' 200 series) takes about 5 ms to parse and print, for which a tick can wait.
THREAD_BYTES = 1 << 16
# Prometheus runs 20 queries at a time (--query.max-concurrency), and has other clients too.
CONCURRENT_QUERIES = 10

Value = TypeVar("Value")
Convert = Callable[[tuple[PromqlSeries, ...]], Value]


@dataclass(frozen=True, slots=True)
class PromqlQuery:
    """The targets of one purpose on one server.

    url:       base of the API, with its prefix if it has one: "https://mimir.example/prometheus". No credentials.
    kind:      a kind of the catalog or "auto".
    owner:     the workload of a pods or gateway page; None for GPUs.
    selector:  label matchers without braces, `namespace="ai",pod=~"chat-.*"`; "" for every series of the kind. It is
               not validated: its author can read everything on the server.
    max_age_s: seconds after which a sample is too old. It must span two scrapes of the server, better three: with
               less, a target may be missing from a response only because it is not scraped yet.
    """

    url: str
    kind: str
    role: Role
    owner: WorkloadKey | None
    selector: str
    max_age_s: float
    access: Credentials = field(default=Credentials())

    @property
    def base(self) -> str:
        return self.url.rstrip("/")


class Promql:
    """Queries all servers. pages: of the last responses, by the URL of a target."""

    def __init__(self, http: HttpPages) -> None:
        self.pages: dict[str, bytes | Failure] = {}
        self._http = http
        # Of the servers with running queries. A reload may name other servers each time.
        self._semaphores: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        # Not asyncio's own threads: they are shared with DNS lookups, which may hang.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="promql")

    async def fetch(self, url: str, access: Credentials) -> bytes | Failure:
        """The page's bytes, or why there are none."""
        if not url.startswith(SCHEME):
            return await self._http.fetch(url, access)
        return self.pages.get(url) or Failure(FailureKind.EMPTY, "the server's last answer does not have this source")

    async def query(
        self, query: PromqlQuery, window_s: float, convert: Convert[Value | Failure], at: float | None = None
    ) -> Value | Failure:
        """The last `window_s` seconds of a query's series, converted, or why there are none.

        at: the end of the window, POSIX seconds; None is now, by the server's own clock. A large response is parsed
        and converted in a thread.
        """
        form = {"query": promql(query, window_s), "partial_response": "false", "dedup": "true"}
        if at is not None:
            form["time"] = f"{at:.3f}"
        response = await self._post(query, form)
        if isinstance(response, Failure):
            return response
        if response.status != OK:
            return _status_failure(response, query)
        if len(response.body) <= THREAD_BYTES:
            return _converted(response.body, convert)
        return await asyncio.get_running_loop().run_in_executor(self._thread, _converted, response.body, convert)

    async def _post(self, query: PromqlQuery, form: dict[str, str]) -> HttpResponse | Failure:
        """Waits while too many queries are running on the server."""
        semaphore = self._semaphores.setdefault(query.base, asyncio.Semaphore(CONCURRENT_QUERIES))
        limit_s = self._http.limits.timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await semaphore.acquire()
        except TimeoutError:
            return Failure(FailureKind.TIMEOUT, f"no turn to ask within {limit_s:g} s: the server is slow")
        try:
            return await self._http.post(f"{query.base}/api/v1/query", query.access, form)
        finally:
            semaphore.release()

    def close(self) -> None:
        """Stops the thread. The HTTP session belongs to the caller."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def promql(query: PromqlQuery, window_s: float) -> str:
    """A range vector of the last `window_s` seconds of all series that the query needs."""
    names = "|".join(sorted({UP, *families(query.kind)}))
    matchers = ",".join(filter(None, (f'__name__=~"{names}"', query.selector.strip(" ,\n"))))
    return f"{{{matchers}}}[{round(window_s * 1000)}ms]"


def target_of(query: PromqlQuery, origin: SeriesOrigin) -> Target:
    """The target of one origin, equal in every response."""
    parameters = {"kind": query.kind, "selector": query.selector, **origin.parameters()}
    url = f"{SCHEME}{query.base}?{urlencode({name: value for name, value in parameters.items() if value})}"
    return Target(url, query.kind, query.role, query.owner, query.access, origin.pod, max_age_s=query.max_age_s)


def _converted(body: bytes, convert: Convert[Value | Failure]) -> Value | Failure:
    series = decode_series(body)
    return series if isinstance(series, Failure) else convert(series)


def _status_failure(response: HttpResponse, query: PromqlQuery) -> Failure:
    status = f"HTTP {response.status} {response.reason}".rstrip()
    error = decode_error(response.body)
    if error is None:
        return Failure(FailureKind.STATUS, status)
    return Failure(FailureKind.STATUS, f"{status}: {error} (selector: {query.selector or 'none'})")
