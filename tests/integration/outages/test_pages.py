"""A page falls silent: an engine's, some engines', the gateway's, dcgm-exporter's."""

import asyncio

import grpc

from scaler.controllers.keda import FallbackSpec
from tests.integration.cluster.waiting import asked_again

from .conftest import QUICK

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
# Without a fallback, and with one above, one below, and one of nothing: the HPA goes to its minimum then.
FALLBACKS = (None, FallbackSpec(3, 6), FallbackSpec(3, 2), FallbackSpec(3, 0))


def each(fallbacks, scaled, document, replicas):
    return [scaled(document, replicas=replicas, fallback=fallback) for fallback in fallbacks]


def known(seen):
    """What was answered on the way, errors apart."""
    return [answer for answer in seen if answer != UNAVAILABLE]


async def ordered(everybody, minutes):
    return [await one.minutes(minutes) for one in everybody]


def falls_silent(pod, how):
    match how:
        case "refuses":
            pod.refuses()
        case "hangs":
            pod.hangs()
        case "fails":
            pod.page.behaviour = "error"
        case "says nothing":
            pod.says("")


async def test_a_pod_that_falls_silent_is_held_and_then_an_error_which_moves_nobody_without_a_fallback(
    place, page, keda, scaled, tidegate
):
    async def story(how):
        # 40 requests at 16 a replica: 2.5, so 3.
        name = how.replace(" ", "-")
        llama = place.deployment(name, page.vllm(waiting=30, running=10), pods=1)
        chat = place.scaled_object(name, target=name, minimum=0, maximum=9, **QUICK)
        everybody = each(FALLBACKS, scaled, chat, 3)
        await keda.until((3, True), chat)
        assert await ordered(everybody, 1) == [[], [], [], []]

        async with keda.watching(chat) as seen:
            falls_silent(llama.pods[0], how)
            await keda.until(UNAVAILABLE, chat)
        assert known(seen) == [(3, True)]
        assert llama.pods[0].address in (await keda.refusal(chat))[1]
        # What is there stays; with a fallback it becomes what that says: more, or less, or nothing.
        assert await ordered(everybody, 10) == [[], [6], [2], [1]]

        if how == "refuses":
            llama.pods[0].listens()
        llama.pods[0].says(page.vllm(waiting=0, running=70))
        await keda.until((5, True), chat)
        assert (await ordered(everybody, 1))[:3] == [[5], [5], [5]]

    await asyncio.gather(*map(story, ("refuses", "hangs", "fails", "says nothing")))
    assert {line["error"] for line in tidegate.logged("scrape failed")} >= {"refused", "timeout", "status"}


async def test_of_three_pods_the_two_that_fall_silent_are_held_and_then_an_error(place, page, keda, scaled, tidegate):
    # 60 requests: 3.75, so 4. The one that answers is less than half, so the others cannot be told from it.
    llama = place.deployment("llama", page.vllm(waiting=10, running=10), pods=3)
    chat = place.scaled_object("chat", target="llama", minimum=0, maximum=9, **QUICK)
    await keda.until((4, True), chat)
    everybody = each((None, FallbackSpec(3, 2)), scaled, chat, 4)
    async with keda.watching(chat) as seen:
        for pod in llama.pods[1:]:
            pod.refuses()
        await tidegate.until(lambda entry: entry["reason"] in {"held", "unknown"}, place.name, "chat")
        llama.pods[0].says(page.vllm(waiting=0, running=0))
        await keda.until(UNAVAILABLE, chat)
    assert known(seen) == [(4, True)]
    assert await ordered(everybody, 10) == [[], [2]]
    # What the one has to do is a lower bound: more than was held is answered even now.
    llama.pods[0].says(page.vllm(waiting=70, running=10))
    await keda.until((5, True), chat)
    assert await ordered(everybody, 1) == [[5], [5]]


async def test_a_gateway_that_falls_silent_is_held_and_then_an_error_and_wakes_no_sleeper(
    place, page, keda, scaled, tidegate
):
    front, night = place.service("front", page.epp(held=0, ready=1)), place.service("night", page.epp(held=0, ready=0))
    place.deployment("llama", page.vllm(waiting=30, running=10), pods=1)
    for name in ("asleep", "woken"):
        place.deployment(name)
    bounds = {"minimum": 0, "maximum": 9, **QUICK}
    chat = place.scaled_object("chat", target="llama", gateway="front", **bounds)
    asleep = place.scaled_object("asleep", target="asleep", gateway="night", **bounds)
    woken = place.scaled_object("woken", target="woken", gateway="night", on_blind="wake", **bounds)
    await keda.until((3, True), chat)
    for sleeper in (asleep, woken):
        await keda.until((0, False), sleeper)
    everybody = each((None, FallbackSpec(3, 2)), scaled, chat, 3)
    sleepers = each(FALLBACKS, scaled, asleep, 0)
    async with keda.watching(chat) as seen, keda.watching(asleep) as slept, keda.watching(woken) as dear:
        front.behaviour = night.behaviour = "error"
        await keda.until(UNAVAILABLE, chat)
        assert (await tidegate.decision(place.name, "asleep"))["reason"] == "held"
        assert await ordered(sleepers, 10) == [[], [], [], []]
        await keda.until((1, True), woken)
        # Once it is there an error leaves it there.
        [owner] = each((None,), scaled, woken, 0)
        assert await owner.minutes(1) == [1]
    assert known(seen) == [(3, True)]
    assert slept == [(0, False)]
    # Its number and its activity are two questions: the answer may rise between them.
    assert set(dear) - {(0, True)} <= {(0, False), (1, True)}
    assert await ordered(everybody, 10) == [[], [2]]

    # Back again, and the request that waited all the time is seen.
    night.text, night.behaviour = page.epp(held=20, ready=0), "ok"
    await keda.until((2, True), asleep)
    assert await ordered(sleepers, 1) == [[1, 2]] * 4


async def test_who_is_sized_by_gpus_is_held_and_then_an_error_without_dcgm_exporter_and_a_sleeper_sleeps_on(
    place, page, keda, scaled, tidegate
):
    llama = place.deployment("llama", page.vllm(waiting=0, running=1), pods=2)
    gpus = "".join(page.gpu(f"GPU-{place.name}-{n}", [pod.key], engine=0.9) for n, pod in enumerate(llama.pods))
    exporter = place.gpu_exporter("dcgm-exporter-aaaaa", place.name, gpus)
    front = place.service("front", page.epp(held=0, ready=0))
    place.deployment("asleep")
    sized = {"minimum": 0, "maximum": 9, "objectives.gpu_engine": "0.5", **QUICK}
    chat = place.scaled_object("chat", target="llama", **sized)
    asleep = place.scaled_object("asleep", target="asleep", gateway="front", **sized)
    # 2 replicas at 0.9 of a target of 0.5: 3.6, so 4.
    await keda.until((4, True), chat)
    await keda.until((0, False), asleep)
    everybody = each((None, FallbackSpec(3, 2)), scaled, chat, 4)
    async with keda.watching(chat) as seen, keda.watching(asleep) as slept:
        exporter.refuses()
        await keda.until(UNAVAILABLE, chat)
        await asked_again(front)
    assert known(seen) == [(4, True)]
    assert slept == [(0, False)]
    assert await ordered(everybody, 10) == [[], [2]]
