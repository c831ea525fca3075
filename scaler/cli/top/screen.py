"""Draws the rows as a table that fits the terminal: the narrower it is, the fewer columns, the least important ones
first.

Takes the user's choice, the document of `/api/v1/rows` and the series of `/api/v1/history`. Names are untrusted: they
are neither interpreted as markup nor printed with control characters.

Worked example: on 80 columns a workload is one line, "◐ loading  ai/chat  0 → 2  14 requests  3 s"; on 120 there is
also the reason as a sentence, on 185 charts of an hour of load and replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any, Literal, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from scaler.explain import formats
from scaler.explain.summary import OBSTACLES, REASONS, STATES, WorkloadState
from scaler.explain.terminal import BAD, DIM, GOOD, HEAD, PIPE_WIDTH, SEVERITIES, UNKNOWN, WARN, plain, spark
from scaler.explain.terminal import STATES as LOOKS
from scaler.model import Reason

from .keys import SEVERITY, START, Choice, Key, Row, index_of, key, matching

_ACCENT = "#3aa6b9"
_SPARK = 20
_OTHER_LINES = 9  # title, failure, three of the fleet, the table's header, the selected reason in two lines, the foot
_PAGE_LINES = 6  # title, failure, foot, and blank lines of the other pages
_REASON_LINES = 2
_LONGEST_NAME = 40
_SELECTED = "reverse"
_KEYS = (
    ("j k, arrows", "move"), ("Enter", "explain the selected workload; Esc goes back"),
    ("/", "filter by name, state or reason; Esc clears"), ("s", "sort by severity, name, requests, replicas, GPU"),
    ("g G, PgUp PgDn", "first, last, by pages"), ("?", "this help"), ("q", "quit"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TopView:
    """The data of one screen.

    document: of `/api/v1/rows`; None before the first fetch. histories: by (namespace, name, trigger).
    failure:  error of the last fetch, and age of the document in seconds; None if the last fetch succeeded.
    explanation: lines of the explanation of the selected workload.
    """

    document: Mapping[str, Any] | None
    histories: Mapping[Key, Mapping[str, Any]] = field(default_factory=dict)
    failure: tuple[str, float] | None = None
    choice: Choice = START
    explanation: Sequence[Text] = ()


class TableColumn(NamedTuple):
    """from_width, to_width: least and largest width of the terminal with this column; no largest is 0."""

    title: str
    from_width: int
    justify: Literal["left", "right"]
    cell: Callable[[Row, TopView], Text]
    to_width: int = 0


def draw(view: TopView, width: int, height: int | None) -> RenderableType:
    """The whole screen. height: lines of the terminal; None for all rows."""
    if view.document is None:
        return Group(*_head(view), Text("no data yet", DIM))
    if view.choice.page == "help":
        return Group(*_head(view), Text(), *_help()[: height and height - _PAGE_LINES])
    if view.choice.page == "explain":
        lines = list(view.explanation)
        shown = lines if height is None else lines[min(view.choice.scroll, len(lines) - 1) :][: height - _PAGE_LINES]
        return Group(*_head(view), Text(), *shown, Text(), Text("Esc back   j k scroll   q quit", DIM))
    every = view.document["workloads"]
    workloads = matching(every, view.choice)
    fitting = workloads if height is None else window(workloads, view.choice, height)
    chosen = columns(width, charts=bool(view.histories))
    # One column takes the remaining width and is cut: the sentence, else the name. In a pipe nothing is cut.
    flexible = next(column for column in (chosen[-1], *chosen) if column.cell in (_why, _name))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=DIM, expand=width < PIPE_WIDTH)
    for column in chosen:
        rest = 1 if column is flexible and width < PIPE_WIDTH else None
        table.add_column(column.title, justify=column.justify, no_wrap=True, overflow="ellipsis", ratio=rest)
    for row in fitting:
        cells = [column.cell(row, view) for column in chosen]
        if key(row) == view.choice.selected:
            table.add_row(*(Text(cell.plain) for cell in cells), style=_SELECTED)
        else:
            table.add_row(*cells)
    foot = [] if height is None else [_foot(view.choice, workloads, fitting, len(every))]
    if height is not None and height > _OTHER_LINES:
        foot[:0] = _selected_reason(fitting, view, width)
    return Group(*_head(view), *_fleet(view.document), table if workloads else _empty_table(every), *foot)


def rows_that_fit(height: int) -> int:
    return max(1, height - _OTHER_LINES)


def window(rows: Sequence[Row], choice: Choice, height: int) -> Sequence[Row]:
    """The rows on the screen, with the selected one in the middle as far as possible."""
    many = rows_that_fit(height)
    first = max(0, min((index_of(rows, choice.selected) or 0) - many // 2, len(rows) - many))
    return rows[first : first + many]


def columns(width: int, *, charts: bool) -> list[TableColumn]:
    """charts: whether there are histories."""
    fitting = [each for each in _COLUMNS if each.from_width <= width <= (each.to_width or width)]
    return [each for each in fitting if charts or each.cell not in _CHARTS.values()]


def _foot(choice: Choice, rows: Sequence[Row], fitting: Sequence[Row], total: int) -> Text:
    """The filter while it is typed, and what is not shown."""
    if choice.typing:
        return Text.assemble((f"/{plain(choice.filter)}", HEAD), ("▏", DIM), ("  Enter keeps it, Esc clears it", DIM))
    parts = [f"{len(rows):,} of {total:,} match {plain(choice.filter)}"] if choice.filter else []
    if len(fitting) < len(rows):
        first = index_of(rows, key(fitting[0])) or 0
        parts.append(f"{first + 1:,} to {first + len(fitting):,} of {len(rows):,}")
    parts += [f"by {choice.sort}"] if choice.sort != SEVERITY else []
    return _line(Text("   ".join((*parts, "? help")), DIM))


def _help() -> list[Text]:
    width = max(len(keys) for keys, _ in _KEYS)
    return [
        *(Text.assemble((f"{keys:<{width}}  ", HEAD), meaning) for keys, meaning in _KEYS),
        Text(),
        *(
            Text.assemble((f"{LOOKS[state][0]} {word.word:<{width}}", LOOKS[state][1]), (word.meaning, DIM))
            for state, word in STATES.items()
        ),
        Text(),
        Text("4 → 6: the cluster runs 4 replicas, Tidegate publishes 6. needed: before rounding and bounds.", DIM),
        Text("age: of the oldest reading. Any key goes back.", DIM),
    ]


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


def _selected_reason(rows: Sequence[Row], view: TopView, width: int) -> list[Text]:
    """The reason of the selected row over the whole width: its column is narrow, or missing."""
    reason = next((_why(row, view).plain for row in rows if key(row) == view.choice.selected), "")
    return [Text(line) for line in wrap(reason, width, max_lines=_REASON_LINES, placeholder=" …")]


def _fleet(document: Mapping[str, Any]) -> list[Text]:
    """Workloads by state, and GPUs by the state of their workload."""
    fleet, parts = document["fleet"], []
    for state, word in STATES.items():
        if many := fleet["workloads"].get(str(state), 0):
            sign, colour = LOOKS[state]
            parts.append(Text.assemble((f"{sign} ", colour), (f"{many:,}", "bold"), (f" {word.word}", DIM)))
    held = [f"{many:,} {_state_word(state)}" for state, many in fleet["gpus"].items() if many]
    if fleet["uncounted"]:
        held.append(f"{fleet['uncounted']:,} workload{'' if fleet['uncounted'] == 1 else 's'} not counted: unknown")
    gpus = Text(f"GPUs: {' · '.join(held) or 'none'}", DIM)
    if unmatched := sum(each["gpus"] for each in document.get("gpus_unmatched") or ()):
        gpus.append(f" · {unmatched:,} of no workload (see doctor)", WARN)
    return [_line(Text("   ").join(parts)), _line(gpus), Text()]


def _line(text: Text) -> Text:
    """Cut to one line."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _empty_table(every: Sequence[Row]) -> Text:
    return Text("no workload matches the filter" if every else "no workload is on the Board yet", DIM)


