"""Builds the accounts and profiles of a report from a Prometheus history. Pure: queries are text, results are values.

The accounts are increases of Tidegate's own counters, with the same extrapolation for workloads and nodes. A profile is
built from responses of the past, one moment after the other; rates are increases of engine counters between two moments
(`rates`), and count from 0 after a restart.

Worked example: `QUERIES["gpu_seconds"].text("2592000s")` is `sum by (namespace, workload, state)
(increase(tidegate_workload_gpu_seconds_total[2592000s]))`, and its result the GPU-seconds by state of the last 30 days.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any, NamedTuple

import numpy as np

from exporter.model import Floats, Quantity, Queue, Samples
from scaler.signals.usage import Usage

from .ledger import HELD, STATES

COVERED = 0.99  # of the held GPU-seconds, the part that must have a price for a ratio to tokens
MILLION = 1e6


class LedgerQuery(NamedTuple):
    """A query over Tidegate's counters. metric: a family. labels: that its results keep beside the workload's."""

    metric: str
    labels: tuple[str, ...] = ()
    function: str = "increase"
    of_nodes: bool = False

    def text(self, window: str) -> str:
        kept = ", ".join((*(() if self.of_nodes else ("namespace", "workload")), *self.labels))
        combine = "sum" if self.function == "increase" else "max"
        return f"{combine} by ({kept}) ({self.function}({self.metric}[{window}]))"


class VectorEntry(NamedTuple):
    """One series of a result."""

    labels: Mapping[str, str]
    value: float


QUERIES: Mapping[str, LedgerQuery] = {
    "gpu_seconds": LedgerQuery("tidegate_workload_gpu_seconds_total", ("state",)),
    "cost": LedgerQuery("tidegate_workload_cost_total", ("state",)),
    "priced": LedgerQuery("tidegate_workload_priced_gpu_seconds_total"),
    "joules": LedgerQuery("tidegate_workload_joules_total"),
    "baseline_cost": LedgerQuery("tidegate_workload_baseline_cost_total", ("baseline",)),
    "wakes": LedgerQuery("tidegate_scale_ups_from_zero_total"),
    "sleeps": LedgerQuery("tidegate_scale_downs_to_zero_total"),
    "tokens": LedgerQuery("tidegate_tokens_total", ("kind",)),
    "gpu_hour": LedgerQuery("tidegate_workload_gpu_hour", (), "last_over_time"),
    "team": LedgerQuery("tidegate_workload_team", ("team",), "last_over_time"),
    "node_gpu_seconds": LedgerQuery("tidegate_node_gpu_seconds_total", ("state",), of_nodes=True),
    "node_cost": LedgerQuery("tidegate_node_cost_total", ("state",), of_nodes=True),
}


def accounts_of(results: Mapping[str, Sequence[VectorEntry]], since: float, until: float) -> dict[str, Any]:
    """The document of `/api/v1/accounts` for a time. results: of QUERIES, by name. since, until: POSIX seconds."""
    keys = sorted({(entry.labels["namespace"], entry.labels["workload"]) for entry in results["gpu_seconds"]})
    return {
        "now": until,
        "since": since if keys else None,
        "gpu_hour": None,
        "nodes": _nodes(results, since),
        "workloads": [_entry(results, namespace, name, since) for namespace, name in keys],
    }


def with_days(
    accounts: Mapping[str, Any],
    gpu_seconds: Mapping[str, Sequence[VectorEntry]],
    cost: Mapping[str, Sequence[VectorEntry]],
) -> dict[str, Any]:
    """The accounts with the days of each workload. gpu_seconds, cost: of QUERIES, by the name of the day."""

    def by_state(entries: Sequence[VectorEntry], workload: tuple[str, str]) -> dict[str, float | None]:
        mine = (entry for entry in entries if (entry.labels["namespace"], entry.labels["workload"]) == workload)
        found = {entry.labels.get("state", ""): entry.value for entry in mine}
        return {state: found.get(state) for state in HELD}

    workloads = []
    for each in accounts["workloads"]:
        key = each["namespace"], f"{each['name']}/{each['trigger']}" if each["trigger"] else each["name"]
        days = []
        for day, entries in gpu_seconds.items():
            costs = [money for money in by_state(cost[day], key).values() if money is not None]
            days.append({"day": day, "gpu_seconds": by_state(entries, key), "cost": sum(costs) if costs else None})
        workloads.append({**each, "days": days})
    return {**accounts, "workloads": workloads}


def _entry(results: Mapping[str, Sequence[VectorEntry]], namespace: str, label: str, since: float) -> dict[str, Any]:
    name, _, trigger = label.partition("/")

    def by(query: str, key: str, names: Sequence[str]) -> dict[str, float | None]:
        found = {entry.labels.get(key, ""): entry.value for entry in entries(query)}
        return {each: found.get(each) for each in names}

    def entries(query: str) -> list[VectorEntry]:
        mine = (namespace, label)
        return [each for each in results[query] if (each.labels["namespace"], each.labels["workload"]) == mine]

    def one(query: str) -> float | None:
        return next((entry.value for entry in entries(query)), None)

    seconds, cost = by("gpu_seconds", "state", STATES), by("cost", "state", STATES)
    tokens, priced = by("tokens", "kind", ("prompt", "generation")), one("priced")
    held, money = (sum(each[state] or 0.0 for state in HELD) for each in (seconds, cost))
    whole = priced is not None and held > 0.0 and priced >= COVERED * held
    per_token = {kind: money / count * MILLION if whole and count else None for kind, count in tokens.items()}
    return {
        "namespace": namespace,
        "name": name,
        "trigger": trigger,
        "since": since,
        "observed": False,
        "team": next((entry.labels["team"] for entry in entries("team")), None),
        "gpu_hour": one("gpu_hour"),
        "gpu_seconds": seconds,
        "cost": cost,
        "priced_gpu_seconds": priced,
        "joules": one("joules"),
        "baseline": {"cost": by("baseline_cost", "baseline", ("held", "maximum", "peak"))},
        # For how much of the time the power was known is no metric, so energy per token is not known.
        "per_million_tokens": {"cost": per_token, "joules": dict.fromkeys(tokens)},
        "wakes": one("wakes"),
        "sleeps": one("sleeps"),
        "shadow": None,
    }


def _nodes(results: Mapping[str, Sequence[VectorEntry]], since: float) -> dict[str, Any] | None:
    seconds, cost = (
        {entry.labels["state"]: entry.value for entry in results[name]} for name in ("node_gpu_seconds", "node_cost")
    )
    if not seconds:
        return None
    return {
        "since": since,
        "gpus": None,
        "gpu_seconds": sum(seconds.values()),
        "unallocated_gpu_seconds": seconds.get("unallocated"),
        "cost": sum(cost.values()) if cost else None,
        "unallocated_cost": cost.get("unallocated"),
    }


RATES = {
    Usage.REQUESTS: Quantity.REQUESTS_FINISHED,
    Usage.PROMPT: Quantity.TOKENS_PROMPT,
    Usage.GENERATED: Quantity.TOKENS_GENERATED,
    Usage.PREEMPTED: Quantity.PREEMPTIONS,
    Usage.QUEUED: Quantity.QUEUED_COUNT,
    Usage.QUEUED_SECONDS: Quantity.QUEUED_SECONDS,
    Usage.SERVED: Quantity.SERVED_COUNT,
    Usage.SERVED_SECONDS: Quantity.SERVED_SECONDS,
}


def counters_of(samples: Samples) -> Floats:
    """The counters of an engine's response, shape (len(RATES),), as sums over its queues; NaN unknown."""
    rows = [row for row, subject in enumerate(samples.subjects) if isinstance(subject, Queue)]
    return np.array([samples.column(quantity)[rows].sum() if rows else nan for quantity in RATES.values()])


def write_rates(values: Floats, before: Mapping[str, Floats], now: Mapping[str, Floats], step_s: float) -> None:
    """Writes the rates between two moments into `values`, shape (len(Usage),).

    before, now: counters by target. An engine that is not in both is left out.
    """
    rises = [np.where(now[url] >= before[url], now[url] - before[url], now[url]) for url in now if url in before]
    if rises:
        values[list(RATES)] = np.sum(rises, axis=0) / step_s
