"""Runs the real HTTP listener on loopback in front of a Board that a test publishes on."""

from __future__ import annotations

from dataclasses import dataclass, field

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from exporter.model import WorkloadKey
from exporter.scrape.loop import Delays
from exporter.scrape.metrics import ScrapeCollector
from scaler.api.http.collectors import BoardCollector
from scaler.api.http.health import HealthState
from scaler.api.http.overload import LoopLag
from scaler.api.http.server import WebServer
from scaler.api.http.ui import RowSources
from scaler.engine.publisher import Publisher
from scaler.metrics import SelfMetrics
from scaler.model import Decision, Evidence, Objective, Reason

CHAT, CODE, JOBS = (WorkloadKey("ai", name) for name in ("chat", "code", "jobs"))


@dataclass
class Site:
    publisher: Publisher = field(default_factory=lambda: Publisher([CHAT, CODE, JOBS]))
    registry: CollectorRegistry = field(default_factory=lambda: CollectorRegistry(auto_describe=True))
    health: HealthState = field(default_factory=lambda: HealthState(tick_s=1.0, started_at=1000.0))
    delays: Delays = field(default_factory=Delays)
    lag: LoopLag = field(default_factory=LoopLag)
    scrapes: int = 0
    now: float = 1000.0
    url: str = ""
    newer: Decision | None = None  # what a renewal of the evidence publishes

    def __post_init__(self):
        self.self_metrics = SelfMetrics(self.registry)
        self.registry.register(BoardCollector(lambda: self.publisher.board, lambda: self.now))
        self.registry.register(ScrapeCollector(dict, self.delays))

    def server(self, host="127.0.0.1", port=0):
        site = WebServer(host, port, lambda: self.publisher.board, self.health, self.registry, lambda: self.now)
        site.renew = self._renew
        site.lag, site.shed = self.lag, self.self_metrics.requests_shed.inc
        site.sources = RowSources(delays=self.delays, scrapes=lambda: self.scrapes)
        return site

    async def _renew(self):
        if self.newer is not None:
            self.publisher.publish([self.newer], at=self.now)

    def publish(self):
        """Publishes one workload that serves, one that is unknown, and one that sleeps."""
        evidence = Evidence(
            waiting=30.0, running=10.0, kv_cache_used=0.5, requests_per_second=4.2, replicas_ready=2,
            objectives=(Objective("work", 40.0, 16.0, 2.5), Objective("gpu_engine", None, 0.8, None)),
        )  # fmt: skip
        serving = Decision(CHAT, 3, True, Reason.SERVING, 990.0, measured_at=998.5, evidence=evidence)
        unknown = Decision(CODE, None, True, Reason.UNKNOWN, 990.0, evidence=Evidence(stale=("http://10.0.0.7/",)))
        asleep = Decision(JOBS, 0, False, Reason.ASLEEP, 990.0, measured_at=999.0, idle_since=700.0)
        self.publisher.publish([serving, unknown, asleep], at=self.now)

    def session(self):
        return aiohttp.ClientSession()

    async def get(self, path, **headers):
        """Returns (status, content type, body)."""
        async with aiohttp.ClientSession() as session, session.get(self.url + path, headers=headers) as response:
            return response.status, response.headers["Content-Type"], await response.text()


@pytest.fixture
async def site():
    site = Site()
    server = site.server()
    site.url = f"http://127.0.0.1:{await server.start()}"
    yield site
    await server.stop()
