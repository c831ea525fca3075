"""gRPC, the stream, the Board and /metrics agree, in every state of a workload."""

import asyncio

import grpc
import pytest

ENTRY = 'namespace="ai",workload="chat"'


async def read_everywhere(running):
    """What each reader gets; None for an error or a missing value."""
    ask, decision, metrics = running.ask, await running.decision(), (await running.get("/metrics"))[1]

    async def or_none(call):
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            return {grpc.StatusCode.UNAVAILABLE: None}[error.code()]

    def sample(name):
        found = [line for line in metrics.splitlines() if line.startswith(f"{name}{{{ENTRY}}} ")]
        return float(found[0].rpartition(" ")[2]) if found else None

    return {
        "GetMetrics": await or_none(ask.replicas()),
        "IsActive": await or_none(ask.active()),
        "board": (decision["replicas"], decision["active"], decision["reason"]),
        "/metrics": (sample("tidegate_replicas"), sample("tidegate_active")),
        "reason": f'tidegate_reason{{namespace="ai",reason="{decision["reason"]}",workload="chat"}} 1.0' in metrics,
    }


@pytest.fixture
def workload(targets):
    return (
        f'  - {{namespace: ai, name: chat, engine: vllm, pods: {{url: "{targets.url("engine")}"}},\n'
        f'     gateway: {{url: "{targets.url("gateway")}"}}, keep_warm: 1s, smoothing: {{up: 0s, down: 0s}}}}\n'
    )


async def test_all_readers_agree_when_it_serves_sleeps_and_is_unknown(daemon, targets, workload, vllm, epp):
    targets["engine"].behaviour, targets["gateway"].body = "error", epp()
    async with daemon(workload) as running:
        unknown = {"GetMetrics": None, "IsActive": None, "board": (None, True, "unknown"), "/metrics": (None, None)}
        assert await read_everywhere(running) == {**unknown, "reason": True}

        targets["engine"].body, targets["engine"].behaviour = vllm(running=20, finished=1), "ok"
        assert (await running.ask.until((2, True)))[-1] == (2, True)
        # The engine may be scraped before the gateway: then the same decision is `held` for a moment.
        await running.until_metric('tidegate_reason{namespace="ai",reason="serving",workload="chat"} 1')
        assert await read_everywhere(running) == {
            "GetMetrics": 2, "IsActive": True, "board": (2, True, "serving"), "/metrics": (2.0, 1.0), "reason": True,
        }  # fmt: skip

        targets["engine"].body = vllm(finished=1)
        await running.ask.until((0, False))
        assert await read_everywhere(running) == {
            "GetMetrics": 0, "IsActive": False, "board": (0, False, "asleep"), "/metrics": (0.0, 0.0), "reason": True,
        }  # fmt: skip


async def test_no_reader_gets_active_zero_or_inactive_replicas_while_load_jumps(daemon, targets, workload, vllm, epp):
    targets["gateway"].body = epp()
    bodies = [vllm(running=100), vllm(), vllm(waiting=3), b"", vllm(finished=9), b"garbage", vllm(running=1)]
    async with daemon(workload) as running:
        targets["engine"].body = vllm(running=20)
        await running.ask.until((2, True))
        for body in bodies * 3:
            targets["engine"].body = body
            before = targets["engine"].scrapes
            async with asyncio.timeout(60.0):
                while targets["engine"].scrapes < before + 2:
                    decision = await running.decision()
                    assert (decision["replicas"] == 0) == (not decision["active"])
                    replicas, active = (await read_everywhere(running))["/metrics"]
                    assert (replicas is None) == (active is None)
                    assert replicas is None or (replicas == 0.0) == (active == 0.0)
