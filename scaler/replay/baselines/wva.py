"""llm-d's Workload Variant Autoscaler, version 1: a replica more or less a minute, by how saturated they are.

Sources, in llm-d/llm-d-workload-variant-autoscaler of February 2026: `analyse` is AnalyzeModelSaturation and `target`
CalculateSaturationTargets, for one variant, of internal/saturation/analyzer.go; the queries are those of
internal/collector/registration/saturation.go, the defaults of deploy/configmap-saturation-scaling.yaml, the HPA that of
docs/integrations/hpa-integration.md.

Ages: Prometheus scrapes each pod each 15 s; the peak per pod over a minute is asked each 60 s
(GLOBAL_OPT_INTERVAL). A pod that has gone is in that minute's answer still, and the model counts as in transition.
The result is a metric that is scraped, and followed by an HPA: 15 s more. That HPA has the cluster's tolerance: from
10 replicas on it takes one more for none, and then nothing moves again until `tolerance` is 0.

Worked example: KV use 0.75 and 0.76 on two replicas, thresholds 0.8: on average 0.045 is to spare, under the trigger of
0.1, so 3 replicas.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from exporter.model import Floats
from scaler.controllers import hpa
from scaler.controllers.hpa import HpaBehavior, HpaMemory, PolicyKind, ScalingPolicy, ScalingRules

from ..baseline import Observation
from ..columns import DRAINING, READY
from ..metric_pages import POD_CREATED, POD_KV, POD_PHASE, POD_SLOT, POD_WAITING

SCRAPE_S = 15.0
ANALYSE_S = 60.0
LEAST_FOR_LESS = 2  # MinNonSaturatedReplicasForScaleDown


@dataclass(frozen=True, slots=True)
class WvaSpec:
    """kv, queue: a replica at or over either is saturated; a ratio, and requests. The spares trigger one more."""

    kv: float = 0.80
    queue: float = 5.0
    spare_kv: float = 0.1
    spare_queue: float = 3.0
    tolerance: float = 0.1
    max_replicas: int = 32


class WvaVerdict(NamedTuple):
    more: bool
    less_is_safe: bool


def analyse(spec: WvaSpec, peaks: Floats) -> WvaVerdict:
    """peaks: shape (replicas, 2), KV use and requests waiting."""
    if not len(peaks):
        return WvaVerdict(more=False, less_is_safe=False)
    free = peaks[(peaks[:, 0] < spec.kv) & (peaks[:, 1] < spec.queue)]
    kv, queue = free.mean(axis=0) if len(free) else (spec.kv, spec.queue)  # none is free: nothing to spare
    more = bool(spec.kv - kv < spec.spare_kv or spec.queue - queue < spec.spare_queue)
    if len(free) < LEAST_FOR_LESS:
        return WvaVerdict(more, less_is_safe=False)
    after = len(free) / (len(free) - 1)
    safe = spec.kv - kv * after >= spec.spare_kv and spec.queue - queue * after >= spec.spare_queue
    return WvaVerdict(more, bool(safe))


def target(verdict: WvaVerdict, reporting: int, replicas: int, wanted: int) -> int:
    """reporting: pods with numbers. wanted: the last target; 0 is none yet. Nothing moves while the three differ."""
    if reporting == 0:
        return replicas
    if wanted not in (0, replicas):
        return wanted
    if reporting != replicas:
        return replicas
    if verdict.more:
        return reporting + 1
    return reporting - 1 if verdict.less_is_safe and reporting > 1 else reporting


class Wva:
    """One variant of one model, and the HPA that follows its `wva_desired_replicas`."""

    every_s = SCRAPE_S
    first = 1

    def __init__(self, name: str, spec: WvaSpec) -> None:
        self.name, self._spec = name, spec
        rules = ScalingRules((ScalingPolicy(PolicyKind.PODS, 10, 15.0),), window_s=0.0, tolerance=spec.tolerance)
        self._hpa = hpa.HpaSpec(max_replicas=spec.max_replicas, behavior=HpaBehavior(rules, rules))
        self._memory = HpaMemory()
        self._scrapes: deque[Floats] = deque(maxlen=int(ANALYSE_S / SCRAPE_S))
        self._analyse_at, self._wanted = ANALYSE_S, 0

    def step(self, observation: Observation) -> int | None:
        each, now = observation.each, observation.now
        phase = each[:, POD_PHASE]
        self._scrapes.append(each[(phase == READY) | (phase == DRAINING)])
        published = float(self._wanted) if self._wanted else None
        if now >= self._analyse_at:
            self._analyse_at += ANALYSE_S
            peaks = _peaks(self._scrapes)
            self._wanted = target(analyse(self._spec, peaks), len(peaks), observation.wanted, self._wanted)
        replicas = observation.wanted
        outcome, self._memory = hpa.step(
            self._hpa, self._memory, [hpa.HpaMetric(published, 1.0)], replicas, replicas, now
        )
        return outcome.replicas


def _peaks(scrapes: Iterable[Floats]) -> Floats:
    """max_over_time by pod, shape (pods, 2)."""
    rows = np.concatenate(list(scrapes))
    _, which = np.unique(rows[:, [POD_SLOT, POD_CREATED]], axis=0, return_inverse=True)
    peaks = np.zeros((int(which.max()) + 1 if len(which) else 0, 2))
    np.maximum.at(peaks, which.ravel(), rows[:, [POD_KV, POD_WAITING]])
    return peaks
