"""A moment that nobody can mistake: text -> POSIX seconds, and back.

A moment names its day, its time and whose clock is meant. A duration is refused: where it is written there is nothing
it could begin at, so that after a restart, or on another replica, it would end at another time.

Worked example: `moment("2026-11-23T08:00+01:00")` and `moment("2026-11-23T08:00 Europe/Berlin")` are both 1795417200.0;
`moment("2h")` is refused with the command that prints the moment two hours from now.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from zoneinfo import ZoneInfo

_MOMENT = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2})(:\d{2})?\s*([Zz]|[+-]\d{2}:?\d{2}|[A-Za-z][A-Za-z0-9_+/-]{1,60})?"
)
_DURATION = re.compile(r"(?:for\s+)?\d+(?:\.\d+)?\s*(?:ms|s|m|h|d|min|minutes?|hours?|days?)(?:\d.*)?")
WANTED = "must be a moment such as 2026-11-23T08:00Z, 2026-11-23T08:00+01:00 or 2026-11-23T08:00 Europe/Berlin"
EARLIEST_YEAR, LATEST_YEAR = 2000, 2100  # anything else is a slip of the pen
NO_DURATION = (
    "a duration says no beginning; `date -u -d '+2 hours' +%Y-%m-%dT%H:%MZ` prints the moment two hours from now"
)


class BadOrder(ValueError):  # noqa: N818  named for whose fault it is
    """An order that cannot be read: a sentence that says what would be right."""


def moment(text: str) -> float:
    """POSIX seconds. Raises BadOrder. Of an hour that comes twice the second is meant: a brake ends late, not early."""
    stripped = text.strip()
    if is_duration(stripped):
        raise BadOrder(f"{WANTED}: {NO_DURATION}")
    match = _MOMENT.fullmatch(stripped)
    if match is None:
        raise BadOrder(WANTED)
    day, minute, second, whose = match.groups()
    if whose is None:
        raise BadOrder(f"{WANTED}: it does not say whose clock is meant; add Z, an offset or a time zone")
    try:
        local, clock = datetime.fromisoformat(f"{day}T{minute}{second or ''}"), _clock(whose)
    except BadOrder:
        raise BadOrder(f"{WANTED}: {whose} is no time zone of the IANA database") from None
    except ValueError:  # a 30 February, a 25th hour, an offset of 99 hours
        raise BadOrder(f"{WANTED}: that one does not exist") from None
    if not EARLIEST_YEAR <= local.year <= LATEST_YEAR:
        raise BadOrder(f"{WANTED}: a year from {EARLIEST_YEAR} to {LATEST_YEAR}")
    # Where the clocks change there are two readings: of an hour that is skipped too.
    return max(local.replace(tzinfo=clock, fold=fold).timestamp() for fold in (0, 1))


def is_duration(text: str) -> bool:
    """As people type one: "2h", "for 30 minutes"."""
    return _DURATION.fullmatch(text.strip().lower()) is not None


def written(at: float, zone: str = "UTC") -> str:
    """To the minute, by the clock of `zone`: "2026-11-23T08:00+01:00", in UTC "2026-11-23T08:00Z"."""
    local = datetime.fromtimestamp(at, UTC if zone == "UTC" else zone_of(zone))
    # Rounded up: what is shown as the end is never before it.
    if local.second or local.microsecond:
        local = local.replace(second=0, microsecond=0) + timedelta(minutes=1)
    return local.strftime("%Y-%m-%dT%H:%MZ") if zone == "UTC" else local.isoformat(timespec="minutes")


@cache
def zone_of(name: str) -> ZoneInfo:
    """Raises BadOrder for a name that the time zone database does not have."""
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_+/-]{0,60}", name):
        try:
            return ZoneInfo(name)
        except (KeyError, OSError, ValueError):  # ZoneInfoNotFoundError is a KeyError; a folder is an OSError
            pass
    raise BadOrder("must be a time zone of the IANA database such as Europe/Berlin or UTC")


def _clock(whose: str) -> timezone | ZoneInfo:
    if whose in "Zz":
        return UTC
    if whose[0] in "+-":
        sign = -1 if whose[0] == "-" else 1
        return timezone(sign * timedelta(hours=int(whose[1:3]), minutes=int(whose[-2:])))
    return zone_of(whose)
