"""Compares each target's counters with the checkpoint after a restart, to prove that no request was served. Pure.

A target with the same counters as in the checkpoint has finished nothing meanwhile. One with higher counters has; so
has one with falling counters, because its engine was restarted, and one that is not in the checkpoint and has counted
something. Only if all targets of the checkpoint have the same counters has a workload rested.

Worked example: before a restart two pods of workload 0 had finished 40 and 7 requests. After it they have 40 and 7: the
workload has rested. With 8 or 0 for the second, or without a response of it, there is no proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from exporter.model import Floats, Target, WorkloadKey, without_user_info
from scaler.columns import ROW, Array, Columns, Mask, Rows

from .slots import Slots

KEY_BYTES = 16


def page_key(target: Target, workload: WorkloadKey) -> Array:
    """The key of a target in a checkpoint, shape (16,): its URL may hold a password, and may be long."""
    parts = (*workload, target.role, *(target.pod or ("", "")), without_user_info(target.url))
    digest = blake2b("\0".join(parts).encode(), digest_size=KEY_BYTES).digest()
    return np.frombuffer(digest, dtype=np.uint8)


def page_table(slots: Slots, first: int, last: int) -> dict[str, Array]:
    """A table of the counters of every target of the workloads `first` to `last` (exclusive) that has any."""
    kept = np.flatnonzero((slots.owner >= first) & (slots.owner < last) & ~np.isnan(slots.counters).all(axis=1))
    return {ROW: slots.owner[kept] - first, "key": slots.key[kept], "counters": slots.counters[kept]}


def key_table(keyed: Sequence[tuple[int, bytes]]) -> dict[str, Array]:
    """A table of rows of workloads, each with a key."""
    keys = np.frombuffer(b"".join(key for _, key in keyed), dtype=np.uint8).reshape(-1, KEY_BYTES)
    return {ROW: np.array([row for row, _ in keyed], dtype=np.int64), "key": keys}


def keys_of(table: Columns, rows: Rows, source_rows: Rows) -> tuple[Rows, list[bytes]]:
    """The keys of the workloads `source_rows` in a table, and for each the one of `rows` it belongs to; none if the
    table is malformed.
    """
    key = table.get("key")
    if key is None or key.dtype != np.uint8 or key.shape[1:] != (KEY_BYTES,):
        return np.empty(0, dtype=np.int64), []
    row_of = dict(zip(source_rows.tolist(), rows.tolist(), strict=True))
    found = [(row_of[row], each.tobytes()) for row, each in zip(table[ROW].tolist(), key, strict=True) if row in row_of]
    return np.array([row for row, _ in found], dtype=np.int64), [each for _, each in found]


class RestartProof:
    """The targets of a checkpoint, of a fixed list of workloads, that have not answered yet."""

    def __init__(self, rows: int) -> None:
        self._counters: dict[tuple[int, bytes], Floats] = {}
        self._left = np.zeros(rows, dtype=np.int64)
        self._pending = np.zeros(rows, dtype=np.bool_)

    def expect(self, pages: Columns, width: int, rows: Rows, source_rows: Rows) -> None:
        """Takes the targets of a checkpoint. If the table is malformed, there will be no proof.

        pages: a table with `row`, `key` and `counters`, the last of shape (targets, width).
        """
        key, counters = pages.get("key"), pages.get("counters")
        if key is None or key.dtype != np.uint8 or key.shape[1:] != (KEY_BYTES,):
            return
        if counters is None or counters.dtype.kind != "f" or counters.shape[1:] != (width,):
            return
        row_of = dict(zip(source_rows.tolist(), rows.tolist(), strict=True))
        valid = np.where(counters >= 0.0, counters, np.nan)
        for source_row, name, values in zip(pages[ROW].tolist(), key, valid, strict=True):
            row = row_of.get(source_row)
            # A target without a counter proves nothing either way.
            if row is not None and not np.isnan(values).all():
                self._counters[row, name.tobytes()] = values
                self._left[row] += 1
                self._pending[row] = True

    def adopt(self, other: RestartProof, rows: Rows, source_rows: Rows) -> None:
        """Takes over the targets that another list of workloads waits for."""
        self._left[rows], self._pending[rows] = other._left[source_rows], other._pending[source_rows]
        row_of = dict(zip(source_rows.tolist(), rows.tolist(), strict=True))
        waiting = ((row_of.get(row), key, counters) for (row, key), counters in other._counters.items())
        self._counters.update({(row, key): counters for row, key, counters in waiting if row is not None})

    def pending(self, row: int) -> bool:
        """Whether a proof for this workload is still pending."""
        return bool(self._pending[row])

    def meet(self, slots: Slots, slot: int, counters: Floats) -> bool:
        """Compares a target's first response with the checkpoint. Returns False unless it has served nothing since.

        counters: its counters now; NaN unknown. The slot gets those of the checkpoint, from which it goes on.
        """
        if not np.isnan(slots.counters[slot]).all():
            return True  # not the first response
        row = int(slots.owner[slot])
        before = self._counters.pop((row, slots.key[slot].tobytes()), None)
        if before is None:
            return not (counters > 0.0).any()
        self._left[row] -= 1
        if not (np.isnan(before) | (counters >= before)).all():
            return False
        slots.counters[slot] = before
        return True

    def rested(self, rows: Rows) -> Mask:
        """For which workloads every target of the checkpoint has answered."""
        done: Mask = self._pending[rows] & (self._left[rows] == 0)
        return done

    def give_up(self, rows: Rows) -> None:
        """Ends the proof of these workloads."""
        gone = set(rows[self._pending[rows]].tolist())
        if gone:
            self._pending[list(gone)], self._left[list(gone)] = False, 0
            self._counters = {key: counters for key, counters in self._counters.items() if key[0] not in gone}
