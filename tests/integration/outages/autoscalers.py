"""KEDA and the HPA in front of a real daemon, by the model that `tests/scaler/controllers` compares with the originals.

Each test advances their clock: `await scaled.minutes(10)` is ten minutes of polls every 30 s and syncs every 15 s, all
over real gRPC, and takes only as long as the calls. The daemon's own time passes normally.

Worked example: the daemon responds with errors. `await Scaled(stub, document, replicas=3).minutes(10)` is [], since an
error without `fallback` scales nothing; with `fallback=Fallback(3, 6)` it is [6].
"""

from scaler.cli.demo.autoscaler import HPA_SYNC_S, DemoScaledObject, StandIn
from scaler.controllers import hpa
from scaler.controllers.hpa import SHIPPED, HpaMemory
from scaler.controllers.keda import Push, ScaledObjectSpec
from tests.fakes.clock import SleeplessClock

POLL_S = 30.0
MINUTE_S = 60.0


class Scaled:
    """One ScaledObject, its HPA, and its scale target; `replicas` is its spec.replicas."""

    def __init__(self, stub, document, *, replicas, deployment=None, **spec):
        """document: the ScaledObject; its first trigger goes into every call. deployment: receives each new number of
        replicas too. spec: KEDA's, such as `fallback`.
        """
        self.replicas, self.orders = replicas, []
        self._stub, self._deployment, self._clock = stub, deployment, SleeplessClock(time=0.0)
        metadata, trigger = document["metadata"], document["spec"]["triggers"][0]
        scaled = DemoScaledObject(
            metadata["namespace"],
            metadata["name"],
            trigger["metadata"],
            ScaledObjectSpec(**{"max_replicas": 9, **spec}),
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
        """Advances that many minutes; returns the replicas ordered in them."""

        async def both(at):
            await self._stand_in.sync(self._stub)
            if at % POLL_S == 0.0:
                await self._stand_in.poll(self._stub)

        return await self._pass(number, both)

    async def minutes_of_polls(self, number):
        """The same without KEDA's metrics server: the HPA gets no metric."""

        async def poll(at):
            self._unanswered(at)
            if at % POLL_S == 0.0:
                await self._stand_in.poll(self._stub)

        return await self._pass(number, poll)

    async def minutes_of_nothing(self, number):
        """The same without KEDA's operator: no polls, and the metrics server gets no metric."""

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
        """A sync of the HPA without its metric."""
        spec, missing = hpa.HpaSpec(max_replicas=9, behavior=SHIPPED), [hpa.HpaMetric(None, 1.0)]
        outcome, _ = hpa.step(spec, HpaMemory(), missing, self.replicas, self.replicas, at)
        if outcome.replicas != self.replicas:
            self.scale(outcome.replicas, at)

    def pushed(self, active):
        """Apply a message of StreamIsActive."""
        self._stand_in.apply(Push(active))

    @property
    def last_action(self):
        """The last order or error."""
        return self._stand_in.last_action


def named(name, namespace="ai"):
    """A ScaledObject of that name without trigger metadata: the workload is in the configuration."""
    return {"metadata": {"namespace": namespace, "name": name}, "spec": {"triggers": [{"metadata": {}}]}}
