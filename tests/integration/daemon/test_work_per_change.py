"""The event loop's work is proportional to the changes in the cluster, not to its size: bounded by counts, never by
time.
"""

import asyncio
import gc
from collections import Counter
from dataclasses import replace
from threading import current_thread
from weakref import ref

import numpy as np
import pytest
from structlog.testing import capture_logs

from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.resources import PODS, RESOURCES, SCALEDOBJECTS
from exporter.model import WorkloadKey
from exporter.scrape.loop import ScrapeLoop
from exporter.sources.http import HttpLimits, HttpPages
from scaler.config import parse
from scaler.engine import cluster_counts, loop
from scaler.engine.decider import Decider
from scaler.engine.loop import LOOKS_AT_ONCE, ControlLoop
from scaler.engine.prepare import catch_up, hand_over, prepare
from scaler.engine.publisher import Publisher
from scaler.policy.columns import Specs
from scaler.workloads import annotations, pods, registry, targets
from tests.fakes import objects as api
from tests.fakes.clock import SleeplessClock
from tests.fakes.daemon import loop_context

WORKLOADS = 20
BLIND_S = 60.0
BY_KIND = {resource.kind: resource for resource in RESOURCES}


class CountedCluster(Cluster):
    """Records which targets were counted."""

    def __init__(self):
        super().__init__(blind_s=BLIND_S)
        self.counted = []

    def count(self, target, now):
        self.counted.append(target.name)
        return super().count(target, now)


class Scene:
    """A cluster with that many ScaledObjects `w0`, `w1` …, each for a Deployment of that name with one pod."""

    def __init__(self, pages):
        self.clock, self.cluster, self.published = SleeplessClock(), CountedCluster(), []
        given = [self.scaled(number) for number in range(WORKLOADS)]
        given += [api.deployment(f"w{number}", replicas=1) for number in range(WORKLOADS)]
        given += [api.replicaset(f"w{number}-7d", owner=("Deployment", f"w{number}")) for number in range(WORKLOADS)]
        given += [self.pod(number) for number in range(WORKLOADS)]
        for resource in RESOURCES:
            documents = [document for document in given if BY_KIND[document["kind"]] == resource]
            self.cluster.replace(resource, None, documents, self.clock.time)
        self.context = loop_context(
            self.clock, pages, Publisher([]), on_registry=self.published.append, cluster=self.cluster
        )
        self.loop = ControlLoop(parse("kubernetes: {}", "config.yaml")[0], self.context)
        self.cluster.take_changes()

    @staticmethod
    def scaled(number, maximum=9, target=None, **metadata):
        trigger = api.trigger(engine="vllm", **metadata)
        name = f"w{number}"
        return api.scaled_object(name, target=target or name, minimum=1, maximum=maximum, triggers=[trigger])

    @staticmethod
    def pod(number, *, ready=True):
        owner = ("ReplicaSet", f"w{number}-7d")
        return api.pod(f"w{number}-7d-a", owner=owner, ready=ready, address=f"10.0.0.{number}")

    async def put(self, *documents):
        """Change these objects, and run the control loop over the changes."""
        for document in documents:
            self.cluster.apply(BY_KIND[document["kind"]], "MODIFIED", document, self.clock.time)
        await self.follow_changes()

    async def follow_changes(self):
        changes = self.cluster.take_changes()
        await self.loop._follow_changes(changes)
        if changes.registry:
            await self.loop._register()

    def tick(self, after=1.0):
        """Run a tick; returns the Deployments that were counted."""
        self.clock.time += after
        self.cluster.counted.clear()
        self.loop.tick(self.clock.time)
        return sorted(self.cluster.counted)

    def plan(self, name):
        return next(plan for plan in self.loop._decider.plans if plan.workload.name == name)

    def replicas(self, number):
        """(wanted, ready) in the decider; -1 is unknown."""
        decider = self.loop._decider
        row = decider.workloads.index(WorkloadKey("ai", f"w{number}"))
        readings = decider._latest.totals(np.array([row]), self.clock.time).readings
        return tuple(np.nan_to_num([readings.wanted[0], readings.ready[0]], nan=-1.0).tolist())


@pytest.fixture
async def scene():
    pages = HttpPages(HttpLimits(1.0, 1024))
    yield Scene(pages)
    await pages.close()


