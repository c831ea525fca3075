"""KEDA and the HPA over one model: `scaler.controllers` on the clock, with the settings that Tidegate ships.

Worked example: the decision becomes active at zero replicas: the push sets one replica at that moment; the HPA's next
sync, within 15 s, sets the number of the decision.
"""

from __future__ import annotations

from scaler.controllers import hpa, keda
from scaler.controllers.hpa import SHIPPED, HpaMemory

HPA_SYNC_S = 15.0
STREAM_AGAIN_S = 4.0  # KEDA's first back-off after a broken stream
# The ScaledObject of the README.
SHIPPED_OBJECT = keda.ScaledObjectSpec(min_replicas=0, max_replicas=8, polling_interval_s=10.0, cooldown_s=30.0)


class Control:
    """ordered: called with (model, before, after) just before each order is carried out."""

    def __init__(self, clock, gate, model, spec=SHIPPED_OBJECT, *, push=True, poll_first_s=3.0):
        self.clock, self.gate, self.model, self.spec = clock, gate, model, spec
        self.ordered = lambda model, before, after: None
        self.last_reason = ""
        self._push, self._down_until = push, clock.now
        self._keda = keda.KedaMemory(created_at=clock.now)
        self._hpa_spec = hpa.HpaSpec(
            max_replicas=spec.max_replicas, min_replicas=keda.hpa_min_replicas(spec), behavior=SHIPPED
        )
        self._hpa = HpaMemory()
        self._polls = clock.every(spec.polling_interval_s, self._poll, first_s=poll_first_s)
        clock.every(HPA_SYNC_S, self._sync, first_s=7.0)

    @property
    def next_poll_at(self):
        return self._polls.next_at

    def pushed(self, decision):
        """Handle a new decision on the stream, unless the stream is broken or the decision is an error."""
        if self._push and decision.replicas is not None and self.clock.now >= self._down_until:
            self._happened(keda.Push(decision.active))

    def stream_broke(self, seconds):
        """The process is gone for that long; the stream reopens some time after its return."""
        self._down_until = self.clock.now + seconds + STREAM_AGAIN_S
        self.clock.at(self._down_until, self._reopened)

    def _reopened(self):
        decision = self.gate.answer(self.model)
        if self.gate.alive and decision is not None:
            self.pushed(decision)

    def _poll(self):
        self._happened(keda.Poll(self._answer()))

    def _answer(self):
        if not self.gate.alive:
            return keda.PollResult.DOWN
        decision = self.gate.answer(self.model)
        if decision is None or decision.replicas is None:
            return keda.PollResult.ERROR
        return keda.PollResult.ACTIVE if decision.active else keda.PollResult.INACTIVE

    def _sync(self):
        if self.model.wanted == 0:
            return
        answer, value = self._answer(), None
        if answer in {keda.PollResult.ACTIVE, keda.PollResult.INACTIVE}:
            value = float(self.gate.answer(self.model).replicas)
        if answer is not keda.PollResult.DOWN:
            self._happened(keda.Read(value is not None))
        if value is None:
            value = keda.fallback_value(self.spec, self._keda, 1.0)
        existing = sum(pod.leaving_at is None for pod in self.model.pods)
        outcome, self._hpa = hpa.step(
            self._hpa_spec, self._hpa, [hpa.HpaMetric(value, 1.0)], self.model.wanted, existing, self.clock.now
        )
        self._order(outcome.replicas, f"HPA: {outcome.why}")

    def _happened(self, event):
        order, self._keda, why = keda.step(self.spec, self._keda, event, self.model.wanted, self.clock.now)
        if order is not None:
            self._order(order, f"KEDA: {why}")

    def _order(self, replicas, why):
        if replicas != self.model.wanted:
            self.last_reason = why
            self.ordered(self.model, self.model.wanted, replicas)
            self.model.scale(replicas)
