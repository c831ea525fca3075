"""The HTTP listener of `tidegate export`: every answer is made from memory at once.

Worked example: while an engine hangs, `GET /metrics` says `tidegate_export_source_up{…} 0` and `GET /readyz` is 200.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web
from prometheus_client import exposition

from exporter.agent.agent import Exporter
from exporter.agent.page import NormalisedCollector
from exporter.clock import Clock
from scaler.api.http.health import render
from scaler.net import ConnectionLimits, listen
from scaler.net import LimitedListener as Listening

# A page is written in a millisecond; whoever is still being answered after so long does not read.
DRAIN_S = 2.0
# The process is to stay under 60 MB: its page is small, and it is asked by the daemon, Prometheus and the kubelet.
LIMITS = ConnectionLimits(connections=64, unread_bytes=4 * 2**20)


@dataclass(slots=True)
class Listener:
    """/metrics, /livez and /readyz, from memory.

    Ready is "the page is served": as a sidecar this container must not take an engine out of its Service because one of
    its sources is away.
    """

    host: str
    port: int
    exporter: Exporter
    clock: Clock
    draining: bool = False
    _listening: Listening | None = None

    async def start(self) -> int:
        """Listen; returns the port (which matters if 0 was asked for)."""
        app = web.Application()
        app.add_routes(
            [web.get("/metrics", self._metrics), web.get("/livez", self._livez), web.get("/readyz", self._readyz)]
        )
        self._listening = await listen(app, self.host, self.port, "listen", limits=LIMITS, grace_s=DRAIN_S)
        return self._listening.port

    async def stop(self) -> None:
        if self._listening is not None:
            await self._listening.stop()

    async def _metrics(self, request: web.Request) -> web.Response:
        encoder, content_type = exposition.choose_encoder(request.headers.get("Accept", ""))
        body = encoder(NormalisedCollector(self.exporter.states, self.clock.now()))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _livez(self, request: web.Request) -> web.Response:
        return _health(request, self._live())

    async def _readyz(self, request: web.Request) -> web.Response:
        return _health(request, {**self._live(), "drain": "stopping" if self.draining else None})

    def _live(self) -> dict[str, str | None]:
        return {"sources": self.exporter.stuck(self.clock.now())}


def _health(request: web.Request, checks: dict[str, str | None]) -> web.Response:
    status, text = render(checks, verbose="verbose" in request.query)
    return web.Response(status=status, text=text)
