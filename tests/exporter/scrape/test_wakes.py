"""Gateways of workloads at zero are scraped every second, each endpoint once, within a rate limit."""

from collections import Counter

import pytest

from exporter.catalog import Reader
from exporter.model import Role, WorkloadKey
from exporter.scrape.loop import moment_after, phase_of
from exporter.textformat import PlainScanner

from .conftest import CHAT, INTERVAL_S

EPP = b'inference_extension_flow_control_queue_size{fairness_id="",priority="0",inference_pool="p"} 0\n'
# A scrape at the end of the counted time may be counted or not, by rounding.
EDGE = 1
WAKE = {"wake_interval_s": 1.0, "wake_rate": 100.0}


class Counted:
    """Implements `Pages`: responds at once and counts the requests by URL."""

    def __init__(self):
        self.requests = Counter()

    async def fetch(self, url, access):
        self.requests[url] += 1
        return EPP


@pytest.fixture
def pages():
    return Counted()


@pytest.fixture
def gateway(target):
    def make(path, owner=CHAT):
        return target(path, "epp", Role.GATEWAY, owner)

    return make


async def passed(clock, seconds, sleepers):
    """Advances the time in steps of at most 0.1 s; waits after each until all tasks sleep."""
    end = clock.time + seconds
    while clock.time < end - 1e-9:
        clock.advance(min(0.1, end - clock.time))
        await clock.asleep(sleepers)


async def begun(clock, discoveries, sleepers):
    await clock.asleep(discoveries)
    clock.advance(0.0)
    await clock.asleep(sleepers)


async def test_gateway_is_scraped_every_second_while_its_workload_is_at_zero(running, clock, recorder, gateway, pages):
    async with running(gateway("epp"), pages=pages, **WAKE) as loop:
        await begun(clock, 1, 2)
        loop.set_at_zero(CHAT, at_zero=True)
        await clock.asleep(3)
        await passed(clock, 60.0, 3)
        at_zero = len(recorder.landed)
        loop.set_at_zero(CHAT, at_zero=False)
        await clock.asleep(2)
        await passed(clock, 60.0, 2)
    assert at_zero == pytest.approx(60, abs=EDGE)
    assert len(recorder.landed) - at_zero == pytest.approx(60 / INTERVAL_S, abs=EDGE)


async def test_wake_source_waits_for_no_other_target(running, clock, recorder, served, gateway, target, start):
    served.hold("pod")
    served.body["epp"] = EPP
    async with running(gateway("epp"), target("pod"), **WAKE) as loop:
        await start(2)
        await served.turn.until(lambda: "pod" in served.requests)
        await clock.asleep(4)  # two refreshes, the workload, the deadline of its round
        loop.set_at_zero(CHAT, at_zero=True)
        await clock.asleep(5)
        clock.advance(1.0)
        await recorder.turn.until(lambda: len(recorder.rounds) == 2)  # the round at its deadline, and the wake source
    assert [[scrape.target for scrape in scrapes] for scrapes in recorder.rounds] == [[gateway("epp")]] * 2


async def test_gateway_of_many_workloads_is_scraped_once_per_second(running, clock, recorder, listing, gateway, pages):
    sharing = [gateway("epp", WorkloadKey("ai", f"model-{n}")) for n in range(20)]
    async with running(listing(sharing), pages=pages, **WAKE) as loop:
        await begun(clock, 1, 21)
        for each in sharing:
            loop.set_at_zero(each.owner, at_zero=True)
        await clock.asleep(22)
        await passed(clock, 30.0, 22)
        assert pages.requests[sharing[0].url] == pytest.approx(30, abs=EDGE)
        assert all(len(recorder.of(each)) == pytest.approx(30, abs=EDGE) for each in sharing)
        # All in one delivery: one decision for all 20.
        assert {len(scrapes) for scrapes in recorder.rounds} == {20}
        loop.set_at_zero(sharing[0].owner, at_zero=False)
        before = pages.requests[sharing[0].url]
        await passed(clock, 30.0, 22)
    assert pages.requests[sharing[0].url] - before == pytest.approx(30 + 30 / INTERVAL_S, abs=2 * EDGE)
    assert len(recorder.of(sharing[0])) == pytest.approx(30 + 30 / INTERVAL_S, abs=2 * EDGE)


