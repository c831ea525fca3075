"""Who is asked: targets that appear, vanish, or are on a list that nobody knows at the moment."""

import pytest
from aiohttp import web

from exporter.discovery.dns import DnsTargets
from exporter.model import Role, Target, WorkloadKey
from exporter.scrape.loop import NEW_TARGETS_S, ROUND_WAIT_S

from .conftest import FIRST

INTERVAL_S = 5.0
CHAT = WorkloadKey("ai", "chat")


async def test_a_target_that_appears_is_asked_at_once(running, clock, heard, listing, target, start):
    pods = listing([target("a")])
    async with running(pods):
        await start(1)
        await heard.turn.until(lambda: len(heard.landed) == 1)
        pods.targets = (target("a"), target("new"))
        await clock.asleep(2)
        clock.advance(INTERVAL_S / 2)  # the look, and no round
        await heard.turn.until(lambda: heard.of(target("new")))
        # Not by itself: a sum of its response and the last one of the other would be of two moments.
        assert {scrape.target for scrape in heard.rounds[-1]} == {target("a"), target("new")}
        await clock.asleep(2)
        clock.advance(INTERVAL_S / 2)
        await heard.turn.until(lambda: len(heard.of(target("new"))) == 2)
    assert heard.added == [target("a"), target("new")]
    assert [scrape.at for scrape in heard.of(target("new"))] == [FIRST + INTERVAL_S / 2, FIRST + INTERVAL_S]
    assert len(heard.rounds) == 3


async def test_pods_that_appear_one_after_the_other_cause_a_round_a_second(
    running, clock, heard, listing, target, start
):
    pods = listing([target("0")])
    async with running(pods) as loop:
        await start(1)
        await heard.turn.until(lambda: len(heard.rounds) == 1)
        for number in range(1, 11):  # ten within a second
            pods.targets = tuple(target(str(n)) for n in range(number + 1))
            loop.look(pods)
            await heard.turn.until(lambda number=number: len(heard.added) == number + 1)
            await clock.asleep(3)  # the extra round has not begun: the last one was a moment ago
            clock.advance(0.05)
        clock.advance(NEW_TARGETS_S)
        await heard.turn.until(lambda: len(heard.rounds) == 2)
    assert {scrape.target for scrape in heard.rounds[1]} == {target(str(n)) for n in range(11)}


async def test_a_target_that_vanishes_is_retired_and_forgotten(running, clock, heard, listing, target, start):
    a, b = target("a"), target("b")
    pods = listing([a, b])
    async with running(pods) as loop:
        await start(1)
        await heard.turn.until(lambda: len(heard.landed) == 2)
        assert set(loop.counters) == {a, b}
        pods.targets = (b,)
        await clock.asleep(2)
        clock.advance(INTERVAL_S)
        await heard.turn.until(lambda: heard.retired and len(heard.of(b)) == 2)
        assert heard.retired == [a]
        assert set(loop.counters) == {b}
        await clock.asleep(2)
        asked = len(heard.of(a))
        clock.advance(INTERVAL_S)
        await heard.turn.until(lambda: len(heard.of(b)) == 3)
        assert len(heard.of(a)) == asked


async def test_nothing_lands_of_a_target_that_vanished_while_it_was_asked(
    running, clock, heard, served, listing, target, start
):
    a, b = target("a"), target("b")
    served.hold("a")
    pods = listing([a, b])
    async with running(pods):
        await start(1)
        await served.turn.until(lambda: "a" in served.asked)
        await clock.asleep(3)
        clock.advance(ROUND_WAIT_S)
        await heard.turn.until(lambda: heard.of(b))
        pods.targets = (b,)
        await clock.asleep(2)
        clock.advance(INTERVAL_S)
        await heard.turn.until(lambda: heard.retired)
        await served.turn.until(lambda: "a" in served.ended)  # its connection was closed
        await heard.turn.until(lambda: len(heard.of(b)) == 2)
    assert heard.of(a) == []


