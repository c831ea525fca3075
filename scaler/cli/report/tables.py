"""Prints the tables of `tidegate report`.

Worked example: `report_tables(build_report(accounts))` prints GPU-hours by state, cost, and what Tidegate would have
done for observed workloads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from scaler.config.scalars import write_duration
from scaler.explain import terminal
from scaler.explain.terminal import DIM, HEAD, UNKNOWN, bare_table
from scaler.report.ledger import OVERSIZED_PART, Document, label
from scaler.report.statement import ReportSection

LEAST_HOURS = 0.05  # less is shown as 0.0


def report_tables(report: Document, console: Console | None = None) -> None:
    out = terminal.console(console)
    if report["since"] is None:
        out.print(Text("No data yet: the first tick has not run.", DIM))
        return
    span = write_duration(round(report["now"] - report["since"]))
    if (recorded := report.get("recorded")) is not None:
        read = f"{recorded['responses']} responses of {recorded['targets']} targets in {span}"
        left_out = recorded["files"] - recorded["responses"]
        out.print(Text(read + (f"; {left_out} files are none" if left_out else ""), DIM))
        if not report["workloads"] and report["nodes"] is None:
            return
    month = f" of {report['month']}, UTC" if report.get("month") else ""
    out.print(Text("GPU-hours by state", HEAD), Text(f"in {span}{month}", DIM))
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
    for name in (
        "serving",
        "idle",
        "loading",
        "unknown",
        "held",
        "idle of it",
        "oversized",
        "asleep",
        "sleeps",
        "wakes",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for title, each, style in _rows(report):
        hours, share = each["gpu_hours"], each["idle_share"]
        table.add_row(
            Text(title, style),
            *(_number(hours[state]) for state in ("serving", "idle_warm", "loading", "unknown")),
            _number(each["gpu_hours_held"]),
            UNKNOWN if share is None else f"{share:.0%}".replace("%", " %"),
            _number(each["gpu_hours_oversized"]),
            _number(hours["asleep"]),
            _count(each["sleeps"]),
            _count(each["wakes"]),
        )
    return table


def _rows(report: Document) -> list[tuple[str, Document, str]]:
    """Label, account and style of each row: workloads, namespaces and teams if there are several, and all."""
    spaces = report["namespaces"] if len(report["workloads"]) > len(report["namespaces"]) else []
    spaces = spaces if len(spaces) > 1 else []
    rows = [(label(each), each, "") for each in report["workloads"]]
    rows += [(f"all of {each['namespace']}", each, DIM) for each in spaces]
    rows += [(f"team {each['team']}", each, DIM) for each in report["teams"]]
    rows += [("all", report["total"], HEAD)] if len(report["workloads"]) > 1 else []
    return rows


def _cost_table(report: Document) -> Table:
    table = bare_table()
    table.add_column("workload", overflow="fold")
    for name in ("spent", "idle", "saved (max)", "saved (peak)", "1M input", "1M output"):
        table.add_column(name, justify="right", no_wrap=True)
    for title, each, style in _rows(report):
        tokens = each.get("per_million_tokens", {}).get("cost", {})
        costs = (each["cost_held"], each["cost"]["idle_warm"], each["saved"]["maximum"], each["saved"]["peak"])
        table.add_row(Text(title, style), *map(_amount, (*costs, tokens.get("prompt"), tokens.get("generation"))))
    return table


def _sentences(report: Document) -> Iterable[str]:
    total = report["total"]
    idle, asleep = total["gpu_hours"]["idle_warm"], total["gpu_hours"]["asleep"]
    if idle is not None and asleep is not None:
        idle_money, slept_money = (_priced(total["cost"][state]) for state in ("idle_warm", "asleep"))
        yield (f"{_number(idle)} GPU-hours{idle_money} were idle; sleeping saved {_number(asleep)}{slept_money}.")
    if total["gpu_hours_oversized"] and total["gpu_hours_oversized"] >= LEAST_HOURS:
        money = _priced(total["cost_oversized"])
        yield (
            f"{_number(total['gpu_hours_oversized'])} GPU-hours{money} that were not idle were oversized: the part of "
            f"the GPUs that {OVERSIZED_PART}."
        )
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
        table.add_row(Text(label(each)), *(_number(shadow[name]) for name in named))
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


def _priced(money: float | None) -> str:
    return "" if money is None else f" ({money:,.2f})"


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.1f}"


def _amount(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.2f}"


def _count(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def section_tables(sections: Sequence[ReportSection], console: Console | None = None) -> None:
    """Prints sections of the report."""
    out = terminal.console(console)
    for section in sections:
        out.print()
        out.print(Text(section.title, HEAD))
        if section.note:
            out.print(Text(terminal.plain(section.note), DIM), soft_wrap=not out.is_terminal)
        if not section.rows:
            continue
        out.print()
        table = bare_table()
        for index, name in enumerate(section.columns):
            is_text = index == 0 or any(len(row[index]) > LONG_CELL for row in section.rows)
            table.add_column(name, justify="left" if is_text else "right", overflow="fold")
        for row in section.rows:
            table.add_row(*(Text(terminal.plain(cell)) for cell in row))
        out.print(table)


LONG_CELL = 24  # characters; a longer cell is text


@contextmanager
def progress_bar() -> Iterator[Callable[[str, float], None]]:
    """A progress bar on a terminal's standard error; nothing elsewhere. Called with what is read and the share."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("accounts", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)
