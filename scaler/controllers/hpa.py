"""Models the HorizontalPodAutoscaler for external metrics, as in Kubernetes 1.36. Pure.

One sync of the controller: metric values in, replicas out, and the memory between syncs. Metrics of other types
(Resource, Pods) are not modelled. Sources are cited by file: `horizontal.go` and `replica_calculator.go` in
pkg/controller/podautoscaler, `defaults.go` in pkg/apis/autoscaling/v2.

`past_band` rounds a step up past the tolerance of the HPA, which ignores smaller changes (10 % by default): at 10
replicas it takes 11 for 10. The next number that it does not ignore, 12, is a replica too many; 10 would be one too
few. Steps down are not rounded: one that is ignored costs a replica and delays no request.

Worked example: the value is 11 with target 1 at 10 replicas. 11/(1 · 10) = 1.1 is within the default tolerance of
10 %, so nothing happens; with `tolerance=0.0` the result is ceil(11/1) = 11.

    spec, metrics = HpaSpec(max_replicas=20), [HpaMetric(11.0, 1.0)]
    outcome, memory = step(spec, HpaMemory(), metrics, current=10, status=10, now=0.0)
    (outcome.replicas, outcome.why)  # (10, "within tolerance: 11 is within ±10 % of 10 · 1")
    past_band(np.array([11.0]), np.array([10.0]), np.array([0.1]))  # [12.0]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from exporter.model import Floats


class PolicyKind(StrEnum):
    PODS = "Pods"
    PERCENT = "Percent"


class Select(StrEnum):
    MAX = "Max"  # the policy that allows the greatest change
    MIN = "Min"  # the policy that allows the least
    DISABLED = "Disabled"


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """At most `value` pods, or percent of the replicas at the period's start, per `period_s` seconds."""

    kind: PolicyKind
    value: int
    period_s: float


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """`behavior.scaleUp` or `behavior.scaleDown`. `tolerance`: a ratio; None is the cluster's."""

    policies: tuple[ScalingPolicy, ...]
    window_s: float
    select: Select = Select.MAX
    tolerance: float | None = None


# defaults.go: what the API server fills in where `behavior` is set and one direction is not.
DEFAULT_UP = ScalingRules(
    (ScalingPolicy(PolicyKind.PODS, 4, 15.0), ScalingPolicy(PolicyKind.PERCENT, 100, 15.0)), window_s=0.0
)
DEFAULT_DOWN = ScalingRules((ScalingPolicy(PolicyKind.PERCENT, 100, 15.0),), window_s=300.0)


@dataclass(frozen=True, slots=True)
class HpaBehavior:
    up: ScalingRules = DEFAULT_UP
    down: ScalingRules = DEFAULT_DOWN


# The recommended behavior: no tolerance, because the metric is a whole number of replicas; up at once; down after 30 s
# and by at most half of them in 30 s, as a backstop against one bad number and not as a second smoothing.
SHIPPED = HpaBehavior(
    up=ScalingRules(DEFAULT_UP.policies, window_s=0.0, tolerance=0.0),
    down=ScalingRules((ScalingPolicy(PolicyKind.PERCENT, 50, 30.0),), window_s=30.0, tolerance=0.0),
)


class TimedReplicas(NamedTuple):
    """A recommendation of so many replicas, or a change by so many, at `at`."""

    at: float
    replicas: int


@dataclass(frozen=True, slots=True)
class HpaMemory:
    """The memory of the controller. `recommended` is None until the first sync."""

    recommended: tuple[TimedReplicas, ...] | None = None
    added: tuple[TimedReplicas, ...] = ()
    removed: tuple[TimedReplicas, ...] = ()


@dataclass(frozen=True, slots=True)
class HpaSpec:
    """One HPA. `behavior=None` is the legacy path, which KEDA creates by default.

    tolerance, window_s: the cluster's flags (--horizontal-pod-autoscaler-tolerance, -downscale-stabilization).
    """

    max_replicas: int
    min_replicas: int = 1
    behavior: HpaBehavior | None = None
    tolerance: float = 0.1
    window_s: float = 300.0


class HpaMetric(NamedTuple):
    """One external metric: its total value (None or NaN: it could not be read) and its target per replica."""

    value: float | None
    target: float


class WholeMetric(NamedTuple):
    """One external metric of type Value: its whole value and its target; `ready`: ready pods.

    An average over pods is such a metric: 90 with a target of 80 asks for 90/80 of the ready pods.
    """

    value: float | None
    target: float
    ready: int


class Limit(StrEnum):
    """The limit of the change that the metrics requested."""

    NONE = "none"
    AT_ZERO = "at_zero"
    ERROR = "error"
    TOLERANCE = "tolerance"
    STABILISED = "stabilised"
    RATE = "rate"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class HpaStep:
    """The replicas (the current ones if nothing changes), those that the metrics alone asked for, and why."""

    replicas: int
    proposed: int | None
    limit: Limit
    why: str


class _Limited(NamedTuple):
    replicas: int
    limit: Limit
    why: str


