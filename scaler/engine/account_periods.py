"""Keeps the accounts of workloads by calendar day and month, in UTC. Pure, on columns.

The ledger's sums never fall, so what a period holds is their rise since it began: only its begin is kept while it
runs, and a tick costs a comparison. When it ends, the rise is stored in single precision. An interval between two
sweeps that a midnight divides, such as a restart, is divided in proportion.

A quantity of which nothing was measured in a period is unknown in it: a gap, and never 0. So is a period before the
first sweep, and one that is no longer kept.

Per workload: DAYS days of 5 and MONTHS months of 28 single-precision floats, and 36 double-precision ones: 2.2 KB.

Worked example: 8 GPUs are held until a restart from 23:00 to 01:00. Both days get 8 unknown GPU-hours of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exporter.model import Floats
from scaler.columns import Array, Columns, Mask, Rows, copy_into, named, zero_if_unknown

if TYPE_CHECKING:
    from .accounting import LedgerSums

DAY_S = 86400.0
DAYS = 62  # that have ended: those of the present month and of the one before
MONTHS = 6  # that have ended
# Of a period's number, and of a sum; see `accounting`.
MOST_NUMBER, MOST_SUM = 1e6, 1e15
_ROUNDING = 1e-6  # of a difference of two sums
_MONTH = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])")
_FIRST_YEAR = 1970


def day_number(at: float) -> int:
    """Days since 1970. at: POSIX seconds."""
    return int(at // DAY_S)


def day_begin(number: int) -> float:
    return number * DAY_S


def month_number(at: float) -> int:
    """Months since the year 0. at: POSIX seconds."""
    moment = datetime.fromtimestamp(at, UTC)
    return 12 * moment.year + moment.month - 1


def month_begin(number: int) -> float:
    """POSIX seconds."""
    return datetime(number // 12, number % 12 + 1, 1, tzinfo=UTC).timestamp()


def month_name(number: int) -> str:
    """As "2026-11"."""
    return f"{number // 12:04d}-{number % 12 + 1:02d}"


def read_month(text: str) -> int:
    """The number of a month that is written as "2026-11". Raises ValueError."""
    found = _MONTH.fullmatch(text)
    if found is None or int(found[1]) < _FIRST_YEAR:
        raise ValueError(f"must be a month as 2026-11, got {text!r}")
    return 12 * int(found[1]) + int(found[2]) - 1


class PeriodKind(NamedTuple):
    """Days or months. kept: how many that have ended. number: of a time. begin: of a number, POSIX seconds."""

    kept: int
    number: Callable[[float], int]
    begin: Callable[[int], float]


class Elapsed(NamedTuple):
    """One entry of the ledger: the time between two sweeps.

    after:    the ledger's sums after it, shape (rows, quantities). rise: what it added to them; NaN unknown.
    measured: which groups are in it, shape (rows, groups).
    since:    when that time began, shape (rows,), and `now` when it ended: POSIX seconds.
    """

    after: Floats
    rise: Floats
    measured: Mask
    since: Floats
    now: float


class PeriodSums:
    """The sums of the present period, and of those that have ended.

    present:  its number, shape (rows,); NaN none.
    begun:    the ledger's sums when it began, shape (rows, quantities).
    measured: which groups were measured in it, shape (rows, groups).
    finished: shape (rows, kept, quantities); that of a number is at its remainder.
    """

    def __init__(self, rows: int, kind: PeriodKind, groups: Sequence[int]) -> None:
        """groups: the group of each quantity; -1: never unknown."""
        self.kind, self._groups = kind, np.array(groups, dtype=np.int64)
        self.present = np.full(rows, np.nan)
        self.begun = np.zeros((rows, len(groups)))
        self.measured = np.zeros((rows, max(groups) + 1), dtype=np.bool_)
        self.finished: NDArray[np.float32] = np.full((rows, kind.kept, len(groups)), np.nan, dtype=np.float32)

    def enter(self, measured: Mask, now: float, elapsed: Callable[[], Elapsed]) -> None:
        """Ends periods that are over, and notes what is measured in the present one. measured, now: as of `elapsed`."""
        number = self.kind.number(now)
        ended = np.flatnonzero(self.present != number)  # NaN is too
        if len(ended):
            entered = elapsed()
            for before in np.unique(self.present[ended]).tolist():
                same = np.isnan(self.present[ended]) if np.isnan(before) else self.present[ended] == before
                self._end(ended[same], before, number, entered)
        if now > self.kind.begin(number):  # else all of it is of the period before
            self.measured |= measured

    def _end(self, rows: Rows, before: float, number: int, elapsed: Elapsed) -> None:
        rise = zero_if_unknown(elapsed.rise[rows])
        after = zero_if_unknown(elapsed.after[rows])
        if before == number + 1:
            return  # a clock that was set back over midnight
        if not before <= number:  # the first sweep; a clock that was set back by more has made the past doubtful
            self.present[rows], self.begun[rows] = number, np.maximum(after - rise, 0.0)
            self.measured[rows], self.finished[rows] = False, np.nan
            return

        begun, measured = self.begun[rows], self.measured[rows]
        since = elapsed.since[rows]
        took = np.maximum(elapsed.now - since, 1e-9)

        def sums_at(moment: float) -> Floats:
            """The ledger's sums at a moment that divides the time that was entered."""
            return np.maximum(after - rise * np.clip((elapsed.now - moment) / took, 0.0, 1.0)[:, None], begun)

        first = max(int(before), number - self.kind.kept)
        if first > before:  # those between are no longer kept
            begun, measured = sums_at(self.kind.begin(first)), np.zeros_like(measured)
        for ended in range(first, number):
            end = self.kind.begin(ended + 1)
            until = sums_at(end)
            measured = measured | (elapsed.measured[rows] & (since < end)[:, None])
            self.finished[rows, ended % self.kind.kept] = self._masked(until - begun, measured)
            begun, measured = until, np.zeros_like(measured)
        self.present[rows], self.begun[rows], self.measured[rows] = number, begun, False

    def _masked(self, sums: Floats, measured: Mask) -> Floats:
        """The sums, NaN if their group was never measured. A period without a sweep has measured nothing."""
        shown = measured[:, self._groups]
        shown[:, self._groups < 0] = True
        return np.where(shown & (sums >= -_ROUNDING), np.maximum(sums, 0.0), np.nan)

    def of(self, number: int, sums: Floats) -> Floats:
        """The sums of one period, shape (rows, quantities); NaN unknown. sums: the ledger's, now."""
        is_present = self.present == number
        is_kept = (number < self.present) & (self.present - number <= self.kind.kept)
        running = self._masked(zero_if_unknown(sums) - self.begun, self.measured)
        finished = self.finished[:, number % self.kind.kept].astype(np.float64)
        return np.where(is_present[:, None], running, np.where(is_kept[:, None], finished, np.nan))

    def columns(self) -> dict[str, Array]:
        """Live arrays."""
        return {"present": self.present, "begun": self.begun, "measured": self.measured, "finished": self.finished}

    def make_sound(self, rows: Rows, sums: Floats) -> None:
        """Resets what cannot have been entered. sums: the ledger's."""
        present, begun = self.present[rows], self.begun[rows]
        sound = (present >= 0.0) & (present <= MOST_NUMBER) & (present == np.floor(present))
        most = zero_if_unknown(sums[rows]) * (1.0 + 1e-9) + _ROUNDING
        sound &= ((begun >= 0.0) & (begun <= most)).all(axis=1)
        self.present[rows] = np.where(sound, present, np.nan)
        self.begun[rows] = np.where(sound[:, None], begun, 0.0)
        finished = self.finished[rows]
        valid = sound[:, None, None] & (finished >= 0.0) & (finished <= MOST_SUM)
        self.finished[rows] = np.where(valid, finished, np.nan)

    def take(self, columns: Columns, rows: Rows, source_rows: Rows, sums: Floats) -> None:
        """Copies the periods `source_rows` of other columns into `rows`. Those of an older version have none.

        sums: the ledger's, copied before.
        """
        blank = PeriodSums(len(rows), self.kind, self._groups.tolist())
        copy_into(self.columns(), blank.columns(), rows, np.arange(len(rows)))
        copy_into(self.columns(), columns, rows, source_rows)
        self.make_sound(rows, sums)


