"""Brakes in a cluster: an annotation freezes a workload within a tick, and releases it at the brake's end."""

import time
from datetime import UTC, datetime

from tests.fakes import objects
from tests.fakes.waiting import until_scraped


def written(at):
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def brake(scaled, line):
    """A copy of the ScaledObject with or without the annotation."""
    annotations = {} if line is None else {"tidegate.dev/brake": line}
    return {**scaled, "metadata": {**scaled["metadata"], "annotations": annotations}}


async def test_annotation_freezes_a_workload_until_it_is_removed(tenant, page, tidegate):
    chat = tenant.deployment("chat", page.vllm(waiting=0, running=40), pods=1)
    scaled = tenant.scaled_object("chat", minimum=1, maximum=8, engine="vllm")
    await tidegate.until(lambda entry: entry["replicas"] == 3, tenant.name, "chat")

    tenant.put(brake(scaled, "freeze until 2099-11-23T08:00Z because of the sale"))
    entry = await tidegate.until(lambda entry: entry["reason"] == "frozen", tenant.name, "chat")
    assert entry["replicas"] == 3
    assert entry["evidence"]["brake"] == (
        f"freeze until 2099-11-23T08:00Z because of the sale ({tenant.name}/ScaledObject/chat)"
    )
    chat.serve(page.vllm(waiting=90, running=10))
    await until_scraped(chat.pods[0])
    await until_scraped(chat.pods[0])
    assert (await tidegate.decision(tenant.name, "chat"))["replicas"] == 3

    tenant.put(brake(scaled, None))
    entry = await tidegate.until(lambda entry: entry["replicas"] >= 5, tenant.name, "chat")
    assert entry["evidence"]["brake"] is None


async def test_brake_on_the_deployment_expires(tenant, page, tidegate):
    tenant.deployment("chat", page.vllm(waiting=0, running=5), pods=1)
    tenant.scaled_object("chat", minimum=1, maximum=8, engine="vllm")
    await tidegate.until(lambda entry: entry["replicas"] == 1, tenant.name, "chat")

    def floor(seconds):
        line = f"floor 5 until {written(time.time() + seconds)}"
        tenant.put(objects.deployment("chat", tenant.name, replicas=1, annotations={"tidegate.dev/brake": line}))

    floor(3600)
    await tidegate.until(lambda entry: (entry["replicas"], entry["reason"]) == (5, "frozen"), tenant.name, "chat")
    floor(2)
    entry = await tidegate.until(lambda entry: entry["reason"] != "frozen", tenant.name, "chat")
    assert entry["evidence"]["brake"] is None


async def test_invalid_brake_never_scales_down_and_is_reported(tenant, page, tidegate):
    chat = tenant.deployment("chat", page.vllm(waiting=0, running=40), pods=1)
    scaled = tenant.scaled_object("chat", minimum=1, maximum=8, engine="vllm")
    await tidegate.until(lambda entry: entry["replicas"] == 3, tenant.name, "chat")
    tenant.put(brake(scaled, "frieze"))
    errors = f'tidegate_object_errors{{kind="ScaledObject",name="chat",namespace="{tenant.name}",severity="error"}}'
    await tidegate.until_metric(errors, 1.0)
    chat.serve(page.vllm(waiting=90, running=10))
    await tidegate.until(lambda entry: entry["replicas"] >= 5, tenant.name, "chat")
    shown = f'tidegate_workload_brake{{brake="never_down",namespace="{tenant.name}",workload="chat"}}'
    assert await tidegate.metric(shown) == 1.0
