"""What an explanation is made of: steps with a title, sentences, and perhaps a table. Pure.

The page, the terminal and the documents show every step alike, so a new kind of step needs nothing of them.

Worked example: `Step("winner", "What decides", ("work asks for most: 2.5, so 3 replicas",)).to_document()` has `table`
None; a NaN in a table's row is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite, isnan
from typing import Any, Literal, TypeAlias

Cell: TypeAlias = str | float | int | bool | None
Kind: TypeAlias = Literal["raw", "cleaned", "smoothed", "objectives", "winner", "clamp", "orders", "told", "controller"]

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0
_LAST = 253402300799.0  # 9999-12-31 23:59:59Z; a keep-warm time of a million years is how some say "never"


@dataclass(frozen=True, slots=True)
class Table:
    """rows: of as many cells as there are columns. None is not known."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def to_document(self) -> dict[str, Any]:
        rows = [[_plain(cell) for cell in row] for row in self.rows]
        return {"columns": list(self.columns), "rows": rows}


@dataclass(frozen=True, slots=True)
class Step:
    """One step from a page to what the controller does with the number."""

    step: Kind
    title: str
    sentences: tuple[str, ...]
    table: Table | None = None

    def to_document(self) -> dict[str, Any]:
        table = None if self.table is None else self.table.to_document()
        return {"step": self.step, "title": self.title, "sentences": list(self.sentences), "table": table}


def _plain(cell: Cell) -> Cell:
    if not isinstance(cell, float):
        return cell
    return float(cell) if isfinite(cell) else None


def number(value: float) -> str:
    """As a person writes it: 40, 2.5, 0.125; – where it is not known."""
    if isnan(value):
        return "–"
    if not isfinite(value):
        return "no end"
    places = 2 if abs(value) >= 1.0 else 3
    return f"{value:.{places}f}".rstrip("0").rstrip(".") if value % 1.0 else f"{value:.0f}"


def count(value: float, noun: str, plural: str = "") -> str:
    """`count(1, "replica")` is "1 replica"."""
    return f"{number(value)} {noun if value == 1.0 else plural or noun + 's'}"


def clock(at: float) -> str:
    """ "2026-11-22 10:36:13Z" """  # noqa: D210, D415 - it begins and ends with a quote
    if at > _LAST:
        return "the year 10000 or later"
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%SZ}"


def lasting(seconds: float) -> str:
    """A while: "4 s", "5 min", "1 h 20 min", "3 d"."""
    whole = round(seconds)
    if abs(seconds) < 10.0 and seconds % 1.0:  # noqa: PLR2004 - of so few seconds the tenth counts
        return f"{seconds:.1f} s"
    if whole < 2 * MINUTE_S:
        return f"{whole} s"
    if whole < HOUR_S:
        rest = f" {whole % 60} s" if whole % 60 else ""
        return f"{whole // 60} min{rest}"
    if whole < 2 * DAY_S:
        rest = f" {whole // 60 % 60} min" if whole // 60 % 60 else ""
        return f"{whole // 3600} h{rest}"
    return f"{whole / DAY_S:.0f} d"
