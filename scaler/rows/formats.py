"""Numbers as people read them. What is not known is said, and is never a 0.

The page has the same functions in its own language (`scaler/web/page/format.js`); a test compares the two in a browser.
Halves are rounded up in both, because the two languages' own rounding differs there.

Worked example: `count(2.54)` is "2.5", `ratio(0.004)` is "<1 %", `span(200)` is "3 min", `count(None)` is "unknown".
"""

from __future__ import annotations

from math import floor

UNKNOWN = "unknown"
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_WHOLE_FROM = 100.0  # a tenth of a request among a hundred says nothing


def count(value: float | None) -> str:
    """Requests or replicas: whole, or with one decimal while that matters. Some is not none."""
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
    """0..1 as a percentage. Some activity is not none."""
    if value is None:
        return UNKNOWN
    percent = floor(value * 100.0 + 0.5)
    return "<1 %" if value > 0.0 and percent == 0 else f"{percent} %"


def span(seconds: float | None) -> str:
    """A length of time, to two figures or so."""
    if seconds is None:
        return UNKNOWN
    seconds = max(0.0, seconds)
    if seconds < _MINUTE:
        return f"{floor(seconds)} s"
    if seconds < _HOUR:
        return f"{floor(seconds / _MINUTE)} min"
    if seconds < 2.0 * _DAY:
        minutes = floor(seconds % _HOUR / _MINUTE)
        return f"{floor(seconds / _HOUR)} h {minutes:02d}"
    return f"{floor(seconds / _DAY)} d"


def shift(cluster: float | None, told: float | None) -> str:
    """Replicas: what the cluster was told to run, and what it is told now where that differs."""
    if cluster is None or cluster == told:
        return count(told)
    return f"{count(cluster)} → {count(told)}"


def age(measured_at: float | None, held_since: float | None, now: float) -> str:
    """How old what an answer rests on is; of a held one, since when it is held. All in POSIX seconds."""
    if held_since is not None:
        return f"held {span(now - held_since)}"
    return UNKNOWN if measured_at is None else span(now - measured_at)
