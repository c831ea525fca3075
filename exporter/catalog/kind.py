"""What a kind of page is: how to know it, where it is served by default, and how its layouts become plans.

Health checks by name: series of request counters that a path or a route tells to be probes, and nobody's requests.

Where a page counts requests by path (KEDA's HTTP add-on, LiteLLM's and Ray Serve's routes, a BentoML or FastAPI server
behind our own export), a prober that asks every ten seconds would keep a workload awake for ever. Such series are left
out of the counters of finished and failed requests; what waits or runs is never left out by its name. Pages that count
without a path are looked at elsewhere, by how regularly they rise (`scaler.signals.smoothing.activity`).

Left as they are, because they do not count probes: Envoy (its active health checks are `health_check.attempt`), Knative
(requests of kubelet and of its own probes are not counted), Triton, KServe and vLLM (only inferences are).

Worked example: `interceptor_request_count_total{method="GET",path="/healthz"}` is a probe's,
`{path="/v1/models/health:predict"}` is not: the last part of the path has to be one of `LAST`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from exporter.model import Quantity, Subject
from exporter.textformat import Layout

from .plan import Cell, Mask, ReadPlan, build
from .schema import Columns, Combine, Finish, Key, KindTable, Labels, SeriesRow

# What lives at zero replicas. "queue": a broker, or a gateway that keeps the request: what waits is there to be read,
# and its absence is unknown. "refused": the request is turned away and only a counter of failures rises: enough to
# wake, too little to size. "counted": refused too, but counted among all requests as they arrive, and nowhere apart.
# "nothing": the page dies with its pod, or shows GPUs, which nobody holds at zero.
AtZero: TypeAlias = Literal["queue", "in_flight", "refused", "counted", "nothing"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One vendor's page.

    signs:   how families of this kind begin, and how much that says: a page is of the kind with the strongest sign on
             it. 3: only ever the outer server. 2: a vendor's own prefix. 1: seen on other kinds' pages too. 0: a proxy
             that prints whatever it stands beside (Istio merges the application's page into Envoy's).
    port:    where the page is by default, with `path`.
    work:    requests per replica to aim at (waiting + running); None where a page has no queue. A place to start: what
             one replica can carry depends on model, GPU and lengths, and is for the user to measure.
    repeats_engines: its waiting and running are the engines' own requests seen at another end, not more of them; what
             it holds back itself is `requests_held`.
    at_zero: what of the page moves when a request comes and no replica is there.
    """

    name: str
    signs: Mapping[str, Literal[0, 1, 2, 3]]
    port: int
    path: str
    work: float | None
    compile: Callable[[Layout], ReadPlan]
    repeats_engines: bool = False
    at_zero: AtZero = "nothing"


# Parts are columns of their own until they are combined. Few engines have more data-parallel ranks or models than this;
# of a response that has more, each series is a part, which makes too much of copies and never too little.
MOST_PARTS, MOST_SUBJECTS = 64, 256


def compile_table(kind: str, table: KindTable, layout: Layout) -> ReadPlan:
    """The plan of a page whose kind is written as a table. Once per layout."""
    found = _found(table.rows, layout)
    keys = [key for key, _ in sorted(_first_seen(found).items(), key=lambda item: item[1])]
    subject_of = {key: subject for key, subject in zip(keys, table.subjects(keys), strict=True) if subject is not None}
    subjects = tuple(dict.fromkeys(subject_of.values()))
    place = {subject: row for row, subject in enumerate(subjects)}
    placed = [
        [(index, place[subject_of[key]]) for key, index in _first_present(row, names, layout) if key in subject_of]
        for row, names in zip(table.rows, found, strict=True)
    ]
    cells, parts = _cells(table.rows, placed, layout, len(subjects))
    timed: dict[int, list[int]] = {}
    for names in found:
        for groups in names.values():
            for key, members in groups.items():
                if key in subject_of:
                    timed.setdefault(place[subject_of[key]], []).extend(members)
    return build(
        kind,
        subjects,
        cells,
        _combining(parts, table.finish) if parts else table.finish,
        timed=timed,
        families={name: row.column for row in table.rows for name in row.names},
        feeds={**table.feeds, **{part.column: table.feeds.get(part.row.column, part.row.column) for part in parts}},
    )


