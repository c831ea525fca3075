"""Reads a brake: one line of text by which a person keeps a workload, or the whole fleet, from moving.

    freeze                                              keep the replicas there are, whatever comes
    never_down until 2026-11-23T08:00Z                  up is allowed, down is not
    floor 4 until 2026-11-23T08:00Z because of the sale at least four

The same line is read in an annotation and in a configuration. A line that cannot be read counts as `never_down` until
it is corrected, because its author wanted the workload left alone. That keeps what there is, and unlike a freeze it
cannot keep a sleeping workload asleep by a typing error.

A moment has its day, its time and its time zone. A duration is rejected: it has no beginning, so after a restart, or on
another replica, it would end at another time.

Worked example: `read_brake("Freeze until 2026-11-23T08:00Z because of the sale", "configuration")` is
`Brake(BrakeWord.FREEZE, until=1795420800.0, because="of the sale", source="configuration")`.
`moment("2026-11-23T08:00+01:00")` and `moment("2026-11-23T08:00 Europe/Berlin")` are both 1795417200.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from functools import cache
from zoneinfo import ZoneInfo

EXAMPLE = "freeze until 2026-11-23T08:00Z because of the sale"
LONGEST_REASON = 200
LONGEST_LINE = 512  # the reason, and four times what a brake and its moment take
MOST_REPLICAS = 10_000  # as of a workload's bounds
EARLIEST_YEAR, LATEST_YEAR = 2000, 2100  # anything else is a typing error
WANTED = "must be a moment such as 2026-11-23T08:00Z, 2026-11-23T08:00+01:00 or 2026-11-23T08:00 Europe/Berlin"
NO_DURATION = (
    "a duration says no beginning; `date -u -d '+2 hours' +%Y-%m-%dT%H:%MZ` prints the moment two hours from now"
)
_BRAKE_WANTED = f"must be freeze, never_down or floor N, then `until` and a moment, such as `{EXAMPLE}`"
_BRAKE = re.compile(r"(?P<word>[a-z]+(?:[ _-]down)?)(?:\s+(?P<count>[0-9]{1,9}))?", re.IGNORECASE)
_UNTIL = re.compile(r"\suntil\s", re.IGNORECASE)
_BECAUSE = re.compile(r"\sbecause\s", re.IGNORECASE)
_MOMENT = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2})(:\d{2})?\s*([Zz]|[+-]\d{2}:?\d{2}|[A-Za-z][A-Za-z0-9_+/-]{1,60})?"
)
_DURATION = re.compile(r"(?:for\s+)?\d+(?:\.\d+)?\s*(?:ms|s|m|h|d|min|minutes?|hours?|days?)(?:\d.*)?")


class OverrideError(ValueError):
    """An override that cannot be read. The message says what would be right."""


class BrakeWord(StrEnum):
    """The most careful first."""

    FREEZE = "freeze"
    NEVER_DOWN = "never_down"
    FLOOR = "floor"


@dataclass(frozen=True, slots=True)
class Brake:
    """One brake.

    floor:   replicas, with FLOOR; else 0.
    until:   POSIX seconds; None: until a person removes it.
    because: the text after that word; "" if there is none.
    source:  where it comes from: "ai/Deployment/chat", "configuration".
    unread:  it replaces a line that could not be read.
    """

    word: BrakeWord
    floor: int = 0
    until: float | None = None
    because: str = ""
    source: str = ""
    unread: bool = False

    def holds(self, now: float) -> bool:
        """Whether it is active. One that ends at a moment no longer holds at it."""
        return self.until is None or now < self.until

    @property
    def action(self) -> str:
        """As in "freeze", "floor 4"."""
        return f"{self.word} {self.floor}" if self.word is BrakeWord.FLOOR else str(self.word)

    def __str__(self) -> str:
        """The line, and its source."""
        if self.unread:
            return f"{self.action} in place of a brake that cannot be read ({self.source})"
        return self.typed() + (f" ({self.source})" if self.source else "")

    def typed(self) -> str:
        """The line that `read_brake` reads back."""
        until = "" if self.until is None else f" until {written(self.until)}"
        return f"{self.action}{until}" + (f" because {self.because}" if self.because else "")


def read_brake(text: str, source: str = "") -> Brake:
    """Raises BadOrder with what would be right. Takes linear time, because any tenant can write the text."""
    if len(text) > LONGEST_LINE:
        raise OverrideError(f"must be at most {LONGEST_LINE} characters long, and has {len(text)}")
    rest, because = _cut(text.strip(), _BECAUSE)
    brake, until = _cut(rest, _UNTIL)
    match = _BRAKE.fullmatch(brake)
    if match is None:
        raise OverrideError(_explained(text))
    word, count = re.sub(r"[ -]", "_", match["word"].lower()), match["count"]
    if word not in set(BrakeWord) or (count is not None) != (word == BrakeWord.FLOOR):
        raise OverrideError(_explained(text))
    floor = int(count or 0)
    if word == BrakeWord.FLOOR and not 1 <= floor <= MOST_REPLICAS:
        raise OverrideError(f"must have a floor from 1 to {MOST_REPLICAS}")
    reason = because or ""
    if len(reason) > LONGEST_REASON or not reason.isprintable():
        raise OverrideError(f"must have a reason of at most {LONGEST_REASON} characters on one line")
    return Brake(BrakeWord(word), floor, None if until is None else moment(until), reason, source)


def unreadable(source: str) -> Brake:
    """The brake that replaces a line that cannot be read."""
    return Brake(BrakeWord.NEVER_DOWN, source=source, unread=True)


def moment(text: str) -> float:
    """POSIX seconds. Raises BadOrder. Of an hour that comes twice it is the second: a brake ends late, not early."""
    stripped = text.strip()
    if is_duration(stripped):
        raise OverrideError(f"{WANTED}: {NO_DURATION}")
    match = _MOMENT.fullmatch(stripped)
    if match is None:
        raise OverrideError(WANTED)
    day, minute, second, zone = match.groups()
    if zone is None:
        raise OverrideError(f"{WANTED}: it does not say whose clock is meant; add Z, an offset or a time zone")
    try:
        local, clock = datetime.fromisoformat(f"{day}T{minute}{second or ''}"), _clock(zone)
    except OverrideError:
        raise OverrideError(f"{WANTED}: {zone} is no time zone of the IANA database") from None
    except ValueError:  # a 30 February, a 25th hour, an offset of 99 hours
        raise OverrideError(f"{WANTED}: that one does not exist") from None
    if not EARLIEST_YEAR <= local.year <= LATEST_YEAR:
        raise OverrideError(f"{WANTED}: a year from {EARLIEST_YEAR} to {LATEST_YEAR}")
    # When the clocks change there are two readings: of an hour that is skipped too.
    return max(local.replace(tzinfo=clock, fold=fold).timestamp() for fold in (0, 1))


def is_duration(text: str) -> bool:
    """Whether a text is a duration, such as "2h" or "for 30 minutes"."""
    return _DURATION.fullmatch(text.strip().lower()) is not None


def written(at: float, zone: str = "UTC") -> str:
    """To the minute, in a time zone: "2026-11-23T08:00+01:00", in UTC "2026-11-23T08:00Z"."""
    local = datetime.fromtimestamp(at, UTC if zone == "UTC" else zone_of(zone))
    # Rounded up: an end is never shown too early.
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
    raise OverrideError("must be a time zone of the IANA database such as Europe/Berlin or UTC")


def _clock(zone: str) -> timezone | ZoneInfo:
    if zone in "Zz":
        return UTC
    if zone[0] in "+-":
        sign = -1 if zone[0] == "-" else 1
        return timezone(sign * timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:])))
    return zone_of(zone)


def _cut(text: str, word: re.Pattern[str]) -> tuple[str, str | None]:
    """The text before the first `word` and the text after it, None without that word; both stripped."""
    found = word.search(text)
    return (text, None) if found is None else (text[: found.start()].rstrip(), text[found.end() :].lstrip())


def _explained(text: str) -> str:
    """The error, with the likely mistake: a duration is what most people type first."""
    rest = re.sub(r"(?i)^\s*(?:freeze|never[ _-]down|floor\s+\d+)\s*", "", text)
    if rest == text or not rest:
        return _BRAKE_WANTED
    if is_duration(rest):
        return f"{_BRAKE_WANTED}; {NO_DURATION}"
    try:
        moment(rest)
    except OverrideError:
        return _BRAKE_WANTED
    return f"{_BRAKE_WANTED}: the word `until` is missing"
