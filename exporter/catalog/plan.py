"""Compiles layouts to plans: which series belongs to which cell. With a plan, a response costs a dozen NumPy calls.

`build` takes cells ("series 17 adds, in MiB, to column memory_used of row 3") and sorts them so that each way of
combining is one `reduceat`. `ReadPlan.read` checks all values at once and combines them. Only if a value is invalid
does it look up names and line numbers, for the reason. Of vendors it knows only DCGM's marks for "no value", because a
mark is a better reason than "outside 0..100".

Worked example: cells (series 0 → row 0, sum), (series 1 → row 0, sum), values [3, 4] → column [7].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from exporter.histogram import NO_HISTOGRAMS, Latency, LatencyHistograms, Parts
from exporter.model import Dropped, Floats, Quantity, Samples, Subject
from exporter.textformat import Page

from .schema import Columns, Combine, Finish, Unit

Indices: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]

# DCGM exposes integers and doubles that mean "blank", "not found", "not supported" or "no permission" (go-dcgm
# const.go). The int64 ones are just under 2**63 and as a float all of them are 2**63: compare with >=, never ==.
INT64_MARKS = (9.2e18, 9.3e18)
INT32_MARKS = (2147483632.0, 2147483635.0)
FP64_MARKS = (140737488355328.0, 140737488355331.0)
# A family of an ambiguous name may be a ratio or a percentage: only a value above what a ratio can be shows it.
SURELY_PERCENT = 1.5
_QUANTITIES = tuple(Quantity)
# By `CheckedSeries.int32`; None: not one of DCGM's series.
_LOWEST_MARK = {True: INT32_MARKS[0], False: FP64_MARKS[0], None: np.inf}


@dataclass(frozen=True, slots=True)
class Cell:
    """One series and the cell it is part of."""

    series: int
    row: int
    column: str
    combine: Combine
    unit: Unit


@dataclass(frozen=True, slots=True)
class CheckedSeries:
    """A series that is only checked: for NaN and for DCGM's marks. `int32`: its true values stay below 2**31 - 16."""

    series: int
    int32: bool


@dataclass(frozen=True, slots=True)
class Wanted:
    """A series without which a quantity of `ESSENTIAL` is a lower bound. `row`: of the plan's subjects."""

    series: int
    row: int
    quantity: Quantity


@dataclass(frozen=True, slots=True)
class Unpaired:
    """A series without one of `family` that has its labels: `quantity` of `row` is a lower bound."""

    series: int
    row: int
    quantity: Quantity
    family: str


# What decides about replicas and idleness: requests in hand, counters that rise with activity, GPU activity.
ESSENTIAL = frozenset({
    Quantity.REQUESTS_WAITING, Quantity.REQUESTS_RUNNING, Quantity.REQUESTS_HELD, Quantity.REQUESTS_FINISHED,
    Quantity.REQUESTS_FAILED, Quantity.TOKENS_PROMPT, Quantity.TOKENS_GENERATED, Quantity.KV_CACHE_USED,
    Quantity.GPU_ENGINE_ACTIVE, Quantity.GPU_UTILIZATION,
})  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class _CombineGroup:
    """Cells that combine in one way: `of` are positions among the checked values, cut at `starts`."""

    combine: Combine
    of: Indices
    starts: Indices
    sizes: Floats
    into: Indices  # flat positions in (rows, columns)


