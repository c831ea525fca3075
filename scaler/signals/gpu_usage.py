"""Takes what a profile needs beside the policy's columns from responses: GPU quantities, and counters. Pure.

A slot has for each quantity a sum and the weight of what is in it, so that a mean over several slots is over what is
known. Ratios weigh by the share of a whole GPU, as engine activity does; the others count per GPU or MIG instance. Only
GPUs that are exclusively a workload's are in it.

Worked example: of two whole GPUs one has an SM activity of 0.4 and the other exposes none: SUM 0.4, WEIGHT 1, mean 0.4.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum, unique
from functools import lru_cache
from math import isnan, nan

import numpy as np

from exporter.catalog.gpus import share
from exporter.model import Floats, Gpu, Quantity, Samples


@unique
class GpuUsage(IntEnum):
    """The columns. From PREEMPTED on they are of engines: requests, or seconds of requests, per second."""

    SM = 0
    OCCUPANCY = 1
    TENSOR = 2
    DRAM = 3
    MEMORY = 4
    MEMORY_TOTAL = 5
    POWER = 6
    PCIE = 7
    NVLINK = 8
    PREEMPTED = 9
    QUEUED = 10
    QUEUED_SECONDS = 11
    SERVED = 12
    SERVED_SECONDS = 13


RATIOS = 4  # the first columns
GPU_COLUMNS: Mapping[GpuUsage, tuple[Quantity, ...]] = {  # several: their sum
    GpuUsage.SM: (Quantity.GPU_SM_ACTIVE,),
    GpuUsage.OCCUPANCY: (Quantity.GPU_SM_OCCUPANCY,),
    GpuUsage.TENSOR: (Quantity.GPU_TENSOR_ACTIVE,),
    GpuUsage.DRAM: (Quantity.GPU_DRAM_ACTIVE,),
    GpuUsage.MEMORY: (Quantity.GPU_MEMORY_USED,),
    GpuUsage.MEMORY_TOTAL: (Quantity.GPU_MEMORY_TOTAL,),
    GpuUsage.POWER: (Quantity.GPU_POWER,),
    GpuUsage.PCIE: (Quantity.GPU_PCIE_SENT, Quantity.GPU_PCIE_RECEIVED),
    GpuUsage.NVLINK: (Quantity.GPU_NVLINK_SENT, Quantity.GPU_NVLINK_RECEIVED),
}
COUNTERS: Mapping[GpuUsage, Quantity] = {  # of engines, in the order of the columns
    GpuUsage.PREEMPTED: Quantity.PREEMPTIONS,
    GpuUsage.QUEUED: Quantity.QUEUED_COUNT,
    GpuUsage.QUEUED_SECONDS: Quantity.QUEUED_SECONDS,
    GpuUsage.SERVED: Quantity.SERVED_COUNT,
    GpuUsage.SERVED_SECONDS: Quantity.SERVED_SECONDS,
}
# Of a slot: the sums, their weights, and of an engine its counters with the time of the response.
_COUNT = len(GpuUsage)
MEANS = int(GpuUsage.PREEMPTED)  # the first of the counters
LAST, AT = 2 * _COUNT, 2 * _COUNT + len(COUNTERS)
USAGE_WIDTH = AT + 1


def gpu_columns(samples: Samples) -> Floats:
    """The GPU quantities of a response, shape (subjects, len(GpuUsage)); NaN if not exposed."""
    found = np.full((len(samples.subjects), _COUNT), np.nan)
    into, of = _columns_of(samples.quantities)
    found[:, into] = samples.values[:, of]
    for column in (GpuUsage.PCIE, GpuUsage.NVLINK):
        if GPU_COLUMNS[column][0] in samples.quantities:
            found[:, column] = sum(samples.column(quantity) for quantity in GPU_COLUMNS[column])
    return found


@lru_cache(maxsize=256)
def _columns_of(quantities: tuple[Quantity, ...]) -> tuple[list[int], list[int]]:
    """The columns of one quantity, and the columns of a response with these quantities that they have."""
    single = [(int(column), names[0]) for column, names in GPU_COLUMNS.items() if len(names) == 1]
    present = [(column, quantities.index(name)) for column, name in single if name in quantities]
    return [column for column, _ in present], [index for _, index in present]


def weights_of(gpus: Collection[Gpu]) -> Floats:
    """The weight of each GPU in the mean of each quantity, shape (GPUs, len(GpuUsage))."""
    weights = np.ones((len(gpus), _COUNT))
    weights[:, :RATIOS] = np.array([share(gpu) for gpu in gpus])[:, None]
    return weights


def of_gpus(columns: Floats, rows: Sequence[int], weights: Floats) -> Floats:
    """The sums and weights of some GPUs, shape (USAGE_WIDTH,). columns: see `gpu_columns`; weights: of `rows`."""
    usage = np.full(USAGE_WIDTH, np.nan)
    if rows:
        values = columns[list(rows)]
        measured = ~np.isnan(values)
        usage[:_COUNT] = (np.where(measured, values, 0.0) * weights).sum(axis=0)
        usage[_COUNT:LAST] = (measured * weights).sum(axis=0)
    return usage


def count_rates(usage: Floats, sums: Mapping[Quantity, float], at: float) -> None:
    """Writes the rates of an engine's COUNTERS into its slot. sums: what it exposes. at: POSIX seconds."""
    elapsed = at - float(usage[AT])
    usage[AT] = at
    for position, (column, quantity) in enumerate(COUNTERS.items(), LAST):
        last, counter, rate = float(usage[position]), sums.get(quantity, nan), nan
        usage[position] = counter
        if elapsed > 0.0 and not isnan(last + counter):
            rate = (counter - last if counter >= last else counter) / elapsed  # one that has fallen was restarted at 0
        usage[column] = rate
        usage[_COUNT + column] = 0.0 if isnan(rate) else 1.0
