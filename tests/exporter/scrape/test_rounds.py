"""Targets are scraped in rounds, and a slow target delays no other."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Failure, FailureKind, Role, Samples, WorkloadKey
from exporter.scrape.loop import LATE, ROUND_WAIT_S, START_SPREAD_S, Skipped, moment_after, moments_apart, phase_of
from exporter.sources.http import HttpLimits, HttpPages

from .conftest import BEGIN, FIRST, GRID_S

INTERVAL_S = 5.0  # as in the fixtures


async def test_each_target_is_scraped_once_per_interval(running, clock, recorder, served, target, start):
    async with running(target("a"), target("b")):
        await start(2)
        for turn in range(1, 4):
            await recorder.turn.until(lambda turn=turn: len(recorder.landed) == 2 * turn)
            await clock.asleep(3)  # two refreshes, one workload
            clock.advance(INTERVAL_S)
        await recorder.turn.until(lambda: len(recorder.landed) == 8)
    assert sorted(served.requests) == ["a"] * 4 + ["b"] * 4
    assert [scrape.at for scrape in recorder.of(target("a"))] == [FIRST, FIRST + 5.0, FIRST + 10.0, FIRST + 15.0]
    assert [len(scrapes) for scrapes in recorder.rounds] == [2] * 4
    assert all(isinstance(scrape.outcome, Samples) for scrape in recorder.landed)


def workload(number):
    return WorkloadKey("ai", f"model-{number}")


@pytest.fixture
def first_begins(running, clock, listing):
    """`await first_begins(fleet)`: seconds after BEGIN at which the first round of each begins."""

    async def begins(fleet):
        clock.time = began_at = BEGIN + GRID_S / 2  # between two moments, so that the next look-up is at none
        async with running(listing(fleet)):
            await clock.asleep(1)
            clock.advance(0.0)
            await clock.asleep(len(fleet) + 1)
            return [round(when - BEGIN, 6) for when in clock.due if when < began_at + INTERVAL_S]

    return begins


async def test_workloads_are_spread_over_the_whole_interval(first_begins, target):
    begins = await first_begins([target(str(n), owner=workload(n)) for n in range(200)])
    # 200 workloads in 10 parts of half a second: 20 each on average, and never three times as many.
    parts = Counter(int((begin - GRID_S / 2) / 0.5) for begin in begins)
    assert len(begins) == 200
    assert set(parts) == set(range(10))
    assert max(parts.values()) < 60


async def test_restart_and_a_new_pod_keep_the_phase_of_a_workload(running, clock, recorder, listing, target):
    phases = []
    for began_at, fleet in ((BEGIN, "ab"), (BEGIN + 1234.5, "abc")):
        clock.time = began_at
        async with running(listing([target(path) for path in fleet])):
            await clock.asleep(1)
            clock.advance(0.0)
            await clock.asleep(2)
            phases += [when % INTERVAL_S for when in clock.due if when < began_at + INTERVAL_S]
    assert phases == pytest.approx([FIRST % INTERVAL_S] * 2)


def nodes(target, count):
    return [target(f"node-{n}", "dcgm", Role.GPUS, owner=None) for n in range(count)]


async def test_targets_without_a_workload_have_separate_phases(first_begins, target):
    begins = await first_begins(nodes(target, 20))
    # 20 nodes at 10 moments: 8.8 of these on average, 4 twice in a million.
    assert len(begins) == 20
    assert len(set(begins)) > 4


def test_phases_of_addresses_that_differ_in_one_digit_are_as_random_as_any():
    # 10 of them at 10 moments: 6.5 different ones on average, with a deviation of 1.
    moments = [
        {int(10 * phase_of(f"http://10.0.{net}.1{last}:9400/metrics")) for last in range(10)} for net in range(200)
    ]
    mean = sum(map(len, moments)) / len(moments)
    assert abs(mean - 10 * (1 - 0.9**10)) < 0.3
    assert min(map(len, moments)) >= 3


@pytest.mark.parametrize(("count", "apart_s"), [(200, 0.5), (1500, 0.1)])
async def test_rounds_begin_together_at_moments_that_are_apart(first_begins, target, count, apart_s):
    moments = set(await first_begins(nodes(target, count)))
    assert all(round((BEGIN + moment) / apart_s, 3).is_integer() for moment in moments)
    assert len(moments) == pytest.approx(INTERVAL_S / apart_s, abs=2)


def test_few_targets_are_due_at_few_moments():
    apart_s = [moments_apart(1.0, count) for count in (1, 100, 166, 167, 250, 2000)]
    assert apart_s == pytest.approx([0.5, 0.5, 0.3, 0.2, 0.2, 0.1])
    assert [moments_apart(every_s, 1) for every_s in (0.1, 0.5, 600.0)] == [0.1, 0.2, 0.5]


@given(
    now=st.floats(1e9, 2e9),
    phase=st.floats(0.0, 1.0, exclude_max=True),
    every_s=st.floats(0.1, 600.0),
    counts=st.tuples(st.integers(1, 20_000), st.integers(1, 20_000)),
)
def test_rounds_move_by_less_than_half_an_interval_when_the_number_of_targets_changes(now, phase, every_s, counts):
    due = moment_after(now, phase, every_s, counts[0])
    after = moment_after(due + every_s / 2, phase, every_s, counts[1])
    assert abs(after - due - every_s) <= every_s / 2


async def test_first_round_at_a_long_interval_begins_within_seconds(running, clock, recorder, listing, target):
    fleet = [target(str(n), owner=workload(n)) for n in range(50)]
    async with running(listing(fleet), interval_s=600.0):
        await clock.asleep(1)
        clock.advance(0.0)
        await clock.asleep(101)
        clock.advance(START_SPREAD_S)
        await recorder.turn.until(lambda: {scrape.target for scrape in recorder.landed} == set(fleet))
        await clock.asleep(51)
        clock.advance(600.0)
        await recorder.turn.until(lambda: len(recorder.landed) >= 100)


async def test_start_scrapes_each_target_once_in_the_first_interval(running, clock, recorder, listing, target):
    fleet = [target(str(n), owner=workload(n)) for n in range(50)]
    async with running(listing(fleet), interval_s=10.0):
        await clock.asleep(1)
        clock.advance(0.0)
        await clock.asleep(51)
        clock.advance(10.0)
        await recorder.turn.until(lambda: len(recorder.landed) >= 50)
        await clock.asleep(51)
    assert Counter(scrape.target for scrape in recorder.landed) == dict.fromkeys(fleet, 1)


async def test_target_removed_during_a_round_does_not_delay_the_others(
    running, clock, recorder, served, listing, target, start
):
    served.hold("gone")
    pods = listing([target("a"), target("gone")])
    async with running(pods) as loop:
        await start(1)
        await served.turn.until(lambda: "a" in served.ended and "gone" in served.requests)
        pods.targets = (target("a"),)
        loop.look(pods)
        await recorder.turn.until(lambda: recorder.rounds)
    assert [scrape.target for scrape in recorder.landed] == [target("a")]


async def test_concurrent_scrapes_are_limited(running, recorder, served, listing, target, start):
    fleet = [target(str(n)) for n in range(12)]
    served.hold(*map(str, range(12)))
    async with running(listing(fleet), concurrency=4):
        await start(1)
        await served.turn.until(lambda: served.in_flight == 4)
        assert len(served.requests) == 4
        served.release()
        await recorder.turn.until(lambda: len(recorder.landed) == 12)
    assert served.most_in_flight == 4


async def test_hanging_target_delays_no_other(running, clock, recorder, served, target, start):
    served.hold("slow")
    async with running(target("slow"), target("quick")):
        await start(2)
        await clock.asleep(4)  # two refreshes, the workload, the deadline of its round
        clock.advance(ROUND_WAIT_S)
        for turn in range(1, 5):
            await recorder.turn.until(lambda turn=turn: len(recorder.of(target("quick"))) == turn)
            await clock.asleep(3)  # two refreshes, one workload
            clock.advance(INTERVAL_S)
    assert recorder.of(target("slow")) == []


class Scripted:
    """Implements `Pages`: a URL in `slow` times out when the test releases it; others respond at once."""

    def __init__(self, turn):
        self.turn = turn
        self.slow = {}
        self.waiting = []

    async def fetch(self, url, access):
        if url not in self.slow:
            return b'vllm:num_requests_waiting{model_name="m"} 3\n'
        self.waiting.append(url)
        self.turn.changed()
        try:
            await self.slow[url].wait()
        finally:
            self.waiting.remove(url)
            self.turn.changed()
        return Failure(FailureKind.TIMEOUT, "no complete page")


async def test_round_is_delivered_once_and_a_late_response_separately(running, clock, recorder, listing, target, turn):
    fleet, pages = [target(path) for path in ("a", "b", "slow")], Scripted(turn)
    gate = pages.slow[fleet[2].url] = asyncio.Event()
    async with running(listing(fleet), pages=pages):
        await clock.asleep(1)
        clock.advance(0.0)
        await clock.asleep(2)
        clock.advance(INTERVAL_S / 2)
        await turn.until(lambda: pages.waiting)
        assert recorder.rounds == []
        await clock.asleep(3)
        clock.advance(ROUND_WAIT_S)
        await turn.until(lambda: len(recorder.rounds) == 1)
        assert [scrape.target for scrape in recorder.rounds[0]] == fleet[:2]
        gate.set()
        await turn.until(lambda: len(recorder.rounds) == 2)
        assert [scrape.target for scrape in recorder.rounds[1]] == fleet[2:]
        await clock.asleep(2)
        clock.advance(INTERVAL_S)
        await turn.until(lambda: len(recorder.landed) == 6)
        # It timed out: the next round does not wait for it.
        assert [scrape.target for scrape in recorder.rounds[2]] == fleet[:2]


async def test_targets_that_timed_out_share_half_of_the_slots(running, clock, recorder, target, turn):
    """On a lost node, each pod holds a slot until the timeout, and there are more pods than slots."""
    lost, well = [target(f"lost-{n}") for n in range(8)], target("well")
    pages = Scripted(turn)
    pages.slow = {each.url: asyncio.Event() for each in lost}
    async with running(*lost, well, pages=pages, concurrency=4):
        await clock.asleep(9)
        clock.advance(0.0)
        await clock.asleep(10)
        clock.advance(INTERVAL_S / 2)
        await turn.until(lambda: len(pages.waiting) == 4)  # no target has timed out yet
        for event in pages.slow.values():
            event.set()
        await turn.until(lambda: len(recorder.landed) == 9)
        await clock.asleep(10)
        pages.slow = {each.url: asyncio.Event() for each in lost}
        for round_ in range(2, 6):
            clock.advance(INTERVAL_S)
            await turn.until(lambda round_=round_: len(recorder.of(well)) == round_)
            await clock.asleep(9 + 1)
            assert len(pages.waiting) == 2


async def test_target_that_fails_at_once_is_not_slow(running, clock, recorder, served, listing, target, start):
    fleet = [target(str(n)) for n in range(4)]
    served.status = dict.fromkeys(map(str, range(4)), 500)
    async with running(listing(fleet), concurrency=4):
        await start(1)
        await recorder.turn.until(lambda: len(recorder.landed) == 4)
        await clock.asleep(2)
        served.hold(*map(str, range(4)))
        clock.advance(INTERVAL_S)
        await served.turn.until(lambda: served.in_flight == 4)


async def test_target_that_responds_again_is_not_slow(running, clock, recorder, target, turn):
    pages = Scripted(turn)
    flaky = target("flaky")
    gate = asyncio.Event()
    gate.set()
    async with running(flaky, pages=pages, concurrency=1):
        await clock.asleep(1)
        clock.advance(0.0)
        await clock.asleep(2)
        for n, slow in enumerate([True, False, True, True, False], start=1):
            pages.slow = {flaky.url: gate} if slow else {}
            clock.advance(INTERVAL_S / 2 if n == 1 else INTERVAL_S)
            await turn.until(lambda n=n: len(recorder.landed) == n)
            await clock.asleep(2)
    timeout = FailureKind.TIMEOUT
    assert recorder.failures(flaky) == [timeout, None, timeout, timeout, None]


async def test_late_target_catches_up_one_missed_round(running, clock, recorder, served, target, start):
    served.hold("late")
    async with running(target("late")):
        await start(1)
        await served.turn.until(lambda: served.in_flight == 1)
        for _ in range(3):
            await clock.asleep(2)
            clock.advance(INTERVAL_S)
        await clock.asleep(2)
        served.release()
        await recorder.turn.until(lambda: len(recorder.landed) == 2)
        await clock.asleep(2)
        assert served.requests == ["late"] * 2
        clock.advance(INTERVAL_S)
        await recorder.turn.until(lambda: len(recorder.landed) == 3)
    assert [scrape.at - FIRST for scrape in recorder.landed] == [3 * INTERVAL_S, 3 * INTERVAL_S, 4 * INTERVAL_S]


async def test_duration_and_receipt_are_those_of_the_clock(running, clock, recorder, served, target, start):
    served.hold("a")
    async with running(target("a")):
        await start(1)
        await served.turn.until(lambda: served.in_flight == 1)
        clock.advance(0.7)
        served.release()
        await recorder.turn.until(lambda: recorder.landed)
    (scrape,) = recorder.landed
    assert scrape.at == pytest.approx(FIRST + 0.7)
    assert scrape.took_s == pytest.approx(0.7)


async def test_targets_share_one_session_and_keep_connections(running, clock, recorder, served, target, start):
    async with running(target("a"), target("b")):
        await start(2)
        for turn in range(1, 6):
            await recorder.turn.until(lambda turn=turn: len(recorder.landed) == 2 * turn)
            await clock.asleep(3)
            clock.advance(INTERVAL_S)
        await recorder.turn.until(lambda: len(recorder.landed) == 12)
    assert len(served.client_addresses) <= 2


async def test_cancelled_loop_leaves_no_task_and_no_connection(running, clock, served, target, start, http):
    before = asyncio.all_tasks()
    served.hold("held")
    async with running(target("held"), target("asleep")):
        await start(2)
        await served.turn.until(lambda: served.requests.count("held") == 1 and "asleep" in served.ended)
        await clock.asleep(4)
    assert clock.due == []
    await served.turn.until(lambda: served.in_flight == 0)  # the server noticed the closed connection
    await http.close()
    left = asyncio.all_tasks() - before
    async with asyncio.timeout(60.0):
        await asyncio.gather(*left, return_exceptions=True)  # tasks of the server, which end with their connections
    assert not [task for task in left if task.get_name().startswith(("scrape", "discovery", "deadline"))]


async def test_timeout_fails_the_scrape_and_keeps_the_target(running, clock, recorder, served, target, start):
    pages = HttpPages(HttpLimits(timeout_s=0.05, body_bytes=1000))
    served.hold("a")
    async with running(target("a"), pages=pages):
        await start(1)
        await recorder.turn.until(lambda: len(recorder.landed) == 1)
        served.release()
        await clock.asleep(2)
        pages.limits = HttpLimits(timeout_s=20.0, body_bytes=1000)
        clock.advance(INTERVAL_S)
        await recorder.turn.until(lambda: len(recorder.landed) == 2)
    await pages.close()
    assert recorder.failures(target("a")) == [FailureKind.TIMEOUT, None]


def delays(loop):
    return loop.delays.late, loop.delays.skipped[Skipped.OVERLOAD], loop.delays.skipped[Skipped.SLOW_TARGET]


async def test_scrapes_on_time_are_neither_late_nor_skipped(running, clock, recorder, target, start):
    async with running(target("a"), target("b")) as loop:
        await start(2)
        for turn in range(1, 4):
            await recorder.turn.until(lambda turn=turn: len(recorder.landed) == 2 * turn)
            await clock.asleep(3)
            clock.advance(INTERVAL_S)
        await recorder.turn.until(lambda: len(recorder.landed) == 8)
        assert delays(loop) == (0, 0, 0)


async def test_rounds_that_a_busy_event_loop_passes_over_are_counted(running, clock, recorder, target, start):
    async with running(target("a"), target("b")) as loop:
        await start(2)
        await recorder.turn.until(lambda: len(recorder.landed) == 2)
        await clock.asleep(3)
        clock.advance(4.2 * INTERVAL_S)  # the round after one interval begins 3.2 late; three more are passed over
        await recorder.turn.until(lambda: len(recorder.landed) == 4)
        await clock.asleep(3)
        assert delays(loop) == (2, 3 * 2, 0)


async def test_scrapes_that_wait_for_their_turn_are_late_and_then_skipped(running, clock, recorder, target, turn):
    fleet, pages = [target("a"), target("b")], Scripted(turn)
    gate = asyncio.Event()
    pages.slow = {each.url: gate for each in fleet}
    async with running(*fleet, pages=pages, concurrency=1) as loop:
        await clock.asleep(2)
        clock.advance(0.0)
        await clock.asleep(3)
        clock.advance(INTERVAL_S / 2)
        await turn.until(lambda: pages.waiting)
        await clock.asleep(4)
        clock.advance(INTERVAL_S)  # the one has no response yet, the other has not been sent
        await clock.asleep(3)
        assert delays(loop) == (0, 1, 1)
        pages.slow = {}
        gate.set()
        await turn.until(lambda: len(recorder.landed) >= 2)
        assert loop.delays.late == 1


async def test_scrape_that_waited_for_its_turn_is_not_requested_again(running, clock, recorder, target, turn):
    fleet, pages = [target("a"), target("b")], Scripted(turn)
    gate = asyncio.Event()
    pages.slow = {each.url: gate for each in fleet}
    async with running(*fleet, pages=pages, concurrency=1):
        await clock.asleep(2)
        clock.advance(0.0)
        await clock.asleep(3)
        clock.advance(INTERVAL_S / 2)
        await turn.until(lambda: pages.waiting)
        for sleepers in (4, 3):  # the deadline of the first round is one
            await clock.asleep(sleepers)
            clock.advance(INTERVAL_S)
        await clock.asleep(3)
        pages.slow = {}
        gate.set()
        await turn.until(lambda: len(recorder.landed) >= 3)
        await clock.asleep(3)
    # The one had been sent before the last round began; the other was sent after it.
    assert Counter(scrape.target for scrape in recorder.landed) == {target("a"): 2, target("b"): 1}


async def test_scrape_is_late_from_a_tenth_of_its_interval_on(running, clock, recorder, target, start):
    async with running(target("a")) as loop:
        await start(1)
        for late, expected in ((0.9 * LATE, 0), (1.1 * LATE, 1)):
            await recorder.turn.until(lambda: recorder.landed)
            await clock.asleep(2)
            recorder.landed.clear()
            clock.advance(clock.due[-1] - clock.time + late * INTERVAL_S)
            await recorder.turn.until(lambda: recorder.landed)
            assert loop.delays.late == expected


async def test_slow_target_is_not_an_overload(running, clock, recorder, served, target, start):
    served.hold("slow")
    async with running(target("slow")) as loop:
        await start(1)
        await served.turn.until(lambda: served.in_flight == 1)
        for _ in range(3):
            await clock.asleep(2)
            clock.advance(INTERVAL_S)
        await clock.asleep(2)
        assert delays(loop) == (0, 0, 3)
