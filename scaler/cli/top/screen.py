"""The rows as a table that fits a terminal: the narrower it is, the fewer columns, the least needed ones first.

Knows: the document of `/api/v1/rows`, and series of `/api/v1/history`. Refuses to know: where they come from, and what
time it is. Names are strangers'
words: nothing of them is taken as markup or reaches the terminal as a control character.

Worked example: on 80 columns a workload is one line, "◐ loading  ai/chat  0 → 2  14 requests  3 s"; on 160 its hour of
load and of replicas, its GPUs' activity and the sentence why stand beside that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from scaler.explain import formats
from scaler.explain.summary import HINDRANCES, REASONS, STATES, WorkloadState
from scaler.explain.terminal import BAD, DIM, GOOD, HEAD, PIPE_WIDTH, SEVERITIES, UNKNOWN, WARN, plain, spark
from scaler.explain.terminal import STATES as LOOKS
from scaler.model import Reason

Row: TypeAlias = Mapping[str, Any]
Key: TypeAlias = tuple[str, str, str]

_ACCENT = "#3aa6b9"
_SPARK = 20
_HEADROOM = 7  # lines that are no rows: the head and a silence, the fleet's three, the table's own, the foot
_NAME_MOST = 40


@dataclass(frozen=True, slots=True)
class TopView:
    """What is known when a screen is drawn.

    document: of `/api/v1/rows`; None while nobody has answered. histories: by (namespace, name, trigger).
    silent:   what went wrong when it was asked last, and for how many seconds nobody has answered; None is all is well.
    """

    document: Mapping[str, Any] | None
    histories: Mapping[Key, Mapping[str, Any]] = field(default_factory=dict)
    silent: tuple[str, float] | None = None


class TableColumn(NamedTuple):
    """from_width: of the terminal, from which on there is room for it."""

    title: str
    from_width: int
    justify: Literal["left", "right"]
    cell: Callable[[Row, TopView], Text]


def drawn(view: TopView, width: int, height: int | None) -> RenderableType:
    """The whole screen. height: lines of the terminal; None is: all rows, whatever their number."""
    if view.document is None:
        return Group(*_head(view), Text("nothing is known yet", DIM))
    rows = view.document["workloads"]
    fitting = rows if height is None else rows[: rows_that_fit(height)]
    chosen = columns(width, charts=bool(view.histories))
    # One column takes what is left, and loses what is missing: the sentence, else the name. In a pipe nothing is lost.
    flexible = next(column for column in (chosen[-1], *chosen) if column.title in ("why", "workload"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=DIM, expand=width < PIPE_WIDTH)
    for column in chosen:
        rest = 1 if column is flexible and width < PIPE_WIDTH else None
        table.add_column(column.title, justify=column.justify, no_wrap=True, overflow="ellipsis", ratio=rest)
    for row in fitting:
        table.add_row(*(column.cell(row, view) for column in chosen))
    more = len(rows) - len(fitting)
    foot = [Text(f"  and {more} more below", DIM)] if more else []
    return Group(*_head(view), *_fleet(view.document["fleet"]), table if rows else _empty_table(), *foot)


def rows_that_fit(height: int) -> int:
    return max(1, height - _HEADROOM)


def columns(width: int, *, charts: bool) -> list[TableColumn]:
    """charts: is anything kept of the last hour?"""
    return [each for each in _COLUMNS if width >= each.from_width and (charts or each.cell not in _CHARTS.values())]


def key(row: Row) -> Key:
    return (row["namespace"], row["name"], row.get("trigger", ""))


def _head(view: TopView) -> list[Text]:
    line = Text.assemble(("tidegate", HEAD))
    document = view.document
    if document is not None:
        well = not document["unwell"] and view.silent is None
        line.append("  ready" if well else "", GOOD)
        line.append(f"  {document['role']}" if document["role"] else "", DIM)
        line.append(f"  Board {formats.span(document['now'] - document['at'])} old", DIM)
    lines = [line]
    if view.silent is not None:
        why, since = view.silent
        # The age first: a narrow terminal cuts off the rest.
        shown = "" if document is None else f"what is shown is {formats.span(since)} old: "
        lines.append(Text(f"{shown}{plain(why)}", BAD))
    elif document is not None and document["unwell"]:
        lines.append(Text(f"not ready: {plain('; '.join(document['unwell']))}", BAD))
    return [_line(line) for line in lines]


def _fleet(fleet: Mapping[str, Any]) -> list[Text]:
    """Workloads by state, and GPUs by what their holders do."""
    parts = []
    for state, word in STATES.items():
        if many := fleet["workloads"].get(str(state), 0):
            sign, colour = LOOKS[state]
            parts.append(Text.assemble((f"{sign} ", colour), (f"{many:,}", "bold"), (f" {word.word}", DIM)))
    held = [f"{many:,} {_state_word(state)}" for state, many in fleet["gpus"].items() if many]
    if fleet["uncounted"]:
        held.append(f"of {fleet['uncounted']:,} workload{'' if fleet['uncounted'] == 1 else 's'} unknown")
    return [_line(Text("   ").join(parts)), _line(Text(f"GPUs: {' · '.join(held) or 'none'}", DIM)), Text()]


def _line(text: Text) -> Text:
    """One line, however narrow the terminal is."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _empty_table() -> Text:
    return Text("no workload is on the Board yet", DIM)


