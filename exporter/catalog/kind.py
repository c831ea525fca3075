"""Defines kinds of targets: how to detect one, its default port and path, and how its layouts become plans.

A kind is one vendor's metrics: a table of `SeriesRow`s, or a compile function of its own (DCGM).

Health checks are left out of the counters of finished and failed requests where a label names the path. KEDA's HTTP
add-on, the routes of LiteLLM and Ray Serve, and BentoML or FastAPI servers behind `tidegate export` count requests by
path, and a probe every ten seconds would keep a workload awake for ever. What waits or runs is never left out. Counters
without a path are analysed elsewhere, by how regularly they rise (`scaler.signals.activity`). These do not count
probes: Envoy (its active health checks are `health_check.attempt`), Knative (neither kubelet's probes nor its own),
Triton, KServe and vLLM (only inferences).

Worked example: `interceptor_request_count_total{method="GET",path="/healthz"}` counts probes,
`{path="/v1/models/health:predict"}` does not: the last part of the path has to be one of `PROBE_PATHS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import isnan
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from exporter.histogram import Latency, LatencyBuckets, Parts
from exporter.model import Quantity, Subject
from exporter.textformat import Layout

from .plan import Cell, Mask, ReadPlan, Unpaired, build
from .schema import Columns, Combine, Finish, Key, Labels, SeriesRow, Subjects, one_queue_each, unchanged

# What shows a request at zero replicas. "queue": a broker, or a gateway that keeps the request. "in_flight": a gateway
# that keeps it and counts it among those in flight. "refused": the request is rejected and only a counter of failures
# rises: enough to wake, too little to size. "counted": rejected too, but counted among all requests as they arrive.
# "nothing": the target dies with its pod, or exposes GPUs, which are not allocated at zero.
AtZero: TypeAlias = Literal["queue", "in_flight", "refused", "counted", "nothing"]

# Parts are columns of their own until they are combined. Few engines have more data-parallel ranks or models than this;
# of a response that has more, each series is a part, which makes too much of copies and never too little.
MOST_PARTS, MOST_SUBJECTS = 64, 256

# Labels that name the path of a request. Instrumentations of FastAPI and Starlette use handler or path, OpenTelemetry
# http_route, http_target or url_path, LiteLLM and Ray Serve route, BentoML endpoint, nginx' exporters uri.
PATH_LABELS = ("path", "route", "handler", "endpoint", "http_route", "url_path", "http_target", "uri")
# The last part of a probe's path. Kubernetes' conventions (healthz, livez, readyz), Prometheus' own scrape (metrics),
# SageMaker's and TorchServe's ping, Triton's and KServe's v2/health/{live,ready}, LiteLLM's health/liveliness, Ray's
# -/healthz, vLLM's and SGLang's health. Not `status`, `info` or `version`: users request those.
PROBE_PATHS = frozenset({
    "health", "healthz", "health_check", "healthcheck", "healthy", "livez", "readyz", "live", "ready", "liveness",
    "readiness", "liveliness", "ping", "metrics",
})  # fmt: skip
COUNTERS = frozenset({Quantity.REQUESTS_FINISHED, Quantity.REQUESTS_FAILED})
# What an SLO sizes a workload by (`scaler.signals.rates`): requests from arrival to end, tokens, times between tokens.
SIZED_BY = frozenset({
    Quantity.REQUESTS_WAITING, Quantity.REQUESTS_RUNNING, Quantity.REQUESTS_FINISHED, Quantity.TOKENS_PROMPT,
    Quantity.TOKENS_GENERATED, Quantity.FIRST_TOKENS, Quantity.ITL_COUNT, Quantity.ITL_SECONDS,
})  # fmt: skip

# What the time of a request sizes a workload by, where tokens are not counted (`scaler.policy.service_time`).
TIMED_BY = frozenset({Quantity.REQUESTS_WAITING, Quantity.REQUESTS_RUNNING, Quantity.REQUESTS_FINISHED})


def compile_table(kind: Kind, layout: Layout) -> ReadPlan:
    """The plan of a kind that is written as rows. Once per layout."""
    found = _found(kind.rows, layout, layout.labels)
    keys = [key for key, _ in sorted(_first_series(found).items(), key=lambda item: item[1])]
    subject_of = {key: subject for key, subject in zip(keys, kind.subjects(keys), strict=True) if subject is not None}
    subjects = tuple(dict.fromkeys(subject_of.values()))
    subject_row = {subject: row for row, subject in enumerate(subjects)}
    row_of = {key: subject_row[subject] for key, subject in subject_of.items()}
    placed = [
        [(index, row_of[key]) for key, index in _first_present(row, names, layout.labels) if key in row_of]
        for row, names in zip(kind.rows, found, strict=True)
    ]
    finish = _from_zero(frozenset(_only_declared(kind, found, layout)), kind.finish)
    cells, parts = _cells(kind.rows, placed, layout, len(subjects))
    timed: dict[int, list[int]] = {}
    for key, members in _groups(found):
        if key in row_of:
            timed.setdefault(row_of[key], []).extend(members)
    return build(
        kind.name,
        subjects,
        cells,
        _combining(parts, finish) if parts else finish,
        timed=timed,
        families={name: row.column for row in kind.rows for name in row.names},
        feeds={**kind.feeds, **{part.column: kind.feeds.get(part.row.column, part.row.column) for part in parts}},
        histograms=_histograms(kind.histograms, row_of, layout) if len(subjects) <= MOST_SUBJECTS else {},
        unpaired=tuple(_unpaired(kind, placed, layout)),
    )


@dataclass(frozen=True, slots=True)
class Kind:
    """One vendor's metrics.

    signs:   how names of this kind begin, and how much that proves: a target is of the kind with its strongest sign.
             3: only the outer server. 2: a vendor's own prefix. 1: also in responses of other kinds. 0: a proxy that
             exposes whatever it stands beside (Istio merges the application's metrics into Envoy's).
    port:    where the target is by default, with `path`.
    rows:    the table. subjects: the subject of each key of a response, in their order; None leaves one out.
    finish:  the last arithmetic between columns, once per response.
    feeds:   the quantity that a column of the kind's own becomes there.
    work:    requests per replica to aim at (waiting + running); None if the kind has no queue. Of a kind that an SLO or
             the time of a request sizes, the fallback until its counters are read. Of others a starting point: what one
             replica can carry depends on model, GPU and lengths.
    repeats_engines: its waiting and running are the engines' own requests, not more of them; what it holds back itself
             is `requests_held`.
    at_zero: what shows a request when no replica exists.
    counts_open: its requests in flight are counted by itself, so they show one that waits in an engine that sleeps.
    families: those that `compile` reads without a row.
    histograms: rows of the buckets of a latency; the first family present counts. They are read where a limit is given.
    paired:  quantities whose series come together: for each label set of one there is one of the other.
    lags:    its gauges are refreshed later than its counters, by seconds: arrivals are counted by first tokens.
    declares: counters that have no series before the first request, only a `# TYPE` line: they are 0 then.
    namespaced: the names of its queues begin with their Kubernetes namespace.
    forgets: a request that its client leaves is among its first tokens and in no counter of requests.
    unsized: why an SLO is measured by its histograms and does not size the workload, for people; "" if it does, or if
             there are no histograms.
    """

    name: str
    signs: Mapping[str, Literal[0, 1, 2, 3]]
    port: int
    rows: tuple[SeriesRow, ...] = ()
    subjects: Subjects = one_queue_each
    finish: Finish = unchanged
    feeds: Mapping[str, Quantity] = field(default_factory=dict)
    path: str = "/metrics"
    work: float | None = None
    repeats_engines: bool = False
    at_zero: AtZero = "nothing"
    counts_open: bool = False
    compile: Callable[[Kind, Layout], ReadPlan] = compile_table
    families: Collection[str] = ()
    histograms: tuple[SeriesRow, ...] = ()
    declares: Collection[Quantity] = ()
    paired: tuple[Quantity, Quantity] | None = None
    lags: bool = False
    namespaced: bool = False
    forgets: bool = False
    unsized: str = ""

    @property
    def sized_by_slo(self) -> bool:
        """Whether its targets expose all that an SLO sizes a workload by."""
        return not self.unsized and SIZED_BY.issubset(row.column for row in self.rows)

    @property
    def times_requests(self) -> bool:
        """Whether its targets expose requests in hand and count finished ones: the time of a request follows."""
        return TIMED_BY.issubset(row.column for row in self.rows)

    @property
    def measures_slo(self) -> bool:
        """Whether its targets expose a histogram of each latency of an SLO."""
        return {row.column for row in self.histograms} == set(Latency)


def _only_declared(kind: Kind, found: Sequence[_Groups], layout: Layout) -> Iterator[str]:
    """The columns of `kind.declares` without a series, of which a family is declared."""
    for row, names in zip(kind.rows, found, strict=True):
        if row.column in kind.declares and not any(names.values()) and any(name in layout.types for name in row.names):
            yield row.column


def _from_zero(columns: Collection[str], finish: Finish) -> Finish:
    """`finish`, after these columns are set to 0."""
    if not columns:
        return finish

    def fill(values: Columns, subjects: tuple[Subject, ...]) -> tuple[Columns, tuple[Subject, ...]]:
        values.update({column: np.zeros(len(subjects)) for column in columns})
        return finish(values, subjects)

    return fill


def _unpaired(kind: Kind, placed: _Placed, layout: Layout) -> Iterator[Unpaired]:
    """The series whose pair is not there. If a whole family is absent, its quantity is unknown anyway."""
    if kind.paired is None:
        return
    series = {row.column: members for row, members in zip(kind.rows, placed, strict=True)}
    for one, other in (kind.paired, kind.paired[::-1]):
        there = {frozenset(layout.labels(index).items()): layout.names[index] for index, _ in series[other]}
        family = next(iter(there.values()), "")
        for index, at in series[one] if there else ():
            if frozenset(layout.labels(index).items()) not in there:
                yield Unpaired(index, at, other, family)


def is_probe(labels: Labels) -> bool:
    """Whether a label says that these requests were health checks or scrapes."""
    return any(_last_part(labels[name]) in PROBE_PATHS for name in PATH_LABELS if name in labels)


class _Part(NamedTuple):
    """One part of a row: its own column, and which subjects have it, shape (subjects,)."""

    row: SeriesRow
    column: str
    there: Mask


_Placed = Sequence[Sequence[tuple[int, int]]]  # of each row: (series, row of its subject)


def _cells(
    rows: Sequence[SeriesRow], placed: _Placed, layout: Layout, subjects: int
) -> tuple[list[Cell], Sequence[_Part]]:
    """The cells of all rows, and the parts: a row with parts has a column for each."""
    cells: list[Cell] = []
    parts: dict[str, _Part] = {}
    numbered = [_numbered(row, members, layout) for row, members in zip(rows, placed, strict=True)]
    crowded = {row.column for row, numbers in zip(rows, numbered, strict=True) if max(numbers, default=0) >= MOST_PARTS}
    for row, members, numbers in zip(rows, placed, numbered, strict=True):
        if row.part is None or row.column in crowded or subjects > MOST_SUBJECTS:
            cells += [Cell(index, at, row.column, row.combine, row.unit) for index, at in members]
            continue
        for (index, at), number in zip(members, numbers, strict=True):
            column = f"{row.column} of {row.names[0]}, part {number}"
            part = parts.setdefault(column, _Part(row, column, np.zeros(subjects, dtype=np.bool_)))
            part.there[at] = True
            cells.append(Cell(index, at, column, Combine.COPY, row.unit))
    return cells, tuple(parts.values())


def _numbered(row: SeriesRow, members: Sequence[tuple[int, int]], layout: Layout) -> list[int]:
    """The number of each series' part among its subject's parts; nothing for a row without parts."""
    if row.part is None:
        return []
    parts: dict[int, dict[Key, int]] = {}
    numbers = []
    for index, at in members:
        of_subject = parts.setdefault(at, {})
        numbers.append(of_subject.setdefault(row.part(layout.labels(index)), len(of_subject)))
    return numbers


def _combining(parts: Sequence[_Part], finish: Finish) -> Finish:
    """`finish`, after the parts are combined. A part without a valid value makes its column NaN."""

    def combine(columns: Columns, subjects: tuple[Subject, ...]) -> tuple[Columns, tuple[Subject, ...]]:
        totals = {part.row.column: np.zeros(len(subjects)) for part in parts}
        counts = {part.row.column: np.zeros(len(subjects)) for part in parts}
        for part in parts:
            totals[part.row.column] += np.where(part.there, columns.pop(part.column), 0.0)
            counts[part.row.column] += part.there
        for part in parts:
            name = part.row.column
            divisor = counts[name] if part.row.combine is Combine.MEAN else 1.0
            columns[name] = np.where(counts[name] > 0.0, totals[name] / np.maximum(divisor, 1.0), np.nan)
        return finish(columns, subjects)

    return combine


def _histograms(
    rows: Sequence[SeriesRow], row_of: Mapping[Key, int], layout: Layout
) -> Mapping[Latency, Mapping[int, Parts]]:
    """The histograms of each subject. One that has more than MOST_PARTS has none: they would cost at each response."""
    found: dict[Latency, dict[int, Parts]] = {}
    labels_of = cache(layout.labels_once)
    for row, names in zip(rows, _found(rows, layout, labels_of), strict=True):
        parts: dict[int, dict[Key, dict[Key, dict[float, int]]]] = {}  # row -> part -> copy -> bound -> series
        for key, index in _first_present(row, names, labels_of):
            labels = labels_of(index)
            rest = {name: value for name, value in labels.items() if name != "le"}
            bound = _bound(labels.get("le", ""))
            if key in row_of and bound is not None:
                copy = tuple(sorted(f"{name}={value}" for name, value in rest.items()))
                part = copy if row.part is None else row.part(rest)
                parts.setdefault(row_of[key], {}).setdefault(part, {}).setdefault(copy, {}).setdefault(bound, index)
        found[Latency(row.column)] = {
            at: tuple(tuple(_buckets(copy) for copy in copies.values()) for copies in of_subject.values())
            for at, of_subject in parts.items()
            if sum(map(len, of_subject.values())) <= MOST_PARTS
        }
    return {latency: subjects for latency, subjects in found.items() if subjects}


def _buckets(series: Mapping[float, int]) -> LatencyBuckets:
    bounds = sorted(series)
    return LatencyBuckets(tuple(bounds), tuple(series[bound] for bound in bounds))


def _bound(text: str) -> float | None:
    """The bound of a bucket, seconds. None: no such number."""
    try:
        bound = float(text)
    except ValueError:
        return None
    return None if isnan(bound) or bound < 0.0 else bound


_Groups = dict[str, dict[Key, list[int]]]  # name -> key -> indices of series


_LabelsOf = Callable[[int], Labels]  # by the index of the series


def _found(rows: Sequence[SeriesRow], layout: Layout, labels_of: _LabelsOf) -> list[_Groups]:
    by_name: dict[str, list[int]] = {}
    for index in layout.select(frozenset(name for row in rows for name in row.names)):
        by_name.setdefault(layout.names[index], []).append(index)
    found = []
    for row in rows:
        names: _Groups = {name: {} for name in row.names if name in by_name}
        for name, groups in names.items():
            for index in by_name[name]:
                labels = labels_of(index)
                if row.column not in COUNTERS or not is_probe(labels):
                    groups.setdefault(row.key(labels), []).append(index)
        found.append(names)
    return found


def _first_series(found: Sequence[_Groups]) -> dict[Key, int]:
    first: dict[Key, int] = {}
    for key, members in _groups(found):
        first[key] = min(members[0], first.get(key, members[0]))
    return first


def _groups(found: Sequence[_Groups]) -> Iterator[tuple[Key, list[int]]]:
    return (group for names in found for groups in names.values() for group in groups.items())


def _first_present(row: SeriesRow, names: _Groups, labels_of: _LabelsOf) -> list[tuple[Key, int]]:
    """For each key the series of the first family that has it: a renamed family exposed twice is one number."""
    chosen: dict[Key, list[int]] = {}
    for groups in names.values():
        for key, members in groups.items():
            labels: list[Labels] = [labels_of(index) for index in members]
            kept = [members[position] for position in row.keep(labels)]
            if kept:
                chosen.setdefault(key, kept)
    return [(key, index) for key, kept in chosen.items() for index in kept]


def _last_part(path: str) -> str:
    return path.partition("?")[0].rstrip("/").rpartition("/")[2].lower() if "/" in path else ""