async def test_tick_counts_only_the_workloads_whose_replicas_may_have_changed(scene):
    assert len(scene.tick()) == WORKLOADS
    assert scene.tick() == []
    await scene.put(scene.pod(3, ready=False), api.deployment("w7", replicas=4))
    assert scene.tick() == ["w3", "w7"]
    assert (scene.replicas(3), scene.replicas(7), scene.replicas(8)) == ((1, 0), (4, 1), (1, 1))
    assert scene.tick() == []


async def test_replicas_are_counted_even_if_the_control_loop_has_followed_the_change_before(scene):
    scene.tick()
    scene.cluster.apply(PODS, "DELETED", scene.pod(3), scene.clock.time)
    scene.cluster.take_changes()
    assert scene.tick() == ["w3"]
    assert scene.replicas(3) == (1, 0)


async def test_every_workload_is_counted_when_the_cluster_becomes_unknown_and_known_again(scene):
    scene.tick()
    scene.cluster.mark_lost(PODS, scene.clock.time)
    assert scene.tick(after=BLIND_S) == []
    assert len(scene.tick()) == WORKLOADS
    assert scene.replicas(3) == (-1, -1)
    assert scene.tick() == []
    scene.cluster.mark_current(PODS, scene.clock.time)
    assert len(scene.tick()) == WORKLOADS
    assert scene.replicas(3) == (1, 1)


async def test_every_workload_is_counted_after_a_tick_that_failed(scene, monkeypatch):
    scene.tick()
    await scene.put(scene.pod(3, ready=False), scene.pod(4, ready=False))
    with monkeypatch.context() as broken:
        broken.setattr(Cluster, "count", lambda *_: 1 / 0)
        scene.tick()
    assert len(scene.tick()) == WORKLOADS
    assert (scene.replicas(3), scene.replicas(4)) == ((1, 0), (1, 0))


async def test_edited_scaled_object_costs_one_count_if_its_target_changed_and_none_otherwise(scene):
    scene.tick()
    scene.cluster.counted.clear()
    await scene.put(scene.scaled(3, maximum=8))
    assert scene.cluster.counted == []
    await scene.put(scene.scaled(3, maximum=8, target="w4"))
    assert scene.cluster.counted == ["w4"]
    assert scene.tick() == []
    await scene.put(api.deployment("w4", replicas=5))
    assert scene.tick() == ["w4", "w4"]
    assert (scene.replicas(3), scene.replicas(4)) == ((5, 1), (5, 1))


@pytest.fixture
def calls(monkeypatch):
    """The number of calls of each of these since `calls.clear()`."""
    counted = Counter()

    def count(owner, name, label):
        before = getattr(owner, name)

        def counting(*given, **more):
            counted[label] += 1
            return before(*given, **more)

        monkeypatch.setattr(owner, name, counting)

    count(registry, "parse_triggers", "triggers parsed")
    count(annotations, "_parse", "annotations parsed")
    count(targets, "_plan", "plans built")
    count(Decider, "__init__", "deciders built")
    make = Specs.stack

    def stack(specs):
        counted["columns"] += len(specs)
        return make(specs)

    monkeypatch.setattr(Specs, "stack", stack)
    count(Decider, "started", "start look-ups")
    count(ScrapeLoop, "look", "target look-ups")
    return counted


# The columns of one workload are built, and replaced in the existing decider.
ONE_PARSED = {"triggers parsed": 1, "plans built": 1, "deciders built": 1, "columns": 1}


async def test_edited_scaled_object_is_parsed_and_planned_alone(calls, scene):
    assert calls["triggers parsed"] == calls["plans built"] == WORKLOADS
    calls.clear()
    await scene.put(scene.scaled(3, maximum=8))
    assert calls == ONE_PARSED
    assert scene.plan("w3").spec.maximum == 8
    calls.clear()
    await scene.put(scene.scaled(3, maximum=7), scene.scaled(5, maximum=7))
    assert calls == {"triggers parsed": 2, "plans built": 2, "deciders built": 1, "columns": 2}


async def test_edited_scale_target_refreshes_only_its_workloads(calls, scene):
    calls.clear()
    await scene.put(scene.scaled(3, target="w4"))
    look_ups = {"target look-ups": 1, "start look-ups": 2}
    assert calls == {**ONE_PARSED, "columns": WORKLOADS, **look_ups}, "both workloads with this target"