class _Part(NamedTuple):
    """One part of a row: its own column, and which subjects have it, shape (subjects,)."""

    row: SeriesRow
    column: str
    there: Mask


_Placed = Sequence[Sequence[tuple[int, int]]]  # of each row: (series, the place of its subject)


def _cells(
    rows: Sequence[SeriesRow], placed: _Placed, layout: Layout, subjects: int
) -> tuple[list[Cell], Sequence[_Part]]:
    """The cells of all rows. Rows with parts have a column for each part, and these parts are returned beside them."""
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
    known: dict[int, dict[Key, int]] = {}
    numbers = []
    for index, at in members:
        of_subject = known.setdefault(at, {})
        numbers.append(of_subject.setdefault(row.part(layout.series[index].labels), len(of_subject)))
    return numbers


def _combining(parts: Sequence[_Part], finish: Finish) -> Finish:
    """`finish`, after the parts are combined. A part that is there and cannot be read makes its column NaN."""

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


_Groups = dict[str, dict[Key, list[int]]]  # name -> key -> indices of series


def _found(rows: Sequence[SeriesRow], layout: Layout) -> list[_Groups]:
    by_name: dict[str, list[int]] = {}
    for index in layout.select(frozenset(name for row in rows for name in row.names)):
        by_name.setdefault(layout.names[index], []).append(index)
    found = []
    for row in rows:
        names: _Groups = {name: {} for name in row.names if name in by_name}
        for name, groups in names.items():
            for index in by_name[name]:
                labels = layout.series[index].labels
                if row.column not in COUNTERS or not is_probe(labels):
                    groups.setdefault(row.key(labels), []).append(index)
        found.append(names)
    return found


def _first_seen(found: Sequence[_Groups]) -> dict[Key, int]:
    first: dict[Key, int] = {}
    for names in found:
        for groups in names.values():
            for key, members in groups.items():
                first[key] = min(members[0], first.get(key, members[0]))
    return first


def _first_present(row: SeriesRow, names: _Groups, layout: Layout) -> list[tuple[Key, int]]:
    """For each key the series of the first family that has it: a renamed family printed twice is one number."""
    chosen: dict[Key, list[int]] = {}
    for groups in names.values():
        for key, members in groups.items():
            labels: list[Labels] = [layout.series[index].labels for index in members]
            kept = [members[position] for position in row.keep(labels)]
            if kept:
                chosen.setdefault(key, kept)
    return [(key, index) for key, kept in chosen.items() for index in kept]


# Where a page says which path was asked. Instrumentations of FastAPI and Starlette say handler or path, OpenTelemetry
# http_route, http_target or url_path, LiteLLM and Ray Serve route, BentoML endpoint, nginx' exporters uri.
LABELS = ("path", "route", "handler", "endpoint", "http_route", "url_path", "http_target", "uri")

# The last part of a probe's path. Kubernetes' conventions (healthz, livez, readyz), Prometheus' own scrape (metrics),
# SageMaker's and TorchServe's ping, Triton's and KServe's v2/health/{live,ready}, LiteLLM's health/liveliness, Ray's
# -/healthz, vLLM's and SGLang's health. Not `status`, `info` or `version`: people ask for those.
LAST = frozenset(
    {
        *(
            "health",
            "healthz",
            "health_check",
            "healthcheck",
            "livez",
            "readyz",
            "live",
            "ready",
            "liveness",
            "readiness",
        ),
        *("liveliness", "ping", "metrics", "healthy"),
    }
)

COUNTERS = frozenset({Quantity.REQUESTS_FINISHED, Quantity.REQUESTS_FAILED})


def is_probe(labels: Labels) -> bool:
    """Does one of its labels say that these were health checks, or scrapes?"""
    return any(_last_part(labels[name]) in LAST for name in LABELS if name in labels)


def _last_part(path: str) -> str:
    return path.partition("?")[0].rstrip("/").rpartition("/")[2].lower() if "/" in path else ""
