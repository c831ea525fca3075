"""The answer to one workload: the order of the questions. Pure; parts of the kernels in `step`. Read `decide` first.

The laws behind each answer are in its comments; each is a test in tests/policy.

Worked example: 20 requests wait or run and a replica should carry 16: 1.25, so 2 replicas, `serving`. A schedule's
floor
of 3 stands: 3 replicas, `scheduled`. Somebody freezes it and the load ends: still 3, `frozen`.
"""

from __future__ import annotations

import numpy as np

from exporter.model import Floats
from scaler.jit import part

from .columns import (
    ASLEEP,
    CAPPED,
    FROZEN,
    GPU_BUSY,
    HELD,
    INCOMPLETE,
    LOADING,
    NO_WAKER,
    QUEUED,
    SCHEDULED,
    SERVING,
    UNKNOWN,
    WARM,
    WORK,
    MemorySlot,
    ReadingsSlot,
    SpecSlot,
    StandingSlot,
)
from .questions import (
    DUST,
    answered,
    at_zero,
    can_fall,
    counted,
    demanded,
    gpu_busy,
    has_served,
    idle_since,
    known_at_zero,
    lease_runs,
    loading,
    mean_is_partial,
    partial,
    rest_is_like,
    steps,
    was_asleep,
)


@part
def decide(
    spec: SpecSlot, seen: ReadingsSlot, stands: StandingSlot, mind: MemorySlot, demands: Floats, now: float
) -> MemorySlot:
    """The answer, and what to remember of it. Here `replicas` may be NaN: nothing is known.

    demands: shape (signals,): what each objective asks for is written there.
    """
    demand = demanded(spec, seen, demands)
    fresh, lower = answered(spec, seen, was_asleep(mind)), partial(spec, seen)
    incomplete_since = np.nan
    if lower:
        incomplete_since = now if np.isnan(mind.incomplete_since) else mind.incomplete_since
    if (lower or not fresh) and not np.isnan(demand) and rest_is_like(spec, seen, mind, now):
        # What was imputed may size it; it proves no idleness (law 6).
        answer = _fresh(spec, seen, stands, mind, demand, np.nan, now)
        obeyed, held_since = _obeying(spec, seen, stands, mind, answer), np.nan if fresh else mind.held_since
        return _remembered(seen, mind, obeyed, np.nan, held_since, incomplete_since, now)
    if not fresh or (np.isnan(demand) and not lower):
        held_since = _held_since(spec, seen, mind, now)
        answer = _stale(spec, seen, mind, held_since, now)
        obeyed = _obeying(spec, seen, stands, mind, answer)
        return _remembered(seen, mind, obeyed, np.nan, held_since, incomplete_since, now)
    if lower:
        answer = _lower_bound(spec, seen, mind, demand, incomplete_since, now)
        obeyed = _obeying(spec, seen, stands, mind, answer)
        return _remembered(seen, mind, obeyed, np.nan, np.nan, incomplete_since, now)
    mind = _begun(spec, seen, mind, now)
    idle = idle_since(spec, seen, stands, mind, now)
    answer = _fresh(spec, seen, stands, mind, demand, idle, now)
    if mean_is_partial(spec, seen) and mind.active and answer[1] and answer[0] < mind.replicas:
        answer = (mind.replicas, True, INCOMPLETE)
    mind = _remembered(seen, mind, _obeying(spec, seen, stands, mind, answer), idle, np.nan, np.nan, now)
    # The lease is over with the first replica that is ready. Until then it is remembered, run out or not, until nothing
    # of that start is left: what hung and was put to sleep does not wake as long as its pod is still there.
    over = has_served(spec, seen) or (not mind.active and at_zero(seen))
    return _at_ease(mind) if over else mind


@part
def _remembered(
    seen: ReadingsSlot,
    mind: MemorySlot,
    answer: tuple[float, bool, int],
    idle: float,
    held_since: float,
    incomplete_since: float,
    now: float,
) -> MemorySlot:
    replicas, active, reason = answer
    asleep = was_asleep(mind) or (np.isnan(mind.replicas) and seen.wanted == 0.0)
    woken_at = now if asleep and active and replicas > 0.0 else mind.woken_at
    return MemorySlot(
        replicas, active, reason, idle, held_since, woken_at, mind.floor, mind.floor_until, incomplete_since
    )


@part
def _at_ease(mind: MemorySlot) -> MemorySlot:
    return MemorySlot(
        mind.replicas,
        mind.active,
        mind.reason,
        mind.idle_since,
        mind.held_since,
        np.nan,
        mind.floor,
        mind.floor_until,
        mind.incomplete_since,
    )