def step(
    spec: HpaSpec, memory: HpaMemory, metrics: Sequence[HpaMetric | WholeMetric], current: int, status: int, now: float
) -> tuple[HpaStep, HpaMemory]:
    """One sync. current: the scale target's spec.replicas; status: its status.replicas (pods that exist)."""
    if memory.recommended is None:  # horizontal.go recordInitialRecommendation
        memory = replace(memory, recommended=(TimedReplicas(now, current),))
    # horizontal.go reconcileAutoscaler: zero is a person's or KEDA's decision; the minimum here is at least 1.
    if current == 0:
        return HpaStep(0, None, Limit.AT_ZERO, "at zero: the HPA does nothing"), memory
    if current > spec.max_replicas:
        outcome = HpaStep(spec.max_replicas, None, Limit.MAX, f"limited to {spec.max_replicas} by maxReplicas")
        return outcome, _ordered(spec, memory, current, outcome.replicas, now)
    if current < spec.min_replicas:
        outcome = HpaStep(spec.min_replicas, None, Limit.MIN, f"raised to {spec.min_replicas} by minReplicas")
        return outcome, _ordered(spec, memory, current, outcome.replicas, now)

    proposed, tolerated, missing = _propose(spec, metrics, current, status)
    # horizontal.go computeReplicasForMetrics: a missing metric might have asked for more, so it blocks scaling down.
    if proposed is None or (missing and proposed < current):
        why = f"{missing} of {len(metrics)} metrics could not be read: never down on an error"
        return HpaStep(current, proposed, Limit.ERROR, why), memory

    if spec.behavior is None:
        limited, memory = _legacy(spec, memory, current, proposed, now)
    else:
        limited, memory = _behave(spec, spec.behavior, memory, current, proposed, now)
    if limited.limit is Limit.NONE and tolerated:
        limited = limited._replace(limit=Limit.TOLERANCE, why=tolerated)
    outcome = HpaStep(limited.replicas, proposed, limited.limit, limited.why)
    return outcome, _ordered(spec, memory, current, outcome.replicas, now)


def past_band(wanted: Floats, current: Floats, tolerance: Floats, most: Floats | float = np.inf) -> Floats:
    """The lowest whole number of replicas that is at least `wanted` and that the HPA does not ignore.

    wanted:    whole replicas; NaN is unknown and stays so.
    current:   spec.replicas; NaN is unknown, and nothing is rounded then.
    tolerance: of the HPA for scaling up, a ratio.
    most:      the highest number allowed: nothing is rounded past it, and the step waits. If a floor asks for as many
               it is inf: too many is the lesser harm.

    The test is that of the HPA, float for float (`replica_calculator.go` Tolerances.isWithin, Kubernetes 1.33): a ratio
    of at most 1.0 + tolerance is ignored. Before 1.33 it was |ratio - 1| <= tolerance, which ignores nothing more.
    Values are whole milli-units, on both sides of the ratio.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        edge = 1.0 + tolerance
        ignored = (wanted > current) & (wanted / current <= edge)
        past = np.floor(current * edge)
        # The product is rounded, and so is the quotient: the edge itself may be ignored, and the number after it.
        past += past / current <= edge
        past += past / current <= edge
    return np.where(ignored & (past <= most), past, wanted)


def _ordered(spec: HpaSpec, memory: HpaMemory, before: int, after: int, now: float) -> HpaMemory:
    """horizontal.go storeScaleEvent: events are kept only where `behavior` will read them."""
    return memory if spec.behavior is None else remember_change(spec.behavior, memory, before, after, now)


def _propose(
    spec: HpaSpec, metrics: Sequence[HpaMetric | WholeMetric], current: int, status: int
) -> tuple[int | None, str | None, int]:
    """The highest proposal of a metric, why it is no change if within the tolerance, and the number of missing."""
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


def _average_value(spec: HpaSpec, value: float, target: float, status: int) -> tuple[int, str | None]:
    """replica_calculator.go GetExternalPerPodMetricReplicas; values travel as whole milli-units."""
    usage, per_pod = int(value * 1000), int(target * 1000)
    down, up = _tolerances(spec)
    # Go divides 0 by 0 to NaN and 1 by 0 to infinity; neither is within the tolerance.
    ratio = usage / (per_pod * status) if status else math.inf
    if ratio != 1.0 and 1.0 - down <= ratio <= 1.0 + up:
        return status, f"within tolerance: {value:g} is within {_band(down, up)} of {status} · {target:g}"
    return math.ceil(usage / per_pod), None


def _whole_value(spec: HpaSpec, value: float, metric: WholeMetric, current: int) -> tuple[int, str | None]:
    """replica_calculator.go GetExternalMetricReplicas, getUsageRatioReplicaCount: the ratio times the ready pods.

    Within the tolerance it is spec.replicas, ready or not; outside it a pod that starts counts for nothing, so while
    one starts the result may be less than the current replicas.
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


def _tolerances(spec: HpaSpec) -> tuple[float, float]:
    """(down, up): per direction from `behavior` (on by default from Kubernetes 1.35), else the cluster's."""
    if spec.behavior is None:
        return spec.tolerance, spec.tolerance
    down, up = spec.behavior.down.tolerance, spec.behavior.up.tolerance
    return (spec.tolerance if down is None else down, spec.tolerance if up is None else up)


