"""Law 12 for ticks: one that fails leaves the last Board standing, says so once, and is an error when it lasts."""

import asyncio
import json
from dataclasses import dataclass

import pytest
import structlog
from prometheus_client import CollectorRegistry

from exporter.catalog import Reader
from exporter.kubernetes.cache import Cluster
from exporter.model import Failure, FailureKind, ReplicaCount, Role, ScrapeResult, Target, WorkloadKey
from exporter.sources.http import HttpLimits, HttpPages
from exporter.sources.promql import Promql
from exporter.textformat import parse
from scaler.api.http.collectors import BoardCollector
from scaler.config import parse as configuration
from scaler.engine.loop import ControlLoop, LoopContext
from scaler.engine.publisher import Publisher
from scaler.metrics import SelfMetrics

CHAT = WorkloadKey("ai", "chat")
ENGINE = Target("http://10.0.0.1:8000/metrics", "vllm", Role.PODS, CHAT)
CONFIG = """
freshness: {hold: 60s}
workloads:
  - {namespace: ai, name: chat, engine: vllm, smoothing: {up: 0s, down: 0s}, pods: {url: "http://10.0.0.1:8000/metrics"}}
"""


class Replicas:
    """The part that a test can break: it is asked in every tick."""

    broken, counted = False, None

    def count(self, workload, now):
        if self.broken:
            raise RuntimeError("a bug")
        return self.counted


@dataclass
class Hand:
    """A clock that a test moves. Nobody sleeps on it here."""

    time: float = 1000.0

    def now(self):
        return self.time

    async def sleep(self, seconds):
        raise AssertionError("nobody sleeps here")


class Scene:
    def __init__(self, pages, cluster=None):
        self.clock, self.registry, self.ticks = Hand(), CollectorRegistry(), []
        self.replicas, self.publisher = Replicas(), Publisher([CHAT])
        self.registry.register(BoardCollector(lambda: self.publisher.board, self.clock.now))
        around = LoopContext(
            clock=self.clock,
            pages=pages,
            publisher=self.publisher,
            replicas=self.replicas,
            self_metrics=SelfMetrics(self.registry),
            on_tick=self.ticks.append,
            promql=Promql(pages),
            on_registry=lambda census: None,
            cluster=cluster,
        )
        config, _ = configuration(CONFIG, "config.yaml")
        self.works = ControlLoop(config, around)
        self.works._decider.listed(CHAT, 1)

    @property
    def now(self):
        return self.clock.time

    def land(self, running):
        text = f'vllm:num_requests_waiting{{model_name="m"}} 0\nvllm:num_requests_running{{model_name="m"}} {running}\n'
        self.works._landed([ScrapeResult(ENGINE, self.now, 0.1, Reader("vllm").read(parse(text.encode()), self.now))])

    def tick(self, after=1.0):
        self.clock.time += after
        self.works.tick(self.now)

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
def said():
    """What was logged, as (level, event)."""
    with structlog.testing.capture_logs() as entries:
        yield lambda: [(entry["log_level"], entry["event"]) for entry in entries]


async def test_a_tick_that_fails_keeps_the_last_board_and_says_so_once(scene, said):
    scene.land(running=40)
    scene.tick()
    board = scene.publisher.board
    scene.replicas.broken = True
    for _ in range(30):
        scene.tick()
    assert scene.publisher.board is board
    assert scene.answer() == (3, "serving")
    assert said() == [("error", "tick failed")]
    assert scene.registry.get_sample_value("tidegate_ticks_failed_total") == 30.0
    assert scene.registry.get_sample_value("tidegate_board_age_seconds") == 30.0
    assert scene.ticks == [1001.0], "liveness is told of none of them"


async def test_pages_still_raise_while_ticks_fail(scene, said):
    scene.land(running=40)
    scene.tick()
    scene.replicas.broken = True
    scene.tick()
    scene.land(running=100)
    assert scene.answer() == (7, "serving")
    assert scene.publisher.board.at == 1001.0, "that was no sweep"


