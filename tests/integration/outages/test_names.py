"""The name server falls silent, and the system's clock is set. The daemon runs in this process: both are its own."""

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
from tests.integration.cluster.keda import Keda
from tests.integration.cluster.waiting import asked_again
from tests.integration.daemon import conftest as daemons

from .autoscalers import Scaled, named
from .conftest import QUICKLY

pages, vllm, epp = daemons.pages, daemons.vllm, daemons.epp
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
    """names: the addresses of each. broken: it fails to answer."""

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
    """The system's clock, `ahead_s` seconds ahead of what it was; the monotonic one cannot be set."""
    made = SimpleNamespace(ahead_s=0.0)
    set_time = SimpleNamespace(time=lambda: time.time() + made.ahead_s, monotonic=time.monotonic)
    monkeypatch.setattr(clock, "time", set_time)
    return made


@pytest.fixture
async def keda(names, pages, system_time):
    """KEDA's calls to a daemon whose names this server knows; an "address" is the name of a page."""

    def discoveries(config):
        for key in (CHAT, NIGHT):
            name = f"{key.name}.ai.svc"

            def target_at(address, key=key):
                return Target(pages.url(address), "vllm", Role.PODS, key)

            fresh_s = config.fresh_for
            yield DnsTargets(name, target_at, owner=key, timeout_s=0.2, keep_s=fresh_s, resolver=names.resolve)
        yield StaticTargets([Target(pages.url("front"), "epp", Role.GATEWAY, NIGHT)])

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
async def begun(names, pages, keda, vllm, epp):
    """One that works, on two pods, and one that sleeps: (stub, document) of each."""
    chat, night = named("chat"), named("night")
    names.names = {"chat.ai.svc": {"a", "b"}, "night.ai.svc": {"n"}}
    pages["a"].body = pages["b"].body = vllm(running=20)
    pages["n"].body, pages["front"].body = vllm(), epp(queued=0, ready=1)
    # 40 requests at 16 a replica: 2.5, so 3.
    await keda.until((3, True), chat)
    await keda.until((0, False), night)
    del names.names["night.ai.svc"]
    await asked_again(pages["front"])
    return chat, night


async def test_a_name_server_that_fails_is_held_and_then_an_error_and_a_sleeper_sleeps_and_can_be_woken(
    names, pages, keda, begun, epp
):
    chat, night = begun
    fallbacks = (None, FallbackSpec(3, 6))
    awake = [Scaled(keda.stub, chat, replicas=3, fallback=fallback) for fallback in fallbacks]
    asleep = [Scaled(keda.stub, night, replicas=0, fallback=fallback) for fallback in fallbacks]
    async with keda.watching(chat) as seen, keda.watching(night) as slept:
        names.broken = True
        await keda.until(UNAVAILABLE, chat)
        assert [await one.minutes(10) for one in (*awake, *asleep)] == [[], [6], [], []]
    assert (set(seen), slept) == ({(3, True), UNAVAILABLE}, [(0, False)])
    pages["front"].body = epp(queued=20, ready=0)
    await keda.until((2, True), night)
    names.broken = False
    await keda.until((3, True), chat)


async def test_a_name_server_that_says_that_nobody_is_there_is_believed_and_never_puts_to_sleep(
    names, pages, keda, begun
):
    chat, _ = begun
    async with keda.watching(chat) as seen:
        del names.names["chat.ai.svc"]
        await keda.until((1, True), chat)
        await asked_again(pages["front"], 10)
    assert {active for _, active in seen} == {True}
    # One is kept, as of a workload that loads; and the least that the HPA may order is one.
    assert await Scaled(keda.stub, chat, replicas=3).minutes(10) == [1]


async def test_a_system_clock_that_is_set_changes_no_answer(pages, keda, begun, system_time):
    chat, night = begun
    async with keda.watching(chat) as seen, keda.watching(night) as slept:
        for step_s in (300.0, -300.0):
            system_time.ahead_s = step_s
            await asked_again(pages["front"], 6)
    assert (seen, slept) == ([(3, True)], [(0, False)])
