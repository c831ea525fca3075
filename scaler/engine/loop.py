"""Runs the control loop of one configuration: scrapes targets, sweeps once per tick, and follows the cluster's changes.

Importing this module compiles the kernels, which takes seconds without a cache on disk. So the daemon listens first and
imports it then, in a thread: KEDA's GetMetricSpec is answered meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

import structlog

from exporter import catalog
from exporter.budget import BODIES, SERIES, Budget
from exporter.catalog import Reader
from exporter.discovery import Discovery, Listing
from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.index import Changes
from exporter.kubernetes.objects import Ref
from exporter.kubernetes.resources import SCALEDJOBS, SCALEDOBJECTS
from exporter.model import Failure, FailureKind, Floats, ScrapeResult, Target, WorkloadKey
from exporter.scrape.loop import Counters, ScrapeLoop
from exporter.scrape.request import internal
from exporter.textformat import Scanner
from scaler.columns import State
from scaler.config import Config
from scaler.model import Decision
from scaler.workloads import Registry, targets
from scaler.workloads.pods import Counting
from scaler.workloads.supply_table import SupplySource
from scaler.workloads.targets import DiscoveryClients, SourceIndex, TargetSource

from . import failure_log
from .backfill import relive
from .cluster_counts import ClusterCounts, Counted
from .context import DecisionPass, LoopContext
from .decider import Decider
from .engine_calls import EngineCall, EngineCaller, allowed
from .failure_log import ExceptionLog
from .prepare import Objects, Prepared, Update, new_decider, objects_of, update

# The changes of a rollout of a thousand pods are handled a few times, not a thousand times.
LOOK_AGAIN_S = 0.2
# A registry of 10,000 workloads takes a thread 0.3 s: pauses are four times as long.
LOOKS_APART = 4.0
LOOKS_AT_ONCE = 10  # places without a pause: 1 ms each, if it has new pods
# What arrives within so many seconds is decided once. A decision costs 150 us for one response and 400 us for ten.
LANDING_WINDOW_S = 0.02
# Workloads that are copied at once: 5 MB, a few milliseconds.
COPIED_AT_ONCE = 1000
# Decisions that are built at once: 10 ms.
BUILT_AT_ONCE = 150


class ControlLoop:
    """The scrapes and ticks of one configuration. before: the control loop that hands over its state."""

    def __init__(
        self, config: Config, context: LoopContext, before: ControlLoop | None = None, prepared: Prepared | None = None
    ) -> None:
        """prepared: what `prepare` has made for this configuration; None: it is made here."""
        self.config = config
        self._context = context
        self._log = structlog.get_logger()
        self._broken = self._given_up = False
        self._series = Budget(SERIES)
        self._faults = ExceptionLog(context.self_metrics.internal_errors)
        self._is_synced = False  # whether the objects of the registry are known
        # A count says nothing of the configuration: those before stay, and only what changes is counted.
        counting: Counting = before._counts.counting if before else Counting(context.replicas, context.cluster)  # noqa: SLF001
        self._scaled: dict[Ref, list[WorkloadKey]] = {}
        sharing, hour = config.sharing, config.prices.accounted.hour
        gpu_supply = None if sharing is None else SupplySource(sharing.growth, hour)
        self._counts: ClusterCounts = ClusterCounts(
            counting, gpu_supply, context.cluster, self._counted, self._count_failed
        )
        self._loop = ScrapeLoop(
            discoveries=(),
            pages=context.pages,
            clock=context.clock,
            interval_s=config.scrape.interval,
            concurrency=config.scrape.concurrency,
            new_scanner=self._new_scanner,
            new_reader=self._new_reader,
            bodies=Budget(BODIES * config.scrape.body_limit),
            landed=self._arrive,
            listed=self._listed,
            added=self._added,
            retired=self._retired,
            faulted=self._faults.record,
            wake_interval_s=config.scrape.wake_interval,
            wake_rate=config.scrape.wake_rate,
            delays=context.delays,
        )
        for decision in context.publisher.local.decisions.values():
            self._loop.set_at_zero(decision.workload, at_zero=_is_at_zero(decision))
        self._readers_before = {} if before is None else before._loop.readers()  # noqa: SLF001 - its own kind
        self._caller = EngineCaller(context.post, context.clock, self._engine_called)
        if before is not None:
            self._caller.adopt(before._caller)  # noqa: SLF001 - its own kind
        self._arrivals: list[ScrapeResult] = []  # not decided yet
        self._arrived = asyncio.Event()
        self._failing: dict[Target, str] = {}
        self._failed_before = {} if before is None else before._failing  # noqa: SLF001 - its own kind
        self._to_backfill: asyncio.Queue[WorkloadKey] = asyncio.Queue()  # without backfill so far
        self._registry_changed = asyncio.Event()
        self._registry_changed.set()  # what changes in the cluster while a configuration is prepared is taken then
        last = None if before is None else before._decider  # noqa: SLF001 - its own kind
        self._prepared = Prepared.of(config) if prepared is None else prepared
        if self._prepared.decider is None or self._prepared.state_of is not last:
            self._prepared = self._renewed()
        self._registry = self._prepared.registry
        self._decider: Decider = self._prepared.decider or new_decider(
            config, context, self._registry, self._prepared.planned(self._registry)
        )
        if last is not None and self._prepared.state_of is not last:
            self._decider.adopt(last)
        self._prepared = self._prepared._replace(decider=None, state_of=None)
        self._discoveries: dict[TargetSource, Discovery] = {}
        self._follow_places(SourceIndex(targets.places(config, self._registry.workloads)), self._prepared.places)
        begun = self._decider.without_state_in(last)
        self._follow_workloads(last, begun)
        if not self._has_triggers() or (before is not None and before._is_synced):  # noqa: SLF001
            self._publish_registry(context.clock.now())
        if before is not None:
            self._count(self._uncounted(before._registry, begun))  # noqa: SLF001

    @property
    def counters(self) -> Mapping[Target, Counters]:
        return self._loop.counters

    @property
    def decider(self) -> Decider:
        """The decider, which keeps the accounting."""
        return self._decider

    def share(self, workloads: Collection[WorkloadKey] | None) -> State:
        """The state of these workloads, or of all, for another replica."""
        return self._decider.share(workloads, self._context.clock.now())

    def follow_state(self, state: State) -> None:
        """Takes the leader's state; keeps the state of workloads that are not registered here yet."""
        self._decider.follow_state(state, self._context.clock.now())
        self._restore_missing()
        self._context.unclaimed.keep(state.without({plan.workload for plan in self._decider.plans}))

    async def states(self) -> list[State]:
        """All that a restart must not lose: what is remembered, and what was kept of those who have not come yet. It is
        copied in parts, so that no call waits for the whole of it.
        """
        clock, kept = self._context.clock, self._context.unclaimed
        while True:
            decider = self._decider
            parts = []
            for first in range(0, len(decider.plans), COPIED_AT_ONCE):
                parts.append(decider.state(clock.now(), slice(first, first + COPIED_AT_ONCE)))
                await asyncio.sleep(0)
                if decider is not self._decider:
                    break  # another list of workloads: the rest of this one is obsolete
            else:
                return [*parts, *kept.rest(clock.now())]

    def forget(self) -> None:
        """Lets go of the state, which another control loop has now: callbacks make a cycle of this one, so that its
        memory (400 MB with 10,000 workloads) would be freed at the next full collection only.
        """
        self._prepared, self._registry, self._scaled = Prepared.of(self.config), Registry(), {}
        self._decider = new_decider(self.config, self._context, self._registry, ())
        self._places, self._discoveries = SourceIndex(()), {}

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._loop.run(), name="scrapes")
            tasks.create_task(self._land_forever(), name="landings")
            tasks.create_task(self._log_objects(), name="invalid objects")
            tasks.create_task(self._tick_forever(), name="ticks")
            tasks.create_task(self._backfill_forever(), name="backfill")
            tasks.create_task(self._caller.run(), name="engine calls")
            if self._context.cluster is not None:
                tasks.create_task(self._watch(self._context.cluster), name="cluster changes")
                tasks.create_task(self._register_forever(), name="registry")

    # The registry and the targets.

    async def _watch(self, cluster: Cluster) -> None:
        while True:
            await self._context.moved.wait()
            self._context.moved.clear()
            with self._faults.contain("cluster", "changes"):
                await self._follow_changes(cluster.take_changes())
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _follow_changes(self, changes: Changes) -> None:
        if changes.registry:
            self._registry_changed.set()
        moved = self._scaled.keys() if changes.synced else changes.targets & self._scaled.keys()
        await self._look(tuple(self._places.touched(changes)), tuple(moved))

    async def _register_forever(self) -> None:
        """A thread parses and compares; it takes a fifth of the time at most, however many objects are edited."""
        loop = asyncio.get_running_loop()
        while True:
            await self._registry_changed.wait()
            self._registry_changed.clear()
            began = loop.time()
            await self._register()
            await asyncio.sleep(max(LOOK_AGAIN_S, LOOKS_APART * (loop.time() - began)))

    async def _register(self) -> None:
        """Builds the registry in a thread and then applies its changes on the event loop."""
        context, prepared = self._context, self._prepared
        decider, registry, discoveries = self._decider, self._registry, self._discoveries
        listed = self._is_synced_at(context.clock.now())

        def compare(objects: Objects) -> Update | None:
            newer = prepared.renewed(self.config, objects)
            return (
                None
                if newer.registry == registry
                else update(self.config, context, newer, decider, registry, discoveries)
            )

        try:
            found = await asyncio.to_thread(compare, objects_of(context.cluster))
        except Exception:  # noqa: BLE001 - a bug of ours in reading one object must not cost everybody else's
            self._log_registry_failure()
            return
        if found is not None:
            with self._faults.contain("cluster", "workloads"):
                places = self._apply(found)
                await self._log_objects()
                await self._look(*places)
        if listed and not self._is_synced:
            self._publish_registry(context.clock.now())

    def _apply(self, found: Update) -> tuple[Sequence[TargetSource], Sequence[Ref]]:
        """The decider is made anew only if the list of workloads or what connects them has changed. For `_look`."""
        last, before = self._registry, self._decider
        self._prepared, self._registry = found.prepared, found.prepared.registry
        try:
            if found.rows is None and found.decider is not None:
                found.decider.take_over(before)
                self._decider = found.decider
            elif found.rows is not None and found.decider is not None:
                before.replan(found.plans, found.rows, found.decider)
        except Exception:
            self._registry = last  # the workloads of the last registry stay
            raise
        discoveries, registered = self._discoveries.keys(), set[WorkloadKey]()
        if found.places is not None:
            self._follow_places(found.places, found.discoveries)
        if found.rows is None:
            begun = self._decider.without_state_in(before)
            self._follow_workloads(before, begun)
            registered = self._uncounted(last, begun)
        elif len(found.rows):
            self._context.publisher.judge_again(self._decider.workloads[row] for row in found.rows.tolist())
        if self._is_synced:
            self._context.on_registry(self._registry)
        self._counts.register(registered, self._context.clock.now())  # before anything is decided
        new = () if found.places is None else self._discoveries.keys() - discoveries
        sources = {*new, *(source for each in registered for source in self._places.of(each))}
        return tuple(sources), [self._registry.targets[each] for each in registered & self._registry.targets.keys()]

    def _uncounted(self, last: Registry, begun: Iterable[WorkloadKey]) -> set[WorkloadKey]:
        """The workloads without a count that stands: they have no state, or another scale target than in `last`."""
        targets = self._registry.targets
        return {*begun, *(each for each in self._decider.workloads if last.targets.get(each) != targets.get(each))}

    async def _look(self, sources: Sequence[TargetSource], moved: Sequence[Ref]) -> None:
        """Looks for the targets of `sources`, and how far the pods of `moved` have come, some at a time."""
        cluster, discoveries = self._context.cluster, self._discoveries
        for begin in range(0, max(len(sources), len(moved)), LOOKS_AT_ONCE):
            for source in sources[begin : begin + LOOKS_AT_ONCE]:
                self._loop.look(discoveries[source])  # not if it is gone meanwhile
            now = self._context.clock.now()
            for ref in moved[begin : begin + LOOKS_AT_ONCE]:
                pods = None if cluster is None else cluster.leaders_of(ref, now)
                for workload in self._scaled.get(ref, ()) if pods is not None else ():
                    with self._faults.contain("cluster", workload):
                        self._decider.started(workload, pods or (), now)
            await asyncio.sleep(0)

    def _renewed(self) -> Prepared:
        """With a registry of the objects as they are now. A fault in one object must not cost all others."""
        try:
            return self._prepared.renewed(self.config, objects_of(self._context.cluster))
        except Exception:  # noqa: BLE001 - a bug of ours in reading one object
            self._log_registry_failure()
            return self._prepared

    def _log_registry_failure(self) -> None:
        self._context.self_metrics.internal_errors.labels("cluster").inc()
        self._log.exception("registry update failed")

    def _follow_places(self, places: SourceIndex, discoveries: Mapping[TargetSource, Discovery]) -> None:
        """Looks for targets at these places. discoveries: of most of them."""
        context = self._context
        if context.discoveries is not None:
            self._places, self._discoveries = SourceIndex(()), {}
            self._loop.follow(context.discoveries(self.config))
            return
        self._places, self._discoveries = places, dict(discoveries)
        if tuple(discoveries) != places.places:
            lookers = DiscoveryClients(context.cluster, context.promql, context.redis)
            self._discoveries = {
                each: discoveries.get(each) or targets.discovery(each, self.config, lookers) for each in places.places
            }
        self._loop.follow(self._discoveries.values())

    def _follow_workloads(self, before: Decider | None, begun: Collection[WorkloadKey]) -> None:
        """Replaces the list of workloads everywhere. begun: those without state in `before`, the decider before."""
        context, workloads = self._context, self._decider.workloads
        self._scaled = {}
        for workload, ref in self._registry.targets.items():
            self._scaled.setdefault(ref, []).append(workload)
        for state in context.unclaimed.claim(begun):
            self._decider.restore(state, context.clock.now())
        self._restore_missing()
        for workload in begun:
            self._to_backfill.put_nowait(workload)
        for workload in set(begun).intersection(() if before is None else before.workloads):
            self._log.info("scale target changed", workload=str(workload), target=str(self._registry.targets[workload]))
        context.refused &= set(workloads)
        context.publisher.admits = self._admits
        context.publisher.keep_only(workloads, context.publisher.local.at, begun=begun)
        self._loop.keep_at_zero(workloads)

    def _admits(self, decision: Decision) -> bool:
        """Whether the leader's decision may be repeated here. One line when a workload's is refused first."""
        admitted, refused = self._decider.could_answer(decision), self._context.refused
        if admitted:
            refused.discard(decision.workload)
        elif decision.workload not in refused:
            refused.add(decision.workload)
            workload, replicas = str(decision.workload), decision.replicas
            self._log.warning(
                "leader decision refused", workload=workload, replicas=replicas, published=decision.published
            )
        return admitted

    def _publish_registry(self, now: float) -> None:
        """Reports the registry that calls are checked against; None before the first list of triggers."""
        self._is_synced = self._is_synced_at(now)
        if self._is_synced:
            self._context.on_registry(self._registry)

    def _check_sync(self, now: float) -> None:
        """Publishes that the registry is stale. Once the objects are listed again, the registry is built before it is
        published: one that was built before the first list has no objects, and would refuse every caller.
        """
        if self._is_synced and not self._is_synced_at(now):
            self._is_synced = False
            self._context.on_registry(None)
        elif not self._is_synced and self._is_synced_at(now):
            self._registry_changed.set()

    def _has_triggers(self) -> bool:
        settings = self.config.kubernetes
        return self._context.cluster is not None and settings is not None and settings.triggers

    def _is_synced_at(self, now: float) -> bool:
        cluster = self._context.cluster
        if cluster is None or not self._has_triggers():
            return True
        return all(cluster.settled(resource, now) for resource in (SCALEDOBJECTS, SCALEDJOBS))

    async def _log_objects(self) -> None:
        """Logs one line when an object becomes invalid, and one when it is fixed. After each, others may run."""
        now, before = frozenset(map(str, self._registry.object_errors)), self._context.object_errors
        self._context.object_errors = now
        for problem in sorted(now - before):
            self._log.warning("invalid object", problem=problem)
            await asyncio.sleep(0)
        for problem in sorted(before - now):
            self._log.info("invalid object resolved", problem=problem)
            await asyncio.sleep(0)

    # Backfill.

    async def _backfill_forever(self) -> None:
        """One workload after the other: a thousand are a thousand queries to a Prometheus."""
        while True:
            workload = await self._to_backfill.get()
            with self._faults.contain("backfill", workload):
                await self._backfill(workload)

    async def _backfill(self, workload: WorkloadKey) -> None:
        plan, found = self._decider.plan(workload), [self._discoveries[source] for source in self._places.of(workload)]
        relived = None if plan is None else await relive(plan, found, self.config, self._context.clock.now())
        if relived is not None:
            self._decider.remember(relived)

    # Ticks.

    async def _tick_forever(self) -> None:
        """Never two at once: the next begins when this one has ended."""
        clock = self._context.clock
        while True:
            await self._counts.prepare(clock.now())
            began = clock.now()
            with self._context.self_metrics.tick_seconds.time():
                for _ in self._tick_parts(began):
                    await asyncio.sleep(0)
            await clock.sleep(max(0.0, began + self.config.tick - clock.now()))

    def tick(self, now: float) -> None:
        """Decides all workloads. If it fails, the last Board stays and the failure is logged."""
        for _ in self._tick_parts(now):
            pass

    def _tick_parts(self, now: float) -> Iterator[None]:
        """As `tick`; between the parts others may run. All is decided in the first; each publishes some Decisions."""
        publisher = self._context.publisher
        try:
            self._check_sync(now)
            self._counts.tick(now)
            if self._given_up:
                self._decider.forget_answers()  # those of scrapes since then are not published either
            decider = self._decider
            changed = decider.sweep(now, leads=self._context.leads(now), most=BUILT_AT_ONCE)
            decided_at = self._context.clock.now()
            self._publish(changed, now)
            self._call_engines(now)
            while True:
                yield
                if decider is not self._decider:
                    return  # the next tick of the new list publishes the rest
                if not (rest := decider.rest(BUILT_AT_ONCE)):
                    break
                self._publish(rest, now)
                changed += rest
            self._trace("tick", (), now, decided_at, changed)
            for workload, brake in self._decider.ended_brakes():
                self._log.info("brake ended", workload=str(workload or "all"), brake=str(brake))
        except Exception:  # noqa: BLE001 - a bug that costs every tick shows in liveness, not in a silent zero
            self._context.self_metrics.ticks_failed.inc()
            if not self._broken:
                self._log.exception("tick failed")
            self._broken = True
            if now - publisher.local.at > self.config.freshness.hold:
                publisher.give_up(now)
                self._given_up = True
            return
        if self._broken:
            self._log.info("tick recovered")
        self._broken = self._given_up = False
        self._context.on_tick(now)

    def _counted(self) -> Counted:
        return Counted(self._decider, self._scaled, self._registry.targets)

    def _count(self, workloads: Collection[WorkloadKey]) -> None:
        """Their replicas, as they are now."""
        self._counts.count(workloads, self._context.clock.now())

    def _count_failed(self) -> None:
        self._context.self_metrics.internal_errors.labels("discovery").inc()

    async def renew(self) -> None:
        """Publishes the evidence of the last tick. If that fails, the evidence from before stays."""
        with self._faults.contain("evidence", "renewal"):
            while not self._given_up and (renewed := self._decider.renew(BUILT_AT_ONCE)):
                self._publish(renewed, self._context.publisher.local.at)
                await asyncio.sleep(0)  # KEDA's calls

    # Scrapes.

    def _arrive(self, scrapes: Sequence[ScrapeResult]) -> None:
        self._arrivals += scrapes
        self._arrived.set()

    async def _land_forever(self) -> None:
        """Decides once for all scrapes of a window, which begins with the first of them."""
        while True:
            await self._arrived.wait()
            await self._context.clock.sleep(LANDING_WINDOW_S)
            self._arrived.clear()
            arrivals, self._arrivals = self._arrivals, []
            # Without targets that have been retired since they arrived.
            with self._faults.contain("response", "landing"):
                self._landed([scrape for scrape in arrivals if scrape.target in self._loop.counters])

    def _landed(self, scrapes: Sequence[ScrapeResult]) -> None:
        for scrape in scrapes:
            failure_log.of_scrape(self._failing, scrape)
            if isinstance(scrape.outcome, Failure):
                if scrape.outcome.kind is FailureKind.INTERNAL:
                    self._decider.distrust(scrape.target)
                self._decider.missed(scrape.target)
        landings = [(s.target, s.outcome, s.at) for s in scrapes if not isinstance(s.outcome, Failure)]
        now = self._context.clock.now()
        try:
            changed = self._decider.land_together(landings, now) if landings else []
            for target, *_ in landings:
                self._faults.resolve("response", target)
        except Exception:  # noqa: BLE001 - one by one shows which of them it is
            changed = [decision for scrape in scrapes for decision in self._land_alone(scrape, now)]
        self._call_engines(now)
        # What no tick could take down again is no answer: after giving up, the next one that works gives them all.
        if changed and not self._given_up:
            decided_at = self._context.clock.now()
            self._publish(changed, self._context.publisher.local.at)
            self._trace("scrape", scrapes, now, decided_at, changed)

    def _call_engines(self, now: float) -> None:
        """Makes the calls of engines that are due, if this replica is to make them."""
        due = self._decider.sleep.calls()
        if due:
            context = self._context
            self._caller.order(allowed(due, leads=context.leads(now), wakes=not context.follows(now)))

    def _engine_called(self, call: EngineCall, took_s: float, failure: Failure | None) -> None:
        self._context.self_metrics.engine_calls.labels(call.action, "ok" if failure is None else failure.kind).inc()
        why = None if failure is None else f"POST /{call.action} of {call.target.named} failed: {failure.detail}"
        self._decider.sleep.called(call.workload, call.action, took_s, why)
        if failure is None:
            self._loop.ask_again(call.workload)

    def _land_alone(self, scrape: ScrapeResult, now: float) -> list[Decision]:
        """A response that raises costs itself: its target counts as stale, so its workload is held."""
        target, samples = scrape.target, scrape.outcome
        if isinstance(samples, Failure):
            return []
        try:
            changed = self._decider.land(target, samples, scrape.at, now)
        except Exception as error:  # noqa: BLE001 - see above
            self._faults.record("response", target, error)
            self._loop.reject(scrape, internal(error))
            self._decider.distrust(target)
            return []
        self._faults.resolve("response", target)
        return changed

    def _publish(self, changed: Sequence[Decision], at: float) -> None:
        self._context.publisher.publish(changed, at)
        for decision in changed:
            self._loop.set_at_zero(decision.workload, at_zero=_is_at_zero(decision))

    def _trace(
        self, cause: str, scrapes: Sequence[ScrapeResult], now: float, decided_at: float, changed: Sequence[Decision]
    ) -> None:
        """now: when the pass began."""
        trace = self._context.trace
        if trace is not None and changed:
            trace(DecisionPass(cause, scrapes, now, decided_at, self._context.clock.now(), changed))

    def _listed(self, discovery: Discovery, listing: Listing | None) -> None:
        if discovery.owner is None:
            return
        # A listing must not meet the last tick's count: "no pods" and "one is ready" would look like an outage, which
        # would wake a workload that has just gone to sleep.
        self._count((discovery.owner,))
        if listing is None:
            self._decider.listed(discovery.owner, None)
        else:
            self._decider.listed(discovery.owner, listing.due, listing.leaving)

    def _added(self, target: Target) -> None:
        self._decider.expect(target)
        if target in self._failed_before:
            self._failing[target] = self._failed_before.pop(target)

    def _new_scanner(self, target: Target) -> Scanner:
        """Returns a scanner that reads the buckets next to the SLO of the target's workload, as it is then."""
        return Scanner(catalog.selection(), self._series, partial(self._ranges, target.owner))

    def _ranges(self, workload: WorkloadKey | None) -> Floats:
        plan = None if workload is None else self._decider.plan(workload)
        return catalog.bucket_ranges(None if plan is None else plan.spec.slo)

    def _new_reader(self, target: Target) -> Reader:
        """Returns the target's reader. Across a reload it keeps its reader, which knows the exposed series."""
        reader = self._readers_before.pop(target, None) or Reader(target.kind)
        reader.restore(self._decider.latest.open_gaps.begin(target))
        return reader

    def _restore_missing(self) -> None:
        for target, missing in self._decider.latest.open_gaps.take_due():
            self._loop.restore(target, missing)

    def _retired(self, target: Target) -> None:
        self._failing.pop(target, None)
        self._faults.resolve("response", target)
        self._decider.retire(target)
        self._caller.forget(target)


def _is_at_zero(decision: Decision) -> bool:
    """Whether a workload has no replica that serves and is to have none: then its gateway alone shows the next request.
    While one still runs, its gateway is scraped with it.
    """
    if decision.evidence.sleep_tier == "asleep":
        return True
    return decision.replicas is not None and not decision.active and not decision.evidence.replicas_wanted
