"""Knative's pod autoscaler: concurrency over a minute, over six seconds when it panics, and zero.

Sources, in knative/serving of August 2026: `scale` is Scale of pkg/autoscaler/scaling/autoscaler.go, `Buckets` is
TimedFloat64Buckets of pkg/autoscaler/aggregation/bucketing.go, `Knative` adds applyBounds and handleScaleToZero of
pkg/reconciler/autoscaling/kpa/scaler.go. Defaults: config/core/configmaps/autoscaler.yaml.

Ages: a queue-proxy reports its mean concurrency of the last second and is asked each second; here the mean since the
last tick (2 s) is recorded, which is the mean of two such reports. Only ready pods are asked, and the activator, which
reports the first request that it holds at once; this one decides within the tick.

Worked example: 150 requests at once on 1 ready pod with a target of 70: ceil(150/70) = 3 pods from the 6 s window,
3/1 is over 200 %: it panics, orders 3, and orders no less until 60 s after it was last over that.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from math import ceil, floor, inf

from ..baseline import Observation
from ..metric_pages import AT_GATE

TICK_S = 2.0
DIGITS = 6


@dataclass(frozen=True, slots=True)
class KnativeSpec:
    """target: concurrent requests per pod. panic_threshold: times the ready pods' target. Rates: factors per tick.

    burst: target-burst-capacity, requests; -1 keeps the activator in the path always. grace_s: the activator must have
    been in the path for so long before the last pod goes; retention_s: how long that pod stays besides.
    """

    target: float = 70.0
    stable_s: float = 60.0
    panic_s: float = 6.0
    panic_threshold: float = 2.0
    up_rate: float = 1000.0
    down_rate: float = 2.0
    total: float = 100.0
    burst: float = 211.0
    grace_s: float = 30.0
    retention_s: float = 0.0
    delay_s: float = 0.0
    min_replicas: int = 0
    max_replicas: int = 0


@dataclass(frozen=True, slots=True)
class KnativeMemory:
    """panic_at: when it was last over the threshold; None is not panicking. panic_pods: the most ordered since."""

    panic_at: float | None = None
    panic_pods: int = 0


def scale(
    spec: KnativeSpec, memory: KnativeMemory, stable: float, panic: float, ready: int, now: float
) -> tuple[int, KnativeMemory]:
    """Pods wanted, before bounds and the rules of zero. stable, panic: mean concurrency of the two windows."""
    pods = max(1, ready)
    most, least = ceil(spec.up_rate * pods), floor(pods / spec.down_rate)
    for_stable, for_panic = ceil(stable / spec.target), ceil(panic / spec.target)
    wanted = min(max(for_stable, least), most)
    over = for_panic / pods >= spec.panic_threshold
    if over:
        memory = replace(memory, panic_at=now)
    elif memory.panic_at is not None and memory.panic_at + spec.stable_s < now:
        memory = KnativeMemory()
    if memory.panic_at is not None:
        wanted = max(wanted, min(max(for_panic, least), most), memory.panic_pods)
        memory = replace(memory, panic_pods=wanted)
    return wanted, memory


def excess_burst(spec: KnativeSpec, ready: int, panic: float) -> float:
    """Requests that could come on top at once; below 0 the activator is in the path."""
    if spec.burst == 0.0:
        return 0.0
    return floor(ready * spec.total - spec.burst - panic) if spec.burst > 0.0 else -1.0


class Buckets:
    """The mean over a window: over the part of it since the first record, where a silent bucket is 0.

    A window without a record, and it begins anew. A mean has 6 digits, as there: a rest of rounding is not traffic.
    """

    def __init__(self, window_s: float, bucket_s: float = TICK_S) -> None:
        self._window_s, self._bucket_s = window_s, bucket_s
        self._buckets = ceil(window_s / bucket_s)
        self._kept: deque[tuple[float, float]] = deque()
        self._total, self._first, self._last = 0.0, -inf, -inf

    def record(self, now: float, value: float) -> None:
        if now - self._last >= self._window_s:
            self._kept.clear()
            self._total, self._first = 0.0, now
        self._last = now
        self._kept.append((now, value))
        self._total += value
        self._forget(now)

    def mean(self, now: float) -> float:
        silent_s = now - self._last
        if silent_s >= self._window_s:
            return 0.0
        self._forget(now)
        since_first = (self._last - self._first) / self._bucket_s + 1
        return round(self._total / min(since_first, self._buckets - silent_s / self._bucket_s), DIGITS)

    def _forget(self, now: float) -> None:
        kept = self._kept
        while kept and kept[0][0] <= now - self._window_s:
            self._total -= kept.popleft()[1]


class Knative:
    """One revision with a single container without a limit."""

    every_s = TICK_S

    def __init__(self, name: str, spec: KnativeSpec, first: int = 1) -> None:
        self.name, self.first, self._spec = name, first, spec
        self._stable, self._panic = Buckets(spec.stable_s), Buckets(spec.panic_s)
        # autoscaler.go newAutoscaler: it begins in a panic beside more than one pod.
        self._memory = KnativeMemory(0.0 if first > 1 else None, first)
        self._recent: deque[tuple[float, int]] = deque()
        self._before: tuple[float, float] | None = None  # the last tick, and its count of request-seconds
        self._active_since = self._proxied_since = 0.0
        self._inactive_since: float | None = None

    def step(self, observation: Observation) -> int | None:
        spec, now, ready = self._spec, observation.now, observation.ready
        held = float(observation.pages[AT_GATE])
        concurrency = self._concurrency(observation)
        if ready or held:  # collector.go: the empty statistic of no pods is not recorded
            self._stable.record(now, concurrency)
            self._panic.record(now, concurrency)
        panic = self._panic.mean(now)
        wanted, self._memory = scale(spec, self._memory, self._stable.mean(now), panic, ready, now)
        wanted = max(self._delayed(wanted, now), spec.min_replicas)
        if spec.max_replicas:
            wanted = min(wanted, spec.max_replicas)
        if excess_burst(spec, ready, panic) >= 0.0:
            self._proxied_since = now
        if ready == 0:
            self._active_since = now
        if wanted > 0 and self._inactive_since is not None:
            self._active_since, self._inactive_since = now, None
        return wanted if wanted > 0 else self._to_zero(observation)

    def _concurrency(self, observation: Observation) -> float:
        """The mean of the requests at the activator and in ready pods since the last tick."""
        now, total, before = observation.now, observation.request_s, self._before
        self._before = now, total
        held = float(observation.pages[AT_GATE])
        mean = (total - before[1]) / (now - before[0]) if before is not None else 0.0
        # concurrency_reporter.go handleRequestIn: the first request is reported at once, as a concurrency of 1.
        return max(mean, 1.0) if held and not observation.ready else mean

    def _delayed(self, wanted: int, now: float) -> int:
        """scale-down-delay: the most of that time."""
        if self._spec.delay_s == 0.0:
            return wanted
        recent = self._recent
        while recent and recent[0][0] <= now - self._spec.delay_s:
            recent.popleft()
        while recent and recent[-1][1] <= wanted:
            recent.pop()
        recent.append((now, wanted))
        return recent[0][1]

    def _to_zero(self, observation: Observation) -> int | None:
        """handleScaleToZero: active for a stable window, then inactive until the activator is surely in the path."""
        spec, now = self._spec, observation.now
        if observation.ready == 0:
            return None  # it is activating, or at zero
        if self._inactive_since is None:
            if now - self._active_since < spec.stable_s:
                return 1
            self._inactive_since = now
        inactive_s = now - self._inactive_since
        if inactive_s >= max(spec.grace_s, spec.retention_s):
            return 0
        proxied_s = now - self._proxied_since
        return 0 if inactive_s >= spec.retention_s and proxied_s >= spec.grace_s else None
