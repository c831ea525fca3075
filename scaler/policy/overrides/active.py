"""Computes the active overrides of every workload at one moment, by column.

Between two edges (a window that opens or closes, a brake that ends, a floor whose lead begins) nothing changes, so
nothing is computed: `at` compares two numbers and returns the columns of the last call. Estimated leads change slowly
and are read once a minute.

Precedence: of several brakes a freeze; else `never_down` and the highest floor hold together. Of several schedules the
highest floor and the lowest ceiling. A floor, a brake's or a schedule's, wins over a ceiling: what users were promised
over what was to be saved. The bounds of the workload (its maximum) win over all of them, in the policy.

Worked example: with the schedules `floor 2` and `ceiling 6`, both open, and the brake `floor 8` of the fleet, a
workload's columns are floor 8 (reason: the brake's), ceiling 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from exporter.model import Floats

from ..columns import FROZEN, NO_REASON, SCHEDULED, Bools, Ints
from .brake import Brake, BrakeWord
from .schedule import AUTO, LONGEST_LEAD_S, UNLEARNED_LEAD_S, ReplicaSchedule, Span, Times

LEADS_INTERVAL_S = 60.0


class WorkloadOverrides(NamedTuple):
    """The overrides of one workload, beside those of the fleet."""

    brakes: tuple[Brake, ...] = ()
    schedules: tuple[ReplicaSchedule, ...] = ()


class OverrideColumns(NamedTuple):
    """Each of shape (workloads,).

    floor:        at least so many replicas; 0 is none.
    floor_reason: the code of its reason, `scheduled` or `frozen`; OWN without a floor.
    ceiling:      at most so many, never below `floor`; inf is none.
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
        """No overrides."""
        return cls(
            floor=np.zeros(rows),
            floor_reason=np.full(rows, NO_REASON, dtype=np.int64),
            ceiling=np.full(rows, np.inf),
            frozen=np.zeros(rows, dtype=np.bool_),
            never_down=np.zeros(rows, dtype=np.bool_),
        )


class BrakeEnded(NamedTuple):
    """A brake that has ended. row: its workload; None: the fleet."""

    row: int | None
    brake: Brake


class OverrideChanges(NamedTuple):
    """The changes since the last call. rows: workloads with other active overrides than before."""

    rows: Ints
    ended: tuple[BrakeEnded, ...]


class ActiveOverride(NamedTuple):
    """The overrides that decide a workload now, as text; None: no override of that kind.

    brake_until: POSIX seconds; None also without an end.
    """

    brake: str | None = None
    brake_until: float | None = None
    schedule: str | None = None
    schedule_floor: int | None = None
    schedule_ceiling: int | None = None


