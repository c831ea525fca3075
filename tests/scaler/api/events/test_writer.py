"""The EventWriter turns changes of the Board into Events on the API server, over loopback."""

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from random import Random

import pytest
from structlog.testing import capture_logs

from exporter.kubernetes.client import TIME_LIMITS, connect
from exporter.kubernetes.events import Subject
from exporter.kubernetes.objects import Ref
from exporter.model import WorkloadKey
from scaler.api.events import MOST_WAITING, REFUSED_S, REPORT_DROPPED_S, EventObject, EventWriter
from scaler.engine.publisher import Publisher
from scaler.model import Reason
from tests.fakes.clock import ManualClock, Turn
from tests.fakes.kubernetes import serving, write_kubeconfig
from tests.scaler.api.events.conftest import CHAT


class System:
    """Holds a publisher, an EventWriter that receives its changes, and the fake API server.

    written and dropped: what the writer reported; problems: (namespace, problem), None once it is solved.
    """

    def __init__(self, fake, client, workloads):
        self.fake, self.client, self.clock = fake, client, ManualClock()
        self.publisher = Publisher(workloads)
        self.written, self.dropped, self.problems, self.leads, self.objects = 0, [], [], True, True
        self.writer = EventWriter(
            object_of=self._object_of,
            writes=lambda now: self.leads,
            instance="tidegate-0",
            clock=self.clock,
            on_written=self._count,
            on_dropped=self._drop,
            on_problem=lambda where, problem: self.problems.append((where, problem)),
        )
        self.turn = Turn()
        self.publisher.on_change = self.writer.add

    def _object_of(self, workload):
        subject = Subject("apps/v1", Ref(workload.namespace, "Deployment", workload.name), f"uid-{workload.name}")
        return EventObject(subject) if self.objects else None

    def _count(self):
        self.written += 1
        self.turn.changed()

    def _drop(self, why, count):
        self.dropped += [why] * count
        self.turn.changed()

    def publish(self, *decisions):
        self.publisher.publish(decisions, self.clock.time)

    async def until(self, *, written=0, dropped=0):
        """Waits until exactly so many Events are written and dropped."""
        await self.fake.until(lambda: len(self.fake.event_writes) >= written)
        await self.turn.until(lambda: (self.written, len(self.dropped)) == (written, dropped))

    @property
    def writes(self):
        """Returns (verb, reason, count) of each write that the API server accepted."""
        return [(verb, it["reason"], it.get("series", {}).get("count", 1)) for verb, it in self.fake.event_writes]

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.writer.run(self.client))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.fixture
async def system(tmp_path):
    async with serving() as fake:
        client = await connect(str(write_kubeconfig(tmp_path / "kubeconfig", fake.url)), None, Random(1), TIME_LIMITS)
        system = System(fake, client, [CHAT])
        async with system.running():
            yield system
        await client.close()


async def test_change_of_a_workload_is_written_on_its_scale_target(system, decide):
    system.publish(decide(1, Reason.WARM))
    system.publish(decide(0, idle_since=940.0))
    await system.until(written=1)
    [document] = system.fake.events.values()
    assert document["regarding"] == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "namespace": "ai",
        "name": "chat",
        "uid": "uid-chat",
    }
    assert (document["reason"], document["note"]) == ("Asleep", "asleep: idle for 1 min")
    assert (document["type"], document["reportingInstance"]) == ("Normal", "tidegate-0")


async def test_flapping_workload_has_one_event_with_a_count(system, decide):
    for _ in range(3):
        system.publish(decide(2))
        system.publish(decide(2, Reason.HELD))
        system.clock.advance(10.0)
    await system.until(written=3)
    assert system.writes == [("create", "Held", 1), ("patch", "Held", 2), ("patch", "Held", 3)]


async def test_event_that_the_api_server_deleted_is_created_again(system, decide):
    system.publish(decide(2))
    system.publish(decide(2, Reason.HELD))
    await system.until(written=1)
    system.fake.events.clear()
    system.publish(decide(2))
    system.publish(decide(2, Reason.HELD))
    await system.until(written=2)
    assert system.writes == [("create", "Held", 1), ("create", "Held", 1)]


