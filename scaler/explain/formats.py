"""Writes numbers and times for people: exact ones for explanations, short ones for tables. Unknown is never a 0. Pure.

The live page has the short ones in its own language (`scaler/api/http/page/format.js`); a test compares the two in a
browser. Halves are rounded up in both, because the rounding of the two languages differs there.

Worked example: exact, `number(0.125)` is "0.125" and `lasting(305)` is "5 min 5 s"; short, `count(2.54)` is "2.5",
`ratio(0.004)` is "<1 %", `span(200)` is "3 min" and `count(None)` is "unknown".
"""

from __future__ import annotations

from datetime import UTC, datetime
from math import floor, isfinite, isnan

UNKNOWN = "unknown"
MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0
_LAST = 253402300799.0  # 9999-12-31 23:59:59Z; some configure a keep-warm time of a million years for "never"
_WHOLE_FROM = 100.0  # from here on tenths of a request do not matter


def number(value: float) -> str:
    """Exact: 40, 2.5, 0.125; – if unknown (NaN)."""
    if isnan(value):
        return "–"
    if not isfinite(value):
        return "unlimited"
    places = 2 if abs(value) >= 1.0 else 3
    return f"{value:.{places}f}".rstrip("0").rstrip(".") if value % 1.0 else f"{value:.0f}"


def counted(value: float, noun: str) -> str:
    """`counted(1, "replica")` is "1 replica"."""
    return f"{number(value)} {noun if value == 1.0 else noun + 's'}"


def clock(at: float) -> str:
    """POSIX seconds as 2026-11-22 10:36:13Z; – if unknown (NaN)."""
    if isnan(at):
        return "–"
    if at > _LAST:
        return "the year 10000 or later"
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%SZ}"


def lasting(seconds: float) -> str:
    """A duration: "4 s", "5 min", "1 h 20 min", "3 d"."""
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


def count(value: float | None) -> str:
    """Requests or replicas: whole, or with one decimal where that matters. More than 0 is never "0"."""
    if value is None:
        return UNKNOWN
    tenths = floor(abs(value) * 10.0 + 0.5)
    if value > 0.0 and tenths == 0:
        return "<0.1"
    sign = "-" if value < 0.0 and tenths else ""
    if abs(value) >= _WHOLE_FROM or tenths % 10 == 0:
        return f"{sign}{floor(abs(value) + 0.5):,}"
    return f"{sign}{tenths // 10}.{tenths % 10}"


def ratio(value: float | None) -> str:
    """0..1 as a percentage. More than 0 is never "0 %"."""
    if value is None:
        return UNKNOWN
    percent = floor(value * 100.0 + 0.5)
    return "<1 %" if value > 0.0 and percent == 0 else f"{percent} %"


def span(seconds: float | None) -> str:
    """A duration, to about two figures."""
    if seconds is None:
        return UNKNOWN
    seconds = max(0.0, seconds)
    if seconds < MINUTE_S:
        return f"{floor(seconds)} s"
    if seconds < HOUR_S:
        return f"{floor(seconds / MINUTE_S)} min"
    if seconds < 2.0 * DAY_S:
        minutes = floor(seconds % HOUR_S / MINUTE_S)
        return f"{floor(seconds / HOUR_S)} h {minutes:02d}"
    return f"{floor(seconds / DAY_S)} d"


def shift(cluster: float | None, published: float | None) -> str:
    """Replicas: spec.replicas of the cluster, and the published ones where they differ."""
    if cluster is None or cluster == published:
        return count(published)
    return f"{count(cluster)} → {count(published)}"


def age(measured_at: float | None, held_since: float | None, now: float) -> str:
    """The age of a decision's oldest reading; of a held decision, the time since it is held. All in POSIX seconds."""
    if held_since is not None:
        return f"held {span(now - held_since)}"
    return UNKNOWN if measured_at is None else span(now - measured_at)


def listed(names: tuple[str, ...], most: int) -> str:
    """The first names: a, b and 3 more."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
