"""Serves HTTP: /metrics, health, the live page and the JSON API. Answers come from memory; none waits for a target."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry, exposition
from prometheus_client.metrics_core import Metric

from scaler.model import Board
from scaler.net import LimitedListener, listen

from . import ui
from .health import HealthState, render
from .hosts import known_host
from .overload import LoopLag, shed
from .ui import Rows, RowSources

INDEX = """Tidegate

/                   the live page, in a browser
/metrics            Prometheus metrics
/api/v1/board       decisions of all workloads with their evidence (JSON); /NAMESPACE/NAME for one
/api/v1/rows        the rows of the live page: one per workload, problems first (JSON)
/api/v1/explain/NAMESPACE/NAME  why this number, from the metrics to the HPA; ?at=TIME for the past (JSON)
/api/v1/history     the last hour of all workloads, for charts; /NAMESPACE/NAME for one (JSON)
/api/v1/accounts    GPU-seconds by state, and savings of observed workloads (JSON); ?month=2026-11 for a month
/api/v1/profiles    how workloads use their GPUs (JSON); ?workload=NAMESPACE/NAME for one
/livez  /readyz     health; add ?verbose
"""


@dataclass(frozen=True, slots=True)
class CollectedMetrics:
    """A registry's metric families as collected at one moment. names: samples to return; empty is all."""

    families: tuple[Metric, ...]
    names: frozenset[str] = frozenset()

    def collect(self) -> Iterator[Metric]:
        for family in self.families:
            if not self.names:
                yield family
            elif any(name.startswith(family.name) for name in self.names):
                chosen = Metric(family.name, family.documentation, family.type, family.unit)
                chosen.samples = [sample for sample in family.samples if sample.name in self.names]
                if chosen.samples:
                    yield chosen


@dataclass(slots=True)
class WebServer:
    """Listens on HTTP.

    registry: collected at each GET of /metrics.
    more:     further routes.
    sources:  what the rows show besides the Board.
    hosts:    further host names of this server, in lower case.
    renew:    awaited before evidence is read: see `Publisher.renew`.
    lag:      of the event loop. shed: counts the requests that are refused for it.
    """

    host: str
    port: int
    board: Callable[[], Board]
    health: HealthState
    registry: CollectorRegistry
    now: Callable[[], float]
    more: Sequence[web.RouteDef] = ()
    sources: RowSources = field(default_factory=RowSources)
    hosts: frozenset[str] = frozenset()
    renew: Callable[[], Awaitable[None]] | None = None
    lag: LoopLag = field(default_factory=LoopLag)
    shed: Callable[[], None] = lambda: None
    _listener: LimitedListener | None = None

    async def start(self) -> int:
        """Listens. Returns the port, which differs from `port` if that is 0."""
        app = web.Application(middlewares=[known_host(self.hosts), shed(self.lag, self.shed), self._renewed])
        rows = Rows(self.board, self.health, self.now, self.sources)
        app.add_routes(
            [
                *ui.routes(INDEX),
                web.get("/metrics", self._metrics),
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/api/v1/board", self._board),
                web.get("/api/v1/board/{namespace}/{name}", self._board_entry),
                web.get("/api/v1/rows", rows.get),
                *self.more,
            ]
        )
        self._listener = await listen(app, self.host, self.port, "listen.http")
        return self._listener.port

    async def stop(self) -> None:
        if self._listener is not None:
            await self._listener.stop()

    @web.middleware
    async def _renewed(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self.renew is not None and (request.path == "/metrics" or request.path.startswith("/api/")):
            await self.renew()
        return await handler(request)

    async def _livez(self, request: web.Request) -> web.Response:
        return self._health(request, self.health.live(self.now()))

    async def _readyz(self, request: web.Request) -> web.Response:
        return self._health(request, self.health.ready(self.now()))

    def _health(self, request: web.Request, checks: dict[str, str | None]) -> web.Response:
        status, text = render(checks, verbose="verbose" in request.query, role=self.health.role)
        return web.Response(status=status, text=text)

    async def _board(self, _: web.Request) -> web.Response:
        # A Board is immutable, so a thread can encode it while this loop answers KEDA.
        text = await asyncio.to_thread(_document, self.board(), self.now())
        return web.json_response(text=text)

    async def _board_entry(self, request: web.Request) -> web.Response:
        """One workload, with all triggers of its ScaledObject."""
        board, names = self.board(), (request.match_info["namespace"], request.match_info["name"])
        entries = {key: decision for key, decision in board.decisions.items() if key[:2] == names}
        if not entries:
            return web.json_response({"error": f"no workload {'/'.join(names)} on the Board"}, status=404)
        return web.json_response(text=_document(replace(board, decisions=entries), self.now()))

    async def _metrics(self, request: web.Request) -> web.Response:
        encoder, content_type = exposition.choose_encoder(request.headers.get("Accept", ""))
        names: Iterable[str] = request.query.getall("name[]", [])
        # Collecting reads what this loop writes, so it is done here. Encoding takes much longer: with 5,000 workloads
        # KEDA would wait for two seconds at each scrape.
        collected = CollectedMetrics(tuple(self.registry.collect()), frozenset(names))
        response = web.Response(body=await asyncio.to_thread(encoder, collected))
        response.headers["Content-Type"] = content_type
        return response


def _document(board: Board, now: float) -> str:
    return json.dumps({"now": now, **board.to_document()}, allow_nan=False)
