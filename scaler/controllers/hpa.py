"""The HorizontalPodAutoscaler's arithmetic for external metrics, as Kubernetes 1.36 does it.

Knows: one sync of the controller, that is metric values in, replicas out, and what it remembers from sync to sync.
Refuses to know: where the values come from, what time it is, and metrics of other types (Resource, Pods).
Sources are named by file: `horizontal.go` and `replica_calculator.go` in pkg/controller/podautoscaler.

Worked example: the value is 11 with target 1 at 10 replicas. 11/(1 · 10) = 1.1 is within the default tolerance of
10 %, so nothing happens; with `tolerance=0.0` the answer is ceil(11/1) = 11.

    outcome, memory = step(Spec(max_replicas=20), Memory(), [Metric(11.0, 1.0)], current=10, status=10, now=0.0)
    (outcome.replicas, outcome.why)  # (10, "within tolerance: 11 is within ±10 % of 10 · 1")
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from .behavior import Behavior, Mark, Memory, down_limit, remember_change, up_limit


@dataclass(frozen=True, slots=True)
class Spec:
    """One HPA. `behavior=None` is the legacy path, which is what KEDA creates unless it is told otherwise.

    tolerance, window_s: the cluster's flags (--horizontal-pod-autoscaler-tolerance, -downscale-stabilization).
    """

    max_replicas: int
    min_replicas: int = 1
    behavior: Behavior | None = None
    tolerance: float = 0.1
    window_s: float = 300.0


class Metric(NamedTuple):
    """One external metric: its total value (None or NaN: it could not be read) and its target per replica."""

    value: float | None
    target: float


class WholeMetric(NamedTuple):
    """One external metric of type Value: what it is as a whole, and what it should be; `ready`: pods that are ready.

    An average over pods is told in this way: 90 where 80 is wanted asks for 90/80 of the ready pods.
    """

    value: float | None
    target: float
    ready: int


class Limit(StrEnum):
    """What stood between the metrics and the order."""

    NONE = "none"
    AT_ZERO = "at_zero"
    ERROR = "error"
    TOLERANCE = "tolerance"
    STABILISED = "stabilised"
    RATE = "rate"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The replicas ordered (the current ones where nothing changes), what the metrics alone asked for, and why."""

    replicas: int
    proposed: int | None
    limit: Limit
    why: str


class _Limited(NamedTuple):
    replicas: int
    limit: Limit
    why: str


def step(
    spec: Spec, memory: Memory, metrics: Sequence[Metric | WholeMetric], current: int, status: int, now: float
) -> tuple[Outcome, Memory]:
    """One sync. current: the scale target's spec.replicas; status: its status.replicas (pods that exist)."""
    if memory.recommended is None:  # horizontal.go recordInitialRecommendation
        memory = replace(memory, recommended=(Mark(now, current),))
    # horizontal.go reconcileAutoscaler: zero is a person's or KEDA's decision; the minimum here is at least 1.
    if current == 0:
        return Outcome(0, None, Limit.AT_ZERO, "at zero: the HPA does nothing"), memory
    if current > spec.max_replicas:
        outcome = Outcome(spec.max_replicas, None, Limit.MAX, f"limited to {spec.max_replicas} by maxReplicas")
        return outcome, _ordered(spec, memory, current, outcome.replicas, now)
    if current < spec.min_replicas:
        outcome = Outcome(spec.min_replicas, None, Limit.MIN, f"raised to {spec.min_replicas} by minReplicas")
        return outcome, _ordered(spec, memory, current, outcome.replicas, now)

    proposed, tolerated, missing = _propose(spec, metrics, current, status)
    # horizontal.go computeReplicasForMetrics: a missing metric might have asked for more, so it blocks scaling down.
    if proposed is None or (missing and proposed < current):
        why = f"{missing} of {len(metrics)} metrics could not be read: never down on an error"
        return Outcome(current, proposed, Limit.ERROR, why), memory

    if spec.behavior is None:
        limited, memory = _legacy(spec, memory, current, proposed, now)
    else:
        limited, memory = _behave(spec, spec.behavior, memory, current, proposed, now)
    if limited.limit is Limit.NONE and tolerated:
        limited = limited._replace(limit=Limit.TOLERANCE, why=tolerated)
    outcome = Outcome(limited.replicas, proposed, limited.limit, limited.why)
    return outcome, _ordered(spec, memory, current, outcome.replicas, now)


def _ordered(spec: Spec, memory: Memory, before: int, after: int, now: float) -> Memory:
    """horizontal.go storeScaleEvent: events are kept only where `behavior` will read them."""
    return memory if spec.behavior is None else remember_change(spec.behavior, memory, before, after, now)


def _propose(
    spec: Spec, metrics: Sequence[Metric | WholeMetric], current: int, status: int
) -> tuple[int | None, str | None, int]:
    """The most any metric asks for, why that is no change if it is inside the tolerance, and how many are missing."""
    best: int | None = None
    tolerated: str | None = None
    missing = 0
    for metric in metrics:
        if metric.value is None or math.isnan(metric.value):
            missing += 1
            continue
        if isinstance(metric, WholeMetric):
            replicas, within = _whole_value(spec, metric.value, metric, current)
        else:
            replicas, within = _average_value(spec, metric.value, metric.target, status)
        if best is None or replicas > best:
            best, tolerated = replicas, within
    return best, tolerated, missing


def _average_value(spec: Spec, value: float, target: float, status: int) -> tuple[int, str | None]:
    """replica_calculator.go GetExternalPerPodMetricReplicas; values travel as whole milli-units."""
    usage, per_pod = int(value * 1000), int(target * 1000)
    down, up = _tolerances(spec)
    # Go divides 0 by 0 to NaN and 1 by 0 to infinity; neither is within the tolerance.
    ratio = usage / (per_pod * status) if status else math.inf
    if ratio != 1.0 and 1.0 - down <= ratio <= 1.0 + up:
        return status, f"within tolerance: {value:g} is within {_band(down, up)} of {status} · {target:g}"
    return math.ceil(usage / per_pod), None


