"""Stores the missing series of every target, and hands those of a checkpoint back to the readers. Pure.

A reader knows which series its target has exposed before (see `exporter.catalog.completeness`). After a restart, or on
another replica, its first response would look complete. So a checkpoint holds what was missing, in a table with one row
per series, and the reader of that target gets it before its first response. Until the target has answered, the series
is *pending* and goes into every new checkpoint as it was.

A GPU that has lost its pod label is stored likewise: it is still its last pod's.

A target is named by a digest, because its URL may hold a password. A row belongs to the workload of its target, or to
the workload of the pods with the GPU.

Bounds: a row has at most 1,024 bytes of identity and 65 bytes of other columns. A target has at most 32 rows
(`MAX_STORED`). A part of a checkpoint (1,000 workloads), or a frame for a follower, has at most 4,096: 4.5 MB beside
10 MB of columns. If there are more, each workload keeps its first one before any keeps a second one.

Worked example: a pod of `chat` has exposed no queue of engine 1 since 1000.0. The checkpoint has one row of it, with
`at` 1000.0. After the restart the first response without engine 1 is incomplete, as those before it were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from math import isfinite, nan
from typing import NamedTuple

import numpy as np

from exporter.attribution import Owners
from exporter.catalog.missing_series import MAX_IDENTITY_BYTES, MAX_STORED
from exporter.model import MissingSeries, Target, WorkloadKey
from scaler.columns import ROW, Array, Columns, Rows

from .restart_proof import KEY_BYTES, page_key

MAX_ROWS = 4096
# Of all targets that have not answered: 36 MB. Only checkpoints of ever changing targets have more.
MAX_PENDING = 32_768
# A target that has not answered for so long has been deleted.
FORGOTTEN_AFTER_S = 7 * 86_400.0
_NO_WORKLOAD = WorkloadKey("", "", "")
_FLOATS = ("value", "at", "gone_since", "pending_since", "process_start")


class _Pending(NamedTuple):
    """since: POSIX seconds of the restart; NaN if there was none, as on a reload."""

    workload: WorkloadKey
    series: MissingSeries
    since: float


class OpenGaps:
    """The missing series of a replica's targets."""

    def __init__(self) -> None:
        self._open: dict[Target, tuple[MissingSeries, ...]] = {}
        self._pending: dict[bytes, dict[bytes, _Pending]] = {}  # target -> identity
        self._targets: dict[bytes, Target] = {}  # those that have a reader
        self._pending_rows = 0
        self._due: dict[bytes, None] = {}  # of them, those with new pending series

    def begin(self, target: Target) -> list[MissingSeries]:
        """A target gets a reader. Returns the series that were missing before."""
        key = _key(target)
        self._targets[key] = target
        self._due.pop(key, None)
        return self._series(key)

    def take_due(self) -> list[tuple[Target, list[MissingSeries]]]:
        """Returns series that have become pending of targets that had a reader already."""
        due, self._due = self._due, {}
        return [(self._targets[key], self._series(key)) for key in due if key in self._targets]

    def pending(self, target: Target) -> list[MissingSeries]:
        """The series of a target that are pending."""
        return self._series(_key(target)) if self._pending else []

    def land(self, target: Target, missing: tuple[MissingSeries, ...]) -> None:
        """A response of a target: these are missing now, and what was pending is in them or is not missing."""
        if missing:
            self._open[target] = missing
        else:
            self._open.pop(target, None)
        if self._pending:
            key = _key(target)
            if key not in self._due and key in self._pending:
                self._drop(key)

    def retire(self, target: Target) -> None:
        """A target is not there any more: its gaps are closed."""
        self._open.pop(target, None)
        self._targets.pop(_key(target), None)

    def table(self, first: int, last: int, row_of: Mapping[WorkloadKey, int], owners: Owners) -> dict[str, Array]:
        """Returns the missing series of the workloads in rows `first` to `last` (exclusive); empty if there is none."""
        found, of_workload = [], Counter[int]()
        for workload, key, series, since in self._entries(owners):
            row = row_of.get(workload, -1)
            if first <= row < last:
                found.append((of_workload[row], row - first, key, series, since))
                of_workload[row] += 1
        if not found:
            return {}
        found.sort(key=lambda each: each[0])
        kept = found[:MAX_ROWS]
        longest = max(len(series.identity) for *_, series, _ in kept)
        identities = b"".join(series.identity.ljust(longest, b"\0") for *_, series, _ in kept)
        floats = [(s.value, s.at, s.gone_since, since, s.process_start) for *_, s, since in kept]
        return {
            ROW: np.array([row for _, row, *_ in kept], dtype=np.int64),
            "key": np.frombuffer(b"".join(key for _, _, key, *_ in kept), dtype=np.uint8).reshape(-1, KEY_BYTES),
            "identity": np.frombuffer(identities, dtype=np.uint8).reshape(-1, longest),
            "had_mates": np.array([series.had_mates for *_, series, _ in kept], dtype=np.bool_),
            **dict(zip(_FLOATS, np.array(floats, dtype=np.float64).T.copy(), strict=True)),
        }

    def take(self, table: Columns, workloads: Sequence[WorkloadKey], source_rows: Rows, now: float) -> None:
        """Makes the series of a checkpoint pending. A row that no version writes is dropped.

        workloads: the local workload for each of the table's workloads `source_rows`. now: POSIX seconds; infinite on a
        reload.
        """
        if not _fits(table):
            return
        workload_of = dict(zip(source_rows.tolist(), workloads, strict=True))
        since_of = now if isfinite(now) else nan
        columns = (table[ROW], table["had_mates"], *(table[name] for name in _FLOATS))
        numbers = zip(*(column[:MAX_ROWS].tolist() for column in columns), strict=True)
        for number, (row, had_mates, value, at, gone_since, pending_since, start) in enumerate(numbers):
            since = since_of if np.isnan(pending_since) else pending_since
            workload = workload_of.get(row)
            forgotten = isfinite(now) and now - since > FORGOTTEN_AFTER_S
            identity = table["identity"][number].tobytes().rstrip(b"\0")
            if workload is None or not identity or not isfinite(at) or forgotten:
                continue
            series = MissingSeries(identity, (), value if value >= 0.0 else nan, at, gone_since, had_mates, start)
            self._add(table["key"][number].tobytes(), _Pending(workload, series, since))

    def _add(self, key: bytes, pending: _Pending) -> None:
        of_target = self._pending.setdefault(key, {})
        identity = pending.series.identity
        if identity not in of_target:
            if len(of_target) >= MAX_STORED:
                return
            self._pending_rows += 1
        of_target[identity] = pending
        target = self._targets.get(key)
        if target is not None and all(each.identity != identity for each in self._open.get(target, ())):
            self._due[key] = None
        while self._pending_rows > MAX_PENDING:
            self._drop(next(iter(self._pending)))

    def _drop(self, key: bytes) -> None:
        self._pending_rows -= len(self._pending.pop(key))

    def _series(self, key: bytes) -> list[MissingSeries]:
        return [pending.series for pending in self._pending.get(key, {}).values()]

    def _entries(self, owners: Owners) -> Iterator[tuple[WorkloadKey, bytes, MissingSeries, float]]:
        """Each series with its workload and the key of its target, and since when it is pending."""
        # The first ones of a target matter most. With gaps in thousands of targets the event loop has no time for all.
        most = min(MAX_STORED, max(1, 2 * MAX_ROWS // max(1, len(self._open))))
        for target, missing in self._open.items():
            key = _key(target)
            for series in islice(missing, most):
                yield from ((workload, key, series, nan) for workload in _workloads(target, series, owners))
        for key, of_target in self._pending.items():
            yield from ((each.workload, key, each.series, each.since) for each in of_target.values())


def _key(target: Target) -> bytes:
    return page_key(target, target.owner or _NO_WORKLOAD).tobytes()


def _workloads(target: Target, series: MissingSeries, owners: Owners) -> Collection[WorkloadKey]:
    if target.owner is not None:
        return (target.owner,)
    return {workload for pod in series.pods for workload in owners(pod, series.at)}


def _fits(table: Columns) -> bool:
    """Whether a table has the columns of `table` above, in their types and shapes."""
    if not table.keys() >= {ROW, "key", "identity", "had_mates", *_FLOATS}:
        return False
    key, identity = table["key"], table["identity"]
    return (
        key.dtype == identity.dtype == np.uint8
        and key.shape[1:] == (KEY_BYTES,)
        and identity.ndim == 2  # noqa: PLR2004 - rows of bytes
        and identity.shape[1] <= MAX_IDENTITY_BYTES
        and table["had_mates"].dtype == np.bool_
        and table["had_mates"].ndim == 1
        and all(table[name].dtype.kind == "f" and table[name].ndim == 1 for name in _FLOATS)
    )
