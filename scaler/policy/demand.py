"""Computes demand and bounds of one workload, and whether its readings are fresh and complete. Pure; parts of kernels.

Every function takes one slot of the columns, as plain numbers: an array that is passed from part to part is reference
counted, which costs forty times what is decided here.

Worked example: two of three ready pods answer: `pods_answer` is False, and `rest_is_like` becomes True when that has
been so for `impute_after`, because two are at least half of three.
"""

from __future__ import annotations

import numpy as np

from exporter.model import Floats
from scaler.jit import part

from .columns import GPU_ENGINE, KV_CACHE, SLO, WORK, MemorySlot, ReadingsSlot, SpecSlot
from .trace import ReplicaBounds

# 0.1 + 0.2 must not become a replica: sums of ratios carry errors near 1e-16 of their size.
DUST = 1e-9


@part
def counted(value: float) -> float:
    """A number of requests as a term of a *lower bound*: an unknown one adds nothing."""
    return 0.0 if np.isnan(value) else value


@part
def demanded(spec: SpecSlot, readings: ReadingsSlot, out: Floats) -> tuple[float, int, bool]:
    """The largest known objective, in replicas (NaN if none is known), its signal (-1 if none is above zero), and
    whether every one that is configured is known. Each is written to `out`.
    """
    largest, winner = 0.0, -1
    complete = True
    nothing_ready = at_zero(readings) or readings.ready == 0.0
    for signal in range(out.shape[0]):
        target, value = spec.targets[signal], readings.signals[signal]
        out[signal] = np.nan
        if np.isnan(target) or (signal in (WORK, KV_CACHE) and sized(spec, readings)):
            continue
        if signal == SLO:
            out[signal] = value  # is in replicas
        elif signal == WORK:
            # Demand read from pods is known to be zero where there is no pod; what a gateway holds is in `value`.
            out[signal] = 0.0 if np.isnan(value) and nothing_ready else value / target
        else:
            # A mean per replica asks for replicas in proportion to those that carry it: 4 at 0.9 of a target of
            # 0.6 need 6. Where nothing is ready there is nothing to carry it.
            ready = readings.ready if not np.isnan(readings.ready) else readings.pods_fresh
            out[signal] = 0.0 if nothing_ready else value * ready / target
        if np.isnan(out[signal]):
            # The KV guard only ever adds: an engine without a KV-cache metric is sized by its work alone. One without
            # counters of tokens is sized by the objectives that the SLO replaces.
            complete = complete and (signal == KV_CACHE or (signal == SLO and spec.falls_back))
        else:
            winner = signal if out[signal] > largest else winner
            largest = max(largest, out[signal])
    return largest if complete or winner >= 0 else np.nan, winner, complete


@part
def sized(spec: SpecSlot, readings: ReadingsSlot) -> bool:
    """Whether the SLO replaces the requests in hand and the KV cache as objectives."""
    return spec.falls_back and not np.isnan(readings.signals[SLO])


@part
def least_demand(spec: SpecSlot, readings: ReadingsSlot) -> float:
    """Replicas for the requests that are known to be in hand: a lower bound of the demand, whatever is missing.

    Requests that an engine had when it stopped answering are added to those that are visible elsewhere: 30 in engines
    that do not answer and 15 new ones at the gateway are 45. Not so for Jobs, where that would start some twice.
    """
    work = counted(readings.waiting) + counted(readings.running) + counted(readings.held)
    if not spec.jobs:
        work = max(work, readings.in_hand_at_least)
    if sized(spec, readings):  # what arrived until the readings stopped: requests in hand say nothing about replicas
        at_least = whole_replicas(readings.signals[SLO]) if work > 0.0 else 0.0
    else:
        target = spec.targets[WORK]
        at_least = 0.0 if np.isnan(target) else whole_replicas(work / target)
    if work > 0.0:
        at_least = max(at_least, 1.0)
    return min(at_least, spec.maximum)


@part
def whole_replicas(demand: float) -> float:
    return np.ceil(demand - DUST) + 0.0  # never -0.0


@part
def steps(demand: float, current: float, band: float) -> float:
    """Whole replicas: up at once, down only when demand has left the step by `band` (hysteresis)."""
    up = whole_replicas(demand)
    if np.isnan(current) or up >= current:
        return up
    return min(current, whole_replicas(demand + band))


@part
def bounded(spec: SpecSlot, whole: float, sized: float, floor: float, last: float) -> ReplicaBounds:
    """floor, last: replicas; NaN is no such bound."""
    minimum = max(sized, 1.0, spec.minimum)
    start = max(minimum, counted(floor))
    maximum = min(start, spec.maximum)
    return ReplicaBounds(whole, sized, minimum, start, maximum, max(maximum, counted(last)))


