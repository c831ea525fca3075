"""Lists that come from DNS: what an answer is, what none is, and for how long the last one stands."""

import asyncio
import socket
import threading

import pytest

from exporter.discovery import Listing
from exporter.discovery.dns import DnsTargets, resolve
from exporter.event_loop import run
from exporter.model import Role, Target, WorkloadKey

CHAT = WorkloadKey("ai", "chat")
PATIENCE_S = 20.0
KEEP_S = 15.0


class Names:
    """A resolver: answers with `answer`, raises it if it is an exception, and is silent if it is None."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    async def __call__(self, name):
        self.asked.append(name)
        if self.answer is None:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return set(self.answer)


def target_at(address):
    return Target(f"http://{address}/", "vllm", Role.PODS, CHAT)


def pods_of(resolver, timeout_s=PATIENCE_S):
    return DnsTargets("chat.ai.svc", target_at, owner=CHAT, timeout_s=timeout_s, keep_s=KEEP_S, resolver=resolver)


def hosts(targets):
    listing = targets.listing()
    return (
        None
        if listing is None
        else [target.url.removeprefix("http://").removesuffix("/") for target in listing.targets]
    )


SILENT = None
FAILURES = [OSError("no route"), socket.gaierror(socket.EAI_AGAIN, "try again"), UnicodeError("label too long")]


async def test_before_the_first_answer_nothing_is_known():
    targets = pods_of(Names(["127.0.0.2"]))
    assert targets.listing() is None
    assert targets.owner == CHAT


async def test_every_address_is_a_target_in_an_order_that_does_not_change():
    names = Names(["127.0.0.3", "127.0.0.2"])
    targets = pods_of(names)
    await targets.refresh(0.0)
    assert hosts(targets) == ["127.0.0.2", "127.0.0.3"]
    assert names.asked == ["chat.ai.svc"]


async def test_pods_come_and_go_with_the_answers():
    names = Names(["127.0.0.2"])
    targets = pods_of(names)
    seen = []
    for now, answer in enumerate([["127.0.0.2"], ["127.0.0.2", "127.0.0.3"], ["127.0.0.3"], []]):
        names.answer = answer
        await targets.refresh(float(now))
        seen.append(hosts(targets))
    assert seen == [["127.0.0.2"], ["127.0.0.2", "127.0.0.3"], ["127.0.0.3"], []]


async def test_no_address_is_an_answer():
    names = Names([])
    targets = pods_of(names)
    await targets.refresh(0.0)
    assert targets.listing() == Listing(())
    assert targets.failure is None


@pytest.mark.parametrize("failure", FAILURES)
async def test_where_the_first_lookup_fails_nothing_is_known(failure):
    targets = pods_of(Names(failure))
    await targets.refresh(0.0)
    assert targets.listing() is None
    assert str(failure) in targets.failure


@pytest.mark.parametrize("failure", FAILURES)
async def test_the_last_answer_stands_for_a_while_and_then_nothing_is_known(failure):
    names = Names(["127.0.0.2"])
    targets = pods_of(names)
    await targets.refresh(100.0)
    names.answer = failure
    await targets.refresh(100.0 + KEEP_S)
    assert hosts(targets) == ["127.0.0.2"]
    assert "chat.ai.svc" in targets.failure
    await targets.refresh(100.5 + KEEP_S)
    assert hosts(targets) is None
    names.answer = ["127.0.0.3"]
    await targets.refresh(200.0)
    assert hosts(targets) == ["127.0.0.3"]
    assert targets.failure is None


async def test_the_time_the_last_answer_stands_begins_anew_with_each_answer():
    names = Names(["127.0.0.2"])
    targets = pods_of(names)
    for now in (0.0, KEEP_S, 2 * KEEP_S):
        names.answer = ["127.0.0.2"]
        await targets.refresh(now)
        names.answer = OSError("no route")
        await targets.refresh(now + KEEP_S)
        assert hosts(targets) == ["127.0.0.2"]


async def test_silence_is_no_answer_and_says_how_long_it_was_waited_for():
    targets = pods_of(Names(SILENT), timeout_s=0.02)
    async with asyncio.timeout(PATIENCE_S):
        await targets.refresh(0.0)
    assert targets.listing() is None
    assert targets.failure == "chat.ai.svc: no answer within 0.02 s"


async def test_a_pod_with_an_address_in_each_family_counts_once():
    names = Names(["127.0.0.2", "127.0.0.3", "::2", "::3"])
    targets = pods_of(names)
    await targets.refresh(0.0)
    assert hosts(targets) == ["127.0.0.2", "127.0.0.3"]
    names.answer = ["::3", "::2"]
    await targets.refresh(1.0)
    assert hosts(targets) == ["::2", "::3"]


async def test_the_system_resolves_localhost():
    found = await resolve("localhost")
    assert found
    assert found <= {"127.0.0.1", "::1"}


async def test_a_numeric_name_is_its_own_address():
    assert await resolve("127.0.0.2") == {"127.0.0.2"}
    assert await resolve("::1") == {"::1"}


async def test_unknown_name_has_no_addresses():
    # An interface that does not exist: getaddrinfo answers EAI_NONAME by itself, without a name server.
    assert await resolve("fe80::1%nosuchinterface") == set()


@pytest.mark.parametrize(
    ("said", "answered"),
    [("EAI_NONAME", True), ("EAI_NODATA", True), ("EAI_AGAIN", False), ("EAI_FAIL", False), ("EAI_SYSTEM", False)],
)
async def test_only_errors_that_mean_no_address_are_an_answer(monkeypatch, said, answered):
    number = getattr(socket, said)

    def getaddrinfo(*_, **__):
        raise socket.gaierror(number, said)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    if answered:
        assert await resolve("chat.ai.svc") == set()
    else:
        with pytest.raises(OSError, match=said):
            await resolve("chat.ai.svc")


async def test_a_name_that_cannot_be_asked_for_is_no_answer():
    targets = DnsTargets("a..b", target_at, owner=None, timeout_s=PATIENCE_S, keep_s=KEEP_S)
    await targets.refresh(0.0)
    assert targets.listing() is None
    assert targets.failure


class Hanging:
    """getaddrinfo, blocked until `release` is set."""

    def __init__(self):
        self.release, self.started = threading.Event(), threading.Semaphore(0)

    def __call__(self, *_, **__):
        self.started.release()
        self.release.wait(PATIENCE_S)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", 0))]

    async def until_started(self):
        assert await asyncio.to_thread(self.started.acquire, timeout=PATIENCE_S)


@pytest.fixture
def hanging(monkeypatch):
    lookup = Hanging()
    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    yield lookup
    lookup.release.set()


def test_lookup_that_hangs_is_shared_by_later_refreshes(hanging):
    async def refresh_often():
        targets = pods_of(resolve, timeout_s=0.02)
        for now in range(5):
            await targets.refresh(float(now))
        assert targets.failure == "chat.ai.svc: no answer within 0.02 s"
        assert [hanging.started.acquire(blocking=False) for _ in range(2)] == [True, False]
        hanging.release.set()
        async with asyncio.timeout(PATIENCE_S):
            while targets.listing() is None:
                await targets.refresh(5.0)
        assert hosts(targets) == ["127.0.0.2"]

    run(refresh_often())


def test_answer_after_the_refresh_was_cancelled_is_no_error(hanging):
    complaints = []

    async def cancel():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        lookup = asyncio.create_task(resolve("x"))
        await hanging.until_started()
        lookup.cancel()
        with pytest.raises(asyncio.CancelledError):
            await lookup
        hanging.release.set()
        async with asyncio.timeout(PATIENCE_S):
            assert await resolve("x") == {"127.0.0.2"}

    run(cancel())
    assert complaints == []


def test_answer_after_the_event_loop_is_closed_is_no_error(hanging):
    """An exception in a thread would be an error here: pytest reports it as a warning, and warnings are errors."""

    async def give_up():
        lookup = asyncio.create_task(resolve("late"))
        await hanging.until_started()
        lookup.cancel()
        with pytest.raises(asyncio.CancelledError):
            await lookup

    run(give_up())
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "look-up late"]
    hanging.release.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


async def test_bug_in_a_lookup_is_not_an_answer():
    async def broken(name):
        raise KeyError(name)

    with pytest.raises(KeyError):
        await pods_of(broken).refresh(0.0)
