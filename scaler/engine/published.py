"""Stores the last published decision of every workload as columns, so that changes are found by array comparison. Pure.

Worked example: 3 replicas, `serving`, are published. `differs` of the same again is False, and of 3 replicas, `capped`,
it is True: the reason is published too.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from exporter.model import Floats
from scaler.columns import Array, Columns, Mask, Rows, copy_into, named
from scaler.controllers.hpa import past_band
from scaler.policy.columns import Constraints, Verdicts
from scaler.policy.overrides.brake import MOST_REPLICAS

# A Decision takes about 40 us to build. A sweep builds all with a new number or activity; those with a new reason or
# replica count alone up to this many in all (40 ms).
MOST_BUILT = 1000
EVERY = 2**31  # no bound on the Decisions that are built at once


@dataclass(frozen=True, slots=True)
class Published:
    """By column, one slot per workload.

    at:     POSIX seconds.
    number: replicas, as controllers get them.
    """

    replicas: Floats
    active: Mask
    reason: Rows
    at: Floats
    number: Floats

    @classmethod
    def nothing(cls, rows: int) -> Published:
        blank = Verdicts.blank(rows)  # with a reason that no decision has
        return cls(blank.replicas, blank.active, blank.reason, at=np.full(rows, np.nan), number=blank.replicas.copy())

    def of(self, rows: Rows) -> tuple[Verdicts, Floats, Floats]:
        """The decisions of some workloads, their published replicas, and when they were published."""
        verdicts = Verdicts(self.replicas[rows], self.active[rows], self.reason[rows], np.empty((len(rows), 0)))
        return verdicts, self.number[rows], self.at[rows]

    def differs(self, rows: Rows | slice, verdicts: Verdicts, number: Floats) -> Mask:
        same = _same(self.replicas[rows], verdicts.replicas) & _same(self.number[rows], number)
        same &= (self.active[rows] == verdicts.active) & (self.reason[rows] == verdicts.reason)
        return ~same

    def moves(self, verdicts: Verdicts, number: Floats) -> Mask:
        """Which of all differ in what a controller acts on: the replicas, the published number or the activity."""
        same = _same(self.replicas, verdicts.replicas) & _same(self.number, number)
        same &= self.active == verdicts.active
        return ~same

    def kept(
        self, rows: Rows | slice, verdicts: Verdicts, number: Floats, uncounted: Mask, *, raise_only: bool
    ) -> Floats:
        """The replicas to publish: the last ones stay until the cluster shows that it has taken the step.

        number:     what `verdicts` alone would publish.
        uncounted:  the number of replicas is unknown; until it is known, the same decision is published as before.
        raise_only: a response landed; if the cluster has taken the step meanwhile, the next sweep finds it.
        """
        same = uncounted & (verdicts.replicas == self.replicas[rows])
        stands = (verdicts.replicas > 0.0) & (np.ones_like(same) if raise_only else same)
        return np.where(stands, np.fmax(number, self.number[rows]), number)

    def to_publish(
        self,
        rows: Rows | slice,
        verdicts: Verdicts,
        wanted: Floats,
        standing: Constraints,
        least: Floats,
        tolerance: Floats,
        *,
        raise_only: bool,
    ) -> Floats:
        """The replicas to publish: what the HPA of each workload does not drop as within its tolerance.

        wanted: spec.replicas; NaN unknown. least: replicas of an active workload. tolerance: of its HPA, a ratio.
        """
        number = verdicts.replicas
        if (number > wanted).any():
            most = np.where(verdicts.replicas > standing.floor, standing.ceiling, inf)
            most = np.minimum(most, np.maximum(np.maximum(least, 1.0), standing.room))
            number = past_band(verdicts.replicas, wanted, tolerance, most)
        return self.kept(rows, verdicts, number, np.isnan(wanted), raise_only=raise_only)

    def columns(self) -> dict[str, Array]:
        return named("published", {name: getattr(self, name) for name in self.__slots__})

    def take(self, columns: Columns, rows: Rows, source_rows: Rows, tolerance: Floats) -> None:
        """Copies `source_rows` of another replica's columns into `rows`. Without a column of numbers the number is the
        replicas. What cannot have been published is unknown.

        tolerance: of the HPA of each of `rows`: a number cannot be further past the replicas.
        """
        self.number[rows] = np.nan
        copy_into(self.columns(), columns, rows, source_rows)
        replicas, number = self.replicas[rows], self.number[rows]
        whole = (replicas >= 0.0) & (replicas <= MOST_REPLICAS) & (replicas == np.floor(replicas))
        past = (number >= replicas) & (number <= replicas * (1.0 + tolerance) + 2.0)
        past &= (number == np.floor(number)) & (replicas > 0.0)
        self.replicas[rows] = np.where(whole, replicas, np.nan)
        self.number[rows] = np.where(whole & past, number, self.replicas[rows])

    def tell(self, rows: Rows, verdicts: Verdicts, number: Floats, at: Floats) -> None:
        self.replicas[rows], self.active[rows], self.reason[rows] = verdicts.replicas, verdicts.active, verdicts.reason
        self.number[rows], self.at[rows] = number, at


class PendingDecisions:
    """Chooses the rows of which a Decision is built: by a sweep those that differ from the published one, and for a
    reader of evidence those with other evidence.

    changed:     its evidence has changed since the last sweep.
    renewable:   the last sweep has other evidence than its Decision.
    unpublished: no Decision of this process is published.
    wanted:      the replicas of the cluster in its Decision; NaN unknown.
    waiting:     the last sweep has a Decision that is not built yet: at most `most` are built at once.
    due:         its brake, its sleep state, or what another replica has published may not be that of its Decision. Like
                 `wanted`, others act on it by the Decision.
    """

    def __init__(self, rows: int) -> None:
        self.changed: Mask = np.zeros(rows, dtype=np.bool_)
        self.renewable: Mask = np.zeros(rows, dtype=np.bool_)
        self.unpublished: Mask = np.ones(rows, dtype=np.bool_)
        self.wanted: Floats = np.full(rows, np.nan)
        self.due: Mask = np.zeros(rows, dtype=np.bool_)
        self.waiting: Mask = np.zeros(rows, dtype=np.bool_)
        self.most = EVERY
        self._turn = 0  # the row at which the next sweep begins

    def next(self, news: Mask, moves: Mask, wanted: Floats) -> Rows:
        """The rows of a sweep, ascending. Evidence that changed before it is renewable now.

        news:   the decision differs from the published one. moves: also in what a controller acts on.
        wanted: replicas of the cluster; NaN unknown.
        """
        self.renewable |= self.changed
        self.changed[:] = False
        urgent = self.unpublished | (news & moves)
        rest = np.flatnonzero((news | self.due | ~_same(self.wanted, wanted)) & ~urgent)
        at_once = np.flatnonzero(urgent)
        self.waiting[:] = False
        self.waiting[at_once[self.most :]] = True
        room = max(MOST_BUILT - len(at_once), 0)
        if len(rest) > room:
            rest = np.roll(rest, -np.searchsorted(rest, self._turn))[:room]
            self._turn = int(rest[-1]) + 1 if room else self._turn
        chosen = np.zeros(len(urgent), dtype=np.bool_)
        chosen[at_once[: self.most]] = chosen[rest] = True
        rows = np.flatnonzero(chosen)
        self.renewable[rows] = False
        return rows

    def chosen(self, rows: Rows) -> Mask:
        """Whether a Decision of the last sweep is built, now (`rows`) or by `take_waiting`."""
        chosen = self.waiting.copy()
        chosen[rows] = True
        return chosen

    def take_waiting(self, most: int) -> Rows:
        """At most so many rows of which the last sweep has a Decision that is not built yet."""
        rows = np.flatnonzero(self.waiting)[:most]
        self.renewable[rows] = False
        return rows

    def take_renewable(self, superseded: Mask, most: int) -> Rows:
        """At most so many rows whose evidence a reader needs; they are not renewable any more.

        superseded: rows with a later answer than that of the last sweep, or none yet; the next sweep has theirs.
        """
        self.renewable &= ~(superseded | self.waiting)
        rows = np.flatnonzero(self.renewable)[:most]
        self.renewable[rows] = False
        return rows

    def go_on(self, other: PendingDecisions, rows: Rows, source_rows: Rows) -> None:
        """The published Decisions of `source_rows` there are those of `rows` here."""
        for name in ("unpublished", "wanted"):
            getattr(self, name)[rows] = getattr(other, name)[source_rows]

    def built(self, rows: Rows, wanted: Floats) -> None:
        """Decisions of these rows are published. wanted: as in `next`."""
        self.unpublished[rows] = self.due[rows] = self.waiting[rows] = False
        self.wanted[rows] = wanted


def _same(before: Floats, after: Floats) -> Mask:
    same: Mask = (before == after) | (np.isnan(before) & np.isnan(after))
    return same