async def test_gateways_above_the_rate_limit_have_the_same_longer_interval(
    running, clock, recorder, listing, gateway, pages
):
    fleet = [gateway(f"epp-{n}", WorkloadKey("ai", f"model-{n}")) for n in range(30)]
    async with running(listing(fleet), pages=pages, wake_interval_s=1.0, wake_rate=10.0) as loop:
        await begun(clock, 1, 31)
        for each in fleet:
            loop.set_at_zero(each.owner, at_zero=True)
        await clock.asleep(61)
        await passed(clock, 30.0, 61)
    assert len(pages.requests) == 30
    assert all(count == pytest.approx(10, abs=EDGE) for count in pages.requests.values())  # each every 3 s


async def test_gateways_are_scraped_in_rounds_if_the_rate_allows_no_more(
    running, clock, recorder, listing, gateway, pages
):
    fleet = [gateway(f"epp-{n}", WorkloadKey("ai", f"model-{n}")) for n in range(12)]
    async with running(listing(fleet), pages=pages, wake_interval_s=1.0, wake_rate=2.0) as loop:
        await begun(clock, 1, 13)
        for each in fleet:
            loop.set_at_zero(each.owner, at_zero=True)
        await clock.asleep(25)
        await passed(clock, 30.0, 25)
    assert len(pages.requests) == 12
    assert all(count == pytest.approx(30 / INTERVAL_S, abs=EDGE) for count in pages.requests.values())


async def test_wake_source_of_a_removed_workload_is_not_scraped(running, clock, recorder, listing, gateway, pages):
    epp = gateway("epp")
    found = listing([epp])
    async with running(found, pages=pages, **WAKE) as loop:
        await begun(clock, 1, 2)
        loop.set_at_zero(CHAT, at_zero=True)
        await clock.asleep(3)
        found.targets = ()
        loop.look(found)
        await recorder.turn.until(lambda: recorder.retired)
        await clock.asleep(1)
        loop.keep_at_zero(())
        found.targets = (epp,)
        loop.look(found)
        await recorder.turn.until(lambda: recorder.of(epp))  # a target that appears
        await clock.asleep(2)
        pages.requests.clear()
        await passed(clock, 30.0, 2)
    assert pages.requests[epp.url] == pytest.approx(30 / INTERVAL_S, abs=EDGE)


async def test_restored_missing_series_are_missing_in_rounds_and_at_zero(running, clock, recorder, gateway, pages):
    """After a restart, the reader of a target gets the missing series of the previous process."""
    other, kept = Reader("epp"), PlainScanner()
    other.read(kept.scan(EPP + EPP.replace(b'"p"', b'"q"')), clock.time - 2.0)
    missing = other.read(kept.scan(EPP), clock.time - 1.0).missing
    front = gateway("epp")
    async with running(front, pages=pages, **WAKE) as loop:
        await begun(clock, 1, 2)
        loop.restore(front, missing)
        loop.restore(gateway("unlisted"), missing)
        await passed(clock, INTERVAL_S, 2)
        loop.set_at_zero(CHAT, at_zero=True)
        await clock.asleep(3)
        await passed(clock, 2.0, 3)
        assert list(loop.readers()) == [front]
    assert len(recorder.landed) >= 2
    assert all(len(scrape.outcome.gaps) == 1 for scrape in recorder.landed)


async def test_late_wake_source_is_counted_once(running, clock, recorder, listing, gateway, pages):
    sharing = [gateway("epp", WorkloadKey("ai", f"model-{n}")) for n in range(3)]
    async with running(listing(sharing), pages=pages, **WAKE) as loop:
        await begun(clock, 1, 4)
        for each in sharing:
            loop.set_at_zero(each.owner, at_zero=True)
        await clock.asleep(5)
        due = moment_after(clock.time, phase_of(sharing[0].url), WAKE["wake_interval_s"], 1)
        clock.advance(due - clock.time + 0.5)
        await recorder.turn.until(lambda: recorder.rounds)
        assert loop.delays.late == 1