def _whole_value(spec: Spec, value: float, metric: WholeMetric, current: int) -> tuple[int, str | None]:
    """replica_calculator.go GetExternalMetricReplicas, getUsageRatioReplicaCount: the ratio times the ready pods.

    Inside the tolerance it is spec.replicas, ready or not; outside it a pod that starts counts for nothing, so
    that while one starts the answer may be less than what there is.
    """
    ratio = int(value * 1000) / int(metric.target * 1000)
    down, up = _tolerances(spec)
    if ratio != 1.0 and 1.0 - down <= ratio <= 1.0 + up:
        return current, f"within tolerance: {value:g} is within {_band(down, up)} of {metric.target:g}"
    if ratio == 1.0:
        return current, None
    return math.ceil(ratio * metric.ready), None


def _band(down: float, up: float) -> str:
    band = f"±{up:.0%}" if up == down else f"-{down:.0%}/+{up:.0%}"
    return band.replace("%", " %")


def _tolerances(spec: Spec) -> tuple[float, float]:
    """(down, up): per direction from `behavior` (on by default from Kubernetes 1.35), else the cluster's."""
    if spec.behavior is None:
        return spec.tolerance, spec.tolerance
    down, up = spec.behavior.down.tolerance, spec.behavior.up.tolerance
    return (spec.tolerance if down is None else down, spec.tolerance if up is None else up)


def _legacy(spec: Spec, memory: Memory, current: int, proposed: int, now: float) -> tuple[_Limited, Memory]:
    """horizontal.go normalizeDesiredReplicas: without `behavior`."""
    kept = tuple(mark for mark in memory.recommended or () if mark.at >= now - spec.window_s)
    highest = max([proposed, *(mark.replicas for mark in kept)])
    memory = replace(memory, recommended=(*kept, Mark(now, proposed)))
    # scaleUpLimitFactor = 2, scaleUpLimitMinimum = 4
    ceiling = max(2 * current, 4)
    if highest < spec.min_replicas:
        return _Limited(spec.min_replicas, Limit.MIN, f"raised to {spec.min_replicas} by minReplicas"), memory
    if highest > min(spec.max_replicas, ceiling):
        if spec.max_replicas > ceiling:
            return _Limited(ceiling, Limit.RATE, f"limited to {ceiling}: twice the replicas, or 4, at once"), memory
        return _Limited(spec.max_replicas, Limit.MAX, f"limited to {spec.max_replicas} by maxReplicas"), memory
    if highest > proposed:
        return _stabilised(highest, proposed, kept, spec.window_s, now), memory
    return _Limited(highest, Limit.NONE, f"follows its metrics: {highest}"), memory


def _behave(
    spec: Spec, behavior: Behavior, memory: Memory, current: int, proposed: int, now: float
) -> tuple[_Limited, Memory]:
    """horizontal.go normalizeDesiredReplicasWithBehaviors: stabilise, then limit the rate."""
    up, down = behavior.up, behavior.down
    longest = max(up.window_s, down.window_s)
    kept = tuple(mark for mark in memory.recommended or () if mark.at > now - longest)
    memory = replace(memory, recommended=(*kept, Mark(now, proposed)))

    # stabilizeRecommendationWithBehaviors: the current replicas, brought between the lowest recommendation of the up
    # window and the highest of the down window.
    lowest = min([proposed, *(mark.replicas for mark in kept if mark.at > now - up.window_s)])
    highest = max([proposed, *(mark.replicas for mark in kept if mark.at > now - down.window_s)])
    stable = min(max(current, lowest), highest)

    limited = _limit_rate(spec, behavior, memory, current, stable, now)
    if limited.limit is Limit.NONE and stable != proposed:
        window_s = down.window_s if stable > proposed else up.window_s
        return _stabilised(stable, proposed, kept, window_s, now), memory
    return limited, memory


def _stabilised(stable: int, proposed: int, marks: Sequence[Mark], window_s: float, now: float) -> _Limited:
    """What a window holds, and until when: its latest mark on the far side of `stable` has to leave it first."""
    if stable > proposed:
        holding = [mark.at for mark in marks if mark.replicas >= stable]
    else:
        holding = [mark.at for mark in marks if mark.replicas <= stable]
    left_s = max(holding, default=now) + window_s - now
    return _Limited(stable, Limit.STABILISED, f"stabilised at {stable} for {math.ceil(left_s)} s more")


def _limit_rate(spec: Spec, behavior: Behavior, memory: Memory, current: int, wanted: int, now: float) -> _Limited:
    """horizontal.go convertDesiredReplicasWithBehaviorRate."""
    if wanted > current:
        rate, why = up_limit(behavior.up, memory, current, now)
        rate = max(rate, current)  # more was added in the period than is allowed: wait, do not go back
        ceiling = min(spec.max_replicas, rate)
        if wanted > ceiling:
            if spec.max_replicas > rate:
                return _Limited(ceiling, Limit.RATE, why)
            return _Limited(ceiling, Limit.MAX, f"limited to {ceiling} by maxReplicas")
    elif wanted < current:
        rate, why = down_limit(behavior.down, memory, current, now)
        rate = min(rate, current)
        floor = max(spec.min_replicas, rate)
        if wanted < floor:
            if spec.min_replicas < rate:
                return _Limited(floor, Limit.RATE, why)
            return _Limited(floor, Limit.MIN, f"raised to {floor} by minReplicas")
    return _Limited(wanted, Limit.NONE, f"follows its metrics: {wanted}")
