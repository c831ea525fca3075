"""Sums the accounts of workloads in GPU-hours: per workload, namespace and team, and in total. Pure.

Its input is the document of `/api/v1/accounts`, or the same from a Prometheus history. A sum leaves out unknown parts
and states how many workloads are missing; it never counts them as 0. Each cost is as the daemon counted it: with the
price of its moment.

**Oversized** is no state of its own. States divide the time of a GPU, and the part of the GPU that a workload never
uses follows from the peaks of its profile, after the states are counted. So it is a part of the held hours that were
not idle: idle, oversized and the rest add up to the held hours, and with the unallocated ones to those of the nodes.
The share is that of the present peaks (`binding.oversized_share`), for the whole time of the report.

Worked example: 30 GPU-hours serving, 10 idle and 80 asleep at 2.5 an hour: 40 were held, a quarter of them idle (cost
25), and sleeping saved 80 (200).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

Document: TypeAlias = Mapping[str, Any]
HOUR_S = 3600.0

# States that hold a GPU. Pending replicas do not yet, asleep ones no longer.
HELD = ("serving", "idle_warm", "loading", "unknown")
STATES = (*HELD, "pending", "asleep")
OVERSIZED_PART = "no peak of memory, multiprocessors, tensor pipes or bandwidth used, of workloads with that verdict"
_SHADOW = ("seconds", "gpu_seconds_saved", "gpu_seconds_added", "queue_seconds", "more_seconds", "fewer_seconds")


def build_report(accounts: Document, oversized: Mapping[str, float | None] = MappingProxyType({})) -> dict[str, Any]:
    """`/api/v1/accounts` in hours: per workload, namespace and team, and in total. Costs are None without a price.

    oversized: the part of its GPUs, 0..1, that a workload never uses, by `label`; None, or no entry: unknown.
    """
    workloads = [{**each, "oversized": oversized.get(label(each))} for each in accounts["workloads"]]
    spaces = sorted({each["namespace"] for each in workloads})
    by_space = {space: [each for each in workloads if each["namespace"] == space] for space in spaces}
    teams = sorted({each["team"] for each in workloads if each["team"] is not None})
    by_team = {team: [each for each in workloads if each["team"] == team] for team in teams}
    return {
        "now": accounts["now"],
        "since": accounts["since"],
        "month": accounts.get("month"),
        "days": _days(workloads),
        "gpu_hour": accounts["gpu_hour"],
        "nodes": _nodes(accounts["nodes"]),
        "workloads": [{**_named(each), **_account([each]), **_ratios(each)} for each in workloads],
        "namespaces": [{"namespace": space, **_account(by_space[space])} for space in spaces],
        "teams": [{"team": team, **_account(by_team[team])} for team in teams],
        "total": _account(workloads),
    }


def _nodes(nodes: Document | None) -> dict[str, Any] | None:
    """The GPUs of all nodes in hours; None without them."""
    if nodes is None:
        return None
    return {
        "since": nodes["since"],
        "gpus": nodes["gpus"],
        "gpu_hours": _hours([nodes["gpu_seconds"]]),
        "gpu_hours_unallocated": _hours([nodes["unallocated_gpu_seconds"]]),
        "cost": nodes["cost"],
        "cost_unallocated": nodes["unallocated_cost"],
    }


def _ratios(entry: Document) -> dict[str, Any]:
    """Returns the entries that are not summed. A history has no further hour: the pauses are the daemon's."""
    kept = {name: entry[name] for name in ("gpu_hour", "joules", "per_million_tokens")}
    return {**kept, "further_hour": entry.get("further_hour"), "days": _days([entry])}


def _days(entries: Sequence[Document]) -> list[dict[str, Any]]:
    """The days of a month; none of another time. A sum leaves out what is unknown; None of a day that is unknown."""
    by_day: dict[str, list[Document]] = {}
    for entry in entries:
        for day in entry.get("days", ()):
            by_day.setdefault(day["day"], []).append(day)
    found = []
    for name, days in sorted(by_day.items()):
        hours = {state: _hours(day["gpu_seconds"][state] for day in days) for state in HELD}
        held = _sum(hours.values())
        found.append(
            {"day": name, "gpu_hours": hours, "gpu_hours_held": held, "cost": _sum(day["cost"] for day in days)}
        )
    return found


def _named(entry: Document) -> dict[str, Any]:
    return {name: entry[name] for name in ("namespace", "name", "trigger", "team", "observed")}


