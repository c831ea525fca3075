"""Determines since when one workload is idle, and whether its replicas load or serve. Pure; parts of the kernels.

Worked example: a workload was woken at 1000 and its start-up grace is 240 s. At 1200 its only pod is not ready: its
`activity` is GRACE. At 1240 the grace is over: it is IDLE unless a request waits.
"""

from __future__ import annotations

import numpy as np

from scaler.jit import part

from .columns import ConstraintsSlot, MemorySlot, ReadingsSlot, SpecSlot
from .demand import counted
from .trace import GPU, GRACE, IDLE, LOADS, REQUESTS, UNPROVEN


@part
def activity(
    spec: SpecSlot, readings: ReadingsSlot, constraints: ConstraintsSlot, memory: MemorySlot, complete: bool, now: float
) -> int:
    """IDLE, or the first reason why it is not; a code of `trace`. complete: its readings are."""
    if counted(readings.waiting) + counted(readings.held) + counted(readings.running) > 0.0:
        return REQUESTS
    if not complete:
        return UNPROVEN
    if gpu_busy(spec, readings, known_at_zero(spec, readings, memory)):
        return GPU
    if lease_runs(spec, readings, constraints, memory, now):
        return GRACE
    # After the grace, loading alone no longer keeps it, or a start that never ends would cost a GPU for good.
    if loading(spec, readings, was_asleep(memory)) and not starts(spec, readings, memory):
        return LOADS
    return IDLE


@part
def idle_since(spec: SpecSlot, readings: ReadingsSlot, memory: MemorySlot, now: float) -> float:
    """POSIX seconds since when there is nothing to do, for a workload that is idle."""
    unproven = readings.gpus_stale or (spec.holds_incomplete and (readings.gpus_blind or readings.unproven))
    since = now if np.isnan(memory.idle_since) or unproven else memory.idle_since
    # A request may come and go between two scrapes: its counter shows it.
    return since if np.isnan(readings.active_at) else max(since, readings.active_at)


@part
def was_asleep(memory: MemorySlot) -> bool:
    """Whether the last decision was zero."""
    return memory.replicas == 0.0 and not memory.active


@part
def known_at_zero(spec: SpecSlot, readings: ReadingsSlot, memory: MemorySlot) -> bool:
    """By the cluster's count, or by the last decision if nothing contradicts it: an outage brings no replica back."""
    there = readings.pods_fresh if spec.fixed else readings.pods_listed
    return readings.wanted == 0.0 or (was_asleep(memory) and np.isnan(readings.wanted) and not there > 0.0)


@part
def gpu_busy(spec: SpecSlot, readings: ReadingsSlot, nothing_there: bool) -> bool:
    """Whether a GPU works. Not for Jobs: a running one is not ended, and a GPU's metrics outlive its Job."""
    return readings.busiest_gpu > spec.gpu_quiet and not nothing_there and not spec.jobs


@part
def loading(spec: SpecSlot, readings: ReadingsSlot, asleep: bool) -> bool:
    """Whether replicas exist that do not serve yet: neither idle nor capacity. Not for Jobs: a Job runs to its end
    whatever is decided, and if none is left none is on its way.
    """
    if spec.jobs:
        return False
    if readings.wanted > 0.0:
        # If the last decision was zero and no pod is left, `wanted` is on its way down, not up.
        return not readings.ready >= readings.wanted and not (asleep and readings.existing == 0.0)
    # No count, and the list of ready pods is empty: they load, unless the last decision was zero.
    return spec.pods and np.isnan(readings.wanted) and readings.pods_listed == 0.0 and not asleep


@part
def has_served(spec: SpecSlot, readings: ReadingsSlot) -> bool:
    """Whether a replica is ready. If no source could show it, only an empty queue would: it counts as ready."""
    if np.isnan(readings.ready) and not spec.pods:
        return True
    return (readings.pods_fresh if np.isnan(readings.ready) else readings.ready) > 0.0


@part
def starts(spec: SpecSlot, readings: ReadingsSlot, memory: MemorySlot) -> bool:
    """Whether it was woken, and no replica of that start is ready yet."""
    return not np.isnan(memory.woken_at) and not has_served(spec, readings)


@part
def lease_runs(
    spec: SpecSlot, readings: ReadingsSlot, constraints: ConstraintsSlot, memory: MemorySlot, now: float
) -> bool:
    """Whether it starts, within the start-up grace.

    A slow start must not be cut down. Once it is ready, a request that still waits, or runs, keeps it; and a request
    that went away is idleness from then on.
    """
    return starts(spec, readings, memory) and now - memory.woken_at < constraints.lease
