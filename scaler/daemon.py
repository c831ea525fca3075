"""The daemon: every part built once, every task named in one place, and the order of start and stop.

Start: listen (KEDA's GetMetricSpec needs no source), then scrape and decide; ready after the first sweep. Reload: a
good configuration replaces scrapes and decider and keeps what was remembered; a bad one changes nothing and says so.
Stop: unready, NOT_SERVING, streams ended with OK, calls under way finished, then silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import structlog
from prometheus_client import CollectorRegistry

from exporter.clock import Clock
from exporter.exposition import SeenCollector
from exporter.model import Failure, ReplicaCount, Scrape, Target, WorkloadKey
from exporter.scrape import Counters, Loop
from exporter.sources.http import HttpPages, Limits
from exporter.targets import Discovery
from exporter.textformat import Scanner

from . import sources
from .config import Config, ConfigErrors
from .decider import Decider
from .keda.server import KedaServer, create
from .keda.tls import TlsFiles
from .publisher import Publisher
from .web.decisions import BoardCollector
from .web.health import Health
from .web.own import OwnMetrics
from .web.server import WebServer

# Time for KEDA's load balancer to read NOT_SERVING before the streams end, and for calls under way to finish.
DRAIN_PAUSE_S = 0.5
DRAIN_GRACE_S = 5.0


class ReplicaCounts(Protocol):
    """Who knows how many replicas there are."""

    def count(self, workload: WorkloadKey) -> ReplicaCount | None:
        """None is: not known."""


@dataclass(frozen=True, slots=True)
class StaticReplicas:
    """Counts that never change; a workload that is not listed is not known."""

    counts: Mapping[WorkloadKey, ReplicaCount] = field(default_factory=lambda: MappingProxyType({}))

    def count(self, workload: WorkloadKey) -> ReplicaCount | None:
        return self.counts.get(workload)


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the daemon listens, once it does."""

    http: int
    grpc: int