@part
def _begun(spec: SpecSlot, seen: ReadingsSlot, mind: MemorySlot, now: float) -> MemorySlot:
    """Without a memory, what the cluster has is the least until the windows speak: a first page says little."""
    floor, until = mind.floor, mind.floor_until
    if np.isnan(until) and not np.isnan(seen.wanted):
        floor, until = min(seen.wanted, spec.maximum), now + spec.young
    if now >= until:
        floor = np.nan
    return MemorySlot(
        mind.replicas,
        mind.active,
        mind.reason,
        mind.idle_since,
        mind.held_since,
        mind.woken_at,
        floor,
        until,
        mind.incomplete_since,
    )


@part
def _fresh(
    spec: SpecSlot,
    seen: ReadingsSlot,
    stands: StandingSlot,
    mind: MemorySlot,
    demand: float,
    idle: float,
    now: float,
) -> tuple[float, bool, int]:
    """Everything needed is fresh: (replicas, active, reason). idle: POSIX seconds since when; NaN is busy."""
    nothing_there = known_at_zero(spec, seen, mind)
    whole = steps(demand, mind.replicas if mind.active else np.nan, spec.band)
    least = max(1.0, spec.minimum, counted(mind.floor))
    replicas = min(max(whole, least), spec.maximum)
    if not np.isnan(idle):
        # Found at zero with nothing to do: waking it to let it fall asleep again would be a wrong wake.
        rested = nothing_there or was_asleep(mind) or now - idle >= stands.keep_warm
        if spec.sleeps and rested and not mind.floor > 0.0:
            if now - seen.refused_at < stands.keep_warm:
                # Somebody was turned away for want of a replica. How many were is not known, so one is made; from then
                # on this is activity like any other, so it is kept for the keep-warm time at least.
                return replicas, True, QUEUED
            if seen.waker_fresh:
                return 0.0, False, ASLEEP
            if nothing_there or spec.jobs:  # a Job ends whatever is answered: none can be kept to see the next request
                return 0.0, False, NO_WAKER
            return replicas, True, NO_WAKER
        return replicas, True, WARM
    if whole > spec.maximum:
        return replicas, True, CAPPED
    if counted(seen.running) > 0.0:
        return replicas, True, SERVING
    loads = loading(spec, seen, was_asleep(mind))
    leased = lease_runs(spec, seen, stands, mind, now)
    nothing_to_do = not counted(seen.waiting) + counted(seen.held) > 0.0
    if loads and not seen.ready > 0.0:
        # Found with no ready pod and nothing to do, where nobody counts replicas: it loads, or is at zero. An order to
        # wake it, or to put it to sleep, would be a guess.
        guessed = np.isnan(mind.replicas) and np.isnan(seen.wanted) and nothing_to_do
        return (np.nan, True, UNKNOWN) if guessed else (replicas, True, LOADING)
    refused = leased and now - seen.refused_at < stands.keep_warm
    if refused or not nothing_to_do:
        return replicas, True, QUEUED
    if gpu_busy(spec, seen, nothing_there):
        return replicas, True, GPU_BUSY
    # Nothing to do that is seen, and not idle: something loads, or a pod whose work was imputed does not answer.
    return replicas, True, LOADING if loads or leased else WARM


@part
def _seen_to_do(spec: SpecSlot, seen: ReadingsSlot) -> float:
    """Replicas for the requests that are known to be in hand: a lower bound of the demand, whatever is missing.

    Requests that an engine had when it stopped to answer are added to those that are seen elsewhere: 30 in engines that
    do not answer and 15 new ones at the gateway are 45. Not so for Jobs, where that would start some twice.
    """
    work = counted(seen.waiting) + counted(seen.running) + counted(seen.held)
    if not spec.jobs:
        work = max(work, seen.in_hand_at_least)
    target = spec.targets[WORK]
    at_least = 0.0 if np.isnan(target) else np.ceil(work / target - DUST)
    if work > 0.0:
        at_least = max(at_least, 1.0)
    return min(at_least, spec.maximum)


@part
def _last(spec: SpecSlot, seen: ReadingsSlot, mind: MemorySlot) -> float:
    """What can be held: the last answer or, without a memory, what the cluster has."""
    if np.isnan(mind.replicas) and not np.isnan(seen.wanted):
        return min(seen.wanted, spec.maximum)
    return mind.replicas


@part
def _held_since(spec: SpecSlot, seen: ReadingsSlot, mind: MemorySlot, now: float) -> float:
    """Since when the answer is held. One that demand has raised when it was too late to hold begins anew, or it would
    be an error again at the next tick, before anybody has heard it. What somebody set by hand meanwhile is not taken
    down on a part of the demand.
    """
    if np.isnan(mind.held_since):
        return now
    at_least = _seen_to_do(spec, seen)
    raised = at_least > counted(_last(spec, seen, mind)) and at_least >= counted(seen.wanted)
    return now if raised and now - mind.held_since > spec.hold else mind.held_since


