"""Failing ticks: the last Board stays, the failure is logged once, and after the hold every decision is an error."""

import asyncio
import json

import pytest
import structlog
from prometheus_client import CollectorRegistry

from exporter.catalog import Reader
from exporter.kubernetes.cache import Cluster
from exporter.model import Failure, FailureKind, ReplicaCount, Role, ScrapeResult, Target, WorkloadKey
from exporter.sources.http import HttpLimits, HttpPages
from exporter.textformat import parse
from scaler.api.http.collectors import BoardCollector
from scaler.config import parse as configuration
from scaler.engine.loop import ControlLoop
from scaler.engine.publisher import Publisher
from scaler.metrics import SelfMetrics
from tests.fakes.clock import SleeplessClock
from tests.fakes.daemon import loop_context

CHAT = WorkloadKey("ai", "chat")
ENGINE = Target("http://10.0.0.1:8000/metrics", "vllm", Role.PODS, CHAT)
CONFIG = """
freshness: {hold: 60s}
workloads:
  - {namespace: ai, name: chat, engine: vllm, smoothing: {up: 0s, down: 0s}, pods: {url: "http://10.0.0.1:8000/metrics"}}
"""


class Replicas:
    """The replica counts, which a test can break: every tick calls it."""

    broken, counted = False, None

    def count(self, workload, now):
        if self.broken:
            raise RuntimeError("a bug")
        return self.counted


class Scene:
    def __init__(self, pages, cluster=None):
        self.clock, self.registry, self.ticks = SleeplessClock(), CollectorRegistry(), []
        self.replicas, self.publisher = Replicas(), Publisher([CHAT])
        self.registry.register(BoardCollector(lambda: self.publisher.board, self.clock.now))
        context = loop_context(
            self.clock,
            pages,
            self.publisher,
            replicas=self.replicas,
            self_metrics=SelfMetrics(self.registry),
            on_tick=self.ticks.append,
            cluster=cluster,
        )
        config, _ = configuration(CONFIG, "config.yaml")
        self.control_loop = ControlLoop(config, context)
        self.control_loop._decider.listed(CHAT, 1)

    @property
    def now(self):
        return self.clock.time

    def land(self, running):
        text = f'vllm:num_requests_waiting{{model_name="m"}} 0\nvllm:num_requests_running{{model_name="m"}} {running}\n'
        self.control_loop._landed(
            [ScrapeResult(ENGINE, self.now, 0.1, Reader("vllm").read(parse(text.encode()), self.now))]
        )

    def tick(self, after=1.0):
        self.clock.time += after
        self.control_loop.tick(self.now)

    def answer(self):
        decision = self.publisher.get(CHAT)
        return decision.replicas, str(decision.reason)

    def metric(self, name):
        return self.registry.get_sample_value(name, {"namespace": "ai", "workload": "chat"})


@pytest.fixture
async def scene():
    pages = HttpPages(HttpLimits(1.0, 1024))
    yield Scene(pages)
    await pages.close()


@pytest.fixture
def logged():
    """The log lines, as (level, event)."""
    with structlog.testing.capture_logs() as entries:
        yield lambda: [(entry["log_level"], entry["event"]) for entry in entries]


async def test_failing_tick_keeps_the_last_board_and_is_logged_once(scene, logged):
    scene.land(running=40)
    scene.tick()
    board = scene.publisher.board
    scene.replicas.broken = True
    for _ in range(30):
        scene.tick()
    assert scene.publisher.board is board
    assert scene.answer() == (3, "serving")
    assert logged() == [("error", "tick failed")]
    assert scene.registry.get_sample_value("tidegate_ticks_failed_total") == 30.0
    assert scene.registry.get_sample_value("tidegate_board_age_seconds") == 30.0
    assert scene.ticks == [1001.0], "a failed tick does not count as progress"