async def test_edit_that_changes_no_plan_keeps_the_decider(calls, scene):
    decider = scene.loop._decider
    calls.clear()
    await scene.put(scene.scaled(3, scalerAddress="tidegate.other.svc:6000"))
    assert calls == {"triggers parsed": 1}
    assert scene.loop._decider is decider


async def test_status_of_a_scaled_object_is_not_parsed(calls, scene):
    calls.clear()
    reported = scene.scaled(3)
    reported["status"] = {"conditions": [{"type": "Active", "status": "True"}]}
    await scene.put(reported)
    await scene.put(scene.scaled(4, maximum=8))
    assert calls == ONE_PARSED


async def test_deleted_scaled_object_is_forgotten_and_parses_nothing(calls, scene):
    calls.clear()
    scene.cluster.apply(SCALEDOBJECTS, "DELETED", scene.scaled(3), scene.clock.time)
    await scene.follow_changes()
    assert calls == {"deciders built": 1, "columns": WORKLOADS - 1}
    assert len(scene.loop._decider.workloads) == len(scene.loop._prepared.parsed.triggers._kept) == WORKLOADS - 1


async def test_annotated_object_is_parsed_again_only_if_it_or_its_bounds_change(calls, scene):
    annotated = {"tidegate.dev/engine": "vllm"}
    calls.clear()
    await scene.put(*(api.deployment(f"a{number}", annotations=annotated, replicas=1) for number in range(3)))
    assert calls["annotations parsed"] == 3
    calls.clear()
    await scene.put(api.deployment("a1", annotations={**annotated, "tidegate.dev/keep_warm": "7m"}, replicas=1))
    assert calls == {"annotations parsed": 1, "plans built": 1, "deciders built": 1, "columns": 1}
    calls.clear()
    await scene.put(api.hpa("a2", target="a2", minimum=2, maximum=6))
    assert calls == {"annotations parsed": 1, "plans built": 1, "deciders built": 1, "columns": 1}
    assert scene.plan("a2").spec.maximum == 6


async def test_every_workload_is_refreshed_when_a_resource_becomes_known(calls, scene):
    scene.cluster.mark_lost(PODS, scene.clock.time)
    scene.clock.time += BLIND_S + 1
    calls.clear()
    scene.cluster.mark_current(PODS, scene.clock.time)
    await scene.follow_changes()
    assert calls == {"target look-ups": WORKLOADS + 1, "start look-ups": WORKLOADS}, "and the GPU targets"


async def test_prepared_configuration_parses_and_plans_nothing_on_the_event_loop(calls, scene, monkeypatch):
    scene.tick()
    config, threads = parse("kubernetes: {}\ntick: 2s", "config.yaml")[0], set()
    parse_one = registry.parse_triggers
    monkeypatch.setattr(registry, "parse_triggers", lambda *given: threads.add(current_thread()) or parse_one(*given))
    calls.clear()
    prepared = await prepare(config, scene.context)
    assert calls == {"triggers parsed": WORKLOADS, "plans built": WORKLOADS, "deciders built": 1, "columns": WORKLOADS}
    assert current_thread() not in threads
    prepared = await hand_over(prepared, scene.loop.decider)
    calls.clear()
    loop = ControlLoop(config, scene.context, scene.loop, prepared)
    assert calls == {}
    assert [plan.workload for plan in loop._decider.plans] == [plan.workload for plan in scene.loop._decider.plans]


async def test_object_that_changes_while_a_configuration_is_prepared_is_parsed_alone(calls, scene):
    config = parse("kubernetes: {}\ntick: 2s", "config.yaml")[0]
    prepared = await prepare(config, scene.context)
    await scene.put(scene.scaled(3, maximum=8))
    calls.clear()
    scene.loop = ControlLoop(config, scene.context, scene.loop, prepared)
    assert calls == {**ONE_PARSED, "columns": WORKLOADS}
    assert scene.plan("w3").spec.maximum == 8