IN_DAYS = PeriodKind(DAYS, day_number, day_begin)
IN_MONTHS = PeriodKind(MONTHS, month_number, month_begin)

# What a month has beside GPU-seconds and cost by state, with the group of each.
_GPUS, _COST, _POWER, _BASELINE, _PROMPT, _GENERATED, _SHADOW, _ALWAYS = *range(7), -1
_SINGLE: Mapping[str, int] = {
    "priced": _COST,
    "powered": _POWER,
    "joules": _POWER,
    "cost_apart": _BASELINE,
    "cost_at_maximum": _BASELINE,
    "cost_at_peak": _BASELINE,
    "wakes": _ALWAYS,
    "sleeps": _ALWAYS,
    "prompt": _PROMPT,
    "generated": _GENERATED,
    "shadow": _ALWAYS,
    "saved": _SHADOW,
    "added": _SHADOW,
    "queued": _SHADOW,
    "more": _ALWAYS,
    "fewer": _ALWAYS,
}


class DaySums(NamedTuple):
    """A day. gpu_seconds: shape (rows, held states). cost: of these, shape (rows,). NaN unknown."""

    gpu_seconds: Floats
    cost: Floats


class AccountPeriods:
    """The days and months of a fixed list of workloads. since: POSIX seconds when they began to be kept."""

    def __init__(self, rows: int, states: int, held: Sequence[int]) -> None:
        """states: of the ledger, of which `held` hold GPUs."""
        self._states, self._held = states, list(held)
        self.since = np.full(rows, np.nan)
        self.days = PeriodSums(rows, IN_DAYS, [*[_GPUS] * len(held), _COST])
        self.months = PeriodSums(rows, IN_MONTHS, [*[_GPUS] * states, *[_COST] * states, *_SINGLE.values()])

    def enter(self, rise: LedgerSums, kept: LedgerSums, since: Floats, now: float) -> None:
        """Enters what the ledger has just added. kept: its sums, `rise` included; NaN unknown.

        since: POSIX seconds when that time began, shape (rows,); NaN of the first sweep.
        """
        columns = (rise.gpu_seconds[:, 0], rise.cost[:, 0], rise.joules, rise.cost_apart, rise.prompt, rise.generated)
        measured = ~np.isnan(np.stack((*columns, rise.saved), axis=1))
        since = np.where(np.isnan(since), now, since)
        self.since = np.where(np.isnan(self.since), since, self.since)
        monthly, daily = (
            lambda: Elapsed(self._monthly(kept), self._monthly(rise), measured, since, now),
            lambda: Elapsed(self._daily(kept), self._daily(rise), measured[:, : _COST + 1], since, now),
        )
        self.months.enter(measured, now, monthly)
        self.days.enter(measured[:, : _COST + 1], now, daily)

    def month(self, number: int, kept: LedgerSums) -> dict[str, Floats]:
        """The fields of `LedgerSums` that a month has; all NaN of one that is not kept. kept: the ledger's sums."""
        found = self.months.of(number, self._monthly(kept))
        by_state = {"gpu_seconds": found[:, : self._states], "cost": found[:, self._states : 2 * self._states]}
        return by_state | dict(zip(_SINGLE, found[:, 2 * self._states :].T, strict=True))

    def day(self, number: int, kept: LedgerSums) -> DaySums:
        """A day; all NaN of one that is not kept. kept: the ledger's sums."""
        found = self.days.of(number, self._daily(kept))
        return DaySums(found[:, :-1], found[:, -1])

    def kept_months(self) -> list[int]:
        """The numbers of the months of which something is measured, by time."""
        ended = np.logical_or.reduce(~np.isnan(self.months.finished), axis=2)
        present = self.months.present
        found = {int(number) for number in present[~np.isnan(present)].tolist()}
        for back in range(1, MONTHS + 1):
            number = present - back
            has = ~np.isnan(number)
            slot = np.where(has, number, 0.0).astype(np.int64) % MONTHS
            there = has & np.take_along_axis(ended, slot[:, None], axis=1)[:, 0]
            found |= {int(each) for each in np.unique(number[there]).tolist()}
        return sorted(found)

    def columns(self) -> dict[str, Array]:
        """The columns that a checkpoint keeps; live arrays."""
        days, months = named("days", self.days.columns()), named("months", self.months.columns())
        return {**days, **months, "periods_since": self.since}

    def take(self, columns: Columns, rows: Rows, source_rows: Rows, kept: LedgerSums) -> None:
        """Copies the periods `source_rows` of other columns into `rows`, pairwise. kept: the sums, copied before."""
        mine = {name.removeprefix("accounts."): column for name, column in columns.items()}
        self.since[rows] = np.nan
        copy_into({"periods_since": self.since}, mine, rows, source_rows)
        for name, periods, sums in (
            ("days", self.days, self._daily(kept)),
            ("months", self.months, self._monthly(kept)),
        ):
            theirs = {each: mine[f"{name}.{each}"] for each in periods.columns() if f"{name}.{each}" in mine}
            periods.take(theirs, rows, source_rows, sums)

    def _monthly(self, sums: LedgerSums) -> Floats:
        """Shape (rows, quantities of a month)."""
        return np.column_stack((sums.gpu_seconds, sums.cost, *(getattr(sums, name) for name in _SINGLE)))

    def _daily(self, sums: LedgerSums) -> Floats:
        held = sums.gpu_seconds[:, self._held]
        return np.column_stack((held, sums.cost[:, self._held].sum(axis=1)))


