"""Decides one workload: from its readings, constraints and memory to replicas. Pure; parts of the kernels.

Read `decide` first. Each invariant is a comment here and a test in tests/scaler/policy.

Worked example: 20 requests wait or run and a replica should carry 16: 1.25, so 2 replicas, `serving`. With a
schedule's floor of 3: 3 replicas, `scheduled`. A brake freezes it and the load ends: still 3, `frozen`.
"""

from __future__ import annotations

import numpy as np

from exporter.model import Floats
from scaler.jit import part

from .columns import (
    ASLEEP,
    CAPACITY_LIMITED,
    CAPPED,
    FROZEN,
    GPU_BUSY,
    HELD,
    INCOMPLETE,
    LOADING,
    NO_WAKE_SOURCE,
    QUEUED,
    SCHEDULED,
    SERVING,
    UNKNOWN,
    WARM,
    ConstraintsSlot,
    MemorySlot,
    ReadingsSlot,
    SpecSlot,
)
from .demand import (
    answered,
    at_zero,
    bounded,
    bounded_below,
    counted,
    demanded,
    last_replicas,
    least_demand,
    mean_is_partial,
    partial,
    rest_is_like,
    steps,
    whole_replicas,
)
from .idleness import activity, gpu_busy, has_served, idle_since, known_at_zero, lease_runs, loading, was_asleep
from .trace import COMPLETE, IDLE, IMPUTED, LOWER_BOUND, STALE, DecisionTrace, ReplicaBounds


@part
def decide(
    spec: SpecSlot,
    readings: ReadingsSlot,
    constraints: ConstraintsSlot,
    memory: MemorySlot,
    demands: Floats,
    now: float,
) -> tuple[MemorySlot, DecisionTrace]:
    """The decision with what to keep of it, and how it came about. Here `replicas` may be NaN: nothing is known.

    demands: shape (signals,): the replicas that each objective needs are written there.
    """
    demand, winner, determined = demanded(spec, readings, demands)
    fresh, lower = answered(spec, readings, was_asleep(memory)), partial(spec, readings)
    complete = fresh and not lower and determined
    busy, whole = activity(spec, readings, constraints, memory, complete, now), whole_replicas(demand)
    idle, held_since, incomplete_since = np.nan, np.nan, np.nan
    floor, floor_until = memory.floor, memory.floor_until
    if lower:
        incomplete_since = now if np.isnan(memory.incomplete_since) else memory.incomplete_since
    if complete:
        floor, floor_until = _start_floor(spec, readings, memory, now)
    if complete or (determined and rest_is_like(spec, readings, memory, now)):
        # An imputed demand may size it; it proves no idleness.
        branch = COMPLETE if complete else IMPUTED
        if busy == IDLE:
            idle = idle_since(spec, readings, memory, now)
        current = memory.replicas if memory.active else np.nan
        last = current if complete and mean_is_partial(spec, readings) else np.nan
        bounds = bounded(spec, whole, steps(demand, current, spec.band), floor, last)
        answer = _fresh(spec, readings, constraints, memory, bounds, floor, idle, now)
        if answer[1] and answer[0] < bounds.last:
            answer = (bounds.last, True, INCOMPLETE)
        held_since = np.nan if fresh else memory.held_since
    elif fresh and lower:
        branch = LOWER_BOUND
        bounds = bounded_below(spec, readings, memory, whole, determined)
        answer = _lower_bound(spec, readings, constraints, memory, bounds, incomplete_since, now)
    else:
        branch = STALE
        bounds = ReplicaBounds(np.nan, np.nan, np.nan, np.nan, np.nan, np.nan)
        held_since = _held_since(spec, readings, memory, now)
        answer = _stale(spec, readings, constraints, memory, held_since, now)
    replicas, active, reason = _constrained(spec, readings, constraints, memory, answer)
    asleep = was_asleep(memory) or (np.isnan(memory.replicas) and readings.wanted == 0.0)
    woken_at = now if asleep and active and replicas > 0.0 else memory.woken_at
    # The start-up grace is over with the first replica that is ready. Until then it is kept, over or not, until nothing
    # of that start is left: a workload that hung and was put to sleep does not wake as long as its pod is still there.
    if complete and (has_served(spec, readings) or (not active and at_zero(readings))):
        woken_at = np.nan
    trace = DecisionTrace(branch, busy, demand, winner, bounds, answer[0], answer[2])
    new = MemorySlot(replicas, active, reason, idle, held_since, woken_at, floor, floor_until, incomplete_since)
    return new, trace


