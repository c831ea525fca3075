"""KEDA and the HPA around a scaler, by `scaler.controllers`: the poll, the push, the cooldown, the sync.

It knows when each looks and in what order. What the scaler's number is and how old, the scaler knows.

Worked example: a scaler that pushes and sees a request at zero replicas: 1 replica in the same moment; a scaler that
does not is polled, and the request waits up to 30 s for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from scaler.controllers import hpa, keda
from scaler.controllers.hpa import HpaMemory

from ..baseline import Observation

HPA_SYNC_S = 15.0


class Scaler(Protocol):
    """Whoever is asked for the number.

    every_s: how often it hears the pages. pushes: it is an external-push scaler. target: of its metric, per replica.
    """

    name: str
    every_s: float
    pushes: bool
    target: float

    def hear(self, seen: Observation) -> None: ...

    def value(self) -> float | None:
        """The metric; None is an error."""
        ...

    def active(self) -> bool: ...


def average(scaler: Scaler, _seen: Observation) -> hpa.HpaMetric:
    """Type AverageValue, which is KEDA's default: a total, shared by the replicas."""
    return hpa.HpaMetric(scaler.value(), scaler.target)


def whole(scaler: Scaler, seen: Observation) -> hpa.WholeMetric:
    """Type Value: as it is, for averages over pods."""
    return hpa.WholeMetric(scaler.value(), scaler.target, seen.ready)


class KedaAndHpa:
    """The two controllers around one scaler. metric: how the HPA is told the number; `average` or `whole`."""

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

    def step(self, seen: Observation) -> int | None:
        scaler, now, wanted = self._scaler, seen.now, seen.wanted
        scaler.hear(seen)
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
                metric = self._metric(scaler, seen)
                outcome, self._hpa_memory = hpa.step(self._hpa, self._hpa_memory, [metric], wanted, wanted, now)
                wanted = outcome.replicas
        return wanted

    def _event(self, event: keda.Event, wanted: int, now: float) -> int:
        order, self._keda_memory, _ = keda.step(self._keda, self._keda_memory, event, wanted, now)
        return wanted if order is None else order
