"""Turns workloads into discoveries of their targets, and into the specs that the decider needs.

A `TargetSource` is where the targets of one kind are found, for one workload; a `Discovery` finds them. A source that
stays keeps its discovery, so a workload that comes or goes does not disturb the targets of others.

Worked example: a workload with `pods: {target: Deployment/chat}` and `gateway: {service: epp}` has two sources; the
first becomes a `PodTargets` on the cluster's cache, the second a `ServiceTargets`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from math import inf, nan
from types import MappingProxyType
from typing import NamedTuple

from exporter.catalog import KINDS
from exporter.discovery import Discovery
from exporter.discovery.dns import DnsTargets, StaticTargets
from exporter.discovery.kubernetes import GpuExporterTargets, PodTargets, ServiceTargets
from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.index import Changes
from exporter.kubernetes.objects import Ref
from exporter.model import Credentials, Role, Target, WorkloadKey
from exporter.sources import redis
from exporter.sources.promql import Promql, PromqlQuery, PromqlTargets
from scaler.config import Config, DcgmExporter, Endpoint, Redis, Workload
from scaler.config.endpoint import admission
from scaler.config.scalars import AUTO, GPUS, PRICE
from scaler.config.trigger import TriggerWorkload
from scaler.config.validate_workload import FEWEST_READINGS
from scaler.config.workload import GpuShare, for_jobs
from scaler.policy.columns import Signal, Spec
from scaler.policy.constraints import KeepWarmConfig
from scaler.policy.estimators.sleep_plan import SleepConfig
from scaler.policy.groups import BY_PRICE, Membership
from scaler.policy.overrides import WorkloadOverrides
from scaler.signals.smoothing import HalfLives

from .spec import WorkloadSpec

# Without state the smoothed demand is that of the first response, until what came before it could not weigh more than
# a quarter: two half-lives of the fall. At least a minute, for a gateway that is slow to start.
YOUNG_S, YOUNG_HALF_LIVES = 60.0, 2.0


class TargetSource(NamedTuple):
    """Where the targets of one kind are found.

    page:      how they are found; a `DcgmExporter` stands for all of the cluster.
    owner:     the workload of the queue that they expose; None for GPUs.
    namespace: of names without one.
    """

    page: Endpoint | DcgmExporter
    kind: str
    role: Role
    owner: WorkloadKey | None = None
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class DiscoveryClients:
    """The clients that discoveries use; None if the configuration has no use for one."""

    cluster: Cluster | None
    promql: Promql
    redis: redis.RedisPages | None = None


def places(config: Config, workloads: Iterable[Workload]) -> tuple[TargetSource, ...]:
    """Returns the target sources of a configuration and its workloads."""
    found = [TargetSource(page, kind, Role.GPUS) for page, kind in zip(config.gpus, config.gpu_kinds, strict=True)]
    if config.gpu_search is not None:
        found.append(TargetSource(config.gpu_search, GPUS, Role.GPUS))
    for workload in workloads:
        where = workload.key, workload.namespace
        if workload.pods is not None:
            kind = workload.pods.kind or workload.engine or "auto"
            found.append(TargetSource(workload.pods, kind, Role.PODS, *where))
        if workload.gateway is not None:
            found.append(TargetSource(workload.gateway, workload.gateway_kind, Role.GATEWAY, *where))
    return tuple(found)


def discovery(source: TargetSource, config: Config, lookers: DiscoveryClients) -> Discovery:
    """Returns the discovery of a source. config: a validated one, so that a source in the cluster has a cluster."""
    page = source.page
    if isinstance(page, DcgmExporter):
        return GpuExporterTargets(_of(lookers), _exporter_at(page), namespaces=frozenset(page.namespaces))
    lists_pods = source.owner if source.role is Role.PODS else None
    access = page.admission(source.namespace)
    if page.target is not None:
        kind, _, name = page.target.partition("/")
        return PodTargets(
            _of(lookers), Ref(source.namespace, kind, name), _address_at(source, page, access), lists_pods
        )
    if (service := page.service_in(source.namespace)) is not None:
        return ServiceTargets(_of(lookers), *service, _endpoint_at(source, page, access), lists_pods)
    if page.prometheus is not None:
        query = PromqlQuery(
            url=page.prometheus.url,
            kind=source.kind,
            role=source.role,
            owner=source.owner,
            selector=page.prometheus.selector or "",
            max_age_s=page.prometheus.max_age,
            access=access,
        )
        return PromqlTargets(lookers.promql, query, keep_s=config.fresh_for)
    if page.redis is not None:
        queues = redis_query(page.redis, access)
        return StaticTargets([_of_redis(lookers).target(queues, source.owner)], owner=lists_pods)
    target_at = _address_at(source, page, access)
    if page.dns is not None:
        timeout_s, keep_s = config.scrape.timeout, config.fresh_for
        return DnsTargets(page.dns, target_at, owner=lists_pods, timeout_s=timeout_s, keep_s=keep_s)
    targets = (Target(url, source.kind, source.role, source.owner, access) for url in page.pages(source.kind))
    return StaticTargets(targets, owner=lists_pods)


def _of(lookers: DiscoveryClients) -> Cluster:
    if lookers.cluster is None:
        raise AssertionError("a target source in the cluster, and no cluster: the configuration was not validated")
    return lookers.cluster


def _of_redis(lookers: DiscoveryClients) -> redis.RedisPages:
    if lookers.redis is None:
        raise AssertionError("a queue in Redis, and no client: see Lookers")
    return lookers.redis


def redis_query(settings: Redis, access: Credentials) -> redis.RedisQuery:
    """The query of Redis for a queue. access: credentials of the servers."""
    way = redis.Way.SENTINEL if settings.sentinels else redis.Way.CLUSTER if settings.cluster else redis.Way.SERVER
    behind = settings.sentinel_access
    servers = redis.Servers(
        way=way,
        addresses=settings.addresses,
        tls=settings.is_tls,
        master=settings.master or "",
        db=settings.database,
        access=access,
        sentinel_access=access if behind is None else admission(behind),
    )
    running = settings.running
    kinds = (("list", running.lists), ("set", running.sets), ("hash", running.hashes), ("zset", running.sorted_sets))
    return redis.RedisQuery(
        servers,
        lists=settings.lists,
        celery=settings.celery,
        sorted_sets=settings.sorted_sets,
        delayed=tuple(redis.Due(each.key, _PER_S[each.scores]) for each in settings.delayed),
        streams=tuple(redis.Stream(each.key, each.group) for each in settings.streams),
        running=tuple(redis.Size(key, kind) for kind, keys in kinds for key in keys),
    )


_PER_S = {"seconds": 1.0, "milliseconds": 1000.0}


def _address_at(source: TargetSource, page: Endpoint, access: Credentials) -> Callable[[str], Target]:
    def target(address: str) -> Target:
        return Target(page.page_at(address, source.kind), source.kind, source.role, source.owner, access)

    return target


def _endpoint_at(
    source: TargetSource, page: Endpoint, access: Credentials
) -> Callable[[str, Mapping[str, int]], Target]:
    target_at = _address_at(source, page, access)

    # A Service's ports are those of its requests; its pages are on the kind's own port, or where the page says.
    def target(address: str, _ports: Mapping[str, int]) -> Target:
        return target_at(address)

    return target


def _exporter_at(page: DcgmExporter) -> Callable[[str, int], Target]:
    def target(address: str, port: int) -> Target:
        return Target(page.page_at(address, port), GPUS, Role.GPUS, access=page.admission())

    return target


class _PlanInputs(NamedTuple):
    """The inputs of a plan beside the configuration. target: "" if unknown."""

    workload: Workload
    ordered: WorkloadOverrides
    tolerance: float
    jobs: bool
    target: str


class Plans:
    """Caches the spec of each workload, one per version of its inputs."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._planned: dict[WorkloadKey, tuple[_PlanInputs, WorkloadSpec]] = {}

    def take(
        self,
        workloads: Iterable[Workload],
        orders: Iterable[WorkloadOverrides] = repeat(WorkloadOverrides()),
        tolerances: Mapping[WorkloadKey, float] = MappingProxyType({}),
        jobs: Collection[WorkloadKey] = frozenset(),
        targets: Mapping[WorkloadKey, Ref] = MappingProxyType({}),
    ) -> list[WorkloadSpec]:
        """The plans of these workloads, in their order; plans of other workloads are forgotten.

        orders:     the overrides of each, in the same order.
        tolerances: ratios of the HPAs that set one; the others have the configuration's.
        jobs:       those with the Jobs of a ScaledJob as replicas.
        targets:    what each scales, where that is known.
        """
        before, self._planned = self._planned, {}
        for workload, ordered in zip(workloads, orders, strict=False):
            key, target = workload.key, targets.get(workload.key)
            tolerance, scaled = tolerances.get(key, workload.hpa_tolerance), _target_name(target)
            inputs = _PlanInputs(workload, ordered, tolerance, key in jobs, scaled)
            planned = before.get(key)
            self._planned[key] = (
                planned if planned is not None and planned[0] == inputs else (inputs, self._plan(inputs))
            )
        return [plan for _, plan in self._planned.values()]

    def _plan(self, inputs: _PlanInputs) -> WorkloadSpec:
        make = _plan_of_jobs if inputs.jobs else _plan
        return replace(make(self._config, inputs.workload, inputs.ordered, inputs.tolerance), target=inputs.target)