@part
def can_fall(memory: MemorySlot) -> bool:
    """Whether there was a decision that a lower one would take back."""
    return not np.isnan(memory.replicas) and memory.reason != UNKNOWN


@part
def _refused(readings: ReadingsSlot, constraints: ConstraintsSlot, now: float) -> bool:
    """Whether a request was rejected lately because there was no replica."""
    return now - readings.refused_at < constraints.keep_warm


@part
def _start_floor(spec: SpecSlot, readings: ReadingsSlot, memory: MemorySlot, now: float) -> tuple[float, float]:
    """Without earlier decisions, the replicas of the cluster are the minimum until the windows are filled.

    Returns (floor, until).
    """
    floor, until = memory.floor, memory.floor_until
    if np.isnan(until) and not np.isnan(readings.wanted):
        floor, until = min(readings.wanted, spec.maximum), now + spec.young
    if now >= until:
        floor = np.nan
    return floor, until


@part
def _fresh(
    spec: SpecSlot,
    readings: ReadingsSlot,
    constraints: ConstraintsSlot,
    memory: MemorySlot,
    bounds: ReplicaBounds,
    floor: float,
    idle: float,
    now: float,
) -> tuple[float, bool, int]:
    """With complete readings: (replicas, active, reason). idle: POSIX seconds since when; NaN is busy."""
    nothing_there, replicas = known_at_zero(spec, readings, memory), bounds.maximum
    if not np.isnan(idle):
        # Found at zero with nothing to do: waking it to let it fall asleep again would be a wrong wake.
        rested = nothing_there or was_asleep(memory) or now - idle >= constraints.keep_warm
        if spec.sleeps and rested and not floor > 0.0:
            if _refused(readings, constraints, now):
                # A request was rejected because there is no replica. The number of requests is not known, so one
                # replica is started; it is kept for the keep-warm time at least, as after any other activity.
                return replicas, True, QUEUED
            if readings.waker_fresh:
                return 0.0, False, ASLEEP
            if nothing_there or spec.jobs:  # a Job ends anyway: none can be kept to show the next request
                return 0.0, False, NO_WAKE_SOURCE
            return replicas, True, NO_WAKE_SOURCE
        return replicas, True, WARM
    if bounds.sized > spec.maximum:
        return replicas, True, CAPPED
    if counted(readings.running) > 0.0:
        return replicas, True, SERVING
    loads = loading(spec, readings, was_asleep(memory))
    leased = lease_runs(spec, readings, constraints, memory, now)
    nothing_to_do = not counted(readings.waiting) + counted(readings.held) > 0.0
    if loads and not readings.ready > 0.0:
        # Before the first decision, with no ready pod, no request and no replica count: it loads, or is at zero. To
        # wake it, or to put it to sleep, would be a guess.
        guessed = np.isnan(memory.replicas) and np.isnan(readings.wanted) and nothing_to_do
        return (np.nan, True, UNKNOWN) if guessed else (replicas, True, LOADING)
    if (leased and _refused(readings, constraints, now)) or not nothing_to_do:
        return replicas, True, QUEUED
    if gpu_busy(spec, readings, nothing_there):
        return replicas, True, GPU_BUSY
    # No request is visible, and it is not idle: something loads, or a pod whose work was imputed does not answer.
    return replicas, True, LOADING if loads or leased else WARM


@part
def _held_since(spec: SpecSlot, readings: ReadingsSlot, memory: MemorySlot, now: float) -> float:
    """POSIX seconds since when the decision is held.

    If demand has raised it after the end of `hold`, the time begins anew, or the decision would be an error again at
    the next tick, before any reader got it. Replicas that a person has set meanwhile are not reduced on a part of the
    demand.
    """
    if np.isnan(memory.held_since):
        return now
    at_least = least_demand(spec, readings)
    raised = at_least > counted(last_replicas(spec, readings, memory)) and at_least >= counted(readings.wanted)
    return now if raised and now - memory.held_since > spec.hold else memory.held_since


