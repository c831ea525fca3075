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
from .arrays import Bools, Memory, Readings, Signal, Specs, Verdicts

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


ROWS = (typeof(Specs.stack([])), typeof(Readings.unknown(0)), typeof(Memory.blank(0)))

Function = TypeVar("Function", bound=Callable[..., Any])


def part(function: Function) -> Function:
    """A part of the kernels below, compiled into them; not kept on disk by itself."""
    return cast(Function, njit(error_model="numpy", forceinline=True)(function))


@part
def _count(value: float) -> float:
    """A number of requests to reckon with: what is not known adds nothing to a *lower bound*."""
    return 0.0 if np.isnan(value) else value


@part
def _pods_answer(i: int, spec: Specs, seen: Readings, asleep: bool) -> bool:
    """Is the demand that lives in pods known?"""
    if not spec.pods[i]:
        return True
    if seen.wanted[i] == 0.0:  # known to be at zero: no pod, no demand in pods
        return True
    if seen.pods_listed[i] > 0.0 and seen.pods_fresh[i] >= seen.pods_listed[i]:
        return True
    if seen.pods_listed[i] == 0.0:
        # The listing answered "none". A cluster that says some are ready contradicts it; otherwise they load, and
        # what has never been ready holds no request.
        return not seen.ready[i] > 0.0
    # We said zero, with proof, and the pages are gone: that is what zero looks like from outside. Only where the
    # cluster's own count could say otherwise is it believed instead.
    return asleep and np.isnan(seen.wanted[i]) and seen.pods_fresh[i] == 0.0


@part
def _at_zero(i: int, seen: Readings) -> bool:
    """Is no replica ready, by the cluster's count or, without one, by a listing that answered "none"?"""
    if np.isnan(seen.wanted[i]):
        return seen.pods_listed[i] == 0.0
    return seen.wanted[i] == 0.0


@part
def _gpus_answer(i: int, spec: Specs, seen: Readings) -> bool:
    """Is GPU activity known, for those who are sized by it?"""
    if np.isnan(spec.targets[i, GPU_ENGINE]) or _at_zero(i, seen):
        return True
    return not seen.gpus_stale[i] and not np.isnan(seen.busiest_gpu[i])


@part
def _loading(i: int, spec: Specs, seen: Readings, asleep: bool) -> bool:
    """Replicas exist that do not serve yet: neither idle nor capacity (law 7)."""
    if seen.wanted[i] > 0.0:
        return not seen.ready[i] >= seen.wanted[i]
    # No count, and the listing of ready pods answered "none": they load, unless it was we who said zero.
    return spec.pods[i] and np.isnan(seen.wanted[i]) and seen.pods_listed[i] == 0.0 and not asleep


@part
def _demand(i: int, spec: Specs, seen: Readings, out: Floats) -> float:
    """The largest objective, in replicas; NaN while any that is asked for is unknown. Each goes to `out`."""
    largest = 0.0
    known = True
    nothing_ready = _at_zero(i, seen) or seen.ready[i] == 0.0
    for signal in range(out.shape[0]):
        target = spec.targets[i, signal]
        out[signal] = np.nan
        if np.isnan(target):
            continue
        value = seen.signals[i, signal]
        if signal == WORK:
            # Demand read from pods is known to be zero where there is no pod; what a gateway holds is in `value`.
            out[signal] = 0.0 if np.isnan(value) and nothing_ready else value / target
        else:
            # A mean per replica asks for replicas in proportion to those that carry it: 4 at 0.9 of a target of
            # 0.6 need 6. Where nothing is ready there is nothing to carry it.
            ready = seen.ready[i] if not np.isnan(seen.ready[i]) else seen.pods_fresh[i]
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
def _decide_fresh(
    i: int, spec: Specs, seen: Readings, mind: Memory, demand: float, now: float
) -> tuple[float, bool, int]:
    """Everything needed is fresh: (replicas, active, reason)."""
    backlog = _count(seen.waiting[i]) + _count(seen.held[i])
    running = _count(seen.running[i])
    loading = _loading(i, spec, seen, _was_asleep(i, mind))
    # Known to be at zero: by the cluster's count, or by our own word and a listing that agrees with it.
    at_zero = seen.wanted[i] == 0.0 or (_at_zero(i, seen) and _was_asleep(i, mind))
    gpu_busy = seen.busiest_gpu[i] > spec.gpu_quiet[i] and not at_zero

    if backlog + running > 0.0 or loading or gpu_busy:
        mind.idle_since[i] = np.nan
    elif np.isnan(mind.idle_since[i]) or seen.gpus_stale[i]:
        mind.idle_since[i] = now
    if not np.isnan(seen.active_at[i]) and not np.isnan(mind.idle_since[i]):
        # A request may come and go between two scrapes: its counter shows it.
        mind.idle_since[i] = max(mind.idle_since[i], seen.active_at[i])

    floor = max(1.0, spec.minimum[i])
    steps = _steps(demand, mind.replicas[i] if mind.active[i] else np.nan, spec.band[i])
    replicas = min(max(steps, floor), spec.maximum[i])
    if not np.isnan(mind.idle_since[i]):
        idle_for = now - mind.idle_since[i]
        # Found at zero with nothing to do: waking it to let it fall asleep again would be a wrong wake.
        if spec.minimum[i] == 0.0 and (at_zero or idle_for >= spec.keep_warm[i] or _was_asleep(i, mind)):
            if seen.waker_fresh[i]:
                return 0.0, False, ASLEEP
            if at_zero:
                return 0.0, False, NO_WAKER
            return replicas, True, NO_WAKER
        return replicas, True, WARM
    if steps > spec.maximum[i]:
        return replicas, True, CAPPED
    if running > 0.0:
        return replicas, True, SERVING
    if loading and not seen.ready[i] > 0.0:
        return replicas, True, LOADING
    if backlog > 0.0:
        return replicas, True, QUEUED
    return replicas, True, GPU_BUSY if gpu_busy else LOADING


