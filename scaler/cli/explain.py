"""What was asked on the command line -> a document of `/api/v1/explain`.

Worked example: `asked(Asked("ai/chat", at="2026-11-22T10:00:00Z"), now)` asks the daemon. Is there no ai/chat and an
ai/chats, it raises BadWish: "ai/chat: no such workload on the Board. Is it ai/chats?".

An explanation in a terminal: its steps one under the other, each with its sentences and its table.

It knows the shape of `/api/v1/explain`, not what the steps say, so it shows steps of newer versions too. On a terminal
everything is folded to its width; in a pipe every row is one line, for grep.

Worked example: `explain_tables(document)` begins with

    ai/chat  3 replicas, serving: 40 requests wait or run and a replica should carry 16
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from exporter.model import WorkloadKey
from scaler.config.scalars import read_duration
from scaler.explain import terminal
from scaler.explain.formats import number
from scaler.explain.terminal import DIM, HEAD, UNKNOWN, bare_table, plain

from .client import Unanswered, document

Document = dict[str, Any]

MOST_NAMES = 3


class BadExplainRequest(Exception):  # noqa: N818 - named for whose fault it is
    """It cannot be shown; the message says what would be right."""


@dataclass(frozen=True, slots=True)
class ExplainRequest:
    """workload: NAMESPACE/NAME or NAMESPACE/NAME/TRIGGER. at: a moment, POSIX seconds, or a while ago; None is now.
    server: URL of the daemon. timeout: seconds.
    """

    workload: str
    at: str | None = None
    server: str = "http://localhost:8080"
    timeout: float = 10.0


def asked(wish: ExplainRequest, now: float) -> Document:
    """now: POSIX seconds of the own clock, for a while ago. Raises BadWish, Unanswered."""
    key = _key(wish.workload)
    query = {"trigger": key.trigger} if key.trigger else {}
    if wish.at is not None:
        query["at"] = _moment(wish.at, now)
    path = f"/api/v1/explain/{quote(key.namespace, safe='')}/{quote(key.name, safe='')}"
    try:
        return document(wish.server, f"{path}?{urlencode(query)}" if query else path, wish.timeout)
    except Unanswered as unanswered:
        if unanswered.status == HTTPStatus.BAD_REQUEST:
            raise BadExplainRequest(unanswered.said) from None
        if unanswered.status != HTTPStatus.NOT_FOUND or not unanswered.said:
            raise
        raise BadExplainRequest(f"{unanswered.said}. {_nearest(wish, key)}") from None


def _key(text: str) -> WorkloadKey:
    parts = text.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise BadExplainRequest(f"{text}: must be NAMESPACE/NAME, or NAMESPACE/NAME/TRIGGER for a further trigger")
    return WorkloadKey(*parts)


def _moment(text: str, now: float) -> str:
    """What the daemon understands: a while ago is reckoned here, and said as a moment."""
    try:
        ago = read_duration(text) if text[-1:].isalpha() and "T" not in text else None
    except ValueError:
        ago = None
    return text if ago is None else f"{now - ago:.3f}"


def _nearest(wish: ExplainRequest, key: WorkloadKey) -> str:
    """Which workloads may have been meant."""
    try:
        board = document(wish.server, "/api/v1/board", wish.timeout)
        found = [WorkloadKey(**each["workload"]) for each in board["workloads"]]
    except (Unanswered, KeyError, TypeError):
        return "What there is: GET /api/v1/board"
    if not found:
        return "There is none at all yet"
    names = {str(each): each for each in found}
    near = get_close_matches(str(key), names, n=MOST_NAMES, cutoff=0.5)
    near += [name for name, each in names.items() if each.name == key.name and name not in near]
    if not near:
        return f"There are {len(names)}, such as {', '.join(sorted(names)[:MOST_NAMES])}"
    return f"Is it {' or '.join(near[:MOST_NAMES])}?"


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
