"""Runs a headless Chromium against the real HTTP listener, with a Board that a test publishes on.

Each test has a separate server and tab; all tests of a file share one browser.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

import pytest_asyncio
from aiohttp import web
from prometheus_client import CollectorRegistry

from exporter.model import WorkloadKey
from exporter.scrape.loop import Delays
from scaler.api.http.health import HealthState
from scaler.api.http.server import WebServer
from scaler.api.http.ui import RowSources
from scaler.engine.publisher import Publisher
from scaler.explain.outcome import OutcomeRow
from scaler.explain.outcome_inputs import ControllerOutcome, Facts, OutcomeCode
from scaler.model import Board, Decision, Evidence, Objective, Reason

from .browser import Page, chromium

NOW = 1_800_000_000.0
ROWS = "[...document.querySelectorAll('.workloads tbody tr:not(.spacer)')]"
BUSY = Evidence(
    waiting=30.0, running=10.0, held_by_gateway=0.0, kv_cache_used=0.5, gpu_engine_active=0.42, replicas_wanted=2,
    replicas_ready=2, replicas_pending=0, gpus_held=4, wake_source="the queue on http://epp.ai.svc:9090/metrics",
    objectives=(Objective("work", 40.0, 16.0, 2.5), Objective("gpu_engine", None, 0.8, None)),
)  # fmt: skip


def decision(name, reason=Reason.SERVING, namespace="ai", **more):
    """Returns a decision as the daemon makes it for this reason."""
    key = WorkloadKey(namespace, name)
    serving = Decision(key, 3, True, reason, NOW - 10.0, measured_at=NOW - 2.0, evidence=BUSY)
    match reason:
        case Reason.UNKNOWN:
            result = replace(
                serving,
                replicas=None,
                published=None,
                measured_at=None,
                evidence=Evidence(stale=("http://10.0.0.7/m",)),
            )
        case Reason.ASLEEP:
            nothing = Evidence(replicas_wanted=0, replicas_ready=0, wake_source=BUSY.wake_source)
            result = replace(
                serving, replicas=0, published=None, active=False, idle_since=NOW - 900.0, evidence=nothing
            )
        case Reason.HELD:
            result = replace(serving, held_since=NOW - 95.0, evidence=replace(BUSY, stale=("http://10.0.0.9/m",)))
        case Reason.WARM | Reason.NO_WAKE_SOURCE:
            idle = replace(BUSY, waiting=0.0, running=0.0, gpu_engine_active=0.0, wake_source=None)
            result = replace(
                serving, replicas=2, published=None, idle_since=NOW - 65.0, evidence=replace(idle, keep_warm_s=300.0)
            )
        case Reason.LOADING:
            result = replace(serving, evidence=replace(BUSY, replicas_ready=0, running=0.0))
        case _:
            result = serving
    return replace(result, **{"published": None, **more})


EVERY_REASON = tuple(decision(f"w-{reason}", reason) for reason in Reason)


def facts(selector, *, pairs=False):
    """Returns JavaScript for the terms and values in elements of this kind: an object, or ordered pairs."""
    parts = "['dt', 'dd'].map((tag) => each.querySelector(tag).textContent)"
    listed = f"[...document.querySelectorAll({selector!r})].map((each) => {parts})"
    return listed if pairs else f"Object.fromEntries({listed})"


@dataclass
class Site:
    """Runs the server. now: its clock. more: further routes. outcome_of: the controller outcome of a decision.
    placements, links, unmatched, delays: as in `RowSources`. scrapes: number made.
    """

    more: Sequence[web.RouteDef] = ()
    now: float = NOW
    board: Board = field(default_factory=lambda: Publisher([]).board)
    outcome_of: Callable[[Decision], ControllerOutcome] = lambda _: ControllerOutcome(OutcomeCode.SETTLED, ("nothing",))
    placements: Callable = dict
    links: Callable = dict
    unmatched: Callable = tuple
    delays: Delays = field(default_factory=Delays)
    scrapes: int = 0
    port: int = 0

    def __post_init__(self):
        self.health = HealthState(tick_s=1.0, started_at=NOW, last_tick_at=NOW)
        self._server = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/"

    def publish(self, decisions):
        """Publishes a new Board with these decisions."""
        decisions = list(decisions)
        publisher = Publisher([each.workload for each in decisions])
        publisher.publish(decisions, at=self.now)
        self.board = replace(publisher.board, version=self.board.version + 1)
        self.health.last_tick_at = self.now

    async def start(self):
        registry = CollectorRegistry()
        self._server = WebServer(
            "127.0.0.1",
            self.port,
            lambda: self.board,
            self.health,
            registry,
            lambda: self.now,
            self.more,
            RowSources(
                self._outcomes,
                self.unmatched,
                placements=self.placements,
                links=self.links,
                delays=self.delays,
                scrapes=lambda: self.scrapes,
            ),
        )
        self.port = await self._server.start()

    def _outcomes(self):
        decisions = self.board.decisions.values()
        return lambda: [OutcomeRow(each, Facts(), self.outcome_of(each)) for each in decisions]

    async def stop(self):
        if self._server is not None:
            await self._server.stop()
            self._server = None


def history(decisions, points=60, **series):
    """Routes of `/api/v1/history` for these decisions; `series` replaces a column of all of them."""

    async def answer(request):
        count = int(request.query.get("points", points))
        name = request.match_info.get("name")
        at = [NOW - 3600.0 + 3600.0 * index / (count - 1) for index in range(count)]
        plain = {"load": 40.0, "demand": 2.5, "replicas": 3, "actual": 2, "gpu": 0.42, "reason": "serving"}
        columns = {column: series.get(column, [value] * count) for column, value in plain.items()}
        listed = [each.workload._asdict() for each in decisions if name in (None, each.workload.name)]
        return web.json_response({"now": NOW, "workloads": [{**each, "at": at, **columns} for each in listed]})

    return [web.get("/api/v1/history", answer), web.get("/api/v1/history/{namespace}/{name}", answer)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browsers(tmp_path_factory):
    """`await browsers(path)` returns the shared browser, and starts it on the first call."""
    async with AsyncExitStack() as stack:
        started = []

        async def start(path):
            if not started:
                started.append(await stack.enter_async_context(chromium(path, tmp_path_factory.mktemp("profile"))))
            return started[0]

        yield start


@pytest_asyncio.fixture(loop_scope="module")
async def site():
    site = Site()
    yield site
    await site.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def visit(debian_tool, browsers, site):
    """`page = await visit(decisions)` opens a tab and waits until rows are drawn. path: added to the server's URL."""
    path_of_chromium, opened = debian_tool("chromium"), []

    async def open_page(decisions, path="", until=f"{ROWS}.length || document.querySelector('.workload-view')", **size):
        browser = await browsers(path_of_chromium)
        site.publish(decisions)
        await site.start()
        page: Page = await browser.page(site.url + path, **size)
        opened.append((browser, page))
        await page.until(until)
        return page

    yield open_page
    for browser, page in opened:
        await browser.close(page)
