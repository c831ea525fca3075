"""The queries people copy into a ScaledObject or an HPA, and how old their answers are.

An engine's gauges are true at the scrape. Prometheus scrapes each 15 s, and no clock is tied to another: here the
scrape falls midway between two syncs of the HPA, so a number is 7.5 s old when it is used, the mean of what can be.
GPU_UTIL is older still: dcgm-exporter collects each 30 s and shows that until the next time, so it is 15 s old at one
sync and 30 s at the next. It reads 100 whenever a replica has work, because it is the share of time in which any
kernel ran at all; a pod that starts has a GPU, and reads 0.

Worked example: 12 requests wait at 22.5 s, `waiting` is scraped then, and the sync at 30 s with a threshold of 5
makes ceil(12/5) = 3 replicas of them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan

from ..baseline import Observation
from ..each import POD_BUSY
from ..metric_pages import AT_GATE, KV_USED, RUNNING, WAITING

SCRAPE_S = 15.0
DCGM_COLLECTS_S = 30.0


def waiting(seen: Observation) -> float:
    """sum(vllm:num_requests_waiting), and what the gateway holds: at zero replicas there is nothing else to see."""
    return float(seen.pages[WAITING] + seen.pages[AT_GATE])


def in_hand(seen: Observation) -> float:
    """sum(vllm:num_requests_waiting + vllm:num_requests_running), and what the gateway holds."""
    return float(seen.pages[WAITING] + seen.pages[RUNNING] + seen.pages[AT_GATE])


def gpu_util(seen: Observation) -> float:
    """avg(DCGM_FI_DEV_GPU_UTIL), percent. No pod, no series: KEDA takes an empty answer as 0 (ignoreNullValues)."""
    each = seen.each
    return 100.0 * float(each[:, POD_BUSY].mean()) if len(each) else 0.0


def kv_used(seen: Observation) -> float:
    """avg(vllm:kv_cache_usage_perc), a ratio; an engine that loads shows no page. Empty is 0, as above."""
    used = float(seen.pages[KV_USED])
    return 0.0 if isnan(used) else used


class Prometheus:
    """A query as a scaler (`chain.Scaler`): collected, scraped, asked. target: the threshold.

    collects_s: how often the exporter itself looks; 0 is whenever it is scraped.
    """

    pushes = False
    every_s = SCRAPE_S / 2

    def __init__(self, name: str, read: Callable[[Observation], float], target: float, collects_s: float = 0.0) -> None:
        self.name, self.target = name, target
        self._read, self._collects_s = read, collects_s
        self._collect_at, self._scrape_at = 0.0, SCRAPE_S / 2
        self._collected: float | None = None
        self._scraped: float | None = None

    def hear(self, seen: Observation) -> None:
        now = seen.now
        scrape = now >= self._scrape_at
        if now >= self._collect_at if self._collects_s else scrape:
            self._collect_at += self._collects_s
            self._collected = self._read(seen)
        if scrape:
            self._scrape_at += SCRAPE_S
            self._scraped = self._collected

    def value(self) -> float | None:
        return self._scraped

    def active(self) -> bool:
        """With activationThreshold 0, KEDA's default: active above it (prometheus_scaler.go GetMetricsAndActivity)."""
        return bool(self._scraped)
