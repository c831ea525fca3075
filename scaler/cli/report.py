"""Builds and prints `tidegate report`: GPU-hours and cost of a running daemon, and what observed workloads would save.

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
_SHADOW = ("seconds", "gpu_seconds_saved", "gpu_seconds_added", "queue_seconds", "more_seconds", "fewer_seconds")


def build_report(accounts: Document) -> dict[str, Any]:
    """`/api/v1/accounts` in hours: per workload, per namespace, and in total. Costs are None without a GPU price."""
    price = accounts.get("gpu_hour")
    workloads = list(accounts["workloads"])
    spaces = sorted({each["namespace"] for each in workloads})
    by_space = {space: [each for each in workloads if each["namespace"] == space] for space in spaces}
    return {
        "now": accounts["now"],
        "since": accounts["since"],
        "gpu_hour": price,
        "workloads": [{**_named(each), **_account([each], price)} for each in workloads],
        "namespaces": [{"namespace": space, **_account(by_space[space], price)} for space in spaces],
        "total": _account(workloads, price),
    }


def _named(entry: Document) -> dict[str, Any]:
    return {name: entry[name] for name in ("namespace", "name", "trigger", "observed")}


def _account(entries: Sequence[Document], price: float | None) -> dict[str, Any]:
    hours = {state: _hours(entry["gpu_seconds"].get(state) for entry in entries) for state in STATES}
    held = _sum(hours[state] for state in HELD)
    return {
        "gpu_hours": hours,
        "gpu_hours_held": held,
        "idle_share": hours["idle_warm"] / held if held and hours["idle_warm"] is not None else None,
        "gpus_unknown": sum(entry["gpu_seconds"].get("serving") is None for entry in entries),
        "money_idle": _money(hours["idle_warm"], price),
        "money_slept": _money(hours["asleep"], price),
        "wakes": _sum(entry["wakes"] for entry in entries),
        "sleeps": _sum(entry["sleeps"] for entry in entries),
        "shadow": _shadow([entry["shadow"] for entry in entries if entry["shadow"] is not None], price),
    }


def _shadow(shadows: Sequence[Document], price: float | None) -> dict[str, Any] | None:
    if not shadows:
        return None
    sums = {name: _sum(shadow[name] for shadow in shadows) for name in _SHADOW}
    saved, added = (_hours([sums[name]]) for name in ("gpu_seconds_saved", "gpu_seconds_added"))
    net = None if saved is None or added is None else saved - added
    return {
        "hours": _hours([sums["seconds"]]),
        "gpu_hours_saved": saved,
        "gpu_hours_added": added,
        "gpu_hours_net": net,
        "money_net": _money(net, price),
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


def _money(hours: float | None, price: float | None) -> float | None:
    return None if hours is None or price is None else hours * price


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
    spaces = report["namespaces"] if len(report["workloads"]) > len(report["namespaces"]) else []
    spaces = spaces if len(spaces) > 1 else []
    rows = [(_label(each), each, "") for each in report["workloads"]]
    rows += [(f"all of {each['namespace']}", each, DIM) for each in spaces]
    rows += [("all", report["total"], HEAD)] if len(report["workloads"]) > 1 else []
    for label, each, style in rows:
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


def _sentences(report: Document) -> Iterable[str]:
    total = report["total"]
    idle, asleep = total["gpu_hours"]["idle_warm"], total["gpu_hours"]["asleep"]
    if idle is not None and asleep is not None:
        idle_money, slept_money = (_priced(total[name]) for name in ("money_idle", "money_slept"))
        yield (f"{_number(idle)} GPU-hours{idle_money} were idle; sleeping saved {_number(asleep)}{slept_money}.")
    if total["gpus_unknown"]:
        yield f"The GPUs of {total['gpus_unknown']} workload(s) are unknown and in no sum."
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


def _count(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"
