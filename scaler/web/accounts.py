"""The books as Prometheus metrics and as a document: where GPU-seconds went, and what an observed workload would save.

It knows names and labels; what is counted, `scaler.accounts` says. A follower shows no samples: of several replicas of
Tidegate one has them, so a sum over all is right. A number that is not known has no sample, and is null.

Worked example: `sum by (state) (rate(tidegate_workload_gpu_seconds_total[5m]))` is how many GPUs of the
fleet serve, are idle and load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from aiohttp import web
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from exporter.model import Floats, WorkloadKey

from ..accounts import STATES, Books, Sums
from ..slots import Mask

PATH = "/api/v1/accounts"
LABELS = ("namespace", "workload")

Labels = dict[str, str]


class Bookkeeping(Protocol):
    """Whose books are kept, in the order of their slots."""

    @property
    def workloads(self) -> Sequence[WorkloadKey]: ...

    @property
    def observed(self) -> Mask: ...

    @property
    def books(self) -> Books: ...


Kept = Callable[[], Bookkeeping | None]  # None before the first configuration works


class Family(NamedTuple):
    """A counter: its name, its help, its own label if it has one, and which sum each of that label's values is."""

    name: str
    help: str
    label: str | None
    sums: Mapping[str, str]


COUNTERS = (
    Family("wakes", "How often some replica was to run after none, by what the cluster was told.", None, {"": "wakes"}),
    Family("sleeps", "How often none was to run after some.", None, {"": "sleeps"}),
    Family("requests_finished", "Requests that engines have finished, pods come and go.", None, {"": "requests"}),
    Family("tokens", "Tokens that engines counted.", "kind", {"prompt": "prompt", "generation": "generated"}),
)
SHADOW = (
    Family(
        "shadow_seconds", "Time in which an observed workload's replicas and ours were known.", None, {"": "shadow"}
    ),
    Family(
        "shadow_gpu_seconds_saved", "GPU-seconds that an observed workload would have held less.", None, {"": "saved"}
    ),
    Family(
        "shadow_gpu_seconds_added", "GPU-seconds that an observed workload would have held more.", None, {"": "added"}
    ),
    Family("shadow_queue_seconds", "Request-seconds waited while Tidegate would have had more.", None, {"": "queued"}),
    Family(
        "shadow_disagreement_seconds",
        "Time in which Tidegate would have had more replicas of an observed workload, or fewer.",
        "direction",
        {"more": "more", "fewer": "fewer"},
    ),
)


class AccountsCollector:
    """leads: are the books that others read ours? `now` is POSIX seconds."""

    def __init__(self, kept: Kept, leads: Callable[[float], bool], now: Callable[[], float]) -> None:
        self._kept, self._leads, self._now = kept, leads, now

    def collect(self) -> Iterable[Metric]:
        kept = self._kept() if self._leads(self._now()) else None
        labels = (
            [] if kept is None else [dict(zip(LABELS, (w.namespace, w.label), strict=True)) for w in kept.workloads]
        )
        yield from _states(kept, labels)
        sums = None if kept is None else kept.books.shown
        yield from (_counter(family, sums, labels) for family in COUNTERS)
        # Who was never observed has no shadow, rather than one of 0.
        where = None if kept is None else kept.observed | (kept.books.kept.shadow > 0.0)
        yield from (_counter(family, sums, labels, where) for family in SHADOW)
        yield _would(kept, labels)


def _states(kept: Bookkeeping | None, labels: Sequence[Labels]) -> Iterable[Metric]:
    gpus = GaugeMetricFamily(
        "tidegate_workload_gpus",
        "GPUs of the workload by what they do now; asleep: those that it would hold if it were awake.",
        labels=(*LABELS, "state"),
    )
    gpu_seconds = CounterMetricFamily(
        "tidegate_workload_gpu_seconds",
        "GPU-seconds by what the GPUs did, since this process leads.",
        labels=(*LABELS, "state"),
    )
    seconds = CounterMetricFamily(
        "tidegate_workload_state_seconds", "Time that the workload spent in each state.", labels=(*LABELS, "state")
    )
    if kept is not None:
        books = kept.books
        for place, state in enumerate(STATES):
            here = [{**label, "state": str(state)} for label in labels]  # shared by the families: it halves the time
            _add(gpus, "tidegate_workload_gpus", here, books.now.gpus[:, place])
            _add(gpu_seconds, "tidegate_workload_gpu_seconds_total", here, books.shown.gpu_seconds[:, place])
            _add(seconds, "tidegate_workload_state_seconds_total", here, books.shown.state_seconds[:, place])
    yield from (gpus, gpu_seconds, seconds)