def _state(row: Row, _: TopView) -> Text:
    sign, colour = _look(row["state"])
    return Text.assemble((f"{sign} ", colour), (_state_word(row["state"]), f"bold {colour}"))


def _reason(row: Row, _: TopView) -> Text:
    code = row["reason"]
    word = REASONS[Reason(code)].word if code in set(Reason) else plain(code).replace("_", " ")
    same = word == _state_word(row["state"])
    text = Text("" if same else word, SEVERITIES.get(row["severity"], DIM))
    if code := row.get("hindered"):
        said = HINDRANCES[code].word if code in HINDRANCES else plain(code).replace("_", " ")
        text.append(f"{' ' if text else ''}{said}", SEVERITIES.get(row["severity"], DIM))
    return text.append(" observed" if row["observed"] else "", DIM)


def _name(row: Row, _: TopView) -> Text:
    namespace, name, trigger = (plain(part) for part in key(row))
    text = Text.assemble((f"{namespace}/", DIM), (f"{name}/{trigger}" if trigger else name, "bold"))
    text.truncate(_NAME_MOST, overflow="ellipsis")
    return text


def _replicas(row: Row, _: TopView) -> Text:
    moves = row["cluster"] is not None and row["cluster"] != row["told"]
    return _said(formats.shift(row["cluster"], row["told"]), f"bold {_ACCENT}" if moves else "bold", row["told"])


def _requests(row: Row, _: TopView) -> Text:
    return _said(formats.count(row["load"]), "", row["load"])


def _demand(row: Row, _: TopView) -> Text:
    return _said(formats.count(row["demand"]), "", row["demand"])


def _gpu(row: Row, _: TopView) -> Text:
    return _said(formats.ratio(row["gpu"]), "", row["gpu"])


def _age(row: Row, view: TopView) -> Text:
    now = view.document["now"] if view.document is not None else 0.0
    style = WARN if row["held_since"] is not None else DIM
    age = formats.age(row["measured_at"], row["held_since"], now)
    return _said(age, style, row["held_since"] or row["measured_at"])


def _why(row: Row, _: TopView) -> Text:
    notes = f"  ({len(row['notes'])} note{'' if len(row['notes']) == 1 else 's'})" if row["notes"] else ""
    hindered = f"; {plain(row['hindered_by'])}" if row.get("hindered_by") else ""
    return Text(plain(row["why"]) + hindered + notes, DIM)


def _chart(of: str, colour: str) -> Callable[[Row, TopView], Text]:
    def cell(row: Row, view: TopView) -> Text:
        series: Sequence[float | None] = view.histories.get(key(row), {}).get(of, ())
        return spark(series, _SPARK, colour)

    return cell


def _said(text: str, style: str, value: object) -> Text:
    return Text(text, style) if value is not None else Text(text, f"italic {DIM}")


def _look(code: str) -> tuple[str, str]:
    return LOOKS[WorkloadState(code)] if code in set(WorkloadState) else (UNKNOWN, DIM)


def _state_word(code: str) -> str:
    return STATES[WorkloadState(code)].word if code in set(WorkloadState) else plain(code).replace("_", " ")


_CHARTS = {name: _chart(name, colour) for name, colour in (("load", _ACCENT), ("replicas", _ACCENT), ("gpu", GOOD))}
_COLUMNS = (
    TableColumn("state", 0, "left", _state),
    TableColumn("", 72, "left", _reason),
    TableColumn("workload", 0, "left", _name),
    TableColumn("replicas", 0, "left", _replicas),
    TableColumn("", 185, "left", _CHARTS["replicas"]),
    TableColumn("requests", 50, "right", _requests),
    TableColumn("", 110, "left", _CHARTS["load"]),
    TableColumn("demand", 155, "right", _demand),
    TableColumn("GPU", 88, "right", _gpu),
    TableColumn("", 215, "left", _CHARTS["gpu"]),
    TableColumn("seen", 64, "left", _age),
    TableColumn("why", 140, "left", _why),
)
