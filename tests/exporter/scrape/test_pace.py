"""A burst of tasks that are due at one moment lets the event loop look at its sockets in between."""

import asyncio
import resource
import sys
from random import Random

import pytest

from exporter.event_loop import SWITCH_S, run
from exporter.scrape.loop import LOOKUPS_AT_ONCE
from exporter.scrape.pace import TurnPace
from exporter.scrape.request import SENT_AT_ONCE
from exporter.textformat import PlainScanner

from .conftest import INTERVAL_S, Listing

MANY = 100


class Turns:
    """Counts what happens between two turns of the event loop. most: in one of them."""

    def __init__(self):
        self.now, self.most, self.total = 0, 0, 0

    def add(self):
        self.now += 1
        self.total += 1
        self.most = max(self.most, self.now)

    async def watch(self):
        while True:
            self.now = 0
            await asyncio.sleep(0)


@pytest.fixture
async def turns():
    counted = Turns()
    watching = asyncio.create_task(counted.watch())
    yield counted
    watching.cancel()


async def test_tasks_of_one_moment_go_on_some_in_each_turn_of_the_event_loop(turns):
    pace = TurnPace(7)

    async def work():
        await pace.turn()
        turns.add()

    await asyncio.gather(*(work() for _ in range(MANY)))
    assert (turns.total, turns.most) == (MANY, 7)


async def test_tasks_go_on_in_the_order_of_their_coming():
    pace, order = TurnPace(2), []

    async def work(number):
        await pace.turn()
        order.append(number)

    await asyncio.gather(*(work(number) for number in range(9)))
    assert order == list(range(9))


async def test_task_that_is_cancelled_while_it_waits_delays_no_other():
    pace, went_on = TurnPace(1), []

    async def work(number):
        await pace.turn()
        went_on.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(5)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    tasks[4].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert went_on == [0, 2, 3]
    await pace.turn()  # and the pace goes on


async def test_look_ups_that_are_due_together_begin_some_at_a_time(running, clock, recorder, turns):
    class Counted(Listing):
        async def refresh(self, now):
            turns.add()

    async with running(*(Counted() for _ in range(MANY))):
        await clock.asleep(MANY)
        clock.advance(0.0)
        await recorder.turn.until(lambda: turns.total == MANY)
    assert turns.most == LOOKUPS_AT_ONCE


async def test_look_ups_after_the_first_are_spread_over_the_whole_interval(running, clock):
    async with running(*(Listing() for _ in range(MANY)), jitter=Random(1)):
        await clock.asleep(MANY)
        clock.advance(INTERVAL_S / 10)
        await clock.asleep(MANY)
        due = [when - clock.time for when in clock.due]
    tenths = [sum(tenth <= 10 * when / INTERVAL_S < tenth + 1 for when in due) for tenth in range(10)]
    assert sum(tenths) == MANY
    assert min(tenths) > 0
    assert max(tenths) < MANY / 4


async def test_requests_of_one_moment_are_sent_some_at_a_time(running, clock, recorder, target, turns, start):
    class Counted:
        async def fetch(self, url, access):
            turns.add()
            return b'vllm:num_requests_waiting{model_name="m"} 3\n'

    fleet = Listing([target(str(number)) for number in range(MANY)])
    async with running(fleet, pages=Counted(), concurrency=MANY, new_scanner=lambda _: PlainScanner()):
        await start(1)
        await recorder.turn.until(lambda: len(recorder.landed) == MANY)
    assert turns.most == SENT_AT_ONCE


def test_as_many_files_may_be_open_as_the_process_is_allowed():
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def main():
        return resource.getrlimit(resource.RLIMIT_NOFILE)

    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(before, most) - 1, most))
        assert run(main()) == (most, most)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


def test_other_threads_give_the_interpreter_back_to_the_event_loop_soon():
    before = sys.getswitchinterval()

    async def main():
        return sys.getswitchinterval()

    try:
        assert run(main()) == pytest.approx(SWITCH_S)
    finally:
        sys.setswitchinterval(before)