def _account(entries: Sequence[Document]) -> dict[str, Any]:
    hours = {state: _hours(entry["gpu_seconds"].get(state) for entry in entries) for state in STATES}
    held = _sum(hours[state] for state in HELD)
    cost = {state: _sum(entry["cost"].get(state) for entry in entries) for state in STATES}
    priced = _hours(entry["priced_gpu_seconds"] for entry in entries)
    apart = {name: _sum(entry["baseline"]["cost"][name] for entry in entries) for name in ("held", "maximum", "peak")}
    return {
        "gpu_hours": hours,
        "gpu_hours_held": held,
        "idle_share": hours["idle_warm"] / held if held and hours["idle_warm"] is not None else None,
        "gpu_hours_oversized": _hours(_oversized(entry, entry["gpu_seconds"]) for entry in entries),
        "cost_oversized": _sum(_oversized(entry, entry["cost"]) for entry in entries),
        "gpus_unknown": sum(entry["gpu_seconds"].get("serving") is None for entry in entries),
        "cost": cost,
        "cost_held": _sum(cost[state] for state in HELD),
        "gpu_hours_unpriced": None if held is None else max(held - (priced or 0.0), 0.0),
        "cost_always_on": {"maximum": apart["maximum"], "peak": apart["peak"]},
        "saved": {name: _difference(apart[name], apart["held"]) for name in ("maximum", "peak")},
        "wakes": _sum(entry["wakes"] for entry in entries),
        "sleeps": _sum(entry["sleeps"] for entry in entries),
        "shadow": _shadow([entry for entry in entries if entry["shadow"] is not None]),
    }


def _oversized(entry: Document, states: Document) -> float | None:
    """What an entry held while it was not idle, of the part that it never uses. states: seconds or money by state."""
    used = _sum(states.get(state) for state in HELD if state != "idle_warm")
    return None if entry["oversized"] is None or used is None else float(entry["oversized"] * used)


def _shadow(entries: Sequence[Document]) -> dict[str, Any] | None:
    if not entries:
        return None
    shadows = [entry["shadow"] for entry in entries]
    sums = {name: _sum(shadow[name] for shadow in shadows) for name in _SHADOW}
    saved, added = (_hours([sums[name]]) for name in ("gpu_seconds_saved", "gpu_seconds_added"))
    net = None if saved is None or added is None else saved - added
    return {
        "hours": _hours([sums["seconds"]]),
        "gpu_hours_saved": saved,
        "gpu_hours_added": added,
        "gpu_hours_net": net,
        "money_net": _money_net(entries),
        "queue_minutes": None if sums["queue_seconds"] is None else sums["queue_seconds"] / 60.0,
        "more_hours": _hours([sums["more_seconds"]]),
        "fewer_hours": _hours([sums["fewer_seconds"]]),
    }


def _sum(values: Iterable[float | None]) -> float | None:
    """Sum of the known values; None if there is none."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None


def _hours(seconds: Iterable[float | None]) -> float | None:
    total = _sum(seconds)
    return None if total is None else total / HOUR_S


def _money_net(entries: Sequence[Document]) -> float | None:
    """The net saving of observed workloads at their present price; None unless each with savings has one."""
    nets = [(_difference(e["shadow"]["gpu_seconds_saved"], e["shadow"]["gpu_seconds_added"]), e) for e in entries]
    found = [(net, entry["gpu_hour"]) for net, entry in nets if net is not None]
    if not found or any(price is None for _, price in found):
        return None
    return float(sum(net / HOUR_S * price for net, price in found))


def _difference(more: float | None, less: float | None) -> float | None:
    return None if more is None or less is None else more - less


def reconciliation(report: Document) -> dict[str, float] | None:
    """The GPU-hours of the nodes against those that workloads held and that no workload held; None without the nodes.

    difference: of the sum from the nodes' GPU-hours, a ratio. It is not 0 if workloads or nodes are counted since
    another time, or if workloads hold GPUs on no known node.
    """
    nodes, held = report["nodes"], report["total"]["gpu_hours_held"]
    if nodes is None or not nodes["gpu_hours"] or nodes["gpu_hours_unallocated"] is None:
        return None
    total = (held or 0.0) + nodes["gpu_hours_unallocated"]
    return {
        "nodes": nodes["gpu_hours"],
        "held": held or 0.0,
        "unallocated": nodes["gpu_hours_unallocated"],
        "difference": total / nodes["gpu_hours"] - 1.0,
    }


def label(entry: Document) -> str:
    """The name of a workload for people: "ai/chat", "ai/chat/decode"."""
    name = f"{entry['name']}/{entry['trigger']}" if entry["trigger"] else entry["name"]
    return f"{entry['namespace']}/{name}" if entry["namespace"] else name


def chosen(accounts: Document, names: Collection[str]) -> dict[str, Any]:
    """The accounts of these workloads alone, by `label`; of all if no name is given."""
    kept = [each for each in accounts["workloads"] if not names or label(each) in names]
    return {**accounts, "workloads": kept}
