"""Keeps a log of decisions: for each workload a ring of the inputs and outputs of `policy.step`. Pure, of a fixed size.

An entry is written when a decision changes, and every so often while it does not, so that charts have points. Each
workload has as many entries as every other: one that changes often does not shorten another's past. An entry is a row
of numbers in the log and a value of the policy's columns outside of it. Nothing is rounded, so `step` decides again
what it decided.

How much: an entry is `WIDTH` numbers of 8 bytes, 536 bytes. 64 MiB are 125,203 of them: 1,440 for each of up to 70
workloads, 110 for each of 1,000. How often: half of a workload's entries are for the last hour's unchanged moments and
half for changes, so 110 entries are one each 7,200 / 110 = 65 s; never oftener than every 15 s, which are 240 points in
the hour that a chart shows.

Worked example: `DecisionLog([plan], 64 << 20)` keeps 1,440 entries of that workload, at least the last six hours of one
with a constant decision; with a budget of 0 it keeps none and costs nothing. `flat(given, places)` of two workloads
has the shape (2, WIDTH), and `unflat` of one of its rows has the very numbers that the kernel was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from exporter.model import Floats
from scaler.columns import Mask, Rows
from scaler.policy.columns import Constraints, Memory, Readings, Signal, Spec, Specs, Verdicts
from scaler.policy.groups import Decided
from scaler.signals.aggregate import Aggregate
from scaler.workloads.spec import WorkloadSpec

Ints: TypeAlias = NDArray[np.int64]


class Aside(NamedTuple):
    """Values that explain the readings and decide nothing; every column has shape (rows,).

    latest:   shape (rows, len(Signal)): the signals before they were smoothed.
    imputed:  pods that did not answer were taken to be like the others.
    group_floor: replicas that its group asks for; 0 is none.
    sleeping: pods with engines in sleep mode; NaN unknown.
    gpus_held: GPUs that its running pods request; NaN unknown.
    gpus_shown, gpus_utilised, gpus_silent, gpus_lost, gpus_parts: as in `aggregate.VisibleGpus`.
    probe_period: seconds of the regular requests that are taken for probes; NaN where none are.
    regular_until: POSIX seconds until which regular requests count, whatever their period; NaN where they do not.
    """

    latest: Floats
    imputed: Mask
    group_floor: Floats
    sleeping: Floats
    gpus_held: Floats
    gpus_shown: Floats
    gpus_utilised: Floats
    gpus_silent: Floats
    gpus_lost: Floats
    gpus_parts: Floats
    probe_period: Floats
    regular_until: Floats

    @classmethod
    def of(
        cls, totals: Aggregate, imputed: Mask, group_floor: Floats, probe_period: Floats, regular_until: Floats
    ) -> Aside:
        gpus = totals.gpus
        gpu_counts = (gpus.shown, gpus.utilised, gpus.silent, gpus.lost, gpus.parts)
        probes = (probe_period, regular_until)
        return cls(totals.latest, imputed, group_floor, totals.sleeping, totals.gpus_held, *gpu_counts, *probes)

    @classmethod
    def blank(cls, rows: int) -> Aside:
        """All unknown."""
        return cls(
            np.full((rows, len(Signal)), np.nan),
            np.zeros(rows, dtype=np.bool_),
            np.zeros(rows),
            *np.full((9, rows), np.nan),
        )


class When(NamedTuple):
    """at: POSIX seconds, the `now` of that decision. raise_only: a page was the occasion, not the passage of time."""

    at: Floats
    raise_only: Mask


class Given(NamedTuple):
    """The log entries of some workloads; every column of every part has a slot for each.

    memory: before the decision. verdicts: what it came to.
    """

    when: When
    readings: Readings
    standing: Constraints
    memory: Memory
    verdicts: Verdicts
    aside: Aside

    @classmethod
    def of(cls, decided: Decided, before: Memory, aside: Aside, now: float, *, raise_only: bool) -> Given:
        """now: POSIX seconds."""
        rows = len(decided.needed)
        when = When(np.full(rows, now), np.full(rows, raise_only))
        return cls(when, decided.readings, decided.standing, before, decided.verdicts, aside)


def blank(rows: int) -> Given:
    """A value with the shapes and types of the columns."""
    when = When(np.full(rows, np.nan), np.zeros(rows, dtype=np.bool_))
    standing = Constraints.plain(Specs.stack([Spec(0, 1, ())] * rows))
    return Given(when, Readings.unknown(rows), standing, Memory.blank(rows), Verdicts.blank(rows), Aside.blank(rows))


# What charts show, by part and name: it comes first in a row of the log, side by side, because charts read all rows.
CHARTED = (
    ("when", "at"),
    ("readings", "waiting"),
    ("readings", "running"),
    ("readings", "held"),
    ("verdicts", "demand"),
    ("verdicts", "replicas"),
    ("readings", "wanted"),
    ("aside", "latest"),
    ("verdicts", "reason"),
)
# Where each column begins in a row of the log, by part and name.
_TEMPLATE = blank(1)
_REST = ((part, name) for part, columns in _TEMPLATE._asdict().items() for name in columns._fields)
_NAMES = (*CHARTED, *(column for column in _REST if column not in CHARTED))
_WIDTHS = [getattr(getattr(_TEMPLATE, part), name).size for part, name in _NAMES]
_ENDS = np.cumsum(_WIDTHS).tolist()
WIDTH: int = _ENDS[-1]
CHARTED_WIDTH: int = _ENDS[len(CHARTED) - 1]
_SLICES = {name: slice(end - width, end) for name, end, width in zip(_NAMES, _ENDS, _WIDTHS, strict=True)}


def column_index(part: str, name: str) -> int:
    """The number of a column's first place in a row of the log: `column_index("readings", "waiting")`."""
    return int(_SLICES[part, name].start)


