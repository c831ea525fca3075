"""Holds the state of some workloads as columns with names.

Every part with state has `columns()`, names to arrays with one slot per workload on the first axis, and
`take(columns, rows, source_rows)`, which copies the slots `source_rows` of other columns into its slots `rows`. Those
columns are of the part before a reload, of a checkpoint, or of another replica, of this version or a neighbouring one:
an unknown name is skipped; one that is missing, or has another shape, leaves its slots as they were.

State of something else than a workload (a target's counters) is a table: columns of one length;
`row` has the workload of each entry.

The last word of a column's name says when it holds times: `at`, `since`, `until` and `times` are POSIX seconds, so that
a state can be moved to another clock without knowing what its columns are for.

State belongs to a workload and its scale target together: what was measured and learned of one Deployment says nothing
about another, so a workload with a new scale target shares no state with the one before.

Worked example: the columns of two workloads, `memory.replicas` [3, 0] and `memory.idle_since` [nan, 100.0], taken by
another list of them with `rows` [1] and `source_rows` [0]: its second workload had 3 replicas and is not idle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from exporter.model import Floats, WorkloadKey

Array: TypeAlias = NDArray[Any]
Columns: TypeAlias = Mapping[str, Array]
Rows: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
Identity: TypeAlias = tuple[WorkloadKey, str]  # a workload and its scale target; "" is: the target is not known

ROW = "row"
_UNTIL = "until"
_TIMES = frozenset({"at", "since", _UNTIL, "times"})
# No time that is remembered is older, and no end further ahead: 50 years, a week.
_OLDEST_S = 50 * 365 * 86400.0
_AHEAD_S = 7 * 86400.0  # the longest verdict of `scaler.signals.activity`


@dataclass(frozen=True, slots=True)
class State:
    """State at one moment.

    at:        POSIX seconds of that moment.
    workloads: the workload of each slot.
    columns:   names to arrays of shape (len(workloads), …).
    tables:    names to columns of one length per table; `row` is the slot of the entry's workload.
    targets:   the scale target of each workload, as `Deployment/chat`; "" where it was not known. Empty: not recorded,
               as by versions that did not write it.
    """

    at: float
    workloads: tuple[WorkloadKey, ...]
    columns: Columns
    tables: Mapping[str, Columns] = field(default_factory=dict)
    targets: tuple[str, ...] = ()

    @property
    def identities(self) -> tuple[Identity, ...]:
        """Each workload with its scale target, in the order of `workloads`."""
        return tuple(zip(self.workloads, self.targets or ("",) * len(self.workloads), strict=True))

    def copied(self) -> State:
        """A copy that does not change any more: columns are live until they are copied."""
        return replace(self, columns=_copied(self.columns), tables={n: _copied(t) for n, t in self.tables.items()})

    def only(self, workloads: Collection[WorkloadKey]) -> State:
        """The state of these workloads alone."""
        return self._of([row for row, key in enumerate(self.workloads) if key in workloads])

    def without(self, workloads: Collection[WorkloadKey]) -> State:
        """The state of all other workloads."""
        return self._of([row for row, key in enumerate(self.workloads) if key not in workloads])

    def _of(self, chosen: Sequence[int]) -> State:
        if len(chosen) == len(self.workloads):
            return self
        rows = np.array(chosen, dtype=np.int64)
        positions = np.full(len(self.workloads), -1, dtype=np.int64)
        positions[rows] = np.arange(len(rows))
        return State(
            at=self.at,
            workloads=tuple(self.workloads[row] for row in chosen),
            columns={name: column[rows] for name, column in self.columns.items()},
            tables={name: _chosen(table, positions) for name, table in self.tables.items()},
            targets=tuple(self.targets[row] for row in chosen) if self.targets else (),
        )


def _copied(columns: Columns) -> Columns:
    return {name: column.copy() for name, column in columns.items()}


def _chosen(table: Columns, positions: Rows) -> Columns:
    kept = positions[table[ROW]] >= 0
    return {name: positions[column[kept]] if name == ROW else column[kept] for name, column in table.items()}


def zero_if_unknown(values: Floats) -> Floats:
    """The values with 0 for NaN, for a sum of what is known; `np.nan_to_num` looks for infinities too, and takes five
    times as long.
    """
    return np.where(np.isnan(values), 0.0, values)


def named(prefix: str, columns: Columns) -> dict[str, Array]:
    """The columns with the prefix of one component: `named("memory", {"replicas": …})` has `memory.replicas`."""
    return {f"{prefix}.{name}": column for name, column in columns.items()}


class Identities:
    """A fixed list of workloads with the scale targets that their state is of.

    A scale target that is not known (any more) is the last one that was.
    """

    def __init__(self, workloads: Sequence[WorkloadKey], targets: Sequence[str]) -> None:
        self._workloads, self.targets = tuple(workloads), list(targets)

    @property
    def all(self) -> tuple[Identity, ...]:
        return tuple(zip(self._workloads, self.targets, strict=True))

    def keep(self, source: Sequence[Identity], rows: Rows, other_rows: Rows) -> None:
        """Sets the unknown scale targets of `rows` to those of the state that was copied into them."""
        for row, other in zip(rows.tolist(), other_rows.tolist(), strict=True):
            self.targets[row] = self.targets[row] or source[other][1]


def pairs(identities: Sequence[Identity], source: Sequence[Identity]) -> tuple[Rows, Rows]:
    """Rows of the workloads that both lists have with the same scale target: in the first list, and in the second.

    A target that is not known matches any: a configured workload is known before the ScaledObject that scales it is
    listed, and an older version wrote no target.
    """
    positions = {workload: (row, target) for row, (workload, target) in enumerate(source)}
    both = []
    for row, (workload, target) in enumerate(identities):
        other_row, other_target = positions.get(workload, (-1, ""))
        if other_row >= 0 and (target == other_target or not target or not other_target):
            both.append((row, other_row))
    rows, theirs = np.array(both, dtype=np.int64).reshape(-1, 2).T
    return rows, theirs


def fitting(columns: Columns, name: str, like: Array) -> Array | None:
    """Returns the column of that name if it has the kind and the shape per row of `like`, else None."""
    column = columns.get(name)
    if column is None or column.shape[1:] != like.shape[1:] or column.dtype.kind != like.dtype.kind:
        return None
    return column


def copy_into(target: Columns, columns: Columns, rows: Rows, source_rows: Rows) -> None:
    """Copies `source_rows` of the columns into `rows` of the arrays of the same name, where they fit."""
    for name, mine in target.items():
        theirs = fitting(columns, name, mine)
        if theirs is not None:
            mine[rows] = theirs[source_rows]


def translated(state: State, by_s: float) -> State:
    """The same state on a clock that is `by_s` seconds ahead."""

    def moved(columns: Columns) -> Columns:
        return {name: column + by_s if _is_time(name, column) else column for name, column in columns.items()}

    tables = {name: moved(table) for name, table in state.tables.items()}
    return State(state.at + by_s, state.workloads, moved(state.columns), tables, state.targets)


def plausible(state: State, now: float) -> State:
    """The same state without values that no version writes: an infinity would decide the maximum.

    An infinity, and a time of more than 50 years ago, become NaN; a time from after `now` becomes `now`, and an end
    that is more than a week ahead becomes the week. now: POSIX seconds.
    """

    def checked(columns: Columns) -> Columns:
        return {name: _plausible(name, column, now) for name, column in columns.items()}

    tables = {name: checked(table) for name, table in state.tables.items()}
    return replace(state, columns=checked(state.columns), tables=tables)


def _plausible(name: str, column: Array, now: float) -> Array:
    if column.dtype.kind != "f":
        return column
    unknown = np.isinf(column)
    if not _is_time(name, column):
        return np.where(unknown, np.nan, column) if unknown.any() else column
    latest = now + _AHEAD_S if _last_word(name) == _UNTIL else now
    unknown |= column < now - _OLDEST_S
    return np.where(unknown, np.nan, np.minimum(column, latest))


def _is_time(name: str, column: Array) -> bool:
    return _last_word(name) in _TIMES and column.dtype.kind == "f"


def _last_word(name: str) -> str:
    return name.replace(".", "_").rpartition("_")[2]
