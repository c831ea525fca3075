"""Scrapes that arrive within one window are decided once, and no decision is published later than its window."""

import asyncio

import pytest

from exporter.catalog import Reader
from exporter.model import Failure, FailureKind, ReplicaCount, Role, ScrapeResult, Target, WorkloadKey
from exporter.sources.http import HttpLimits, HttpPages
from exporter.textformat import parse
from scaler.config import parse as configuration
from scaler.engine.loop import LANDING_WINDOW_S, ControlLoop
from scaler.engine.publisher import Publisher
from tests.fakes.clock import ManualClock
from tests.fakes.daemon import loop_context

NAMES = ("chat", "code", "asleep")
CHAT, CODE, ASLEEP = (WorkloadKey("ai", name) for name in NAMES)
GATEWAY = Target("http://epp.ai:9090/metrics", "epp", Role.GATEWAY, ASLEEP)
CONFIG = """
workloads:
  - {namespace: ai, name: chat, engine: vllm, replicas: {min: 1}, pods: {url: "http://10.0.0.1:8000/metrics"}}
  - {namespace: ai, name: code, engine: vllm, replicas: {min: 1}, pods: {url: "http://10.0.0.2:8000/metrics"}}
  - namespace: ai
    name: asleep
    engine: vllm
    keep_warm: 1m
    pods: {dns: asleep.ai}
    gateway: {kind: epp, url: "http://epp.ai:9090/metrics"}
"""


def engine(number, owner):
    return Target(f"http://10.0.0.{number}:8000/metrics", "vllm", Role.PODS, owner)


class Scene:
    """A control loop whose scrapes a test delivers, on a clock that the test advances."""

    def __init__(self, pages):
        self.clock, self.publisher = ManualClock(), Publisher([CHAT, CODE, ASLEEP])
        context = loop_context(self.clock, pages, self.publisher, replicas=self)
        self.control_loop = ControlLoop(configuration(CONFIG, "config.yaml")[0], context)
        for number, owner in ((1, CHAT), (2, CODE)):
            self.control_loop._decider.listed(owner, 1)
            self.list(engine(number, owner))
        self.control_loop._decider.listed(ASLEEP, 0)
        self.list(GATEWAY)

    def count(self, workload, now):
        wanted = 0 if workload == ASLEEP else 1
        return ReplicaCount(wanted, wanted, now, existing=wanted)

    def list(self, target):
        self.control_loop._loop.counters[target] = None
        self.control_loop._added(target)

    def arrive(self, target, text):
        now = self.clock.now()
        self.control_loop._arrive([ScrapeResult(target, now, 0.1, Reader(target.kind).read(parse(text.encode()), now))])

    def serve(self, number, owner, running):
        text = f'vllm:num_requests_waiting{{model_name="m"}} 0\nvllm:num_requests_running{{model_name="m"}} {running}\n'
        self.arrive(engine(number, owner), text)

    def queue(self, held):
        self.arrive(GATEWAY, f'inference_extension_flow_control_queue_size{{inference_pool="p"}} {held}\n')

    def replicas(self):
        found = (self.publisher.get(workload) for workload in (CHAT, CODE, ASLEEP))
        return [None if decision is None else decision.replicas for decision in found]


@pytest.fixture
async def scene():
    pages = HttpPages(HttpLimits(1.0, 1024))
    scene = Scene(pages)
    landing = asyncio.create_task(scene.control_loop._land_forever())
    scene.queue(0)
    await scene.clock.nap()
    scene.control_loop.tick(scene.clock.now())
    yield scene
    landing.cancel()
    await pages.close()


async def window(scene):
    await scene.clock.asleep()
    scene.clock.advance(LANDING_WINDOW_S)
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_scrapes_of_one_window_are_decided_once(scene):
    before = scene.publisher.local.version
    scene.serve(1, CHAT, running=40)
    await scene.clock.asleep()
    scene.clock.advance(LANDING_WINDOW_S / 2)
    scene.serve(2, CODE, running=70)
    assert scene.publisher.local.version == before
    scene.clock.advance(LANDING_WINDOW_S / 2)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert scene.replicas() == [3, 5, 0]
    assert scene.publisher.local.version == before + 1


async def test_scrape_after_a_window_begins_another_one(scene):
    scene.serve(1, CHAT, running=40)
    await window(scene)
    scene.serve(2, CODE, running=70)
    assert scene.replicas() == [3, 1, 0]
    await window(scene)
    assert scene.replicas() == [3, 5, 0]


async def test_wake_up_is_published_at_the_end_of_the_window(scene):
    assert scene.replicas()[2] == 0
    scene.queue(held=1)
    await window(scene)
    assert scene.replicas()[2] == 1


async def test_windows_keep_the_receipt_of_each_workload(scene):
    """A round that waited for a slow target arrives with responses that are older than the window's others."""
    scene.serve(1, CHAT, running=40)
    scene.clock.time += 0.5
    scene.serve(2, CODE, running=70)
    await window(scene)
    rings = {owner: scene.control_loop.decider.rings(owner) for owner in (CHAT, CODE)}
    assert [rings[owner].times.max() for owner in (CHAT, CODE)] == [1000.02, 1000.52]


async def test_target_that_is_retired_in_the_window_decides_nothing(scene):
    scene.serve(1, CHAT, running=40)
    del scene.control_loop.counters[engine(1, CHAT)]
    scene.control_loop._retired(engine(1, CHAT))
    await window(scene)
    assert scene.replicas() == [1, 1, 0]


async def test_failed_scrape_in_a_window_costs_no_other(scene):
    failed = Failure(FailureKind.REFUSED, "10.0.0.1:8000: Connection refused")
    scene.control_loop._arrive([ScrapeResult(engine(1, CHAT), scene.clock.now(), 0.1, failed)])
    scene.serve(2, CODE, running=70)
    await window(scene)
    assert scene.replicas() == [1, 5, 0]