def _legacy(spec: HpaSpec, memory: HpaMemory, current: int, proposed: int, now: float) -> tuple[_Limited, HpaMemory]:
    """horizontal.go normalizeDesiredReplicas: without `behavior`."""
    kept = tuple(mark for mark in memory.recommended or () if mark.at >= now - spec.window_s)
    highest = max([proposed, *(mark.replicas for mark in kept)])
    memory = replace(memory, recommended=(*kept, TimedReplicas(now, proposed)))
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
    spec: HpaSpec, behavior: HpaBehavior, memory: HpaMemory, current: int, proposed: int, now: float
) -> tuple[_Limited, HpaMemory]:
    """horizontal.go normalizeDesiredReplicasWithBehaviors: stabilise, then limit the rate."""
    up, down = behavior.up, behavior.down
    longest = max(up.window_s, down.window_s)
    kept = tuple(mark for mark in memory.recommended or () if mark.at > now - longest)
    memory = replace(memory, recommended=(*kept, TimedReplicas(now, proposed)))

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


def _stabilised(stable: int, proposed: int, marks: Sequence[TimedReplicas], window_s: float, now: float) -> _Limited:
    """The replicas that a window holds, and until when: until its latest mark beyond `stable` leaves it."""
    if stable > proposed:
        holding = [mark.at for mark in marks if mark.replicas >= stable]
    else:
        holding = [mark.at for mark in marks if mark.replicas <= stable]
    left_s = max(holding, default=now) + window_s - now
    return _Limited(stable, Limit.STABILISED, f"stabilised at {stable} for {math.ceil(left_s)} s more")


def _limit_rate(
    spec: HpaSpec, behavior: HpaBehavior, memory: HpaMemory, current: int, wanted: int, now: float
) -> _Limited:
    """horizontal.go convertDesiredReplicasWithBehaviorRate."""
    if wanted > current:
        rate, why = up_limit(behavior.up, memory, current, now)
        rate = max(rate, current)  # if more was added in the period than is allowed, it waits and does not go back
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


def up_limit(rules: ScalingRules, memory: HpaMemory, current: int, now: float) -> tuple[int, str]:
    """horizontal.go calculateScaleUpLimitWithScalingRules; percent is rounded up, else 1 + 10 % would stay 1."""
    if rules.select is Select.DISABLED or not rules.policies:
        return current, "scaling up is disabled"
    limits = []
    for policy in rules.policies:
        start = _period_start(policy, memory, current, now)
        if policy.kind is PolicyKind.PODS:
            limits.append((start + policy.value, policy))
        else:
            limits.append((math.ceil(start * (1 + policy.value / 100)), policy))
    pick = min if rules.select is Select.MIN else max
    limit, policy = pick(limits, key=lambda entry: entry[0])
    return limit, f"limited to +{_spell(policy)}"


def down_limit(rules: ScalingRules, memory: HpaMemory, current: int, now: float) -> tuple[int, str]:
    """horizontal.go calculateScaleDownLimitWithBehaviors; percent is cut off, so 3 - 10 % is 2."""
    if rules.select is Select.DISABLED or not rules.policies:
        return current, "scaling down is disabled"
    limits = []
    for policy in rules.policies:
        start = _period_start(policy, memory, current, now)
        if policy.kind is PolicyKind.PODS:
            limits.append((start - policy.value, policy))
        else:
            limits.append((int(start * (1 - policy.value / 100)), policy))
    pick = max if rules.select is Select.MIN else min
    limit, policy = pick(limits, key=lambda entry: entry[0])
    return limit, f"limited to -{_spell(policy)}"


def _period_start(policy: ScalingPolicy, memory: HpaMemory, current: int, now: float) -> int:
    """The replicas at the beginning of the policy's period (getReplicasChangePerPeriod)."""
    added = sum(mark.replicas for mark in memory.added if mark.at > now - policy.period_s)
    removed = sum(mark.replicas for mark in memory.removed if mark.at > now - policy.period_s)
    return current - added + removed


def _spell(policy: ScalingPolicy) -> str:
    unit = "%" if policy.kind is PolicyKind.PERCENT else "pods"
    return f"{policy.value} {unit} per {policy.period_s:g} s"


def remember_change(behavior: HpaBehavior, memory: HpaMemory, before: int, after: int, now: float) -> HpaMemory:
    """horizontal.go storeScaleEvent: kept as long as any policy's period looks back."""
    if after == before:
        return memory
    policies = (*behavior.up.policies, *behavior.down.policies)
    horizon = now - max((policy.period_s for policy in policies), default=0.0)
    added = tuple(mark for mark in memory.added if mark.at > horizon)
    removed = tuple(mark for mark in memory.removed if mark.at > horizon)
    if after > before:
        added = (*added, TimedReplicas(now, after - before))
    else:
        removed = (*removed, TimedReplicas(now, before - after))
    return replace(memory, added=added, removed=removed)
