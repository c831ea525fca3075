"""An explanation in a terminal: its steps one under the other, each with its sentences and its table.

It knows the shape of `/api/v1/explain`, not what the steps say, so it shows steps of newer versions too. On a terminal
everything is folded to its width; in a pipe every row is one line, for grep.

Worked example: `explain_tables(document)` begins with

    ai/chat  3 replicas, serving: 40 requests wait or run and a replica should carry 16
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .. import terminal
from ..explain.steps import number
from ..terminal import BAD, DIM, GOOD, HEAD, UNKNOWN, bare_table, plain

if TYPE_CHECKING:
    from .verdict import Verdict

Row: TypeAlias = Mapping[str, Any]
CHANGES_SHOWN = 8


def explain_tables(document: Row, console: Console | None = None) -> None:
    out = terminal.console(console)
    names = document["workload"]
    key = "/".join(str(names[part]) for part in ("namespace", "name", "trigger") if names.get(part))
    out.print(Text.assemble((plain(key), HEAD), "  ", plain(document["summary"])))
    out.print(Text(_when(document), DIM))
    for place, step in enumerate(document["chain"], 1):
        out.print()
        out.print(Text.assemble((f"{place}  ", DIM), (plain(step["title"]), HEAD)))
        for sentence in step["sentences"]:
            out.print(Padding(Text(plain(sentence)), (0, 0, 0, 3), expand=False))
        if step["table"] is not None and step["table"]["rows"]:
            out.print(Padding(_table(step["table"]), (0, 0, 0, 1), expand=False))
    changes = document["changes"][-CHANGES_SHOWN:]
    if changes:
        out.print()
        out.print(Text("Its latest answers", HEAD))
        for change in changes:
            replicas = UNKNOWN if change["replicas"] is None else str(change["replicas"])
            out.print(Text.assemble("   ", (f"{_clock(change['at'])}  ", DIM), f"{replicas:>4}  {change['reason']}"))


def verdict_tables(made: Verdict, console: Console | None = None) -> None:
    """Whether this Tidegate answers the same."""
    out, version = terminal.console(console), installed_version("tidegate")
    out.print()
    answer = f"{_number(made.now['replicas'])} replicas, {made.now['reason']}"
    if made.same:
        out.print(Text(f"Decided again by tidegate {version}: the same, {answer}.", GOOD))
        return
    out.print(Text(f"Decided again by tidegate {version}: not the same.", BAD))
    table = bare_table()
    for column in ("", "then", "now"):
        table.add_column(column)
    for each in made.differences:
        table.add_row(*(_number(each[part]) for part in ("what", "then", "now")))
    out.print(table)


def _when(document: Row) -> str:
    at, now, begins = document["at"], document["now"], document["log_begins_at"]
    said = [] if at is None else [f"decided {_clock(at)}, {max(0.0, now - at):.0f} s before it was asked"]
    if begins is not None:
        said.append(f"the log begins {_clock(begins)}")
    if document["follows"] is not None:
        said.append(f"the answer is the leader's at {plain(document['follows'])}")
    return "; ".join(said)


def _table(shown: Row) -> Table:
    table = bare_table()
    for place, column in enumerate(shown["columns"]):
        numbers = all(not isinstance(row[place], str) for row in shown["rows"])
        table.add_column(plain(column), justify="right" if numbers else "left", overflow="fold")
    for row in shown["rows"]:
        table.add_row(*(_number(cell) for cell in row))
    return table


def _number(cell: Any) -> str:
    if cell is None:
        return UNKNOWN
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return number(float(cell)) if isinstance(cell, int | float) else plain(cell)


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%SZ}"
