"""Five cron fields and a time zone -> the moments at which they fire.

The fields are Debian cron's, and so is what happens when the clocks change (https://manpages.debian.org/cron.8): what
was due in the hour that is skipped fires as soon as it is over; what is due in the hour that comes twice fires once, in
the first. Times with a `*` for minute or hour follow the clock as it is. CronSim does the reckoning.

Worked example: `next_after(Cron("30 2 * * *", "Europe/Berlin"), …)` on the evening before 29 March 2026 is 03:00 CEST,
which is the moment after 01:59 CET.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from cronsim import CronSim, CronSimError

from .moment import BadOrder, zone_of

FIELDS = 5
# CronSim reckons on the wall's clock and leaves out which of two equal hours is meant: backwards from the second of
# them it would miss what fired in the first. Clocks change by an hour at most, so a later start misses nothing.
_CHANGE_S = 7200.0
WANTED = "must be five cron fields, minute hour day month weekday, such as `0 8 * * 1-5`"


class Cron(NamedTuple):
    """text: five fields. zone: a name of the IANA database. As from `read_cron` and `read_zone`."""

    text: str
    zone: str


def read_cron(text: str) -> str:
    """The fields, blanks made single. Raises BadOrder, also for those that never fire."""
    fields = text.split()
    if len(fields) != FIELDS:
        raise BadOrder(WANTED)
    try:
        if next(CronSim(" ".join(fields), datetime(2026, 1, 1)), None) is None:  # noqa: DTZ001  wall clock
            raise BadOrder(f"{WANTED}: this one never fires")
    except CronSimError as bad:
        what = str(bad)[:1].lower() + str(bad)[1:]
        raise BadOrder(f"{WANTED}: {what}, or no such day in these months") from None
    return " ".join(fields)


def read_zone(name: str) -> str:
    """Raises BadOrder."""
    zone_of(name)
    return name


def next_after(cron: Cron, now: float) -> float | None:
    """POSIX seconds of the first firing after `now`; None: not in fifty years."""
    return next((at for at in _firings(cron, now, reverse=False) if at > now), None)


def last_until(cron: Cron, now: float) -> float | None:
    """POSIX seconds of the last firing at or before `now`; None: not in fifty years."""
    return next((at for at in _firings(cron, now + _CHANGE_S, reverse=True) if at <= now), None)


def _firings(cron: Cron, begin: float, *, reverse: bool) -> Iterator[float]:
    local = datetime.fromtimestamp(begin, zone_of(cron.zone)).replace(microsecond=0)
    return (at.timestamp() for at in CronSim(cron.text, local, reverse=reverse))
