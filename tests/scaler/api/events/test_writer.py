"""From the Board's changes to what the API server is asked to keep, over loopback."""

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
from tests.fakes.kubernetes import serving, write_kubeconfig
from tests.scaler.api.events.conftest import CHAT


class HandClock:
    """Time passes when the test says so."""

    def __init__(self):
        self.time, self._turn = 1000.0, asyncio.Event()

    def now(self):
        return self.time

    async def sleep(self, seconds):
        until = self.time + seconds
        while self.time < until:
            await self._turn.wait()

    def advance(self, seconds):
        self.time += seconds
        self._turn.set()
        self._turn = asyncio.Event()


class Story:
    """A publisher, an announcer that hears it, and the API server that it writes to."""

    def __init__(self, fake, client, workloads):
        self.fake, self.client, self.clock = fake, client, HandClock()
        self.publisher = Publisher(workloads)
        self.written, self.dropped, self.published, self.leads, self.objects = 0, [], [], True, True
        self.announcer = EventWriter(
            object_of=self._object_of,
            writes=lambda now: self.leads,
            instance="tidegate-0",
            clock=self.clock,
            on_written=self._count,
            on_dropped=self._drop,
            on_problem=lambda where, problem: self.published.append((where, problem)),
        )
        self.turn = asyncio.Event()
        self.publisher.on_change = self.announcer.add

    def _object_of(self, workload):
        subject = Subject("apps/v1", Ref(workload.namespace, "Deployment", workload.name), f"uid-{workload.name}")
        return EventObject(subject) if self.objects else None

    def _count(self):
        self.written += 1
        self._wake()

    def _drop(self, why, count):
        self.dropped += [why] * count
        self._wake()

    def _wake(self):
        self.turn.set()
        self.turn = asyncio.Event()

    def say(self, *decisions):
        self.publisher.publish(decisions, self.clock.time)

    async def until(self, *, written=0, dropped=0):
        """Wait until so many are settled."""
        await self.fake.until(lambda: len(self.fake.event_writes) >= written)
        async with asyncio.timeout(20):
            while (self.written, len(self.dropped)) != (written, dropped):
                await self.turn.wait()

    @property
    def writes(self):
        """(verb, reason, count) of each that the API server took."""
        return [(verb, it["reason"], it.get("series", {}).get("count", 1)) for verb, it in self.fake.event_writes]

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.announcer.run(self.client))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.fixture
async def story(tmp_path):
    async with serving() as fake:
        client = await connect(str(write_kubeconfig(tmp_path / "kubeconfig", fake.url)), None, Random(1), TIME_LIMITS)
        made = Story(fake, client, [CHAT])
        async with made.running():
            yield made
        await client.close()


async def test_what_happens_to_a_workload_is_written_on_what_it_scales(story, decide):
    story.say(decide(1, Reason.WARM))
    story.say(decide(0, idle_since=940.0))
    await story.until(written=1)
    [document] = story.fake.events.values()
    assert document["regarding"] == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "namespace": "ai",
        "name": "chat",
        "uid": "uid-chat",
    }
    assert (document["reason"], document["note"]) == ("Asleep", "asleep: idle for 1 min")
    assert (document["type"], document["reportingInstance"]) == ("Normal", "tidegate-0")


async def test_what_flaps_is_one_event_that_counts(story, decide):
    for _ in range(3):
        story.say(decide(2))
        story.say(decide(2, Reason.HELD))
        story.clock.advance(10.0)
    await story.until(written=3)
    assert story.writes == [("create", "Held", 1), ("patch", "Held", 2), ("patch", "Held", 3)]


async def test_an_event_that_is_not_kept_any_more_is_written_anew(story, decide):
    story.say(decide(2))
    story.say(decide(2, Reason.HELD))
    await story.until(written=1)
    story.fake.events.clear()
    story.say(decide(2))
    story.say(decide(2, Reason.HELD))
    await story.until(written=2)
    assert story.writes == [("create", "Held", 1), ("create", "Held", 1)]