class Daemon:
    """One process's worth of Tidegate.

    reload:      reads the configuration again; None where there is no file to read.
    discoveries: who knows where pages are, for a configuration.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        *,
        replicas: ReplicaCounts | None = None,
        reload: Callable[[], Config] | None = None,
        discoveries: Callable[[Config], Sequence[Discovery]] = sources.discoveries,
    ) -> None:
        self._config, self._clock = config, clock
        self._replicas = replicas or StaticReplicas()
        self._read_again, self._discoveries = reload, discoveries
        self._log = structlog.get_logger()
        self._decider = self._new_decider(config)
        self.publisher = Publisher(plan.workload for plan in self._decider.plans)
        self._loop: Loop | None = None
        self._pages = HttpPages(Limits(config.scrape.timeout, config.scrape.body_limit))
        self._health = Health(tick_s=config.tick, started_at=clock.now())
        self._reload_asked = asyncio.Event()
        self._failing: dict[Target, str] = {}
        self._tick_broken = False
        registry = CollectorRegistry()
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
        """Serve until `stop` is set. Raises OSError if a port is taken."""
        keda = self._new_keda()
        try:
            ports = Ports(grpc=await keda.start(), http=await self._web.start())
            self._log.info("listening", http=ports.http, grpc=ports.grpc, workloads=len(self._decider.plans))
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
        while True:
            async with asyncio.TaskGroup() as tasks:
                self._loop = self._new_loop()
                scrapes = tasks.create_task(self._loop.run(), name="scrapes")
                ticks = tasks.create_task(self._tick_forever(keda), name="ticks")
                while not await self._reloaded():
                    pass
                scrapes.cancel()
                ticks.cancel()

    async def _tick_forever(self, keda: KedaServer) -> None:
        """Never two at once: the next begins when this one has ended."""
        while True:
            began = self._clock.now()
            with self._own.tick_seconds.time():
                self._tick(began)
            if not self._health.draining:
                keda.set_ready(self._health.last_tick_at is not None)
            await self._clock.sleep(max(0.0, began + self._config.tick - self._clock.now()))

    def _tick(self, now: float) -> None:
        try:
            for plan in self._decider.plans:
                self._decider.counted(plan.workload, self._replicas.count(plan.workload))
            self.publisher.publish(self._decider.sweep(now), now)
        except Exception:
            # The last Board stands and is said to be old; liveness fails if this goes on.
            self._own.ticks_failed.inc()
            if not self._tick_broken:
                self._log.exception("tick failed; the last Board stands")
            self._tick_broken = True
            if now - self.publisher.board.at > self._config.freshness.hold:
                self.publisher.give_up(now)
                self._decider.forget_answers()
            return
        if self._tick_broken:
            self._log.info("ticks work again")
        self._tick_broken = False
        self._health.last_tick_at = now

    def _landed(self, scrape: Scrape) -> None:
        self._say_if_changed(scrape)
        if isinstance(scrape.outcome, Failure):
            self._decider.missed(scrape.target)
            return
        changed = self._decider.land(scrape.target, scrape.outcome, scrape.at, self._clock.now())
        if changed:
            self.publisher.publish(changed, self.publisher.board.at)

    def _say_if_changed(self, scrape: Scrape) -> None:
        """One line when a target begins to fail, fails otherwise, or comes back."""
        failed = scrape.outcome if isinstance(scrape.outcome, Failure) else None
        before = self._failing.get(scrape.target)
        if failed is None:
            if before is not None:
                del self._failing[scrape.target]
                self._log.info("scrape works again", target=str(scrape.target))
        elif before != failed.kind:
            self._failing[scrape.target] = failed.kind
            self._log.warning(
                "scrape failed", target=str(scrape.target), error=str(failed.kind), detail=failed.detail,
                took_s=round(scrape.took_s, 3),
            )  # fmt: skip

    def _listed(self, discovery: Discovery, listing: tuple[Target, ...] | None) -> None:
        if discovery.owner is not None:
            self._decider.listed(discovery.owner, None if listing is None else len(listing))

    def _retired(self, target: Target) -> None:
        self._failing.pop(target, None)
        self._decider.retire(target)

    async def _reloaded(self) -> bool:
        """Wait for somebody to ask; was there a new configuration?"""
        await self._reload_asked.wait()
        self._reload_asked.clear()
        if self._read_again is None:
            return False
        try:
            config = await asyncio.to_thread(self._read_again)  # a thousand workloads take PyYAML two seconds
            self._fits(config)
        except ConfigErrors as errors:
            self._own.reload_ok.set(0)
            for problem in errors.problems:
                self._log.error("configuration rejected; the old one stays", problem=str(problem))
            return False
        before, self._decider = self._decider, self._new_decider(config)
        self._decider.adopt(before)
        self._config = config
        self._pages.limits = Limits(config.scrape.timeout, config.scrape.body_limit)
        self.publisher.keep_only((plan.workload for plan in self._decider.plans), self._clock.now())
        self._own.reload_ok.set(1)
        self._own.reloaded_at.set(self._clock.now())
        self._log.info("configuration reloaded", workloads=len(config.workloads))
        return True

    def _fits(self, config: Config) -> None:
        if config.listen != self._config.listen:
            self._log.warning("listen has changed: that takes a restart; everything else is taken now")

    def _new_decider(self, config: Config) -> Decider:
        return Decider(
            sources.plans(config),
            interval_s=config.scrape.interval,
            fresh_intervals=config.freshness.intervals,
        )

    def _new_loop(self) -> Loop:
        return Loop(
            discoveries=self._discoveries(self._config),
            pages=self._pages,
            clock=self._clock,
            interval_s=self._config.scrape.interval,
            concurrency=self._config.scrape.concurrency,
            new_scanner=Scanner,
            landed=self._landed,
            listed=self._listed,
            added=self._decider.expect,
            retired=self._retired,
        )

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
        return self._loop.counters if self._loop is not None else {}
