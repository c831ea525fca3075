"""A page's layout, compiled: which series is which cell. Once compiled, reading a page is a dozen NumPy calls.

`build` takes cells ("series 17 adds, in MiB, to column memory_used of row 3") and sorts them so that each way of
combining is one `reduceat`. `Plan.read` then checks all values at once, combines, and only when something is not
believed goes back to names and line numbers, to say why. It knows no vendor but DCGM's marks for "no value", because
a mark explains itself better than "outside 0..100".

Worked example: cells (series 0 → row 0, sum), (series 1 → row 0, sum), values [3, 4] → column [7].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from exporter.model import Dropped, Floats, Quantity, Samples, Subject
from exporter.textformat import Page

from .schema import Columns, Combine, Finish, Unit

Indices: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]

# DCGM prints integers and doubles that mean "blank", "not found", "not supported" or "no permission" (go-dcgm
# const.go). The int64 ones are just under 2**63 and as a float all of them are 2**63: compare with >=, never ==.
INT64_MARKS = (9.2e18, 9.3e18)
INT32_MARKS = (2147483632.0, 2147483635.0)
FP64_MARKS = (140737488355328.0, 140737488355331.0)
# A ratio printed as a percentage, where the family's name does not tell: only a value above what a ratio can be does.
SURELY_PERCENT = 1.5
_QUANTITIES = tuple(Quantity)


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


# What decides about replicas and idleness: requests in hand, the counters whose rise is activity, GPU activity.
ESSENTIAL = frozenset(
    {
        Quantity.REQUESTS_WAITING,
        Quantity.REQUESTS_RUNNING,
        Quantity.REQUESTS_HELD,
        Quantity.REQUESTS_FINISHED,
        Quantity.REQUESTS_FAILED,
        Quantity.TOKENS_PROMPT,
        Quantity.TOKENS_GENERATED,
        Quantity.KV_CACHE_USED,
        Quantity.GPU_ENGINE_ACTIVE,
        Quantity.GPU_UTILIZATION,
    }
)


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
    """How to read pages of one layout. Built by `build`; the arrays run over the checked series."""

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
    marked: Mask  # DCGM's series: the ones that may carry a mark
    unsure: Indices  # positions of ratios that may be percentages
    groups: tuple[_CombineGroup, ...]
    members: Indices  # series whose own times count, by row, cut at `first`
    first: Indices
    finish: Finish
    wanted: tuple[Wanted, ...]
    wanted_series: Indices
    wanted_low: Floats
    wanted_high: Floats
    families: Mapping[str, Quantity]  # the families of ESSENTIAL quantities, whether or not the layout has them

    def read(self, page: Page, received_at: float) -> Samples:
        """What the page says. `received_at`: POSIX seconds, for series without a time of their own."""
        seen = page.values[self.series]
        clean, good = self._clean(seen)
        columns, subjects = self.finish(self._combine(clean, _reduce), self.subjects)
        quantities = tuple(quantity for quantity in _QUANTITIES if quantity in columns)
        values = np.empty((len(subjects), len(quantities)))
        for place, quantity in enumerate(quantities):
            values[:, place] = columns[quantity]
        return Samples(
            kind=self.kind,
            subjects=subjects,
            quantities=quantities,
            values=values,
            at=self._measured(page, received_at),
            dropped=page.dropped if good.all() else self._dropped(page, seen, good),
        )

    def lower_bounds(self, page: Page) -> Columns:
        """Each quantity of the page with the series left out that have no valid value: NaN if none of a sum has."""
        clean, _ = self._clean(page.values[self.series])
        return self.finish(self._combine(clean, _reduce_known), self.subjects)[0]

    def is_wrong(self, place: int, value: float) -> bool:
        """Whether a value of `wanted[place]` is a number that cannot be true, rather than a mark for "no value"."""
        int32 = self.int32[np.searchsorted(self.series, self.wanted_series[place])]
        return not np.isnan(value) and not is_mark(np.array([value]), np.array([int32]))[0]

    def _clean(self, seen: Floats) -> tuple[Floats, Mask]:
        """Values in our units, NaN where one is not valid; and which are."""
        marks = self.marked & is_mark(seen, self.int32)
        good = (seen >= self.low) & (seen <= self.high) & ~marks
        clean = np.where(good, seen, np.nan)
        doubtful = clean[self.unsure]
        if (doubtful > SURELY_PERCENT).any():
            clean[self.unsure] = doubtful / 100.0
        return np.minimum(clean / self.per, self.cap), good

    def _combine(self, clean: Floats, reduce: Callable[[_CombineGroup, Floats], Floats]) -> Columns:
        table = np.full(len(self.subjects) * len(self.columns), np.nan)
        for group in self.groups:
            table[group.into] = reduce(group, clean[group.of])
        return dict(zip(self.columns, table.reshape(len(self.columns), len(self.subjects)), strict=True))

    def _measured(self, page: Page, received_at: float) -> Floats:
        own = page.at[self.members]
        if np.isnan(own).all():
            return np.full(len(self.subjects), received_at)
        oldest = np.fmin.reduceat(own, self.first)
        return np.where(np.isnan(oldest), received_at, oldest)

    def _dropped(self, page: Page, seen: Floats, good: Mask) -> tuple[Dropped, ...]:
        names = page.layout.names
        ours = [
            Dropped(int(page.lines[self.series[i]]), self._reason(names[self.series[i]], float(seen[i]), int(i)))
            for i in np.flatnonzero(~good)
        ]
        return tuple(sorted([*page.dropped, *ours]))

    def _reason(self, name: str, value: float, position: int) -> str:
        if np.isnan(value):
            return f"{name}: no value (NaN)"
        if self.marked[position] and is_mark(np.array([value]), self.int32[position : position + 1])[0]:
            return f"{name}: {_written(value)} is DCGM's 'no value' mark"
        unit = self.units[position]
        return f"{name}: {_written(value)} is outside {_written(unit.low)}..{_written(unit.high)}"


def is_mark(values: Floats, int32: Mask) -> Mask:
    """DCGM's ways to say "no value". `int32`: where a true value cannot be as large as the int32 marks."""
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


