"""The loop follows targets that appear, disappear, or are on a list that is unknown."""

import pytest
from aiohttp import web

from exporter.discovery.dns import DnsTargets, StaticTargets
from exporter.model import Role, Target, WorkloadKey
from exporter.scrape.loop import NEW_TARGETS_S, ROUND_WAIT_S

from .conftest import FIRST

INTERVAL_S = 5.0
CHAT = WorkloadKey("ai", "chat")


async def test_new_target_is_scraped_at_once(running, clock, recorder, listing, target, start):
    pods = listing([target("a")])
    async with running(pods):
        await start(1)
        await recorder.turn.until(lambda: len(recorder.landed) == 1)
        pods.targets = (target("a"), target("new"))
        await clock.asleep(2)
        clock.advance(INTERVAL_S / 2)  # the refresh, and no round
        await recorder.turn.until(lambda: recorder.of(target("new")))
        # In a round with the other target: a sum of responses of two times would be wrong.
        assert {scrape.target for scrape in recorder.rounds[-1]} == {target("a"), target("new")}
        await clock.asleep(2)
        clock.advance(INTERVAL_S / 2)
        await recorder.turn.until(lambda: len(recorder.of(target("new"))) == 2)
    assert recorder.added == [target("a"), target("new")]
    assert [scrape.at for scrape in recorder.of(target("new"))] == [FIRST + INTERVAL_S / 2, FIRST + INTERVAL_S]
    assert len(recorder.rounds) == 3


async def test_pods_that_appear_one_by_one_cause_one_round_per_second(running, clock, recorder, listing, target, start):
    pods = listing([target("0")])
    async with running(pods) as loop:
        await start(1)
        await recorder.turn.until(lambda: len(recorder.rounds) == 1)
        for number in range(1, 11):  # ten within a second
            pods.targets = tuple(target(str(n)) for n in range(number + 1))
            loop.look(pods)
            await recorder.turn.until(lambda number=number: len(recorder.added) == number + 1)
            await clock.asleep(3)  # the extra round has not begun, because the last one was recent
            clock.advance(0.05)
        clock.advance(NEW_TARGETS_S)
        await recorder.turn.until(lambda: len(recorder.rounds) == 2)
    assert {scrape.target for scrape in recorder.rounds[1]} == {target(str(n)) for n in range(11)}


async def test_removed_target_is_retired(running, clock, recorder, listing, target, start):
    a, b = target("a"), target("b")
    pods = listing([a, b])
    async with running(pods) as loop:
        await start(1)
        await recorder.turn.until(lambda: len(recorder.landed) == 2)
        assert set(loop.counters) == {a, b}
        pods.targets = (b,)
        await clock.asleep(2)
        clock.advance(INTERVAL_S)
        await recorder.turn.until(lambda: recorder.retired and len(recorder.of(b)) == 2)
        assert recorder.retired == [a]
        assert set(loop.counters) == {b}
        await clock.asleep(2)
        requests = len(recorder.of(a))
        clock.advance(INTERVAL_S)
        await recorder.turn.until(lambda: len(recorder.of(b)) == 3)
        assert len(recorder.of(a)) == requests


async def test_target_removed_during_its_scrape_delivers_nothing(
    running, clock, recorder, served, listing, target, start
):
    a, b = target("a"), target("b")
    served.hold("a")
    pods = listing([a, b])
    async with running(pods):
        await start(1)
        await served.turn.until(lambda: "a" in served.requests)
        await clock.asleep(3)
        clock.advance(ROUND_WAIT_S)
        await recorder.turn.until(lambda: recorder.of(b))
        pods.targets = (b,)
        await clock.asleep(2)
        clock.advance(INTERVAL_S)
        await recorder.turn.until(lambda: recorder.retired)
        await served.turn.until(lambda: "a" in served.ended)  # the connection of the removed target is closed
        await recorder.turn.until(lambda: len(recorder.of(b)) == 2)
    assert recorder.of(a) == []


