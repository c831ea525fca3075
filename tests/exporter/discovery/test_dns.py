"""DnsTargets lists the addresses of a name and keeps the last answer for a while; StaticTargets is configured."""

import asyncio
import socket
import threading

import pytest

from exporter.discovery import Listing
from exporter.discovery.dns import DnsTargets, StaticTargets, resolve
from exporter.event_loop import run
from exporter.model import Role, Target, WorkloadKey

CHAT = WorkloadKey("ai", "chat")
PATIENCE_S = 60.0
KEEP_S = 15.0


class Resolver:
    """Returns `answer`, raises it if it is an exception, and never returns if it is None. requested: the names."""

    def __init__(self, answer):
        self.answer = answer
        self.requested = []

    async def __call__(self, name):
        self.requested.append(name)
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


async def test_list_is_unknown_before_the_first_answer():
    targets = pods_of(Resolver(["127.0.0.2"]))
    assert targets.listing() is None
    assert targets.owner == CHAT


async def test_every_address_is_a_target_in_a_stable_order():
    resolver = Resolver(["127.0.0.3", "127.0.0.2"])
    targets = pods_of(resolver)
    await targets.refresh(0.0)
    assert hosts(targets) == ["127.0.0.2", "127.0.0.3"]
    assert resolver.requested == ["chat.ai.svc"]


async def test_targets_follow_the_answers():
    resolver = Resolver(["127.0.0.2"])
    targets = pods_of(resolver)
    listings = []
    for now, answer in enumerate([["127.0.0.2"], ["127.0.0.2", "127.0.0.3"], ["127.0.0.3"], []]):
        resolver.answer = answer
        await targets.refresh(float(now))
        listings.append(hosts(targets))
    assert listings == [["127.0.0.2"], ["127.0.0.2", "127.0.0.3"], ["127.0.0.3"], []]


async def test_empty_answer_is_an_empty_list():
    resolver = Resolver([])
    targets = pods_of(resolver)
    await targets.refresh(0.0)
    assert targets.listing() == Listing(())
    assert targets.failure is None


@pytest.mark.parametrize("failure", FAILURES)
async def test_list_is_unknown_if_the_first_lookup_fails(failure):
    targets = pods_of(Resolver(failure))
    await targets.refresh(0.0)
    assert targets.listing() is None
    assert str(failure) in targets.failure


@pytest.mark.parametrize("failure", FAILURES)
async def test_last_answer_counts_for_a_while_after_a_failure_and_then_expires(failure):
    resolver = Resolver(["127.0.0.2"])
    targets = pods_of(resolver)
    await targets.refresh(100.0)
    resolver.answer = failure
    await targets.refresh(100.0 + KEEP_S)
    assert hosts(targets) == ["127.0.0.2"]
    assert "chat.ai.svc" in targets.failure
    await targets.refresh(100.5 + KEEP_S)
    assert hosts(targets) is None
    resolver.answer = ["127.0.0.3"]
    await targets.refresh(200.0)
    assert hosts(targets) == ["127.0.0.3"]
    assert targets.failure is None


async def test_each_answer_restarts_the_expiry():
    resolver = Resolver(["127.0.0.2"])
    targets = pods_of(resolver)
    for now in (0.0, KEEP_S, 2 * KEEP_S):
        resolver.answer = ["127.0.0.2"]
        await targets.refresh(now)
        resolver.answer = OSError("no route")
        await targets.refresh(now + KEEP_S)
        assert hosts(targets) == ["127.0.0.2"]


async def test_lookup_timeout_is_a_failure_with_its_duration():
    targets = pods_of(Resolver(SILENT), timeout_s=0.02)
    async with asyncio.timeout(PATIENCE_S):
        await targets.refresh(0.0)
    assert targets.listing() is None
    assert targets.failure == "chat.ai.svc: no answer within 0.02 s"


async def test_dual_stack_pod_counts_once():
    resolver = Resolver(["127.0.0.2", "127.0.0.3", "::2", "::3"])
    targets = pods_of(resolver)
    await targets.refresh(0.0)
    assert hosts(targets) == ["127.0.0.2", "127.0.0.3"]
    resolver.answer = ["::3", "::2"]
    await targets.refresh(1.0)
    assert hosts(targets) == ["::2", "::3"]


async def test_system_resolves_localhost():
    found = await resolve("localhost")
    assert found
    assert found <= {"127.0.0.1", "::1"}


async def test_numeric_name_is_its_own_address():
    assert await resolve("127.0.0.2") == {"127.0.0.2"}
    assert await resolve("::1") == {"::1"}


async def test_unknown_name_has_no_addresses():
    # An interface that does not exist: getaddrinfo answers EAI_NONAME by itself, without a name server.
    assert await resolve("fe80::1%nosuchinterface") == set()


@pytest.mark.parametrize(
    ("error", "answered"),
    [("EAI_NONAME", True), ("EAI_NODATA", True), ("EAI_AGAIN", False), ("EAI_FAIL", False), ("EAI_SYSTEM", False)],
)
async def test_only_errors_that_mean_no_address_are_an_empty_answer(monkeypatch, error, answered):
    number = getattr(socket, error)

    def getaddrinfo(*_, **__):
        raise socket.gaierror(number, error)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    if answered:
        assert await resolve("chat.ai.svc") == set()
    else:
        with pytest.raises(OSError, match=error):
            await resolve("chat.ai.svc")


async def test_invalid_name_is_a_failure():
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


async def test_configured_targets_are_listed_before_the_first_refresh():
    configured = (Target("http://a/", "vllm", Role.PODS, CHAT), Target("http://b/", "vllm", Role.PODS, CHAT))
    targets = StaticTargets(iter(configured), owner=CHAT)
    assert targets.listing() == Listing(configured)
    await targets.refresh(1e12)
    assert targets.listing() == Listing(configured)
    assert targets.owner == CHAT


def test_empty_configuration_is_an_empty_list():
    assert StaticTargets(()).listing() == Listing(())
