"""A workload's past, as a server with Prometheus' query API has kept it: its engines' counters, to `history`.

The pages of its pods are read as the daemon reads them (`exporter.sources.promql`), so every kind of engine of the
catalog that counts requests and tokens will do, and a family under an old name, or repeated by ranks, is counted once.
One more question says when the server scraped anybody: silence and a server that was down are not the same. Where the
server has no page of a pod of the workload's name, Tidegate's own counters of it will do (`own`).

Worked example: `await from_prometheus(Past("http://p:9090", WorkloadKey("ai", "chat"), since=now - 7 * 86400,
until=now))` is a load called "ai/chat", whose second 0 is a week ago or when the server's memory begins.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import nan

import numpy as np

from exporter.catalog import AUTO, Reader
from exporter.model import Credentials, Failure, Floats, Quantity, Role, Target, WorkloadKey, without_user
from exporter.scrape.request import read
from exporter.sources.http import OK, HttpLimits, HttpPages
from exporter.sources.promql import HistoryFrame, Promql, PromqlQuery, PromqlTargets
from exporter.textformat import Scanner
from scaler.replay.columns import Mask
from scaler.replay.traces.history import CountedSample, load_of
from scaler.replay.traces.recorded import BadLoad, Recorded

from .own import Unreadable, own_counters

STEP_S = 15.0
MAX_AGE_S = 90.0  # Prometheus scrapes once a minute unless it is told otherwise
AT_ONCE = 1000  # moments per question: four hours of a pod's page are some 400 KiB
LIMITS = HttpLimits(timeout_s=60.0, body_bytes=64 << 20)
QUANTITIES = (Quantity.REQUESTS_FINISHED, Quantity.TOKENS_PROMPT, Quantity.TOKENS_GENERATED)
# A Deployment's pods are NAME-HASH-XXXXX, a StatefulSet's NAME-0; "chat" has no pod of "chat-large".
_PODS = "-([a-z0-9]{1,10}-[a-z0-9]{5}|[0-9]+)"

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """What is asked for.

    since, until: POSIX seconds. step_s: between two looks; shorter than the server's scrapes says no more.
    url:      may carry a user and a password, which are sent and never said.
    kind:     of the engines, in the catalog's words; "auto" is what their pages say.
    selector: label matchers without braces; None is the pods that the workload's name makes in its namespace.
    """

    url: str
    workload: WorkloadKey
    since: float
    until: float
    step_s: float = STEP_S
    kind: str = AUTO
    selector: str | None = None
    access: Credentials = field(default=Credentials())

    def bad(self, words: str) -> BadLoad:
        shown = without_user(self.url)
        if "@" in shown:  # where no URL can be read there may still be a password
            shown = "the server's address"
        return BadLoad(f"{shown}: {words.replace(self.url, shown)}")

    @property
    def matchers(self) -> str:
        if self.selector is not None:
            return self.selector
        return f'namespace="{self.workload.namespace}",pod=~"{self.workload.label}{_PODS}"'


def _silent(_: float) -> None:
    """Nobody wants to know how far it is."""


async def from_prometheus(past: HistoryRequest, seed: int = 0, progress: Progress = _silent) -> Recorded:
    """The load behind a workload's counters. progress: told which share of the past has been read. Raises BadLoad."""
    if not (past.step_s > 0.0 and past.until - past.since >= 2 * past.step_s):
        raise past.bad(f"the past must be at least two steps ({2 * past.step_s:g} s) long")
    http = HttpPages(LIMITS)
    promql = Promql(http)
    try:
        counted = await _counted(http, promql, past, progress)
        if past.selector is None and not len(counted.counters):
            counted = counted._replace(counters=await _own(http, past, counted.at))
    finally:
        promql.close()
        await http.close()
    name = f"{past.workload.namespace}/{past.workload.label}"
    if not len(counted.counters):
        raise past.bad(f"has no page of {name} in this time (asked for {past.matchers}): is it another selector?")
    return load_of(name, counted, seed)