def _target_name(target: Ref | None) -> str:
    return "" if target is None else f"{target.kind}/{target.name}"


def _plan(config: Config, workload: Workload, ordered: WorkloadOverrides, tolerance: float) -> WorkloadSpec:
    objectives: Mapping[Signal, float | None] = {
        Signal.WORK: workload.work,
        Signal.KV_CACHE: workload.objectives.kv_cache if workload.pods is not None else None,
        Signal.GPU_ENGINE: workload.objectives.gpu_engine,
        Signal.SLO: 1.0 if workload.sized_by_slo or workload.sized_by_time else None,
    }
    sized_by = {signal: target for signal, target in objectives.items() if target is not None}
    slo = workload.latency
    return WorkloadSpec(
        workload=workload.key,
        spec=Spec(
            minimum=workload.replicas.min,
            maximum=workload.replicas.max,
            sleeps=workload.replicas.sleeps,
            targets=tuple(sized_by.items()),
            keep_warm=max(workload.constant_keep_warm, FEWEST_READINGS * config.scrape.interval),
            hold=config.freshness.hold,
            impute_after=config.freshness.impute_after,
            settle=config.scrape.interval + config.scrape.timeout,  # asked within the one, it has the other to answer
            band=workload.scale_down_band if workload.start_within is None else 0.0,  # that has a hold of its own
            gpu_quiet=workload.gpu_quiet,
            pods=workload.pods is not None,
            fixed=workload.pods is not None and (workload.pods.url or workload.pods.urls) is not None,
            gateway=workload.gateway is not None,
            young=_young(config, workload),
            wakes_blind=workload.on_blind == "wake",
            holds_incomplete=workload.on_incomplete == "hold",
            lease_max=workload.lease_max,
            ttft=None if slo is None else slo.ttft,
            itl=None if slo is None else slo.itl,
            start_within=workload.start_within,
            falls_back=Signal.SLO in sized_by and workload.objectives.work is None,
            by_time=workload.sized_by_time,
        ),
        smoothing=HalfLives(up_s=workload.smoothing.up, down_s=workload.smoothing.down),
        queue=workload.model,
        pod_pattern=workload.pod_pattern,
        observed=config.observes(workload),
        member=_membership(workload, observed=config.observes(workload)),
        ordered=ordered,
        teaching=_teaching(workload, config),
        probe_period=workload.probe_period,
        tolerance=tolerance,
        gpu_hour=workload.gpu_hour,
        share=_share(config, workload),
        sleep=_sleep(config, workload),
        slo_unsized="" if workload.engine is None else KINDS[workload.engine].unsized,
    )


