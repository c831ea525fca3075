"""Runs a scrape loop with recorded callbacks, targets on loopback that may fail, and a clock that the test advances."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import floor
from random import Random

import pytest
from aiohttp import web

from exporter.discovery import Listing as Listed
from exporter.model import Failure, Role, Target, WorkloadKey
from exporter.scrape.loop import ScrapeLoop, moments_apart, phase_of
from exporter.sources.http import HttpLimits, HttpPages
from exporter.textformat import PlainScanner
from tests.fakes.clock import PATIENCE_S, ManualClock, Turn

INTERVAL_S = 5.0
CHAT = WorkloadKey("ai", "chat")
GRID_S = moments_apart(INTERVAL_S, 1)  # with as few targets as most tests have
# The first round of CHAT begins half an interval after BEGIN, so between two refreshes. POSIX seconds.
FIRST = 1000.0 + floor(phase_of("ai/chat") * INTERVAL_S / GRID_S) * GRID_S
BEGIN = FIRST - INTERVAL_S / 2
PAGE = b'vllm:num_requests_waiting{model_name="m"} 3\n'


class Listing:
    """Implements a discovery with the targets of a test; None is unknown. gate: blocks `refresh` while cleared."""

    def __init__(self, targets=(), owner=None):
        self.targets = None if targets is None else tuple(targets)
        self.leaving = ()
        self.owner = owner
        self.gate = asyncio.Event()
        self.gate.set()
        self.refreshes = 0

    def listing(self):
        return None if self.targets is None else Listed(tuple(self.targets), frozenset(self.leaving))

    async def refresh(self, now):
        await self.gate.wait()
        self.refreshes += 1


@dataclass
class Served:
    """Serves pages by path. `body[path]`: the page; `status[path]`: its status; a path in `held` waits."""

    turn: Turn
    port: int = 0
    body: dict = field(default_factory=dict)
    status: dict = field(default_factory=dict)
    held: dict = field(default_factory=dict)
    requests: list = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    ended: list = field(default_factory=list)  # paths of ended requests, with or without a response
    client_addresses: set = field(default_factory=set)  # the client's ports: one for each connection

    def hold(self, *paths):
        for path in paths:
            self.held[path] = asyncio.Event()

    def release(self):
        for event in self.held.values():
            event.set()
        self.held.clear()

    async def answer(self, request):
        path = request.match_info["path"]
        self.requests.append(path)
        self.client_addresses.add(request.transport.get_extra_info("peername"))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.turn.changed()
        try:
            if path in self.held:
                await self.held[path].wait()
            return web.Response(body=self.body.get(path, PAGE), status=self.status.get(path, 200))
        finally:
            self.in_flight -= 1
            self.ended.append(path)
            self.turn.changed()


@dataclass
class Recorder:
    """Records the calls of the loop's callbacks in order."""

    turn: Turn
    landed: list = field(default_factory=list)
    listed: list = field(default_factory=list)
    added: list = field(default_factory=list)
    retired: list = field(default_factory=list)
    faulted: list = field(default_factory=list)
    rounds: list = field(default_factory=list)  # scrapes that were delivered together

    def record(self, callback, *values):
        getattr(self, callback).append(values[0] if len(values) == 1 else values)
        self.turn.changed()

    def record_each(self, callback, scrapes):
        self.rounds.append(list(scrapes))
        for scrape in scrapes:
            self.record(callback, scrape)

    def of(self, target):
        return [scrape for scrape in self.landed if scrape.target == target]

    def failures(self, target):
        return [s.outcome.kind if isinstance(s.outcome, Failure) else None for s in self.of(target)]


class NoJitter(Random):
    """Returns the lower bound, so that everything begins at once."""

    def uniform(self, low, high):
        return low


@pytest.fixture
def turn():
    return Turn()


@pytest.fixture
def clock(turn):
    return ManualClock(turn, time=BEGIN)


@pytest.fixture
def recorder(turn):
    return Recorder(turn)


@pytest.fixture
async def served(turn):
    pages = Served(turn)
    app = web.Application()
    app.router.add_get("/{path:.*}", pages.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    pages.port = runner.addresses[0][1]
    yield pages
    pages.release()
    await runner.cleanup()


@pytest.fixture
def target(served):
    """`target("path")`: one page of the server, with the workload chat as owner."""

    def make(path, kind="vllm", role=Role.PODS, owner=CHAT):
        return Target(f"http://127.0.0.1:{served.port}/{path}", kind, role, owner)

    return make


@pytest.fixture
async def http():
    pages = HttpPages(HttpLimits(timeout_s=PATIENCE_S, body_bytes=1 << 20))
    yield pages
    await pages.close()


@pytest.fixture
def running(clock, recorder, http):
    """`async with running(discovery, …, concurrency=…) as loop:` runs a loop during the test."""

    @asynccontextmanager
    async def run(*discoveries, jitter=None, **more):
        loop = ScrapeLoop(
            discoveries=[d if hasattr(d, "refresh") else Listing((d,), CHAT) for d in discoveries],
            clock=clock,
            landed=lambda scrapes: recorder.record_each("landed", scrapes),
            listed=lambda discovery, values: recorder.record(
                "listed", discovery, None if values is None else values.targets
            ),
            added=lambda target: recorder.record("added", target),
            retired=lambda target: recorder.record("retired", target),
            faulted=lambda stage, subject, error: recorder.record("faulted", stage, subject, error),
            jitter=jitter or NoJitter(),
            **{
                "pages": http,
                "interval_s": INTERVAL_S,
                "concurrency": 64,
                "new_scanner": lambda _: PlainScanner(),
                **more,
            },
        )
        task = asyncio.create_task(loop.run())
        try:
            yield loop
        finally:
            task.cancel()
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.wait([task])
            if not task.cancelled():
                await task

    return run


@pytest.fixture
def listing():
    """`listing(targets, owner=None)`: a discovery whose list a test changes."""
    return Listing


@pytest.fixture
def start(clock, recorder):
    """`await start(discoveries)`: lets this number of discoveries refresh, and starts the first round."""

    async def begin(discoveries):
        await clock.asleep(discoveries)  # each discovery before its first refresh
        clock.advance(0.0)
        await clock.asleep(discoveries + 1)  # and the workload before its first round
        clock.advance(INTERVAL_S / 2)

    return begin
