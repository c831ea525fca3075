"""Collects a report from a server with Prometheus' query API: accounts of a time, and profiles of its workloads.

Accounts are Tidegate's own counters. Profiles are read from the series of the engines and of dcgm-exporter: responses
of the past, at up to MOMENTS moments, are parsed as the daemon parses them.

Worked example: `await collect_history(HistoryReportRequest(("ai/chat",), "http://p:9090", 30 * 86400.0, now), show)`.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np

from exporter.catalog import AUTO, Reader
from exporter.catalog.engine_memory import FAMILIES, EngineSeries, engine_memory
from exporter.model import Credentials, Failure, Floats, PodKey, Role, Samples, Target, WorkloadKey, without_user
from exporter.scrape.request import read
from exporter.sources.http import OK, HttpLimits, HttpPages
from exporter.sources.promql import HistoryFrame, Promql, PromqlQuery, PromqlTargets
from exporter.textformat import Scanner
from scaler.cli.replay.history import POD_NAMES, HistoryRequest
from scaler.engine.account_periods import day_begin, day_number, month_begin, month_name, month_number, read_month
from scaler.report import history, ledger, statement
from scaler.report.profile import Profile, SliceThroughput, of_moments, usage_at
from scaler.report.recorded import RecordedPage
from scaler.report.saturation import throughputs
from scaler.signals.saturation import LONGEST_S

from .run import BadReportRequest, Progress

MOMENTS, LEAST_STEP_S = 240, 60.0
MAX_AGE_S = 180.0  # three scrapes of a minute
LIMITS = HttpLimits(timeout_s=60.0, body_bytes=64 << 20)
# Of the GPUs that a workload's pods held: Prometheus renames the labels of the page, or keeps them (honor_labels).
_HELD_GPUS = "group by (UUID) (count_over_time({{{names},{matchers}}}[{window}]))"
_POD_SUFFIX = re.compile(POD_NAMES)
_GPU_NAMES = '__name__=~"DCGM_FI_DEV_FB_USED|DCGM_FI_DEV_POWER_USAGE"'


@dataclass(frozen=True, slots=True)
class HistoryReportRequest:
    """names: workloads as NAMESPACE/NAME; empty is all that Tidegate accounted. since_s: seconds before `now`.

    month: the calendar month that this time is, as "2026-11"; None: none.
    """

    names: Sequence[str]
    url: str
    since_s: float
    now: float
    access: Credentials = field(default=Credentials())
    month: str | None = None

    @classmethod
    def of_month(cls, names: Sequence[str], url: str, month: str, now: float, access: Credentials) -> Self:
        """Of a calendar month, "" for the present one, until `now`, POSIX seconds. Raises BadReportRequest."""
        number = read_month(month) if month else month_number(now)
        begin, end = month_begin(number), min(month_begin(number + 1), now)
        if not begin < end:
            raise BadReportRequest(f"--month: must not be in the future, got {month}")
        return cls(names, url, end - begin, end, access, month_name(number))

    @property
    def window(self) -> str:
        return f"{round(self.since_s)}s"

    @property
    def step_s(self) -> float:
        return max(LEAST_STEP_S, self.since_s / MOMENTS)


class _Server:
    """The server of one request."""

    def __init__(self, request: HistoryReportRequest, http: HttpPages) -> None:
        self.request, self.http, self.promql = request, http, Promql(http)

    def error(self, message: str) -> BadReportRequest:
        return BadReportRequest(f"{without_user(self.request.url)}: {message}")

    async def instant(self, query: str, at: float | None = None) -> list[history.VectorEntry]:
        """The vector of a query at a time, by default at the end of the time. Raises BadReportRequest."""
        form = {"query": query, "time": f"{self.request.now if at is None else at:.3f}"}
        response = await self.http.post(f"{self.request.url.rstrip('/')}/api/v1/query", self.request.access, form)
        if isinstance(response, Failure):
            raise self.error(response.detail)
        if response.status != OK:
            raise self.error(f"HTTP {response.status} {response.reason}")
        try:
            result = json.loads(response.body)["data"]["result"]
            return [history.VectorEntry(each["metric"], float(each["value"][1])) for each in result]
        except (ValueError, KeyError, TypeError, IndexError, RecursionError):
            raise self.error("not a response of Prometheus") from None

    async def daily(self, query: history.LedgerQuery) -> dict[str, list[history.VectorEntry]]:
        """The results of a query for each day of the time (UTC), by its name. Raises BadReportRequest."""
        begin, now = self.request.now - self.request.since_s, self.request.now
        days = range(day_number(begin), day_number(now - 1.0) + 1)
        texts = [query.text(f"{round(min(day_begin(day + 1), now) - day_begin(day))}s") for day in days]
        ends = [min(day_begin(day + 1), now) for day in days]
        found = await asyncio.gather(*(self.instant(text, end) for text, end in zip(texts, ends, strict=True)))
        names = (datetime.fromtimestamp(day_begin(day), UTC).strftime("%Y-%m-%d") for day in days)
        return dict(zip(names, found, strict=True))

    async def frames(self, workload: WorkloadKey, kind: str, role: Role, selector: str) -> Sequence[HistoryFrame]:
        request = self.request
        owner = workload if role is Role.PODS else None
        query = PromqlQuery(request.url, kind, role, owner, selector, MAX_AGE_S, request.access)
        targets = PromqlTargets(self.promql, query, keep_s=0.0)
        found = await targets.history(request.now - request.since_s + request.step_s, request.now, request.step_s)
        if isinstance(found, Failure):
            raise self.error(found.detail)
        return found


def read_history(
    names: Sequence[str], url: str, of_time: tuple[float, str | None], bearer_file: str | None, progress: Progress
) -> dict[str, Any]:
    """The report of a time: its seconds until now, and the month, if it is one. Raises BadReportRequest."""
    access, (since_s, month) = Credentials(bearer_file=bearer_file), of_time
    if month is None:
        request = HistoryReportRequest(names, url, since_s, time.time(), access)
    else:
        request = HistoryReportRequest.of_month(names, url, month, time.time(), access)
    return asyncio.run(collect_history(request, progress))


async def collect_history(request: HistoryReportRequest, progress: Progress) -> dict[str, Any]:
    """The report of a history. Raises BadReportRequest."""
    http = HttpPages(LIMITS)
    server = _Server(request, http)
    try:
        texts = [query.text(request.window) for query in history.QUERIES.values()]
        results = dict(zip(history.QUERIES, await asyncio.gather(*map(server.instant, texts)), strict=True))
        accounts = history.accounts_of(results, request.now - request.since_s, request.now)
        if request.month is not None:
            seconds, cost = [await server.daily(history.QUERIES[name]) for name in ("gpu_seconds", "cost")]
            accounts = history.with_days({**accounts, "month": request.month}, seconds, cost)
        accounts = ledger.chosen(accounts, request.names)
        accounted = [ledger.label(each) for each in accounts["workloads"]]
        names = list(request.names) or accounted
        profiles = []
        for index, name in enumerate(names):
            progress(name, index / len(names))
            profiles.append(await _profile(server, name))
    finally:
        server.promql.close()
        await http.close()
    if not accounted and not any(profile.usage for profile in profiles):
        raise server.error("no accounts of Tidegate, and no series of these workloads in this time")
    report = statement.build(accounts, profiles)
    if request.names:  # sums of some workloads are not to be compared with the nodes
        report["nodes"] = report["reconciliation"] = None
    return report


async def _profile(server: _Server, name: str) -> Profile:
    namespace, _, label = name.partition("/")
    workload = WorkloadKey(namespace, *label.split("/", 1))
    request = server.request
    pods = HistoryRequest(request.url, WorkloadKey(namespace, workload.name), 0.0, 0.0).matchers
    exported = pods.replace("namespace=", "exported_namespace=").replace("pod=", "exported_pod=")
    engines = await server.frames(workload, AUTO, Role.PODS, pods)
    queries = (
        _HELD_GPUS.format(names=_GPU_NAMES, matchers=matchers, window=request.window) for matchers in (exported, pods)
    )
    uuids = {entry.labels.get("UUID", "") for query in queries for entry in await server.instant(query)} - {""}
    gpus: Sequence[HistoryFrame] = ()
    if uuids:
        gpus = await server.frames(workload, "dcgm", Role.GPUS, f'UUID=~"{"|".join(sorted(uuids))}"')
    moments, slices = _read(workload, engines, gpus, request.step_s)
    exposed = await server.instant(f'{{__name__=~"{"|".join(FAMILIES)}",{pods}}}')
    memory = engine_memory(EngineSeries(each.labels["__name__"], each.labels, each.value) for each in exposed)
    return replace(of_moments(workload, moments, request.step_s, request.now), slices=slices, engine=memory)


def _read(
    workload: WorkloadKey, engines: Sequence[HistoryFrame], gpus: Sequence[HistoryFrame], step_s: float
) -> tuple[list[Floats], tuple[SliceThroughput, ...]]:
    """One row of usage per moment, and the throughputs on slices."""
    reader, moments = _PageReader(), []
    before: Mapping[str, Floats] = {}
    gpus_at = {frame.at: frame for frame in gpus}
    pages: dict[Role, dict[str, list[RecordedPage]]] = {Role.PODS: {}, Role.GPUS: {}}

    def matches(pod: PodKey) -> bool:
        suffix = pod.pod.removeprefix(workload.name)
        return pod.namespace == workload.namespace and _POD_SUFFIX.fullmatch(suffix) is not None

    for frame in engines:
        pods = list(reader.read(frame.pages, frame.at))
        nodes = list(reader.read(gpus_at[frame.at].pages, frame.at)) if frame.at in gpus_at else []
        for role, found in ((Role.PODS, pods), (Role.GPUS, nodes)):
            for target, samples in found if step_s <= LONGEST_S else ():
                name = target.url if target.pod is None or role is Role.GPUS else target.pod.pod
                pages[role].setdefault(name, []).append(RecordedPage(frame.at, samples))
        values = usage_at([each for _, each in pods], [each for _, each in nodes], matches)
        now = {target.url: history.counters_of(each) for target, each in pods}
        history.write_rates(values, before, now, step_s)
        before = now
        if not np.isnan(values).all():
            moments.append(values)
    return moments, throughputs(pages[Role.PODS], pages[Role.GPUS].values(), matches)


class _PageReader:
    """Parses the pages of each target with the target's own reader, which follows its series."""

    def __init__(self) -> None:
        self._readers: dict[str, tuple[Reader, Scanner]] = {}

    def read(self, pages: Mapping[Target, bytes], at: float) -> Iterable[tuple[Target, Samples]]:
        for target, page in pages.items():
            if target.url not in self._readers:
                self._readers[target.url] = Reader(target.kind), Scanner()
            samples = read(page, *self._readers[target.url], at)
            if isinstance(samples, Samples):
                yield target, samples
