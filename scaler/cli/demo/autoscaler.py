"""The demo's stand-in for KEDA + HPA: asks the real external scaler over real gRPC, and scales the simulated pods.

Knows: which calls KEDA makes, when, and in what order, and what it does when one fails. Refuses to know: what the
answers mean for the replicas, which is `scaler.controllers`. All intervals are the demo's clock's.

Three things go on at once, as in KEDA 2.19 and the HPA controller: the poll (GetMetricSpec, GetMetrics, IsActive at
once and then every polling interval, also at zero), the HPA's sync every 15 s (the same three calls, only above zero),
and StreamIsActive, opened again after 2 s when the scaler ends it and after 4, 8, … 60 s when it breaks.

Worked example: a gateway queue of 1 at zero replicas makes Tidegate push `true`; the stand-in sets 1 replica in the
same moment and `said` is "KEDA: pushed active: 0 to 1".
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
import grpc.aio

from exporter.clock import Clock
from scaler.api.keda import externalscaler_pb2 as pb
from scaler.api.keda import externalscaler_pb2_grpc as rpc
from scaler.controllers import hpa, keda
from scaler.controllers.hpa import SHIPPED, HpaBehavior, HpaMemory

HPA_SYNC_S = 15.0
_HPA_DEADLINE_S = 60.0  # of the wall; the poll's calls carry none
_REOPEN_S = 2.0
_BACKOFF_S = (4.0, 8.0, 16.0, 32.0, 60.0)

DEMO_KEDA = keda.ScaledObjectSpec(max_replicas=8, polling_interval_s=5.0, cooldown_s=30.0)


class Deployment(Protocol):
    """What is scaled."""

    def replica_count(self) -> tuple[int, int]:
        """(wanted, ready)."""

    def scale(self, replicas: int, now: float) -> None: ...


@dataclass(frozen=True, slots=True)
class DemoScaledObject:
    """metadata: the trigger's, `scalerAddress` included, as KEDA sends all of it."""

    namespace: str
    name: str
    metadata: Mapping[str, str]
    spec: keda.ScaledObjectSpec = DEMO_KEDA
    behavior: HpaBehavior | None = SHIPPED


@dataclass(frozen=True, slots=True)
class _PollRound:
    """What GetMetricSpec, GetMetrics and IsActive came to."""

    answer: keda.PollResult
    metrics: tuple[hpa.HpaMetric, ...] = ()


