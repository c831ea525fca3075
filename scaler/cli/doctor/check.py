"""Defines a check and prints checks: one line each, and the remedy below those that are not ok.

Names and results come from other programs: they are neither interpreted as markup nor printed with control characters.

Worked example: `fail("listen.http 0.0.0.0:8080", "in use by another program", "stop it, or change listen.http")` prints

    fail  listen.http 0.0.0.0:8080: in use by another program
          -> stop it, or change listen.http

    1 failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scaler.explain import terminal
from scaler.explain.terminal import BAD, DIM, GOOD, WARN

# A reading is fresh for three intervals, usually 15 s: two seconds do not matter, and NTP keeps milliseconds.
MOST_CLOCK_OFFSET_S = 2.0
_STYLES = {"ok": GOOD, "warn": WARN, "fail": BAD}


@dataclass(frozen=True, slots=True)
class Check:
    """name: what was checked. remedy: "" if there is nothing to do.

    warn: Tidegate works, but not as well as it could. fail: a part of the configuration does not work.
    """

    name: str
    status: Literal["ok", "warn", "fail"]
    result: str
    remedy: str = ""

    def to_document(self) -> dict[str, str]:
        return asdict(self)


def ok(name: str, result: str) -> Check:
    return Check(name, "ok", result)


def warn(name: str, result: str, remedy: str) -> Check:
    return Check(name, "warn", result, remedy)


def fail(name: str, result: str, remedy: str) -> Check:
    return Check(name, "fail", result, remedy)


def check_clock(of: str, date: str | None, sent_at: float, received_at: float) -> Check:
    """of: the other side. date: its `Date` header. sent_at, received_at: POSIX seconds of this machine's clock."""
    name = f"clock of {of}"
    try:
        offset_s = clock_offset_s(date or "", sent_at, received_at)
    except ValueError:
        return ok(name, "unknown: no Date header")
    if abs(offset_s) <= MOST_CLOCK_OFFSET_S:
        return ok(name, "within 2 s of this machine's")
    side = "ahead of" if offset_s > 0.0 else "behind"
    remedy = "synchronize both by NTP: samples from there appear stale or in the future, and are rejected"
    return warn(name, f"at least {abs(offset_s):.1f} s {side} this machine's", remedy)


def clock_offset_s(date: str, sent_at: float, received_at: float) -> float:
    """The least that the other clock can be ahead (negative: behind), in seconds. Raises ValueError.

    HTTP dates are truncated to whole seconds, so the offset has bounds. Worked example: a request sent at 100.0 with a
    response at 100.4 that is dated 100 was written between 100 and 101 of the other clock: its offset is between -0.4
    and +1.0 s, which may be 0. If it is dated 110, the offset is at least 9.6 s.
    """
    written = parsedate_to_datetime(date).timestamp()
    least, most = written - received_at, written + 1.0 - sent_at
    return least if least > 0.0 else min(0.0, most)


def print_checks(checks: Sequence[Check], console: Console | None = None) -> None:
    out = terminal.console(console)
    table = Table(box=None, show_header=False, show_edge=False, pad_edge=False)
    table.add_column(no_wrap=True, min_width=4)
    table.add_column(overflow="fold")
    for check in checks:
        line = Text.assemble((f"{_plain(check.name)}: ", DIM), _plain(check.result))
        table.add_row(Text(check.status, _STYLES[check.status]), line)
        if check.remedy:
            table.add_row("", Text(f"-> {_plain(check.remedy)}", DIM))
    out.print(table)
    out.print()
    out.print(Text(verdict(checks)))


def verdict(checks: Sequence[Check]) -> str:
    counts = Counter[str](check.status for check in checks)
    names = {"fail": "failure", "warn": "warning"}
    parts = [f"{counts[key]} {name}{'' if counts[key] == 1 else 's'}" for key, name in names.items() if counts[key]]
    return f"{' and '.join(parts)}." if parts else f"All {len(checks)} checks passed."


def _plain(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)
