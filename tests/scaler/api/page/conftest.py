"""A headless Chromium in front of the real HTTP listener, with a Board that a test publishes on.

Every test has a server and a tab of its own; the browser is one for all tests of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

import pytest_asyncio
from aiohttp import web
from prometheus_client import CollectorRegistry

from exporter.model import WorkloadKey
from scaler.api.http.health import HealthState
from scaler.api.http.server import WebServer
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
    """One workload in a state as it comes about."""
    key = WorkloadKey(namespace, name)
    serving = Decision(key, 3, True, reason, NOW - 10.0, measured_at=NOW - 2.0, evidence=BUSY)
    match reason:
        case Reason.UNKNOWN:
            made = replace(
                serving,
                replicas=None,
                published=None,
                measured_at=None,
                evidence=Evidence(stale=("http://10.0.0.7/m",)),
            )
        case Reason.ASLEEP:
            nothing = Evidence(replicas_wanted=0, replicas_ready=0, wake_source=BUSY.wake_source)
            made = replace(serving, replicas=0, published=None, active=False, idle_since=NOW - 900.0, evidence=nothing)
        case Reason.HELD:
            made = replace(serving, held_since=NOW - 95.0, evidence=replace(BUSY, stale=("http://10.0.0.9/m",)))
        case Reason.WARM | Reason.NO_WAKE_SOURCE:
            idle = replace(BUSY, waiting=0.0, running=0.0, gpu_engine_active=0.0, wake_source=None)
            made = replace(
                serving, replicas=2, published=None, idle_since=NOW - 65.0, evidence=replace(idle, keep_warm_s=300.0)
            )
        case Reason.LOADING:
            made = replace(serving, evidence=replace(BUSY, replicas_ready=0, running=0.0))
        case _:
            made = serving
    return replace(made, **{"published": None, **more})


EVERY_REASON = tuple(decision(f"w-{reason}", reason) for reason in Reason)


def facts(selector, *, pairs=False):
    """JavaScript for the terms and what is said of them, in elements of this kind: an object, or pairs in order."""
    parts = "['dt', 'dd'].map((tag) => each.querySelector(tag).textContent)"
    listed = f"[...document.querySelectorAll({selector!r})].map((each) => {parts})"
    return listed if pairs else f"Object.fromEntries({listed})"


@dataclass
class Site:
    """now is the server's clock. more: what other rooms answer, by path. ahead: what will become of each decision."""

    more: Sequence[web.RouteDef] = ()
    now: float = NOW
    board: Board = field(default_factory=lambda: Publisher([]).board)
    ahead: Callable[[Decision], ControllerOutcome] = lambda _: ControllerOutcome(OutcomeCode.SETTLED, ("nothing",))
    port: int = 0

    def __post_init__(self):
        self.health = HealthState(tick_s=1.0, started_at=NOW, last_tick_at=NOW)
        self._server = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/"

    def publish(self, decisions):
        """The whole Board anew."""
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
            self._outlooks,
        )
        self.port = await self._server.start()

    def _outlooks(self):
        decisions = self.board.decisions.values()
        return lambda: [OutcomeRow(each, Facts(), self.ahead(each)) for each in decisions]

    async def stop(self):
        if self._server is not None:
            await self._server.stop()
            self._server = None


def history(decisions, points=60, **series):
    """`/api/v1/history` of these; a series given here stands for all of them."""

    async def answer(request):
        wanted = int(request.query.get("points", points))
        asked = request.match_info.get("name")
        at = [NOW - 3600.0 + 3600.0 * place / (wanted - 1) for place in range(wanted)]
        plain = {"load": 40.0, "demand": 2.5, "replicas": 3, "actual": 2, "gpu": 0.42, "reason": "serving"}
        columns = {name: series.get(name, [value] * wanted) for name, value in plain.items()}
        listed = [each.workload._asdict() for each in decisions if asked in (None, each.workload.name)]
        return web.json_response({"now": NOW, "workloads": [{**each, "at": at, **columns} for each in listed]})

    return [web.get("/api/v1/history", answer), web.get("/api/v1/history/{namespace}/{name}", answer)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browsers(tmp_path_factory):
    """`await browsers(path)`: the one browser, started when it is first asked for."""
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
    """`page = await visit(decisions)`: a tab with the page, on which the rows are drawn. path: below the server's."""
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
