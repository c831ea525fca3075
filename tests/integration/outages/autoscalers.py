"""KEDA and the HPA in front of a real daemon, by the model that `tests/scaler/controllers` holds to the facts.

Whoever tells a story moves their clock: `await scaled.minutes(10)` is ten minutes of polls every 30 s and syncs every
15 s, all asked over real gRPC, and takes as long as the calls do. The daemon's own time goes on by itself.

Worked example: the daemon answers with errors. `await Scaled(stub, document, replicas=3).minutes(10)` is [], for an
error without `fallback` moves nobody; with `fallback=Fallback(3, 6)` it is [6].
"""

from dataclasses import dataclass

from scaler.cli.demo.autoscaler import HPA_SYNC_S, DemoScaledObject, StandIn
from scaler.controllers import hpa
from scaler.controllers.hpa import SHIPPED, HpaMemory
from scaler.controllers.keda import Push, ScaledObjectSpec

POLL_S = 30.0
MINUTE_S = 60.0


@dataclass
class Hand:
    """The clock of KEDA and of the HPA, which a story moves."""

    time: float = 0.0

    def now(self):
        return self.time


class Scaled:
    """One ScaledObject, its HPA, and what they scale; `replicas` is its spec.replicas."""

    def __init__(self, stub, document, *, replicas, deployment=None, **spec):
        """document: the ScaledObject, whose first trigger goes into every call. deployment: who is to be told of a new
        number of replicas too. spec: KEDA's, as `fallback`."""
        self.replicas, self.orders = replicas, []
        self._stub, self._deployment, self._clock = stub, deployment, Hand()
        metadata, words = document["metadata"], document["spec"]["triggers"][0]["metadata"]
        scaled = DemoScaledObject(
            metadata["namespace"], metadata["name"], words, ScaledObjectSpec(**{"max_replicas": 9, **spec})
        )
        self._stand_in = StandIn(self._clock, "", scaled, self)

    def replica_count(self):
        return self.replicas, self.replicas

    def scale(self, replicas, _now):
        self.replicas = replicas
        self.orders.append(replicas)
        if self._deployment is not None:
            self._deployment.scale(replicas)

    async def minutes(self, number):
        """So many minutes; returns what was ordered in them."""

        async def both(at):
            await self._stand_in.sync(self._stub)
            if at % POLL_S == 0.0:
                await self._stand_in.poll(self._stub)

        return await self._pass(number, both)

    async def minutes_of_polls(self, number):
        """The same without KEDA's metrics server: nobody tells the HPA anything."""

        async def poll(at):
            self._unanswered(at)
            if at % POLL_S == 0.0:
                await self._stand_in.poll(self._stub)

        return await self._pass(number, poll)

    async def minutes_of_nothing(self, number):
        """The same without KEDA's operator: nobody polls, and the metrics server has nobody to ask."""

        async def nothing(at):
            self._unanswered(at)

        return await self._pass(number, nothing)

    async def _pass(self, minutes, each):
        before, until = len(self.orders), self._clock.time + minutes * MINUTE_S
        while self._clock.time < until:
            self._clock.time += HPA_SYNC_S
            await each(self._clock.time)
        return self.orders[before:]

    def _unanswered(self, at):
        """A sync of the HPA whose metric is not to be had."""
        spec, missing = hpa.HpaSpec(max_replicas=9, behavior=SHIPPED), [hpa.HpaMetric(None, 1.0)]
        outcome, _ = hpa.step(spec, HpaMemory(), missing, self.replicas, self.replicas, at)
        if outcome.replicas != self.replicas:
            self.scale(outcome.replicas, at)

    def pushed(self, active):
        """StreamIsActive said so."""
        self._stand_in.apply(Push(active))

    @property
    def said(self):
        """Its last order or trouble."""
        return self._stand_in.last_action


def named(name, namespace="ai"):
    """A ScaledObject of that name whose trigger says nothing: of a workload of the configuration."""
    return {"metadata": {"namespace": namespace, "name": name}, "spec": {"triggers": [{"metadata": {}}]}}
