"""The scrapes and decisions of the configuration in force, for everybody who asks of them; before the first there are
none, and who asks hears nothing.

Worked example: `InForce().counters()` is `{}` while the daemon begins to listen. Once its works are made,
`in_force.works = works`, it is what the scrapes of each target have come to.

The daemon: every part built once, every task named in one place, and the order of start and stop.

Start: listen (KEDA's GetMetricSpec needs no source), compile, then scrape and decide; ready after the first sweep.
Reload: a good configuration replaces scrapes and decider and keeps what was remembered; a bad one changes nothing and
says so. Stop: unready, NOT_SERVING, streams ended with OK, calls under way finished, then silence.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from random import Random
from socket import gethostname
from typing import TYPE_CHECKING, Any

import structlog
from prometheus_client import CollectorRegistry

from exporter.clock import Clock
from exporter.discovery import Discovery
from exporter.kubernetes.auth import ApiServices, Holder
from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.client import connect
from exporter.kubernetes.reflector import watch_all
from exporter.model import PodKey, Target, WorkloadKey
from exporter.scrape.loop import Counters
from exporter.scrape.metrics import SeenCollector
from exporter.sources.http import HttpLimits, HttpPages
from exporter.sources.promql import Promql
from exporter.sources.redis import RedisPages

from . import compilation
from .api import servers
from .api.http import accounting as web_accounts
from .api.http import ha as web_peers
from .api.http.checkpoints import SnapshotCollector
from .api.http.cluster import ClusterCollector
from .api.http.decisions import BoardCollector
from .api.http.explain import ExplainHandler
from .api.http.health import HealthState
from .api.http.outcome import OutcomeCollector
from .api.http.server import WebServer
from .api.http.ui import nobody_sees
from .api.keda.authorization import Claims, Configured
from .api.keda.server import KedaServer
from .api.metrics_api import registration
from .api.metrics_api import server as kubeapi
from .api.metrics_api.pods import Sources
from .columns import State, translated
from .config import Config, ConfigErrors, MetricsApi
from .engine import scrape_log
from .engine.checkpoint_format import pack, unpack
from .engine.checkpoint_store import CheckpointStore
from .engine.publisher import Publisher
from .explain.outcome import ClusterView
from .ha.election import TERMS, Terms
from .ha.replica import HaRole, Replica
from .metrics import SelfMetrics
from .signals.pods import Chosen, PodNumbers
from .tls import naming
from .workloads import Registry
from .workloads.pods import ReplicaCounts

if TYPE_CHECKING:
    from .engine.decider import Decider
    from .engine.loop import ControlLoop
    from .explain.document import DeciderWitness


class ActiveLoop:
    """works: a reload puts others in their place."""

    def __init__(self) -> None:
        self.works: ControlLoop | None = None

    async def states(self) -> Sequence[State]:
        """What survives, for a snapshot; of the control loop that a reload begins meanwhile, if it does."""
        while (works := self.works) is not None:
            states = await works.states()
            if works is self.works:
                return states
        return []

    def memory(self, workloads: Collection[WorkloadKey] | None) -> Callable[[], bytes]:
        """What is remembered of these workloads, or of all, for a follower; packing it may be left to a thread."""
        return bytes if self.works is None else partial(pack, self.works.share(workloads))

    async def learned(self, memory: bytes, offset_s: float) -> None:
        """What the leader remembers takes the place of what is remembered here. offset_s: our clock less its."""
        state = await asyncio.to_thread(unpack, memory)
        if self.works is not None:
            self.works.go_along(translated(state, offset_s))

    def books(self) -> Decider | None:
        """Who keeps the accounts."""
        return None if self.works is None else self.works.bookkeeping

    def witness(self) -> DeciderWitness | None:
        """Who remembers what was decided, and from what."""
        from .explain.document import DeciderWitness  # noqa: PLC0415 - compiles kernels

        return None if self.works is None else DeciderWitness(self.works.bookkeeping)

    def pods(self, namespace: str, chosen: Chosen, now: float) -> Mapping[PodKey, tuple[PodNumbers, ...]]:
        return {} if self.works is None else self.works.pods(namespace, chosen, now)

    def counters(self) -> Mapping[Target, Counters]:
        return {} if self.works is None else self.works.counters


# Time for KEDA's load balancer to read NOT_SERVING before the streams end, and for calls under way to finish.
DRAIN_PAUSE_S = 0.5
DRAIN_GRACE_S = 5.0
# A replica is not ready before the first list: KEDA would count its refusals. A silent API server delays that by so
# much at most, because workloads of the configuration can be answered all the same.
LIST_WAIT_S = 5.0
# A registry of 10,000 workloads makes 100,000 objects and lets go of most of them half a second later. By default
# (700, 10, 10) they reach the oldest generation meanwhile, and each edited object costs a full collection: 0.4 s in
# which no call is answered. 20,000 young objects take 5 ms.
COLLECTIONS = 20_000, 10, 10
# How often the configuration file is looked at. kubelet itself takes up to a minute to bring a new ConfigMap.
FILE_LOOK_S = 2.0


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the daemon listens, once it does."""

    http: int
    grpc: int
    metrics_api: int | None = None
    peers: int | None = None