async def test_new_configuration_keeps_the_counts_and_counts_what_has_changed(scene):
    scene.tick()
    config = parse("kubernetes: {}\ntick: 2s", "config.yaml")[0]
    scene.loop = ControlLoop(config, scene.context, before=scene.loop)
    assert (scene.replicas(3), scene.replicas(7)) == ((1, 1), (1, 1))
    assert scene.tick() == []
    scene.cluster.apply(PODS, "DELETED", scene.pod(3), scene.clock.time)
    scene.loop = ControlLoop(config, scene.context, before=scene.loop)
    assert scene.tick() == ["w3"]
    assert (scene.replicas(3), scene.replicas(7)) == ((1, 0), (1, 1))


async def test_new_configuration_counts_the_workloads_that_it_adds(scene):
    scene.tick()
    scene.cluster.counted.clear()
    added = "workloads: [{namespace: ai, name: new, engine: vllm, pods: {target: Deployment/w4}}]"
    scene.loop = ControlLoop(parse(f"kubernetes: {{}}\n{added}", "config.yaml")[0], scene.context, before=scene.loop)
    assert scene.cluster.counted == ["w4"]


async def test_workload_added_while_a_configuration_is_prepared_is_parsed_in_a_thread(calls, scene):
    config = parse("kubernetes: {}\ntick: 2s", "config.yaml")[0]
    prepared = await prepare(config, scene.context)
    await scene.put(scene.scaled(WORKLOADS, target="w4"))
    calls.clear()
    prepared = await catch_up(prepared, config, scene.context)
    assert calls == {"triggers parsed": 1, "plans built": 1, "deciders built": 1, "columns": WORKLOADS + 1}
    prepared = await hand_over(prepared, scene.loop.decider)
    calls.clear()
    scene.loop = ControlLoop(config, scene.context, scene.loop, prepared)
    assert calls == {}
    assert len(scene.loop.decider.plans) == WORKLOADS + 1


async def test_object_that_changes_while_state_is_handed_over_is_parsed_by_the_new_control_loop(calls, scene):
    config = parse("kubernetes: {}\ntick: 2s", "config.yaml")[0]
    prepared = await hand_over(await prepare(config, scene.context), scene.loop.decider)
    scene.cluster.apply(SCALEDOBJECTS, "MODIFIED", scene.scaled(3, maximum=8), scene.clock.time)
    calls.clear()
    scene.loop = ControlLoop(config, scene.context, scene.loop, prepared)
    assert calls == {}
    assert scene.loop._registry_changed.is_set()
    await scene.loop._register()
    assert calls == ONE_PARSED
    assert scene.plan("w3").spec.maximum == 8


async def test_edited_scaled_object_is_compared_in_a_thread(scene, monkeypatch):
    threads = set()
    parse_one = registry.parse_triggers
    monkeypatch.setattr(registry, "parse_triggers", lambda *given: threads.add(current_thread()) or parse_one(*given))
    await scene.put(scene.scaled(3, maximum=8))
    assert len(threads) == 1
    assert current_thread() not in threads


async def test_others_have_their_turn_while_many_pods_are_looked_at(scene):
    turns = 0

    async def count_turns():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    (target, *_) = scene.loop._scaled
    beside = asyncio.create_task(count_turns())
    await scene.loop._look((), [target] * (5 * LOOKS_AT_ONCE))
    beside.cancel()
    assert turns >= 5


async def test_moved_pod_updates_only_its_own_target(calls, scene):
    calls.clear()
    await scene.put(scene.pod(3, ready=False))
    assert calls == {"target look-ups": 1, "start look-ups": 1}


async def test_replaced_control_loop_frees_its_state_without_a_garbage_collection(scene):
    scene.tick()
    before, decider = scene.loop, ref(scene.loop.decider)
    gc.disable()
    try:
        scene.loop = ControlLoop(parse("kubernetes: {}\ntick: 2s", "config.yaml")[0], scene.context, before=before)
        before.forget()
        assert decider() is None
    finally:
        gc.enable()


async def test_registry_built_before_the_first_list_is_never_published(scene):
    cluster = CountedCluster()
    context = replace(scene.context, cluster=cluster)
    loop = ControlLoop(parse("kubernetes: {}", "config.yaml")[0], context)
    scene.published.clear()
    for resource in RESOURCES:
        documents = [scene.scaled(3)] if resource == SCALEDOBJECTS else []
        cluster.replace(resource, None, documents, scene.clock.time)
    loop.tick(scene.clock.time)
    assert scene.published == []
    await loop._register()
    assert [sorted(registry.objects) for registry in scene.published] == [[("ai", "w3")]]


