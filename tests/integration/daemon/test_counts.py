"""What the cluster says of pods and what it says of replicas is one thing: no answer mixes two moments."""

from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry

from exporter.catalog import Reader
from exporter.discovery import Listing
from exporter.model import Failure, FailureKind, ReplicaCount, Role, ScrapeResult, Target, WorkloadKey
from exporter.sources.http import HttpLimits, HttpPages
from exporter.sources.promql import Promql
from exporter.textformat import parse
from scaler.config import parse as configuration
from scaler.engine.loop import ControlLoop, LoopContext
from scaler.engine.publisher import Publisher
from scaler.metrics import SelfMetrics

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
    """Who lists the workload's pods."""

    owner: WorkloadKey = CHAT


class Scene:
    """time: POSIX seconds. wanted: what the cluster says now; every pod that is wanted is ready."""

    def __init__(self, pages):
        self.time, self.wanted = 1000.0, 0
        self.publisher = Publisher([CHAT])
        around = LoopContext(
            clock=self,
            pages=pages,
            publisher=self.publisher,
            replicas=self,
            self_metrics=SelfMetrics(CollectorRegistry()),
            on_tick=lambda now: None,
            promql=Promql(pages),
            on_registry=lambda census: None,
        )
        self.works = ControlLoop(configuration(CONFIG, "config.yaml")[0], around)

    def now(self):
        return self.time

    def count(self, workload, now):
        return ReplicaCount(self.wanted, self.wanted, now, existing=self.wanted)

    def becomes(self, wanted):
        """KEDA has set so many, and its pod is there, or is no more."""
        self.wanted = wanted
        self.works._listed(Pods(), Listing((ENGINE,) if wanted else ()))
        if not wanted:
            self.works._retired(ENGINE)

    def hear(self, target, text):
        self.works._landed(
            [ScrapeResult(target, self.time, 0.1, Reader(target.kind).read(parse(text.encode()), self.time))]
        )

    def hear_gateway(self):
        self.hear(GATEWAY, 'inference_extension_flow_control_queue_size{inference_pool="p"} 0\n')

    def hear_engine(self):
        self.hear(ENGINE, 'vllm:num_requests_waiting{model_name="m"} 0\nvllm:num_requests_running{model_name="m"} 0\n')

    def answer(self):
        decision = self.publisher.get(CHAT)
        return None if decision is None else (decision.replicas, str(decision.reason))


@pytest.fixture
async def scene():
    pages = HttpPages(HttpLimits(1.0, 1024))
    yield Scene(pages)
    await pages.close()


def test_a_page_that_lands_between_the_end_of_the_last_pod_and_the_tick_wakes_nobody(scene):
    scene.becomes(1)
    for _ in range(60):
        scene.time += 5.0
        scene.hear_engine()
        scene.hear_gateway()
        scene.works.tick(scene.time)
    assert scene.answer() == (0, "asleep")

    scene.time += 0.5
    scene.becomes(0)
    scene.hear_gateway()

    assert scene.answer() == (0, "asleep")


def test_a_page_that_lands_before_the_first_tick_wakes_nobody_who_is_at_zero(scene):
    scene.becomes(0)
    scene.hear_gateway()

    assert scene.answer() == (0, "asleep")


def test_failing_targets_of_earlier_configurations_are_forgotten(scene):
    """And one that still fails after a reload is not logged as a new failure."""
    scene.becomes(1)
    refused = Failure(FailureKind.REFUSED, "10.0.0.1:8000: Connection refused")
    for target in (ENGINE, GATEWAY):
        scene.works._landed([ScrapeResult(target, scene.time, 0.1, refused)])
    second = ControlLoop(scene.works.config, scene.works._context, before=scene.works)
    second._added(ENGINE)
    assert second._failing == {ENGINE: FailureKind.REFUSED}
    third = ControlLoop(scene.works.config, scene.works._context, before=second)
    third._added(GATEWAY)
    assert third._failing == {}


def test_exception_while_a_list_is_taken_over_is_counted(scene):
    def fail(*_):
        raise ZeroDivisionError

    scene.count = fail
    scene.becomes(1)
    counter = scene.works._context.self_metrics.internal_errors.labels("discovery")
    assert counter._value.get() == 1.0