async def test_only_the_leader_writes_and_a_new_leader_repeats_no_event(system, decide):
    system.leads = False
    system.publish(decide(2))
    system.publish(decide(0))
    system.leads = True
    system.publish(decide(0))
    system.publish(decide(1, Reason.QUEUED))
    await system.until(written=1)
    assert [reason for _, reason, _ in system.writes] == ["Woken"]


async def test_events_of_a_fleet_wide_outage_are_limited_and_the_log_has_the_count(system, decide):
    many = [WorkloadKey("ai", f"w{number}") for number in range(10_000)]
    system.publisher.keep_only(many, system.clock.time)
    system.publish(*(decide(2, workload=each) for each in many))
    system.publish(*(decide(2, Reason.HELD, workload=each) for each in many))
    assert len(system.dropped) == 10_000 - MOST_WAITING  # dropped at once, without waiting
    await system.until(written=50, dropped=10_000 - 50)
    assert len(system.fake.event_writes) == 50
    assert {why: system.dropped.count(why) for why in set(system.dropped)} == {"queue": 9_000, "budget": 950}
    with capture_logs() as logged:
        system.clock.advance(REPORT_DROPPED_S)
        async with asyncio.timeout(60.0):
            while not logged:  # noqa: ASYNC110 - a log has no event to wait for
                await asyncio.sleep(0)
    assert [(line["event"], line["count"], line["of"]) for line in logged] == [
        ("Events dropped", 9_950, {"Held": 9_950})
    ]


async def test_hanging_api_server_delays_no_decision(system, decide):
    system.fake.hang()
    system.publish(decide(2))
    system.publish(decide(2, Reason.HELD))
    await system.fake.until(lambda: system.fake.shown)  # the request has arrived and gets no response
    for _ in range(2 * MOST_WAITING):
        system.publish(decide(2))
        system.publish(decide(0))
    assert system.publisher.get(CHAT).replicas == 0
    assert set(system.dropped) == {"queue"}
    assert system.writes == []
    system.fake.mend()


async def test_refusal_by_rbac_is_reported_once_and_retried_later(system, decide):
    system.fake.fail("Event", 403)
    for replicas in (2, 0, 1, 0):
        system.publish(decide(replicas))
    await system.until(dropped=3)
    assert system.dropped == ["refused"] * 3
    assert len(system.fake.shown) == 1  # no request was sent for the other two
    [(where, problem)] = system.problems
    assert (where, 'verbs ["create", "patch"]' in problem) == ("ai", True)
    system.fake.mend()
    system.clock.advance(REFUSED_S)
    system.publish(decide(1))
    await system.until(written=1, dropped=3)
    assert system.problems[1:] == [("ai", None)]


async def test_api_server_error_drops_the_event_and_is_reported_once(system, decide):
    system.fake.fail("Event", 500)
    for replicas in (2, 0, 1):
        system.publish(decide(replicas))
    await system.until(dropped=2)
    assert system.dropped == ["failed"] * 2
    assert [where for where, _ in system.problems] == [""]
    system.fake.mend()
    system.publish(decide(0))
    await system.until(written=1, dropped=2)
    assert system.problems[1:] == [("", None)]


async def test_workload_without_an_object_has_no_events(system, decide):
    system.objects = False
    system.publish(decide(2))
    system.publish(decide(0))
    await system.until(dropped=1)
    assert system.dropped == ["no_object"]


async def test_namespace_that_is_being_deleted_is_no_failure(system, decide):
    system.fake.ending.add("ai")
    for replicas in (2, 0, 1):
        system.publish(decide(replicas))
    await system.until(dropped=2)
    assert system.dropped == ["no_object"] * 2
    assert system.problems == []


async def test_observed_workload_has_no_events(system, decide):
    system.publish(decide(2, observed=True))
    system.publish(decide(0, observed=True))
    system.publish(replace(decide(2), decided_at=1001.0))
    system.publish(decide(0))
    await system.until(written=1)
    assert [reason for _, reason, _ in system.writes] == ["Asleep"]