@part
def _stale(
    spec: SpecSlot,
    readings: ReadingsSlot,
    constraints: ConstraintsSlot,
    memory: MemorySlot,
    held_since: float,
    now: float,
) -> tuple[float, bool, int]:
    """With missing readings: holds the decision, as a floor that fresh demand may raise; then it is an error."""
    at_least, last = least_demand(spec, readings), last_replicas(spec, readings, memory)
    blind = now - held_since > spec.hold
    # For Jobs the known requests decide and nothing is held: each Job that ends would be replaced.
    if (at_least > counted(last) and not blind) or (at_least > 0.0 and spec.jobs):
        return max(at_least, spec.minimum), True, HELD
    if np.isnan(last):
        return np.nan, True, UNKNOWN
    # A response that is about to come is no outage: the last decision stays with its reason.
    settling = now - held_since < spec.settle and can_fall(memory)
    reason = memory.reason if settling else HELD
    # With `wakes_blind` it is woken, and kept until the cluster counts a replica.
    wakes = blind and spec.wakes_blind and spec.sleeps and not readings.wanted > 0.0
    if (
        last == 0.0
        and (at_zero(readings) or known_at_zero(spec, readings, memory) or settling)
        and spec.sleeps
        and not wakes
    ):
        if _refused(readings, constraints, now):  # known, whatever else is missing
            return max(1.0, spec.minimum), True, QUEUED
        return 0.0, False, reason  # an error here would let KEDA's fallback wake every sleeper
    if (blind or spec.jobs) and not wakes:  # at an error KEDA starts no Job and ends none
        return np.nan, True, UNKNOWN
    held = max(last, 1.0, spec.minimum)
    return held, True, reason if memory.active and held == memory.replicas else HELD


@part
def _lower_bound(
    spec: SpecSlot,
    readings: ReadingsSlot,
    constraints: ConstraintsSlot,
    memory: MemorySlot,
    bounds: ReplicaBounds,
    since: float,
    now: float,
) -> tuple[float, bool, int]:
    """With fresh, incomplete readings: holds the decision as a floor that the known demand may raise.

    since: POSIX seconds since when readings are incomplete.
    """
    at_least, last, held = least_demand(spec, readings), last_replicas(spec, readings, memory), bounds.last
    long = now - since > spec.hold
    if spec.jobs or np.isnan(last):  # at an error KEDA starts no Job and ends none
        decides = at_least > 0.0 or (long and not spec.jobs)
        return (held, True, INCOMPLETE) if decides else (np.nan, True, UNKNOWN)
    settling = now - since < spec.settle and can_fall(memory)
    wakes = long and spec.wakes_blind and not readings.wanted > 0.0
    asleep = last == 0.0 and (at_zero(readings) or known_at_zero(spec, readings, memory) or settling) and spec.sleeps
    if asleep and at_least == 0.0 and _refused(readings, constraints, now):
        return max(1.0, spec.minimum), True, QUEUED
    if asleep and at_least == 0.0 and not wakes:
        return 0.0, False, memory.reason if settling else INCOMPLETE
    return held, True, memory.reason if settling and memory.active and held == memory.replicas else INCOMPLETE


@part
def _constrained(
    spec: SpecSlot,
    readings: ReadingsSlot,
    constraints: ConstraintsSlot,
    memory: MemorySlot,
    answer: tuple[float, bool, int],
) -> tuple[float, bool, int]:
    """The decision within its constraints. A brake comes first: it is set when something is wrong with the rest."""
    replicas, active, reason = answer
    last = readings.wanted if np.isnan(memory.replicas) else memory.replicas
    if constraints.frozen and spec.jobs:  # none is started, and those that run end by themselves
        return 0.0, False, FROZEN
    if constraints.frozen and not np.isnan(last):
        return last, last > 0.0, FROZEN
    if np.isnan(replicas):
        return answer
    if active and replicas > constraints.ceiling:
        replicas, reason = max(1.0, spec.minimum, constraints.ceiling), SCHEDULED
    floor = min(constraints.floor, spec.maximum)
    if floor > replicas:
        if constraints.floor_reason >= 0:
            reason = constraints.floor_reason
        elif not active:
            reason = WARM
        replicas, active = floor, True
    # After floors: a schedule finds no GPU either where there is none.
    room = max(1.0, spec.minimum, constraints.room)
    if active and replicas > room:
        replicas, reason = room, CAPACITY_LIMITED
    # Last, so that a floor that asks for as many shows its own reason.
    if constraints.never_down and last > replicas and not spec.jobs:  # no number ends a Job
        replicas, active, reason = last, True, FROZEN
    return replicas, active, reason