async def test_a_target_that_comes_back_begins_anew(running, clock, heard, listing, target, start):
    a = target("a")
    pods = listing([a])
    async with running(pods) as loop:
        await start(1)
        await heard.turn.until(lambda: len(heard.landed) == 1)
        for targets in ((), (a,)):
            pods.targets = targets
            await clock.asleep(2 if targets == () else 1)
            clock.advance(INTERVAL_S / 2 if targets == () else INTERVAL_S)  # the look
            await heard.turn.until(lambda targets=targets: tuple(loop.counters) == targets)
        await heard.turn.until(lambda: len(heard.landed) == 2)
        assert loop.counters[a].scrapes == 1
    assert (heard.added, heard.retired) == ([a, a], [a])


async def test_while_a_list_is_not_known_whoever_was_on_it_is_still_asked(
    running, clock, heard, listing, target, start
):
    a = target("a")
    pods = listing([a])
    async with running(pods):
        await start(1)
        await heard.turn.until(lambda: len(heard.landed) == 1)
        pods.targets = None
        for turn in (2, 3, 4):
            await clock.asleep(2)
            clock.advance(INTERVAL_S)
            await heard.turn.until(lambda turn=turn: len(heard.of(a)) == turn and len(heard.listed) == turn)
    assert heard.retired == []
    assert [said for _, said in heard.listed] == [(a,), None, None, None]


async def test_a_list_that_is_not_known_at_first_asks_nobody(running, clock, heard, listing, target):
    pods = listing(None, owner=CHAT)
    async with running(pods) as loop:
        await clock.asleep(1)
        clock.advance(0.0)
        await heard.turn.until(lambda: heard.listed)
        assert heard.listed == [(pods, None)]
        assert loop.counters == {}
        pods.targets = ()
        await clock.asleep(1)
        clock.advance(INTERVAL_S)
        await heard.turn.until(lambda: len(heard.listed) == 2)
        assert heard.listed[1] == (pods, ())


async def test_a_target_on_two_lists_is_asked_once_and_lives_as_long_as_either(
    running, clock, heard, listing, target, start
):
    a = target("a")
    one, two = listing([a]), listing([a])
    async with running(one, two):
        await start(2)
        await heard.turn.until(lambda: len(heard.landed) == 1)
        one.targets = ()
        await clock.asleep(3)
        clock.advance(INTERVAL_S)
        await heard.turn.until(lambda: len(heard.landed) == 2 and len(heard.listed) == 4)
        assert heard.retired == []
        two.targets = ()
        await clock.asleep(3)
        clock.advance(INTERVAL_S)
        await heard.turn.until(lambda: heard.retired)
    assert (heard.added, heard.retired) == ([a], [a])


async def test_who_looks_slowly_holds_up_nobody_else(running, clock, heard, listing, target):
    stuck, quick = listing([target("stuck")]), listing([target("quick")])
    stuck.gate.clear()
    async with running(stuck, quick):
        await clock.asleep(2)
        clock.advance(0.0)
        await clock.asleep(2)  # the quick look, its target
        clock.advance(INTERVAL_S / 2)
        for turn in (1, 2, 3):
            await heard.turn.until(lambda turn=turn: len(heard.of(target("quick"))) == turn)
            await clock.asleep(2)
            clock.advance(INTERVAL_S)
        assert stuck.looked == 0
        assert quick.looked >= 3


async def test_the_same_list_again_disturbs_nobody(running, clock, heard, listing, target, start):
    pods = listing([target("a")])
    async with running(pods):
        await start(1)
        for turn in range(1, 6):
            await heard.turn.until(lambda turn=turn: len(heard.landed) == turn)
            pods.targets = (target("a"),)  # equal, and another object, as DNS makes it
            await clock.asleep(2)
            clock.advance(INTERVAL_S)
    assert (len(heard.added), heard.retired) == (1, [])


@pytest.fixture
async def pods_at():
    """`port = await pods_at("127.0.0.2", …)`: a server on each address, all on one port; each page names its own."""
    runners = []

    async def start(*addresses):
        port = 0
        for address in addresses:
            app = web.Application()
            page = f'vllm:num_requests_waiting{{model_name="{address}"}} 1\n'.encode()

            async def answer(request, page=page):
                return web.Response(body=page)

            app.router.add_get("/metrics", answer)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            runners.append(runner)
            await runner.setup()
            try:
                await web.TCPSite(runner, address, port).start()
            except OSError as error:
                pytest.skip(f"{address} cannot be listened on here: {error}")
            port = runner.addresses[0][1]
        return port

    yield start
    for runner in runners:
        await runner.cleanup()


