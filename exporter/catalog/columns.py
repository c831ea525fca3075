"""What dcgm-exporter takes apart by process, and whether it is to be believed.

From 4.8.2 on a shared GPU's GPU_UTIL and FB_USED stand on the page once for the device, without a pod, and once for
each pod. To put a process to its pod the exporter needs the host's process ids, which its chart does not give it:
then every pod shows 0. So parts are believed that are there and add up to no more than the device shows, and are not
believed if all are 0 while the device is busy. Nothing is ever divided: what is not measured by process is nobody's.

Worked example: a device at 90 % with parts 60 % and 30 % becomes `Gpu(…, PROCESS, parts=(Part(a, 0.6, …), Part(b, 0.3,
…)))`; with parts 0 and 0, or 60 and 90, it stays `DEVICE`, and has none.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from exporter.model import Attribution, Floats, Gpu, Part, Quantity, Subject

from .schema import Columns

# How the columns of the parts begin; the number of the pod follows.
UTILIZATION_PART, MEMORY_PART = "utilization_part_", "memory_part_"

# Parts may exceed the whole a little: they are measured over other intervals than the device.
TOLERANCE = 1.1
UTILIZATION_SLACK = 0.05  # ratio; also what a device may show while no process did anything
MEMORY_SLACK = 64 * 2.0**20  # bytes


def taken_apart(columns: Columns, subjects: tuple[Subject, ...], used: Floats) -> tuple[Subject, ...]:
    """The subjects, with the parts of those shared GPUs whose parts can be believed. `used`: bytes, of the device."""
    if not any(name.startswith((UTILIZATION_PART, MEMORY_PART)) for name in columns):
        return subjects
    busy = columns.get(Quantity.GPU_UTILIZATION, np.full(len(subjects), np.nan))
    busy_parts, memory_parts = (
        _parts(columns, UTILIZATION_PART, len(subjects)),
        _parts(columns, MEMORY_PART, len(subjects)),
    )
    busy_sum, memory_sum = _sum(busy_parts), _sum(memory_parts)
    # All parts 0 on a busy device is what a failed process-to-pod mapping looks like, not idle pods.
    denied = (busy_sum == 0.0) & (busy > UTILIZATION_SLACK)
    denied |= (busy_sum > busy * TOLERANCE + UTILIZATION_SLACK) | (memory_sum > used * TOLERANCE + MEMORY_SLACK)
    measured = ((busy_sum > 0.0) | (memory_sum > 0.0)) & ~denied
    return tuple(
        _by_process(subject, busy_parts[row], memory_parts[row])
        if measured[row] and isinstance(subject, Gpu) and subject.attribution is Attribution.DEVICE
        else subject
        for row, subject in enumerate(subjects)
    )


def _by_process(gpu: Gpu, busy: Floats, memory: Floats) -> Gpu:
    parts = tuple(Part(pod, float(busy[n]), float(memory[n])) for n, pod in enumerate(gpu.pods))
    return replace(gpu, attribution=Attribution.PROCESS, parts=parts)


def _parts(columns: Columns, prefix: str, rows: int) -> Floats:
    """The parts of each row, shape (rows, most pods of any): in the order of its pods, NaN where not said."""
    numbered = {int(name.removeprefix(prefix)): column for name, column in columns.items() if name.startswith(prefix)}
    most = max((int(name.rpartition("_")[2]) + 1 for name in columns if "_part_" in name), default=0)
    return np.column_stack([numbered.get(n, np.full(rows, np.nan)) for n in range(most)])


def _sum(parts: Floats) -> Floats:
    """Over what is said; NaN where nothing is. Shape (rows,)."""
    return np.where(np.isnan(parts).all(axis=1), np.nan, np.nansum(parts, axis=1))
