"""Responses lack series that they had, or have invalid ones: no busy workload goes to zero."""

import asyncio

import grpc
import pytest

from tests.fakes.waiting import until_scraped

LABELS = 'model_name="m",engine="{}"'
GPU = 'UUID="GPU-{}",modelName="H100"'
SCRAPES = 10  # more than three times the keep-warm time below, at 0.3 s each


def engines(first, second, running=0):
    """The response of two data-parallel engines; each argument is the text of a value, or None to omit its line."""
    lines = [f"vllm:num_requests_running{{{LABELS.format(n)}}} {running}\n" for n in (0, 1)]
    lines += [f"vllm:generation_tokens_total{{{LABELS.format(n)}}} 100\n" for n in (0, 1)]
    values = ((0, first), (1, second))
    lines += [f"vllm:num_requests_waiting{{{LABELS.format(n)}}} {value}\n" for n, value in values if value is not None]
    return "".join(lines).encode()


def started(number):
    return f"process_start_time_seconds {1000 + 100 * number}\n".encode()


def gpu(number, active, pod="batch-0", field="DCGM_FI_PROF_GR_ENGINE_ACTIVE"):
    labels = GPU.format(number) + (f',namespace="ai",pod="{pod}",container="c"' if pod else "")
    return f"{field}{{{labels}}} {active}\nDCGM_FI_DEV_POWER_USAGE{{{labels}}} 300\n"


def workload(targets, name):
    return (
        f"  - namespace: ai\n    name: {name}\n    engine: vllm\n"
        f'    pods: {{url: "{targets.url(name)}"}}\n    gateway: {{url: "{targets.url(name + "-gate")}"}}\n'
        "    keep_warm: 0.9s\n    probe_period: 0s\n    smoothing: {up: 0s, down: 0s}\n    replicas: {min: 0, max: 8}\n"
    )


# Faulty versions of a response in which 30 requests wait at engine 1, and no other work exists.
FAULTS = {
    "not-a-number": engines(0, "NaN"),
    "negative": engines(0, "-1"),
    "not-a-digit": engines(0, "30O"),
    "not-utf8": engines(0, 30).replace(b'engine="1"} 30', b'engine="\xff1"} 30'),
    "missing": engines(0, None),
    "conflicting": engines(0, 0) + f"vllm:num_requests_waiting{{{LABELS.format(1)}}} 30\n".encode(),
}


async def incomplete(running, name):
    return (await running.decision(name))["evidence"]["incomplete"]


async def test_unreadable_queue_never_ends_at_zero(daemon, targets, epp):
    for name in FAULTS:
        targets[name].body, targets[f"{name}-gate"].body = engines(0, 30), epp()
    async with daemon("".join(workload(targets, name) for name in FAULTS)) as running:
        for name in FAULTS:
            await running.ask.until((2, True), name)
        for name, body in FAULTS.items():
            targets[name].body = body
        await asyncio.gather(*(until_scraped(targets[name], SCRAPES) for name in FAULTS))
        for name in FAULTS:
            assert await running.ask.answer(name) == (2, True), name
            assert (await running.decision(name))["reason"] == "incomplete", name
            (found,) = await incomplete(running, name)
            assert "vllm:num_requests_waiting" in found, name
            assert targets.url(name) in found, name
            await running.until_metric(f'tidegate_incomplete_series{{namespace="ai",workload="{name}"}} 1')
        # Complete again, without work: each is idle from then on, and sleeps.
        for name in FAULTS:
            targets[name].body = engines(0, 0)
        for name in FAULTS:
            await running.ask.until((0, False), name)
            assert await incomplete(running, name) == []


async def test_queue_that_was_never_valid_never_ends_at_zero(daemon, targets, epp):
    faults = {name: body for name, body in FAULTS.items() if name != "missing"}
    for name in faults:
        targets[name].body, targets[f"{name}-gate"].body = started(0) + engines(0, 30), epp()
    async with daemon("".join(workload(targets, name) for name in faults)) as running:
        for name in faults:
            await running.ask.until((2, True), name)
        for name, body in faults.items():
            # The process restarts, and its series is invalid from the first response on.
            targets[name].body = started(1) + body
        await asyncio.gather(*(until_scraped(targets[name], SCRAPES) for name in faults))
        for name in faults:
            assert (await running.ask.answer(name))[1] is True, name
            assert any("vllm:num_requests_waiting" in each for each in await incomplete(running, name)), name
        for name in faults:
            targets[name].body = started(10) + engines(0, 0)
        for name in faults:
            await running.ask.until((0, False), name)


GPU_FAULTS = {
    "not its number": gpu(1, 0) + gpu(2, "0.9x").replace("USAGE{", "USAGE{{"),
    "not in the response": gpu(1, 0),
    "without its pod": gpu(1, 0) + gpu(2, 0.9, pod=""),
    "quiet, then busy": gpu(1, 0) + gpu(2, 0) + gpu(2, 0.9),
}


@pytest.mark.parametrize("fault", GPU_FAULTS)
async def test_unreadable_busy_gpu_never_ends_at_zero(daemon, targets, epp, fault):
    targets["batch"].body, targets["batch-gate"].body = engines(0, 0), epp()
    targets["node"].body = (gpu(1, 0) + gpu(2, 0.9)).encode()
    top = f'gpus:\n  - {{url: "{targets.url("node")}"}}\n'
    async with daemon(workload(targets, "batch"), top) as running:
        await running.ask.until((1, True), "batch")
        await running.until_metric('tidegate_reason{namespace="ai",reason="gpu_busy",workload="batch"} 1')
        targets["node"].body = GPU_FAULTS[fault].encode()
        await until_scraped(targets["node"], SCRAPES)
        assert await running.ask.answer("batch") == (1, True)
        targets["node"].body = (gpu(1, 0) + gpu(2, 0)).encode()
        await running.ask.until((0, False), "batch")


async def test_new_requests_at_the_gateway_add_to_those_of_unreachable_engines(daemon, targets, epp):
    targets["chat"].body, targets["chat-gate"].body = engines(0, 0, running=20), epp()
    async with daemon(workload(targets, "chat"), hold="60s") as running:
        await running.ask.until((3, True), "chat")  # 40 / 16 = 2.5
        targets["chat"].behaviour = "closed"
        await running.until_metric('tidegate_stale_targets{namespace="ai",workload="chat"} 1')
        assert await running.ask.answer("chat") == (3, True)
        targets["chat-gate"].body = epp(queued=20)
        assert (await running.ask.until((4, True), "chat"))[-1] == (4, True)  # (40 + 20) / 16 = 3.75


async def test_on_incomplete_accept_allows_zero_despite_missing_series(daemon, targets, epp):
    targets["chat"].body, targets["chat-gate"].body = engines(0, "NaN"), epp()
    async with daemon(workload(targets, "chat") + "    on_incomplete: accept\n") as running:
        assert (await running.ask.until((0, False), "chat"))[0] in ((1, True), grpc.StatusCode.UNAVAILABLE, (0, False))
        assert len(await incomplete(running, "chat")) == 1
