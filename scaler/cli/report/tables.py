"""Builds and prints `tidegate report`: GPU-hours and cost of a running daemon, and what observed workloads would save.

Each cost is as the daemon counted it: with the price of its moment.

Sums the document of `/api/v1/accounts`. A sum leaves out unknown parts and states how many workloads are missing; it
never counts them as 0.

Worked example: 30 GPU-hours serving, 10 idle and 80 asleep at 2.5 an hour: 40 were held, a quarter of them idle (cost
25), and sleeping saved 80 (200).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scaler.config.scalars import write_duration
from scaler.explain import terminal
from scaler.explain.formats import HOUR_S
from scaler.explain.terminal import DIM, HEAD, UNKNOWN, bare_table

Document: TypeAlias = Mapping[str, Any]

# States that hold a GPU. Pending replicas do not yet, asleep ones no longer.
HELD = ("serving", "idle_warm", "loading", "unknown")
STATES = (*HELD, "pending", "asleep")
LEAST_HOURS = 0.05  # less is shown as 0.0
_SHADOW = ("seconds", "gpu_seconds_saved", "gpu_seconds_added", "queue_seconds", "more_seconds", "fewer_seconds")


def build_report(accounts: Document) -> dict[str, Any]:
    """`/api/v1/accounts` in hours: per workload, namespace and team, and in total. Costs are None without a price."""
    workloads = list(accounts["workloads"])
    spaces = sorted({each["namespace"] for each in workloads})
    by_space = {space: [each for each in workloads if each["namespace"] == space] for space in spaces}
    teams = sorted({each["team"] for each in workloads if each["team"] is not None})
    by_team = {team: [each for each in workloads if each["team"] == team] for team in teams}
    return {
        "now": accounts["now"],
        "since": accounts["since"],
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
    return {name: entry[name] for name in ("gpu_hour", "joules", "per_million_tokens")}


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


def report_tables(report: Document, console: Console | None = None) -> None:
    out = terminal.console(console)
    if report["since"] is None:
        out.print(Text("No data yet: the first tick has not run.", DIM))
        return
    span = write_duration(round(report["now"] - report["since"]))
    out.print(Text("GPU-hours by state", HEAD), Text(f"in {span}", DIM))
    out.print()
    out.print(_hours_table(report))
    out.print()
    if report["total"]["cost_held"] is not None:
        out.print(Text("Cost", HEAD), Text("in the currency of the prices", DIM))
        out.print()
        out.print(_cost_table(report))
        out.print()
    for line in _sentences(report):
        out.print(Text(line), soft_wrap=not out.is_terminal)
    shadows = [each for each in report["workloads"] if each["shadow"] is not None]
    if shadows:
        out.print()
        out.print(Text("What Tidegate would have done", HEAD), Text("workloads with mode: observe", DIM))
        out.print()
        out.print(_shadow_table([*shadows, *_total_row(report["total"], shadows)]))
        out.print()
        out.print(Text(shadow_sentence(report["total"]["shadow"])), soft_wrap=not out.is_terminal)


def _hours_table(report: Document) -> Table:
    table = bare_table()
    table.add_column("workload", overflow="fold")
    for name in ("serving", "idle", "loading", "unknown", "held", "idle of it", "asleep", "sleeps", "wakes"):
        table.add_column(name, justify="right", no_wrap=True)
    for label, each, style in _rows(report):
        hours, share = each["gpu_hours"], each["idle_share"]
        table.add_row(
            Text(label, style),
            *(_number(hours[state]) for state in ("serving", "idle_warm", "loading", "unknown")),
            _number(each["gpu_hours_held"]),
            UNKNOWN if share is None else f"{share:.0%}".replace("%", " %"),
            _number(hours["asleep"]),
            _count(each["sleeps"]),
            _count(each["wakes"]),
        )
    return table


def _rows(report: Document) -> list[tuple[str, Document, str]]:
    """Label, account and style of each row: workloads, namespaces and teams if there are several, and all."""
    spaces = report["namespaces"] if len(report["workloads"]) > len(report["namespaces"]) else []
    spaces = spaces if len(spaces) > 1 else []
    rows = [(_label(each), each, "") for each in report["workloads"]]
    rows += [(f"all of {each['namespace']}", each, DIM) for each in spaces]
    rows += [(f"team {each['team']}", each, DIM) for each in report["teams"]]
    rows += [("all", report["total"], HEAD)] if len(report["workloads"]) > 1 else []
    return rows


def _cost_table(report: Document) -> Table:
    table = bare_table()
    table.add_column("workload", overflow="fold")
    for name in ("spent", "idle", "saved (max)", "saved (peak)", "1M input", "1M output"):
        table.add_column(name, justify="right", no_wrap=True)
    for label, each, style in _rows(report):
        tokens = each.get("per_million_tokens", {}).get("cost", {})
        costs = (each["cost_held"], each["cost"]["idle_warm"], each["saved"]["maximum"], each["saved"]["peak"])
        table.add_row(Text(label, style), *map(_amount, (*costs, tokens.get("prompt"), tokens.get("generation"))))
    return table


def _sentences(report: Document) -> Iterable[str]:
    total = report["total"]
    idle, asleep = total["gpu_hours"]["idle_warm"], total["gpu_hours"]["asleep"]
    if idle is not None and asleep is not None:
        idle_money, slept_money = (_priced(total["cost"][state]) for state in ("idle_warm", "asleep"))
        yield (f"{_number(idle)} GPU-hours{idle_money} were idle; sleeping saved {_number(asleep)}{slept_money}.")
    if total["gpus_unknown"]:
        yield f"The GPUs of {total['gpus_unknown']} workload(s) are unknown and in no sum."
    if total["gpu_hours_unpriced"] and total["gpu_hours_unpriced"] >= LEAST_HOURS:
        yield f"{_number(total['gpu_hours_unpriced'])} GPU-hours have no price and are in no cost: set prices.gpus."
    nodes = report["nodes"]
    if nodes is not None and nodes["gpu_hours"] and nodes["gpu_hours_unallocated"] is not None:
        money = _priced(nodes["cost_unallocated"])
        yield (
            f"{_number(nodes['gpu_hours_unallocated'])} of the {_number(nodes['gpu_hours'])} GPU-hours of the nodes"
            f"{money} were unallocated."
        )
    for each in report.get("gpus_unmatched") or ():
        yield f"In no sum: {each['sentence']}. Remedy: {each['remedy']}."


def _shadow_table(rows: Sequence[Document]) -> Table:
    table = bare_table()
    table.add_column("workload", overflow="fold")
    for name in ("hours", "saved", "added", "queue minutes", "hours of more", "of fewer"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in rows:
        shadow = each["shadow"]
        named = ("hours", "gpu_hours_saved", "gpu_hours_added", "queue_minutes", "more_hours", "fewer_hours")
        table.add_row(Text(_label(each)), *(_number(shadow[name]) for name in named))
    return table


def _total_row(total: Document, shadows: Sequence[Document]) -> list[Document]:
    return [{"namespace": "", "name": "all", "trigger": "", **total}] if len(shadows) > 1 else []


def shadow_sentence(shadow: Document) -> str:
    net = shadow["gpu_hours_net"]
    if net is None:
        savings = "The savings in GPU-hours are unknown: no GPU of these workloads is known"
    else:
        savings = (
            f"Tidegate would have {'saved' if net >= 0.0 else 'used'} {_number(abs(net))} "
            f"GPU-hours{'' if net >= 0.0 else ' more'}"
        )
        savings += _priced(None if shadow["money_net"] is None else abs(shadow["money_net"]))
    if shadow["queue_minutes"] is None:
        return f"{savings}."
    return (
        f"{savings}; requests waited {_number(shadow['queue_minutes'])} minutes while it would have had more replicas."
    )


def _label(entry: Document) -> str:
    name = f"{entry['name']}/{entry['trigger']}" if entry["trigger"] else entry["name"]
    return f"{entry['namespace']}/{name}" if entry["namespace"] else name


def _priced(money: float | None) -> str:
    return "" if money is None else f" ({money:,.2f})"


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.1f}"


def _amount(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.2f}"


def _count(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"
