"""Checks as people read them: one line each, and below those that are not well, what to do.

Names and sentences come from other people's pages and objects: nothing of them is taken as markup, or reaches the
terminal as a control character.

Worked example:

    ok    Python         Tidegate 0.1.0 on Python 3.12.3
    warn  kernels' cache /app: cannot be written
          -> set NUMBA_CACHE_DIR to a directory that can be written

    1 warning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scaler.explain import terminal
from scaler.explain.terminal import BAD, DIM, GOOD, WARN

from .check import Check

_STYLES = {"ok": GOOD, "warn": WARN, "fail": BAD}


def show(checks: Sequence[Check], console: Console | None = None) -> None:
    out = terminal.console(console)
    table = Table(box=None, show_header=False, show_edge=False, pad_edge=False)
    table.add_column(no_wrap=True, min_width=4)
    table.add_column(overflow="fold")
    for check in checks:
        table.add_row(Text(check.status, _STYLES[check.status]), _line(check))
        if check.do:
            table.add_row("", Text(f"-> {_plain(check.do)}", DIM))
    out.print(table)
    out.print()
    out.print(Text(verdict(checks)))


def verdict(checks: Sequence[Check]) -> str:
    counts = Counter[str](check.status for check in checks)
    words = {"fail": "failure", "warn": "warning"}
    parts = [_counted(counts[status], word) for status, word in words.items() if counts[status]]
    return f"{' and '.join(parts)}." if parts else f"All {len(checks)} checks are well."


def _line(check: Check) -> Text:
    return Text.assemble((f"{_plain(check.name)}: ", DIM), _plain(check.said))


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _plain(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)