def flat(given: Given, places: Rows) -> Floats:
    """Some of the workloads as rows of the log, shape (len(places), WIDTH)."""
    out = np.empty((len(places), WIDTH))
    for (part, name), where in _SLICES.items():
        column = getattr(getattr(given, part), name)[places]
        out[:, where] = column if column.ndim > 1 else column[:, None]
    return out


def unflat(row: Floats) -> Given:
    """The reverse, for one row of the log: every column has one slot. row: shape (WIDTH,)."""
    return Given(*(_part(row, name, part) for name, part in _TEMPLATE._asdict().items()))


def _part(row: Floats, part: str, like: Any) -> Any:
    columns = ((row[_SLICES[part, name]], column) for name, column in like._asdict().items())
    return type(like)(*(cells.astype(column.dtype).reshape(column.shape) for cells, column in columns))


@dataclass(frozen=True, slots=True)
class Entry:
    """One decision about one workload, with the plan that held then."""

    plan: WorkloadSpec
    given: Given

    @property
    def at(self) -> float:
        """POSIX seconds."""
        return float(self.given.when.at[0])


# The plans of a workload's entries: from which number on each holds.
Plans: TypeAlias = tuple[tuple[int, WorkloadSpec], ...]

FEWEST, MOST = 16, 1440
ENTRY_BYTES = WIDTH * 8
CHARTED_S = 3600.0
OFTENEST_S, SELDOMEST_S = 15.0, 450.0
# Spreads the unchanged workloads' entries evenly over time, whatever their number: 1 / golden ratio. They are written
# every few seconds at most: however few there are, to write some takes a millisecond.
_STRIDE, TOGETHER_S = 0.6180339887498949, 3.0

AT = column_index("when", "at")


