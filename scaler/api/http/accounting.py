"""Exposes GPU-seconds by state, and shadow scores: what Tidegate would do for an observed workload.

It knows names and labels; what is counted, `scaler.engine.accounting` says. A follower shows no samples: of several
replicas of Tidegate one has them, so a sum over all is right. A number that is not known has no sample, and is null.

Worked example: `sum by (state) (rate(tidegate_workload_gpu_seconds_total[5m]))` is how many GPUs of the
fleet serve, are idle and load.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isnan
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
from aiohttp import web
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from exporter.model import Floats, WorkloadKey
from scaler.columns import Mask
from scaler.engine.accounting import STATES, Ledger, LedgerSums

PATH = "/api/v1/accounts"
LABELS = ("namespace", "workload")


class Bookkeeping(Protocol):
    """Whose books are kept, in the order of their slots."""

    @property
    def workloads(self) -> Sequence[WorkloadKey]: ...

    @property
    def observed(self) -> Mask: ...

    @property
    def books(self) -> Ledger: ...


Kept = Callable[[], Bookkeeping | None]  # None before the first configuration works


class AccountFamily(NamedTuple):
    """Its name, its help, its own label if it has one, and of a counter which sum each of that label's values is."""

    name: str
    help: str
    label: str | None
    sums: Mapping[str, str] = MappingProxyType({})