class StandIn:
    """`await run()` until it is cancelled. `said`: its last order or trouble, for the screen.

    Whoever has time in his own hand calls `poll` and `sync` instead, when each is due by his clock.
    """

    def __init__(self, clock: Clock, address: str, scaled_object: DemoScaledObject, deployment: Deployment) -> None:
        self.said = ""
        self._clock = clock
        self._address = address
        self._spec = scaled_object.spec
        self._hpa_spec = hpa.HpaSpec(
            max_replicas=scaled_object.spec.max_replicas,
            min_replicas=keda.hpa_min_replicas(scaled_object.spec),
            behavior=scaled_object.behavior,
        )
        self._ref = pb.ScaledObjectRef(
            name=scaled_object.name, namespace=scaled_object.namespace, scalerMetadata=dict(scaled_object.metadata)
        )
        self._deployment = deployment
        self._keda_memory = keda.KedaMemory(created_at=clock.now())
        self._hpa_memory = HpaMemory()

    async def run(self) -> None:
        options = (("grpc.lb_policy_name", "round_robin"),)
        async with grpc.aio.insecure_channel(self._address, options=options) as channel:
            stub = rpc.ExternalScalerStub(channel)  # type: ignore[no-untyped-call]
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._poll(stub), name="stand-in: KEDA's poll")
                tasks.create_task(self._sync(stub), name="stand-in: HPA's sync")
                tasks.create_task(self._listen(stub), name="stand-in: KEDA's stream")

    async def poll(self, stub: Any) -> None:
        """One round of KEDA's own loop."""
        answered = await _ask_twice(stub, self._ref, deadline_s=None)
        self.happened(keda.Poll(answered.answer))

    async def sync(self, stub: Any) -> None:
        """One sync of the HPA, which asks nobody while there are no replicas."""
        if self._deployment.replica_count()[0] > 0 and keda.has_hpa(self._spec):
            answered = await _ask_twice(stub, self._ref, deadline_s=_HPA_DEADLINE_S)
            self._synced(answered)

    async def _poll(self, stub: Any) -> None:
        while True:
            next_at = self._clock.now() + self._spec.polling_interval_s
            await self.poll(stub)
            await self._clock.sleep(next_at - self._clock.now())

    async def _sync(self, stub: Any) -> None:
        while True:
            next_at = self._clock.now() + HPA_SYNC_S
            await self.sync(stub)
            await self._clock.sleep(next_at - self._clock.now())

    async def _listen(self, stub: Any) -> None:
        broken = 0
        while True:
            try:
                async for message in stub.StreamIsActive(self._ref):
                    self.happened(keda.Push(message.result))
                broken, wait_s = 0, _REOPEN_S
            except grpc.aio.AioRpcError as error:
                wait_s = _BACKOFF_S[min(broken, len(_BACKOFF_S) - 1)]
                broken += 1
                self.said = f"KEDA: stream broken ({error.code().name}), again in {wait_s:g} s"
            await self._clock.sleep(wait_s)

    def happened(self, event: keda.Event) -> None:
        """KEDA learned something, and may order replicas."""
        now = self._clock.now()
        wanted, _ = self._deployment.replica_count()
        order, self._keda_memory, why = keda.step(self._spec, self._keda_memory, event, wanted, now)
        if order is not None:
            self.said = f"KEDA: {why}"
            self._deployment.scale(order, now)

    def _synced(self, answered: _PollRound) -> None:
        """One sync of the HPA, with the metrics KEDA's adapter would have handed it."""
        if answered.answer is not keda.PollResult.DOWN:
            self.happened(keda.Read(answered.answer is not keda.PollResult.ERROR))
        metrics = [self._as_hpa_sees(metric) for metric in answered.metrics] or [hpa.HpaMetric(None, 1.0)]
        now = self._clock.now()
        wanted, _ = self._deployment.replica_count()
        outcome, self._hpa_memory = hpa.step(self._hpa_spec, self._hpa_memory, metrics, wanted, wanted, now)
        if outcome.replicas != wanted:
            self.said = f"HPA: {wanted} to {outcome.replicas}, {outcome.why}"
            self._deployment.scale(outcome.replicas, now)
        elif outcome.limit not in {hpa.Limit.NONE, hpa.Limit.AT_ZERO}:
            self.said = f"HPA: {outcome.why}"

    def _as_hpa_sees(self, metric: hpa.HpaMetric) -> hpa.HpaMetric:
        if metric.value is None:
            return metric._replace(value=keda.fallback_value(self._spec, self._keda_memory, metric.target))
        return metric


async def _ask_twice(stub: Any, ref: Any, deadline_s: float | None) -> _PollRound:
    """KEDA rebuilds a scaler that failed and asks it once more, at once (scalers_cache.go)."""
    answered = await _ask(stub, ref, deadline_s)
    if answered.answer in {keda.PollResult.ERROR, keda.PollResult.DOWN}:
        answered = await _ask(stub, ref, deadline_s)
    return answered


async def _ask(stub: Any, ref: Any, deadline_s: float | None) -> _PollRound:
    try:
        specs = (await stub.GetMetricSpec(ref, timeout=deadline_s)).metricSpecs
    except grpc.aio.AioRpcError:
        return _PollRound(keda.PollResult.DOWN)
    targets = {
        spec.metricName: spec.targetSizeFloat if spec.targetSizeFloat > 0 else float(spec.targetSize) for spec in specs
    }
    metrics: list[hpa.HpaMetric] = []
    active = False
    try:
        for name, target in targets.items():
            request = pb.GetMetricsRequest(scaledObjectRef=ref, metricName=name)
            values = (await stub.GetMetrics(request, timeout=deadline_s)).metricValues
            # external_scaler.go: the float is read only where it is above 0; several values are summed by the HPA.
            total = sum(v.metricValueFloat if v.metricValueFloat > 0 else float(v.metricValue) for v in values)
            metrics.append(hpa.HpaMetric(total, target))
            active = (await stub.IsActive(ref, timeout=deadline_s)).result or active
    except grpc.aio.AioRpcError:
        # An error of IsActive alone fails the whole metric too.
        return _PollRound(keda.PollResult.ERROR, tuple(hpa.HpaMetric(None, target) for target in targets.values()))
    return _PollRound(keda.PollResult.ACTIVE if active else keda.PollResult.INACTIVE, tuple(metrics))