@dataclass(frozen=True, slots=True, eq=False)
class ReadPlan:
    """How to read responses of one layout. Built by `build`. The arrays run over the checked series."""

    kind: str
    subjects: tuple[Subject, ...]
    columns: tuple[str, ...]
    series: Indices
    units: tuple[Unit, ...]
    low: Floats
    high: Floats
    per: Floats
    cap: Floats
    int32: Mask
    marked: Mask  # DCGM's series, which may be a mark
    mark_from: Floats  # the lowest mark of each; infinite of all others
    maybe_percent: Indices  # positions of ratios that may be percentages
    groups: tuple[_CombineGroup, ...]
    members: Indices  # series with timestamps that count, by row, cut at `first`
    first: Indices
    finish: Finish
    wanted: tuple[Wanted, ...]
    wanted_series: Indices
    wanted_low: Floats
    wanted_high: Floats
    families: Mapping[str, Quantity]  # the families of ESSENTIAL quantities, whether or not the layout has them
    histograms: Mapping[Latency, Mapping[int, Parts]]  # by the row of the subject; read where a limit is given
    unpaired: tuple[Unpaired, ...]

    def read(self, page: Page, received_at: float) -> Samples:
        """The samples. received_at: POSIX seconds, for series without a timestamp."""
        exposed = page.values[self.series]
        clean, good = self._clean(exposed)
        columns, subjects = self.finish(self._combine(clean, _reduce), self.subjects)
        quantities = _quantities_of(tuple(columns))
        values = np.empty((len(subjects), len(quantities)))
        for column, quantity in enumerate(quantities):
            values[:, column] = columns[quantity]
        return Samples(
            kind=self.kind,
            subjects=subjects,
            quantities=quantities,
            values=values,
            at=self._measured(page, received_at),
            dropped=page.dropped if good.all() else self._dropped(page, exposed, good),
            histograms=LatencyHistograms(page.values, self.histograms) if self.histograms else NO_HISTOGRAMS,
        )

    def lower_bounds(self, page: Page) -> Columns:
        """Each quantity without the series that have no valid value. NaN if no part of a sum has one."""
        clean, _ = self._clean(page.values[self.series])
        return self.finish(self._combine(clean, _reduce_valid), self.subjects)[0]

    def is_wrong(self, index: int, value: float) -> bool:
        """Whether a value of `wanted[index]` is a number that cannot be true, rather than a mark for "no value"."""
        int32 = self.int32[np.searchsorted(self.series, self.wanted_series[index])]
        return not np.isnan(value) and not is_mark(np.array([value]), np.array([int32]))[0]

    def _clean(self, exposed: Floats) -> tuple[Floats, Mask]:
        """(values in our units, NaN where invalid; which are valid)."""
        good = (exposed >= self.low) & (exposed <= self.high)
        if (exposed >= self.mark_from).any():
            good &= ~(self.marked & is_mark(exposed, self.int32))
        clean = np.where(good, exposed, np.nan)
        if len(self.maybe_percent) and ((ratios := clean[self.maybe_percent]) > SURELY_PERCENT).any():
            clean[self.maybe_percent] = ratios / 100.0
        return np.minimum(clean / self.per, self.cap), good

    def _combine(self, clean: Floats, reduce: Callable[[_CombineGroup, Floats], Floats]) -> Columns:
        table = np.full(len(self.subjects) * len(self.columns), np.nan)
        for group in self.groups:
            table[group.into] = reduce(group, clean[group.of])
        return dict(zip(self.columns, table.reshape(len(self.columns), len(self.subjects)), strict=True))

    def _measured(self, page: Page, received_at: float) -> Floats:
        times = page.at[self.members]
        if np.isnan(times).all():
            return np.full(len(self.subjects), received_at)
        oldest = np.fmin.reduceat(times, self.first)
        return np.where(np.isnan(oldest), received_at, oldest)

    def _dropped(self, page: Page, exposed: Floats, good: Mask) -> tuple[Dropped, ...]:
        names = page.layout.names
        ours = [
            Dropped(int(page.lines[self.series[i]]), self._reason(names[self.series[i]], float(exposed[i]), int(i)))
            for i in np.flatnonzero(~good)
        ]
        return tuple(sorted([*page.dropped, *ours]))

    def _reason(self, name: str, value: float, position: int) -> str:
        if np.isnan(value):
            return f"{name}: no value (NaN)"
        if self.marked[position] and is_mark(np.array([value]), self.int32[position : position + 1])[0]:
            return f"{name}: {_number_text(value)} is DCGM's 'no value' mark"
        unit = self.units[position]
        return f"{name}: {_number_text(value)} is outside {_number_text(unit.low)}..{_number_text(unit.high)}"


@lru_cache(maxsize=1024)
def _quantities_of(columns: tuple[str, ...]) -> tuple[Quantity, ...]:
    return tuple(quantity for quantity in _QUANTITIES if quantity in columns)


def is_mark(values: Floats, int32: Mask) -> Mask:
    """Whether values are DCGM's marks for "no value". int32: true values stay below the int32 marks."""
    marks: Mask = (
        ((values >= INT64_MARKS[0]) & (values <= INT64_MARKS[1]))
        | (int32 & (values >= INT32_MARKS[0]) & (values <= INT32_MARKS[1]))
        | ((values >= FP64_MARKS[0]) & (values <= FP64_MARKS[1]))
    )
    return marks


def _reduce(group: _CombineGroup, values: Floats) -> Floats:
    match group.combine:
        case Combine.SUM:
            return np.add.reduceat(values, group.starts)
        case Combine.MEAN:
            return np.add.reduceat(values, group.starts) / group.sizes
        case Combine.MIN:
            return np.minimum.reduceat(values, group.starts)
        case Combine.COPY:
            return np.fmax.reduceat(values, group.starts)
        case Combine.SAME:
            largest = np.fmax.reduceat(values, group.starts)
            return np.where(largest == np.fmin.reduceat(values, group.starts), largest, np.nan)


