"""Calls of engines: one at a time, none twice for one response, later and later after failures."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from exporter.model import Credentials, Failure, FailureKind, Role, Target, WorkloadKey
from exporter.sources.http import HttpResponse
from scaler.engine.engine_calls import Action, EngineCall, EngineCaller, allowed, url_of
from tests.fakes.clock import ManualClock, Turn

CHAT = WorkloadKey("ai", "chat")
OK = HttpResponse(200, "OK", b"")


def call(action=Action.SLEEP, read_at=1000.0, url="http://user:pass@10.0.0.7:8000/v1/metrics?x=1"):
    access = Credentials(bearer_file="/token")
    return EngineCall(CHAT, Target(url, "vllm", Role.PODS, CHAT, access), action, read_at, 30.0)


class Engines:
    """Answers calls with `answer`; `None` is no answer. made: the calls, as (URL, credentials, timeout)."""

    def __init__(self):
        self.answer, self.made, self.results, self.turn = OK, [], [], Turn()

    async def post(self, url, access, timeout_s):
        self.made.append((url, access, timeout_s))
        self.turn.changed()
        if self.answer is None:
            await asyncio.get_running_loop().create_future()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def result(self, of, took_s, failure):
        self.results.append((of.action, took_s, failure and failure.detail))
        self.turn.changed()

    @property
    def paths(self):
        return [url.rpartition("8000")[2] for url, *_ in self.made]


@asynccontextmanager
async def calling(engines, clock):
    caller = EngineCaller(engines.post, clock, engines.result)
    running = asyncio.create_task(caller.run())
    await asyncio.sleep(0)
    try:
        yield caller
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
def engines():
    return Engines()


@pytest.fixture
def clock():
    return ManualClock()


async def done(engines, number):
    await engines.turn.until(lambda: len(engines.results) == number)


async def test_call_goes_to_the_address_of_the_scrapes_with_their_credentials(engines, clock):
    async with calling(engines, clock) as caller:
        caller.order([call(), call(Action.WAKE_UP, url="http://10.0.0.8:8000/metrics")])
        await done(engines, 2)
    access = Credentials(bearer_file="/token")
    assert engines.made == [
        ("http://user:pass@10.0.0.7:8000/sleep?level=1&mode=wait", access, 30.0),
        ("http://10.0.0.8:8000/wake_up", access, 30.0),
    ]
    assert url_of(call(url="https://[fd00::7]:8443/metrics")) == "https://[fd00::7]:8443/sleep?level=1&mode=wait"


async def test_call_that_succeeded_is_not_repeated_for_an_older_response(engines, clock):
    async with calling(engines, clock) as caller:
        caller.order([call()])
        await done(engines, 1)
        caller.order([call(read_at=999.0), call(read_at=1000.0)])
        await asyncio.sleep(0)
        assert len(engines.made) == 1
        # Read after it: the engine is awake again, or has not followed.
        caller.order([call(read_at=1000.5)])
        await done(engines, 2)


async def test_engine_has_one_call_at_a_time_and_a_wake_does_not_wait_for_a_sleep(engines, clock):
    engines.answer = None
    async with calling(engines, clock) as caller:
        for _ in range(3):
            caller.order([call()])
            await asyncio.sleep(0)
        assert engines.paths == ["/sleep?level=1&mode=wait"]
        engines.answer = OK
        caller.order([call(Action.WAKE_UP)])
        await done(engines, 1)
        assert engines.paths[1:] == ["/wake_up"]
        engines.answer = None
        caller.order([call(Action.WAKE_UP, read_at=1001.0)])
        await asyncio.sleep(0)
        caller.order([call(Action.SLEEP, read_at=1001.0)])
        await asyncio.sleep(0)
        assert engines.paths[1:] == ["/wake_up", "/wake_up"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            HttpResponse(404, "Not Found", b""),
            "HTTP 404 Not Found; it needs --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1",
        ),
        (HttpResponse(500, "Internal Server Error", b""), "HTTP 500 Internal Server Error"),
        (Failure(FailureKind.TIMEOUT, "no complete answer within 30 s"), "no complete answer within 30 s"),
        (ZeroDivisionError("a bug"), "ZeroDivisionError: a bug"),
    ],
)
async def test_failure_is_reported_and_other_engines_are_still_called(engines, clock, answer, why):
    engines.answer = answer
    async with calling(engines, clock) as caller:
        caller.order([call()])
        await done(engines, 1)
        assert why in engines.results[0][2]
        engines.answer = OK
        caller.order([call(url="http://10.0.0.8:8000/metrics")])
        await done(engines, 2)
        assert engines.results[1] == (Action.SLEEP, 0.0, None)


@pytest.mark.parametrize(
    ("action", "waits"),
    [(Action.SLEEP, [5, 10, 20, 40, 80, 160, 320, 600, 600]), (Action.WAKE_UP, [0.5, 1, 2, 4, 5, 5])],
)
async def test_failed_call_is_repeated_after_twice_as_long_each_time_up_to_a_bound(engines, clock, action, waits):
    engines.answer = HttpResponse(500, "no", b"")
    async with calling(engines, clock) as caller:
        caller.order([call(action)])
        await done(engines, 1)
        for number, wait_s in enumerate(waits, start=2):
            clock.time += wait_s - 0.25
            caller.order([call(action, read_at=clock.time)])
            await asyncio.sleep(0)
            assert len(engines.made) == number - 1
            clock.time += 0.25
            caller.order([call(action, read_at=clock.time)])
            await done(engines, number)


async def test_failed_sleep_delays_no_wake(engines, clock):
    engines.answer = HttpResponse(500, "no", b"")
    async with calling(engines, clock) as caller:
        caller.order([call()])
        await done(engines, 1)
        caller.order([call(Action.WAKE_UP)])
        await done(engines, 2)
    assert [action for action, *_ in engines.results] == [Action.SLEEP, Action.WAKE_UP]


async def test_engine_that_is_gone_is_called_no_more(engines, clock):
    engines.answer = None
    async with calling(engines, clock) as caller:
        caller.order([call()])
        await asyncio.sleep(0)
        caller.forget(call().target)
        await asyncio.sleep(0)
        assert engines.results == []


async def test_new_configuration_repeats_no_call_for_an_older_response(engines, clock):
    async with calling(engines, clock) as caller:
        caller.order([call()])
        await done(engines, 1)
    async with calling(engines, clock) as later:
        later.adopt(caller)
        later.order([call(read_at=999.0)])
        await asyncio.sleep(0)
    assert len(engines.made) == 1


def test_followers_call_nothing_and_without_a_leader_engines_are_only_woken():
    due = [call(), call(Action.WAKE_UP)]
    assert allowed(due, leads=True, wakes=True) == due
    assert allowed(due, leads=False, wakes=False) == []
    assert allowed(due, leads=False, wakes=True) == due[1:]
