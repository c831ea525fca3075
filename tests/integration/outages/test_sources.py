"""Outages of central sources: Prometheus and Redis. Kubernetes is off here."""

import signal

import grpc
import grpc.aio
import pytest

from scaler.api.keda import externalscaler_pb2_grpc as rpc
from scaler.controllers.keda import FallbackSpec
from tests.fakes.daemon import running
from tests.fakes.keda import Keda
from tests.fakes.ports import free_ports

from . import central
from .autoscalers import Scaled, named
from .conftest import QUICKLY

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
FALLBACKS = (None, FallbackSpec(3, 6), FallbackSpec(3, 2), FallbackSpec(3, 0))
QUICK = (
    "    smoothing: {up: 0s, down: 0.3s}\n    keep_warm: 1s\n    replicas: {min: 0, max: 9}\n"
    "    engine: vllm\n    objectives: {work: 16}\n"
)


def workload(name, where):
    return f"  - namespace: ai\n    name: {name}\n{QUICK}    {where}\n"


def through(prometheus, name, *, gateway=False):
    """A workload with engines, or a gateway, that are read through Prometheus."""
    query = f"""{{prometheus: {{url: {prometheus.url!r}, selector: 'job="{name}"', max_age: 2s}}}}"""
    return workload(name, f"gateway: {query}" if gateway else f"pods: {query}")


@pytest.fixture(scope="module")
def prometheus():
    with central.prometheus() as server:
        yield server


@pytest.fixture(scope="module")
def redis_port():
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def tidegate(prometheus, redis_port, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tidegate")
    config = folder / "config.yaml"
    queues = [f"gateway: {{redis: {{url: 'redis://127.0.0.1:{redis_port}', lists: [{key}]}}}}" for key in ("a", "b")]
    workloads = [
        through(prometheus, "failing"),
        through(prometheus, "lost"),
        through(prometheus, "night", gateway=True),
        workload("jobs", queues[0]),
        workload("idle", queues[1]),
    ]
    config.write_text(QUICKLY + "workloads:\n" + "".join(workloads))
    with running(config, folder / "log") as daemon:
        yield daemon


@pytest.fixture
async def stub(tidegate):
    async with grpc.aio.insecure_channel(tidegate.grpc) as channel:
        yield rpc.ExternalScalerStub(channel), Keda(channel)


async def test_silent_prometheus_is_held_and_then_an_error_and_wakes_no_sleeping_workload(prometheus, stub):
    stub, keda = stub
    prometheus.set_engine("failing", waiting=0, running=40)
    prometheus.set_engine("lost", waiting=0, running=40)
    prometheus.set_gateway("night", 0)
    failing, lost, night = named("failing"), named("lost"), named("night")
    for each in (failing, lost):
        await keda.until((3, True), each)
    await keda.until((0, False), night)
    awake = [Scaled(stub, failing, replicas=3, fallback=fallback) for fallback in FALLBACKS]
    assert [await one.minutes(1) for one in awake] == [[], [], [], []]
    asleep = [Scaled(stub, night, replicas=0, fallback=fallback) for fallback in FALLBACKS]
    async with keda.watching(failing) as answers, keda.watching(lost) as lost_answers, keda.watching(night) as slept:
        # Some queries fail; one returns nothing, as after a loss of data.
        prometheus.failing |= {"failing", "night"}
        del prometheus.series["lost"]
        await keda.until(UNAVAILABLE, lost)
        await keda.until(UNAVAILABLE, failing)
        assert [await one.minutes(10) for one in asleep] == [[], [], [], []]
    assert [set(answers), set(lost_answers)] == [{(3, True), UNAVAILABLE}] * 2
    assert slept == [(0, False)]
    assert [await one.minutes(10) for one in awake] == [[], [6], [2], [1]]

    prometheus.failing.clear()
    prometheus.set_gateway("night", 20)
    await keda.until((3, True), failing)
    await keda.until((2, True), night)


async def test_silent_redis_is_held_and_then_an_error_and_wakes_no_sleeping_workload(
    tidegate, stub, redis_port, debian_tool
):
    stub, keda = stub
    jobs, idle = named("jobs"), named("idle")
    with central.redis(debian_tool("redis-server"), redis_port) as (process, client):
        client.rpush("a", *range(40))
        await keda.until((3, True), jobs)
        await keda.until((0, False), idle)
        # 40 jobs at 16 per worker: 2.5, so 3.
        awake = [Scaled(stub, jobs, replicas=3, fallback=fallback) for fallback in FALLBACKS]
        assert [await one.minutes(1) for one in awake] == [[], [], [], []]
        asleep = [Scaled(stub, idle, replicas=0, fallback=fallback) for fallback in FALLBACKS]
        async with keda.watching(jobs) as answers, keda.watching(idle) as slept:
            process.send_signal(signal.SIGSTOP)
            await keda.until(UNAVAILABLE, jobs)
            assert [await one.minutes(10) for one in asleep] == [[], [], [], []]
        assert set(answers) == {(3, True), UNAVAILABLE}
        assert slept == [(0, False)]
        assert [await one.minutes(10) for one in awake] == [[], [6], [2], [1]]
        process.send_signal(signal.SIGCONT)
        client.rpush("b", *range(20))
        await keda.until((2, True), idle)
