"""A series with work in hand that is missing stays missing across a restart and a reload: no workload goes to zero."""

import asyncio
import signal

import pytest

from scaler.engine.checkpoint_store import Directory
from tests.fakes.waiting import until_scraped
from tests.integration.daemon.test_incomplete import GPU_FAULTS, SCRAPES, engines, gpu, incomplete, started, workload

HOLD = "60s"  # a busy machine may start and scrape late
GONE = 'vllm:num_requests_waiting{model_name="m",engine="1"}'


async def until_checkpoint(directory):
    """Wait for a checkpoint that was begun after now: the second from now."""
    before = _newest(directory)
    async with asyncio.timeout(60.0):
        while _newest(directory) < before + 2:  # noqa: ASYNC110 - the files of another process
            await asyncio.sleep(0.05)


def _newest(directory):
    return max((int(file.name[:12]) for file in directory.path.glob("*.state")), default=0)


async def test_missing_series_with_work_never_ends_at_zero_after_a_restart(daemon, targets, epp, tmp_path):
    directory = Directory(tmp_path / "state")
    top = f'state: {{directory: "{directory.path}", interval: 1s}}'
    engine, targets["chat-gate"].body = targets["chat"], epp()
    engine.body = started(0) + engines(0, 30)
    async with daemon(workload(targets, "chat"), top, hold=HOLD) as running:
        await running.ask.until((2, True), "chat")
        engine.body = started(0) + engines(0, None)
        await until_scraped(engine, SCRAPES)
        await until_checkpoint(directory)
        await running.kill()
    for _ in range(2):  # the second restart comes before the first checkpoint of the new process
        async with daemon(workload(targets, "chat"), top.replace("1s", "1h"), hold=HOLD) as running:
            await until_scraped(engine, SCRAPES)
            assert await running.ask.answer("chat") == (2, True)
            assert (await running.decision("chat"))["reason"] == "incomplete"
            (found,) = await incomplete(running, "chat")
            assert 'engine="1"' in found
            await running.kill()
    async with daemon(workload(targets, "chat"), top, hold=HOLD) as running:
        await until_scraped(engine, SCRAPES)
        assert await running.ask.answer("chat") == (2, True)
        # The process restarts with one engine: series of its predecessor do not count.
        engine.body = started(1) + b"".join(line for line in engines(0, 0).splitlines(True) if b'"0"' in line)
        await running.ask.until((0, False), "chat")
        assert await incomplete(running, "chat") == []


async def test_missing_series_with_work_never_ends_at_zero_after_a_reload(daemon, targets, epp):
    engine, targets["chat-gate"].body = targets["chat"], epp()
    engine.body = engines(0, 30)
    async with daemon(workload(targets, "chat"), hold=HOLD) as running:
        await running.ask.until((2, True), "chat")
        engine.body = engines(0, None)
        await until_scraped(engine, SCRAPES)
        for before, after in (("0.9s", "1s"), ("1s", "1.1s")):
            text = running.config.read_text()
            running.config.write_text(text.replace(f"keep_warm: {before}", f"keep_warm: {after}"))
            running.process.send_signal(signal.SIGHUP)
            await until_scraped(engine, SCRAPES)
            assert await running.ask.answer("chat") == (2, True)
            for _ in range(10):  # the evidence follows with the tick after the first scrape
                if await incomplete(running, "chat"):
                    break
                await until_scraped(engine, SCRAPES)
            assert len(await incomplete(running, "chat")) == 1
        engine.body = engines(0, 0)
        await running.ask.until((0, False), "chat")
    assert running.stderr.count("configuration reloaded") >= 2  # the file is watched as well


@pytest.mark.parametrize("fault", ["not in the response", "without its pod"])
async def test_missing_gpu_that_works_never_ends_at_zero_after_a_restart(daemon, targets, epp, tmp_path, fault):
    directory = Directory(tmp_path / "state")
    targets["batch"].body, targets["batch-gate"].body = engines(0, 0), epp()
    targets["node"].body = (gpu(1, 0) + gpu(2, 0.9)).encode()
    top = f'state: {{directory: "{directory.path}", interval: 1s}}\ngpus:\n  - {{url: "{targets.url("node")}"}}\n'
    async with daemon(workload(targets, "batch"), top) as running:
        await running.until_metric('tidegate_reason{namespace="ai",reason="gpu_busy",workload="batch"} 1')
        targets["node"].body = GPU_FAULTS[fault].encode()
        await until_scraped(targets["node"], SCRAPES)
        await until_checkpoint(directory)
        await running.kill()
    async with daemon(workload(targets, "batch"), top) as running:
        await until_scraped(targets["node"], 20)  # 6 s: the hold of 2 s, and the keep-warm time
        assert await running.ask.answer("batch") == (1, True)
        targets["node"].body = (gpu(1, 0) + gpu(2, 0)).encode()
        await running.ask.until((0, False), "batch")