def _counter(said: Family, sums: Sums | None, labels: Sequence[Labels], where: Mask | None = None) -> Metric:
    """where: whose it is; None is everybody's."""
    family = CounterMetricFamily(
        f"tidegate_{said.name}", said.help, labels=(*LABELS, *([said.label] if said.label else []))
    )
    for value, column in said.sums.items() if sums is not None else ():
        here = labels if said.label is None else [{**each, said.label: value} for each in labels]
        numbers: Floats = getattr(sums, column)
        _add(family, f"{family.name}_total", here, numbers if where is None else np.where(where, numbers, np.nan))
    return family


def _would(kept: Bookkeeping | None, labels: Sequence[Labels]) -> Metric:
    family = GaugeMetricFamily(
        "tidegate_shadow_replicas", "Replicas that Tidegate would have of an observed workload.", labels=LABELS
    )
    if kept is not None:
        _add(family, "tidegate_shadow_replicas", labels, np.where(kept.observed, kept.books.now.would, np.nan))
    return family


def _add(family: Metric, name: str, labels: Sequence[Labels], values: Floats) -> None:
    known = np.flatnonzero(~np.isnan(values)).tolist()
    numbers = values.tolist()
    family.samples += [Sample(name, labels[row], numbers[row]) for row in known]


def document(kept: Bookkeeping | None, gpu_hour: float | None, now: float) -> dict[str, Any]:
    """`/api/v1/accounts`, plain JSON-able data.

    gpu_hour: what a GPU costs for an hour; None where nobody has said. now: POSIX seconds.
    """
    if kept is None:
        return {"now": now, "since": None, "gpu_hour": gpu_hour, "workloads": []}
    since = kept.books.since
    begun = since[~np.isnan(since)]
    return {
        "now": now,
        "since": float(begun.min()) if len(begun) else None,
        "gpu_hour": gpu_hour,
        "workloads": [
            _entry(kept, row) for row in sorted(range(len(kept.workloads)), key=lambda row: kept.workloads[row])
        ],
    }


def _entry(kept: Bookkeeping, row: int) -> dict[str, Any]:
    workload, sums = kept.workloads[row], kept.books.kept
    numbers = {name: _number(column[row]) for name, column in sums._asdict().items() if column.ndim == 1}
    observed = bool(kept.observed[row])
    shadow = {
        "seconds": numbers["shadow"],
        "gpu_seconds_saved": numbers["saved"],
        "gpu_seconds_added": numbers["added"],
        "queue_seconds": numbers["queued"],
        "more_seconds": numbers["more"],
        "fewer_seconds": numbers["fewer"],
    }
    return {
        "namespace": workload.namespace,
        "name": workload.name,
        "trigger": workload.trigger,
        "since": _number(kept.books.since[row]),
        "observed": observed,
        "gpu_seconds": _by_state(sums.gpu_seconds[row]),
        "state_seconds": _by_state(sums.state_seconds[row]),
        "wakes": numbers["wakes"],
        "sleeps": numbers["sleeps"],
        "requests_finished": numbers["requests"],
        "tokens": {"prompt": numbers["prompt"], "generation": numbers["generated"]},
        "shadow": shadow if observed or numbers["shadow"] else None,
    }


def _by_state(values: Floats) -> Mapping[str, float | None]:
    return {str(state): _number(value) for state, value in zip(STATES, values.tolist(), strict=True)}


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def routes(kept: Kept, gpu_hour: Callable[[], float | None], now: Callable[[], float]) -> list[web.RouteDef]:
    """For `WebServer(more=…)`."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(document(kept(), gpu_hour(), now()))

    return [web.get(PATH, answer)]
