"""Proof that nothing happened while nobody looked: pages whose counters are remembered from before a gap.

A page that answers with the counters it had has finished nothing meanwhile. One that has more has; so has one whose
counters fell, because its engine began anew, and one that nobody remembers and that has already counted something. Only
a workload of which every remembered page has answered so is known to have rested. It knows keys and numbers, and no
page, no time and no policy.

Worked example: before a restart two pods of workload 0 had finished 40 and 7 requests. After it they say 40 and 7: the
workload has rested. Had the second said 8, or 0, or had it not come back, it could not be told.
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
    """A page as a snapshot names it, shape (16,): its URL may hold a password, and may be long."""
    words = (*workload, target.role, *(target.pod or ("", "")), without_user_info(target.url))
    digest = blake2b("\0".join(words).encode(), digest_size=KEY_BYTES).digest()
    return np.frombuffer(digest, dtype=np.uint8)


def page_table(slots: Slots, first: int, last: int) -> dict[str, Array]:
    """The counters of every page of the workloads `first` to `last` (not that one) that has any, as a table."""
    kept = np.flatnonzero((slots.owner >= first) & (slots.owner < last) & ~np.isnan(slots.counters).all(axis=1))
    return {ROW: slots.owner[kept] - first, "key": slots.key[kept], "counters": slots.counters[kept]}


def key_table(keyed: Sequence[tuple[int, bytes]]) -> dict[str, Array]:
    """Slots of workloads, and a key of each, as a table."""
    keys = np.frombuffer(b"".join(key for _, key in keyed), dtype=np.uint8).reshape(-1, KEY_BYTES)
    return {ROW: np.array([row for row, _ in keyed], dtype=np.int64), "key": keys}


def keys_of(table: Columns, rows: Rows, others: Rows) -> tuple[Rows, list[bytes]]:
    """Whose of own `rows` the keys are that a table has of the workloads `others`, and the keys; none of what does not
    fit.
    """
    key = table.get("key")
    if key is None or key.dtype != np.uint8 or key.shape[1:] != (KEY_BYTES,):
        return np.empty(0, dtype=np.int64), []
    place = dict(zip(others.tolist(), rows.tolist(), strict=True))
    found = [(place[row], each.tobytes()) for row, each in zip(table[ROW].tolist(), key, strict=True) if row in place]
    return np.array([row for row, _ in found], dtype=np.int64), [each for _, each in found]


class RestartProof:
    """The pages of a fixed list of workloads that are remembered and have not answered yet."""

    def __init__(self, rows: int) -> None:
        self._counters: dict[tuple[int, bytes], Floats] = {}
        self._left = np.zeros(rows, dtype=np.int64)
        self._pending = np.zeros(rows, dtype=np.bool_)

    def expect(self, pages: Columns, counters: int, rows: Rows, others: Rows) -> None:
        """pages: a table with `row`, `key` and `counters`, shape (pages, `counters`). Nothing is awaited of what does
        not fit, so its workloads will not be known to have rested.
        """
        key, said = pages.get("key"), pages.get("counters")
        if key is None or key.dtype != np.uint8 or key.shape[1:] != (KEY_BYTES,):
            return
        if said is None or said.dtype.kind != "f" or said.shape[1:] != (counters,):
            return
        place = dict(zip(others.tolist(), rows.tolist(), strict=True))
        counted = np.where(said >= 0.0, said, np.nan)
        for theirs, name, values in zip(pages[ROW].tolist(), key, counted, strict=True):
            row = place.get(theirs)
            # A page without a counter proves nothing either way.
            if row is not None and not np.isnan(values).all():
                self._counters[row, name.tobytes()] = values
                self._left[row] += 1
                self._pending[row] = True

    def adopt(self, other: RestartProof, rows: Rows, others: Rows) -> None:
        """Go on waiting for what another list of workloads waited for."""
        self._left[rows], self._pending[rows] = other._left[others], other._pending[others]
        place = dict(zip(others.tolist(), rows.tolist(), strict=True))
        waiting = ((place.get(row), key, said) for (row, key), said in other._counters.items())
        self._counters.update({(row, key): said for row, key, said in waiting if row is not None})

    def pending(self, row: int) -> bool:
        """Is it still to be known whether this workload has rested?"""
        return bool(self._pending[row])

    def meet(self, slots: Slots, slot: int, said: Floats) -> bool:
        """A page comes, and goes on from the counters it had before the gap. said: what it says now; NaN is nothing.

        False is: it has been at work since, as far as can be told.
        """
        if not np.isnan(slots.counters[slot]).all():
            return True  # it has come before
        row = int(slots.owner[slot])
        before = self._counters.pop((row, slots.key[slot].tobytes()), None)
        if before is None:
            return not (said > 0.0).any()
        self._left[row] -= 1
        if not (np.isnan(before) | (said >= before)).all():
            return False
        slots.counters[slot] = before
        return True

    def rested(self, rows: Rows) -> Mask:
        """Of which workloads every remembered page has answered."""
        done: Mask = self._pending[rows] & (self._left[rows] == 0)
        return done

    def give_up(self, rows: Rows) -> None:
        """It is known, or will not be any more."""
        gone = set(rows[self._pending[rows]].tolist())
        if gone:
            self._pending[list(gone)], self._left[list(gone)] = False, 0
            self._counters = {place: said for place, said in self._counters.items() if place[0] not in gone}