def _plan_of_jobs(config: Config, workload: Workload, ordered: WorkloadOverrides, tolerance: float) -> WorkloadSpec:
    """Unset keys are as in `for_jobs`: the decision is the work in hand, and no replica is kept warm."""
    written = for_jobs(workload)
    plan = _plan(config, written, ordered, tolerance)
    keep_warm = plan.spec.keep_warm if written.keep_warm else 0.0
    # A Job takes one request, and a number that counts arrivals would start Jobs for requests that others have taken.
    targets = tuple((signal, target) for signal, target in plan.spec.targets if signal is not Signal.SLO)
    unsized = replace(
        plan.spec, targets=targets, ttft=None, itl=None, start_within=None, falls_back=False, by_time=False
    )
    return replace(plan, spec=replace(unsized, keep_warm=keep_warm, young=0.0, jobs=True), sleep=None)


def _teaching(workload: Workload, config: Config) -> KeepWarmConfig:
    """A workload that never sleeps learns nothing; a learned time is never too short to prove idleness."""
    proven = FEWEST_READINGS * config.scrape.interval
    return KeepWarmConfig(
        learns=workload.learns_keep_warm and workload.replicas.sleeps,
        lowest=max(workload.keep_warm_min, proven),
        highest=max(workload.keep_warm_max, proven),
    )


