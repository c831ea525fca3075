"""Formats rows of measurements as a Markdown table.

Each benchmark is a module with `TITLE`, `ABOUT` (a paragraph) and `run(quick)`, which returns rows; a row is a dict,
and its keys are the columns. This module formats the values, independent of their origin: a `Spread` is `median (least
to most)`, a number has three significant digits, an absent value is an empty cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from timing import Spread

Row = Mapping[str, Any]


def number(value: float) -> str:
    """Three significant digits, in full: 0.0123, 1.23, 12.3, 123, 1,235."""
    if isinstance(value, int) or abs(value) >= 100.0:
        return f"{value:,.0f}"
    if abs(value) < 1e-3:
        return f"{value:.2g}"
    digits = next(digits for digits, bound in ((1, 10.0), (2, 1.0), (3, 0.1), (4, 0.0)) if abs(value) >= bound)
    return f"{value:.{digits}f}"


def cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Spread):
        return f"{number(value.median)} ({number(value.least)} to {number(value.most)})"
    return number(value) if isinstance(value, int | float) else str(value)


def table(rows: Sequence[Row]) -> str:
    """A Markdown table, padded to be readable as text; columns of numbers are flush right."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, *([cell(row.get(name)) for name in names] for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(names))]
    left = [any(isinstance(row.get(name), str) for row in rows) for name in names]
    padded = [
        [
            text.ljust(width) if flush else text.rjust(width)
            for text, width, flush in zip(line, widths, left, strict=True)
        ]
        for line in lines
    ]
    rule = [
        ":" + "-" * (width - 1) if flush else "-" * (width - 1) + ":" for width, flush in zip(widths, left, strict=True)
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in [padded[0], rule, *padded[1:]])


def show(rows: Sequence[Row]) -> None:
    print(table(rows))