async def test_after_the_hold_every_answer_is_an_error_until_ticks_work_again(scene, said):
    scene.land(running=40)
    scene.tick()
    scene.replicas.broken = True
    scene.tick(after=60)
    assert scene.answer() == (3, "serving")
    scene.tick()
    assert scene.answer() == (None, "unknown")
    assert scene.metric("tidegate_replicas") is None
    # Pages go on landing: what nobody can take down any more is not an answer either.
    for _ in range(5):
        scene.land(running=40)
        scene.tick()
        assert scene.answer() == (None, "unknown")
        scene.land(running=100)
        assert scene.answer() == (None, "unknown")
    scene.replicas.broken = False
    scene.tick()
    assert scene.answer() == (7, "serving")
    assert said()[-1] == ("info", "tick recovered")
    assert scene.ticks == [1001.0, scene.now]
    scene.land(running=120)
    assert scene.answer() == (8, "serving"), "pages raise between ticks again"
    scene.tick()
    assert len(said()) == 2


async def test_an_answer_that_is_the_same_as_before_the_ticks_failed_is_given_again(scene, said):
    # Known to be at zero and nothing heard since: it sleeps on, and its reason is the one of before afterwards.
    scene.replicas.counted = ReplicaCount(wanted=0, ready=0, at=1000.0)
    scene.tick()
    assert scene.answer() == (0, "no_wake_source")
    scene.replicas.broken = True
    scene.tick(after=61)
    assert scene.answer() == (0, "held")
    scene.replicas.broken = False
    scene.tick()
    assert scene.answer() == (0, "no_wake_source")


async def test_a_target_that_fails_is_said_once_per_kind_of_failure(scene, said):
    def fail(kind):
        scene.works._landed([ScrapeResult(ENGINE, scene.now, 0.1, Failure(kind, "why"))])

    fail(FailureKind.REFUSED)
    fail(FailureKind.REFUSED)
    fail(FailureKind.TIMEOUT)
    scene.land(running=1)
    scene.land(running=1)
    assert said() == [
        ("warning", "scrape failed"), ("warning", "scrape failed"), ("info", "scrape recovered"),
    ]  # fmt: skip


async def test_what_is_published_is_json_whatever_happened(scene, said):
    for running in ("40", "NaN", "1e9", "-3"):
        scene.land(running)
        scene.tick()
        assert json.loads(json.dumps(scene.publisher.board.to_document(), allow_nan=False))["version"] >= 1


async def test_a_census_that_fails_leaves_the_last_one_standing(said):
    class Broken(Cluster):
        def scaled_objects(self):
            raise RuntimeError("a bug in reading somebody's object")

    pages = HttpPages(HttpLimits(timeout_s=1.0, body_bytes=1000))
    scene = Scene(pages, cluster=Broken(blind_s=60.0))
    assert [workload.key for workload in scene.works._registry.workloads] == [CHAT]
    await scene.works._register()
    assert [workload.key for workload in scene.works._registry.workloads] == [CHAT]
    assert ("error", "registry update failed") in said()
    await pages.close()


async def test_changes_of_the_cluster_that_raise_cost_those_changes(scene, said, monkeypatch):
    calls = asyncio.Queue()

    def follow_changes(changes):
        calls.put_nowait(changes)
        raise RuntimeError("a bug")

    monkeypatch.setattr(scene.works, "_follow_changes", follow_changes)
    watching = asyncio.create_task(scene.works._watch(Cluster((), blind_s=300.0)))
    async with asyncio.timeout(20.0):
        for _ in range(3):
            scene.works._context.moved.set()
            await calls.get()
    assert not watching.done()
    watching.cancel()
    assert said() == [("error", "internal error")]
    assert scene.registry.get_sample_value("tidegate_internal_errors_total", {"place": "cluster"}) == 3.0