async def test_target_that_returns_starts_with_empty_state(running, clock, recorder, listing, target, start):
    a = target("a")
    pods = listing([a])
    async with running(pods) as loop:
        await start(1)
        await recorder.turn.until(lambda: len(recorder.landed) == 1)
        for targets in ((), (a,)):
            pods.targets = targets
            await clock.asleep(2 if targets == () else 1)
            clock.advance(INTERVAL_S / 2 if targets == () else INTERVAL_S)  # the refresh
            await recorder.turn.until(lambda targets=targets: tuple(loop.counters) == targets)
        await recorder.turn.until(lambda: len(recorder.landed) == 2)
        assert loop.counters[a].scrapes == 1
    assert (recorder.added, recorder.retired) == ([a, a], [a])


async def test_targets_of_a_list_that_becomes_unknown_are_still_scraped(
    running, clock, recorder, listing, target, start
):
    a = target("a")
    pods = listing([a])
    async with running(pods):
        await start(1)
        await recorder.turn.until(lambda: len(recorder.landed) == 1)
        pods.targets = None
        for turn in (2, 3, 4):
            await clock.asleep(2)
            clock.advance(INTERVAL_S)
            await recorder.turn.until(lambda turn=turn: len(recorder.of(a)) == turn and len(recorder.listed) == turn)
    assert recorder.retired == []
    assert [values for _, values in recorder.listed] == [(a,), None, None, None]


async def test_list_that_is_unknown_at_first_has_no_targets(running, clock, recorder, listing, target):
    pods = listing(None, owner=CHAT)
    async with running(pods) as loop:
        await clock.asleep(1)
        clock.advance(0.0)
        await recorder.turn.until(lambda: recorder.listed)
        assert recorder.listed == [(pods, None)]
        assert loop.counters == {}
        pods.targets = ()
        await clock.asleep(1)
        clock.advance(INTERVAL_S)
        await recorder.turn.until(lambda: len(recorder.listed) == 2)
        assert recorder.listed[1] == (pods, ())


async def test_target_on_two_lists_is_scraped_once_until_both_drop_it(running, clock, recorder, listing, target, start):
    a = target("a")
    one, two = listing([a]), listing([a])
    async with running(one, two):
        await start(2)
        await recorder.turn.until(lambda: len(recorder.landed) == 1)
        one.targets = ()
        await clock.asleep(3)
        clock.advance(INTERVAL_S)
        await recorder.turn.until(lambda: len(recorder.landed) == 2 and len(recorder.listed) == 4)
        assert recorder.retired == []
        two.targets = ()
        await clock.asleep(3)
        clock.advance(INTERVAL_S)
        await recorder.turn.until(lambda: recorder.retired)
    assert (recorder.added, recorder.retired) == ([a], [a])


async def test_slow_discovery_delays_no_other(running, clock, recorder, listing, target):
    stuck, quick = listing([target("stuck")]), listing([target("quick")])
    stuck.gate.clear()
    async with running(stuck, quick):
        await clock.asleep(2)
        clock.advance(0.0)
        await clock.asleep(2)  # the fast refresh and its target
        clock.advance(INTERVAL_S / 2)
        for turn in (1, 2, 3):
            await recorder.turn.until(lambda turn=turn: len(recorder.of(target("quick"))) == turn)
            await clock.asleep(2)
            clock.advance(INTERVAL_S)
        assert stuck.refreshes == 0
        assert quick.refreshes >= 3


async def test_targets_of_the_configuration_are_listed_once(running, clock, recorder, target):
    async with running(StaticTargets([target("a")], CHAT)) as loop:
        await clock.asleep(1)
        clock.advance(0.0)
        for turn in (1, 2, 3):
            await clock.asleep(1)  # the workload alone
            clock.advance(INTERVAL_S)
            await recorder.turn.until(lambda turn=turn: len(recorder.landed) == turn)
        assert len(recorder.listed) == 1
        loop.look(loop.discoveries[0])
        await recorder.turn.until(lambda: len(recorder.listed) == 2)


async def test_unchanged_list_changes_no_target(running, clock, recorder, listing, target, start):
    pods = listing([target("a")])
    async with running(pods):
        await start(1)
        for turn in range(1, 6):
            await recorder.turn.until(lambda turn=turn: len(recorder.landed) == turn)
            pods.targets = (target("a"),)  # an equal but different object, as from DNS
            await clock.asleep(2)
            clock.advance(INTERVAL_S)
    assert (len(recorder.added), recorder.retired) == (1, [])


