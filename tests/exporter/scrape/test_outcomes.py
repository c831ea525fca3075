"""A response becomes samples or one failure, is counted, and affects no other target."""

import asyncio
import threading

import pytest

from exporter.budget import Budget
from exporter.catalog import Reader, selection
from exporter.model import Failure, FailureKind, Quantity, Queue, Role, Samples, Target, without_user
from exporter.scrape.loop import ROUND_WAIT_S
from exporter.scrape.request import THREAD_BYTES, read
from exporter.textformat import PlainScanner, Scanner

INTERVAL_S = 5.0
LARGE = b'vllm:num_requests_waiting{model_name="m"} 3\n' + b"# filler\n" * (THREAD_BYTES // 9 + 1)


def outcome_of(body, kind="vllm"):
    return read(body, Reader(kind), PlainScanner(), at=1000.0)


def test_response_becomes_samples_of_its_receipt():
    samples = outcome_of(b'vllm:num_requests_waiting{model_name="m"} 3\n')
    assert samples.subjects == (Queue("m"),)
    assert samples.column(Quantity.REQUESTS_WAITING).tolist() == [3.0]
    assert samples.at.tolist() == [1000.0]


@pytest.mark.parametrize("body", [b"", b"\n", b" \r\n\t\n"])
def test_empty_response_is_a_failure_and_no_zero(body):
    assert outcome_of(body).kind is FailureKind.EMPTY


@pytest.mark.parametrize("body", [b"# HELP a b\n", b"<html>no</html>\n", b"[]", b"\x00\xff" * 100])
def test_response_without_a_sample_is_unreadable(body):
    assert outcome_of(body).kind is FailureKind.UNREADABLE


def test_response_of_unknown_kind_is_unreadable_and_lists_the_kinds():
    outcome = outcome_of(b"node_cpu_seconds_total 1\n", kind="auto")
    assert outcome.kind is FailureKind.UNREADABLE
    assert "vllm" in outcome.detail


def test_response_without_families_of_its_kind_has_no_rows():
    samples = outcome_of(b"process_open_fds 1\n")
    assert isinstance(samples, Samples)
    assert samples.subjects == ()


class Broken:
    """A scanner that raises IndexError for bodies with "bad"."""

    def __init__(self):
        self._scanner = PlainScanner()

    def scan(self, body):
        if b"bad" in body:
            raise IndexError("off by one")
        return self._scanner.scan(body)


async def test_exception_costs_the_scrape_that_raised_it(running, clock, recorder, served, target, start):
    served.body["a"] = b"bad 1\n"
    async with running(target("a"), target("b"), new_scanner=lambda _: Broken()):
        await start(2)
        await recorder.turn.until(lambda: len(recorder.landed) == 2)
        del served.body["a"]
        await clock.asleep(3)
        clock.advance(INTERVAL_S)
        await recorder.turn.until(lambda: len(recorder.landed) == 4)
    assert recorder.failures(target("a")) == [FailureKind.INTERNAL, None]
    assert recorder.failures(target("b")) == [None, None]
    assert recorder.of(target("a"))[0].outcome.detail == "please report: IndexError: off by one"
    assert [(stage, subject) for stage, subject, _ in recorder.faulted] == [("response", target("a"))]


async def test_scrapes_are_counted_and_failed_ones_by_reason(running, clock, recorder, served, target, start):
    a = target("a")
    good = b'vllm:num_requests_waiting{model_name="m"} 3\n'
    rounds = [(200, b""), (200, good), (500, good), (500, good), (200, b"what\n"), (200, good + b"what is this\n")]
    async with running(a) as loop:
        for turn, (served.status["a"], served.body["a"]) in enumerate(rounds, start=1):
            if turn == 1:
                await start(1)
            else:
                clock.advance(INTERVAL_S)
            await recorder.turn.until(lambda turn=turn: len(recorder.landed) == turn)
            await clock.asleep(2)
        counters = loop.counters[a]
    assert counters.scrapes == 6
    assert counters.failures == {FailureKind.EMPTY: 1, FailureKind.STATUS: 2, FailureKind.UNREADABLE: 1}
    assert counters.dropped_lines == 1
    assert counters.last is recorder.landed[-1]
    assert isinstance(counters.last.outcome, Samples)


class GatedScanner:
    """A scanner that records the size and thread of each scan, and scans large pages only after `gate` is set."""

    def __init__(self, gate, calls):
        self._scanner, self._gate, self._calls = PlainScanner(), gate, calls

    def scan(self, body):
        self._calls.append((len(body) > THREAD_BYTES, threading.current_thread() is threading.main_thread()))
        if len(body) > THREAD_BYTES:
            assert self._gate.wait(20.0)
        return self._scanner.scan(body)


async def test_large_response_is_parsed_in_a_thread_and_delays_no_other(
    running, clock, recorder, served, target, start
):
    gate, calls = threading.Event(), []
    served.body["large"] = LARGE
    large, small = target("large"), target("small")
    try:
        async with running(large, small, new_scanner=lambda _: GatedScanner(gate, calls)):
            await start(2)
            await clock.asleep(4)  # two refreshes, the workload, the deadline of its round
            clock.advance(ROUND_WAIT_S)
            for turn in (1, 2, 3):
                await recorder.turn.until(lambda turn=turn: len(recorder.of(small)) == turn)
                await clock.asleep(3)
                clock.advance(INTERVAL_S)
            assert recorder.of(large) == []
            gate.set()
            await recorder.turn.until(lambda: recorder.of(large))
    finally:
        gate.set()
    assert set(calls) == {(True, False), (False, True)}  # large pages outside the main thread, small ones in it
    assert recorder.failures(large) == [None]


async def test_large_responses_that_wait_for_a_thread_share_a_budget(running, clock, recorder, served, target, start):
    gate, calls = threading.Event(), []
    names = ("a", "b", "c")
    for name in names:
        served.body[name] = LARGE
    # The first leaves two thirds of the budget, the second one third, and the third nothing.
    bodies = Budget(3 * len(LARGE))
    try:
        async with running(*map(target, names), bodies=bodies, new_scanner=lambda _: GatedScanner(gate, calls)):
            await start(3)
            await clock.asleep(5)  # three refreshes, the workload, the deadline of its round
            clock.advance(ROUND_WAIT_S)
            await recorder.turn.until(lambda: len(recorder.landed) == 1)
            refused = recorder.landed[0].outcome
            gate.set()
            await recorder.turn.until(lambda: len(recorder.landed) == 3)
    finally:
        gate.set()
    assert refused.kind is FailureKind.TOO_LARGE
    assert [isinstance(scrape.outcome, Samples) for scrape in recorder.landed] == [False, True, True]
    assert bodies.used == 0


def test_response_with_too_many_selected_series_is_too_large():
    scanner = Scanner(selection(), Budget(4))
    body = b'vllm:num_requests_waiting{model_name="m",engine="%d"} 3\n'
    assert read(b"".join(body % i for i in range(3)), Reader("vllm"), scanner, at=1000.0).kind is FailureKind.TOO_LARGE
    assert isinstance(read(body % 1, Reader("vllm"), scanner, at=1000.0), Samples)


async def test_large_responses_have_separate_threads(running, recorder, served, target, start):
    """Look-ups and other users of asyncio's default threads may hang there."""
    gate = threading.Event()
    hung = [asyncio.get_running_loop().run_in_executor(None, gate.wait, 20.0) for _ in range(64)]
    served.body["large"] = LARGE
    try:
        async with running(target("large")):
            await start(1)
            await recorder.turn.until(lambda: recorder.landed)
            assert not any(future.done() for future in hung)
    finally:
        gate.set()
        await asyncio.gather(*hung)
    assert recorder.failures(target("large")) == [None]


async def test_closed_port_is_one_failure_per_scrape(running, clock, recorder, served, start, target, silent_port):
    served.port = silent_port
    gone = target("a")
    async with running(gone) as loop:
        await start(1)
        await recorder.turn.until(lambda: len(recorder.landed) == 1)
        await clock.asleep(2)
        clock.advance(INTERVAL_S)
        await recorder.turn.until(lambda: len(recorder.landed) == 2)
        assert loop.counters[gone].failures == {FailureKind.REFUSED: 2}
    assert all(isinstance(scrape.outcome, Failure) for scrape in recorder.landed)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://p:9/metrics", "http://p:9/metrics"),
        ("http://user:secret@p:9/metrics", "http://p:9/metrics"),
        ("http://p/metrics?apikey=secret", "http://p/metrics?apikey=~"),
        ("https://p/metrics?apikey=secret#secret", "https://p/metrics?apikey=~"),
        ("HTTP://u:secret@p/?a=secret&b=secret&secret", "http://p/?a=~"),
        ("promql+http://p?kind=vllm&pod=chat-0", "promql+http://p?kind=vllm&pod=chat-0"),
    ],
)
def test_url_is_shown_without_user_and_query_values(url, shown):
    assert without_user(url).startswith(shown)
    assert "secret" not in without_user(url)
    assert "secret" not in str(Target(url, "vllm", Role.PODS))


def test_targets_that_differ_by_a_query_value_are_shown_differently():
    assert without_user("http://p/probe?target=a") != without_user("http://p/probe?target=b")