GPUS = AccountFamily("workload_gpus", "GPUs by state; asleep: those that it would hold if it ran.", "state")
WOULD = AccountFamily("shadow_replicas", "Replicas that Tidegate would set.", None)
GAUGES = (GPUS, WOULD)
GPU_SECONDS = AccountFamily(
    "workload_gpu_seconds", "GPU-seconds by state, since this process became the leader.", "state"
)
STATE_SECONDS = AccountFamily("workload_state_seconds", "Time of the workload by state.", "state")
COUNTERS = (
    AccountFamily("wakes", "Scale-ups from zero, counted from spec.replicas.", None, {"": "wakes"}),
    AccountFamily("sleeps", "Scale-downs to zero, counted from spec.replicas.", None, {"": "sleeps"}),
    AccountFamily("requests_finished", "Finished requests.", None, {"": "requests"}),
    AccountFamily(
        "tokens", "Tokens that the engines counted.", "kind", {"prompt": "prompt", "generation": "generated"}
    ),
)
SHADOW = (
    AccountFamily("shadow_seconds", "Time with known replicas and a known decision.", None, {"": "shadow"}),
    AccountFamily("shadow_gpu_seconds_saved", "GPU-seconds that Tidegate would have saved.", None, {"": "saved"}),
    AccountFamily("shadow_gpu_seconds_added", "GPU-seconds that Tidegate would have added.", None, {"": "added"}),
    AccountFamily(
        "shadow_queue_seconds",
        "Request-seconds of waiting while Tidegate would have set more replicas.",
        None,
        {"": "queued"},
    ),
    AccountFamily(
        "shadow_disagreement_seconds",
        "Time in which Tidegate would have set more or fewer replicas.",
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
        shown = None if kept is None else kept.books.shown
        moment = None if kept is None else kept.books.now
        by_state = {str(state): place for place, state in enumerate(STATES)}
        for family, table in (
            (GPUS, moment and moment.gpus),
            (GPU_SECONDS, shown and shown.gpu_seconds),
            (STATE_SECONDS, shown and shown.state_seconds),
        ):
            columns = {} if table is None else {state: table[:, place] for state, place in by_state.items()}
            yield _family(family, kept, columns)
        for family in COUNTERS:
            yield _family(family, kept, _columns(family, shown))
        # Who was never observed has no shadow, rather than one of 0.
        where: Mask | bool = False if kept is None else kept.observed | (kept.books.kept.shadow > 0.0)
        for family in SHADOW:
            columns = _columns(family, shown)
            yield _family(family, kept, {value: np.where(where, column, np.nan) for value, column in columns.items()})
        would = {} if kept is None else {"": np.where(kept.observed, kept.books.now.would, np.nan)}
        yield _family(WOULD, kept, would)


def _columns(family: AccountFamily, sums: LedgerSums | None) -> dict[str, Floats]:
    return {} if sums is None else {value: getattr(sums, column) for value, column in family.sums.items()}


def _family(said: AccountFamily, kept: Bookkeeping | None, columns: Mapping[str, Floats]) -> Metric:
    """columns: by the value of the family's own label."""
    labels = (*LABELS, *([said.label] if said.label else []))
    made = GaugeMetricFamily if said in GAUGES else CounterMetricFamily
    family: Metric = made(f"tidegate_{said.name}", said.help, labels=labels)
    if kept is not None:
        name = family.name if said in GAUGES else f"{family.name}_total"
        family.samples = _LazyAccountSamples(name, said.label, kept.workloads, columns)  # type: ignore[assignment]
    return family


class _LazyAccountSamples:
    """Samples that are made when they are written, which is done in a thread: ten thousand workloads have 230,000 of
    them, and making those takes half a second in which nobody else would be answered. The numbers are those of the
    moment of collecting.
    """

    def __init__(
        self, name: str, label: str | None, workloads: Sequence[WorkloadKey], columns: Mapping[str, Floats]
    ) -> None:
        self._name, self._label, self._workloads = name, label, workloads
        self._columns = {value: column.copy() for value, column in columns.items()}

    def __iter__(self) -> Iterator[Sample]:
        for value, column in self._columns.items():
            more = {} if self._label is None else {self._label: value}
            numbers = column.tolist()
            for row in np.flatnonzero(~np.isnan(column)).tolist():
                workload = self._workloads[row]
                labels = {"namespace": workload.namespace, "workload": workload.label, **more}
                yield Sample(self._name, labels, numbers[row])


class Account(NamedTuple):
    """The books as they are at one moment: nothing of it changes any more. A slot per workload."""

    workloads: Sequence[WorkloadKey]
    observed: Mask
    since: Floats
    sums: LedgerSums


def account(kept: Bookkeeping) -> Account:
    books = kept.books
    return Account(
        kept.workloads, kept.observed, books.since.copy(), LedgerSums(*(column.copy() for column in books.kept))
    )


def document(account: Account | None, gpu_hour: float | None, now: float) -> dict[str, Any]:
    """`/api/v1/accounts`, plain JSON-able data.

    gpu_hour: what a GPU costs for an hour; None where nobody has said. now: POSIX seconds.
    """
    entries = [] if account is None else sorted(_entries(account), key=_place)
    begun = [entry["since"] for entry in entries if entry["since"] is not None]
    return {"now": now, "since": min(begun, default=None), "gpu_hour": gpu_hour, "workloads": entries}


def _place(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    return entry["namespace"], entry["name"], entry["trigger"]


def _entries(account: Account) -> Iterator[dict[str, Any]]:
    # Numbers are taken out of lists: out of arrays one by one they take much longer.
    sums = {name: column.tolist() for name, column in account.sums._asdict().items()}
    since, observes = account.since.tolist(), account.observed.tolist()
    for row, workload in enumerate(account.workloads):
        of = {name: _known(column[row]) for name, column in sums.items() if name not in TABLES}
        shadow = {
            "seconds": of["shadow"],
            "gpu_seconds_saved": of["saved"],
            "gpu_seconds_added": of["added"],
            "queue_seconds": of["queued"],
            "more_seconds": of["more"],
            "fewer_seconds": of["fewer"],
        }
        yield {
            "namespace": workload.namespace,
            "name": workload.name,
            "trigger": workload.trigger,
            "since": _known(since[row]),
            "observed": observes[row],
            "gpu_seconds": _by_state(sums["gpu_seconds"][row]),
            "state_seconds": _by_state(sums["state_seconds"][row]),
            "wakes": of["wakes"],
            "sleeps": of["sleeps"],
            "requests_finished": of["requests"],
            "tokens": {"prompt": of["prompt"], "generation": of["generated"]},
            "shadow": shadow if observes[row] or of["shadow"] else None,
        }


def _by_state(values: Sequence[float]) -> dict[str, float | None]:
    return {state: _known(value) for state, value in zip(_STATES, values, strict=True)}


def _known(value: float) -> float | None:
    return None if isnan(value) else value


_STATES = tuple(map(str, STATES))
TABLES = frozenset({"gpu_seconds", "state_seconds"})  # a number for each state, the rest are one


def routes(kept: Kept, gpu_hour: Callable[[], float | None], now: Callable[[], float]) -> list[web.RouteDef]:
    """For `WebServer(more=...)`."""

    async def answer(_: web.Request) -> web.Response:
        books = kept()
        copied = None if books is None else account(books)
        return web.json_response(text=await asyncio.to_thread(_text, copied, gpu_hour(), now()))

    return [web.get(PATH, answer)]


def _text(account: Account | None, gpu_hour: float | None, now: float) -> str:
    return json.dumps(document(account, gpu_hour, now), allow_nan=False)
