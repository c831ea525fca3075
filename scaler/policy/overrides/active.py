"""What of all orders stands at a moment, by column: one slot per workload.

Between two edges (a window that opens or closes, a brake that ends, a floor whose lead begins) nothing changes, so
nothing is reckoned: `at` compares two numbers and returns the columns it returned before. Learned leads move slowly and
are looked at once a minute.

What wins: of several brakes a freeze; else `never_down` and the highest floor hold together. Of several schedules the
highest floor and the lowest ceiling. A floor, a brake's or a schedule's, wins over a ceiling: what people promised
users over what they wished to spare. Bounds of the workload (its maximum) win over all of them, in the policy.

Worked example: with the schedules `floor 2` and `ceiling 6`, both open, and the brake `floor 8` of the fleet, a
workload's columns are floor 8 (reason: the brake's), ceiling 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .brake import Brake, BrakeWord
from .schedule import AUTO, LONGEST_LEAD_S, UNLEARNED_LEAD_S, ReplicaSchedule, Span, Times

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

NOBODY = -1  # `floor_reason` where no order sets a floor
LOOK_AT_LEADS_S = 60.0


class ReasonCodes(NamedTuple):
    """What `floor_reason` says of a schedule's floor and of a brake's: the policy's codes of its reasons."""

    scheduled: int
    frozen: int


class WorkloadOverrides(NamedTuple):
    """What is ordered of one workload, beside what is ordered of all."""

    brakes: tuple[Brake, ...] = ()
    schedules: tuple[ReplicaSchedule, ...] = ()


class OverrideColumns(NamedTuple):
    """Each of shape (workloads,).

    floor:        at least so many replicas; 0: no order says so.
    floor_reason: a code of `Codes`; NOBODY where there is no floor.
    ceiling:      at most so many, never below `floor`; inf: no order says so.
    frozen:       neither up nor down.
    never_down:   up only.
    """

    floor: Floats
    floor_reason: Ints
    ceiling: Floats
    frozen: Bools
    never_down: Bools

    @classmethod
    def blank(cls, rows: int) -> OverrideColumns:
        return cls(
            floor=np.zeros(rows),
            floor_reason=np.full(rows, NOBODY, dtype=np.int64),
            ceiling=np.full(rows, np.inf),
            frozen=np.zeros(rows, dtype=np.bool_),
            never_down=np.zeros(rows, dtype=np.bool_),
        )


class BrakeEnded(NamedTuple):
    """A brake whose time is over. row: whose; None: everybody's."""

    row: int | None
    brake: Brake


class OverrideChanges(NamedTuple):
    """What has happened since it was asked last. rows: those of which other orders hold than before."""

    rows: Ints
    ended: tuple[BrakeEnded, ...]


class ActiveOverride(NamedTuple):
    """What decides a workload now, for people; None: no order of that kind.

    brake_until: POSIX seconds; None also for one without an end.
    """

    brake: str | None = None
    brake_until: float | None = None
    schedule: str | None = None
    schedule_floor: int | None = None
    schedule_ceiling: int | None = None


