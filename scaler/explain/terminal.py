"""Draws tables and small charts on a terminal, with one look for all commands.

A table has a thin line under its head. In a pipe a console has no colours, and every row is one line. Charts are
coloured block characters: a filled curve, a stack of replicas over time, a row of gauges. NaN is not drawn.

Worked example: `console(None)` is the terminal, or, in a pipe, a console of `PIPE_WIDTH`. `curve([0, 4, 8], top=8,
rows=1, colour="blue")` is one line: " ▄█".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import groupby

from rich.box import Box
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from exporter.model import printable

from .summary import Severity, WorkloadState

HEAD, DIM, GOOD, WARN, BAD = "bold #9bd8d3", "grey50", "#57c785", "#e6c88c", "#e6806c"
STATES = {
    WorkloadState.SERVING: ("●", GOOD),
    WorkloadState.IDLE_WARM: ("○", WARN),
    WorkloadState.LOADING: ("◐", "#b79cf0"),
    WorkloadState.PENDING: ("◌", "#d59be0"),
    WorkloadState.ASLEEP: ("☾", "#6f8fcf"),
    WorkloadState.UNKNOWN: ("◆", BAD),
}  # a sign for each state, so that none depends on colour
SEVERITIES = {Severity.PROBLEM: BAD, Severity.NOTICE: WARN, Severity.FINE: DIM}
UNKNOWN = "\N{EN DASH}"
PIPE_WIDTH = 1000  # wider than any row, so that nothing is folded
_RISING, _GROWING = " ▁▂▃▄▅▆▇█", " ▏▎▍▌▋▊▉█"
# A thin line under the head.
_BOX = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")


def console(given: Console | None) -> Console:
    out = given or Console()
    if out.is_terminal:
        return out
    return Console(file=out.file, width=PIPE_WIDTH, force_terminal=False, color_system=None)


def bare_table() -> Table:
    return Table(box=_BOX, show_edge=False, pad_edge=True, header_style=DIM, border_style=DIM)


def plain(text: str) -> str:
    """Foreign text without control characters."""
    return printable(text)


def curve(values: Sequence[float], top: float, rows: int, colour: str) -> list[Text]:
    """A filled curve, `rows` lines high. top: the value of the full height."""
    eighths = [0 if math.isnan(value) else _eighths(value / top * rows) for value in values]
    lines = []
    for row in reversed(range(rows)):
        cells = (min(8, max(0, height - 8 * row)) for height in eighths)
        lines.append(Text("".join(_RISING[cell] for cell in cells), style=colour, no_wrap=True))
    return lines


def stack(columns: Sequence[Sequence[str]], rows: int) -> list[Text]:
    """Columns of unit blocks. columns: the colours of the units from the bottom; a line is two units high."""
    lines = []
    for row in reversed(range(rows)):
        cells = [
            _half_blocks(
                column[2 * row] if len(column) > 2 * row else "",
                column[2 * row + 1] if len(column) > 2 * row + 1 else "",
            )
            for column in columns
        ]
        # One piece of text per run of equal cells: rich's time grows with the pieces.
        runs = ((block * len(list(run)), style) for (block, style), run in groupby(cells))
        lines.append(Text.assemble(*runs, no_wrap=True))
    return lines


def gauges(ratios: Sequence[float], width: int, colour: str, empty: str) -> Text:
    """A bar per ratio, together at most `width` characters."""
    line = Text(no_wrap=True)
    if not ratios:
        return line
    each = max(2, min(12, width // len(ratios) - 1))
    for ratio in ratios[: max(1, width // (each + 1))]:
        eighths = _eighths(min(1.0, ratio) * each)
        full, rest = divmod(eighths, 8)
        bar = "█" * full + (_GROWING[rest] if rest else "")
        line.append(bar.ljust(each), Style(color=colour, bgcolor=empty))
        line.append(" ")
    return line


def spark(values: Sequence[float | None], width: int, colour: str) -> Text:
    """A line of `width` characters, the last values to the right; None is a gap. The largest has the full height."""
    numbers = [math.nan if value is None else value for value in values]
    missing = [math.nan] * (width - len(numbers))
    shown = _resampled(numbers, width) if len(numbers) > width else missing + numbers
    top = max((value for value in shown if not math.isnan(value)), default=0.0)
    return curve(shown, top or 1.0, 1, colour)[0]


def _resampled(values: Sequence[float], width: int) -> list[float]:
    """The largest value of each column, so that no peak is lost."""
    columns = [values[len(values) * column // width : len(values) * (column + 1) // width] for column in range(width)]
    return [max((value for value in each if not math.isnan(value)), default=math.nan) for each in columns]


def _eighths(height: float) -> int:
    """More than 0 is at least one eighth."""
    return max(1, round(height * 8)) if height > 0 else 0


@cache
def _half_blocks(lower: str, upper: str) -> tuple[str, Style]:
    if not lower and not upper:
        return " ", Style()
    if not upper:
        return "▄", Style(color=lower)
    if lower == upper:
        return "█", Style(color=lower)
    return "▀", Style(color=upper, bgcolor=lower or None)
