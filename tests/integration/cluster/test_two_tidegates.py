"""Two Tidegates on one cluster, and KEDA's round robin over both."""

import json
from functools import partial

import grpc.aio
import pytest

from tests.fakes.daemon import running
from tests.fakes.keda import Keda

ROUND_ROBIN = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})
QUICK = {"keep_warm": "1s", "objectives.work": "16", "smoothing.up": "0s", "smoothing.down": "0.3s"}


@pytest.fixture
def other(cluster, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(cluster.config(), encoding="utf-8")
    with running(config, tmp_path / "log") as daemon:
        yield daemon


async def test_two_tidegates_publish_the_same_decisions_to_round_robin(tenant, page, tidegate, other):
    both = [tidegate, other]
    front = tenant.service("front", page.epp(held=0, ready=1))
    llama = tenant.deployment("llama", page.vllm(waiting=30, running=10), pods=1)
    chat = tenant.scaled_object("chat", target="llama", minimum=0, maximum=9, engine="vllm", gateway="front", **QUICK)
    before = [await ok_calls(daemon) for daemon in both]
    target = "ipv4:" + ",".join(daemon.grpc for daemon in both)
    async with grpc.aio.insecure_channel(target, options=[("grpc.service_config", ROUND_ROBIN)]) as channel:
        keda = Keda(channel)
        # By their load, at their maximum, asleep, and woken by the gateway.
        steps = [
            (page.vllm(waiting=30, running=10), 0, (3, True)),
            (page.vllm(waiting=990, running=10), 0, (9, True)),
            (page.vllm(waiting=0, running=0), 0, (0, False)),
            (page.vllm(waiting=0, running=0), 20, (2, True)),
        ]
        for engine, held, answer in steps:
            llama.serve(engine)
            front.body = page.epp(held=held, ready=1)
            for daemon in both:
                await daemon.until(partial(has_decision, answer), tenant.name, "chat")
            assert {await keda.poll(chat) for _ in range(10)} == {answer}
    after = [await ok_calls(daemon) for daemon in both]
    assert all(late - early >= 10 for early, late in zip(before, after, strict=True)), "round robin must reach both"


def has_decision(answer, entry):
    """Whether the Board's entry has this decision."""
    return (entry["replicas"], entry["active"]) == answer


async def ok_calls(daemon):
    """Number of GetMetrics calls with code OK."""
    series = 'tidegate_keda_request_duration_seconds_count{code="OK",method="GetMetrics"}'
    return await daemon.metric(series) or 0.0
