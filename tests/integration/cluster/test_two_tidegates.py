"""Two Tidegates on one cluster, and KEDA's round robin over both."""

import json
from functools import partial

import grpc.aio
import pytest

from .keda import Keda
from .process import running

ROUND_ROBIN = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})
QUICK = {"keep_warm": "1s", "smoothing.up": "0s", "smoothing.down": "0.3s"}


@pytest.fixture
def other(cluster, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(cluster.config(), encoding="utf-8")
    with running(config, tmp_path / "log") as daemon:
        yield daemon


async def test_two_tidegates_answer_the_same_to_round_robin(place, page, tidegate, other):
    both = [tidegate, other]
    front = place.service("front", page.epp(held=0, ready=1))
    llama = place.deployment("llama", page.vllm(waiting=30, running=10), pods=1)
    chat = place.scaled_object("chat", target="llama", minimum=0, maximum=9, engine="vllm", gateway="front", **QUICK)
    before = [await answered(daemon) for daemon in both]
    target = "ipv4:" + ",".join(daemon.grpc for daemon in both)
    async with grpc.aio.insecure_channel(target, options=[("grpc.service_config", ROUND_ROBIN)]) as channel:
        keda = Keda(channel)
        # By their load, at their most, asleep, and woken by the gateway.
        stories = [
            (page.vllm(waiting=30, running=10), 0, (3, True)),
            (page.vllm(waiting=990, running=10), 0, (9, True)),
            (page.vllm(waiting=0, running=0), 0, (0, False)),
            (page.vllm(waiting=0, running=0), 20, (2, True)),
        ]
        for engine, held, answer in stories:
            llama.say(engine)
            front.text = page.epp(held=held, ready=1)
            for daemon in both:
                await daemon.until(partial(says, answer), place.name, "chat")
            assert {await keda.poll(chat) for _ in range(10)} == {answer}
    after = [await answered(daemon) for daemon in both]
    assert all(late - early >= 10 for early, late in zip(before, after, strict=True)), "each was asked its share"


def says(answer, entry):
    """Is that what the Board's entry says?"""
    return (entry["replicas"], entry["active"]) == answer


async def answered(daemon):
    """How many GetMetrics calls it has answered with OK."""
    series = 'tidegate_keda_request_duration_seconds_count{code="OK",method="GetMetrics"}'
    return await daemon.metric(series) or 0.0
