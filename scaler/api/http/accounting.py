"""Exposes GPU-seconds by state, and shadow scores: what Tidegate would do for an observed workload.

`scaler.engine.accounting` computes the sums. A follower exposes no samples, so a sum over all replicas of Tidegate is
right. A number that is not known has no sample, and is null in JSON.

Worked example: `sum by (state) (rate(tidegate_workload_gpu_seconds_total[5m]))` is how many GPUs of the fleet serve,
are idle and load.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import isnan
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from aiohttp import web
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from exporter.model import Floats, WorkloadKey
from exporter.scrape.metrics import LazySamples
from scaler.columns import Mask
from scaler.engine.accounting import STATES, LedgerSums

from .collectors import LABELS

if TYPE_CHECKING:
    from scaler.engine.decider import Decider

PATH = "/api/v1/accounts"
_STATES = tuple(map(str, STATES))
TABLES = frozenset({"gpu_seconds", "state_seconds"})  # sums with a number per state; all others are one number


Source: TypeAlias = "Callable[[], Decider | None]"  # None until the first configuration runs


class AccountFamily(NamedTuple):
    """A metric family. label: its own label, if any. sums: of a counter, the sum for each value of that label."""

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
    AccountFamily("scale_ups_from_zero", "Scale-ups from zero, counted from spec.replicas.", None, {"": "wakes"}),
    AccountFamily("scale_downs_to_zero", "Scale-downs to zero, counted from spec.replicas.", None, {"": "sleeps"}),
    AccountFamily(
        "replica_reversals",
        "Changes of direction of spec.replicas: a rise after a fall, or a fall after a rise.",
        None,
        {"": "reversals"},
    ),
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
    """leads: whether this replica leads at `now`, POSIX seconds."""

    def __init__(self, source: Source, leads: Callable[[float], bool], now: Callable[[], float]) -> None:
        self._source, self._leads, self._now = source, leads, now

    def collect(self) -> Iterable[Metric]:
        ledger = self._source() if self._leads(self._now()) else None
        sums = None if ledger is None else ledger.books.shown
        moment = None if ledger is None else ledger.books.now
        for family, table in (
            (GPUS, moment and moment.gpus),
            (GPU_SECONDS, sums and sums.gpu_seconds),
            (STATE_SECONDS, sums and sums.state_seconds),
        ):
            columns = {} if table is None else {state: table[:, slot] for slot, state in enumerate(_STATES)}
            yield _family(family, ledger, columns)
        for family in COUNTERS:
            yield _family(family, ledger, _columns(family, sums))
        # A workload that was never observed has no sample of these, rather than 0.
        where: Mask | bool = False if ledger is None else ledger.observed | (ledger.books.kept.shadow > 0.0)
        for family in SHADOW:
            columns = _columns(family, sums)
            yield _family(family, ledger, {value: np.where(where, column, np.nan) for value, column in columns.items()})
        would = {} if ledger is None else {"": np.where(ledger.observed, ledger.books.now.would, np.nan)}
        yield _family(WOULD, ledger, would)


def _columns(family: AccountFamily, sums: LedgerSums | None) -> dict[str, Floats]:
    return {} if sums is None else {value: getattr(sums, column) for value, column in family.sums.items()}


def _family(about: AccountFamily, ledger: Decider | None, columns: Mapping[str, Floats]) -> Metric:
    """columns: by the value of the family's own label; copied, so that the samples are those of this moment."""
    labels = (*LABELS, *([about.label] if about.label else []))
    metric = GaugeMetricFamily if about in GAUGES else CounterMetricFamily
    family: Metric = metric(f"tidegate_{about.name}", about.help, labels=labels)
    if ledger is not None:
        name = family.name if about in GAUGES else f"{family.name}_total"
        copied = {value: column.copy() for value, column in columns.items()}
        # 10,000 workloads have 230,000 samples, which take half a second to make.
        samples = partial(_samples, name, about.label, ledger.workloads, copied)
        family.samples = LazySamples(samples)  # type: ignore[assignment]
    return family


def _samples(
    name: str, label: str | None, workloads: Sequence[WorkloadKey], columns: Mapping[str, Floats]
) -> Iterator[Sample]:
    """One for each number that is known."""
    for value, column in columns.items():
        more = {} if label is None else {label: value}
        numbers = column.tolist()
        for row in np.flatnonzero(~np.isnan(column)).tolist():
            workload = workloads[row]
            yield Sample(name, {"namespace": workload.namespace, "workload": workload.label, **more}, numbers[row])


class Account(NamedTuple):
    """A copy of the ledger at one moment; a slot per workload."""

    workloads: Sequence[WorkloadKey]
    observed: Mask
    since: Floats
    sums: LedgerSums


def account(ledger: Decider) -> Account:
    books = ledger.books
    sums = LedgerSums(*(column.copy() for column in books.kept))
    return Account(ledger.workloads, ledger.observed, books.since.copy(), sums)


def document(account: Account | None, gpu_hour: float | None, now: float) -> dict[str, Any]:
    """`/api/v1/accounts` as plain JSON-able data.

    gpu_hour: price of a GPU per hour; None if not configured. now: POSIX seconds.
    """
    entries = [] if account is None else list(_entries(account))
    entries.sort(key=lambda entry: (entry["namespace"], entry["name"], entry["trigger"]))
    begun = [entry["since"] for entry in entries if entry["since"] is not None]
    return {"now": now, "since": min(begun, default=None), "gpu_hour": gpu_hour, "workloads": entries}


def _entries(account: Account) -> Iterator[dict[str, Any]]:
    # Lists first: numbers taken out of arrays one by one take much longer.
    sums = {name: column.tolist() for name, column in account.sums._asdict().items()}
    since, observes = account.since.tolist(), account.observed.tolist()
    for row, workload in enumerate(account.workloads):
        of = {name: _or_none(column[row]) for name, column in sums.items() if name not in TABLES}
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
            "since": _or_none(since[row]),
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
    return {state: _or_none(value) for state, value in zip(_STATES, values, strict=True)}


def _or_none(value: float) -> float | None:
    return None if isnan(value) else value


def routes(source: Source, gpu_hour: Callable[[], float | None], now: Callable[[], float]) -> list[web.RouteDef]:
    """For `WebServer(more=...)`."""

    async def get(_: web.Request) -> web.Response:
        ledger = source()
        copied = None if ledger is None else account(ledger)
        return web.json_response(text=await asyncio.to_thread(_text, copied, gpu_hour(), now()))

    return [web.get(PATH, get)]


def _text(account: Account | None, gpu_hour: float | None, now: float) -> str:
    return json.dumps(document(account, gpu_hour, now), allow_nan=False)
