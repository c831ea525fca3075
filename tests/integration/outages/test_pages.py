"""Targets fall silent: an engine, some engines, the gateway, or dcgm-exporter."""

import asyncio

import grpc

from scaler.controllers.keda import FallbackSpec
from tests.fakes.waiting import until_scraped

from .conftest import QUICK

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
# Without a fallback, and with one above, one below, and one of 0, for which the HPA goes to its minimum.
FALLBACKS = (None, FallbackSpec(3, 6), FallbackSpec(3, 2), FallbackSpec(3, 0))


def each(fallbacks, scaled, document, replicas):
    return [scaled(document, replicas=replicas, fallback=fallback) for fallback in fallbacks]


def without_errors(responses):
    """The responses without errors."""
    return [answer for answer in responses if answer != UNAVAILABLE]


async def ordered(scaled_objects, minutes):
    return [await one.minutes(minutes) for one in scaled_objects]


def silence(pod, how):
    match how:
        case "refuses":
            pod.refuse()
        case "hangs":
            pod.hang()
        case "fails":
            pod.target.behaviour = "error"
        case "says nothing":
            pod.serve("")


async def test_silent_pod_is_held_and_then_an_error_which_scales_nothing_without_a_fallback(
    tenant, page, keda, scaled, tidegate
):
    async def outage(how):
        # 40 requests at 16 per replica: 2.5, so 3.
        name = how.replace(" ", "-")
        llama = tenant.deployment(name, page.vllm(waiting=30, running=10), pods=1)
        chat = tenant.scaled_object(name, target=name, minimum=0, maximum=9, **QUICK)
        scaled_objects = each(FALLBACKS, scaled, chat, 3)
        await keda.until((3, True), chat)
        assert await ordered(scaled_objects, 1) == [[], [], [], []]

        async with keda.watching(chat) as responses:
            silence(llama.pods[0], how)
            await keda.until(UNAVAILABLE, chat)
        assert without_errors(responses) == [(3, True)]
        assert f"{tenant.name}/{name}-" in (await keda.refusal(chat))[1]
        # Without a fallback replicas stay; with one they become its number: more, fewer, or the minimum.
        assert await ordered(scaled_objects, 10) == [[], [6], [2], [1]]

        if how == "refuses":
            llama.pods[0].listen()
        llama.pods[0].serve(page.vllm(waiting=0, running=70))
        await keda.until((5, True), chat)
        assert (await ordered(scaled_objects, 1))[:3] == [[5], [5], [5]]

    await asyncio.gather(*map(outage, ("refuses", "hangs", "fails", "says nothing")))
    assert {line["error"] for line in tidegate.logged("scrape failed")} >= {"refused", "timeout", "status"}


async def test_two_silent_pods_of_three_are_held_and_then_an_error(tenant, page, keda, scaled, tidegate):
    # 60 requests: 3.75, so 4. One of three is less than half, so the other two cannot be imputed.
    llama = tenant.deployment("llama", page.vllm(waiting=10, running=10), pods=3)
    chat = tenant.scaled_object("chat", target="llama", minimum=0, maximum=9, **QUICK)
    await keda.until((4, True), chat)
    scaled_objects = each((None, FallbackSpec(3, 2)), scaled, chat, 4)
    async with keda.watching(chat) as responses:
        for pod in llama.pods[1:]:
            pod.refuse()
        await tidegate.until(lambda entry: entry["reason"] in {"held", "unknown"}, tenant.name, "chat")
        llama.pods[0].serve(page.vllm(waiting=0, running=0))
        await keda.until(UNAVAILABLE, chat)
    assert without_errors(responses) == [(4, True)]
    assert await ordered(scaled_objects, 10) == [[], [2]]
    # The load of one pod is a lower bound: demand above the held decision is published even now.
    llama.pods[0].serve(page.vllm(waiting=70, running=10))
    await keda.until((5, True), chat)
    assert await ordered(scaled_objects, 1) == [[5], [5]]


async def test_silent_gateway_is_held_and_then_an_error_and_wakes_no_sleeping_workload(
    tenant, page, keda, scaled, tidegate
):
    front, night = (
        tenant.service("front", page.epp(held=0, ready=1)),
        tenant.service("night", page.epp(held=0, ready=0)),
    )
    tenant.deployment("llama", page.vllm(waiting=30, running=10), pods=1)
    for name in ("asleep", "woken"):
        tenant.deployment(name)
    bounds = {"minimum": 0, "maximum": 9, **QUICK}
    chat = tenant.scaled_object("chat", target="llama", gateway="front", **bounds)
    asleep = tenant.scaled_object("asleep", target="asleep", gateway="night", **bounds)
    woken = tenant.scaled_object("woken", target="woken", gateway="night", on_blind="wake", **bounds)
    await keda.until((3, True), chat)
    for sleeper in (asleep, woken):
        await keda.until((0, False), sleeper)
    scaled_objects = each((None, FallbackSpec(3, 2)), scaled, chat, 3)
    sleepers = each(FALLBACKS, scaled, asleep, 0)
    async with (
        keda.watching(chat) as responses,
        keda.watching(asleep) as slept,
        keda.watching(woken) as woken_responses,
    ):
        front.behaviour = night.behaviour = "error"
        await keda.until(UNAVAILABLE, chat)
        assert (await tidegate.decision(tenant.name, "asleep"))["reason"] == "held"
        assert await ordered(sleepers, 10) == [[], [], [], []]
        await keda.until((1, True), woken)
        # An error leaves the woken replica as it is.
        [owner] = each((None,), scaled, woken, 0)
        assert await owner.minutes(1) == [1]
    assert without_errors(responses) == [(3, True)]
    assert slept == [(0, False)]
    # Number and activity are two calls: the decision may rise between them.
    assert set(woken_responses) - {(0, True)} <= {(0, False), (1, True)}
    assert await ordered(scaled_objects, 10) == [[], [2]]

    # The gateway is back, and the request that waited all the time is counted.
    night.body, night.behaviour = page.epp(held=20, ready=0), "ok"
    await keda.until((2, True), asleep)
    assert await ordered(sleepers, 1) == [[1, 2]] * 4


async def test_workload_sized_by_gpus_is_held_and_then_an_error_without_dcgm_exporter(
    tenant, page, keda, scaled, tidegate
):
    llama = tenant.deployment("llama", page.vllm(waiting=0, running=1), pods=2)
    gpus = "".join(page.gpu(f"GPU-{tenant.name}-{n}", [pod.key], engine=0.9) for n, pod in enumerate(llama.pods))
    exporter = tenant.gpu_exporter("dcgm-exporter-aaaaa", tenant.name, gpus)
    front = tenant.service("front", page.epp(held=0, ready=0))
    tenant.deployment("asleep")
    sized = {"minimum": 0, "maximum": 9, "objectives.gpu_engine": "0.5", **QUICK}
    chat = tenant.scaled_object("chat", target="llama", **sized)
    asleep = tenant.scaled_object("asleep", target="asleep", gateway="front", **sized)
    # 2 replicas at 0.9 with an objective of 0.5: 3.6, so 4.
    await keda.until((4, True), chat)
    await keda.until((0, False), asleep)
    scaled_objects = each((None, FallbackSpec(3, 2)), scaled, chat, 4)
    async with keda.watching(chat) as responses, keda.watching(asleep) as slept:
        exporter.refuse()
        await keda.until(UNAVAILABLE, chat)
        await until_scraped(front)
    assert without_errors(responses) == [(4, True)]
    assert slept == [(0, False)]
    assert await ordered(scaled_objects, 10) == [[], [2]]