async def _counted(http: HttpPages, promql: Promql, past: HistoryRequest, progress: Progress) -> CountedSample:
    steps = int((past.until - past.since) / past.step_s + 1e-9)
    at = np.array([past.since + past.step_s * step for step in range(steps + 1)])
    query = PromqlQuery(past.url, past.kind, Role.PODS, past.workload, past.matchers, MAX_AGE_S, past.access)
    targets = PromqlTargets(promql, query, keep_s=0.0)
    sources = _Sources(past.kind, len(at))
    heard = np.zeros(len(at), dtype=np.bool_)
    for begin in range(0, len(at), AT_ONCE):
        moments = at[begin : begin + AT_ONCE]
        frames = await targets.history(float(moments[0]), float(moments[-1]), past.step_s)
        if isinstance(frames, Failure):
            raise past.bad(frames.detail)
        sources.take(begin, frames)
        heard[begin : begin + len(moments)] = await _heard(http, past, query, moments)
        progress((begin + len(moments)) / len(at))
    counters = np.array(list(sources.counters.values()))
    if sources.failure and not np.isfinite(counters).any():
        raise past.bad(f"no page can be read: {sources.failure}")
    return CountedSample(at, heard, counters)


async def _own(http: HttpPages, past: HistoryRequest, at: Floats) -> Floats:
    """Tidegate's own counters, in a few questions; shape (processes, moments, COUNTERS)."""
    whose = past.workload.namespace, past.workload.label
    base = past.url.rstrip("/")
    parts: dict[str, Floats] = {}
    for begin in range(0, len(at), AT_ONCE):
        moments = at[begin : begin + AT_ONCE]
        if len(moments) < 2:  # noqa: PLR2004 - one moment has no step; nothing is lost but it
            break
        try:
            found = await own_counters(http, base, past.access, *whose, moments)
        except Unreadable as unreadable:
            raise past.bad(str(unreadable)) from None
        for source, counters in found.items():
            whole = parts.setdefault(source, np.full((len(at), len(QUANTITIES)), nan))
            whole[begin : begin + len(moments)] = counters
    return np.array(list(parts.values()))


class _Sources:
    """Counters of each source, filled as its pages come.

    A page that still stands at the next moment says nothing new: there the counters are unknown, and what the next page
    counts is spread over both. So scrapes that are further apart than the moments make no sawtooth.

    failure: why the last page that could not be read could not be; "" if all could.
    """

    def __init__(self, kind: str, moments: int) -> None:
        self.counters: dict[str, Floats] = {}
        self.failure = ""
        self._kind, self._moments = kind, moments
        self._readers: dict[str, tuple[Reader, Scanner]] = {}
        self._last: dict[str, bytes] = {}

    def take(self, begin: int, frames: Iterable[HistoryFrame]) -> None:
        for place, frame in enumerate(frames, begin):
            for target, page in frame.pages.items():
                values = self._read(target, page, frame.at)
                if target.url not in self.counters:
                    self.counters[target.url] = np.full((self._moments, len(QUANTITIES)), nan)
                self.counters[target.url][place] = values

    def _read(self, target: Target, page: bytes, at: float) -> Floats:
        unknown = np.full(len(QUANTITIES), nan)
        if self._last.get(target.url) == page:  # with the times of its samples
            return unknown
        self._last[target.url] = page
        if target.url not in self._readers:
            self._readers[target.url] = Reader(self._kind), Scanner()
        said = read(page, *self._readers[target.url], at)
        if isinstance(said, Failure):
            self.failure = said.detail
            return unknown
        return np.array([_sum(said.column(quantity)) for quantity in QUANTITIES])


def _sum(column: Floats) -> float:
    """Over a page's queues; NaN if none of them says."""
    return float(np.nansum(column)) if np.isfinite(column).any() else nan


async def _heard(http: HttpPages, past: HistoryRequest, query: PromqlQuery, moments: Floats) -> Mask:
    """At which moments the server had scraped anybody lately."""
    form = {
        "query": f"count(last_over_time(up[{round(MAX_AGE_S)}s]))",
        "start": f"{moments[0]:.3f}",
        "end": f"{moments[-1]:.3f}",
        "step": f"{past.step_s:g}",
    }
    answer = await http.post(f"{query.base}/api/v1/query_range", query.access, form)
    if isinstance(answer, Failure):
        raise past.bad(answer.detail)
    try:
        said = json.loads(answer.body)
        times = [float(time) for series in said["data"]["result"] for time, _ in series["values"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise past.bad(
            f"HTTP {answer.status} {answer.reason}: when anybody was scraped (`up`) cannot be read from its answer"
        ) from None
    if answer.status != OK:
        raise past.bad(f"HTTP {answer.status} {answer.reason}")
    places = np.round((np.array(times) - moments[0]) / past.step_s).astype(np.int64)
    heard = np.zeros(len(moments), dtype=np.bool_)
    heard[places[(places >= 0) & (places < len(moments))]] = True
    return heard