async def test_only_the_one_that_leads_writes_and_a_new_leader_tells_nothing_twice(story, decide):
    story.leads = False
    story.say(decide(2))
    story.say(decide(0))
    story.leads = True
    story.say(decide(0))
    story.say(decide(1, Reason.QUEUED))
    await story.until(written=1)
    assert [reason for _, reason, _ in story.writes] == ["Woken"]


async def test_a_fleet_wide_outage_is_limited_and_the_log_has_the_count(story, decide):
    many = [WorkloadKey("ai", f"w{number}") for number in range(10_000)]
    story.publisher.keep_only(many, story.clock.time)
    story.say(*(decide(2, workload=each) for each in many))
    story.say(*(decide(2, Reason.HELD, workload=each) for each in many))
    assert len(story.dropped) == 10_000 - MOST_WAITING  # at once, and nobody waited
    await story.until(written=50, dropped=10_000 - 50)
    assert len(story.fake.event_writes) == 50
    assert {why: story.dropped.count(why) for why in set(story.dropped)} == {"queue": 9_000, "budget": 950}
    with capture_logs() as logged:
        story.clock.advance(REPORT_DROPPED_S)
        async with asyncio.timeout(20):
            while not logged:  # noqa: ASYNC110 - a log has no event to wait for
                await asyncio.sleep(0)
    assert [(line["event"], line["count"], line["of"]) for line in logged] == [
        ("Events dropped", 9_950, {"Held": 9_950})
    ]


async def test_a_hanging_api_server_delays_no_decision(story, decide):
    story.fake.hang()
    story.say(decide(2))
    story.say(decide(2, Reason.HELD))
    await story.fake.until(lambda: story.fake.shown)  # the question is there, and nobody answers it
    for _ in range(2 * MOST_WAITING):
        story.say(decide(2))
        story.say(decide(0))
    assert story.publisher.get(CHAT).replicas == 0
    assert set(story.dropped) == {"queue"}
    assert story.writes == []
    story.fake.mend()


async def test_a_refusal_by_rbac_is_reported_once_and_retried_later(story, decide):
    story.fake.fail("Event", 403)
    for replicas in (2, 0, 1, 0):
        story.say(decide(replicas))
    await story.until(dropped=3)
    assert story.dropped == ["refused"] * 3
    assert len(story.fake.shown) == 1  # the others were not even asked
    [(where, problem)] = story.published
    assert (where, 'verbs ["create", "patch"]' in problem) == ("ai", True)
    story.fake.mend()
    story.clock.advance(REFUSED_S)
    story.say(decide(1))
    await story.until(written=1, dropped=3)
    assert story.published[1:] == [("ai", None)]


async def test_a_failing_api_server_costs_the_event_and_is_reported_once(story, decide):
    story.fake.fail("Event", 500)
    for replicas in (2, 0, 1):
        story.say(decide(replicas))
    await story.until(dropped=2)
    assert story.dropped == ["failed"] * 2
    assert [where for where, _ in story.published] == [""]
    story.fake.mend()
    story.say(decide(0))
    await story.until(written=1, dropped=2)
    assert story.published[1:] == [("", None)]


async def test_a_workload_without_an_object_has_no_events(story, decide):
    story.objects = False
    story.say(decide(2))
    story.say(decide(0))
    await story.until(dropped=1)
    assert story.dropped == ["no_object"]


async def test_a_namespace_that_is_being_deleted_is_no_failure(story, decide):
    story.fake.ending.add("ai")
    for replicas in (2, 0, 1):
        story.say(decide(replicas))
    await story.until(dropped=2)
    assert story.dropped == ["no_object"] * 2
    assert story.published == []


async def test_who_is_only_observed_has_none(story, decide):
    story.say(decide(2, observed=True))
    story.say(decide(0, observed=True))
    story.say(replace(decide(2), decided_at=1001.0))
    story.say(decide(0))
    await story.until(written=1)
    assert [reason for _, reason, _ in story.writes] == ["Asleep"]
