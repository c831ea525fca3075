"""An exception of Tidegate's own code costs one workload's update: it is counted and logged once, and no task ends."""

import asyncio

import grpc
import pytest
import structlog

from exporter.catalog import Reader
from scaler.engine.loop import ControlLoop
from scaler.signals.latest import LatestSamples

SOON_S = 60.0
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
WORKLOAD = """\
  - {{namespace: ai, name: {name}, engine: vllm, smoothing: {{up: 0s, down: 0.3s}}, replicas: {{min: 0, max: 8}},
     keep_warm: 1s, pods: {{url: "{url}"}}}}
"""


def config(targets, *names):
    workloads = "".join(WORKLOAD.format(name=name, url=targets.url(name)) for name in names)
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
    """`breaks(Class, method)`: the method raises for the workload `broken` while `breaks.now`.

    Its name has letters that are no hexadecimal digits: `bad` was found in `<StaticTargets object at 0x7fbadb3f3950>`.
    """

    def put(owner, name):
        original = getattr(owner, name)

        def method(self, *args, **more):
            if put.now and any("broken" in str(arg) for arg in args):
                raise RuntimeError("a bug")
            return original(self, *args, **more)

        monkeypatch.setattr(owner, name, method)

    put.now = False
    return put


async def until_counted(ask, label, errors):
    """Wait until that many errors are counted for the label `place`."""
    line = f'tidegate_internal_errors_total{{place="{label}"}} '
    async with asyncio.timeout(SOON_S):
        while True:
            if any(float(each.removeprefix(line)) >= errors for each in await ask.metrics() if each.startswith(line)):
                return
            await asyncio.sleep(0.02)


async def test_response_that_cannot_be_processed_holds_only_its_workload(in_process, targets, vllm, breaks, logged):
    breaks(LatestSamples, "land")
    targets["broken"].body = targets["good"].body = vllm(running=40)
    async with in_process(config(targets, "broken", "good")) as ask:
        await ask.until((3, True), "broken")
        await ask.until((3, True), "good")
        breaks.now = True
        targets["broken"].body, targets["good"].body = vllm(), vllm(running=100)

        assert set(await ask.until(UNAVAILABLE, "broken")) <= {(3, True), UNAVAILABLE}
        await ask.until((7, True), "good")
        await until_counted(ask, "response", 2)
        assert logged() == [("response", "pods:ai/broken")]

        breaks.now = False
        targets["broken"].body = vllm(running=40)
        await ask.until((3, True), "broken")
        breaks.now = True
        async with asyncio.timeout(SOON_S):
            while True:
                if len(logged()) == 2:
                    break
                await asyncio.sleep(0.02)
    assert logged() == [("response", "pods:ai/broken")] * 2


async def test_reader_that_raises_costs_only_its_target(in_process, targets, vllm, monkeypatch, logged):
    reads = Reader.read

    def read(self, page, received_at):
        if any(b"broken" in head for head in page.layout.heads):
            raise RuntimeError("a bug")
        return reads(self, page, received_at)

    monkeypatch.setattr(Reader, "read", read)
    targets["broken"].body, targets["good"].body = (
        vllm(running=40) + b'vllm:prompt_tokens_total{model_name="broken"} 1\n',
        vllm(running=40),
    )
    async with in_process(config(targets, "broken", "good")) as ask:
        await ask.until((3, True), "good")
        await until_counted(ask, "response", 2)
        assert await ask.answer("broken") == UNAVAILABLE
        targets["broken"].body = vllm(running=100)
        await ask.until((7, True), "broken")
    assert logged() == [("response", "pods:ai/broken")]


async def test_exception_in_backfill_or_discovery_ends_no_task(in_process, targets, vllm, breaks, monkeypatch):
    breaks(ControlLoop, "_added")
    breaks(ControlLoop, "_listed")

    async def backfill(self, workload):
        raise RuntimeError("a bug")

    monkeypatch.setattr(ControlLoop, "_backfill", backfill)
    breaks.now = True
    targets["broken"].body = targets["good"].body = vllm(running=40)
    async with in_process(config(targets, "broken", "good")) as ask:
        await ask.until((3, True), "good")
        await until_counted(ask, "backfill", 2)
        await until_counted(ask, "discovery", 2)
