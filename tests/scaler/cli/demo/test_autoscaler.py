"""The demo's stand-in for KEDA and the HPA calls a real gRPC server as they do."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import grpc.aio

from exporter.clock import FastClock
from scaler.api.keda import externalscaler_pb2 as pb
from scaler.api.keda import externalscaler_pb2_grpc as rpc
from scaler.cli.demo.autoscaler import DemoScaledObject, StandIn
from scaler.controllers.keda import ScaledObjectSpec

POLL, HPA = "poll", "hpa"


@dataclass
class Pods:
    """Holds the Deployment. orders: every scale, in order; changed: set by every scale."""

    replicas: int = 0
    orders: list[int] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def replica_count(self) -> tuple[int, int]:
        return self.replicas, self.replicas

    def scale(self, replicas: int, now: float) -> None:
        self.replicas = replicas
        self.orders.append(replicas)
        self.changed.set()


class Scaler(rpc.ExternalScalerServicer):
    """Responds as configured and records calls. Calls of the HPA have a deadline, calls of the poll have none."""

    def __init__(self) -> None:
        self.active, self.replicas, self.broken = False, 0.0, set[str]()
        self.pushes: asyncio.Queue[bool | None] = asyncio.Queue()
        self.calls: list[tuple[str, str]] = []
        self.refs: list[pb.ScaledObjectRef] = []
        self.metric_names: list[str] = []
        self.streams = 0
        self.called = asyncio.Condition()

    async def _record(self, method: str, context) -> None:
        remaining = context.time_remaining()
        async with self.called:
            self.calls.append((HPA if remaining is not None and remaining < 3600 else POLL, method))
            self.called.notify_all()
        if method in self.broken:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no data")

    async def GetMetricSpec(self, request, context):  # noqa: N802
        self.refs.append(request)
        await self._record("GetMetricSpec", context)
        spec = pb.MetricSpec(metricName="tidegate-replicas", targetSize=1, targetSizeFloat=1.0)
        return pb.GetMetricSpecResponse(metricSpecs=[spec])

    async def GetMetrics(self, request, context):  # noqa: N802
        self.metric_names.append(request.metricName)
        await self._record("GetMetrics", context)
        value = pb.MetricValue(metricName="ignored", metricValue=int(self.replicas), metricValueFloat=self.replicas)
        return pb.GetMetricsResponse(metricValues=[value])

    async def IsActive(self, request, context):  # noqa: N802
        await self._record("IsActive", context)
        return pb.IsActiveResponse(result=self.active)

    async def StreamIsActive(self, request, context):  # noqa: N802
        self.streams += 1
        await self._record("StreamIsActive", context)
        while (result := await self.pushes.get()) is not None:
            yield pb.IsActiveResponse(result=result)

    async def until_called(self, count: int, caller: str = POLL, method: str = "IsActive") -> None:
        async with asyncio.timeout(60.0), self.called:
            await self.called.wait_for(lambda: self.calls.count((caller, method)) >= count)


@asynccontextmanager
async def stand_in_for(pods: Pods, spec: ScaledObjectSpec, speed: float):
    """Runs a stand-in for `pods`. Yields the scaler that it calls, and the stand-in."""
    scaler, server = Scaler(), grpc.aio.server()
    rpc.add_ExternalScalerServicer_to_server(scaler, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    watched = DemoScaledObject("demo", "chat", {"scalerAddress": address}, spec)
    stand_in = StandIn(FastClock(speed), address, watched, pods)
    task = asyncio.create_task(stand_in.run())
    try:
        yield scaler, stand_in
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await server.stop(None)


def methods_of(scaler: Scaler, caller: str) -> list[str]:
    return [method for each, method in scaler.calls if each == caller and method != "StreamIsActive"]


async def test_poll_calls_spec_metrics_and_activity_in_this_order_also_at_zero():
    async with stand_in_for(Pods(), ScaledObjectSpec(polling_interval_s=5.0), speed=200.0) as (scaler, _):
        await scaler.until_called(3)
        polled = methods_of(scaler, POLL)
        assert polled[:9] == ["GetMetricSpec", "GetMetrics", "IsActive"] * 3
        assert methods_of(scaler, HPA) == []
        assert set(scaler.metric_names) == {"tidegate-replicas"}
        ref = scaler.refs[0]
        assert (ref.namespace, ref.name) == ("demo", "chat")
        assert set(ref.scalerMetadata) == {"scalerAddress"}


async def test_hpa_polls_above_zero_and_follows_the_value():
    pods = Pods(replicas=1)
    async with stand_in_for(pods, ScaledObjectSpec(max_replicas=8, polling_interval_s=5.0), speed=200.0) as (
        scaler,
        stand_in,
    ):
        scaler.active, scaler.replicas = True, 3.0
        async with asyncio.timeout(60.0):
            await pods.changed.wait()
        assert pods.orders == [3]
        assert methods_of(scaler, HPA)[-3:] == ["GetMetricSpec", "GetMetrics", "IsActive"]
        assert stand_in.last_action == "HPA: 1 to 3, follows its metrics: 3"


async def test_push_wakes_between_two_polls():
    pods = Pods()
    async with stand_in_for(pods, ScaledObjectSpec(polling_interval_s=3600.0), speed=1.0) as (scaler, stand_in):
        await scaler.until_called(1)
        scaler.pushes.put_nowait(False)
        scaler.pushes.put_nowait(True)
        async with asyncio.timeout(60.0):
            await pods.changed.wait()
        assert pods.orders == [1]
        assert stand_in.last_action == "KEDA: pushed active: 0 to 1"
        assert scaler.calls.count((POLL, "GetMetrics")) == 1


async def test_inactivity_scales_to_zero_only_at_a_poll_after_the_cooldown():
    pods = Pods()
    async with stand_in_for(pods, ScaledObjectSpec(polling_interval_s=5.0, cooldown_s=30.0), speed=20.0) as (scaler, _):
        scaler.active, scaler.replicas = True, 1.0
        async with asyncio.timeout(60.0):
            await pods.changed.wait()
            pods.changed.clear()
            scaler.pushes.put_nowait(False)
            scaler.active, scaler.replicas = False, 0.0
            before = len(methods_of(scaler, POLL))
            await pods.changed.wait()
        assert pods.orders == [1, 0]
        # A cooldown of 30 s is six polls of 5 s. On a busy machine it may be three: 5 s last 0.25 s here.
        assert len(methods_of(scaler, POLL)) - before >= 3 * 3


async def test_failed_metric_is_fetched_once_more_at_once():
    async with stand_in_for(Pods(), ScaledObjectSpec(polling_interval_s=3600.0), speed=1.0) as (scaler, _):
        scaler.broken = {"GetMetrics"}
        await scaler.until_called(2, method="GetMetrics")
        assert methods_of(scaler, POLL) == ["GetMetricSpec", "GetMetrics"] * 2


async def test_failed_metric_keeps_the_replicas():
    pods = Pods(replicas=4)
    async with stand_in_for(pods, ScaledObjectSpec(polling_interval_s=5.0, cooldown_s=0.0), speed=200.0) as (scaler, _):
        scaler.broken = {"GetMetrics"}
        await scaler.until_called(6, method="GetMetrics")
        await scaler.until_called(2, caller=HPA, method="GetMetrics")
        assert pods.orders == []


async def test_error_of_is_active_alone_fails_the_metric():
    pods = Pods(replicas=4)
    async with stand_in_for(pods, ScaledObjectSpec(polling_interval_s=5.0, cooldown_s=0.0), speed=200.0) as (
        scaler,
        stand_in,
    ):
        scaler.broken, scaler.replicas = {"IsActive"}, 1.0
        await scaler.until_called(4)
        await scaler.until_called(4, caller=HPA)
        assert pods.orders == []
        assert "never down on an error" in stand_in.last_action


async def test_stream_that_ends_or_breaks_is_reopened():
    async with stand_in_for(Pods(), ScaledObjectSpec(polling_interval_s=3600.0), speed=200.0) as (scaler, _):
        await scaler.until_called(1, method="StreamIsActive")
        scaler.pushes.put_nowait(None)
        await scaler.until_called(2, method="StreamIsActive")
        scaler.broken = {"StreamIsActive"}
        scaler.pushes.put_nowait(None)
        await scaler.until_called(5, method="StreamIsActive")
        scaler.broken = set()
        await scaler.until_called(6, method="StreamIsActive")
        assert scaler.streams >= 6
