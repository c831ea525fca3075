"""`behavior` of a HorizontalPodAutoscaler: how fast it may go, each way, and what it must remember for that.

Knows: the policies of autoscaling/v2 and how far each lets the replicas go now. Refuses to know: metrics, windows
and minima, which are `hpa`'s. Sources: `horizontal.go` in pkg/controller/podautoscaler, `defaults.go` in
pkg/apis/autoscaling/v2.

Worked example: 4 replicas, 2 of them added 10 s ago, "+100 % per 15 s": the period began with 2, so 4 is all it
allows until those 10 s have become 15.

    up_limit(Rules((Policy(PolicyKind.PERCENT, 100, 15.0),), 0.0), Memory(added=(Mark(90.0, 2),)), 4, now=100.0)
    # (4, "limited to +100 % per 15 s")
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple


class PolicyKind(StrEnum):
    PODS = "Pods"
    PERCENT = "Percent"


class Select(StrEnum):
    MAX = "Max"  # the policy that allows the greatest change
    MIN = "Min"  # the policy that allows the least
    DISABLED = "Disabled"


@dataclass(frozen=True, slots=True)
class Policy:
    """At most `value` pods, or percent of the replicas at the period's start, per `period_s` seconds."""

    kind: PolicyKind
    value: int
    period_s: float


@dataclass(frozen=True, slots=True)
class Rules:
    """`behavior.scaleUp` or `behavior.scaleDown`. `tolerance`: a ratio; None is the cluster's."""

    policies: tuple[Policy, ...]
    window_s: float
    select: Select = Select.MAX
    tolerance: float | None = None


# defaults.go: what the API server fills in where `behavior` is set and one direction is not.
DEFAULT_UP = Rules((Policy(PolicyKind.PODS, 4, 15.0), Policy(PolicyKind.PERCENT, 100, 15.0)), window_s=0.0)
DEFAULT_DOWN = Rules((Policy(PolicyKind.PERCENT, 100, 15.0),), window_s=300.0)


@dataclass(frozen=True, slots=True)
class Behavior:
    up: Rules = DEFAULT_UP
    down: Rules = DEFAULT_DOWN


# What Tidegate ships: no tolerance, because its metric is already a whole number of replicas; up at once; down after
# 30 s and by at most half of them in 30 s, as a backstop against one bad answer and not as a second smoothing.
SHIPPED = Behavior(
    up=Rules(DEFAULT_UP.policies, window_s=0.0, tolerance=0.0),
    down=Rules((Policy(PolicyKind.PERCENT, 50, 30.0),), window_s=30.0, tolerance=0.0),
)


class Mark(NamedTuple):
    """At `at`: a recommendation of so many replicas, or a change by so many."""

    at: float
    replicas: int


@dataclass(frozen=True, slots=True)
class Memory:
    """What the controller remembers. `recommended` is None until the first sync."""

    recommended: tuple[Mark, ...] | None = None
    added: tuple[Mark, ...] = ()
    removed: tuple[Mark, ...] = ()


def up_limit(rules: Rules, memory: Memory, current: int, now: float) -> tuple[int, str]:
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


def down_limit(rules: Rules, memory: Memory, current: int, now: float) -> tuple[int, str]:
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


def _period_start(policy: Policy, memory: Memory, current: int, now: float) -> int:
    """How many replicas there were when the policy's period began (getReplicasChangePerPeriod)."""
    added = sum(mark.replicas for mark in memory.added if mark.at > now - policy.period_s)
    removed = sum(mark.replicas for mark in memory.removed if mark.at > now - policy.period_s)
    return current - added + removed


def _spell(policy: Policy) -> str:
    unit = "%" if policy.kind is PolicyKind.PERCENT else "pods"
    return f"{policy.value} {unit} per {policy.period_s:g} s"


def remember_change(behavior: Behavior, memory: Memory, before: int, after: int, now: float) -> Memory:
    """horizontal.go storeScaleEvent: kept as long as any policy's period looks back."""
    if after == before:
        return memory
    policies = (*behavior.up.policies, *behavior.down.policies)
    horizon = now - max((policy.period_s for policy in policies), default=0.0)
    added = tuple(mark for mark in memory.added if mark.at > horizon)
    removed = tuple(mark for mark in memory.removed if mark.at > horizon)
    if after > before:
        added = (*added, Mark(now, after - before))
    else:
        removed = (*removed, Mark(now, before - after))
    return replace(memory, added=added, removed=removed)
