"""Of several replicas of Tidegate one calls the engines: a follower calls none, and a new leader repeats no call."""

import asyncio

import pytest

from tests.fakes.sleeping_vllm import serving_vllm
from tests.fakes.waiting import until
from tests.integration.cluster import test_replicas as several

cluster, replicas = several.cluster, several.replicas


@pytest.fixture
async def vllm():
    async with serving_vllm() as served:
        yield served


async def until_tier(replica, tier):
    def is_so(entry):
        return (entry["evidence"]["sleep_tier"], entry["evidence"]["replicas_sleeping"]) == (
            tier,
            int(tier == "asleep"),
        )

    await replica.until(is_so, "ai", "chat")


async def test_one_replica_calls_the_engine_and_the_next_leader_repeats_no_call(replicas, vllm):
    workload = (
        "workloads:\n  - namespace: ai\n    name: chat\n    engine: vllm\n    keep_warm: 1h\n"
        f"    pods: {{url: '{vllm.metrics}'}}\n    gateway: {{url: '{vllm.gateway}'}}\n"
        "    sleep_mode: {calls: true, after: 3s, gpu_share: 0.1}\n"
    )
    first = await replicas.start(edit=lambda text: text + workload)
    await replicas.until_led_by(first)
    second = await replicas.start(edit=lambda text: text + workload)
    await replicas.until_led_by(first, second)
    for each in replicas.all:
        await until_tier(each, "asleep")
    assert vllm.calls == ["sleep"]

    first.process.kill()
    await replicas.until_led_by(second)
    await second.sweeps(10)
    assert vllm.calls == ["sleep"]
    vllm.request()
    await until(lambda: asyncio.sleep(0, vllm.awake), bool)
    await until_tier(second, "ready")
    assert vllm.calls == ["sleep", "wake_up"]
