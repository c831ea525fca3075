"""Fetches explanations of decisions (documents of `/api/v1/explain`) and prints them.

Does not know what the steps contain, so it also prints steps of newer versions. On a terminal, text is folded to its
width; in a pipe every row is one line, for grep.

Worked example: `fetch(ExplainRequest("ai/chat", at="10m"), now)` requests the document from the daemon. If there is no
ai/chat but an ai/chats, it raises BadExplainRequest: "ai/chat: no such workload on the Board. Is it ai/chats?".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any, Literal, TypeAlias
from urllib.parse import quote, urlencode

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from exporter.model import WorkloadKey
from scaler.config.scalars import read_duration
from scaler.explain import terminal
from scaler.explain.formats import clock, number
from scaler.explain.terminal import DIM, HEAD, UNKNOWN, bare_table, plain

from .client import Unanswered, document

Document: TypeAlias = dict[str, Any]
Row: TypeAlias = Mapping[str, Any]

MOST_NAMES = 3
CHANGES_SHOWN = 8
ROOMY_WIDTH = 120  # columns: a narrower terminal has less space between columns
LONG = 12  # letters: longer texts are folded


class BadExplainRequest(Exception):  # noqa: N818 - named after the side at fault
    """The request is invalid; the message has the remedy."""


@dataclass(frozen=True, slots=True)
class ExplainRequest:
    """workload: NAMESPACE/NAME or NAMESPACE/NAME/TRIGGER. at: a timestamp, POSIX seconds, or a duration before now;
    None is now. server: URL of the daemon.
    """

    workload: str
    at: str | None = None
    server: str = "http://localhost:8080"
    timeout_s: float = 10.0


def fetch(request: ExplainRequest, now: float) -> Document:
    """now: POSIX seconds of this machine's clock. Raises BadExplainRequest, Unanswered."""
    key = _key(request.workload)
    query = {"trigger": key.trigger} if key.trigger else {}
    if request.at is not None:
        query["at"] = _timestamp(request.at, now)
    path = f"/api/v1/explain/{quote(key.namespace, safe='')}/{quote(key.name, safe='')}"
    try:
        return document(request.server, f"{path}?{urlencode(query)}" if query else path, request.timeout_s)
    except Unanswered as failure:
        if failure.status == HTTPStatus.BAD_REQUEST:
            raise BadExplainRequest(failure.error) from None
        if failure.status != HTTPStatus.NOT_FOUND or not failure.error:
            raise
        raise BadExplainRequest(f"{failure.error}. {_nearest(request, key)}") from None


def _key(text: str) -> WorkloadKey:
    parts = text.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise BadExplainRequest(f"{text}: must be NAMESPACE/NAME, or NAMESPACE/NAME/TRIGGER for a further trigger")
    return WorkloadKey(*parts)


def _timestamp(text: str, now: float) -> str:
    """For the daemon: a duration before now becomes POSIX seconds."""
    try:
        ago = read_duration(text) if text[-1:].isalpha() and "T" not in text else None
    except ValueError:
        ago = None
    return text if ago is None else f"{now - ago:.3f}"


def _nearest(request: ExplainRequest, key: WorkloadKey) -> str:
    """A hint at similar names."""
    try:
        board = document(request.server, "/api/v1/board", request.timeout_s)
        found = [WorkloadKey(**each["workload"]) for each in board["workloads"]]
    except (Unanswered, KeyError, TypeError):
        return "For all workloads: GET /api/v1/board"
    if not found:
        return "There is no workload yet"
    names = {str(each): each for each in found}
    near = get_close_matches(str(key), names, n=MOST_NAMES, cutoff=0.5)
    near += [name for name, each in names.items() if each.name == key.name and name not in near]
    if not near:
        return f"There are {len(names)}, such as {', '.join(sorted(names)[:MOST_NAMES])}"
    return f"Is it {' or '.join(near[:MOST_NAMES])}?"


def explain_tables(document: Row, console: Console | None = None) -> None:
    out = terminal.console(console)
    names = document["workload"]
    key = "/".join(str(names[part]) for part in ("namespace", "name", "trigger") if names.get(part))
    out.print(Text.assemble((plain(key), HEAD), "  ", plain(document["summary"])))
    out.print(Text(_when(document), DIM))
    for position, step in enumerate(document["chain"], 1):
        out.print()
        out.print(Text.assemble((f"{position}  ", DIM), (plain(step["title"]), HEAD)))
        for sentence in step["sentences"]:
            out.print(Padding(Text(plain(sentence)), (0, 0, 0, 3), expand=False))
        if step["table"] is not None and step["table"]["rows"]:
            out.print(Padding(_table(step["table"], out.width), (0, 0, 0, 1), expand=False))
    changes = document["changes"][-CHANGES_SHOWN:]
    if changes:
        out.print()
        out.print(Text("Latest changes", HEAD))
        for change in changes:
            replicas = UNKNOWN if change["replicas"] is None else str(change["replicas"])
            out.print(Text.assemble("   ", (f"{clock(change['at'])}  ", DIM), f"{replicas:>4}  {change['reason']}"))


def _when(document: Row) -> str:
    at, now, begins = document["at"], document["now"], document["log_begins_at"]
    parts = [] if at is None else [f"decided {clock(at)}, {max(0.0, now - at):.0f} s before this request"]
    if begins is not None:
        parts.append(f"the log begins {clock(begins)}")
    if document["follows"] is not None:
        parts.append(f"published: the decision of the leader at {plain(document['follows'])}")
    return "; ".join(parts)


def _table(shown: Row, width: int) -> Table:
    """width: of the terminal; a narrow one folds long texts, and no number and no heading."""
    table = bare_table()
    table.padding = (0, 1) if width >= ROOMY_WIDTH else 0
    for index, column in enumerate(shown["columns"]):
        cells = [row[index] for row in shown["rows"]]
        numbers = all(not isinstance(cell, str) for cell in cells)
        is_long = any(isinstance(cell, str) and len(cell) > LONG for cell in cells)
        justify: Literal["left", "right"] = "right" if numbers else "left"
        table.add_column(plain(column), justify=justify, overflow="fold", no_wrap=not is_long)
    for row in shown["rows"]:
        table.add_row(*(_number(cell) for cell in row))
    return table


def _number(cell: Any) -> str:
    if cell is None:
        return UNKNOWN
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return number(float(cell)) if isinstance(cell, int | float) else plain(cell)
