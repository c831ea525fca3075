"""Fetches the history of a workload's counters from a server with Prometheus' query API, for `scaler.replay`.

Samples of the pods are parsed as in the daemon (`exporter.sources.promql`), so every kind of engine that counts
requests and tokens works, and a family with an old name, or repeated by ranks, counts once. The series `up` shows when
the server
scraped at all: no samples and a server that was down are not the same. If the server has no series of the workload's
pods, Tidegate's own counters are used: each process of Tidegate counts while it leads, so each is one source.

Worked example: `await from_prometheus(HistoryRequest("http://p:9090", WorkloadKey("ai", "chat"), since=now - 7 * 86400,
until=now))` is a trace "ai/chat"; its second 0 is a week ago or the begin of the server's retention.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import Any

import numpy as np

from exporter.catalog import AUTO, Reader
from exporter.model import Credentials, Failure, Floats, Quantity, Role, Target, WorkloadKey, without_user
from exporter.scrape.request import read
from exporter.sources.http import OK, HttpLimits, HttpPages
from exporter.sources.promql import HistoryFrame, Promql, PromqlQuery, PromqlTargets
from exporter.textformat import Scanner
from scaler.replay.columns import Mask
from scaler.replay.traces.history import COUNTERS, OUTPUT, PROMPT, REQUESTS, CountedSample, load_of
from scaler.replay.traces.recorded import BadLoad, Recorded

STEP_S = 15.0
MAX_AGE_S = 90.0  # Prometheus scrapes once a minute by default
AT_ONCE = 1000  # timestamps per request: four hours of a pod's samples are some 400 KiB
LIMITS = HttpLimits(timeout_s=60.0, body_bytes=64 << 20)
QUANTITIES = (Quantity.REQUESTS_FINISHED, Quantity.TOKENS_PROMPT, Quantity.TOKENS_GENERATED)
# A Deployment's pods are NAME-HASH-XXXXX, a StatefulSet's NAME-0; "chat" has no pod of "chat-large".
POD_NAMES = "-([a-z0-9]{1,10}-[a-z0-9]{5}|[0-9]+)"
# Tidegate's counters by name and `kind`, as in docs/reference/metrics.md.
_COLUMNS = {
    ("tidegate_requests_finished_total", ""): REQUESTS,
    ("tidegate_tokens_total", "prompt"): PROMPT,
    ("tidegate_tokens_total", "generation"): OUTPUT,
}
# Labels that distinguish processes of Tidegate.
_PROCESS = ("job", "instance", "pod", "prometheus_replica")

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """since, until: POSIX seconds. step_s: between two samples; less than the scrape interval adds nothing.
    url:      may contain a user and a password, which are sent and never printed.
    kind:     of the engines; "auto" detects it.
    selector: label matchers without braces; None matches the names of the workload's pods in its namespace.
    """

    url: str
    workload: WorkloadKey
    since: float
    until: float
    step_s: float = STEP_S
    kind: str = AUTO
    selector: str | None = None
    access: Credentials = field(default=Credentials())

    def error(self, message: str) -> BadLoad:
        shown = without_user(self.url)
        if "@" in shown:  # the URL is invalid, and may still contain a password
            shown = "the server's address"
        return BadLoad(f"{shown}: {message.replace(self.url, shown)}")

    @property
    def matchers(self) -> str:
        if self.selector is not None:
            return self.selector
        return f'namespace="{self.workload.namespace}",pod=~"{self.workload.label}{POD_NAMES}"'


def _ignore(_: float) -> None: ...


async def from_prometheus(request: HistoryRequest, seed: int = 0, progress: Progress = _ignore) -> Recorded:
    """The load behind a workload's counters. progress: called with the fetched share. Raises BadLoad."""
    if not (request.step_s > 0.0 and request.until - request.since >= 2 * request.step_s):
        raise request.error(f"the history must be at least two steps ({2 * request.step_s:g} s) long")
    http = HttpPages(LIMITS)
    promql = Promql(http)
    try:
        counted = await _fetch_pods(http, promql, request, progress)
        if request.selector is None and not len(counted.counters):
            counted = counted._replace(counters=await _fetch_tidegate(http, request, counted.at))
    finally:
        promql.close()
        await http.close()
    name = f"{request.workload.namespace}/{request.workload.label}"
    if not len(counted.counters):
        raise request.error(f"no series of {name} in this time (matchers {request.matchers}): try another selector")
    return load_of(name, counted, seed)


async def _fetch_pods(http: HttpPages, promql: Promql, request: HistoryRequest, progress: Progress) -> CountedSample:
    steps = int((request.until - request.since) / request.step_s + 1e-9)
    at = np.array([request.since + request.step_s * step for step in range(steps + 1)])
    query = PromqlQuery(
        request.url, request.kind, Role.PODS, request.workload, request.matchers, MAX_AGE_S, request.access
    )
    targets = PromqlTargets(promql, query, keep_s=0.0)
    sources = _Sources(request.kind, len(at))
    scraped = np.zeros(len(at), dtype=np.bool_)
    for begin in range(0, len(at), AT_ONCE):
        times = at[begin : begin + AT_ONCE]
        frames = await targets.history(float(times[0]), float(times[-1]), request.step_s)
        if isinstance(frames, Failure):
            raise request.error(frames.detail)
        sources.add(begin, frames)
        scraped[begin : begin + len(times)] = await _fetch_scraped(http, request, query, times)
        progress((begin + len(times)) / len(at))
    counters = np.array(list(sources.counters.values()))
    if sources.failure and not np.isfinite(counters).any():
        raise request.error(f"no sample is valid: {sources.failure}")
    return CountedSample(at, scraped, counters)


