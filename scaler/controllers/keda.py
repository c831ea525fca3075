"""Models KEDA between 0 and its first replicas: activation, cooldown, fallback, pausing. Pure.

From 1 to N the HPA decides (`hpa`). Sources are cited by file of KEDA 2.19: `scale_scaledobjects.go`
(pkg/scaling/executor), `scale_handler.go` (pkg/scaling), `fallback.go` (pkg/fallback).

Worked example: cooldown 300 s, last active at 1000. An inactive poll at 1200 changes nothing ("cooling down for 100 s
more"); the first one after 1300 sets 0 replicas.

    memory = KedaMemory(created_at=0.0, last_active_at=1000.0)
    replicas, memory, why = step(ScaledObjectSpec(), memory, Poll(PollResult.INACTIVE), 3, 1301.0)
    # (0, memory, "inactive for 301 s: to 0")
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class FallbackSpec:
    """After more than `failure_threshold` failed reads in a row the metric asks for `replicas`."""

    failure_threshold: int
    replicas: int


@dataclass(frozen=True, slots=True)
class ScaledObjectSpec:
    """A ScaledObject and its pausing annotations. Durations in seconds.

    paused_replicas: `autoscaling.keda.sh/paused-replicas`; paused: `…/paused`; both take the HPA away.
    """

    min_replicas: int = 0
    max_replicas: int = 100
    idle_replicas: int | None = None
    polling_interval_s: float = 30.0
    cooldown_s: float = 300.0
    initial_cooldown_s: float = 0.0
    fallback: FallbackSpec | None = None
    paused: bool = False
    paused_replicas: int | None = None
    pause_scale_in: bool = False
    pause_scale_out: bool = False


@dataclass(frozen=True, slots=True)
class KedaMemory:
    """created_at: POSIX seconds of the ScaledObject; failures: reads that failed in a row."""

    created_at: float
    last_active_at: float | None = None
    failures: int = 0


class PollResult(StrEnum):
    """The result of one round of calls to the scaler."""

    ACTIVE = "active"
    INACTIVE = "inactive"
    ERROR = "error"  # GetMetrics or IsActive failed, and failed again on the immediate retry
    DOWN = "down"  # GetMetricSpec failed: no metric is known, so no failure is counted and fallback stays off


@dataclass(frozen=True, slots=True)
class Poll:
    """The round of the scale loop, every polling interval."""

    answer: PollResult


@dataclass(frozen=True, slots=True)
class Push:
    """A message on StreamIsActive."""

    active: bool


@dataclass(frozen=True, slots=True)
class Read:
    """The HPA reads the metric: its failures count too."""

    answered: bool


Event: TypeAlias = Poll | Push | Read


def step(
    spec: ScaledObjectSpec, memory: KedaMemory, event: Event, replicas: int, now: float
) -> tuple[int | None, KedaMemory, str]:
    """The new replicas of the scale target (None: unchanged), the next memory, and why.

    replicas: the scale target's spec.replicas now.
    """
    if spec.paused_replicas is not None:
        target = spec.paused_replicas if replicas != spec.paused_replicas else None
        return target, memory, f"paused at {spec.paused_replicas}"
    if spec.paused:
        return None, memory, "paused"
    match event:
        case Read(answered=True):
            return None, replace(memory, failures=0), "the HPA read the metric"
        case Read(answered=False):
            return None, replace(memory, failures=memory.failures + 1), "the HPA could not read the metric"
        case Push(active=False):
            # scale_handler.go startPushScalers: a push can only wake; only a poll scales to zero.
            return None, memory, "push of inactivity: ignored"
        case Push(active=True):
            return _active(spec, memory, replicas, now, "pushed active")
        case Poll(answer=PollResult.ACTIVE):
            return _active(spec, replace(memory, failures=0), replicas, now, "active")
        case Poll(answer=PollResult.INACTIVE):
            return _inactive(spec, replace(memory, failures=0), replicas, now)
        case Poll(answer=PollResult.ERROR):
            return _failed(spec, replace(memory, failures=memory.failures + 1), replicas, now)
        case Poll(answer=PollResult.DOWN):
            return _held(spec, memory, replicas, now, "the scaler is down")
    raise AssertionError(event)


def fallback_active(spec: ScaledObjectSpec, memory: KedaMemory) -> bool:
    """fallback.go GetMetricsWithFallback: more failures in a row than the threshold."""
    return spec.fallback is not None and memory.failures > spec.fallback.failure_threshold


def fallback_value(spec: ScaledObjectSpec, memory: KedaMemory, target: float) -> float | None:
    """The value that the HPA gets instead of an error while fallback is active; None: the error."""
    if spec.fallback is None or not fallback_active(spec, memory):
        return None
    return target * spec.fallback.replicas


def hpa_min_replicas(spec: ScaledObjectSpec) -> int:
    """KEDA's HPA never has a minimum of 0: KEDA itself scales between 0 and 1."""
    return max(1, spec.min_replicas)


