"""How many replicas, active or not, and why: one kernel over all workloads, pure, time an argument.

Read `_decide` first: it is the order of the questions. The laws behind each answer are in its comments; each is a
test in tests/policy. The same function runs in the daemon and in replays of recorded loads.

Worked example: 40 requests wait or run and a replica should carry 16: 40/16 = 2.5, so 3 replicas, `serving`. All
finish; after 60 s of decay the smoothed work asks for one; `warm` until 300 s have passed with nothing waiting,
nothing running, no counter moving and quiet GPUs; then 0 replicas, inactive, `asleep`, if the gateway's page is
there to see the next request, else 1 replica, `no_waker`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit, typeof, types

from exporter.model import Floats

from ..board import Reason
from ..kernels._compile import kernel
from .arrays import Bools, Memory, MemorySlot, Readings, ReadingsSlot, Signal, Specs, SpecSlot, Verdicts

# numba freezes these numbers into the compiled kernel and keeps it on disk under a stamp of *this* file alone. So they
# are spelled here, and must agree with what they mirror, or nothing starts.
REASONS = (
    Reason.SERVING,
    Reason.QUEUED,
    Reason.GPU_BUSY,
    Reason.LOADING,
    Reason.WARM,
    Reason.ASLEEP,
    Reason.HELD,
    Reason.UNKNOWN,
    Reason.NO_WAKER,
    Reason.SCHEDULED,
    Reason.FROZEN,
    Reason.CAPPED,
)
SERVING, QUEUED, GPU_BUSY, LOADING, WARM, ASLEEP, HELD, UNKNOWN, NO_WAKER, _, _, CAPPED = range(12)
WORK, KV_CACHE, GPU_ENGINE = 0, 1, 2
if set(REASONS) != set(Reason) or tuple(Signal) != (WORK, KV_CACHE, GPU_ENGINE):
    raise AssertionError("scaler.policy.step does not know all reasons and signals")

# 0.1 + 0.2 must not become a replica: sums of ratios carry errors near 1e-16 of their size.
DUST = 1e-9


# What the kernels take. Their parts take one workload's slot, as plain numbers: each array that is handed from part to
# part is counted in and out again, which cost forty times what is decided here.
COLUMNS = (typeof(Specs.stack([])), typeof(Readings.unknown(0)), typeof(Memory.blank(0)))

Function = TypeVar("Function", bound=Callable[..., Any])


def part(function: Function) -> Function:
    """A part of the kernels below, compiled into them; not kept on disk by itself."""
    return cast(Function, njit(error_model="numpy", forceinline=True)(function))


@part
def _spec_of(specs: Specs, i: int) -> SpecSlot:
    targets = specs.targets
    return SpecSlot(
        specs.minimum[i],
        specs.maximum[i],
        (targets[i, WORK], targets[i, KV_CACHE], targets[i, GPU_ENGINE]),
        specs.sleeps[i],
        specs.keep_warm[i],
        specs.hold[i],
        specs.impute_after[i],
        specs.settle[i],
        specs.band[i],
        specs.gpu_quiet[i],
        specs.pods[i],
        specs.gateway[i],
    )


@part
def _seen_of(readings: Readings, i: int) -> ReadingsSlot:
    signals = readings.signals
    return ReadingsSlot(
        (signals[i, WORK], signals[i, KV_CACHE], signals[i, GPU_ENGINE]),
        readings.waiting[i],
        readings.running[i],
        readings.held[i],
        readings.busiest_gpu[i],
        readings.active_at[i],
        readings.pods_listed[i],
        readings.pods_fresh[i],
        readings.gateway_fresh[i],
        readings.waker_fresh[i],
        readings.refused_at[i],
        readings.gpus_stale[i],
        readings.gpus_blind[i],
        readings.wanted[i],
        readings.ready[i],
        readings.existing[i],
    )


@part
def _mind_of(memory: Memory, i: int) -> MemorySlot:
    return MemorySlot(
        memory.replicas[i], memory.active[i], memory.reason[i], memory.idle_since[i], memory.held_since[i]
    )


@part
def _count(value: float) -> float:
    """A number of requests to reckon with: what is not known adds nothing to a *lower bound*."""
    return 0.0 if np.isnan(value) else value


@part
def _pods_answer(spec: SpecSlot, seen: ReadingsSlot, asleep: bool) -> bool:
    """Is the demand that lives in pods known?"""
    if not spec.pods:
        return True
    if seen.wanted == 0.0:  # known to be at zero: no pod, no demand in pods
        return True
    if seen.pods_listed > 0.0 and seen.pods_fresh >= seen.pods_listed:
        return True
    if seen.pods_listed == 0.0:
        # The listing answered "none". A cluster that says some are ready contradicts it; otherwise they load, and
        # what has never been ready holds no request.
        return not seen.ready > 0.0
    # We said zero, with proof, and the pages are gone: that is what zero looks like from outside. Only where the
    # cluster's own count could say otherwise is it believed instead.
    return asleep and np.isnan(seen.wanted) and seen.pods_fresh == 0.0


@part
def _at_zero(seen: ReadingsSlot) -> bool:
    """Is no replica ready, by the cluster's count or, without one, by a listing that answered "none"?"""
    if np.isnan(seen.wanted):
        return seen.pods_listed == 0.0
    return seen.wanted == 0.0