def _reduce_known(group: _CombineGroup, values: Floats) -> Floats:
    """As `_reduce`, but a sum is that of its valid parts."""
    if group.combine is not Combine.SUM:
        return _reduce(group, values)
    known = ~np.isnan(values)
    sums = np.add.reduceat(np.where(known, values, 0.0), group.starts)
    return np.where(np.logical_or.reduceat(known, group.starts), sums, np.nan)


def _written(value: float) -> str:
    """A number as a person would write it: 9.22e18, 4294967295, -1, 1.5."""
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
    unsure: Sequence[int] = (),
    families: Mapping[str, str] = MappingProxyType({}),
    feeds: Mapping[str, str] = MappingProxyType({}),
) -> ReadPlan:
    """Sort cells into a Plan.

    timed:   for rows that may have no cell, the series whose times count.
    watched: DCGM's series; those that are cells too keep their cell's range.
    unsure:  series that are ratios or percentages.
    families: the column of each family that the kind knows.
    feeds:   the quantity that a column of the kind's own becomes.
    """
    essential = {column: quantity for column in {*families.values(), *(cell.column for cell in cells)}
                 if (quantity := feeds.get(column, column)) in ESSENTIAL}  # fmt: skip
    wanted = tuple(Wanted(cell.series, cell.row, Quantity(essential[cell.column])) for cell in cells
                   if cell.column in essential)  # fmt: skip
    units = {cell.series: cell.unit for cell in cells}
    watch = {item.series: item.int32 for item in watched}
    series = sorted(units.keys() | watch.keys())
    position = {index: place for place, index in enumerate(series)}
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
        unsure=np.array([position[index] for index in unsure], dtype=np.int64),
        groups=_groups(cells, position, columns, len(subjects)),
        members=np.array([index for row in members for index in row], dtype=np.int64),
        first=np.cumsum([0, *(len(row) for row in members)], dtype=np.int64)[:-1],
        finish=finish,
        wanted=wanted,
        wanted_series=np.array([each.series for each in wanted], dtype=np.int64),
        wanted_low=np.array([units[each.series].low for each in wanted]),
        wanted_high=np.array([units[each.series].high for each in wanted]),
        families={name: Quantity(essential[column]) for name, column in families.items() if column in essential},
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
                of=np.array([place for part in parts.values() for place in part], dtype=np.int64),
                starts=np.cumsum([0, *sizes], dtype=np.int64)[:-1],
                sizes=np.array(sizes, dtype=np.float64),
                into=np.array(list(parts), dtype=np.int64),
            )
        )
    return tuple(groups)
