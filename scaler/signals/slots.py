"""Holds the last reading of every source, side by side, as columns.

A *slot* is what one source says of one workload: an engine's response, a gateway's response, a share of a node's GPUs.
`slot_sums` adds them up per workload.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import isnan

import numpy as np
from numpy.typing import NDArray

from exporter.model import Floats, Quantity, Role
from scaler.columns import Mask, Rows


class Column(IntEnum):
    """What a slot keeps of a page. Counts are sums over the page; ratios are means."""

    WAITING = 0
    RUNNING = 1
    HELD = 2
    KV_CACHE = 3
    READY = 4  # ready backends, as a gateway counts them
    GPU_SUM = 5  # engine activity over the GPUs that are wholly the workload's, each times its share of a whole GPU
    GPU_COUNT = 6  # those GPUs, whatever they say
    GPU_BUSIEST = 7
    GPU_PODS = 8  # pods on those GPUs
    GPU_WEIGHT = 9  # the shares of those that say their engine activity
    GPU_UTILISED = 10  # those of them that say utilisation alone
    GPU_SILENT = 11  # … neither
    GPU_BLIND = 12  # … neither, and did before: paused, or broken
    GPU_LOST = 13  # … neither, since a fatal error: no capacity, and not silent either
    GPU_MEMORY = 14  # bytes held on them
    GPU_CEILING = 15  # what their engine activity may get to, each times its share
    GPU_PARTS = 16  # its pods on GPUs that others share, measured by process
    GPU_LAG = 17  # seconds by which the page may be older than its receipt
    IN_FLIGHT = 18  # requests a gateway has passed on or holds, where it cannot tell which
    SLEEPING = 19  # 1 where an engine of the page is in sleep mode: it serves nobody until somebody wakes it


# Counters whose rise is activity: a request that started and ended between two scrapes moves one of them.
ACTIVITY = (
    Quantity.REQUESTS_FINISHED,
    Quantity.REQUESTS_FAILED,
    Quantity.TOKENS_PROMPT,
    Quantity.TOKENS_GENERATED,
)


@dataclass(slots=True)
class Slots:
    """Structure of arrays over slots; free slots have owner -1."""

    owner: Rows
    role: NDArray[np.int8]
    at: Floats
    values: Floats  # (slots, len(Column)), NaN where the page does not say
    counters: Floats  # (slots, len(ACTIVITY)), the last reading of each, NaN never read
    incomplete: NDArray[np.int8]  # which of its quantities are lower bounds: queue_pages.Incomplete
    waker: NDArray[np.int8]  # what of the page would show a request at zero replicas: queue_pages.Waker
    leaving: Mask  # the page of a pod on its way out: activity, no capacity, and it need not answer
    limit: Floats  # seconds for which its reading is fresh
    key: NDArray[np.uint8]  # (slots, 16), which page it is, as `awaited.page_key` says

    @classmethod
    def empty(cls, size: int) -> Slots:
        return cls(
            owner=np.full(size, -1, dtype=np.int64),
            role=np.zeros(size, dtype=np.int8),
            at=np.full(size, np.nan),
            values=np.full((size, len(Column)), np.nan),
            counters=np.full((size, len(ACTIVITY)), np.nan),
            incomplete=np.zeros(size, dtype=np.int8),
            waker=np.zeros(size, dtype=np.int8),
            leaving=np.zeros(size, dtype=np.bool_),
            limit=np.zeros(size),
            key=np.zeros((size, 16), dtype=np.uint8),
        )

    def clear(self, slot: int) -> None:
        self.owner[slot] = -1
        self.at[slot] = np.nan
        self.values[slot] = np.nan
        self.counters[slot] = np.nan
        self.incomplete[slot] = 0
        self.waker[slot] = 0
        self.leaving[slot] = False

    def grow(self) -> None:
        more = Slots.empty(len(self.owner))
        for name in self.__slots__:
            setattr(self, name, np.concatenate([getattr(self, name), getattr(more, name)]))


ROLE_CODE = {role: code for code, role in enumerate(Role)}
PODS, GATEWAY, GPUS = ROLE_CODE[Role.PODS], ROLE_CODE[Role.GATEWAY], ROLE_CODE[Role.GPUS]

# What of a fresh slot is added up, by its role: ADDED[role, column].
ADDED = np.zeros((len(Role), len(Column)), dtype=np.bool_)
ADDED[PODS, [Column.WAITING, Column.RUNNING, Column.HELD, Column.KV_CACHE, Column.SLEEPING]] = True
ADDED[GATEWAY, [Column.WAITING, Column.RUNNING, Column.HELD, Column.READY, Column.IN_FLIGHT]] = True
ADDED[GPUS, Column.GPU_SUM : Column.GPU_LAG] = True
ADDED[GPUS, Column.GPU_BUSIEST] = False


def sum_of_known(parts: Floats) -> Floats:
    """Sum along the rows over what is known; NaN where nothing is."""
    known = ~np.isnan(parts)
    return np.where(known.any(axis=1), np.where(known, parts, 0.0).sum(axis=1), np.nan)


def known(column: Floats) -> list[float | None]:
    """As a list, None where nothing is known: numbers are taken out of lists, out of arrays it takes much longer."""
    return [None if isnan(value) else value for value in column.tolist()]


def whole(column: Floats) -> list[int | None]:
    """Counts, likewise."""
    return [None if isnan(value) else int(value) for value in column.tolist()]
