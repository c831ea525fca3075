"""What is known of one workload: the questions that its answer rests on. Pure; parts of the kernels in `step`.

Every question is about one slot of the columns, as plain numbers: each array that is handed from part to part is
counted in and out again, which costs forty times what is decided here.

Worked example: two of three ready pods answer: `pods_answer` is False, and `rest_is_like` becomes True when that has
been so for `impute_after`: two are half of three at least.
"""

from __future__ import annotations

import numpy as np

from exporter.model import Floats
from scaler.jit import part

from .columns import GPU_ENGINE, KV_CACHE, UNKNOWN, WORK, MemorySlot, ReadingsSlot, SpecSlot, StandingSlot

# 0.1 + 0.2 must not become a replica: sums of ratios carry errors near 1e-16 of their size.
DUST = 1e-9


@part
def counted(value: float) -> float:
    """A number of requests to reckon with: what is not known adds nothing to a *lower bound*."""
    return 0.0 if np.isnan(value) else value


@part
def pods_answer(spec: SpecSlot, seen: ReadingsSlot, asleep: bool) -> bool:
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
def at_zero(seen: ReadingsSlot) -> bool:
    """Is no replica ready, by the cluster's count or, without one, by a listing that answered "none"?"""
    if np.isnan(seen.wanted):
        return seen.pods_listed == 0.0
    return seen.wanted == 0.0


@part
def gpus_answer(spec: SpecSlot, seen: ReadingsSlot) -> bool:
    """Is GPU activity known, for those who are sized by it?"""
    if np.isnan(spec.targets[GPU_ENGINE]) or at_zero(seen):
        return True
    return not seen.gpus_stale and not np.isnan(seen.busiest_gpu)


@part
def loading(spec: SpecSlot, seen: ReadingsSlot, asleep: bool) -> bool:
    """Replicas exist that do not serve yet: neither idle nor capacity (law 7). A Job is not waited for: it runs to its
    end whatever is answered, and where none is left none is on its way.
    """
    if spec.jobs:
        return False
    if seen.wanted > 0.0:
        # We said zero and no pod is there any more: the count of what is wanted is on its way down, not up.
        return not seen.ready >= seen.wanted and not (asleep and seen.existing == 0.0)
    # No count, and the listing of ready pods answered "none": they load, unless it was we who said zero.
    return spec.pods and np.isnan(seen.wanted) and seen.pods_listed == 0.0 and not asleep


@part
def demanded(spec: SpecSlot, seen: ReadingsSlot, out: Floats) -> float:
    """The largest objective, in replicas; NaN while any that is asked for is unknown. Each goes to `out`."""
    largest = 0.0
    known = True
    nothing_ready = at_zero(seen) or seen.ready == 0.0
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
def steps(demand: float, current: float, band: float) -> float:
    """Whole replicas: up at once, down only when demand has left the step by `band` (hysteresis)."""
    up = np.ceil(demand - DUST)
    if np.isnan(current) or up >= current:
        return up
    return min(current, np.ceil(demand + band - DUST))


@part
def gpu_busy(spec: SpecSlot, seen: ReadingsSlot, nothing_there: bool) -> bool:
    """Of Jobs it says nothing: what runs is not cut down, and a GPU's page speaks on of one that has ended."""
    return seen.busiest_gpu > spec.gpu_quiet and not nothing_there and not spec.jobs


@part
def known_at_zero(spec: SpecSlot, seen: ReadingsSlot, mind: MemorySlot) -> bool:
    """By the cluster's count, or by our own word where nothing says otherwise: an outage brings no replica back."""
    there = seen.pods_fresh if spec.fixed else seen.pods_listed
    return seen.wanted == 0.0 or (was_asleep(mind) and np.isnan(seen.wanted) and not there > 0.0)


@part
def lease_runs(spec: SpecSlot, seen: ReadingsSlot, stands: StandingSlot, mind: MemorySlot, now: float) -> bool:
    """Was it woken, and has its first replica not been ready since? A start that is slow must not be cut down.

    Once it is ready, a request that still waits, or is worked on, keeps it; and what went away is idleness from then
    on.
    """
    return not np.isnan(mind.woken_at) and not has_served(spec, seen) and now - mind.woken_at < stands.lease