async def test_registry_is_published_again_once_the_cluster_answers_again(scene):
    await scene.loop._register()
    scene.published.clear()
    for resource in RESOURCES:
        scene.cluster.mark_lost(resource, scene.clock.time)
    scene.tick(after=2 * BLIND_S)
    assert scene.published == [None]
    for resource in RESOURCES:
        scene.cluster.mark_current(resource, scene.clock.time)
    scene.tick()
    await scene.loop._register()
    assert [len(registry.objects) for registry in scene.published[1:]] == [WORKLOADS]


@pytest.fixture
def counted_in_parts(monkeypatch):
    monkeypatch.setattr(pods, "COUNTED_AT_ONCE", 3)
    monkeypatch.setattr(cluster_counts, "COUNTED_AT_ONCE", 3)


async def waits(task):
    """How often the task let others run until its end."""
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    return turns


@pytest.mark.usefixtures("counted_in_parts")
async def test_replicas_of_many_workloads_are_counted_in_parts_before_the_tick(scene):
    preparing = asyncio.create_task(scene.loop._counts.prepare(scene.clock.time))
    assert await waits(preparing) >= WORKLOADS // 3
    assert sorted(scene.cluster.counted) == sorted(f"w{number}" for number in range(WORKLOADS))
    assert scene.tick() == []
    await scene.put(scene.pod(3, ready=False))
    assert scene.tick() == ["w3"]


@pytest.mark.usefixtures("counted_in_parts")
async def test_change_between_two_parts_of_a_count_is_counted_by_the_tick(scene):
    preparing = asyncio.create_task(scene.loop._counts.prepare(scene.clock.time))
    await asyncio.sleep(0)
    assert len(scene.cluster.counted) == 3
    first = scene.cluster.counted[0]
    scene.cluster.apply(PODS, "DELETED", scene.pod(int(first[1:])), scene.clock.time)
    await preparing
    assert scene.tick() == [first]
    assert scene.replicas(int(first[1:])) == (1, 0)


@pytest.mark.usefixtures("counted_in_parts")
async def test_new_list_of_workloads_between_two_parts_of_a_count_loses_no_count(scene):
    preparing = asyncio.create_task(scene.loop._counts.prepare(scene.clock.time))
    await asyncio.sleep(0)
    assert len(scene.cluster.counted) == 3
    new = range(WORKLOADS, WORKLOADS + 5)
    await scene.put(
        *(scene.scaled(number) for number in new), *(api.deployment(f"w{number}", replicas=2) for number in new)
    )
    await preparing
    scene.tick()
    assert [scene.replicas(number)[0] for number in range(WORKLOADS)] == [1] * WORKLOADS
    assert [scene.replicas(number) for number in new] == [(2, 0)] * 5


async def test_tick_lets_others_run_between_the_decisions_that_it_builds(scene, monkeypatch):
    monkeypatch.setattr(loop, "BUILT_AT_ONCE", 3)
    board = scene.context.publisher
    sizes = [len(board.local.decisions) for _ in scene.loop._tick_parts(scene.clock.time)]
    assert sizes == [*range(3, WORKLOADS, 3), WORKLOADS]


async def test_each_invalid_object_is_logged_in_a_turn_of_its_own(scene):
    wrong = range(WORKLOADS, WORKLOADS + 5)
    for number in wrong:
        scene.cluster.apply(SCALEDOBJECTS, "ADDED", scene.scaled(number, keep_warm="long"), scene.clock.time)
    lines, most = [], 0
    with capture_logs() as logged:
        registering = asyncio.create_task(scene.loop._register())
        while not registering.done():
            await asyncio.sleep(0)
            most = max(most, len(logged) - len(lines))
            lines = list(logged)
    assert [line["event"] for line in lines] == ["invalid object"] * len(wrong)
    assert most == 1


async def test_new_control_loop_logs_nothing_before_it_runs(scene):
    scene.cluster.apply(SCALEDOBJECTS, "ADDED", scene.scaled(WORKLOADS, keep_warm="long"), scene.clock.time)
    with capture_logs() as logged:
        ControlLoop(scene.loop.config, scene.context, scene.loop)
    assert logged == []
