"""Plays KEDA and the HPA around a scaler (`scaler.controllers`), and the queries that people copy into their triggers.

An engine's gauges are true at the scrape. Prometheus scrapes each 15 s, and no clock is tied to another: here the
scrape falls midway between two syncs of the HPA, so a number is 7.5 s old when it is used, the mean of the possible
ages. GPU_UTIL is older still: dcgm-exporter collects each 30 s and shows that until the next time, so it is 15 s old at
one sync and 30 s at the next. It reads 100 whenever a replica has work, because it is the share of time in which any
kernel ran at all; a pod that starts has a GPU, and reads 0.

Worked example: 12 requests wait at 22.5 s, `waiting` is scraped then, and the sync at 30 s with a threshold of 5
makes ceil(12/5) = 3 replicas of them. At zero replicas a scaler that pushes makes 1 replica in the same moment; one
that does not is polled, and the request waits up to 30 s for that.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from typing import Protocol

from scaler.controllers import hpa, keda
from scaler.controllers.hpa import HpaMemory

from ..baseline import EngineSleep, Explains, Explanation, Observation, Sleeps
from ..metric_pages import AT_GATE, KV_USED, POD_BUSY, RUNNING, WAITING

HPA_SYNC_S = 15.0
SCRAPE_S = 15.0
DCGM_COLLECTS_S = 30.0


class Scaler(Protocol):
    """Answers the metric.

    every_s: how often it observes. pushes: it is an external-push scaler. target: of its metric, per replica.
    """

    name: str
    every_s: float
    pushes: bool
    target: float

    def hear(self, observation: Observation) -> None: ...

    def value(self) -> float | None:
        """The metric; None is an error."""
        ...

    def active(self) -> bool: ...


def average(scaler: Scaler, _observation: Observation) -> hpa.HpaMetric:
    """Type AverageValue, which is KEDA's default: a total, shared by the replicas."""
    return hpa.HpaMetric(scaler.value(), scaler.target)


def whole(scaler: Scaler, observation: Observation) -> hpa.WholeMetric:
    """Type Value: as it is, for averages over pods."""
    return hpa.WholeMetric(scaler.value(), scaler.target, observation.ready)


class KedaAndHpa:
    """The two controllers around one scaler. metric: how the HPA gets the number; `average` or `whole`."""

    def __init__(
        self,
        scaler: Scaler,
        keda_spec: keda.ScaledObjectSpec,
        hpa_spec: hpa.HpaSpec,
        first: int = 1,
        metric: Callable[[Scaler, Observation], hpa.HpaMetric | hpa.WholeMetric] = average,
    ) -> None:
        self._metric = metric
        self.name, self.every_s, self.first = scaler.name, scaler.every_s, first
        self._scaler, self._keda, self._hpa = scaler, keda_spec, hpa_spec
        self._keda_memory = keda.KedaMemory(created_at=0.0, last_active_at=0.0)
        self._hpa_memory = HpaMemory()
        self._poll_at = self._sync_at = 0.0
        self._sleeper = scaler if isinstance(scaler, Sleeps) else None  # asking takes as long as `hpa.step`

    def step(self, observation: Observation) -> int | None:
        scaler, now, wanted = self._scaler, observation.now, observation.wanted
        scaler.hear(observation)
        if scaler.pushes and wanted == 0 and scaler.active():
            wanted = self._event(keda.Push(active=True), wanted, now)
        if now >= self._poll_at:
            self._poll_at += self._keda.polling_interval_s
            if scaler.value() is None:
                answer = keda.PollResult.ERROR
            else:
                answer = keda.PollResult.ACTIVE if scaler.active() else keda.PollResult.INACTIVE
            wanted = self._event(keda.Poll(answer), wanted, now)
        if now >= self._sync_at:
            self._sync_at += HPA_SYNC_S
            if wanted > 0:
                metric = self._metric(scaler, observation)
                outcome, self._hpa_memory = hpa.step(self._hpa, self._hpa_memory, [metric], wanted, wanted, now)
                wanted = outcome.replicas
        return wanted

    def explain(self) -> Explanation:
        """That of the scaler: the two controllers have no reasons of their own."""
        return self._scaler.explain() if isinstance(self._scaler, Explains) else Explanation()

    def engine_sleep(self) -> EngineSleep | None:
        """That of the scaler."""
        return None if self._sleeper is None else self._sleeper.engine_sleep()

    def _event(self, event: keda.Event, wanted: int, now: float) -> int:
        order, self._keda_memory, _ = keda.step(self._keda, self._keda_memory, event, wanted, now)
        return wanted if order is None else order


def waiting(observation: Observation) -> float:
    """sum(vllm:num_requests_waiting), and what the gateway holds: at zero replicas there is nothing else to see."""
    return float(observation.pages[WAITING] + observation.pages[AT_GATE])


def in_hand(observation: Observation) -> float:
    """sum(vllm:num_requests_waiting + vllm:num_requests_running), and what the gateway holds."""
    return float(observation.pages[WAITING] + observation.pages[RUNNING] + observation.pages[AT_GATE])


def gpu_util(observation: Observation) -> float:
    """avg(DCGM_FI_DEV_GPU_UTIL), percent. No pod, no series: KEDA takes an empty answer as 0 (ignoreNullValues)."""
    each = observation.each
    return 100.0 * float(each[:, POD_BUSY].mean()) if len(each) else 0.0


def kv_used(observation: Observation) -> float:
    """avg(vllm:kv_cache_usage_perc), a ratio; an engine that loads shows no page. Empty is 0, as above."""
    used = float(observation.pages[KV_USED])
    return 0.0 if isnan(used) else used


class Prometheus:
    """A query as a scaler (`Scaler`): collected, scraped, asked. target: the threshold.

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

    def hear(self, observation: Observation) -> None:
        now = observation.now
        scrape = now >= self._scrape_at
        if now >= self._collect_at if self._collects_s else scrape:
            self._collect_at += self._collects_s
            self._collected = self._read(observation)
        if scrape:
            self._scrape_at += SCRAPE_S
            self._scraped = self._collected

    def value(self) -> float | None:
        return self._scraped

    def active(self) -> bool:
        """With activationThreshold 0, KEDA's default: active above it (prometheus_scaler.go GetMetricsAndActivity)."""
        return bool(self._scraped)