@pytest.fixture
async def pods_at():
    """`port = await pods_at("127.0.0.2", …)`: servers on these addresses and one port; pages differ by their model."""
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


def service_targets(addresses, port):
    """Returns a discovery of a headless Service that resolves to the current `addresses`."""

    async def resolver(name):
        return set(addresses)

    def target_at(address):
        host = f"[{address}]" if ":" in address else address
        return Target(f"http://{host}:{port}/metrics", "vllm", Role.PODS, CHAT)

    return DnsTargets("chat.ai.svc", target_at, owner=CHAT, timeout_s=20.0, keep_s=15.0, resolver=resolver)


def scraped_pods(recorder):
    return [scrape.outcome.subjects[0].name for scrape in recorder.landed]


async def test_every_pod_of_a_service_is_scraped_at_its_address(running, clock, recorder, start, pods_at):
    addresses = {"127.0.0.2", "127.0.0.3"}
    async with running(service_targets(addresses, await pods_at("127.0.0.2", "127.0.0.3"))):
        await start(1)
        await recorder.turn.until(lambda: len(recorder.landed) == 2)
        assert sorted(scraped_pods(recorder)) == ["127.0.0.2", "127.0.0.3"]
        addresses.remove("127.0.0.2")
        await clock.asleep(2)
        clock.advance(INTERVAL_S)
        await recorder.turn.until(lambda: recorder.retired)
        await clock.asleep(2)
        del recorder.landed[:]
        clock.advance(INTERVAL_S)
        await recorder.turn.until(lambda: recorder.landed)
        assert scraped_pods(recorder) == ["127.0.0.3"]


async def test_pod_with_an_ipv6_address_is_scraped(running, recorder, start, pods_at):
    async with running(service_targets({"::1"}, await pods_at("::1"))):
        await start(1)
        await recorder.turn.until(lambda: recorder.landed)
    assert scraped_pods(recorder) == ["::1"]


async def test_discoveries_may_change_while_the_loop_runs(running, clock, recorder, listing, target, start):
    first, second = listing([target("a"), target("both")]), listing([target("b"), target("both")])
    async with running(first) as loop:
        await start(1)
        await recorder.turn.until(lambda: len(recorder.landed) == 2)
        loop.follow([first, second])
        await clock.asleep(3)  # the refresh of the first, the rounds of the workload, and the second before its refresh
        clock.advance(0.0)
        await recorder.turn.until(lambda: target("b") in recorder.added)
        assert recorder.added.count(target("both")) == 1
        loop.follow([second])
        assert recorder.retired == [target("a")]
        assert set(loop.counters) == {target("b"), target("both")}


async def test_removed_discovery_is_not_refreshed_again(running, clock, recorder, listing, target, start):
    pods = listing([target("a")])
    async with running(pods) as loop:
        await start(1)
        await recorder.turn.until(lambda: recorder.landed)
        loop.follow([])
        await clock.asleep(0)
        looked = pods.refreshes
        loop.look(pods)
        clock.advance(10 * INTERVAL_S)
        await clock.asleep(0)
    assert (pods.refreshes, recorder.retired) == (looked, [target("a")])


async def test_changed_discovery_is_refreshed_at_once(running, clock, recorder, listing, target, start):
    pods = listing([target("a")])
    async with running(pods) as loop:
        await start(1)
        await recorder.turn.until(lambda: recorder.landed)
        pods.targets = (target("a"), target("new"))
        loop.look(pods)
        await recorder.turn.until(lambda: target("new") in recorder.added)
        assert clock.now() == FIRST


async def test_terminating_target_is_still_scraped(running, clock, recorder, listing, target, start):
    pods = listing([target("a")])
    async with running(pods) as loop:
        await start(1)
        await recorder.turn.until(lambda: recorder.landed)
        pods.leaving = (target("a"),)
        loop.look(pods)
        await recorder.turn.until(lambda: len(recorder.listed) == 2)
        await clock.asleep(2)
        clock.advance(INTERVAL_S)
        await recorder.turn.until(lambda: len(recorder.of(target("a"))) == 2)
    assert (recorder.added, recorder.retired) == ([target("a")], [])
