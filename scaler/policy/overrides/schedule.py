"""Reads schedules: at which hours a workload has a floor, a ceiling, or both.

A window begins when `start` fires and ends when `end` fires next, or after a duration. Its floor is needed when it
begins, so it holds a lead earlier: as long as a cold start takes, estimated (`auto`) or configured. A ceiling holds
only inside the window. Triggers and annotations have a line of text for each schedule, with ";" between.

The five cron fields are those of Debian's cron, also when the clocks change (https://manpages.debian.org/cron.8): what
was due in the hour that is skipped fires as soon as it is over; what is due in the hour that comes twice fires once, in
the first. Times with a `*` for minute or hour follow the clock as it is. CronSim computes them.

Worked example: `read_schedules("0 8 * * 1-5 for 10h in Europe/Berlin floor 2", duration)` is one schedule; with a cold
start of six minutes its floor of 2 holds from 07:54 to 18:00, from Monday to Friday, in summer and in winter.
`next_after(Cron("30 2 * * *", "Europe/Berlin"), …)` on the evening before 29 March 2026 is 03:00 CEST, the moment
after 01:59 CET.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from cronsim import CronSim, CronSimError

from .brake import MOST_REPLICAS, OverrideError, written, zone_of

AUTO: Literal["auto"] = "auto"
Prewarm: TypeAlias = float | Literal["auto"]

# Until a cold start has been measured: large models take minutes, and a floor a few minutes early costs little.
UNLEARNED_LEAD_S = 300.0
LONGEST_LEAD_S = 3600.0  # what takes longer is no cold start
MOST_SCHEDULES = 32
FIELDS = 5
SHORTEST_WINDOW_S = 60.0  # cron's own step
EXAMPLE = "0 8 * * 1-5 for 10h in Europe/Berlin floor 2"
_WANTED = (
    "must be five cron fields, `for` and a duration or `until` and five cron fields, `in` and a time zone, then "
    f"floor N, ceiling N, prewarm auto or a duration, such as `{EXAMPLE}`; `;` stands between several"
)
_CRON_WANTED = "must be five cron fields, minute hour day month weekday, such as `0 8 * * 1-5`"
_LINE = re.compile(
    r"(?P<start>\S+(?:\s+\S+){4})\s+(?:for\s+(?P<duration>\S+)|until\s+(?P<end>\S+(?:\s+\S+){4}))"
    r"(?:\s+in\s+(?P<zone>\S+))?(?P<rest>(?:\s+(?:floor|ceiling|prewarm)\s+\S+)*)"
)
# CronSim computes local times and drops which of two equal hours is meant: backwards from the second of them it would
# miss what fired in the first. Clocks change by an hour at most, so a later start misses nothing.
_CHANGE_S = 7200.0


class Cron(NamedTuple):
    """text: five fields. zone: a name of the IANA database. As from `read_cron` and `read_zone`."""

    text: str
    zone: str


class Span(NamedTuple):
    """A window, POSIX seconds: from `start`, and no longer at `end`."""

    start: float
    end: float


class Times(NamedTuple):
    """When windows are. end: a cron, or seconds after the start; both crons by one clock."""

    start: Cron
    end: Cron | float

    def at(self, now: float) -> Span | None:
        """The window that is open at `now`, else the next one; None if there is none in fifty years.

        Windows that overlap are returned one after the other.
        """
        last = last_until(self.start, now)
        if last is not None and now < (end := self._end_of(last)):
            return Span(last, end)
        coming = next_after(self.start, now)
        return None if coming is None else Span(coming, self._end_of(coming))

    def _end_of(self, start: float) -> float:
        if isinstance(self.end, float):
            return start + self.end
        end = next_after(self.end, start)
        return math.inf if end is None else end


@dataclass(frozen=True, slots=True)
class ReplicaSchedule:
    """A floor, a ceiling, or both, in windows.

    floor, ceiling: replicas; None is none. At least one is set.
    prewarm: seconds by which the floor holds before the window, or AUTO.
    """

    times: Times
    floor: int | None = None
    ceiling: int | None = None
    prewarm: Prewarm = AUTO

    @property
    def bounds(self) -> str:
        """As in "floor 2, ceiling 6"."""
        bounds = (("floor", self.floor), ("ceiling", self.ceiling))
        return ", ".join(f"{name} {count}" for name, count in bounds if count)

    def window(self, span: Span) -> str:
        """Its bounds and one of its windows, in its time zone."""
        zone = self.times.start.zone
        until = f" until {written(span.end, zone)}" if math.isfinite(span.end) else ""
        return f"{self.bounds} from {written(span.start, zone)}{until} ({self.times.start.text} in {zone})"

    def said_at(self, now: float) -> str:
        """The window that is open at `now`, else the next one, without its lead."""
        span = self.times.at(now)
        if span is None:
            return f"never: {self.bounds} ({self.times.start.text} in {self.times.start.zone})"
        return f"{'now' if span.start <= now else 'next'}: {self.window(span)}"


def read_schedules(text: str, duration: Callable[[str], float]) -> tuple[ReplicaSchedule, ...]:
    """Reads lines with ";" between. Raises BadOrder. duration: "10h" -> seconds; it may raise BadOrder too."""
    lines = [line for line in text.split(";") if line.strip()]
    if not lines or len(lines) > MOST_SCHEDULES:
        raise OverrideError(_WANTED if not lines else f"must be at most {MOST_SCHEDULES} schedules")
    return tuple(_read(line, duration) for line in lines)


def _read(line: str, duration: Callable[[str], float]) -> ReplicaSchedule:
    match = _LINE.fullmatch(line.strip())
    if match is None:
        raise OverrideError(_WANTED)
    zone = read_zone(match["zone"] or "UTC")
    options = match["rest"].split()
    values = dict(zip(options[::2], options[1::2], strict=True))
    if len(values) * 2 != len(options):
        raise OverrideError(f"{_WANTED}: each word once")
    prewarm = values.get("prewarm", AUTO)
    schedule = ReplicaSchedule(
        times_of(match["start"], match["end"], duration(match["duration"]) if match["duration"] else None, zone),
        floor=_count("floor", values.get("floor")),
        ceiling=_count("ceiling", values.get("ceiling")),
        prewarm=AUTO if prewarm == AUTO else duration(prewarm),
    )
    check(schedule)
    return schedule


def times_of(start: str, end: str | None, duration_s: float | None, zone: str) -> Times:
    """Raises BadOrder. One of `end` and `duration_s` is given."""
    until = Cron(read_cron(end), zone) if end is not None else duration_s
    if until is None or (end is not None and duration_s is not None):
        raise OverrideError("must have an end or a duration, and not both")
    if isinstance(until, float) and until < SHORTEST_WINDOW_S:
        raise OverrideError("must last at least 1m")
    return Times(Cron(read_cron(start), zone), until)


def check(schedule: ReplicaSchedule) -> None:
    """Raises BadOrder if the bounds contradict each other, or there is none."""
    if schedule.floor is None and schedule.ceiling is None:
        raise OverrideError("must have a floor or a ceiling: else it orders nothing")
    if schedule.floor is not None and schedule.ceiling is not None and schedule.floor > schedule.ceiling:
        raise OverrideError(f"must have a floor of at most its ceiling ({schedule.ceiling})")


def _count(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch("[0-9]{1,5}", text) or not 1 <= int(text) <= MOST_REPLICAS:
        raise OverrideError(f"must have a {name} from 1 to {MOST_REPLICAS}")
    return int(text)


def read_cron(text: str) -> str:
    """The fields with single blanks. Raises BadOrder, also for those that never fire."""
    fields = text.split()
    if len(fields) != FIELDS:
        raise OverrideError(_CRON_WANTED)
    try:
        if next(CronSim(" ".join(fields), datetime(2026, 1, 1)), None) is None:  # noqa: DTZ001  wall clock
            raise OverrideError(f"{_CRON_WANTED}: this one never fires")
    except CronSimError as bad:
        what = str(bad)[:1].lower() + str(bad)[1:]
        raise OverrideError(f"{_CRON_WANTED}: {what}, or no such day in these months") from None
    return " ".join(fields)


def read_zone(name: str) -> str:
    """The name. Raises BadOrder if there is no such zone."""
    zone_of(name)
    return name


def next_after(cron: Cron, now: float) -> float | None:
    """POSIX seconds of the first firing after `now`; None if there is none in fifty years."""
    return next((at for at in _firings(cron, now, reverse=False) if at > now), None)


def last_until(cron: Cron, now: float) -> float | None:
    """POSIX seconds of the last firing at or before `now`; None if there is none in fifty years."""
    return next((at for at in _firings(cron, now + _CHANGE_S, reverse=True) if at <= now), None)


def _firings(cron: Cron, begin: float, *, reverse: bool) -> Iterator[float]:
    local = datetime.fromtimestamp(begin, zone_of(cron.zone)).replace(microsecond=0)
    return (at.timestamp() for at in CronSim(cron.text, local, reverse=reverse))