@part
def _gpus_answer(spec: SpecSlot, seen: ReadingsSlot) -> bool:
    """Is GPU activity known, for those who are sized by it?"""
    if np.isnan(spec.targets[GPU_ENGINE]) or _at_zero(seen):
        return True
    return not seen.gpus_stale and not np.isnan(seen.busiest_gpu)


@part
def _loading(spec: SpecSlot, seen: ReadingsSlot, asleep: bool) -> bool:
    """Replicas exist that do not serve yet: neither idle nor capacity (law 7)."""
    if seen.wanted > 0.0:
        # We said zero and no pod is there any more: the count of what is wanted is on its way down, not up.
        return not seen.ready >= seen.wanted and not (asleep and seen.existing == 0.0)
    # No count, and the listing of ready pods answered "none": they load, unless it was we who said zero.
    return spec.pods and np.isnan(seen.wanted) and seen.pods_listed == 0.0 and not asleep


@part
def _demand(spec: SpecSlot, seen: ReadingsSlot, out: Floats) -> float:
    """The largest objective, in replicas; NaN while any that is asked for is unknown. Each goes to `out`."""
    largest = 0.0
    known = True
    nothing_ready = _at_zero(seen) or seen.ready == 0.0
    for signal in range(out.shape[0]):
        target, value = spec.targets[signal], seen.signals[signal]
        out[signal] = np.nan
        if np.isnan(target):
            continue
        if signal == WORK:
            # Demand read from pods is known to be zero where there is no pod; what a gateway holds is in `value`.
            out[signal] = 0.0 if np.isnan(value) and nothing_ready else value / target
        else:
            # A mean per replica asks for replicas in proportion to those that carry it: 4 at 0.9 of a target of
            # 0.6 need 6. Where nothing is ready there is nothing to carry it.
            ready = seen.ready if not np.isnan(seen.ready) else seen.pods_fresh
            out[signal] = 0.0 if nothing_ready else value * ready / target
        if np.isnan(out[signal]):
            # The KV guard only ever adds: an engine whose page has no KV cache is sized by its work alone.
            known = known and signal == KV_CACHE
        else:
            largest = max(largest, out[signal])
    return largest if known else np.nan


@part
def _steps(demand: float, current: float, band: float) -> float:
    """Whole replicas: up at once, down only when demand has left the step by `band` (hysteresis)."""
    up = np.ceil(demand - DUST)
    if np.isnan(current) or up >= current:
        return up
    return min(current, np.ceil(demand + band - DUST))


@part
def _gpu_busy(spec: SpecSlot, seen: ReadingsSlot, at_zero: bool) -> bool:
    return seen.busiest_gpu > spec.gpu_quiet and not at_zero


@part
def _known_at_zero(seen: ReadingsSlot, mind: MemorySlot) -> bool:
    """By the cluster's count, or by our own word where nothing says otherwise: an outage brings no replica back."""
    return seen.wanted == 0.0 or (_was_asleep(mind) and np.isnan(seen.wanted) and not seen.pods_listed > 0.0)


@part
def _idle_since(spec: SpecSlot, seen: ReadingsSlot, mind: MemorySlot, now: float) -> float:
    """Since when nothing is to be done, all being fresh; NaN while something is."""
    requests = _count(seen.waiting) + _count(seen.held) + _count(seen.running)
    busy = _gpu_busy(spec, seen, _known_at_zero(seen, mind))
    if requests > 0.0 or busy or _loading(spec, seen, _was_asleep(mind)):
        return np.nan
    unseen = seen.gpus_stale or seen.gpus_blind
    since = now if np.isnan(mind.idle_since) or unseen else mind.idle_since
    # A request may come and go between two scrapes: its counter shows it.
    return since if np.isnan(seen.active_at) else max(since, seen.active_at)


