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
from datetime import UTC, datetime
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
from scaler.engine.account_periods import (
    DaySums,
    day_begin,
    day_number,
    month_begin,
    month_name,
    month_number,
    read_month,
)
from scaler.engine.accounting import HELD, STATES, AccountedSweep, FleetGpus, FleetSums, LedgerSums
from scaler.explain import further_hour
from scaler.policy.estimators.further_hour import FurtherHour

from .collectors import LABELS

if TYPE_CHECKING:
    from scaler.engine.decider import Decider

Teams: TypeAlias = Callable[[WorkloadKey], str | None]
# Of the GPU-seconds held, the part that must have a price, or a power, for a ratio to tokens.
COVERED = 0.99
MILLION = 1e6

PATH = "/api/v1/accounts"
_STATES = tuple(map(str, STATES))
_HELD_STATES = tuple(_STATES[state] for state in HELD)
TABLES = frozenset({"gpu_seconds", "state_seconds", "cost"})  # sums with a number per state; all others are one number


Source: TypeAlias = "Callable[[], Decider | None]"  # None until the first configuration runs


class AccountFamily(NamedTuple):
    """A metric family. label: its own label, if any. sums: of a counter, the sum for each value of that label."""

    name: str
    help: str
    label: str | None
    sums: Mapping[str, str] = MappingProxyType({})