class _Sources:
    """Counters of each source, filled page by page.

    A page that equals the one before adds nothing: its counters are unknown, and the increase until the next page is
    spread over both steps. So a scrape interval longer than the step makes no sawtooth.

    failure: error of the last unreadable page; "" if all are readable.
    """

    def __init__(self, kind: str, times: int) -> None:
        self.counters: dict[str, Floats] = {}
        self.failure = ""
        self._kind, self._times = kind, times
        self._readers: dict[str, tuple[Reader, Scanner]] = {}
        self._last: dict[str, bytes] = {}

    def add(self, begin: int, frames: Iterable[HistoryFrame]) -> None:
        for index, frame in enumerate(frames, begin):
            for target, page in frame.pages.items():
                values = self._read(target, page, frame.at)
                if target.url not in self.counters:
                    self.counters[target.url] = np.full((self._times, len(QUANTITIES)), nan)
                self.counters[target.url][index] = values

    def _read(self, target: Target, page: bytes, at: float) -> Floats:
        unknown = np.full(len(QUANTITIES), nan)
        if self._last.get(target.url) == page:  # including its timestamps
            return unknown
        self._last[target.url] = page
        if target.url not in self._readers:
            self._readers[target.url] = Reader(self._kind), Scanner()
        samples = read(page, *self._readers[target.url], at)
        if isinstance(samples, Failure):
            self.failure = samples.detail
            return unknown
        return np.array([_sum(samples.column(quantity)) for quantity in QUANTITIES])


def _sum(column: Floats) -> float:
    """The sum of the known values; NaN if there is none."""
    known_values = column[np.isfinite(column)]
    return float(known_values.sum()) if len(known_values) else nan


async def _fetch_scraped(http: HttpPages, request: HistoryRequest, query: PromqlQuery, times: Floats) -> Mask:
    """At which of these times the server had scraped any target lately."""
    promql = f"count(last_over_time(up[{round(MAX_AGE_S)}s]))"
    result = await _query_range(http, query.base, request, promql, times)
    try:
        at = np.array([float(time) for series in result for time, _ in series["values"]])
    except (ValueError, KeyError, TypeError):
        raise request.error("the response has no valid values of `up`") from None
    indices = np.round((at - times[0]) / request.step_s).astype(np.int64)
    scraped = np.zeros(len(times), dtype=np.bool_)
    scraped[indices[(indices >= 0) & (indices < len(times))]] = True
    return scraped


async def _fetch_tidegate(http: HttpPages, request: HistoryRequest, at: Floats) -> Floats:
    """Tidegate's own counters; shape (processes, times, COUNTERS), NaN where unknown."""
    names = "|".join(sorted({name for name, _ in _COLUMNS}))
    workload = request.workload
    promql = f'{{__name__=~"{names}",namespace="{workload.namespace}",workload="{workload.label}"}}'
    found: dict[str, Floats] = {}
    for begin in range(0, len(at), AT_ONCE):
        times = at[begin : begin + AT_ONCE]
        if len(times) < 2:  # noqa: PLR2004 - one time has no step; only it is lost
            break
        result = await _query_range(http, request.url.rstrip("/"), request, promql, times)
        try:
            for series in result:
                labels = series["metric"]
                column = _COLUMNS.get((labels["__name__"], labels.get("kind", "")))
                if column is None:
                    continue
                process = "\0".join(labels.get(name, "") for name in _PROCESS)
                counters = found.setdefault(process, np.full((len(at), COUNTERS), nan))
                values = np.array([(float(time), float(value)) for time, value in series["values"]]).reshape(-1, 2)
                indices = np.round((values[:, 0] - times[0]) / request.step_s).astype(np.int64)
                valid = (indices >= 0) & (indices < len(times)) & np.isfinite(values[:, 1])
                counters[begin + indices[valid], column] = values[valid, 1]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise request.error("the response has no valid counters of Tidegate") from None
    return np.array(list(found.values()))


async def _query_range(
    http: HttpPages, base: str, request: HistoryRequest, promql: str, times: Floats
) -> Sequence[Any]:
    """The `result` of a range query. Raises BadLoad."""
    form = {"query": promql, "start": f"{times[0]:.3f}", "end": f"{times[-1]:.3f}", "step": f"{request.step_s:g}"}
    response = await http.post(f"{base}/api/v1/query_range", request.access, form)
    if isinstance(response, Failure):
        raise request.error(response.detail)
    if response.status != OK:
        raise request.error(f"HTTP {response.status} {response.reason}")
    try:
        result: Sequence[Any] = json.loads(response.body)["data"]["result"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise request.error(f"HTTP {response.status} {response.reason}: not a response of Prometheus") from None
    return result
