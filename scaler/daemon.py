"""Builds every part of the daemon once, names every task, and orders start, reload and stop.

Start: listen (KEDA's GetMetricSpec needs no source), compile, then scrape and decide; ready after the first sweep.
Reload: a valid configuration replaces the control loop and keeps the state; an invalid one changes nothing and is
logged. Stop: unready, NOT_SERVING, streams end with OK, calls in progress finish, then the ports close.
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
from importlib.metadata import version
from math import inf
from random import Random
from socket import gethostname
from typing import TYPE_CHECKING, Any

import structlog
from prometheus_client import CollectorRegistry

from exporter.clock import Clock
from exporter.discovery import Discovery
from exporter.kubernetes.auth import ApiServices, ServiceReference
from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.client import connect
from exporter.kubernetes.reflector import watch_all
from exporter.kubernetes.resources import SHARED
from exporter.model import PodKey, Target, WorkloadKey
from exporter.scrape.loop import START_SPREAD_S, Counters, Delays
from exporter.scrape.metrics import ScrapeCollector
from exporter.sources.http import HttpLimits, HttpPages
from exporter.sources.promql import Promql
from exporter.sources.redis import RedisPages

from . import compilation
from .api import servers
from .api.http import accounting as web_accounts
from .api.http import overload
from .api.http import profiles as web_profiles
from .api.http.collectors import (
    BoardCollector,
    CheckpointCollector,
    ClusterCollector,
    OutcomeCollector,
    ReplicaCollector,
)
from .api.http.explain import ExplainHandler
from .api.http.health import HealthState
from .api.http.server import WebServer
from .api.http.ui import RowSources
from .api.keda.authorization import CallAuthorizer, ConfiguredWorkloads
from .api.keda.server import KedaServer
from .api.metrics_api import registration
from .api.metrics_api import server as kubeapi
from .api.metrics_api.pods import Sources
from .columns import State, translated
from .config import Config, ConfigErrors, MetricsApi, Otlp
from .engine import failure_log
from .engine.checkpoint_format import pack, unpack
from .engine.checkpoint_store import CheckpointStore
from .engine.context import LoopContext
from .engine.publisher import Publisher
from .explain.outcome import ClusterView
from .ha.election import TERMS, Terms
from .ha.replica import HaRole, Replica
from .metrics import SelfMetrics
from .signals.pods import Chosen, PodNumbers
from .tls import naming
from .workloads import Registry
from .workloads.pods import ReplicaCounts
from .workloads.unmatched import UnmatchedGpus, unmatched_gpus

if TYPE_CHECKING:
    from .engine.decider import Decider
    from .engine.loop import ControlLoop
    from .explain.document import DecisionExplainer
    from .telemetry import Telemetry


# Time for KEDA's load balancer to read NOT_SERVING before the streams end, and for calls under way to finish.
DRAIN_PAUSE_S = 0.5
DRAIN_GRACE_S = 5.0
# A replica is not ready before the first list: KEDA would count its refusals. A silent API server delays that by so
# much at most, because workloads of the configuration can be answered all the same.
LIST_WAIT_S = 5.0
# A registry of 10,000 workloads makes 100,000 objects and lets go of most of them half a second later. By default
# (700, 10, 10) they reach the oldest generation meanwhile, and each edited object costs a full collection: 0.4 s in
# which no call is answered. 1,000 young objects take 1 ms, the 3,000 of the middle generation 3 ms. Full collections
# look through some 6 objects per target (0.11 s with 20,000 targets) and find next to nothing: 15 objects in 90 s of
# 2,000 scrapes per second. So there is one in 18 million objects: a quarter of an hour at that rate.
COLLECTIONS = 1_000, 3, 6_000
# How much longer the first round of scrapes may take. The first response of a target takes 1.3 ms: 20,000 take 27 s.
FIRST_ROUND_S = 120.0
# Until every target has been scraped once, nearly all that is made stays: older generations would be looked through for
# nothing, the middle one in up to 50 ms.
START_COLLECTIONS = 10_000, 1_000_000, 1_000_000
# How often the configuration file is looked at. kubelet itself takes up to a minute to bring a new ConfigMap.
FILE_LOOK_S = 2.0


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the daemon listens, once it does."""

    http: int
    grpc: int
    metrics_api: int | None = None
    peers: int | None = None


