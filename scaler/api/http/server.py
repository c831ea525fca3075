"""The HTTP listener. Every answer is made from memory at once; no handler waits for a source."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from aiohttp import web
from prometheus_client import CollectorRegistry, exposition
from prometheus_client.metrics_core import Metric

from scaler.model import Board
from scaler.net import LimitedListener, listen

from . import ui
from .health import HealthState, render
from .hosts import known_host
from .ui import Outlooks, Rows, nobody_sees

INDEX = """Tidegate

/                   the live page, in a browser
/metrics            Prometheus metrics
/api/v1/board       every workload's decision, with its evidence (JSON); /api/v1/board/NAMESPACE/NAME: of one
/api/v1/rows        the same as the live page shows it: a row for each workload, trouble first
/api/v1/explain/NAMESPACE/NAME  why this number: from its pages to what the HPA does with it; ?at=TIME for the past
/api/v1/history     the last hour of every workload, for charts; /NAMESPACE/NAME for one
/api/v1/accounts    where GPU-seconds went, and what observed workloads would save (JSON)
/livez  /readyz     health; add ?verbose
"""


@dataclass(frozen=True, slots=True)
class Collected:
    """What a registry's collectors said at one moment, in a registry's place. names: of the samples that are asked for;
    empty is all.
    """

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
    """`registry` is asked at each GET of /metrics. `more`: what other rooms answer, by path.
    `outlooks`: what KEDA and the HPAs will do with each number, for the rows. `hosts`: further host names of this
    server, in lower case.
    """

    host: str
    port: int
    board: Callable[[], Board]
    health: HealthState
    registry: CollectorRegistry
    now: Callable[[], float]
    more: Sequence[web.RouteDef] = ()
    outlooks: Outlooks = nobody_sees
    hosts: frozenset[str] = frozenset()
    _listener: LimitedListener | None = None

    async def start(self) -> int:
        """Listen; returns the port (which matters if 0 was asked for)."""
        app = web.Application(middlewares=[known_host(self.hosts)])
        app.add_routes(
            [
                *ui.routes(INDEX),
                web.get("/metrics", self._metrics),
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/api/v1/board", self._board),
                web.get("/api/v1/board/{namespace}/{name}", self._one),
                web.get("/api/v1/rows", Rows(self.board, self.health, self.now, self.outlooks).answer),
                *self.more,
            ]
        )
        self._listener = await listen(app, self.host, self.port, "listen.http")
        return self._listener.port

    async def stop(self) -> None:
        if self._listener is not None:
            await self._listener.stop()

    async def _livez(self, request: web.Request) -> web.Response:
        return self._health(request, self.health.live(self.now()))

    async def _readyz(self, request: web.Request) -> web.Response:
        return self._health(request, self.health.ready(self.now()))

    def _health(self, request: web.Request, checks: dict[str, str | None]) -> web.Response:
        status, text = render(checks, verbose="verbose" in request.query, role=self.health.role)
        return web.Response(status=status, text=text)

    async def _board(self, _: web.Request) -> web.Response:
        # A Board never changes, so another thread can write it out while KEDA is answered.
        text = await asyncio.to_thread(_document, self.board(), self.now())
        return web.json_response(text=text)

    async def _one(self, request: web.Request) -> web.Response:
        """A workload, with all triggers of its ScaledObject."""
        board, asked = self.board(), (request.match_info["namespace"], request.match_info["name"])
        entries = {key: decision for key, decision in board.decisions.items() if key[:2] == asked}
        if not entries:
            return web.json_response({"error": f"no workload {'/'.join(asked)} on the Board"}, status=404)
        return web.json_response(text=_document(replace(board, decisions=entries), self.now()))

    async def _metrics(self, request: web.Request) -> web.Response:
        encoder, content_type = exposition.choose_encoder(request.headers.get("Accept", ""))
        names: Iterable[str] = request.query.getall("name[]", [])
        # Collecting reads what this loop writes, so it is done here. Writing takes much longer: five thousand workloads
        # would keep KEDA waiting for two seconds at each scrape.
        collected = Collected(tuple(self.registry.collect()), frozenset(names))
        response = web.Response(body=await asyncio.to_thread(encoder, collected))
        response.headers["Content-Type"] = content_type
        return response


def _document(board: Board, now: float) -> str:
    return json.dumps({"now": now, **board.to_document()}, allow_nan=False)