@part
def _can_fall(i: int, mind: Memory) -> bool:
    """Was there an answer that a lower one would take back?"""
    return not np.isnan(mind.replicas[i]) and mind.reason[i] != UNKNOWN


@part
def _was_asleep(i: int, mind: Memory) -> bool:
    return mind.replicas[i] == 0.0 and not mind.active[i]


@part
def _decide_stale(i: int, spec: Specs, seen: Readings, mind: Memory, now: float) -> tuple[float, bool, int]:
    """Something needed is missing: hold, as a floor that fresh demand may raise; then an error (law 1)."""
    if np.isnan(mind.held_since[i]):
        mind.held_since[i] = now
    mind.idle_since[i] = np.nan

    # What is fresh is a lower bound of the demand, whatever is missing.
    work = _count(seen.waiting[i]) + _count(seen.running[i]) + _count(seen.held[i])
    target = spec.targets[i, WORK]
    at_least = 0.0 if np.isnan(target) else np.ceil(work / target - DUST)
    if work > 0.0:
        at_least = max(at_least, 1.0)
    at_least = min(at_least, spec.maximum[i])

    last = mind.replicas[i]
    if np.isnan(last) and not np.isnan(seen.wanted[i]):  # no memory: what the cluster has is what can be held
        last = min(seen.wanted[i], spec.maximum[i])
    if at_least > _count(last):
        return max(at_least, spec.minimum[i]), True, HELD
    if np.isnan(last):
        return np.nan, True, UNKNOWN
    if last == 0.0 and _at_zero(i, seen) and spec.minimum[i] == 0.0:
        return 0.0, False, HELD  # an error here would let KEDA's fallback wake every sleeper
    if now - mind.held_since[i] > spec.hold[i]:
        return np.nan, True, UNKNOWN
    return max(last, 1.0, spec.minimum[i]), True, HELD


@part
def _answered(i: int, spec: Specs, seen: Readings, asleep: bool) -> bool:
    """Is every source of the workload's demand fresh, or known to have nothing?"""
    if spec.gateway[i] and not seen.gateway_fresh[i]:
        return False
    return _pods_answer(i, spec, seen, asleep) and _gpus_answer(i, spec, seen)


@part
def _decide(i: int, spec: Specs, seen: Readings, mind: Memory, demands: Floats, now: float) -> tuple[float, bool, int]:
    demand = _demand(i, spec, seen, demands)
    if np.isnan(demand) or not _answered(i, spec, seen, _was_asleep(i, mind)):
        return _decide_stale(i, spec, seen, mind, now)
    mind.held_since[i] = np.nan
    return _decide_fresh(i, spec, seen, mind, demand, now)


@kernel(types.void(*ROWS, types.bool_[::1]))
def _all_answered(spec: Specs, seen: Readings, mind: Memory, out: Bools) -> None:
    for i in range(out.shape[0]):
        out[i] = _answered(i, spec, seen, _was_asleep(i, mind))


@kernel(types.void(*ROWS, types.float64, types.bool_, typeof(Verdicts.blank(0))))
def _step(spec: Specs, seen: Readings, mind: Memory, now: float, raise_only: bool, out: Verdicts) -> None:
    for i in range(spec.minimum.shape[0]):
        replicas, active, reason = _decide(i, spec, seen, mind, out.demand[i], now)
        if raise_only and _can_fall(i, mind) and not replicas >= mind.replicas[i]:
            # Between ticks an arrival may only raise or activate: two callers a millisecond apart must not see a
            # number fall because one page of many came in (law 2). After an error any answer is a gain.
            replicas, active, reason = mind.replicas[i], mind.active[i], mind.reason[i]
        out.replicas[i], out.active[i], out.reason[i] = replicas, active, reason
        if not np.isnan(replicas):
            mind.replicas[i], mind.active[i] = replicas, active
        mind.reason[i] = reason


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


def choose(rows: np.ndarray[Any, Any], columns: Any) -> Any:
    """The same columns for some workloads only (a named tuple of arrays, indexed by `rows`)."""
    return type(columns)(*(column[rows] for column in columns))