def behind(addresses, port):
    """A headless Service whose answer is the set `addresses`, as it is when asked."""

    async def resolver(name):
        return set(addresses)

    def target_at(address):
        host = f"[{address}]" if ":" in address else address
        return Target(f"http://{host}:{port}/metrics", "vllm", Role.PODS, CHAT)

    return DnsTargets("chat.ai.svc", target_at, owner=CHAT, timeout_s=20.0, keep_s=15.0, resolver=resolver)


def pods_heard(heard):
    return [scrape.outcome.subjects[0].name for scrape in heard.landed]


async def test_every_pod_behind_a_service_is_asked_at_its_own_address(running, clock, heard, start, pods_at):
    addresses = {"127.0.0.2", "127.0.0.3"}
    async with running(behind(addresses, await pods_at("127.0.0.2", "127.0.0.3"))):
        await start(1)
        await heard.turn.until(lambda: len(heard.landed) == 2)
        assert sorted(pods_heard(heard)) == ["127.0.0.2", "127.0.0.3"]
        addresses.remove("127.0.0.2")
        await clock.asleep(2)
        clock.advance(INTERVAL_S)
        await heard.turn.until(lambda: heard.retired)
        await clock.asleep(2)
        del heard.landed[:]
        clock.advance(INTERVAL_S)
        await heard.turn.until(lambda: heard.landed)
        assert pods_heard(heard) == ["127.0.0.3"]


async def test_a_pod_with_an_ipv6_address_is_asked(running, heard, start, pods_at):
    async with running(behind({"::1"}, await pods_at("::1"))):
        await start(1)
        await heard.turn.until(lambda: heard.landed)
    assert pods_heard(heard) == ["::1"]


async def test_whom_is_followed_may_change_while_it_runs(running, clock, heard, listing, target, start):
    first, second = listing([target("a"), target("both")]), listing([target("b"), target("both")])
    async with running(first) as loop:
        await start(1)
        await heard.turn.until(lambda: len(heard.landed) == 2)
        loop.follow([first, second])
        await clock.asleep(3)  # the first's look and the workload's rounds, the second before its look
        clock.advance(0.0)
        await heard.turn.until(lambda: target("b") in heard.added)
        assert heard.added.count(target("both")) == 1
        loop.follow([second])
        assert heard.retired == [target("a")]
        assert set(loop.counters) == {target("b"), target("both")}


async def test_whoever_is_no_longer_followed_is_not_looked_at_again(running, clock, heard, listing, target, start):
    pods = listing([target("a")])
    async with running(pods) as loop:
        await start(1)
        await heard.turn.until(lambda: heard.landed)
        loop.follow([])
        await clock.asleep(0)
        looked = pods.looked
        loop.look(pods)
        clock.advance(10 * INTERVAL_S)
        await clock.asleep(0)
    assert (pods.looked, heard.retired) == (looked, [target("a")])


async def test_what_changed_is_looked_at_before_its_turn(running, clock, heard, listing, target, start):
    pods = listing([target("a")])
    async with running(pods) as loop:
        await start(1)
        await heard.turn.until(lambda: heard.landed)
        pods.targets = (target("a"), target("new"))
        loop.look(pods)
        await heard.turn.until(lambda: target("new") in heard.added)
        assert clock.now() == FIRST


async def test_a_target_that_begins_to_leave_goes_on_being_asked(running, clock, heard, listing, target, start):
    pods = listing([target("a")])
    async with running(pods) as loop:
        await start(1)
        await heard.turn.until(lambda: heard.landed)
        pods.leaving = (target("a"),)
        loop.look(pods)
        await heard.turn.until(lambda: len(heard.listed) == 2)
        await clock.asleep(2)
        clock.advance(INTERVAL_S)
        await heard.turn.until(lambda: len(heard.of(target("a"))) == 2)
    assert (heard.added, heard.retired) == ([target("a")], [])
