"""Draws the rows as a table that fits the terminal: the narrower it is, the fewer columns, the least important ones
first.

Takes the document of `/api/v1/rows` and the series of `/api/v1/history`. Names are untrusted: they are neither
interpreted as markup nor printed with control characters.

Worked example: on 80 columns a workload is one line, "◐ loading  ai/chat  0 → 2  14 requests  3 s"; on 160 there are
also charts of an hour of load and replicas, the GPUs' activity and the reason as a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from scaler.explain import formats
from scaler.explain.summary import OBSTACLES, REASONS, STATES, WorkloadState
from scaler.explain.terminal import BAD, DIM, GOOD, HEAD, PIPE_WIDTH, SEVERITIES, UNKNOWN, WARN, plain, spark
from scaler.explain.terminal import STATES as LOOKS
from scaler.model import Reason

Row: TypeAlias = Mapping[str, Any]
Key: TypeAlias = tuple[str, str, str]

_ACCENT = "#3aa6b9"
_SPARK = 20
_OTHER_LINES = 7  # the title and a failure, three of the fleet, the table's header, the number of further rows
_LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class TopView:
    """The data of one screen.

    document: of `/api/v1/rows`; None before the first fetch. histories: by (namespace, name, trigger).
    failure:  error of the last fetch, and age of the document in seconds; None if the last fetch succeeded.
    """

    document: Mapping[str, Any] | None
    histories: Mapping[Key, Mapping[str, Any]] = field(default_factory=dict)
    failure: tuple[str, float] | None = None


class TableColumn(NamedTuple):
    """from_width: least width of the terminal with this column."""

    title: str
    from_width: int
    justify: Literal["left", "right"]
    cell: Callable[[Row, TopView], Text]


def draw(view: TopView, width: int, height: int | None) -> RenderableType:
    """The whole screen. height: lines of the terminal; None for all rows."""
    if view.document is None:
        return Group(*_head(view), Text("no data yet", DIM))
    workloads = view.document["workloads"]
    fitting = workloads if height is None else workloads[: rows_that_fit(height)]
    chosen = columns(width, charts=bool(view.histories))
    # One column takes the remaining width and is cut: the sentence, else the name. In a pipe nothing is cut.
    flexible = next(column for column in (chosen[-1], *chosen) if column.title in ("why", "workload"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=DIM, expand=width < PIPE_WIDTH)
    for column in chosen:
        rest = 1 if column is flexible and width < PIPE_WIDTH else None
        table.add_column(column.title, justify=column.justify, no_wrap=True, overflow="ellipsis", ratio=rest)
    for row in fitting:
        table.add_row(*(column.cell(row, view) for column in chosen))
    more = len(workloads) - len(fitting)
    foot = [Text(f"  and {more} more below", DIM)] if more else []
    return Group(*_head(view), *_fleet(view.document["fleet"]), table if workloads else _empty_table(), *foot)


def rows_that_fit(height: int) -> int:
    return max(1, height - _OTHER_LINES)


def columns(width: int, *, charts: bool) -> list[TableColumn]:
    """charts: whether there are histories."""
    return [each for each in _COLUMNS if width >= each.from_width and (charts or each.cell not in _CHARTS.values())]


def key(row: Row) -> Key:
    return (row["namespace"], row["name"], row.get("trigger", ""))


def _head(view: TopView) -> list[Text]:
    line = Text.assemble(("tidegate", HEAD))
    document = view.document
    if document is not None:
        ready = not document["unwell"] and view.failure is None
        line.append("  ready" if ready else "", GOOD)
        line.append(f"  {document['role']}" if document["role"] else "", DIM)
        line.append(f"  Board {formats.span(document['now'] - document['at'])} old", DIM)
    lines = [line]
    if view.failure is not None:
        error, age_s = view.failure
        # The age first: a narrow terminal cuts the rest.
        age = "" if document is None else f"data is {formats.span(age_s)} old: "
        lines.append(Text(f"{age}{plain(error)}", BAD))
    elif document is not None and document["unwell"]:
        lines.append(Text(f"not ready: {plain('; '.join(document['unwell']))}", BAD))
    return [_line(line) for line in lines]


def _fleet(fleet: Mapping[str, Any]) -> list[Text]:
    """Workloads by state, and GPUs by the state of their workload."""
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
    """Cut to one line."""
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
        outcome = OBSTACLES[code].word if code in OBSTACLES else plain(code).replace("_", " ")
        text.append(f"{' ' if text else ''}{outcome}", SEVERITIES.get(row["severity"], DIM))
    return text.append(" observed" if row["observed"] else "", DIM)


def _name(row: Row, _: TopView) -> Text:
    namespace, name, trigger = (plain(part) for part in key(row))
    text = Text.assemble((f"{namespace}/", DIM), (f"{name}/{trigger}" if trigger else name, "bold"))
    text.truncate(_LONGEST_NAME, overflow="ellipsis")
    return text


def _replicas(row: Row, _: TopView) -> Text:
    moves = row["cluster"] is not None and row["cluster"] != row["published"]
    return _cell(
        formats.shift(row["cluster"], row["published"]), f"bold {_ACCENT}" if moves else "bold", row["published"]
    )


def _requests(row: Row, _: TopView) -> Text:
    return _cell(formats.count(row["load"]), "", row["load"])


def _demand(row: Row, _: TopView) -> Text:
    return _cell(formats.count(row["demand"]), "", row["demand"])


def _gpu(row: Row, _: TopView) -> Text:
    return _cell(formats.ratio(row["gpu"]), "", row["gpu"])


def _age(row: Row, view: TopView) -> Text:
    now = view.document["now"] if view.document is not None else 0.0
    style = WARN if row["held_since"] is not None else DIM
    age = formats.age(row["measured_at"], row["held_since"], now)
    return _cell(age, style, row["held_since"] or row["measured_at"])


def _why(row: Row, _: TopView) -> Text:
    notes = f"  ({len(row['notes'])} note{'' if len(row['notes']) == 1 else 's'})" if row["notes"] else ""
    hindered = f"; {plain(row['hindered_by'])}" if row.get("hindered_by") else ""
    return Text(plain(row["why"]) + hindered + notes, DIM)


def _chart(of: str, colour: str) -> Callable[[Row, TopView], Text]:
    def cell(row: Row, view: TopView) -> Text:
        series: Sequence[float | None] = view.histories.get(key(row), {}).get(of, ())
        return spark(series, _SPARK, colour)

    return cell


def _cell(text: str, style: str, value: object) -> Text:
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
    TableColumn("age", 64, "left", _age),
    TableColumn("why", 140, "left", _why),
)