@part
def _stale(
    spec: SpecSlot, seen: ReadingsSlot, mind: MemorySlot, held_since: float, now: float
) -> tuple[float, bool, int]:
    """Something needed is missing: hold, as a floor that fresh demand may raise; then an error (law 1)."""
    at_least, last = _seen_to_do(spec, seen), _last(spec, seen, mind)
    blind = now - held_since > spec.hold
    # Of Jobs what is seen to do is the answer and nothing is held: each one that ends would be replaced under it.
    if (at_least > counted(last) and not blind) or (at_least > 0.0 and spec.jobs):
        return max(at_least, spec.minimum), True, HELD
    if np.isnan(last):
        return np.nan, True, UNKNOWN
    # The answer of a moment ago, and its reason: a page that is about to come is no outage.
    settling = now - held_since < spec.settle and can_fall(mind)
    reason = mind.reason if settling else HELD
    # Whoever would rather pay than leave a sleeper blind has it woken, and kept until the cluster says it is there.
    wakes = blind and spec.wakes_blind and spec.sleeps and not seen.wanted > 0.0
    if last == 0.0 and (at_zero(seen) or known_at_zero(spec, seen, mind) or settling) and spec.sleeps and not wakes:
        return 0.0, False, reason  # an error here would let KEDA's fallback wake every sleeper
    if (blind or spec.jobs) and not wakes:  # at an error KEDA starts no Job and ends none
        return np.nan, True, UNKNOWN
    held = max(last, 1.0, spec.minimum)
    return held, True, reason if mind.active and held == mind.replicas else HELD


@part
def _lower_bound(
    spec: SpecSlot, seen: ReadingsSlot, mind: MemorySlot, demand: float, since: float, now: float
) -> tuple[float, bool, int]:
    """All is fresh, and something is incomplete: a floor that what is known may raise, for as long as it takes.

    demand: replicas, a lower bound; NaN unknown. since: POSIX seconds since when readings are incomplete.
    """
    at_least, last = _seen_to_do(spec, seen), _last(spec, seen, mind)
    if spec.jobs:  # what is known to be in hand is the answer; at an error KEDA starts no Job and ends none
        return (at_least, True, INCOMPLETE) if at_least > 0.0 else (np.nan, True, UNKNOWN)
    long = now - since > spec.hold
    if np.isnan(last):
        if at_least > 0.0 or long:
            return max(1.0, at_least, spec.minimum), True, INCOMPLETE
        return np.nan, True, UNKNOWN
    settling = now - since < spec.settle and can_fall(mind)
    wakes = long and spec.wakes_blind and spec.sleeps and not seen.wanted > 0.0
    asleep = last == 0.0 and (at_zero(seen) or known_at_zero(spec, seen, mind) or settling) and spec.sleeps
    if asleep and at_least == 0.0 and not wakes:
        return 0.0, False, mind.reason if settling else INCOMPLETE
    held = max(last, at_least, 1.0, spec.minimum)
    if last > 0.0 and not np.isnan(demand):
        held = max(held, min(np.ceil(demand - DUST), spec.maximum))
    return held, True, mind.reason if settling and mind.active and held == mind.replicas else INCOMPLETE


@part
def _obeying(
    spec: SpecSlot, seen: ReadingsSlot, stands: StandingSlot, mind: MemorySlot, answer: tuple[float, bool, int]
) -> tuple[float, bool, int]:
    """The answer after people's orders: the brake first, which is pulled when something is wrong with the rest."""
    replicas, active, reason = answer
    last = seen.wanted if np.isnan(mind.replicas) else mind.replicas
    if stands.frozen and spec.jobs:  # nothing moves: none is started, and those that run end by themselves
        return 0.0, False, FROZEN
    if stands.frozen and not np.isnan(last):
        return last, last > 0.0, FROZEN
    if np.isnan(replicas):
        return answer
    if active and replicas > stands.ceiling:
        replicas, reason = max(1.0, spec.minimum, stands.ceiling), SCHEDULED
    floor = min(stands.floor, spec.maximum)
    if floor > replicas:
        if stands.floor_reason >= 0:
            reason = stands.floor_reason
        elif not active:
            reason = WARM
        replicas, active = floor, True
    # Last: what an order asks for anyhow shows that order's reason.
    if stands.never_down and last > replicas and not spec.jobs:  # no answer takes a Job down
        replicas, active, reason = last, True, FROZEN
    return replicas, active, reason