class Overrides:
    """The overrides of a fixed list of workloads.

    fleet: brakes of all of them.
    reported_until, since: POSIX seconds; the end of a brake before that has been reported.
    """

    def __init__(
        self, workloads: Sequence[WorkloadOverrides], *, fleet: Iterable[Brake] = (), since: float | None = None
    ) -> None:
        self._workloads, self._fleet = tuple(workloads), tuple(fleet)
        self._columns = OverrideColumns.blank(len(self._workloads))
        # A workload without overrides is no change at first.
        self._changed = np.array([any((*each, self._fleet)) for each in self._workloads], dtype=np.bool_)
        self._ended: list[BrakeEnded] = []
        self.reported_until = since
        self._at, self._next = math.inf, -math.inf
        brakes = [(row, brake) for row, each in enumerate(self._workloads) for brake in each.brakes]
        self._brakes = [*((None, brake) for brake in self._fleet), *brakes]
        every = [(row, schedule) for row, each in enumerate(self._workloads) for schedule in each.schedules]
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
        """The overrides at `now`. lead_s: how long a cold start takes, seconds, shape (workloads,); NaN unknown."""
        if not self._at <= now < self._next:  # also if the clock was set back
            self._compute(now, lead_s)
        return self._columns

    def news(self) -> OverrideChanges:
        """The changes since the last call of this method."""
        news = OverrideChanges(np.flatnonzero(self._changed), tuple(self._ended))
        self._changed[:] = False
        self._ended = []
        return news

    def active(self, row: int, now: float) -> ActiveOverride:
        """The active overrides of one workload, as text. `at` must have been called for `now`."""
        schedules = self._workloads[row].schedules
        brakes = [brake for brake in (*self._fleet, *self._workloads[row].brakes) if brake.holds(now)]
        if not brakes and not schedules:
            return ActiveOverride()
        brake = min(brakes, key=_care, default=None)
        more = f", and {len(brakes) - 1} more" if len(brakes) > 1 else ""
        first, last = np.searchsorted(self._rows, (row, row + 1))
        floor, ceiling = self._scheduled(slice(first, last), now)
        texts = [
            schedule.window(Span(self._starts[first + index], self._ends[first + index]))
            for index, schedule in enumerate(schedules)
            if (schedule.floor is not None and floor[index]) or (schedule.ceiling is not None and ceiling[index])
        ]
        floors, ceilings = self._floors[first:last][floor], self._ceilings[first:last][ceiling]
        return ActiveOverride(
            brake=None if brake is None else f"{brake}{more}",
            brake_until=None if brake is None else brake.until,
            schedule="; ".join(texts) or None,
            schedule_floor=int(floors.max()) if floors.any() else None,
            schedule_ceiling=int(lowest) if math.isfinite(lowest := ceilings.min(initial=math.inf)) else None,
        )

    def _compute(self, now: float, lead_s: Floats) -> None:
        back = now < self._at < math.inf  # the clock was set back: windows that were over may be open again
        self._roll(now, every=back)
        self._lead = self._leads(lead_s)
        columns = OverrideColumns.blank(len(self._workloads))
        self._apply_schedules(columns, now)
        self._apply_brakes(columns, now)
        np.maximum(columns.ceiling, columns.floor, out=columns.ceiling)
        for before, after in zip(self._columns, columns, strict=True):
            self._changed |= before != after
        self._report_ends(now)
        self._columns, self._at, self._next = columns, now, self._edge(now)

    def _roll(self, now: float, *, every: bool) -> None:
        """Replaces windows that are over by the next ones. Schedules that many workloads share are computed once."""
        spans: dict[Times, Span | None] = {}
        for index in np.flatnonzero((self._ends <= now) | every):
            times = self._times[index]
            if times not in spans:
                spans[times] = times.at(now)
            self._starts[index], self._ends[index] = spans[times] or Span(math.inf, math.inf)
            self._changed[self._rows[index]] = True

    def _leads(self, lead_s: Floats) -> Floats:
        estimated = np.nan_to_num(lead_s[self._rows], nan=UNLEARNED_LEAD_S).clip(0.0, LONGEST_LEAD_S)
        return np.where(np.isnan(self._prewarm), estimated, self._prewarm)

    def _scheduled(self, schedules: slice, now: float) -> tuple[Bools, Bools]:
        """Which floors and which ceilings of these schedules hold."""
        starts = self._starts[schedules]
        return now >= starts - self._lead[schedules], now >= starts

    def _apply_schedules(self, columns: OverrideColumns, now: float) -> None:
        floor, ceiling = self._scheduled(slice(None), now)
        np.maximum.at(columns.floor, self._rows[floor], self._floors[floor])
        np.minimum.at(columns.ceiling, self._rows[ceiling], self._ceilings[ceiling])
        columns.floor_reason[columns.floor > 0] = SCHEDULED

    def _apply_brakes(self, columns: OverrideColumns, now: float) -> None:
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
                    columns.floor_reason[rows] = np.where(decides, FROZEN, columns.floor_reason[rows])
                    columns.floor[rows] = np.maximum(columns.floor[rows], brake.floor)

    def _report_ends(self, now: float) -> None:
        since, self.reported_until = now if self.reported_until is None else self.reported_until, now
        for row, brake in self._brakes:
            if brake.until is not None and since < brake.until <= now:
                self._ended.append(BrakeEnded(row, brake))
                self._changed[slice(None) if row is None else row] = True

    def _edge(self, now: float) -> float:
        """POSIX seconds of the next change."""
        begin = self._starts - self._lead
        edges = [self._starts[self._starts > now], self._ends, begin[begin > now]]
        soonest = min((float(edge.min()) for edge in edges if len(edge)), default=math.inf)
        if bool(((begin > now) & np.isnan(self._prewarm)).any()):
            soonest = min(soonest, now + LEADS_INTERVAL_S)
        ends = (brake.until for _, brake in self._brakes if brake.until is not None and brake.until > now)
        return min(soonest, min(ends, default=math.inf))


def _care(brake: Brake) -> tuple[int, float, float]:
    """Sorts the most careful brake first; of two of a kind the higher, then the one that ends last."""
    until = math.inf if brake.until is None else brake.until
    return list(BrakeWord).index(brake.word), -brake.floor, -until