class Daemon:
    """One process's worth of Tidegate.

    replicas:    who knows how many replicas there are; by default the cluster, or nobody.
    reload:      reads the configuration again; None where there is no file to read.
    changed:     is there a new configuration to read? Asked now and then.
    discoveries: who knows where pages are, for a configuration; None is what it says itself.
    terms:       of the Lease, where there are several replicas.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        *,
        replicas: ReplicaCounts | None = None,
        reload: Callable[[], Config] | None = None,
        changed: Callable[[], bool] = lambda: False,
        discoveries: Callable[[Config], Sequence[Discovery]] | None = None,
        terms: Terms = TERMS,
    ) -> None:
        self._config, self._clock, self._terms = config, clock, terms
        self._replicas = replicas
        self._read_again, self._changed, self._discoveries = reload, changed, discoveries
        self._log = structlog.get_logger()
        self.publisher = Publisher(workload.key for workload in config.workloads)
        self._pages = HttpPages(HttpLimits(config.scrape.timeout, config.scrape.body_limit))
        self._promql = Promql(self._pages)
        self._redis = RedisPages(self._promql, clock, lambda: self._pages.limits.timeout_s, scrape_log.of_redis)
        self._cluster: Cluster | None = None
        self._moved = asyncio.Event()
        if config.kubernetes is not None:
            self._cluster = Cluster(
                config.kubernetes.namespaces, blind_s=config.kubernetes.blind_after, on_change=self._moved.set
            )
        self._census = Registry()
        self._outlook = ClusterView(lambda: self.publisher.board, lambda: self._census, self._cluster, clock.now)
        self._claims = Claims()
        self._metrics_server: kubeapi.MetricsServer | None = None
        self._replica: Replica | None = None
        if self._cluster is None:
            self._claims.take(Configured.by(config))
        self._health = HealthState(tick_s=config.tick, started_at=clock.now())
        self._wait_for_list_until = clock.now()  # the first tick sets it
        self._reload_asked = asyncio.Event()
        self._in_force = ActiveLoop()
        # GET /metrics?name[]=… asks for families by name.
        self.registry = registry = CollectorRegistry(auto_describe=True)
        self._own = SelfMetrics(registry)
        registry.register(BoardCollector(lambda: self.publisher.board, clock.now))
        registry.register(SeenCollector(self._in_force.counters))
        registry.register(web_accounts.AccountsCollector(self._in_force.books, self._leads, clock.now))
        if self._cluster is not None:
            registry.register(ClusterCollector(self._cluster, lambda: self._census.troubles, clock.now))
            registry.register(OutcomeCollector(self._outlook.all))
        self._snapshots = CheckpointStore(config.state, clock)
        registry.register(SnapshotCollector(self._snapshots, clock.now))
        if config.listen.peers is not None:
            registry.register(web_peers.PeersCollector(lambda: self._replica, clock.now))
        self._web = WebServer(
            host=config.listen.http.host,
            port=config.listen.http.port,
            board=lambda: self.publisher.board,
            health=self._health,
            registry=registry,
            now=clock.now,
            outlooks=self._outlook.all if self._cluster is not None else nobody_sees,
            hosts=frozenset({*config.listen.http_hosts, gethostname().lower()}),
            more=(
                *ExplainHandler(
                    lambda: self.publisher.board, self._in_force.witness, clock.now, self._repeats, self._outlook.step
                ).routes(),
                *web_accounts.routes(self._in_force.books, lambda: self._config.prices.said_gpu_hour, clock.now),
            ),
        )
        self._own.reload_ok.set(1)
        self._own.reloaded_at.set(clock.now())

    async def run(self, stop: asyncio.Event, started: Callable[[Ports], None] = lambda _: None) -> None:
        """Serve until `stop` is set. Raises OSError if a port is taken, BadTlsFiles if
        certificates cannot serve, CannotConnect if it is not known how to ask the Kubernetes API.
        """
        keda = servers.keda(self._config, self.publisher, self._claims, self._clock.now, self._own.observe_call)
        metrics, replica = self._new_metrics_server(), self._new_replica()
        self._metrics_server, self._replica = metrics, replica
        try:
            ports = Ports(
                await self._web.start(),
                await keda.start(),
                await metrics.start() if metrics else None,
                await replica.start() if replica else None,
            )
            more = {"metrics_api": ports.metrics_api} if metrics else {}
            more |= {"peers": ports.peers} if replica else {}
            self._log.info("listening", http=ports.http, grpc=ports.grpc, **more, workloads=len(self._config.workloads))
            async with self._connected() as ask_cluster, asyncio.TaskGroup() as tasks:
                work = [
                    tasks.create_task(self._work(keda), name="scrapes and ticks"),
                    tasks.create_task(self._look_at_file(), name="configuration file"),
                    tasks.create_task(keda.check_answers(self._missed), name="check of the gRPC server"),
                    tasks.create_task(ask_cluster(), name="Kubernetes"),
                    tasks.create_task(self._snapshots.keep(self._in_force.states), name="snapshots"),
                ]
                started(ports)
                await stop.wait()
                self._health.draining = True
                keda.set_ready(False)
                self._log.info("draining")
                if replica is not None:
                    await replica.give_back()
                await asyncio.sleep(DRAIN_PAUSE_S)
                await keda.drain(DRAIN_GRACE_S)
                await self._snapshots.write_last(self._in_force.states)
                for task in work:
                    task.cancel()
        finally:
            if metrics is not None:
                await metrics.stop()
            if replica is not None:
                await replica.stop()
            await keda.drain(0)
            await self._web.stop()
            self._snapshots.close()
            self._promql.close()
            await self._redis.close()
            await self._pages.close()
        self._log.info("stopped")

    def ask_reload(self) -> None:
        """Read the configuration again soon (SIGHUP)."""
        self._reload_asked.set()

    async def _work(self, keda: KedaServer) -> None:
        """Scrapes and ticks of the configuration in force, begun anew whenever it changes."""
        # Compiling may take minutes on a busy machine: a terminal must not be silent until then.
        self._log.info("loading kernels", **compilation.settings())
        kernels = await asyncio.to_thread(compilation.load)
        words = {"compiled": kernels.compiled, "cached": kernels.cached, "seconds": round(kernels.seconds, 1)}
        self._log.info("kernels loaded", **words)
        works = import_module("scaler.engine.loop")
        preparing = import_module("scaler.engine.prepare")  # which works has imported
        around = works.LoopContext(
            clock=self._clock,
            pages=self._redis,
            promql=self._promql,
            redis=self._redis,
            publisher=self.publisher,
            own=self._own,
            ticked=lambda now: self._ticked(keda, now),
            believed=self._believe,
            leads=self._leads,
            cluster=self._cluster,
            moved=self._moved,
            replicas=self._replicas,
            discoveries=self._discoveries,
            kept=await self._snapshots.read(),
        )
        prepared = await preparing.prepare(self._config, around)
        while True:
            before = self._in_force.works
            current = self._in_force.works = works.ControlLoop(self._config, around, before, prepared)
            if before is not None:
                before.forget()
            async with asyncio.TaskGroup() as tasks:
                working = tasks.create_task(current.run(), name="this configuration's scrapes and ticks")
                while not await self._reloaded():
                    pass
                # The old configuration's work goes on until the new one's is prepared.
                prepared = await preparing.prepare(self._config, around)
                prepared = await preparing.catch_up(prepared, self._config, around)
                working.cancel()
            prepared = await preparing.hand_over(prepared, current.bookkeeping)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Callable[[], Coroutine[Any, Any, None]]]:
        """What keeps the cluster in memory up to date, and whom the metrics API believes. Raises CannotConnect."""
        settings, cluster, jitter = self._config.kubernetes, self._cluster, Random()  # noqa: S311 - it is no secret
        if settings is None or cluster is None:
            yield _nothing
            return
        client = await connect(settings.kubeconfig, settings.context, jitter=jitter)

        async def ask() -> None:
            async with asyncio.TaskGroup() as tasks:
                if self._metrics_server is not None:
                    tasks.create_task(self._metrics_server.follow(client), name="whom the metrics API believes")
                if self._replica is not None:
                    tasks.create_task(self._replica.run(client), name="other replicas")
                events = servers.events(
                    self.publisher, cluster, lambda: self._census.targets, self._writes_events, self._clock, self._own
                )
                tasks.create_task(events.run(client), name="Events")
                if self._config.listen.metrics_api is not None:
                    looking = self._look_who_is_registered(client, self._config.listen.metrics_api)
                    tasks.create_task(looking, name="who is registered for the metrics API")
                watching = watch_all(
                    client,
                    cluster,
                    namespaces=settings.namespaces,
                    clock=self._clock,
                    told=scrape_log.of_kubernetes,
                    jitter=jitter,
                )
                tasks.create_task(watching, name="watches")

        try:
            yield ask
        finally:
            await client.close()

    def _look_who_is_registered(self, services: ApiServices, served: MetricsApi) -> Coroutine[Any, Any, None]:
        name, _, namespace = (served.service or "").partition(".")
        own = Holder(namespace, name) if name else None
        return registration.follow(services, self._clock, servers.groups(served), own, self._own.observe_registration)

    def _believe(self, census: Registry | None) -> None:
        if self._metrics_server is not None:
            self._metrics_server.take(census)
        if census is None:
            self._claims.lose_sight()
            return
        self._census = census
        # Without the cluster's word for triggers, a call may name a configured workload and nothing else.
        watched = self._config.kubernetes is not None and self._config.kubernetes.triggers
        self._claims.take(census if watched else Configured.by(self._config))

    def _missed(self, misses: int) -> None:
        self._health.misses = misses

    async def _look_at_file(self) -> None:
        while True:
            await asyncio.sleep(FILE_LOOK_S)
            if self._changed():
                self.ask_reload()

    def _ticked(self, keda: KedaServer, now: float) -> None:
        if self._health.last_tick_at is None:
            # What is loaded by now stays. Most of its 170,000 objects are numba's: each full collection that looked
            # through them held the loop up for some 50 ms.
            gc.freeze()
            gc.set_threshold(*COLLECTIONS)
            self._wait_for_list_until = now + LIST_WAIT_S
        self._health.last_tick_at = now
        self._health.unlisted = self._claims.triggers is None and now < self._wait_for_list_until
        if self._replica is not None:
            self._replica.tick(now)
            self._health.role = self._replica.role(now)
            self._health.hears_out = not self._replica.settled(now)
        if not self._health.draining and not self._health.hears_out and not self._health.unlisted:
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
        if (config.kubernetes is None) != (self._config.kubernetes is None):
            self._own.reload_ok.set(0)
            words = "kubernetes: cannot be added or taken away without a restart"
            self._log.error("configuration rejected; the old one stays", problem=words)
            return False
        if config.listen != self._config.listen:
            self._log.warning("listen has changed: that takes a restart; everything else is taken now")
        if _connection(config) != _connection(self._config):
            self._log.warning("whom kubernetes asks has changed: that takes a restart; everything else is taken now")
        self._snapshots.reload(config.state)
        self._config = config
        self._pages.limits = HttpLimits(config.scrape.timeout, config.scrape.body_limit)
        self._own.reload_ok.set(1)
        self._own.reloaded_at.set(self._clock.now())
        self._log.info("configuration reloaded", workloads=len(config.workloads))
        return True

    def _new_metrics_server(self) -> kubeapi.MetricsServer | None:
        served, cluster = self._config.listen.metrics_api, self._cluster
        if served is None or cluster is None:  # a configuration with the one and without the other is refused
            return None
        sources = Sources(cluster, self._in_force.pods)
        return servers.metrics_api(served, self.publisher, sources, self._clock, self._own.observe_call)

    def _writes_events(self, now: float) -> bool:
        return self._config.kubernetes is not None and self._config.kubernetes.events and self._leads(now)

    def _new_replica(self) -> Replica | None:
        peers = self._config.listen.peers
        if peers is None or self._cluster is None:  # a configuration with the one and without the other is refused
            return None
        with naming("listen.peers"):
            return Replica(
                peers,
                self.publisher,
                tick_s=self._config.tick,
                clock=self._clock,
                environment=os.environ,
                memory=self._in_force.memory,
                learned=self._in_force.learned,
                told=partial(scrape_log.of_files, "listen.peers"),
                terms=self._terms,
            )

    def _leads(self, now: float) -> bool:
        """Do others read our books? Where there may be several replicas and none is known to lead, nobody's are: what
        two of them enter would be counted twice.
        """
        return self._config.listen.peers is None or (
            self._replica is not None and self._replica.role(now) is HaRole.LEADER
        )

    def _repeats(self) -> str | None:
        return None if self._replica is None else self._replica.repeats


async def _nothing() -> None:
    pass


def _connection(config: Config) -> tuple[object, ...]:
    """What of `kubernetes` is settled when the daemon starts."""
    asked = config.kubernetes
    return () if asked is None else (asked.kubeconfig, asked.context, asked.namespaces, asked.blind_after)