async def test_landings_still_scale_up_while_ticks_fail(scene, logged):
    scene.land(running=40)
    scene.tick()
    scene.replicas.broken = True
    scene.tick()
    scene.land(running=100)
    assert scene.answer() == (7, "serving")
    assert scene.publisher.board.at == 1001.0, "a landing is no sweep"


async def test_every_decision_is_an_error_after_the_hold_until_ticks_recover(scene, logged):
    scene.land(running=40)
    scene.tick()
    scene.replicas.broken = True
    scene.tick(after=60)
    assert scene.answer() == (3, "serving")
    scene.tick()
    assert scene.answer() == (None, "unknown")
    assert scene.metric("tidegate_replicas") is None
    # Scrapes go on: a decision that can no longer be lowered is not published either.
    for _ in range(5):
        scene.land(running=40)
        scene.tick()
        assert scene.answer() == (None, "unknown")
        scene.land(running=100)
        assert scene.answer() == (None, "unknown")
    scene.replicas.broken = False
    scene.tick()
    assert scene.answer() == (7, "serving")
    assert logged()[-1] == ("info", "tick recovered")
    assert scene.ticks == [1001.0, scene.now]
    scene.land(running=120)
    assert scene.answer() == (8, "serving"), "landings scale up between ticks again"
    scene.tick()
    assert len(logged()) == 2


async def test_unchanged_decision_returns_after_ticks_recover(scene, logged):
    # At zero and without new samples: it stays asleep, and its former reason returns afterwards.
    scene.replicas.counted = ReplicaCount(wanted=0, ready=0, at=1000.0)
    scene.tick()
    assert scene.answer() == (0, "no_wake_source")
    scene.replicas.broken = True
    scene.tick(after=61)
    assert scene.answer() == (0, "held")
    scene.replicas.broken = False
    scene.tick()
    assert scene.answer() == (0, "no_wake_source")


async def test_failing_target_is_logged_once_per_kind_of_failure(scene, logged):
    def fail(kind):
        scene.control_loop._landed([ScrapeResult(ENGINE, scene.now, 0.1, Failure(kind, "why"))])

    fail(FailureKind.REFUSED)
    fail(FailureKind.REFUSED)
    fail(FailureKind.TIMEOUT)
    scene.land(running=1)
    scene.land(running=1)
    assert logged() == [
        ("warning", "scrape failed"), ("warning", "scrape failed"), ("info", "scrape recovered"),
    ]  # fmt: skip


async def test_board_is_always_valid_json(scene, logged):
    for running in ("40", "NaN", "1e9", "-3"):
        scene.land(running)
        scene.tick()
        assert json.loads(json.dumps(scene.publisher.board.to_document(), allow_nan=False))["version"] >= 1


async def test_failing_registry_update_keeps_the_last_registry(logged):
    class Broken(Cluster):
        def scaled_objects(self):
            raise RuntimeError("a bug in parsing an object")

    pages = HttpPages(HttpLimits(timeout_s=1.0, body_bytes=1000))
    scene = Scene(pages, cluster=Broken(blind_s=60.0))
    assert [workload.key for workload in scene.control_loop._registry.workloads] == [CHAT]
    await scene.control_loop._register()
    assert [workload.key for workload in scene.control_loop._registry.workloads] == [CHAT]
    assert ("error", "registry update failed") in logged()
    await pages.close()


async def test_failing_cluster_changes_cost_only_those_changes(scene, logged, monkeypatch):
    calls = asyncio.Queue()

    async def follow_changes(changes):
        calls.put_nowait(changes)
        raise RuntimeError("a bug")

    monkeypatch.setattr(scene.control_loop, "_follow_changes", follow_changes)
    watching = asyncio.create_task(scene.control_loop._watch(Cluster((), blind_s=300.0)))
    async with asyncio.timeout(60.0):
        for _ in range(3):
            scene.control_loop._context.moved.set()
            await calls.get()
    assert not watching.done()
    watching.cancel()
    assert logged() == [("error", "internal error")]
    assert scene.registry.get_sample_value("tidegate_internal_errors_total", {"place": "cluster"}) == 3.0