class Overrides:
    """The orders of a fixed list of workloads.

    fleet: brakes for all of them.
    told_until, since: POSIX seconds; a brake that ended before has been spoken of already.
    """

    def __init__(
        self,
        ordered: Sequence[WorkloadOverrides],
        codes: ReasonCodes,
        *,
        fleet: Iterable[Brake] = (),
        since: float | None = None,
    ) -> None:
        self._ordered, self._codes, self._fleet = tuple(ordered), codes, tuple(fleet)
        self._columns = OverrideColumns.blank(len(self._ordered))
        # Where nothing is ordered there is nothing to show at first.
        self._moved = np.array([any((*each, self._fleet)) for each in self._ordered], dtype=np.bool_)
        self._ended: list[BrakeEnded] = []
        self.told_until = since
        self._at, self._next = math.inf, -math.inf
        everyone = [(row, brake) for row, each in enumerate(self._ordered) for brake in each.brakes]
        self._brakes = [*((None, brake) for brake in self._fleet), *everyone]
        every = [(row, schedule) for row, each in enumerate(self._ordered) for schedule in each.schedules]
        self._rows = np.array([row for row, _ in every], dtype=np.int64)
        self._times = [schedule.times for _, schedule in every]
        self._floors = np.array([schedule.floor or 0 for _, schedule in every], dtype=float)
        self._ceilings = np.array([schedule.ceiling or np.inf for _, schedule in every], dtype=float)
        self._prewarm = np.array(
            [np.nan if schedule.prewarm == AUTO else schedule.prewarm for _, schedule in every], dtype=float
        )
        self._starts, self._ends = np.full(len(every), np.nan), np.full(len(every), -np.inf)
        self._lead = self._prewarm

    def at(self, now: float, lead_s: Floats) -> OverrideColumns:
        """What stands at `now`. lead_s: how long a workload's cold start takes, seconds, shape (workloads,); NaN: it
        has not been learned.
        """
        if not self._at <= now < self._next:  # also where the clock was set back
            self._reckon(now, lead_s)
        return self._columns

    def news(self) -> OverrideChanges:
        """What is to be shown again and what is to be said once. It is spoken of here only."""
        news = OverrideChanges(np.flatnonzero(self._moved), tuple(self._ended))
        self._moved[:] = False
        self._ended = []
        return news

    def said(self, row: int, now: float) -> ActiveOverride:
        """Of a moment that `at` was asked about."""
        brakes = [brake for brake in (*self._fleet, *self._ordered[row].brakes) if brake.holds(now)]
        brake = min(brakes, key=_care, default=None)
        others = f", and {len(brakes) - 1} more" if len(brakes) > 1 else ""
        first, last = np.searchsorted(self._rows, (row, row + 1))
        floor, ceiling = self._scheduled(slice(first, last), now)
        words = [
            schedule.said(Span(self._starts[first + place], self._ends[first + place]))
            for place, schedule in enumerate(self._ordered[row].schedules)
            if (schedule.floor is not None and floor[place]) or (schedule.ceiling is not None and ceiling[place])
        ]
        floors, ceilings = self._floors[first:last][floor], self._ceilings[first:last][ceiling]
        return ActiveOverride(
            brake=None if brake is None else f"{brake}{others}",
            brake_until=None if brake is None else brake.until,
            schedule="; ".join(words) or None,
            schedule_floor=int(floors.max()) if floors.any() else None,
            schedule_ceiling=int(lowest) if math.isfinite(lowest := ceilings.min(initial=math.inf)) else None,
        )

    def _reckon(self, now: float, lead_s: Floats) -> None:
        back = now < self._at < math.inf  # the clock was set back: windows that were over may be open again
        self._roll(now, every=back)
        self._lead = self._leads(lead_s)
        columns = OverrideColumns.blank(len(self._ordered))
        self._schedule(columns, now)
        self._brake(columns, now)
        np.maximum(columns.ceiling, columns.floor, out=columns.ceiling)
        for before, after in zip(self._columns, columns, strict=True):
            self._moved |= before != after
        self._tell_ends(now)
        self._columns, self._at, self._next = columns, now, self._edge(now)

    def _roll(self, now: float, *, every: bool) -> None:
        """Windows that are over make place for the next. Words that many workloads share are reckoned once."""
        spans: dict[Times, Span | None] = {}
        for place in np.flatnonzero((self._ends <= now) | every):
            times = self._times[place]
            if times not in spans:
                spans[times] = times.at(now)
            span = spans[times] or Span(math.inf, math.inf)
            self._starts[place], self._ends[place] = span
            self._moved[self._rows[place]] = True

    def _leads(self, lead_s: Floats) -> Floats:
        learned = np.nan_to_num(lead_s[self._rows], nan=UNLEARNED_LEAD_S).clip(0.0, LONGEST_LEAD_S)
        return np.where(np.isnan(self._prewarm), learned, self._prewarm)

    def _scheduled(self, places: slice, now: float) -> tuple[Bools, Bools]:
        """Whose floor and whose ceiling holds: a mask of the schedules at `places` each."""
        starts = self._starts[places]
        return now >= starts - self._lead[places], now >= starts

    def _schedule(self, columns: OverrideColumns, now: float) -> None:
        floor, ceiling = self._scheduled(slice(None), now)
        np.maximum.at(columns.floor, self._rows[floor], self._floors[floor])
        np.minimum.at(columns.ceiling, self._rows[ceiling], self._ceilings[ceiling])
        columns.floor_reason[columns.floor > 0] = self._codes.scheduled

    def _brake(self, columns: OverrideColumns, now: float) -> None:
        for row, brake in self._brakes:
            if not brake.holds(now):
                continue
            rows: int | slice = slice(None) if row is None else row
            match brake.word:
                case BrakeWord.FREEZE:
                    columns.frozen[rows] = True
                case BrakeWord.NEVER_DOWN:
                    columns.never_down[rows] = True
                case BrakeWord.FLOOR:
                    decides = brake.floor >= columns.floor[rows]
                    columns.floor_reason[rows] = np.where(decides, self._codes.frozen, columns.floor_reason[rows])
                    columns.floor[rows] = np.maximum(columns.floor[rows], brake.floor)

    def _tell_ends(self, now: float) -> None:
        since, self.told_until = now if self.told_until is None else self.told_until, now
        for row, brake in self._brakes:
            if brake.until is not None and since < brake.until <= now:
                self._ended.append(BrakeEnded(row, brake))
                self._moved[slice(None) if row is None else row] = True

    def _edge(self, now: float) -> float:
        """When something changes next."""
        begin = self._starts - self._lead
        edges = [self._starts[self._starts > now], self._ends, begin[begin > now]]
        soonest = min((float(edge.min()) for edge in edges if len(edge)), default=math.inf)
        if bool(((begin > now) & np.isnan(self._prewarm)).any()):
            soonest = min(soonest, now + LOOK_AT_LEADS_S)
        ends = (brake.until for _, brake in self._brakes if brake.until is not None and brake.until > now)
        return min(soonest, min(ends, default=math.inf))


def _care(brake: Brake) -> tuple[int, float, float]:
    """The most careful first; of two of a kind the higher, then the one that ends last."""
    until = math.inf if brake.until is None else brake.until
    return list(BrakeWord).index(brake.word), -brake.floor, -until