@dataclass(frozen=True, slots=True)
class DecisionHistory:
    """A workload's entries, oldest first; a copy.

    values: shape (entries, WIDTH).
    first:  the number of the oldest; entries are numbered as they are written.
    """

    values: Floats
    first: int
    plans: Plans

    def __len__(self) -> int:
        return len(self.values)

    @property
    def times(self) -> Floats:
        """POSIX seconds, shape (entries,)."""
        return self.values[:, AT]

    def entry(self, index: int) -> Entry:
        number = self.first + index % len(self)
        return Entry(next(plan for since, plan in reversed(self.plans) if since <= number), unflat(self.values[index]))

    def until(self, row: Floats, plan: WorkloadSpec) -> DecisionHistory:
        """With one entry more, of shape (WIDTH,), if it is later than the last."""
        if len(self) and not row[AT] > self.times[-1]:
            return self
        return DecisionHistory(np.vstack([self.values, row]), self.first, self.plans or ((0, plan),))

    def at(self, moment: float) -> Entry | None:
        """The last entry at `moment`, POSIX seconds; the oldest if `moment` is earlier, None if there is none.

        Where the clock was set back, the one written last counts.
        """
        if not len(self):
            return None
        before = np.flatnonzero(self.times <= moment)
        return self.entry(int(before[-1]) if len(before) else 0)


@dataclass(frozen=True, slots=True)
class Charts:
    """The charted columns of some workloads, as stored in the log: copied at once, sorted later.

    entries: shape (workloads, depth, CHARTED_WIDTH). written: shape (workloads,), entries ever written.
    """

    entries: Floats
    written: Ints

    def of(self, row: int) -> Floats:
        """One workload's, oldest first, shape (entries, CHARTED_WIDTH)."""
        ring, written = self.entries[row], int(self.written[row])
        ordered: Floats = ring[_order(written, len(ring))]
        return ordered


def _order(written: int, depth: int) -> Ints:
    """The places of a ring's entries, oldest first."""
    return np.arange(max(0, written - depth), written) % max(depth, 1)


