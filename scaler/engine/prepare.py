"""Prepares a configuration off the event loop: parses the cluster's objects, plans workloads, finds target sources.

All of it is a function of the configuration and of what the cluster's objects say at one moment. Threads do the work
that follows the number of workloads, and the event loop does what follows the number of changes: while the control loop
runs, `update` says what a new registry changes.

Worked example: with 10,000 workloads `prepare` takes seconds in a thread, in which no call waits; `catch_up` then
parses the one object that was edited meanwhile, and `hand_over` copies the state of the decider before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from exporter.attribution import owners_by_name
from exporter.discovery import Discovery
from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.objects import Hpa, Scalable, ScaledObject
from scaler.columns import Rows
from scaler.config import Config, DcgmExporter
from scaler.policy.constraints import HourlyPrices
from scaler.workloads import ParsedObjects, Registry, ordered, take, targets
from scaler.workloads.pods import cluster_owners
from scaler.workloads.spec import WorkloadSpec
from scaler.workloads.targets import DiscoveryClients, SourceIndex, TargetSource

from .context import LoopContext
from .decider import Decider

# A renewal takes about a second with 10,000 workloads; each takes what has changed during the one before.
CATCH_UPS = 3

Objects: TypeAlias = tuple[tuple[ScaledObject, ...], tuple[Scalable, ...], tuple[Hpa, ...]]


class Prepared(NamedTuple):
    """A configuration applied to the objects of the cluster: registry, plans and places.

    objects:  those of `registry`. places: the target sources.
    decider:  of the workloads of `registry`; None: `ControlLoop` makes it.
    state_of: the decider that its state is from.
    """

    parsed: ParsedObjects
    plans: targets.Plans
    objects: Objects
    registry: Registry
    places: dict[TargetSource, Discovery]
    decider: Decider | None = None
    state_of: Decider | None = None

    @classmethod
    def of(cls, config: Config) -> Prepared:
        """Nothing is parsed yet but the configuration itself."""
        return cls(ParsedObjects(), targets.Plans(config), ((), (), ()), take(config, (), (), ()), {})

    def renewed(self, config: Config, objects: Objects) -> Prepared:
        """The same with a registry of these objects. Only those that have changed are parsed."""
        if objects == self.objects:
            return self
        return self._replace(objects=objects, registry=take(config, *objects, self.parsed), decider=None)

    def planned(self, registry: Registry) -> list[WorkloadSpec]:
        """The specs of the workloads of a registry. Only those that have changed are planned."""
        return self.plans.take(
            registry.workloads, ordered(registry), registry.tolerances, registry.jobs, registry.targets
        )


class Update(NamedTuple):
    """The changes that a new registry makes to a running control loop.

    plans:   of all its workloads. rows: those of which the decider's plans are replaced in place; None: all.
    decider: of the plans of `rows` alone, or of all plans; None: no plan differs.
    places:  where pages are looked for; None: where they were before. discoveries: those that `discoveries` finds.
    """

    prepared: Prepared
    plans: tuple[WorkloadSpec, ...]
    rows: Rows | None
    decider: Decider | None
    places: SourceIndex | None
    discoveries: dict[TargetSource, Discovery]


def update(
    config: Config,
    context: LoopContext,
    prepared: Prepared,
    before: Decider,
    last: Registry,
    previous: Mapping[TargetSource, Discovery],
) -> Update:
    """Computes what `prepared` changes. Takes time that follows the number of workloads, and changes no state.

    before: the decider of the control loop. last: its registry. previous: its discoveries.
    """
    registry = prepared.registry
    plans = tuple(prepared.planned(registry))
    places = targets.places(config, registry.workloads)
    found = Update(prepared, plans, None, None, None, {})
    if places != tuple(previous):
        found = found._replace(places=SourceIndex(places), discoveries=discoveries(places, config, context, previous))
    if registry.targets != last.targets:
        return found._replace(decider=new_decider(config, context, registry, plans))
    rows = replaceable(before.plans, plans)
    if rows is None:
        return found._replace(decider=new_decider(config, context, registry, plans))
    return found._replace(rows=rows, decider=before.of_plans(rows, plans) if len(rows) else None)


def replaceable(before: Sequence[WorkloadSpec], plans: Sequence[WorkloadSpec]) -> Rows | None:
    """The rows with different plans, if `Decider.replan` can replace them in place; else None.

    It cannot if workloads, scale targets, names of pods or groups change: these connect rows with each other.
    """
    if len(before) != len(plans):
        return None
    changed = [row for row, (old, new) in enumerate(zip(before, plans, strict=True)) if old is not new and old != new]
    if any(_connections(before[row]) != _connections(plans[row]) for row in changed):
        return None
    return np.array(changed, dtype=np.int64)


def _connections(plan: WorkloadSpec) -> tuple[object, ...]:
    shares = plan.member is not None and plan.spec.gateway
    return plan.workload, plan.target, plan.pod_pattern, plan.member, shares


def discoveries(
    places: Iterable[TargetSource], config: Config, context: LoopContext, previous: Mapping[TargetSource, Discovery]
) -> dict[TargetSource, Discovery]:
    """The known discovery of each of these places, or a new one; without the queues in Redis that are new.

    The event loop alone may connect to Redis.
    """
    lookers = DiscoveryClients(context.cluster, context.promql, context.redis)
    found: dict[TargetSource, Discovery] = {}
    for source in places:
        if source in previous:
            found[source] = previous[source]
        elif isinstance(source.page, DcgmExporter) or source.page.redis is None:
            found[source] = targets.discovery(source, config, lookers)
    return found


def new_decider(config: Config, context: LoopContext, registry: Registry, plans: Sequence[WorkloadSpec]) -> Decider:
    """A decider of these plans, without state."""
    by_name = owners_by_name({plan.workload: plan.pod_pattern for plan in plans})
    cluster = context.cluster
    return Decider(
        plans,
        interval_s=config.scrape.interval,
        fresh_intervals=config.freshness.intervals,
        owners=by_name if cluster is None else cluster_owners(cluster, registry.targets, by_name),
        pods=cluster,
        fleet=() if config.brake is None else (config.brake,),
        prices=HourlyPrices(config.prices.gpu_hour, config.prices.waiting_hour),
        log_bytes=config.explain.memory,
        gpu_hours=config.prices.accounted,
        tick_s=config.tick,
    )


async def prepare(config: Config, context: LoopContext) -> Prepared:
    """Parse and plan everything in a thread, so that no call waits: 10,000 workloads take seconds.

    What changes in the cluster meanwhile is left to `catch_up`.
    """

    def parse_and_plan(objects: Objects) -> Prepared:
        parsed, plans = ParsedObjects(), targets.Plans(config)
        registry = take(config, *objects, parsed)
        found = discoveries(targets.places(config, registry.workloads), config, context, {})
        prepared = Prepared(parsed, plans, objects, registry, found)
        return prepared._replace(decider=new_decider(config, context, registry, prepared.planned(registry)))

    try:
        return await asyncio.to_thread(parse_and_plan, objects_of(context.cluster))
    except Exception:  # noqa: BLE001 - a bug of ours in reading one object: ControlLoop meets it too, and logs it
        return Prepared.of(config)


async def catch_up(prepared: Prepared, config: Config, context: LoopContext) -> Prepared:
    """Parse in a thread what has changed in the cluster since `prepare`, until that is little."""

    def renewed(objects: Objects) -> Prepared:
        newer = prepared.renewed(config, objects)
        return newer._replace(decider=new_decider(config, context, newer.registry, newer.planned(newer.registry)))

    try:
        for _ in range(CATCH_UPS):
            objects = objects_of(context.cluster)
            if objects == prepared.objects:
                break
            prepared = await asyncio.to_thread(renewed, objects)
    except Exception:  # noqa: BLE001 - `ControlLoop` meets it too, and says so
        return prepared
    return prepared


async def hand_over(prepared: Prepared, before: Decider) -> Prepared:
    """Copy the state of the decider before in a thread; nothing may be decided there any more.

    With 10,000 workloads that is 400 MB, which takes 0.3 s.
    """
    if prepared.decider is not None:
        try:
            await asyncio.to_thread(prepared.decider.adopt, before)
        except Exception:  # noqa: BLE001 - `ControlLoop` tries again with a decider of its own, and fails aloud
            return prepared._replace(decider=None)
        return prepared._replace(state_of=before)
    return prepared


def objects_of(cluster: Cluster | None) -> Objects:
    """The objects that a registry is built from."""
    return ((), (), ()) if cluster is None else (cluster.scaled_objects(), cluster.scalables(), cluster.hpas())