@part
def _decide_fresh(
    spec: SpecSlot, seen: ReadingsSlot, mind: MemorySlot, demand: float, idle_since: float, now: float
) -> tuple[float, bool, int]:
    """Everything needed is fresh: (replicas, active, reason)."""
    at_zero = _known_at_zero(seen, mind)
    steps = _steps(demand, mind.replicas if mind.active else np.nan, spec.band)
    replicas = min(max(steps, 1.0, spec.minimum), spec.maximum)
    if not np.isnan(idle_since):
        # Found at zero with nothing to do: waking it to let it fall asleep again would be a wrong wake.
        rested = at_zero or _was_asleep(mind) or now - idle_since >= spec.keep_warm
        if spec.sleeps and rested:
            if now - seen.refused_at < spec.keep_warm:
                # Somebody was turned away for want of a replica. How many were is not known, so one is made; from then
                # on this is activity like any other, so it is kept for the keep-warm time at least.
                return replicas, True, QUEUED
            if seen.waker_fresh:
                return 0.0, False, ASLEEP
            if at_zero:
                return 0.0, False, NO_WAKER
            return replicas, True, NO_WAKER
        return replicas, True, WARM
    if steps > spec.maximum:
        return replicas, True, CAPPED
    if _count(seen.running) > 0.0:
        return replicas, True, SERVING
    if _loading(spec, seen, _was_asleep(mind)) and not seen.ready > 0.0:
        return replicas, True, LOADING
    if _count(seen.waiting) + _count(seen.held) > 0.0:
        return replicas, True, QUEUED
    if _gpu_busy(spec, seen, at_zero):
        return replicas, True, GPU_BUSY
    # Nothing to do that is seen, and not idle: something loads, or a pod whose work was imputed does not answer.
    return replicas, True, LOADING if _loading(spec, seen, _was_asleep(mind)) else WARM


@part
def _can_fall(mind: MemorySlot) -> bool:
    """Was there an answer that a lower one would take back?"""
    return not np.isnan(mind.replicas) and mind.reason != UNKNOWN


@part
def _was_asleep(mind: MemorySlot) -> bool:
    return mind.replicas == 0.0 and not mind.active


@part
def _decide_stale(
    spec: SpecSlot, seen: ReadingsSlot, mind: MemorySlot, held_since: float, now: float
) -> tuple[float, bool, int]:
    """Something needed is missing: hold, as a floor that fresh demand may raise; then an error (law 1)."""
    # What is fresh is a lower bound of the demand, whatever is missing.
    work = _count(seen.waiting) + _count(seen.running) + _count(seen.held)
    target = spec.targets[WORK]
    at_least = 0.0 if np.isnan(target) else np.ceil(work / target - DUST)
    if work > 0.0:
        at_least = max(at_least, 1.0)
    at_least = min(at_least, spec.maximum)

    last = mind.replicas
    if np.isnan(last) and not np.isnan(seen.wanted):  # no memory: what the cluster has is what can be held
        last = min(seen.wanted, spec.maximum)
    if at_least > _count(last):
        return max(at_least, spec.minimum), True, HELD
    if np.isnan(last):
        return np.nan, True, UNKNOWN
    # The answer of a moment ago, and its reason: a page that is about to come is no outage.
    reason = mind.reason if now - held_since < spec.settle and _can_fall(mind) else HELD
    if last == 0.0 and (_at_zero(seen) or _known_at_zero(seen, mind)) and spec.sleeps:
        return 0.0, False, reason  # an error here would let KEDA's fallback wake every sleeper
    if now - held_since > spec.hold:
        return np.nan, True, UNKNOWN
    held = max(last, 1.0, spec.minimum)
    return held, True, reason if mind.active and held == mind.replicas else HELD


@part
def _answered(spec: SpecSlot, seen: ReadingsSlot, asleep: bool) -> bool:
    """Is every source of the workload's demand fresh, or known to have nothing?"""
    if spec.gateway and not seen.gateway_fresh:
        return False
    return _pods_answer(spec, seen, asleep) and _gpus_answer(spec, seen)


@part
def _rest_is_like(spec: SpecSlot, seen: ReadingsSlot, mind: MemorySlot, now: float) -> bool:
    """Do only some pods not answer, for so long that they are taken to be like those that do?

    Of fewer than half the rest cannot be told; and before the bound nothing falls on a part of the pods. A fleet on
    spot nodes always misses a few: it would never be scaled down again.
    """
    if not spec.pods or (spec.gateway and not seen.gateway_fresh) or not _gpus_answer(spec, seen):
        return False
    some = 0.0 < seen.pods_fresh < seen.pods_listed and 2.0 * seen.pods_fresh >= seen.pods_listed
    return some and now - mind.held_since >= spec.impute_after


