"""KEDA's part of the arithmetic: nothing to something, and back.

Knows: what KEDA does with one trigger's answer between 0 and its first replicas: activation, cooldown, fallback,
pausing. Refuses to know: 1 to N, which is the HPA's (see `hpa`), gRPC, and what time it is.
Sources are named by file of KEDA 2.19: `scale_scaledobjects.go` (pkg/scaling/executor), `scale_handler.go`
(pkg/scaling), `fallback.go` (pkg/fallback).

Worked example: cooldown 300 s, last active at 1000. An inactive poll at 1200 orders nothing ("cooling down for 100 s
more"); the first one after 1300 orders 0 replicas.

    order, memory, why = step(Spec(), Memory(created_at=0.0, last_active_at=1000.0), Poll(Answer.INACTIVE), 3, 1301.0)
    # (0, memory, "inactive for 301 s: to 0")

KEDA's arithmetic for a ScaledJob: how many Jobs one poll starts. It never ends one.

Knows: what KEDA does with one trigger's answer, by its scaling strategy. Refuses to know: gRPC, what a Job does, and
what time it is. Source: KEDA 2.19 `scale_jobs.go` (pkg/scaling/executor), getScalingDecision and createJobs.

Worked example: an answer of 3 while 2 Jobs run starts 1 by the default strategy. `accurate` takes off only those that
have no pod yet, and so starts 3: it is for numbers that no longer count what a Job has taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class FallbackSpec:
    """After more than `failure_threshold` failed reads in a row the metric is taken to ask for `replicas`."""

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
    """What one round of calls to the scaler came to."""

    ACTIVE = "active"
    INACTIVE = "inactive"
    ERROR = "error"  # GetMetrics or IsActive failed, and failed again on the immediate retry
    DOWN = "down"  # GetMetricSpec failed: no metric is known, so no failure is counted and fallback stays off


@dataclass(frozen=True, slots=True)
class Poll:
    """The loop's own round, every polling interval."""

    answer: PollResult


@dataclass(frozen=True, slots=True)
class Push:
    """A message on StreamIsActive."""

    active: bool


@dataclass(frozen=True, slots=True)
class Read:
    """The HPA asked for the metric: its failures count too."""

    answered: bool


Event: TypeAlias = Poll | Push | Read


def step(
    spec: ScaledObjectSpec, memory: KedaMemory, event: Event, replicas: int, now: float
) -> tuple[int | None, KedaMemory, str]:
    """What to set the scale target to (None: leave it), what to remember, and why.

    replicas: the scale target's spec.replicas now.
    """
    if spec.paused_replicas is not None:
        order = spec.paused_replicas if replicas != spec.paused_replicas else None
        return order, memory, f"paused at {spec.paused_replicas}"
    if spec.paused:
        return None, memory, "paused"
    match event:
        case Read(answered=True):
            return None, replace(memory, failures=0), "the HPA read the metric"
        case Read(answered=False):
            return None, replace(memory, failures=memory.failures + 1), "the HPA could not read the metric"
        case Push(active=False):
            # scale_handler.go startPushScalers: a push can only wake; going to sleep is the poll's.
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
    """The value KEDA tells the HPA in place of an error, once fallback is active; None: tell the error."""
    if spec.fallback is None or not fallback_active(spec, memory):
        return None
    return target * spec.fallback.replicas


def hpa_min_replicas(spec: ScaledObjectSpec) -> int:
    """KEDA's HPA never has a minimum of 0: the step between 0 and 1 is KEDA's own."""
    return max(1, spec.min_replicas)


def has_hpa(spec: ScaledObjectSpec) -> bool:
    """Pausing deletes the HPA, and with it everything the HPA remembered."""
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
    order = max(1, spec.min_replicas)
    return order, replace(memory, last_active_at=now), f"{cause}: {replicas} to {order}"


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
    order = spec.min_replicas if spec.idle_replicas is None else spec.idle_replicas
    return order, memory, f"inactive for {now - since:.0f} s: to {order}"


@dataclass(frozen=True, slots=True)
class ScaledJobSpec:
    min_replicas: int = 0
    max_replicas: int = 100
    strategy: Literal["default", "accurate"] = "default"


def jobs_started(spec: ScaledJobSpec, number: int | None, running: int, pending: int = 0) -> int:
    """number: the trigger's answer, for a target of 1; 0 is inactive, None an error. running: Jobs that have not ended,
    those that are pending, which have no running pod yet, among them.
    """
    if running < spec.min_replicas:
        return spec.min_replicas - running
    if not number:  # an error counts for nothing: scale_handler.go getScaledJobMetrics
        return 0
    # Those of the minimum work beside the number.
    wanted, running = min(number, spec.max_replicas), running - spec.min_replicas
    if spec.strategy == "default":
        more = wanted - running
    elif wanted + running > spec.max_replicas:
        more = spec.max_replicas - running
    else:
        more = wanted - pending
    return max(0, min(more, number))
