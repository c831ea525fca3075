"""An exception of Tidegate's own code costs one workload's update: it is counted, logged once, and nothing ends."""

import asyncio

import grpc
import pytest
import structlog

from exporter.catalog import Reader
from scaler.engine.loop import ControlLoop
from scaler.signals.latest import LatestSamples

SOON_S = 30.0
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
WORKLOAD = """\
  - {{namespace: ai, name: {name}, engine: vllm, smoothing: {{up: 0s, down: 0.3s}}, replicas: {{min: 0, max: 8}},
     keep_warm: 1s, pods: {{url: "{url}"}}}}
"""


def config(pages, *names):
    workloads = "".join(WORKLOAD.format(name=name, url=pages.url(name)) for name in names)
    return (
        "scrape: {interval: 0.2s, timeout: 0.2s}\nfreshness: {intervals: 5, hold: 2s}\ntick: 0.1s\n"
        f"workloads:\n{workloads}"
    )


@pytest.fixture
def logged():
    """The log lines of exceptions, as (place, subject)."""
    with structlog.testing.capture_logs() as entries:
        yield lambda: [
            (entry["place"], entry["subject"].partition(":http")[0])
            for entry in entries
            if entry["event"] == "internal error" and entry["exc_info"] is not None
        ]


@pytest.fixture
def breaks(monkeypatch):
    """`breaks(Class, method)`: it raises for what belongs to the workload `bad` while `breaks.now`."""

    def put(owner, name):
        works = getattr(owner, name)

        def method(self, *args, **more):
            if put.now and any("bad" in str(arg) for arg in args):
                raise RuntimeError("a bug")
            return works(self, *args, **more)

        monkeypatch.setattr(owner, name, method)

    put.now = False
    return put


async def counted(ask, place, errors):
    """Wait until so many errors are counted of a place."""
    line = f'tidegate_internal_errors_total{{place="{place}"}} '
    async with asyncio.timeout(SOON_S):
        while True:
            if any(float(each.removeprefix(line)) >= errors for each in await ask.metrics() if each.startswith(line)):
                return
            await asyncio.sleep(0.02)


async def test_a_response_that_cannot_be_processed_holds_its_workload_and_no_other(
    in_process, pages, vllm, breaks, logged
):
    breaks(LatestSamples, "land")
    pages["bad"].body = pages["good"].body = vllm(running=40)
    async with in_process(config(pages, "bad", "good")) as ask:
        await ask.until((3, True), "bad")
        await ask.until((3, True), "good")
        breaks.now = True
        pages["bad"].body, pages["good"].body = vllm(), vllm(running=100)

        assert set(await ask.until(UNAVAILABLE, "bad")) <= {(3, True), UNAVAILABLE}
        await ask.until((7, True), "good")
        await counted(ask, "response", 2)
        assert logged() == [("response", "pods:ai/bad")]

        breaks.now = False
        pages["bad"].body = vllm(running=40)
        await ask.until((3, True), "bad")
        breaks.now = True
        async with asyncio.timeout(SOON_S):
            while True:
                if len(logged()) == 2:
                    break
                await asyncio.sleep(0.02)
    assert logged() == [("response", "pods:ai/bad")] * 2


async def test_a_reader_that_raises_costs_its_target(in_process, pages, vllm, monkeypatch, logged):
    reads = Reader.read

    def read(self, page, received_at):
        if any(b"bad" in head for head in page.layout.heads):
            raise RuntimeError("a bug")
        return reads(self, page, received_at)

    monkeypatch.setattr(Reader, "read", read)
    pages["bad"].body, pages["good"].body = (
        vllm(running=40) + b'vllm:prompt_tokens_total{model_name="bad"} 1\n',
        vllm(running=40),
    )
    async with in_process(config(pages, "bad", "good")) as ask:
        await ask.until((3, True), "good")
        await counted(ask, "response", 2)
        assert await ask.answer("bad") == UNAVAILABLE
        pages["bad"].body = vllm(running=100)
        await ask.until((7, True), "bad")
    assert logged() == [("response", "pods:ai/bad")]


async def test_an_exception_in_backfill_or_of_a_list_ends_nothing(in_process, pages, vllm, breaks, monkeypatch):
    breaks(ControlLoop, "_added")
    breaks(ControlLoop, "_listed")

    async def recall(self, workload):
        raise RuntimeError("a bug")

    monkeypatch.setattr(ControlLoop, "_backfill", recall)
    breaks.now = True
    pages["bad"].body = pages["good"].body = vllm(running=40)
    async with in_process(config(pages, "bad", "good")) as ask:
        await ask.until((3, True), "good")
        await counted(ask, "backfill", 2)
        await counted(ask, "discovery", 2)
