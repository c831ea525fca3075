"""Determines since when one workload is idle, and whether its replicas load or serve. Pure; parts of the kernels.

Worked example: a workload was woken at 1000 and its start-up grace is 240 s. At 1200 its only pod is not ready:
`loading` and `lease_runs` are True, so `idle_since` is NaN. At 1240 the grace is over: `hangs` is True, and it is idle
unless a request waits.
"""

from __future__ import annotations

import numpy as np

from scaler.jit import part

from .columns import ConstraintsSlot, MemorySlot, ReadingsSlot, SpecSlot
from .demand import counted


@part
def idle_since(
    spec: SpecSlot, readings: ReadingsSlot, constraints: ConstraintsSlot, memory: MemorySlot, now: float
) -> float:
    """POSIX seconds since when there is nothing to do, if all readings are fresh; NaN while there is something."""
    requests = counted(readings.waiting) + counted(readings.held) + counted(readings.running)
    busy = gpu_busy(spec, readings, known_at_zero(spec, readings, memory))
    if requests > 0.0 or busy or lease_runs(spec, readings, constraints, memory, now):
        return np.nan
    if loading(spec, readings, was_asleep(memory)) and not hangs(spec, readings, constraints, memory, now):
        return np.nan
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
def lease_runs(
    spec: SpecSlot, readings: ReadingsSlot, constraints: ConstraintsSlot, memory: MemorySlot, now: float
) -> bool:
    """Whether it was woken, and its first replica is not ready yet within the start-up grace.

    A slow start must not be cut down. Once it is ready, a request that still waits, or runs, keeps it; and a request
    that went away is idleness from then on.
    """
    return (
        not np.isnan(memory.woken_at) and not has_served(spec, readings) and now - memory.woken_at < constraints.lease
    )


@part
def hangs(spec: SpecSlot, readings: ReadingsSlot, constraints: ConstraintsSlot, memory: MemorySlot, now: float) -> bool:
    """Whether it was woken, and no replica has become ready within the start-up grace.

    A request that still waits keeps it; its loading alone does not any more, or a start that never ends would cost a
    GPU for good.
    """
    return (
        not np.isnan(memory.woken_at) and not has_served(spec, readings) and now - memory.woken_at >= constraints.lease
    )