@part
def has_served(spec: SpecSlot, seen: ReadingsSlot) -> bool:
    """Is a replica ready? Where nobody could tell, a queue that empties is all that shows of it: it counts as ready."""
    if np.isnan(seen.ready) and not spec.pods:
        return True
    return (seen.pods_fresh if np.isnan(seen.ready) else seen.ready) > 0.0


@part
def hangs(spec: SpecSlot, seen: ReadingsSlot, stands: StandingSlot, mind: MemorySlot, now: float) -> bool:
    """Was it woken, and has no replica become ready within the lease? Who still waits for it keeps it; its loading
    alone does not any more, or a start that never ends would cost a GPU for good.
    """
    return not np.isnan(mind.woken_at) and not has_served(spec, seen) and now - mind.woken_at >= stands.lease


@part
def idle_since(spec: SpecSlot, seen: ReadingsSlot, stands: StandingSlot, mind: MemorySlot, now: float) -> float:
    """Since when nothing is to be done, all being fresh; NaN while something is."""
    requests = counted(seen.waiting) + counted(seen.held) + counted(seen.running)
    busy = gpu_busy(spec, seen, known_at_zero(spec, seen, mind))
    if requests > 0.0 or busy or lease_runs(spec, seen, stands, mind, now):
        return np.nan
    if loading(spec, seen, was_asleep(mind)) and not hangs(spec, seen, stands, mind, now):
        return np.nan
    unseen = seen.gpus_stale or (spec.holds_incomplete and (seen.gpus_blind or seen.unproven))
    since = now if np.isnan(mind.idle_since) or unseen else mind.idle_since
    # A request may come and go between two scrapes: its counter shows it.
    return since if np.isnan(seen.active_at) else max(since, seen.active_at)


@part
def can_fall(mind: MemorySlot) -> bool:
    """Was there an answer that a lower one would take back?"""
    return not np.isnan(mind.replicas) and mind.reason != UNKNOWN


@part
def was_asleep(mind: MemorySlot) -> bool:
    return mind.replicas == 0.0 and not mind.active


@part
def answered(spec: SpecSlot, seen: ReadingsSlot, asleep: bool) -> bool:
    """Is every source of the workload's demand fresh, or known to have nothing?"""
    if spec.gateway and not seen.gateway_fresh:
        return False
    return pods_answer(spec, seen, asleep) and gpus_answer(spec, seen)


@part
def partial(spec: SpecSlot, seen: ReadingsSlot) -> bool:
    """Is what is fresh a lower bound of the demand? It may raise an answer; it lowers none and proves no idleness."""
    if not spec.holds_incomplete:
        return False
    return (seen.pods_partial > 0.0 and seen.wanted != 0.0) or seen.gateway_partial


@part
def mean_is_partial(spec: SpecSlot, seen: ReadingsSlot) -> bool:
    """Is a mean that it is sized by one of a part of its engines or GPUs? What is left out may be what is busy."""
    kv_cache = seen.kv_partial and not np.isnan(spec.targets[KV_CACHE])
    gpus = seen.gpus_blind and not np.isnan(spec.targets[GPU_ENGINE])
    return spec.holds_incomplete and (kv_cache or gpus)


@part
def rest_is_like(spec: SpecSlot, seen: ReadingsSlot, mind: MemorySlot, now: float) -> bool:
    """Do only some pods not answer completely, for so long that they are taken to be like those that do?

    Of fewer than half the rest cannot be told; and before the bound nothing falls on a part of the pods. A fleet on
    spot nodes always misses a few: it would never be scaled down again.
    """
    if not spec.pods or (spec.gateway and not seen.gateway_fresh) or not gpus_answer(spec, seen):
        return False
    if spec.holds_incomplete and seen.gateway_partial:
        return False
    if spec.jobs:  # what one Job has in hand says nothing of another's, and what is imputed would start one
        return False
    whole = seen.pods_fresh - (seen.pods_partial if spec.holds_incomplete else 0.0)
    some = 0.0 < whole < seen.pods_listed and 2.0 * whole >= seen.pods_listed
    return some and (now - mind.held_since >= spec.impute_after or now - mind.incomplete_since >= spec.impute_after)
