"""When each target is asked, and what one of them can do to the others."""

import asyncio
from itertools import pairwise
from random import Random

import pytest

from exporter.model import Failure, FailureKind, Samples
from exporter.scrape import ASK_SPREAD_S, LOOK_SPREAD_S
from exporter.sources.http import HttpPages, Limits

INTERVAL_S = 5.0  # as in the fixtures


async def test_each_target_is_asked_once_an_interval(running, clock, heard, served, target, start):
    async with running(target("a"), target("b")):
        await start(2, 2)
        for turn in range(1, 4):
            await heard.turn.until(lambda turn=turn: len(heard.landed) == 2 * turn)
            await clock.asleep(4)  # two looks, two scrapes
            clock.advance(INTERVAL_S)
        await heard.turn.until(lambda: len(heard.landed) == 8)
    assert sorted(served.asked) == ["a"] * 4 + ["b"] * 4
    assert [scrape.at for scrape in heard.of(target("a"))] == [1000.0, 1005.0, 1010.0, 1015.0]
    assert all(isinstance(scrape.outcome, Samples) for scrape in heard.landed)


async def test_a_fleet_begins_at_different_moments_within_the_spread(running, clock, listing, target):
    fleet = [target(str(n)) for n in range(50)]
    async with running(listing(fleet), jitter=Random(7)):
        await clock.asleep(1)
        (look,) = clock.due
        assert 1000.0 < look <= 1000.0 + LOOK_SPREAD_S
        clock.advance(look - 1000.0)
        await clock.asleep(51)
        begins = [when for when in clock.due if when < look + INTERVAL_S]
    assert len(set(begins)) == 50
    assert all(look <= when <= look + ASK_SPREAD_S for when in begins)
    assert max(begins) - min(begins) > ASK_SPREAD_S / 2


async def test_each_target_keeps_the_moment_it_was_born_with(running, clock, heard, listing, target):
    fleet = [target(str(n)) for n in range(10)]
    async with running(listing(fleet), jitter=Random(7)):
        await clock.asleep(1)
        while clock.time < 1030.0:
            await clock.asleep(1 if not heard.added else 11)
            clock.advance(clock.due[0] - clock.time)
        await clock.asleep(11)
    for each in fleet:
        ats = [scrape.at for scrape in heard.of(each)]
        assert len(ats) >= 5
        assert [b - a for a, b in pairwise(ats)] == pytest.approx([INTERVAL_S] * (len(ats) - 1))


async def test_no_more_are_asked_at_once_than_allowed(running, heard, served, listing, target, start):
    fleet = [target(str(n)) for n in range(12)]
    served.hold(*map(str, range(12)))
    async with running(listing(fleet), concurrency=4):
        await start(1, 12)
        await served.turn.until(lambda: served.in_flight == 4)
        assert len(served.asked) == 4
        served.release()
        await heard.turn.until(lambda: len(heard.landed) == 12)
    assert served.most_in_flight == 4


async def test_a_target_that_does_not_answer_delays_nobody(running, clock, heard, served, target, start):
    served.hold("slow")
    async with running(target("slow"), target("quick")):
        await start(2, 2)
        for turn in range(1, 5):
            await heard.turn.until(lambda turn=turn: len(heard.of(target("quick"))) == turn)
            await clock.asleep(3)  # the slow one is not asleep: it waits for its answer
            clock.advance(INTERVAL_S)
    assert heard.of(target("slow")) == []


class Scripted:
    """Speaks `Pages`: a URL in `slow` times out when the test lets it; others answer at once."""

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


async def test_who_timed_out_last_time_leaves_half_of_the_turns_to_the_others(running, clock, heard, target, turn):
    """A lost node: its pods each hold a turn until the time-out, and there are more of them than turns."""
    lost, well = [target(f"lost-{n}") for n in range(8)], target("well")
    pages = Scripted(turn)
    pages.slow = {each.url: asyncio.Event() for each in lost}
    async with running(*lost, well, pages=pages, concurrency=4):
        await clock.asleep(9)
        clock.advance(0.0)
        await clock.asleep(18)
        clock.advance(0.0)
        await turn.until(lambda: len(pages.waiting) == 4)  # nothing is known against them yet
        for event in pages.slow.values():
            event.set()
        await turn.until(lambda: len(heard.landed) == 9)
        await clock.asleep(18)
        pages.slow = {each.url: asyncio.Event() for each in lost}
        for round_ in range(2, 6):
            clock.advance(INTERVAL_S)
            await turn.until(lambda round_=round_: len(heard.of(well)) == round_)
            await clock.asleep(9 + 1)  # all looks and the one that is well; the lost ones hold or want turns
            assert len(pages.waiting) == 2


