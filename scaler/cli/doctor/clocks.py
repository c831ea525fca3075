"""How far somebody's clock is from ours, by the `Date` of an answer. Pure.

HTTP writes whole seconds, cut off, and the answer was on its way for a while: so the difference is known within bounds,
and what is said is the least that it can be.

Worked example: an answer that was asked for at 100.0, came at 100.4 and says "100" was written between 100 and 101 of
that clock: its difference is between -0.4 and +1.0 s, which may be none. One that says "110" is at least 9.6 s ahead.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from .check import Check, ok, warn

# A reading is fresh for three intervals, 15 s as a rule: two seconds are no matter, and NTP keeps milliseconds.
MOST_S = 2.0


def ahead_s(date: str, asked_at: float, came_at: float) -> float:
    """The least that the other clock can be ahead of ours, seconds; below 0 it is behind. Raises ValueError.

    date: the header. asked_at, came_at: POSIX seconds of our clock.
    """
    written = parsedate_to_datetime(date).timestamp()
    least, most = written - came_at, written + 1.0 - asked_at
    return least if least > 0.0 else min(0.0, most)


def check(whose: str, date: str | None, asked_at: float, came_at: float) -> Check:
    name = f"clock of {whose}"
    try:
        ahead = ahead_s(date or "", asked_at, came_at)
    except ValueError:
        return ok(name, "not said")
    if abs(ahead) <= MOST_S:
        return ok(name, "the same as ours, within 2 s")
    which = "ahead of" if ahead > 0.0 else "behind"
    do = "set both by NTP: what is measured there seems old or of the future here, and is not believed"
    return warn(name, f"{abs(ahead):.1f} s {which} ours at least", do)