def has_hpa(spec: ScaledObjectSpec) -> bool:
    """Whether the HPA exists: pausing deletes it and its memory."""
    return not spec.paused and spec.paused_replicas is None


def _active(
    spec: ScaledObjectSpec, memory: KedaMemory, replicas: int, now: float, cause: str
) -> tuple[int | None, KedaMemory, str]:
    """scale_scaledobjects.go RequestScale with active triggers, scaleFromZeroOrIdle."""
    below_idle_minimum = spec.idle_replicas is not None and replicas < spec.min_replicas
    if replicas > 0 and not below_idle_minimum:
        return None, replace(memory, last_active_at=now), f"{cause}: 1 to N is the HPA's"
    if spec.pause_scale_out:
        return None, memory, f"{cause}, but scaling out is paused"
    target = max(1, spec.min_replicas)
    return target, replace(memory, last_active_at=now), f"{cause}: {replicas} to {target}"


def _failed(
    spec: ScaledObjectSpec, memory: KedaMemory, replicas: int, now: float
) -> tuple[int | None, KedaMemory, str]:
    if fallback_active(spec, memory):
        # scale_handler.go getScalerState: a trigger that falls back counts as active, so it wakes a sleeper too.
        return _active(spec, memory, replicas, now, f"fallback after {memory.failures} failures")
    return _held(spec, memory, replicas, now, "the scaler answered with an error")


def _held(
    spec: ScaledObjectSpec, memory: KedaMemory, replicas: int, now: float, cause: str
) -> tuple[int | None, KedaMemory, str]:
    """scale_scaledobjects.go RequestScale: an error holds, except that `fallback.replicas: 0` lets sleep happen."""
    if spec.fallback is not None and spec.fallback.replicas == 0:
        return _inactive(spec, memory, replicas, now)
    return None, memory, f"{cause}: replicas are held"


def _inactive(
    spec: ScaledObjectSpec, memory: KedaMemory, replicas: int, now: float
) -> tuple[int | None, KedaMemory, str]:
    """scale_scaledobjects.go RequestScale without active triggers, scaleToZeroOrIdle."""
    may_idle = spec.idle_replicas is not None and replicas > spec.idle_replicas
    may_sleep = replicas > 0 and spec.min_replicas == 0
    if not (may_idle or may_sleep):
        if spec.idle_replicas is None and replicas < spec.min_replicas:
            return spec.min_replicas, memory, f"below minReplicaCount: to {spec.min_replicas}"
        return None, memory, "inactive"
    if spec.pause_scale_in:
        return None, memory, "inactive, but scaling in is paused"
    if memory.last_active_at is None:
        since, cooldown_s = memory.created_at, spec.initial_cooldown_s
    else:
        since, cooldown_s = memory.last_active_at, spec.cooldown_s
    left_s = since + cooldown_s - now
    if left_s >= 0.0:
        return None, memory, f"cooling down for {math.ceil(left_s)} s more"
    target = spec.min_replicas if spec.idle_replicas is None else spec.idle_replicas
    return target, memory, f"inactive for {now - since:.0f} s: to {target}"