async def test_who_fails_without_delay_keeps_his_turn(running, clock, heard, served, listing, target, start):
    fleet = [target(str(n)) for n in range(4)]
    served.status = dict.fromkeys(map(str, range(4)), 500)
    async with running(listing(fleet), concurrency=4):
        await start(1, 4)
        await heard.turn.until(lambda: len(heard.landed) == 4)
        await clock.asleep(5)
        served.hold(*map(str, range(4)))
        clock.advance(INTERVAL_S)
        await served.turn.until(lambda: served.in_flight == 4)


async def test_one_that_timed_out_and_answers_again_is_like_any_other(running, clock, heard, target, turn):
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
            clock.advance(0.0 if n == 1 else INTERVAL_S)
            await turn.until(lambda n=n: len(heard.landed) == n)
            await clock.asleep(2)
    timeout = FailureKind.TIMEOUT
    assert heard.failures(flaky) == [timeout, None, timeout, timeout, None]


async def test_a_turn_that_ran_late_is_not_made_up_for(running, clock, heard, served, target, start):
    served.hold("late")
    async with running(target("late")):
        await start(1, 1)
        await served.turn.until(lambda: served.in_flight == 1)
        clock.advance(3.4 * INTERVAL_S)
        await clock.asleep(1)  # the look, which begins its next interval
        served.release()
        await heard.turn.until(lambda: len(heard.landed) == 1)
        await clock.asleep(2)
        # 17 s late: the next turn is due at once, the one after it an interval later; no burst of three.
        assert clock.due[0] == clock.time
        clock.advance(0.0)
        await heard.turn.until(lambda: len(heard.landed) == 2)
        await clock.asleep(2)
        assert clock.due == [clock.time + INTERVAL_S] * 2  # the look and the target
    assert len(served.asked) == 2


async def test_how_long_it_took_and_when_it_came_are_the_clocks(running, clock, heard, served, target, start):
    served.hold("a")
    async with running(target("a")):
        await start(1, 1)
        await served.turn.until(lambda: served.in_flight == 1)
        clock.advance(0.7)
        served.release()
        await heard.turn.until(lambda: heard.landed)
    (scrape,) = heard.landed
    assert scrape.at == pytest.approx(1000.7)
    assert scrape.took_s == pytest.approx(0.7)


async def test_all_targets_share_one_session_and_keep_their_connections(running, clock, heard, served, target, start):
    async with running(target("a"), target("b")):
        await start(2, 2)
        for turn in range(1, 6):
            await heard.turn.until(lambda turn=turn: len(heard.landed) == 2 * turn)
            await clock.asleep(4)
            clock.advance(INTERVAL_S)
        await heard.turn.until(lambda: len(heard.landed) == 12)
    assert len(served.peers) <= 2


async def test_a_loop_that_is_cancelled_leaves_no_task_and_no_connection(running, clock, served, target, start, http):
    before = asyncio.all_tasks()
    served.hold("held")
    async with running(target("held"), target("asleep")):
        await start(2, 2)
        await served.turn.until(lambda: served.asked.count("held") == 1 and "asleep" in served.ended)
        await clock.asleep(3)
    assert clock.sleepers == []
    await served.turn.until(lambda: served.in_flight == 0)  # the server saw its client go
    await http.close()
    left = asyncio.all_tasks() - before
    async with asyncio.timeout(20.0):
        await asyncio.gather(*left, return_exceptions=True)  # the server's own, which end with their connections
    assert not [task for task in left if task.get_name().startswith(("scrape", "look"))]


async def test_a_real_time_out_costs_the_scrape_and_not_the_target(running, clock, heard, served, target, start):
    pages = HttpPages(Limits(timeout_s=0.05, body_bytes=1000))
    served.hold("a")
    async with running(target("a"), pages=pages):
        await start(1, 1)
        await heard.turn.until(lambda: len(heard.landed) == 1)
        served.release()
        await clock.asleep(2)
        pages.limits = Limits(timeout_s=20.0, body_bytes=1000)
        clock.advance(INTERVAL_S)
        await heard.turn.until(lambda: len(heard.landed) == 2)
    await pages.close()
    assert heard.failures(target("a")) == [FailureKind.TIMEOUT, None]
