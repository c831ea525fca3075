"""The daemon: every part built once, every task named in one place, and the order of start and stop.

Start: listen (KEDA's GetMetricSpec needs no source), compile, then scrape and decide; ready after the first sweep.
Reload: a good configuration replaces scrapes and decider and keeps what was remembered; a bad one changes nothing and
says so. Stop: unready, NOT_SERVING, streams ended with OK, calls under way finished, then silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CollectorRegistry

from exporter.clock import Clock
from exporter.exposition import SeenCollector
from exporter.model import Target
from exporter.scrape import Counters
from exporter.sources.http import HttpPages, Limits
from exporter.targets import Discovery

from .config import Config, ConfigErrors
from .keda.server import KedaServer, create
from .keda.tls import TlsFiles
from .publisher import Publisher
from .replicas import ReplicaCounts, StaticReplicas
from .web.decisions import BoardCollector
from .web.health import Health
from .web.own import OwnMetrics
from .web.server import WebServer

if TYPE_CHECKING:
    from .works import Works

# Time for KEDA's load balancer to read NOT_SERVING before the streams end, and for calls under way to finish.
DRAIN_PAUSE_S = 0.5
DRAIN_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the daemon listens, once it does."""

    http: int
    grpc: int


class Daemon:
    """One process's worth of Tidegate.

    replicas:    who knows how many replicas there are; nobody by default.
    reload:      reads the configuration again; None where there is no file to read.
    discoveries: who knows where pages are, for a configuration; None is what it says itself.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        *,
        replicas: ReplicaCounts | None = None,
        reload: Callable[[], Config] | None = None,
        discoveries: Callable[[Config], Sequence[Discovery]] | None = None,
    ) -> None:
        self._config, self._clock = config, clock
        self._replicas = replicas or StaticReplicas()
        self._read_again, self._discoveries = reload, discoveries
        self._log = structlog.get_logger()
        self.publisher = Publisher(workload.key for workload in config.workloads)
        self._pages = HttpPages(_limits(config))
        self._health = Health(tick_s=config.tick, started_at=clock.now())
        self._reload_asked = asyncio.Event()
        self._works: Works | None = None
        registry = CollectorRegistry(auto_describe=True)  # GET /metrics?name[]=… asks for families by name
        self._own = OwnMetrics(registry)
        registry.register(BoardCollector(lambda: self.publisher.board, clock.now))
        registry.register(SeenCollector(self._counters))
        self._web = WebServer(
            host=config.listen.http.host,
            port=config.listen.http.port,
            board=lambda: self.publisher.board,
            health=self._health,
            registry=registry,
            now=clock.now,
        )
        self._own.reload_ok.set(1)
        self._own.reloaded_at.set(clock.now())

    async def run(self, stop: asyncio.Event, started: Callable[[Ports], None] = lambda _: None) -> None:
        """Serve until `stop` is set. Raises OSError if a port is taken, BadTlsFiles if certificates cannot serve."""
        keda = self._new_keda()
        try:
            ports = Ports(grpc=await keda.start(), http=await self._web.start())
            self._log.info("listening", http=ports.http, grpc=ports.grpc, workloads=len(self._config.workloads))
            async with asyncio.TaskGroup() as tasks:
                work = tasks.create_task(self._work(keda), name="scrapes and ticks")
                started(ports)
                await stop.wait()
                self._health.draining = True
                keda.set_ready(False)
                self._log.info("draining")
                await asyncio.sleep(DRAIN_PAUSE_S)
                await keda.drain(DRAIN_GRACE_S)
                work.cancel()
        finally:
            await keda.drain(0)
            await self._web.stop()
            await self._pages.close()
        self._log.info("stopped")

    def ask_reload(self) -> None:
        """Read the configuration again soon (SIGHUP)."""
        self._reload_asked.set()

    async def _work(self, keda: KedaServer) -> None:
        """Scrapes and ticks of the configuration in force, begun anew whenever it changes."""
        works = await asyncio.to_thread(import_module, "scaler.works")
        around = works.Surroundings(
            clock=self._clock,
            pages=self._pages,
            publisher=self.publisher,
            replicas=self._replicas,
            own=self._own,
            ticked=lambda now: self._ticked(keda, now),
            discoveries=self._discoveries,
        )
        while True:
            self._works = works.Works(self._config, around, before=self._works)
            async with asyncio.TaskGroup() as tasks:
                working = tasks.create_task(self._works.run(), name="this configuration's scrapes and ticks")
                while not await self._reloaded():
                    pass
                working.cancel()

    def _ticked(self, keda: KedaServer, now: float) -> None:
        self._health.last_tick_at = now
        if not self._health.draining:
            keda.set_ready(True)

    async def _reloaded(self) -> bool:
        """Wait for somebody to ask; was there a new configuration?"""
        await self._reload_asked.wait()
        self._reload_asked.clear()
        if self._read_again is None:
            return False
        try:
            config = await asyncio.to_thread(self._read_again)  # a thousand workloads take PyYAML two seconds
        except ConfigErrors as errors:
            self._own.reload_ok.set(0)
            for problem in errors.problems:
                self._log.error("configuration rejected; the old one stays", problem=str(problem))
            return False
        if config.listen != self._config.listen:
            self._log.warning("listen has changed: that takes a restart; everything else is taken now")
        self._config = config
        self._pages.limits = _limits(config)
        self.publisher.keep_only((workload.key for workload in config.workloads), self._clock.now())
        self._own.reload_ok.set(1)
        self._own.reloaded_at.set(self._clock.now())
        self._log.info("configuration reloaded", workloads=len(config.workloads))
        return True

    def _new_keda(self) -> KedaServer:
        tls = self._config.listen.grpc_tls
        return create(
            self.publisher,
            address=str(self._config.listen.grpc),
            tls=TlsFiles(tls.certificate, tls.key, tls.client_ca) if tls else None,
            now=self._clock.now,
            observe=self._own.observe_call,
            tls_told=self._tls_told,
        )

    def _tls_told(self, problem: str | None) -> None:
        if problem is None:
            self._log.info("grpc_tls files serve again")
        else:
            self._log.error("grpc_tls files cannot serve; the previous certificate stays", problem=problem)

    def _counters(self) -> Mapping[Target, Counters]:
        return self._works.counters if self._works is not None else {}


def _limits(config: Config) -> Limits:
    return Limits(config.scrape.timeout, config.scrape.body_limit)