def _reduce_valid(group: _CombineGroup, values: Floats) -> Floats:
    """As `_reduce`, but a sum is the sum of its valid parts."""
    if group.combine is not Combine.SUM:
        return _reduce(group, values)
    valid = ~np.isnan(values)
    sums = np.add.reduceat(np.where(valid, values, 0.0), group.starts)
    return np.where(np.logical_or.reduceat(valid, group.starts), sums, np.nan)


def _number_text(value: float) -> str:
    """A number, short: 9.22e18, 4294967295, -1, 1.5."""
    if value.is_integer() and abs(value) < 1e15:  # noqa: PLR2004 - all digits of such a float are meant
        return str(int(value))
    return f"{value:.3g}".replace("e+", "e")


def build(
    kind: str,
    subjects: Sequence[Subject],
    cells: Sequence[Cell],
    finish: Finish,
    *,
    timed: Mapping[int, Sequence[int]],
    watched: Sequence[CheckedSeries] = (),
    maybe_percent: Sequence[int] = (),
    families: Mapping[str, str] = MappingProxyType({}),
    feeds: Mapping[str, str] = MappingProxyType({}),
    histograms: Mapping[Latency, Mapping[int, Parts]] = MappingProxyType({}),
    unpaired: Sequence[Unpaired] = (),
) -> ReadPlan:
    """Sorts cells into a plan.

    timed:    for rows that may have no cell, the series with timestamps that count.
    watched:  DCGM's series; those that are cells too keep their cell's range.
    maybe_percent: series that are ratios or percentages.
    families: the column of each family of the kind.
    feeds:    the quantity that a column of the kind's own becomes.
    histograms: those of each subject, by its row.
    unpaired: series whose pair is not in the layout.
    """
    essential = {column: quantity for column in {*families.values(), *(cell.column for cell in cells)}
                 if (quantity := feeds.get(column, column)) in ESSENTIAL}  # fmt: skip
    wanted = tuple(Wanted(cell.series, cell.row, Quantity(essential[cell.column])) for cell in cells
                   if cell.column in essential)  # fmt: skip
    units = {cell.series: cell.unit for cell in cells}
    watch = {item.series: item.int32 for item in watched}
    series = sorted(units.keys() | watch.keys())
    position = {index: number for number, index in enumerate(series)}
    checked = tuple(units.get(index, _ANYTHING) for index in series)
    columns = tuple(dict.fromkeys(cell.column for cell in cells))
    used: dict[int, set[int]] = {}
    for cell in cells:
        used.setdefault(cell.row, set()).add(cell.series)
    members = [sorted(used.get(row) or timed[row]) for row in range(len(subjects))]
    return ReadPlan(
        kind=kind,
        subjects=tuple(subjects),
        columns=columns,
        series=np.array(series, dtype=np.int64),
        units=checked,
        low=np.array([unit.low for unit in checked]),
        high=np.array([unit.high for unit in checked]),
        per=np.array([unit.per for unit in checked]),
        cap=np.array([unit.cap for unit in checked]),
        int32=np.array([watch.get(index, False) for index in series], dtype=np.bool_),
        marked=np.array([index in watch for index in series], dtype=np.bool_),
        mark_from=np.array([_LOWEST_MARK[watch.get(index)] for index in series]),
        maybe_percent=np.array([position[index] for index in maybe_percent], dtype=np.int64),
        groups=_groups(cells, position, columns, len(subjects)),
        members=np.array([index for row in members for index in row], dtype=np.int64),
        first=np.cumsum([0, *(len(row) for row in members)], dtype=np.int64)[:-1],
        finish=finish,
        wanted=wanted,
        wanted_series=np.array([each.series for each in wanted], dtype=np.int64),
        wanted_low=np.array([units[each.series].low for each in wanted]),
        wanted_high=np.array([units[each.series].high for each in wanted]),
        families={name: Quantity(essential[column]) for name, column in families.items() if column in essential},
        histograms=histograms,
        unpaired=tuple(unpaired),
    )


_ANYTHING = Unit(low=-np.inf)


def _groups(
    cells: Sequence[Cell], position: Mapping[int, int], columns: Sequence[str], rows: int
) -> tuple[_CombineGroup, ...]:
    groups = []
    for combine in dict.fromkeys(cell.combine for cell in cells):
        parts: dict[int, list[int]] = {}
        for cell in cells:
            if cell.combine is combine:
                flat = columns.index(cell.column) * rows + cell.row
                parts.setdefault(flat, []).append(position[cell.series])
        sizes = [len(part) for part in parts.values()]
        groups.append(
            _CombineGroup(
                combine=combine,
                of=np.array([index for part in parts.values() for index in part], dtype=np.int64),
                starts=np.cumsum([0, *sizes], dtype=np.int64)[:-1],
                sizes=np.array(sizes, dtype=np.float64),
                into=np.array(list(parts), dtype=np.int64),
            )
        )
    return tuple(groups)