@part
def _decide(spec: SpecSlot, seen: ReadingsSlot, mind: MemorySlot, demands: Floats, now: float) -> MemorySlot:
    """The answer, and since when it is idle or held. Here `replicas` may be NaN: nothing is known."""
    demand = _demand(spec, seen, demands)
    whole = _answered(spec, seen, _was_asleep(mind))
    if not whole and not np.isnan(demand) and _rest_is_like(spec, seen, mind, now):
        # What was imputed may size it; it proves no idleness (law 6).
        replicas, active, reason = _decide_fresh(spec, seen, mind, demand, np.nan, now)
        return MemorySlot(replicas, active, reason, np.nan, mind.held_since)
    if not whole or np.isnan(demand):
        held_since = now if np.isnan(mind.held_since) else mind.held_since
        replicas, active, reason = _decide_stale(spec, seen, mind, held_since, now)
        return MemorySlot(replicas, active, reason, np.nan, held_since)
    idle_since = _idle_since(spec, seen, mind, now)
    replicas, active, reason = _decide_fresh(spec, seen, mind, demand, idle_since, now)
    return MemorySlot(replicas, active, reason, idle_since, np.nan)


@kernel(types.void(*COLUMNS, types.bool_[::1]))
def _all_answered(specs: Specs, readings: Readings, memory: Memory, out: Bools) -> None:
    for i in range(out.shape[0]):
        out[i] = _answered(_spec_of(specs, i), _seen_of(readings, i), _was_asleep(_mind_of(memory, i)))


@kernel(types.void(*COLUMNS, types.float64, types.bool_[::1]))
def _all_imputed(specs: Specs, readings: Readings, memory: Memory, now: float, out: Bools) -> None:
    for i in range(out.shape[0]):
        spec, seen, mind = _spec_of(specs, i), _seen_of(readings, i), _mind_of(memory, i)
        out[i] = not _answered(spec, seen, _was_asleep(mind)) and _rest_is_like(spec, seen, mind, now)


@kernel(types.void(*COLUMNS, types.float64, types.bool_, typeof(Verdicts.blank(0))))
def _step(specs: Specs, readings: Readings, memory: Memory, now: float, raise_only: bool, out: Verdicts) -> None:
    for i in range(out.replicas.shape[0]):
        mind = _mind_of(memory, i)
        new = _decide(_spec_of(specs, i), _seen_of(readings, i), mind, out.demand[i], now)
        memory.idle_since[i], memory.held_since[i] = new.idle_since, new.held_since
        replicas, active, reason = new.replicas, new.active, new.reason
        if raise_only and _can_fall(mind) and not replicas >= mind.replicas:
            # Between ticks an arrival may only raise or activate: two callers a millisecond apart must not see a
            # number fall because one page of many came in (law 2). After an error any answer is a gain.
            replicas, active, reason = mind.replicas, mind.active, mind.reason
        out.replicas[i], out.active[i], out.reason[i] = replicas, active, reason
        if not np.isnan(replicas):
            memory.replicas[i], memory.active[i] = replicas, active
        memory.reason[i] = reason


def step(
    specs: Specs, readings: Readings, memory: Memory, now: float, *, raise_only: bool = False
) -> tuple[Verdicts, Memory]:
    """Decide all workloads.

    now:        POSIX seconds.
    raise_only: an arrival between ticks: answers may rise or activate, never fall.
    Returns what to answer and what to remember; the arguments are not changed.
    """
    rows = specs.minimum.shape[0]
    verdicts = Verdicts.blank(rows)
    mind: Memory = choose(np.arange(rows), memory)  # copies
    _step(specs, readings, mind, now, raise_only, verdicts)
    return verdicts, mind


def answered(specs: Specs, readings: Readings, memory: Memory) -> Bools:
    """Which workloads' demand is wholly known: only then is a sum a value, else it is a lower bound."""
    out = np.zeros(specs.minimum.shape[0], dtype=np.bool_)
    _all_answered(specs, readings, memory, out)
    return out


def imputed(specs: Specs, readings: Readings, memory: Memory, now: float) -> Bools:
    """Of which workloads some pods do not answer and are to be taken to be like the others."""
    out = np.zeros(specs.minimum.shape[0], dtype=np.bool_)
    _all_imputed(specs, readings, memory, now, out)
    return out


def choose(rows: np.ndarray[Any, Any], columns: Any) -> Any:
    """The same columns for some workloads only (a named tuple of arrays, indexed by `rows`)."""
    return type(columns)(*(column[rows] for column in columns))