GPUS = AccountFamily("workload_gpus", "GPUs by state; asleep: those that it would hold if it ran.", "state")
WOULD = AccountFamily("shadow_replicas", "Replicas that Tidegate would set.", None)
GPU_HOUR = AccountFamily("workload_gpu_hour", "Price of one of its GPUs for an hour.", None)
GAUGES = (GPUS, WOULD, GPU_HOUR)
COST = AccountFamily(
    "workload_cost",
    "Cost of its GPUs by state, without GPUs that have no price.",
    "state",
)
TEAM = AccountFamily("workload_team", "1 for the team of the workload, by the label `prices.team_label`.", "team")
NODE_GPU_SECONDS = AccountFamily("node_gpu_seconds", "GPU-seconds of all nodes, by `held` and `unallocated`.", "state")
NODE_COST = AccountFamily("node_cost", "Cost of the GPUs of all nodes, by `held` and `unallocated`.", "state")
GPU_SECONDS = AccountFamily(
    "workload_gpu_seconds", "GPU-seconds by state, since this process became the leader.", "state"
)
STATE_SECONDS = AccountFamily("workload_state_seconds", "Time of the workload by state.", "state")
COUNTERS = (
    AccountFamily(
        "workload_priced_gpu_seconds", "GPU-seconds held with a price: the others are in no cost.", None, {"": "priced"}
    ),
    AccountFamily(
        "workload_powered_gpu_seconds", "GPU-seconds held while the power of all was known.", None, {"": "powered"}
    ),
    AccountFamily("workload_joules", "Energy of its GPUs while the power of all was known.", None, {"": "joules"}),
    AccountFamily(
        "workload_baseline_gpu_seconds",
        "GPU-seconds of the same time: held, always on at the maximum, and at the peak of the day (UTC).",
        "baseline",
        {"held": "held_apart", "maximum": "at_maximum", "peak": "at_peak"},
    ),
    AccountFamily(
        "workload_baseline_cost",
        "Cost of these GPU-seconds.",
        "baseline",
        {"held": "cost_apart", "maximum": "cost_at_maximum", "peak": "cost_at_peak"},
    ),
    AccountFamily("scale_ups_from_zero", "Scale-ups from zero, counted from spec.replicas.", None, {"": "wakes"}),
    AccountFamily("scale_downs_to_zero", "Scale-downs to zero, counted from spec.replicas.", None, {"": "sleeps"}),
    AccountFamily(
        "replica_reversals",
        "Changes of direction of spec.replicas.",
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

    def __init__(
        self, source: Source, leads: Callable[[float], bool], now: Callable[[], float], team: Teams = lambda _: None
    ) -> None:
        self._source, self._leads, self._now, self._team = source, leads, now, team

    def collect(self) -> Iterable[Metric]:
        ledger = self._source() if self._leads(self._now()) else None
        sums = None if ledger is None else ledger.books.shown
        moment = None if ledger is None else ledger.books.now
        for family, table in (
            (GPUS, moment and moment.gpus),
            (GPU_SECONDS, sums and sums.gpu_seconds),
            (STATE_SECONDS, sums and sums.state_seconds),
            (COST, sums and sums.cost),
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
        yield _family(GPU_HOUR, ledger, {} if moment is None else {"": moment.hour})
        yield self._teams(ledger)
        fleet = FleetSums() if ledger is None else ledger.books.fleet_shown
        yield _of_nodes(NODE_GPU_SECONDS, fleet.gpu_seconds, fleet.unallocated)
        yield _of_nodes(NODE_COST, fleet.cost, fleet.unallocated_cost)

    def _teams(self, ledger: Decider | None) -> Metric:
        family = GaugeMetricFamily(f"tidegate_{TEAM.name}", TEAM.help, labels=(*LABELS, "team"))
        for workload in () if ledger is None else ledger.workloads:
            team = self._team(workload)
            if team is not None:
                family.add_metric([workload.namespace, workload.label, team], 1.0)
        return family


def _of_nodes(about: AccountFamily, total: float, free: float) -> Metric:
    family = CounterMetricFamily(f"tidegate_{about.name}", about.help, labels=["state"])
    for state, value in (("held", total - free), ("unallocated", free)):
        if not isnan(value):
            family.add_metric([state], value)
    return family


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
    moment: AccountedSweep
    fleet: FleetGpus
    fleet_sums: FleetSums
    further_hour: Callable[[], FurtherHour] | None
    month: AccountedMonth | None = None


class AccountedMonth(NamedTuple):
    """The calendar month (UTC) of an `Account`, and its days.

    number: of the month, see `account_periods`. kept: all months that are kept. days: those of this month until now.
    """

    number: int
    kept: Sequence[int]
    days: Mapping[int, DaySums]


def account(ledger: Decider, now: float) -> Account:
    """The account since accounting began. now: POSIX seconds."""
    books = ledger.books
    sums = LedgerSums(*(column.copy() for column in books.kept))
    since = books.since.copy()
    hour = ledger.further_hour(ledger.workloads, now)
    return Account(ledger.workloads, ledger.observed, since, sums, books.now, books.fleet, books.fleet_kept, hour)


def account_of_month(ledger: Decider, number: int, now: float) -> Account:
    """The account of one calendar month; every sum is NaN if that month is not kept. now: POSIX seconds."""
    books, whole = ledger.books, account(ledger, now)
    begin, end = month_begin(number), min(month_begin(number + 1), now)
    blank = LedgerSums(*(np.full(column.shape, np.nan) for column in whole.sums))
    days = range(day_number(begin), day_number(end - 1.0) + 1) if begin < now else ()
    since, nodes = np.maximum(np.fmax(books.periods.since, whole.since), begin), books.node_months
    return whole._replace(
        since=np.where(since < end, since, np.nan),
        sums=blank._replace(**books.periods.month(number, books.kept)),
        fleet_sums=FleetSums(max(float(nodes.since[0]), begin), *nodes.month(number, books.fleet_kept[1:])),
        further_hour=whole.further_hour if number == month_number(now) else None,
        month=AccountedMonth(
            number, books.periods.kept_months(), {day: books.periods.day(day, books.kept) for day in days}
        ),
    )


def document(
    account: Account | None, gpu_hour: float | None, now: float, team: Teams = lambda _: None
) -> dict[str, Any]:
    """`/api/v1/accounts` as plain JSON-able data.

    gpu_hour: price of a GPU per hour; None if not configured. now: POSIX seconds. team: of a workload.
    """
    entries = [] if account is None else list(_entries(account, team))
    entries.sort(key=lambda entry: (entry["namespace"], entry["name"], entry["trigger"]))
    begun = [entry["since"] for entry in entries if entry["since"] is not None]
    month = None if account is None else account.month
    return {
        "now": now if month is None else min(now, month_begin(month.number + 1)),
        "since": min(begun, default=None),
        **({} if month is None else _month(month)),
        "gpu_hour": gpu_hour,
        "nodes": None if account is None else _nodes(account),
        "workloads": entries,
    }


def _nodes(account: Account) -> dict[str, Any] | None:
    """The GPUs of all nodes; None if they were never known."""
    fleet, sums = account.fleet, account.fleet_sums
    if isnan(sums.gpu_seconds) and (isnan(fleet.gpus) or account.month is not None):
        return None
    return {
        "since": _or_none(sums.since),
        "gpus": _or_none(fleet.gpus),
        "gpu_seconds": _or_none(sums.gpu_seconds),
        "unallocated_gpu_seconds": _or_none(sums.unallocated),
        "cost": _or_none(sums.cost),
        "unallocated_cost": _or_none(sums.unallocated_cost),
    }


def _per_million(
    total: float | None, covered: float | None, held: float | None, counts: Mapping[str, float | None]
) -> dict[str, float | None]:
    """What a million tokens of each kind took: the whole of `total` for each. None unless it is of nearly all GPUs."""
    if total is None or covered is None or not held or covered < COVERED * held:
        return dict.fromkeys(counts)
    return {kind: total / tokens * MILLION if tokens else None for kind, tokens in counts.items()}


def _entries(account: Account, team: Teams) -> Iterator[dict[str, Any]]:
    # Lists first: numbers taken out of arrays one by one take much longer.
    sums = {name: column.tolist() for name, column in account.sums._asdict().items()}
    since, observes = account.since.tolist(), account.observed.tolist()
    hours = account.moment.hour.tolist()
    further: Sequence[Any] = [None] * len(hours)
    if account.further_hour is not None:
        further = further_hour.documents(account.further_hour())
    days = None if account.month is None else _days(account.month)
    held_by_all = account.sums.gpu_seconds[:, HELD].sum(axis=1).tolist()
    cost_by_all = account.sums.cost[:, HELD].sum(axis=1).tolist()
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
        held, cost = _or_none(held_by_all[row]), _or_none(cost_by_all[row])
        tokens = {"prompt": of["prompt"], "generation": of["generated"]}
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
            "tokens": tokens,
            "team": team(workload),
            "gpu_hour": _or_none(hours[row]),
            "cost": _by_state(sums["cost"][row]),
            "priced_gpu_seconds": of["priced"],
            "joules": of["joules"],
            "baseline": {
                "gpu_seconds": {"held": of["held_apart"], "maximum": of["at_maximum"], "peak": of["at_peak"]},
                "cost": {"held": of["cost_apart"], "maximum": of["cost_at_maximum"], "peak": of["cost_at_peak"]},
            },
            "per_million_tokens": {
                "cost": _per_million(cost, of["priced"], held, tokens),
                "joules": _per_million(of["joules"], of["powered"], held, tokens),
            },
            "further_hour": further[row],
            **({} if days is None else {"days": [day.of(row) for day in days]}),
            "shadow": shadow if observes[row] or of["shadow"] else None,
        }


class _DayLists(NamedTuple):
    """A day of all workloads, as lists."""

    name: str
    gpu_seconds: list[list[float]]
    cost: list[float]

    def of(self, row: int) -> dict[str, Any]:
        seconds = zip(_HELD_STATES, map(_or_none, self.gpu_seconds[row]), strict=True)
        return {"day": self.name, "gpu_seconds": dict(seconds), "cost": _or_none(self.cost[row])}


def _days(month: AccountedMonth) -> list[_DayLists]:
    names = (datetime.fromtimestamp(day_begin(day), UTC).strftime("%Y-%m-%d") for day in month.days)
    return [
        _DayLists(name, sums.gpu_seconds.tolist(), sums.cost.tolist())
        for name, sums in zip(names, month.days.values(), strict=True)
    ]


def _month(month: AccountedMonth) -> dict[str, Any]:
    return {"month": month_name(month.number), "months_kept": [month_name(number) for number in month.kept]}


def _by_state(values: Sequence[float]) -> dict[str, float | None]:
    return {state: _or_none(value) for state, value in zip(_STATES, values, strict=True)}


def _or_none(value: float) -> float | None:
    return None if isnan(value) else value


def routes(
    source: Source, gpu_hour: Callable[[], float | None], now: Callable[[], float], team: Teams = lambda _: None
) -> list[web.RouteDef]:
    """For `WebServer(more=...)`."""

    async def get(request: web.Request) -> web.Response:
        ledger = source()
        at = now()
        try:
            text = request.query.get("month")  # "": the present one
            number = None if text is None else read_month(text) if text else month_number(at)
        except ValueError as error:
            return web.json_response({"error": f"month: {error}"}, status=400)
        copied = None
        if ledger is not None:
            copied = account(ledger, at) if number is None else account_of_month(ledger, number, at)
        return web.json_response(text=await asyncio.to_thread(_text, copied, gpu_hour(), at, team))

    return [web.get(PATH, get)]


def _text(account: Account | None, gpu_hour: float | None, now: float, team: Teams) -> str:
    return json.dumps(document(account, gpu_hour, now, team), allow_nan=False)
