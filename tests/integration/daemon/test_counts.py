"""Pods and replica counts of the cluster belong together: no decision mixes two moments."""

from dataclasses import dataclass

import pytest

from exporter.catalog import Reader
from exporter.discovery import Listing
from exporter.model import Failure, FailureKind, ReplicaCount, Role, ScrapeResult, Target, WorkloadKey
from exporter.sources.http import HttpLimits, HttpPages
from exporter.textformat import parse
from scaler.config import parse as configuration
from scaler.engine.loop import ControlLoop
from scaler.engine.publisher import Publisher
from tests.fakes.daemon import loop_context

CHAT = WorkloadKey("ai", "chat")
ENGINE = Target("http://10.0.0.1:8000/metrics", "vllm", Role.PODS, CHAT)
GATEWAY = Target("http://10.0.0.9:9090/metrics", "epp", Role.GATEWAY, CHAT)
CONFIG = """
workloads:
  - namespace: ai
    name: chat
    engine: vllm
    keep_warm: 60s
    pods: {dns: chat.ai.svc}
    gateway: {url: "http://10.0.0.9:9090/metrics"}
    replicas: {min: 0}
"""


@dataclass
class Pods:
    """The discovery of the workload's pods."""

    owner: WorkloadKey = CHAT


class Scene:
    """time: POSIX seconds. wanted: spec.replicas in the cluster; every wanted pod is ready."""

    def __init__(self, pages):
        self.time, self.wanted = 1000.0, 0
        self.publisher = Publisher([CHAT])
        context = loop_context(self, pages, self.publisher, replicas=self)
        self.control_loop = ControlLoop(configuration(CONFIG, "config.yaml")[0], context)

    def now(self):
        return self.time

    def count(self, workload, now):
        return ReplicaCount(self.wanted, self.wanted, now, existing=self.wanted)

    def set_wanted(self, wanted):
        """KEDA has set spec.replicas, and its pod exists, or no longer does."""
        self.wanted = wanted
        self.control_loop._listed(Pods(), Listing((ENGINE,) if wanted else ()))
        if not wanted:
            self.control_loop._retired(ENGINE)

    def land(self, target, text):
        self.control_loop._landed(
            [ScrapeResult(target, self.time, 0.1, Reader(target.kind).read(parse(text.encode()), self.time))]
        )

    def land_gateway(self):
        self.land(GATEWAY, 'inference_extension_flow_control_queue_size{inference_pool="p"} 0\n')

    def land_engine(self):
        self.land(ENGINE, 'vllm:num_requests_waiting{model_name="m"} 0\nvllm:num_requests_running{model_name="m"} 0\n')

    def decision(self):
        decision = self.publisher.get(CHAT)
        return None if decision is None else (decision.replicas, str(decision.reason))


@pytest.fixture
async def scene():
    pages = HttpPages(HttpLimits(1.0, 1024))
    yield Scene(pages)
    await pages.close()


def test_gateway_response_between_the_end_of_the_last_pod_and_the_tick_wakes_no_workload(scene):
    scene.set_wanted(1)
    for _ in range(60):
        scene.time += 5.0
        scene.land_engine()
        scene.land_gateway()
        scene.control_loop.tick(scene.time)
    assert scene.decision() == (0, "asleep")

    scene.time += 0.5
    scene.set_wanted(0)
    scene.land_gateway()

    assert scene.decision() == (0, "asleep")


def test_gateway_response_before_the_first_tick_wakes_no_workload_at_zero(scene):
    scene.set_wanted(0)
    scene.land_gateway()

    assert scene.decision() == (0, "asleep")


def test_failing_targets_of_earlier_configurations_are_forgotten(scene):
    """A target that still fails after a reload is not logged as a new failure."""
    scene.set_wanted(1)
    refused = Failure(FailureKind.REFUSED, "10.0.0.1:8000: Connection refused")
    for target in (ENGINE, GATEWAY):
        scene.control_loop._landed([ScrapeResult(target, scene.time, 0.1, refused)])
    second = ControlLoop(scene.control_loop.config, scene.control_loop._context, before=scene.control_loop)
    second._added(ENGINE)
    assert second._failing == {ENGINE: FailureKind.REFUSED}
    third = ControlLoop(scene.control_loop.config, scene.control_loop._context, before=second)
    third._added(GATEWAY)
    assert third._failing == {}


def test_exception_while_a_listing_is_applied_is_counted(scene):
    def fail(*_):
        raise ZeroDivisionError

    scene.count = fail
    scene.set_wanted(1)
    counter = scene.control_loop._context.self_metrics.internal_errors.labels("discovery")
    assert counter._value.get() == 1.0
