"""Builds the sources from the settings, scrapes them, and serves the page from memory.

There is no reload: a new configuration is a new pod (by kustomize's name suffixes), which is ready in a second.

Worked example: `await export(settings, WallClock(), stop)` listens, logs `listening`, and serves until `stop` is set.
While an engine hangs, `GET /metrics` has `tidegate_export_source_up{…} 0` and `GET /readyz` returns 200.
"""

from __future__ import annotations

import asyncio
import ctypes
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import structlog
from aiohttp import web
from prometheus_client import exposition

from exporter.agent.agent import Exporter, ExportSource, PageSource, PodGpus
from exporter.agent.page import NormalisedCollector
from exporter.clock import Clock
from exporter.model import Failure, Gpu, PodKey, Samples
from exporter.sources import nvml
from exporter.sources.http import HttpLimits, HttpPages
from scaler.api.http.health import render
from scaler.net import ConnectionLimits, LimitedListener, listen

from .settings import PageSettings, Settings

# A page is written in a millisecond; a client that is still being answered after this time does not read.
DRAIN_S = 2.0
# The process must stay under 60 MB: the page is small, and its clients are the daemon, Prometheus and the kubelet.
LIMITS = ConnectionLimits(connections=64, unread_bytes=4 * 2**20)
_MADV_DONTNEED = 4  # madvise(2) on Linux


async def export(settings: Settings, clock: Clock, stop: asyncio.Event) -> None:
    """Serves the page until `stop` is set. Raises OSError if the port is in use."""
    log = structlog.get_logger()
    pages = HttpPages(HttpLimits(settings.timeout_s, settings.body_limit))
    driver = _driver(settings) if settings.nvml else None
    exporter = Exporter(_sources(settings, pages, clock, driver), settings.interval_s, clock, changed=_log_source)
    listener = Listener(settings.host, settings.port, exporter, clock)
    try:
        port = await listener.start()
        log.info("listening", port=port, sources=[state.source for state in exporter.states])
        async with asyncio.TaskGroup() as tasks:
            scraping = tasks.create_task(exporter.run(), name="sources")
            settling = tasks.create_task(_settle(2 * settings.interval_s, clock), name="settling")
            await stop.wait()
            listener.draining = True
            log.info("draining")
            scraping.cancel()
            settling.cancel()
    finally:
        await listener.stop()
        await pages.close()
        if driver is not None:
            await driver.nvml.close()
    log.info("stopped")


@dataclass(slots=True)
class Listener:
    """Serves /metrics, /livez and /readyz from memory.

    Ready means that the page is served: a failing source of the sidecar must not take the engine out of its Service.
    """

    host: str
    port: int
    exporter: Exporter
    clock: Clock
    draining: bool = False
    _listener: LimitedListener | None = None

    async def start(self) -> int:
        """Listens; returns the port, which matters if 0 was configured."""
        app = web.Application()
        app.add_routes(
            [web.get("/metrics", self._metrics), web.get("/livez", self._livez), web.get("/readyz", self._readyz)]
        )
        self._listener = await listen(app, self.host, self.port, "listen", limits=LIMITS, grace_s=DRAIN_S)
        return self._listener.port

    async def stop(self) -> None:
        if self._listener is not None:
            await self._listener.stop()

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


@dataclass(frozen=True, slots=True)
class Driver:
    """NVML as a source. node: name of this node; None if unknown."""

    nvml: nvml.Nvml
    node: str | None
    name: str = "nvml"

    async def samples(self, now: float) -> Samples | Failure:
        outcome = await self.nvml.samples(now)
        if isinstance(outcome, Failure):
            return outcome
        subjects = (replace(each, node=self.node) if isinstance(each, Gpu) else each for each in outcome.subjects)
        return replace(outcome, subjects=tuple(subjects))


def _driver(settings: Settings) -> Driver:
    # The control group of a process names its pod's UID. A pod knows only the UID of itself; the daemon knows all.
    if settings.pod is not None and settings.pod_uid is not None:
        pods = {settings.pod_uid: settings.pod}
        return Driver(nvml.Nvml(nvml.installed(), pods.get, settings.timeout_s), settings.node)
    return Driver(nvml.Nvml(nvml.installed(), partial(PodKey, ""), settings.timeout_s), settings.node)


def _sources(settings: Settings, pages: HttpPages, clock: Clock, driver: Driver | None) -> list[ExportSource]:
    def source(page: PageSettings) -> ExportSource:
        return PageSource(page.url, page.kind, page.access, pages, clock)

    sources = [source(page) for page in settings.engines]
    gpus = driver if settings.gpus is None else source(settings.gpus)
    if gpus is not None:
        sources.append(gpus if settings.pod is None else PodGpus(gpus, settings.pod))
    return sources


def _log_source(source: str, failure: Failure | None) -> None:
    log = structlog.get_logger()
    if failure is None:
        log.info("source answers", source=source)
    else:
        log.warning("source does not answer", source=source, kind=str(failure.kind), detail=failure.detail)


async def _settle(after_s: float, clock: Clock) -> None:
    """Every source has been scraped by then, so all code that is needed has run once."""
    await clock.sleep(after_s)
    _release_code()
    structlog.get_logger().info("settled")


def _release_code() -> None:
    """Releases resident machine code that only the start needed: 6 MB. The kernel reads code that is needed again from
    its file.

    The kernel maps code in blocks around what is touched: 20 to 27 MB of libraries, of which this command uses half.
    Only mappings of code and of a file are released: nothing has written to them. Does nothing without /proc or
    madvise.
    """
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
        madvise = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in maps.splitlines():
        span, permissions, _, _, _, *file = line.split(maxsplit=5)
        if permissions == "r-xp" and file and file[0].startswith("/"):
            start, end = (int(address, 16) for address in span.split("-"))
            madvise(start, end - start, _MADV_DONTNEED)
