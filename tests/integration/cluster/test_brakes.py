"""People's orders in a cluster: an annotation stops a workload within a tick, and lets go of it at its end."""

import time
from datetime import UTC, datetime

from tests.fakes import objects

from .waiting import asked_again


def written(at):
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def brake(scaled, line):
    """The ScaledObject again, with or without an annotation."""
    annotations = {} if line is None else {"tidegate.dev/brake": line}
    return {**scaled, "metadata": {**scaled["metadata"], "annotations": annotations}}


async def test_an_annotation_freezes_a_workload_and_lets_go_when_it_is_taken_away(place, page, tidegate):
    chat = place.deployment("chat", page.vllm(waiting=0, running=40), pods=1)
    scaled = place.scaled_object("chat", minimum=1, maximum=8, engine="vllm")
    await tidegate.until(lambda entry: entry["replicas"] == 3, place.name, "chat")

    place.put(brake(scaled, "freeze until 2099-11-23T08:00Z because of the sale"))
    entry = await tidegate.until(lambda entry: entry["reason"] == "frozen", place.name, "chat")
    assert entry["replicas"] == 3
    assert entry["evidence"]["brake"] == (
        f"freeze until 2099-11-23T08:00Z because of the sale ({place.name}/ScaledObject/chat)"
    )
    chat.say(page.vllm(waiting=90, running=10))
    await asked_again(chat.pods[0])
    await asked_again(chat.pods[0])
    assert (await tidegate.decision(place.name, "chat"))["replicas"] == 3

    place.put(brake(scaled, None))
    entry = await tidegate.until(lambda entry: entry["replicas"] >= 5, place.name, "chat")
    assert entry["evidence"]["brake"] is None


async def test_a_brake_on_the_deployment_ends_by_itself(place, page, tidegate):
    place.deployment("chat", page.vllm(waiting=0, running=5), pods=1)
    place.scaled_object("chat", minimum=1, maximum=8, engine="vllm")
    await tidegate.until(lambda entry: entry["replicas"] == 1, place.name, "chat")
    line = f"floor 5 until {written(time.time() + 5)}"  # a busy machine may take a second to hear of it
    place.put(objects.deployment("chat", place.name, replicas=1, annotations={"tidegate.dev/brake": line}))
    await tidegate.until(lambda entry: (entry["replicas"], entry["reason"]) == (5, "frozen"), place.name, "chat")
    entry = await tidegate.until(lambda entry: entry["reason"] != "frozen", place.name, "chat")
    assert entry["evidence"]["brake"] is None


async def test_a_brake_that_cannot_be_read_takes_nothing_away_and_is_told(place, page, tidegate):
    chat = place.deployment("chat", page.vllm(waiting=0, running=40), pods=1)
    scaled = place.scaled_object("chat", minimum=1, maximum=8, engine="vllm")
    await tidegate.until(lambda entry: entry["replicas"] == 3, place.name, "chat")
    place.put(brake(scaled, "frieze"))
    told = f'tidegate_object_errors{{kind="ScaledObject",name="chat",namespace="{place.name}",severity="error"}}'
    await tidegate.until_metric(told, 1.0)
    chat.say(page.vllm(waiting=90, running=10))
    await tidegate.until(lambda entry: entry["replicas"] >= 5, place.name, "chat")
    shown = f'tidegate_workload_brake{{brake="never_down",namespace="{place.name}",workload="chat"}}'
    assert await tidegate.metric(shown) == 1.0