def _young(config: Config, workload: Workload) -> float:
    if config.freshness.at_start is not None:
        return config.freshness.at_start
    return max(YOUNG_S, YOUNG_HALF_LIVES * workload.smoothing.down)


def _share(config: Config, workload: Workload) -> GpuShare:
    """The priority of a workload that a tenant defines is bounded."""
    share, sharing = workload.share, config.sharing
    if sharing is None or not isinstance(workload, TriggerWorkload) or share.priority <= sharing.max_priority:
        return share
    return GpuShare(priority=sharing.max_priority, weight=share.weight)


def _sleep(config: Config, workload: Workload) -> SleepConfig | None:
    mode = workload.sleep_mode
    if mode is None:
        return None
    return SleepConfig(
        share=mode.gpu_share,
        after=None if mode.after == AUTO else mode.after,
        earliest=FEWEST_READINGS * config.scrape.interval,
        timeout=mode.timeout if mode.calls and not config.observes(workload) else None,
    )


def _membership(workload: Workload, *, observed: bool) -> Membership | None:
    if workload.group is None:
        return None
    role, weight, order = workload.role or "", workload.weight, workload.order
    member = Membership(workload.namespace, workload.group, role, weight, observed=observed)
    if order == PRICE:
        member = replace(member, order=BY_PRICE, holds=workload.objectives.work or nan)
    else:
        member = replace(member, order=order)
    ratio = workload.ratio
    if ratio is None:
        return member
    return replace(member, to=ratio.to, least=ratio.min, most=inf if ratio.max is None else ratio.max)


class SourceIndex:
    """Indexes target sources by what may change them, so that a change is compared with these alone."""

    def __init__(self, places: Iterable[TargetSource]) -> None:
        self.places = tuple(places)
        self._owned: dict[WorkloadKey, list[TargetSource]] = {}
        self._scaled: dict[tuple[str, str, str], list[TargetSource]] = {}
        self._served: dict[tuple[str, str], list[TargetSource]] = {}
        self._exporters: list[TargetSource] = []
        for source in self.places:
            if source.owner is not None:
                self._owned.setdefault(source.owner, []).append(source)
            if isinstance(source.page, DcgmExporter):
                self._exporters.append(source)
            elif source.page.target is not None:
                kind, _, name = source.page.target.partition("/")
                self._scaled.setdefault((source.namespace, kind, name), []).append(source)
            elif (service := source.page.service_in(source.namespace)) is not None:
                self._served.setdefault(service, []).append(source)

    def of(self, owner: WorkloadKey) -> Sequence[TargetSource]:
        """The sources of one workload."""
        return self._owned.get(owner, ())

    def touched(self, changes: Changes) -> list[TargetSource]:
        """The sources that a change of the cluster may concern."""
        if changes.synced:
            return list(self.places)
        found = list(self._exporters) if changes.exporters else []
        for ref in changes.targets:
            found += self._scaled.get(ref, ())
        for service in changes.services:
            found += self._served.get(service, ())
        return found
