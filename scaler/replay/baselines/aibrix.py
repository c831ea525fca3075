"""AIBrix's APA: KV-cache use per pod against a target, each 10 s.

Sources, in vllm-project/aibrix of August 2026: `recommend` is computeTargetReplicas of
pkg/controller/podautoscaler/algorithm/apa.go; the window and its mean metrics/client.go and types/metrics.go;
`stabilise` is stabilizeRecommendation of podautoscaler_controller.go; defaults context/context.go.

Its "down cooldown" is no delay: below the present replicas it takes the *least* recommendation of the last 300 s, so
the first step down may go to what was enough five minutes ago.

Ages: the controller reads the ready pods itself, so a value is new; the mean is over 180 s.

Worked example: 4 replicas, mean KV use 0.9, target 0.5: ceil(4 · 1.8) = 8, which is also the most at twice per step.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import ceil, floor, isnan

from ..baseline import Observation
from ..metric_pages import KV_USED

SYNC_S = 10.0


@dataclass(frozen=True, slots=True)
class AibrixSpec:
    """target: KV-cache use, a ratio. Rates: factors per step. Windows in seconds. Its minimum is 1: 0 is "disabled"."""

    target: float = 0.5
    up_tolerance: float = 0.1
    down_tolerance: float = 0.1
    up_rate: float = 2.0
    down_rate: float = 2.0
    window_s: float = 180.0
    up_cooldown_s: float = 0.0
    down_cooldown_s: float = 300.0
    max_replicas: int = 32


def recommend(spec: AibrixSpec, replicas: int, use: float) -> int:
    ratio = use / spec.target
    if ratio > 1.0 + spec.up_tolerance:
        return min(ceil(replicas * ratio), ceil(spec.up_rate * replicas))
    if ratio < 1.0 - spec.down_tolerance:
        return max(ceil(replicas * ratio), floor(replicas / spec.down_rate))
    return replicas


def stabilise(spec: AibrixSpec, recent: deque[tuple[float, int]], wanted: int, replicas: int, now: float) -> int:
    """recent: (second, recommendation), this one last; those that no window reaches are dropped."""
    longest_s = max(spec.up_cooldown_s, spec.down_cooldown_s)
    while recent and recent[0][0] <= now - longest_s:
        recent.popleft()
    if wanted == replicas:
        return wanted
    up = wanted > replicas
    window_s, pick = (spec.up_cooldown_s, max) if up else (spec.down_cooldown_s, min)
    return pick((one for at, one in recent if at > now - window_s), default=wanted)


class Apa:
    """A PodAutoscaler with the metric gpu_cache_usage_perc."""

    every_s = SYNC_S
    first = 1

    def __init__(self, name: str, spec: AibrixSpec) -> None:
        self.name, self._spec = name, spec
        self._uses: deque[tuple[float, float]] = deque()
        self._recent: deque[tuple[float, int]] = deque()

    def step(self, observation: Observation) -> int | None:
        spec, now, uses = self._spec, observation.now, self._uses
        use = float(observation.pages[KV_USED])
        if not isnan(use):
            uses.append((now, use))
            while uses[0][0] < now - spec.window_s:
                uses.popleft()
        mean = sum(one for _, one in uses) / len(uses) if uses else 0.0
        wanted = min(max(recommend(spec, observation.wanted, mean), 1), spec.max_replicas)
        self._recent.append((now, wanted))
        return stabilise(spec, self._recent, wanted, observation.wanted, now)