class DecisionLog:
    """The rings of a fixed list of workloads. budget_bytes: of all together, but each has `FEWEST` entries anyhow."""

    def __init__(self, plans: Sequence[WorkloadSpec], budget_bytes: int) -> None:
        self._plans, self._budget = tuple(plans), budget_bytes
        rows = len(self._plans) if budget_bytes else 0
        slots = rows + rows // 8 + 8  # so that a new workload rarely moves everybody's entries
        self.depth = int(np.clip(budget_bytes // (slots * ENTRY_BYTES), FEWEST, MOST)) if budget_bytes else 0
        # Never filled: pages that were never written take no physical memory. By number first: all first entries are
        # side by side. With a ring after the other, each was in a huge page of its own, and the first sweep of 2,500
        # workloads had the kernel clear them for 0.1 s.
        self._entries: Floats = np.zeros((self.depth, slots, WIDTH))
        self._written: Ints = np.zeros(slots, dtype=np.int64)
        self._noted_at: Floats = np.full(slots, np.nan)
        self._held: list[Plans] = [((0, plan),) for plan in self._plans[:rows]] + [()] * (slots - rows)
        self._slot: Rows = np.arange(rows)

    @property
    def every_s(self) -> float:
        """Seconds between two entries of a workload without a new decision."""
        return float(np.clip(2.0 * CHARTED_S / max(self.depth, 1), OFTENEST_S, SELDOMEST_S))

    def due(self, rows: Rows, now: float) -> Mask:
        """The rows that need an entry although nothing has changed. now: POSIX seconds."""
        if not self.depth:
            return np.zeros(len(rows), dtype=np.bool_)
        slots, every = self._slot[rows], self.every_s
        turns = np.ceil(every / TOGETHER_S)
        turn = np.floor(slots * _STRIDE % 1.0 * turns) / turns
        due: Mask = np.floor(now / every + turn) != np.floor(self._noted_at[slots] / every + turn)
        return due

    def note(self, rows: Rows, given: Given, chosen: Mask) -> None:
        """Write an entry for the chosen ones of `rows`, no row twice. given: with a slot for each of `rows`."""
        places = np.flatnonzero(chosen)
        if not self.depth or not len(places):
            return
        slots = self._slot[rows[places]]
        self._entries[self._written[slots] % self.depth, slots] = flat(given, places)
        self._written[slots] += 1
        self._noted_at[slots] = given.when.at[places]

    def past(self, row: int) -> DecisionHistory:
        if not self.depth:
            return DecisionHistory(np.empty((0, WIDTH)), 0, ())
        slot = self._slot[row]
        written = int(self._written[slot])
        order = _order(written, self.depth)
        return DecisionHistory(self._entries[order, slot], written - len(order), self._held[slot])

    def charted(self, rows: Rows) -> Charts:
        """A copy of what charts show of these workloads."""
        slots = self._slot[rows] if self.depth else np.zeros(len(rows), dtype=np.int64)
        return Charts(self._entries[:, slots, :CHARTED_WIDTH].swapaxes(0, 1), self._written[slots])

    def adopt(self, other: DecisionLog, rows: Rows, source_rows: Rows) -> None:
        """Takes the entries `source_rows` of another log into `rows`, pairwise. The other log is empty afterwards."""
        if not self.depth or not other.depth:
            return
        if other._budget == self._budget and len(self._plans) <= len(other._written) <= 2 * len(self._written):
            self._take_rings(other, rows, source_rows)
        else:
            self._copy_rings(other, rows, source_rows)
        for row, slot in zip(rows.tolist(), self._slot[rows].tolist(), strict=True):
            self._follow(slot, self._plans[row])
        other._forget_all()

    def replan(self, plans: Sequence[WorkloadSpec], rows: Rows) -> None:
        """Replaces the plans of `rows`, from the next entry on. plans: those of all workloads."""
        self._plans = tuple(plans)
        if self.depth:
            for row, slot in zip(rows.tolist(), self._slot[rows].tolist(), strict=True):
                self._follow(slot, self._plans[row])

    def _take_rings(self, other: DecisionLog, rows: Rows, source_rows: Rows) -> None:
        """Takes the arrays as they are: rows get other slots, and no entry moves."""
        kept = other._slot[source_rows]
        self.depth, self._entries, self._held = other.depth, other._entries, other._held
        self._written, self._noted_at = other._written, other._noted_at
        new = np.setdiff1d(np.arange(len(self._plans)), rows)
        free = np.setdiff1d(np.arange(len(self._written)), kept)
        self._written[free], self._noted_at[free] = 0, np.nan
        for slot in free.tolist():
            self._held[slot] = ()
        self._slot = np.empty(len(self._plans), dtype=np.int64)
        self._slot[rows], self._slot[new] = kept, free[: len(new)]
        for row in new.tolist():
            self._held[self._slot[row]] = ((0, self._plans[row]),)

    def _copy_rings(self, other: DecisionLog, rows: Rows, source_rows: Rows) -> None:
        """Into arrays of another size; the newest entries stay, and are counted from the oldest of them."""
        for mine, theirs in zip(self._slot[rows].tolist(), other._slot[source_rows].tolist(), strict=True):
            written = int(other._written[theirs])
            kept = min(written, other.depth, self.depth)
            numbers = np.arange(written - kept, written)
            self._entries[:kept, mine] = other._entries[numbers % other.depth, theirs]
            self._written[mine], self._noted_at[mine] = kept, other._noted_at[theirs]
            self._held[mine] = tuple((max(0, since - written + kept), plan) for since, plan in other._held[theirs])

    def _follow(self, slot: int, plan: WorkloadSpec) -> None:
        """Sets the plan from the next entry on; plans without entries are dropped."""
        held, written = self._held[slot], int(self._written[slot])
        if held and (held[-1][1] is plan or held[-1][1] == plan):
            return
        oldest, pairs = max(0, written - self.depth), (*held, (written, plan))
        left = (pair for pair, (until, _) in pairwise(pairs) if until > max(oldest, pair[0]))
        self._held[slot] = (*left, pairs[-1])

    def _forget_all(self) -> None:
        self.__init__((), 0)  # type: ignore[misc]
