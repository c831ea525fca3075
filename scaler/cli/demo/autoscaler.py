"""Stands in for KEDA and the HPA: calls the real external scaler over gRPC and scales the simulated Deployment.

Makes the calls of KEDA 2.19 and of the HPA controller in their order and intervals, by the demo's clock; the arithmetic
is in `scaler.controllers`. Three tasks: the poll (GetMetricSpec, GetMetrics, IsActive at once and then every polling
interval, also at zero), the HPA's sync every 15 s (the same calls, only above zero), and StreamIsActive, reopened 2 s
after a normal end and after 4, 8, … 60 s if it breaks.

Worked example: a gateway queue of 1 at zero replicas makes Tidegate push `true`; the stand-in sets 1 replica at once
and `last_action` is "KEDA: pushed active: 0 to 1".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
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
_HPA_DEADLINE_S = 60.0  # real time; calls of the poll have no deadline
_REOPEN_S = 2.0
_BACKOFF_S = (4.0, 8.0, 16.0, 32.0, 60.0)

DEMO_KEDA = keda.ScaledObjectSpec(max_replicas=8, polling_interval_s=5.0, cooldown_s=30.0)


class Deployment(Protocol):
    """The scale target."""

    def replica_count(self) -> tuple[int, int]:
        """(wanted, ready)."""

    def scale(self, replicas: int, now: float) -> None: ...


@dataclass(frozen=True, slots=True)
class DemoScaledObject:
    """metadata: of the trigger, with `scalerAddress`, because KEDA sends all of it."""

    namespace: str
    name: str
    metadata: Mapping[str, str]
    spec: keda.ScaledObjectSpec = DEMO_KEDA
    behavior: HpaBehavior | None = SHIPPED


@dataclass(frozen=True, slots=True)
class _PollRound:
    """The results of GetMetricSpec, GetMetrics and IsActive."""

    result: keda.PollResult
    metrics: tuple[hpa.HpaMetric, ...] = ()


class StandIn:
    """`await run()` runs until cancelled. last_action: the last scaling or failure, for the screen.

    A test with its own clock calls `poll` and `sync` instead, when each is due.
    """

    def __init__(
        self,
        clock: Clock,
        address: str,
        scaled_object: DemoScaledObject,
        deployment: Deployment,
        hold: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """hold: stops the clock during a call, if it can."""
        self.last_action = ""
        self._clock, self._hold = clock, hold
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
        """One poll of KEDA."""
        with self._hold():
            polled = await _call_twice(stub, self._ref, deadline_s=None)
        self.apply(keda.Poll(polled.result))

    async def sync(self, stub: Any) -> None:
        """One sync of the HPA, which makes no calls at zero replicas."""
        if self._deployment.replica_count()[0] > 0 and keda.has_hpa(self._spec):
            with self._hold():
                polled = await _call_twice(stub, self._ref, deadline_s=_HPA_DEADLINE_S)
            self._synced(polled)

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
                    self.apply(keda.Push(message.result))
                broken, wait_s = 0, _REOPEN_S
            except grpc.aio.AioRpcError as error:
                wait_s = _BACKOFF_S[min(broken, len(_BACKOFF_S) - 1)]
                broken += 1
                self.last_action = f"KEDA: stream broken ({error.code().name}), again in {wait_s:g} s"
            await self._clock.sleep(wait_s)

    def apply(self, event: keda.Event) -> None:
        """Passes an event to KEDA's arithmetic, and scales if it requires so."""
        now = self._clock.now()
        wanted, _ = self._deployment.replica_count()
        replicas, self._keda_memory, reason = keda.step(self._spec, self._keda_memory, event, wanted, now)
        if replicas is not None:
            self.last_action = f"KEDA: {reason}"
            self._deployment.scale(replicas, now)

    def _synced(self, polled: _PollRound) -> None:
        """One sync of the HPA, with the metrics from KEDA's metrics adapter."""
        if polled.result is not keda.PollResult.DOWN:
            self.apply(keda.Read(polled.result is not keda.PollResult.ERROR))
        metrics = [self._with_fallback(metric) for metric in polled.metrics] or [hpa.HpaMetric(None, 1.0)]
        now = self._clock.now()
        wanted, _ = self._deployment.replica_count()
        outcome, self._hpa_memory = hpa.step(self._hpa_spec, self._hpa_memory, metrics, wanted, wanted, now)
        if outcome.replicas != wanted:
            self.last_action = f"HPA: {wanted} to {outcome.replicas}, {outcome.why}"
            self._deployment.scale(outcome.replicas, now)
        elif outcome.limit not in {hpa.Limit.NONE, hpa.Limit.AT_ZERO}:
            self.last_action = f"HPA: {outcome.why}"

    def _with_fallback(self, metric: hpa.HpaMetric) -> hpa.HpaMetric:
        if metric.value is None:
            return metric._replace(value=keda.fallback_value(self._spec, self._keda_memory, metric.target))
        return metric


async def _call_twice(stub: Any, ref: Any, deadline_s: float | None) -> _PollRound:
    """KEDA rebuilds a failed scaler and calls it once more, at once (scalers_cache.go)."""
    polled = await _call(stub, ref, deadline_s)
    if polled.result in {keda.PollResult.ERROR, keda.PollResult.DOWN}:
        polled = await _call(stub, ref, deadline_s)
    return polled


async def _call(stub: Any, ref: Any, deadline_s: float | None) -> _PollRound:
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
            # external_scaler.go: the float is used only if above 0; the HPA sums several values.
            total = sum(v.metricValueFloat if v.metricValueFloat > 0 else float(v.metricValue) for v in values)
            metrics.append(hpa.HpaMetric(total, target))
            active = (await stub.IsActive(ref, timeout=deadline_s)).result or active
    except grpc.aio.AioRpcError:
        # An error of IsActive alone also fails the metric.
        return _PollRound(keda.PollResult.ERROR, tuple(hpa.HpaMetric(None, target) for target in targets.values()))
    return _PollRound(keda.PollResult.ACTIVE if active else keda.PollResult.INACTIVE, tuple(metrics))
