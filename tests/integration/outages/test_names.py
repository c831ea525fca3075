"""The name server falls silent, or the system's clock is set. The daemon runs in this process, with fakes of both."""

import asyncio
import socket
import time
from types import SimpleNamespace

import grpc
import grpc.aio
import pytest

from exporter import clock
from exporter.clock import WallClock
from exporter.discovery.dns import DnsTargets, StaticTargets
from exporter.model import Role, Target, WorkloadKey
from scaler.api.keda import externalscaler_pb2_grpc as rpc
from scaler.config import parse
from scaler.controllers.keda import FallbackSpec
from scaler.daemon import Daemon
from tests.fakes.keda import Keda
from tests.fakes.waiting import until_scraped
from tests.integration.daemon import conftest as daemons

from .autoscalers import Scaled, named
from .conftest import QUICKLY

targets, vllm, epp = daemons.targets, daemons.vllm, daemons.epp
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
SOON_S = 60.0
CHAT, NIGHT = WorkloadKey("ai", "chat"), WorkloadKey("ai", "night")
CONFIG = (
    QUICKLY
    + """\
workloads:
  - {namespace: ai, name: chat, engine: vllm, smoothing: {up: 0s, down: 0.3s}, keep_warm: 1s,
     replicas: {min: 0, max: 9}, pods: {dns: chat.ai.svc}}
  - {namespace: ai, name: night, engine: vllm, smoothing: {up: 0s, down: 0.3s}, keep_warm: 1s,
     replicas: {min: 0, max: 9}, pods: {dns: night.ai.svc}, gateway: {url: "http://front:9090/metrics"}}
"""
)


class NameServer:
    """names: addresses by name. broken: every look-up fails."""

    def __init__(self):
        self.names, self.broken = {}, False

    async def resolve(self, name):
        if self.broken:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return self.names.get(name, set())


@pytest.fixture
def names():
    return NameServer()


@pytest.fixture
def system_time(monkeypatch):
    """The system's clock, `ahead_s` seconds ahead of its former value; the monotonic clock cannot be set."""
    offset = SimpleNamespace(ahead_s=0.0)
    set_time = SimpleNamespace(time=lambda: time.time() + offset.ahead_s, monotonic=time.monotonic)
    monkeypatch.setattr(clock, "time", set_time)
    return offset


@pytest.fixture
async def keda(names, targets, system_time):
    """KEDA's calls to a daemon with this name server; an "address" is the name of a target."""

    def discoveries(config):
        for key in (CHAT, NIGHT):
            name = f"{key.name}.ai.svc"

            def target_at(address, key=key):
                return Target(targets.url(address), "vllm", Role.PODS, key)

            fresh_s = config.fresh_for
            yield DnsTargets(name, target_at, owner=key, timeout_s=0.2, keep_s=fresh_s, resolver=names.resolve)
        yield StaticTargets([Target(targets.url("front"), "epp", Role.GATEWAY, NIGHT)])

    stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
    daemon = Daemon(parse(CONFIG, "config.yaml")[0], WallClock(), discoveries=lambda config: [*discoveries(config)])
    running = asyncio.create_task(daemon.run(stop, listening.set_result))
    async with asyncio.timeout(SOON_S):
        ports = await listening
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ports.grpc}") as channel:
        yield Keda(stub=rpc.ExternalScalerStub(channel))
    stop.set()
    await running


@pytest.fixture
async def started(names, targets, keda, vllm, epp):
    """A working workload with two pods, and a sleeping one: their documents."""
    chat, night = named("chat"), named("night")
    names.names = {"chat.ai.svc": {"a", "b"}, "night.ai.svc": {"n"}}
    targets["a"].body = targets["b"].body = vllm(running=20)
    targets["n"].body, targets["front"].body = vllm(), epp(queued=0, ready=1)
    # 40 requests at 16 per replica: 2.5, so 3.
    await keda.until((3, True), chat)
    await keda.until((0, False), night)
    del names.names["night.ai.svc"]
    await until_scraped(targets["front"])
    return chat, night


async def test_failing_name_server_is_held_and_then_an_error_and_a_sleeping_workload_can_be_woken(
    names, targets, keda, started, epp
):
    chat, night = started
    fallbacks = (None, FallbackSpec(3, 6))
    awake = [Scaled(keda.stub, chat, replicas=3, fallback=fallback) for fallback in fallbacks]
    asleep = [Scaled(keda.stub, night, replicas=0, fallback=fallback) for fallback in fallbacks]
    async with keda.watching(chat) as responses, keda.watching(night) as slept:
        names.broken = True
        await keda.until(UNAVAILABLE, chat)
        assert [await one.minutes(10) for one in (*awake, *asleep)] == [[], [6], [], []]
    assert (set(responses), slept) == ({(3, True), UNAVAILABLE}, [(0, False)])
    targets["front"].body = epp(queued=20, ready=0)
    await keda.until((2, True), night)
    names.broken = False
    await keda.until((3, True), chat)


async def test_name_without_addresses_is_no_error_and_never_puts_to_sleep(names, targets, keda, started):
    chat, _ = started
    async with keda.watching(chat) as responses:
        del names.names["chat.ai.svc"]
        await keda.until((1, True), chat)
        await until_scraped(targets["front"], 10)
    assert {active for _, active in responses} == {True}
    # One replica is kept, as of a loading workload; and the HPA's minimum is one.
    assert await Scaled(keda.stub, chat, replicas=3).minutes(10) == [1]


async def test_set_system_clock_changes_no_decision(targets, keda, started, system_time):
    chat, night = started
    async with keda.watching(chat) as responses, keda.watching(night) as slept:
        for step_s in (300.0, -300.0):
            system_time.ahead_s = step_s
            await until_scraped(targets["front"], 6)
    assert (responses, slept) == ([(3, True)], [(0, False)])