@part
def bounded_below(
    spec: SpecSlot, readings: ReadingsSlot, memory: MemorySlot, whole: float, determined: bool
) -> ReplicaBounds:
    """With readings that are lower bounds: they may raise the last decision. determined: all objectives are known."""
    at_least, last = least_demand(spec, readings), last_replicas(spec, readings, memory)
    if spec.jobs:  # the known requests decide; a number that is held would start some twice
        return ReplicaBounds(whole, at_least, at_least, at_least, at_least, at_least)
    return bounded(spec, whole, max(at_least, whole) if determined and last > 0.0 else at_least, np.nan, last)


@part
def last_replicas(spec: SpecSlot, readings: ReadingsSlot, memory: MemorySlot) -> float:
    """The replicas that can be held: those decided last or, before the first decision, those of the cluster."""
    if np.isnan(memory.replicas) and not np.isnan(readings.wanted):
        return min(readings.wanted, spec.maximum)
    return memory.replicas


@part
def at_zero(readings: ReadingsSlot) -> bool:
    """Whether no replica is wanted by the cluster or, if that is unknown, the list of pods is empty."""
    if np.isnan(readings.wanted):
        return readings.pods_listed == 0.0
    return readings.wanted == 0.0


@part
def answered(spec: SpecSlot, readings: ReadingsSlot, asleep: bool) -> bool:
    """Whether every source of the workload's demand is fresh, or known to have nothing."""
    if spec.gateway and not readings.gateway_fresh:
        return False
    return pods_answer(spec, readings, asleep) and gpus_answer(spec, readings)


@part
def pods_answer(spec: SpecSlot, readings: ReadingsSlot, asleep: bool) -> bool:
    """Whether the demand that lives in pods is known."""
    if not spec.pods:
        return True
    if readings.wanted == 0.0:  # known to be at zero: no pod, no demand in pods
        return True
    if readings.pods_listed > 0.0 and readings.pods_fresh >= readings.pods_listed:
        return True
    if readings.pods_listed == 0.0:
        # The list of pods is empty. If the cluster counts ready ones, that contradicts it; otherwise they load, and
        # what has never been ready holds no request.
        return not readings.ready > 0.0
    # The last decision was zero, with proof, and the targets are gone: that is what zero looks like from outside. Only
    # if the cluster's count could contradict it is that used instead.
    return asleep and np.isnan(readings.wanted) and readings.pods_fresh == 0.0


@part
def gpus_answer(spec: SpecSlot, readings: ReadingsSlot) -> bool:
    """Whether GPU activity is known, for a workload that is sized by it."""
    if np.isnan(spec.targets[GPU_ENGINE]) or at_zero(readings):
        return True
    return not readings.gpus_stale and not np.isnan(readings.busiest_gpu)


@part
def partial(spec: SpecSlot, readings: ReadingsSlot) -> bool:
    """Whether fresh readings are a lower bound: it may raise a decision; it lowers none and proves no idleness."""
    if not spec.holds_incomplete:
        return False
    return (readings.pods_partial > 0.0 and readings.wanted != 0.0) or readings.gateway_partial


@part
def mean_is_partial(spec: SpecSlot, readings: ReadingsSlot) -> bool:
    """Whether a mean that sizes it is over a part of its engines or GPUs. The missing ones may be the busy ones."""
    kv_cache = readings.kv_partial and not np.isnan(spec.targets[KV_CACHE])
    gpus = readings.gpus_blind and not np.isnan(spec.targets[GPU_ENGINE])
    return spec.holds_incomplete and (kv_cache or gpus)


@part
def rest_is_like(spec: SpecSlot, readings: ReadingsSlot, memory: MemorySlot, now: float) -> bool:
    """Whether some pods have not answered completely for so long that they are assumed to be like those that do.

    Fewer than half say nothing about the rest; and before the bound nothing falls on a part of the pods. A fleet on
    spot nodes always misses a few: it would never be scaled down again.
    """
    if not spec.pods or (spec.gateway and not readings.gateway_fresh) or not gpus_answer(spec, readings):
        return False
    if spec.holds_incomplete and readings.gateway_partial:
        return False
    if spec.jobs:  # the requests of one Job say nothing about another's, and what is imputed would start one
        return False
    whole = readings.pods_fresh - (readings.pods_partial if spec.holds_incomplete else 0.0)
    some = 0.0 < whole < readings.pods_listed and 2.0 * whole >= readings.pods_listed
    return some and (now - memory.held_since >= spec.impute_after or now - memory.incomplete_since >= spec.impute_after)