class NodeMonths:
    """The months of all nodes: GPU-seconds, unallocated ones, their cost, and the unallocated cost."""

    def __init__(self) -> None:
        self._sums = PeriodSums(1, IN_MONTHS, range(4))
        self.since = np.full(1, np.nan)

    def enter(self, kept: Sequence[float], rise: Sequence[float], since: float, now: float) -> None:
        """As `AccountPeriods.enter`, with the four sums."""
        after, risen = np.array([kept]), np.array([rise])
        begun = np.array([now if np.isnan(since) else since])
        self.since = np.where(np.isnan(self.since), begun, self.since)
        measured = ~np.isnan(risen)
        self._sums.enter(measured, now, lambda: Elapsed(after, risen, measured, begun, now))

    def month(self, number: int, kept: Sequence[float]) -> list[float]:
        """The four sums of a month; NaN unknown."""
        found: list[float] = self._sums.of(number, np.array([kept]))[0].tolist()
        return found

    def packed(self) -> Floats:
        """The state as one row of numbers."""
        parts = (self.since, *self._sums.columns().values())
        return np.concatenate([part.ravel().astype(np.float64) for part in parts])

    def unpack(self, row: Floats, kept: Sequence[float]) -> None:
        """Takes a row of `packed`; none, or another version's, is no state. kept: the four sums."""
        fresh = NodeMonths()
        if row.shape == fresh.packed().shape:
            row = np.where((row >= 0.0) & (row <= MOST_SUM), row, np.nan)
            fresh.since, start = row[:1], 1
            for column in fresh._sums.columns().values():
                part = row[start : start + column.size].reshape(column.shape)
                column[...] = part if column.dtype.kind == "f" else part == 1.0
                start += column.size
            fresh._sums.make_sound(np.array([0]), np.array([kept]))
        self.since, self._sums = fresh.since, fresh._sums
