"""Holds the last reading of every source, side by side, as columns.

A *slot* is what one source says of one workload: an engine's response, a gateway's response, a share of a node's GPUs.
`slot_sums` adds them up per workload.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, unique
from math import isnan

import numpy as np
from numpy.typing import NDArray

from exporter.model import Floats, Quantity, Role
from scaler.columns import Mask, Rows
from scaler.policy.capacity import WorkRate

from .gpu_usage import USAGE_WIDTH


@unique
class Column(IntEnum):
    """The columns of a slot. Counts are sums over the response; ratios are means."""

    WAITING = 0
    RUNNING = 1
    HELD = 2
    KV_CACHE = 3
    READY = 4  # ready backends, as a gateway counts them
    GPU_SUM = (
        5  # engine activity over the GPUs that are exclusively the workload's, each times its share of a whole GPU
    )
    GPU_COUNT = 6  # those GPUs, whatever they expose
    GPU_BUSIEST = 7
    GPU_PODS = 8  # pods on those GPUs
    GPU_WEIGHT = 9  # the shares of those that expose their engine activity
    GPU_UTILISED = 10  # those of them that expose utilisation alone
    GPU_SILENT = 11  # … neither
    GPU_BLIND = 12  # … neither, and did before: profiling paused, or an exporter failed
    GPU_LOST = 13  # … neither, since a fatal error: no capacity, and not silent either
    GPU_MEMORY = 14  # bytes held on them
    GPU_CEILING = 15  # the maximum of their engine activity, each times its share
    GPU_PARTS = 16  # its pods on GPUs that others share, measured by process
    GPU_WHOLE = 17  # those that are exclusively its, in whole GPUs
    GPU_PRICED = 18  # … of a model with a price
    GPU_HOUR = 19  # money that these cost per hour
    GPU_POWERED = 20  # those that are exclusively its and expose their power
    GPU_WATTS = 21  # the power of these
    GPU_LAG = 22  # seconds by which the readings may be older than their receipt
    IN_FLIGHT = 23  # requests that a gateway has passed on or holds, if it does not tell them apart
    OPEN = 24  # requests that a gateway itself counts as passed on and not ended; 0 if they count as in hand anyway
    SLEEPING = 25  # 1 if an engine of the target is in sleep mode: it serves nothing until it is woken
    UNCOUNTED = 26  # 1 if an engine's target exposes no counters of tokens: no rates
    # The rates of `policy.capacity.WorkRate`, in its order, per second since the response before.
    RATES = 27


# The width of a slot's values, and of what rates are computed from.
WIDTH = int(Column.RATES) + len(WorkRate)
WORK_WIDTH = len(WorkRate) + 3  # each counter, the time of the response, and the two limits of the SLO

# Counters that rise with activity: a request that started and ended between two scrapes moves one of them.
ACTIVITY = (Quantity.REQUESTS_FINISHED, Quantity.REQUESTS_FAILED, Quantity.TOKENS_PROMPT, Quantity.TOKENS_GENERATED)


@dataclass(slots=True)
class Slots:
    """Structure of arrays over slots; free slots have owner -1."""

    owner: Rows
    role: NDArray[np.int8]
    at: Floats
    values: Floats  # (slots, WIDTH), NaN if not exposed
    counters: Floats  # (slots, len(ACTIVITY)), the last reading of each, NaN never read
    work: Floats  # (slots, WORK_WIDTH), what rates are computed from: the response before; NaN none
    incomplete: NDArray[np.int8]  # which of its quantities are lower bounds: queues.Incomplete
    wake_source: NDArray[np.int8]  # which of its series would show a request at zero replicas: queues.WakeSource
    leaving: Mask  # a terminating pod: activity, no capacity, and it need not answer
    limit: Floats  # seconds for which its reading is fresh
    key: NDArray[np.uint8]  # (slots, 16), `restart_proof.page_key`
    usage: Floats  # (slots, USAGE_WIDTH), for profiles; NaN unknown

    @classmethod
    def empty(cls, size: int) -> Slots:
        return cls(
            owner=np.full(size, -1, dtype=np.int64),
            role=np.zeros(size, dtype=np.int8),
            at=np.full(size, np.nan),
            values=np.full((size, WIDTH), np.nan),
            counters=np.full((size, len(ACTIVITY)), np.nan),
            work=np.full((size, WORK_WIDTH), np.nan),
            incomplete=np.zeros(size, dtype=np.int8),
            wake_source=np.zeros(size, dtype=np.int8),
            leaving=np.zeros(size, dtype=np.bool_),
            limit=np.zeros(size),
            key=np.zeros((size, 16), dtype=np.uint8),
            usage=np.full((size, USAGE_WIDTH), np.nan),
        )

    def clear(self, slot: int) -> None:
        self.owner[slot] = -1
        self.at[slot] = np.nan
        self.values[slot] = np.nan
        self.counters[slot] = np.nan
        self.work[slot] = np.nan
        self.usage[slot] = np.nan
        self.incomplete[slot] = 0
        self.wake_source[slot] = 0
        self.leaving[slot] = False

    def grow(self) -> None:
        more = Slots.empty(len(self.owner))
        for name in self.__slots__:
            setattr(self, name, np.concatenate([getattr(self, name), getattr(more, name)]))


ROLE_CODE = {role: code for code, role in enumerate(Role)}
PODS, GATEWAY, GPUS = ROLE_CODE[Role.PODS], ROLE_CODE[Role.GATEWAY], ROLE_CODE[Role.GPUS]


def sum_present(parts: Floats) -> Floats:
    """The sum of the known values of each row; NaN if there is none."""
    present = ~np.isnan(parts)
    return np.where(present.any(axis=1), np.where(present, parts, 0.0).sum(axis=1), np.nan)


def optional_floats(column: Floats) -> list[float | None]:
    """The column as a list, None if unknown: single numbers are read much faster from a list."""
    return [None if isnan(value) else value for value in column.tolist()]


def optional_ints(column: Floats) -> list[int | None]:
    """The column as a list of counts, None if unknown."""
    return [None if isnan(value) else int(value) for value in column.tolist()]