def _state(row: Row, _: TopView) -> Text:
    sign, colour = _look(row["state"])
    return Text.assemble((f"{sign} ", colour), (_state_word(row["state"]), f"bold {colour}"))


def _reason(row: Row, _: TopView) -> Text:
    code = row["reason"]
    word = REASONS[Reason(code)].word if code in set(Reason) else plain(code).replace("_", " ")
    same = word == _state_word(row["state"])
    text = Text("" if same else word, SEVERITIES.get(row["severity"], DIM))
    if obstacle := _obstacle(row):
        text.append(f"{' ' if text else ''}{obstacle}", SEVERITIES.get(row["severity"], DIM))
    return text.append(" observed" if row["observed"] else "", DIM)


def _obstacle(row: Row) -> str:
    """The obstacle of KEDA or the HPA, in a word or two; empty if there is none."""
    code = row.get("hindered")
    return "" if not code else OBSTACLES[code].word if code in OBSTACLES else plain(code).replace("_", " ")


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
    if row["gpu"] is None and row["state"] == WorkloadState.ASLEEP:
        return Text("none", DIM)  # it has no GPU, which is known
    return _cell(formats.ratio(row["gpu"]), "", row["gpu"])


def _age(row: Row, view: TopView) -> Text:
    now = view.document["now"] if view.document is not None else 0.0
    style = WARN if row["held_since"] is not None else DIM
    age = formats.age(row["measured_at"], row["held_since"], now)
    return _cell(age, style, row["held_since"] or row["measured_at"])


def _why(row: Row, _: TopView) -> Text:
    notes = f"  ({len(row['notes'])} note{'' if len(row['notes']) == 1 else 's'})" if row["notes"] else ""
    obstacle = row.get("hindered_by") or _obstacle(row)
    hindered = f"; {plain(obstacle)}" if obstacle else ""
    text = Text(plain(row["why"]), SEVERITIES.get(row["severity"], DIM))
    return text.append(hindered + notes + ("; observed" if row["observed"] else ""), DIM)


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
    TableColumn("reason", 72, "left", _reason, to_width=119),
    TableColumn("workload", 0, "left", _name),
    TableColumn("replicas", 0, "left", _replicas),
    TableColumn("", 185, "left", _CHARTS["replicas"]),
    TableColumn("requests", 50, "right", _requests),
    TableColumn("", 185, "left", _CHARTS["load"]),
    TableColumn("needed", 140, "right", _demand),
    TableColumn("GPU", 88, "right", _gpu),
    TableColumn("", 215, "left", _CHARTS["gpu"]),
    TableColumn("age", 64, "left", _age),
    TableColumn("reason", 120, "left", _why),
)