class MissingExtra(Exception):  # noqa: N818 - named for what is at fault
    """An optional dependency that the configuration needs is not installed."""


def _telemetry(settings: Otlp, registry: CollectorRegistry, clock: Clock) -> Telemetry:
    """Raises MissingExtra."""
    try:
        from .telemetry import Telemetry  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise MissingExtra(f"otlp: needs pip install 'tidegate[otel]': {error}") from error
    return Telemetry(settings, registry, clock, version("tidegate"))


class Daemon:
    """One process's worth of Tidegate.

    replicas:    counts the replicas; by default the cluster if there is one.
    reload:      reads the configuration again; None where there is no file to read.
    changed:     whether there is a new configuration to read; called now and then.
    discoveries: the target discoveries of a configuration; None is the default.
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
        self._read_config, self._changed, self._discoveries = reload, changed, discoveries
        self._log = structlog.get_logger()
        self.publisher = Publisher(workload.key for workload in config.workloads)
        self._pages = HttpPages(HttpLimits(config.scrape.timeout, config.scrape.body_limit))
        self._promql = Promql(self._pages)
        self._redis = RedisPages(self._promql, clock, lambda: self._pages.limits.timeout_s, failure_log.of_redis)
        self._cluster: Cluster | None = None
        self._cluster_changed = asyncio.Event()
        if config.kubernetes is not None:
            self._cluster = Cluster(
                config.kubernetes.namespaces, blind_s=config.kubernetes.blind_after, on_change=self._cluster_changed.set
            )
        self.publisher.renew = self._renew
        self._registry = Registry()
        self._outcomes = ClusterView(lambda: self.publisher.board, lambda: self._registry, self._cluster, clock.now)
        self._authorizer = CallAuthorizer()
        self._metrics_server: kubeapi.MetricsServer | None = None
        self._replica: Replica | None = None
        if self._cluster is None:
            self._authorizer.take(ConfiguredWorkloads.by(config))
        self._health = HealthState(tick_s=config.tick, started_at=clock.now())
        self._wait_for_list_until = clock.now()  # the first tick sets it
        self._scraped_at = inf  # when every target is to have been scraped once: the first tick sets it
        self._reload_requested = asyncio.Event()
        self._loop: ControlLoop | None = None
        # GET /metrics?name[]=… asks for families by name.
        self.registry = registry = CollectorRegistry(auto_describe=True)
        self._self_metrics = SelfMetrics(registry)
        registry.register(BoardCollector(lambda: self.publisher.board, clock.now))
        self._delays = Delays()
        registry.register(ScrapeCollector(self._counters, self._delays))
        registry.register(web_accounts.AccountsCollector(self._decider, self._leads, clock.now, self._team))
        if self._cluster is not None:
            registry.register(ClusterCollector(self._cluster, lambda: self._registry.object_errors, clock.now))
            registry.register(OutcomeCollector(self._outcomes.all))
        self._checkpoints = CheckpointStore(config.state, clock)
        registry.register(CheckpointCollector(self._checkpoints, clock.now))
        self._telemetry = None if config.otlp is None else _telemetry(config.otlp, registry, clock)
        if config.listen.peers is not None:
            registry.register(ReplicaCollector(lambda: self._replica, clock.now))
        self._web = self._web_server(config, clock)
        self._self_metrics.reload_ok.set(1)
        self._self_metrics.reloaded_at.set(clock.now())

    async def run(self, stop: asyncio.Event, started: Callable[[Ports], None] = lambda _: None) -> None:
        """Serve until `stop` is set. Raises OSError if a port is taken, BadTlsFiles if
        certificates cannot serve, CannotConnect if it is not known how to ask the Kubernetes API.
        """
        keda = servers.keda(
            self._config, self.publisher, self._authorizer, self._clock.now, self._self_metrics.observe_call
        )
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
                    tasks.create_task(self._watch_file(), name="configuration file"),
                    tasks.create_task(overload.watch(self._web.lag), name="lag of the event loop"),
                    tasks.create_task(keda.check_answers(self._record_misses), name="check of the gRPC server"),
                    tasks.create_task(ask_cluster(), name="Kubernetes"),
                    tasks.create_task(self._checkpoints.keep(self._states), name="checkpoints"),
                ]
                if self._telemetry is not None:
                    work.append(tasks.create_task(self._telemetry.send_metrics(self._renew), name="metrics by OTLP"))
                started(ports)
                await stop.wait()
                self._health.draining = True
                keda.set_ready(False)
                self._log.info("draining")
                if replica is not None:
                    await replica.release()
                await asyncio.sleep(DRAIN_PAUSE_S)
                await keda.drain(DRAIN_GRACE_S)
                await self._checkpoints.write_last(self._states)
                for task in work:
                    task.cancel()
        finally:
            if metrics is not None:
                await metrics.stop()
            if replica is not None:
                await replica.stop()
            await keda.drain(0)
            await self._web.stop()
            self._checkpoints.close()
            if self._telemetry is not None:
                await self._telemetry.close()
            self._promql.close()
            await self._redis.close()
            await self._pages.close()
        self._log.info("stopped")

    def _team(self, workload: WorkloadKey) -> str | None:
        """The team of a workload, by a label of its scale target; None without one."""
        label, target = self._config.prices.team_label, self._registry.targets.get(workload)
        if label is None or target is None or self._cluster is None:
            return None
        return self._cluster.labels_of(target).get(label)

    def ask_reload(self) -> None:
        """Read the configuration again soon (SIGHUP)."""
        self._reload_requested.set()

    async def _work(self, keda: KedaServer) -> None:
        """Scrapes and ticks of the configuration in force, begun anew whenever it changes."""
        gc.set_threshold(*START_COLLECTIONS)
        # Compiling may take minutes on a busy machine: a terminal must not be silent until then.
        self._log.info("loading kernels", **compilation.settings())
        kernels = await asyncio.to_thread(compilation.load)
        report = {"compiled": kernels.compiled, "cached": kernels.cached, "seconds": round(kernels.seconds, 1)}
        self._log.info("kernels loaded", **report)
        loop_module = import_module("scaler.engine.loop")
        prepare_module = import_module("scaler.engine.prepare")
        context = LoopContext(
            clock=self._clock,
            pages=self._redis,
            promql=self._promql,
            redis=self._redis,
            publisher=self.publisher,
            self_metrics=self._self_metrics,
            on_tick=lambda now: self._ticked(keda, now),
            on_registry=self._take_registry,
            leads=self._leads,
            follows=self._follows,
            post=self._pages.command,
            cluster=self._cluster,
            moved=self._cluster_changed,
            replicas=self._replicas,
            discoveries=self._discoveries,
            unclaimed=await self._checkpoints.read(),
            delays=self._delays,
            trace=None if self._telemetry is None else self._telemetry.trace,
        )
        prepared = await prepare_module.prepare(self._config, context)
        while True:
            before = self._loop
            current = self._loop = loop_module.ControlLoop(self._config, context, before, prepared)
            if before is not None:
                before.forget()
            async with asyncio.TaskGroup() as tasks:
                working = tasks.create_task(current.run(), name="this configuration's scrapes and ticks")
                while not await self._reloaded():
                    pass
                # The old configuration's work goes on until the new one's is prepared.
                prepared = await prepare_module.prepare(self._config, context)
                prepared = await prepare_module.catch_up(prepared, self._config, context)
                working.cancel()
            prepared = await prepare_module.hand_over(prepared, current.decider)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Callable[[], Coroutine[Any, Any, None]]]:
        """Connects to Kubernetes; yields the task that keeps the cache up to date. Raises CannotConnect."""
        settings, cluster, jitter = self._config.kubernetes, self._cluster, Random()  # noqa: S311 - it is no secret
        if settings is None or cluster is None:
            yield _nothing
            return
        client = await connect(settings.kubeconfig, settings.context, jitter=jitter)

        async def ask() -> None:
            async with asyncio.TaskGroup() as tasks:
                if self._metrics_server is not None:
                    tasks.create_task(self._metrics_server.follow(client), name="metrics API authentication")
                if self._replica is not None:
                    tasks.create_task(self._replica.run(client), name="other replicas")
                events = servers.events(
                    self.publisher,
                    cluster,
                    lambda: self._registry.targets,
                    self._writes_events,
                    self._clock,
                    self._self_metrics,
                )
                tasks.create_task(events.run(client), name="Events")
                if self._config.listen.metrics_api is not None:
                    looking = self._watch_registration(client, self._config.listen.metrics_api)
                    tasks.create_task(looking, name="who is registered for the metrics API")
                watching = watch_all(
                    client,
                    cluster,
                    namespaces=settings.namespaces,
                    clock=self._clock,
                    on_problem=failure_log.of_kubernetes,
                    jitter=jitter,
                    more=() if self._config.sharing is None else SHARED,
                )
                tasks.create_task(watching, name="watches")

        try:
            yield ask
        finally:
            await client.close()

    def _watch_registration(self, services: ApiServices, served: MetricsApi) -> Coroutine[Any, Any, None]:
        name, _, namespace = (served.service or "").partition(".")
        service = ServiceReference(namespace, name) if name else None
        return registration.follow(
            services, self._clock, servers.groups(served), service, self._self_metrics.observe_registration
        )

    def _take_registry(self, registry: Registry | None) -> None:
        if self._metrics_server is not None:
            self._metrics_server.take(registry)
        if registry is None:
            self._authorizer.lose_sight()
            return
        self._registry = registry
        # Without the cluster's word for triggers, a call may name a configured workload and nothing else.
        watched = self._config.kubernetes is not None and self._config.kubernetes.triggers
        self._authorizer.take(registry if watched else ConfiguredWorkloads.by(self._config))

    def _record_misses(self, misses: int) -> None:
        self._health.misses = misses

    async def _watch_file(self) -> None:
        while True:
            await asyncio.sleep(FILE_LOOK_S)
            if self._changed():
                self.ask_reload()

    def _ticked(self, keda: KedaServer, now: float) -> None:
        if self._health.last_tick_at is None:
            # What is loaded by now stays. Most of its 170,000 objects are numba's: each full collection that looked
            # through them held the loop up for some 50 ms.
            gc.freeze()
            scrape = self._config.scrape
            self._scraped_at = now + LIST_WAIT_S + min(scrape.interval, START_SPREAD_S) + scrape.timeout
            self._wait_for_list_until = now + LIST_WAIT_S
        elif now >= self._scraped_at and (self._all_scraped() or now >= self._scraped_at + FIRST_ROUND_S):
            # Nor does what the first round of scrapes has made: full collections grew to 330 ms with 4,000 pods.
            gc.freeze()
            gc.set_threshold(*COLLECTIONS)
            self._scraped_at = inf
        self._health.last_tick_at = now
        self._health.unlisted = self._authorizer.triggers is None and now < self._wait_for_list_until
        if self._replica is not None:
            self._replica.tick(now)
            self._health.role = self._replica.role(now)
            self._health.hears_out = not self._replica.settled(now)
        if not self._health.draining and not self._health.hears_out and not self._health.unlisted:
            keda.set_ready(True)

    async def _reloaded(self) -> bool:
        """Waits for a reload request. Returns whether there is a new configuration."""
        await self._reload_requested.wait()
        self._reload_requested.clear()
        if self._read_config is None:
            return False
        try:
            config = await asyncio.to_thread(self._read_config)  # a thousand workloads take PyYAML two seconds
        except ConfigErrors as errors:
            self._self_metrics.reload_ok.set(0)
            for problem in errors.problems:
                self._log.error("configuration rejected", problem=str(problem))
            return False
        if (config.kubernetes is None) != (self._config.kubernetes is None):
            self._self_metrics.reload_ok.set(0)
            self._log.error(
                "configuration rejected", problem="kubernetes: cannot be added or removed without a restart"
            )
            return False
        if config.listen != self._config.listen:
            self._log.warning("restart required", key="listen")
        if config.otlp != self._config.otlp:
            self._log.warning("restart required", key="otlp")
        if _connection(config) != _connection(self._config):
            self._log.warning("restart required", key="kubernetes")
        self._checkpoints.reload(config.state)
        self._config = config
        self._pages.limits = HttpLimits(config.scrape.timeout, config.scrape.body_limit)
        self._self_metrics.reload_ok.set(1)
        self._self_metrics.reloaded_at.set(self._clock.now())
        self._log.info("configuration reloaded", workloads=len(config.workloads))
        return True

    def _new_metrics_server(self) -> kubeapi.MetricsServer | None:
        served, cluster = self._config.listen.metrics_api, self._cluster
        if served is None or cluster is None:  # a configuration with the one and without the other is refused
            return None
        sources = Sources(cluster, self._pods)
        return servers.metrics_api(served, self.publisher, sources, self._clock, self._self_metrics.observe_call)

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
                state=self._shared_state,
                on_state=self._follow_state,
                on_tls_problem=partial(failure_log.of_files, "listen.peers"),
                terms=self._terms,
            )

    def _leads(self, now: float) -> bool:
        """Whether this replica's accounts are published. With several replicas and no leader none are, because the
        accounts of two replicas would count twice.
        """
        return self._config.listen.peers is None or (
            self._replica is not None and self._replica.role(now) is HaRole.LEADER
        )

    def _follows(self, now: float) -> bool:
        return self._replica is not None and self._replica.role(now) is HaRole.FOLLOWER

    def _repeats(self) -> str | None:
        return None if self._replica is None else self._replica.followed_address

    # What the servers read from the control loop. Before the first one there is nothing to read.

    async def _states(self) -> Sequence[State]:
        """The state to checkpoint. If a reload replaces the loop meanwhile, that of the new loop."""
        while (loop := self._loop) is not None:
            states = await loop.states()
            if loop is self._loop:
                return states
        return []

    def _shared_state(self, workloads: Collection[WorkloadKey] | None) -> Callable[[], bytes]:
        """The state of these workloads, or of all, for a follower; a thread may pack it."""
        return bytes if self._loop is None else partial(pack, self._loop.share(workloads))

    async def _follow_state(self, packed: bytes, offset_s: float) -> None:
        """Replaces the state by the leader's. offset_s: this clock less the leader's."""
        state = await asyncio.to_thread(unpack, packed)
        if self._loop is not None:
            self._loop.follow_state(translated(state, offset_s))

    async def _renew(self) -> None:
        if self._loop is not None:
            await self._loop.renew()

    def _decider(self) -> Decider | None:
        return None if self._loop is None else self._loop.decider

    def _web_server(self, config: Config, clock: Clock) -> WebServer:
        explain = ExplainHandler(
            lambda: self.publisher.board, self._explainer, clock.now, self._repeats, self._outcomes.of
        )
        accounts = web_accounts.routes(
            self._decider, lambda: self._config.prices.accounted.gpu_hour, clock.now, self._team
        )
        return WebServer(
            host=config.listen.http.host,
            port=config.listen.http.port,
            board=lambda: self.publisher.board,
            health=self._health,
            renew=self.publisher.renew,
            shed=self._self_metrics.requests_shed.inc,
            registry=self.registry,
            now=clock.now,
            sources=RowSources(
                outcomes=self._outcomes.all if self._cluster is not None else lambda: tuple,
                unmatched=self._unmatched_gpus,
                placements=self._outcomes.placements,
                links=lambda: dict(self._config.links),
                delays=self._delays,
                scrapes=lambda: sum(each.scrapes for each in self._counters().values()),
            ),
            hosts=frozenset({*config.listen.http_hosts, gethostname().lower()}),
            more=(*explain.routes(), *accounts, *web_profiles.routes(self._decider, clock.now)),
        )

    def _unmatched_gpus(self) -> tuple[UnmatchedGpus, ...] | None:
        if (decider := self._decider()) is None:
            return None
        return unmatched_gpus(decider.latest.gpu_responses(), decider.owners, self._cluster)

    def _explainer(self) -> DecisionExplainer | None:
        from .explain.document import DecisionExplainer  # noqa: PLC0415 - compiles kernels

        return None if self._loop is None else DecisionExplainer(self._loop.decider)

    def _pods(self, namespace: str, chosen: Chosen, now: float) -> Mapping[PodKey, tuple[PodNumbers, ...]]:
        return {} if self._loop is None else self._loop.decider.latest.pods(namespace, chosen, now)

    def _all_scraped(self) -> bool:
        return all(each.scrapes for each in self._counters().values())

    def _counters(self) -> Mapping[Target, Counters]:
        return {} if self._loop is None else self._loop.counters


async def _nothing() -> None:
    pass


def _connection(config: Config) -> tuple[object, ...]:
    """The settings of `kubernetes` that cannot change without a restart."""
    settings = config.kubernetes
    return (
        () if settings is None else (settings.kubeconfig, settings.context, settings.namespaces, settings.blind_after)
    )
