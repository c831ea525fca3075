"""What happens to a workload is on what it scales, where `kubectl describe` looks for it."""

from tests.fakes import objects

from .waiting import until

QUICK = {"keep_warm": "1s", "smoothing.up": "0s", "smoothing.down": "0.3s"}


async def events_until(place, *reasons):
    """Wait for these Events of the place's namespace, in any order; returns them."""

    async def ask():
        return [document for (namespace, _), document in place.fake.events.items() if namespace == place.name]

    return await until(ask, lambda found: sorted(each["reason"] for each in found) == sorted(reasons))


async def test_who_sleeps_and_wakes_has_events_on_its_deployment_and_they_name_the_scaled_object(
    place, page, tidegate, keda
):
    front = place.service("front", page.epp(held=0, ready=0))
    llama = place.deployment("llama", page.vllm(waiting=0, running=1, finished=0), pods=1)
    chat = place.scaled_object("chat", target="llama", minimum=0, maximum=4, engine="vllm", gateway="front", **QUICK)
    await keda.until((1, True), chat)
    llama.say(page.vllm(waiting=0, running=0, finished=1))
    await keda.until((0, False), chat)
    [asleep] = await events_until(place, "Asleep")
    assert asleep["regarding"] == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "namespace": place.name,
        "name": "llama",
        "uid": objects.uid("Deployment", "llama", place.name),
    }
    assert (asleep["related"]["kind"], asleep["related"]["name"]) == ("ScaledObject", "chat")
    assert asleep["note"].startswith("asleep: idle for ")
    assert "its wake source is the queue on http://" in asleep["note"]

    front.text = page.epp(held=3, ready=0)
    _, woken = await events_until(place, "Asleep", "Woken")
    assert woken["note"] == "awake, 1 replica wanted: requests: 3 waiting"
    assert (woken["type"], woken["reportingController"]) == ("Normal", "tidegate")


async def test_who_asks_for_more_than_its_maximum_has_a_warning(place, page, tidegate, keda):
    llama = place.deployment("llama", page.vllm(waiting=0, running=5), pods=2)
    chat = place.scaled_object("chat", target="llama", minimum=1, maximum=4, engine="vllm")
    await keda.until((1, True), chat)
    llama.say(page.vllm(waiting=190, running=10))  # 400 requests are 25 replicas' worth
    await keda.until((4, True), chat)
    [capped] = await events_until(place, "Capped")
    assert capped["type"] == "Warning"
    # How much is asked for rises on the way there.
    assert capped["note"].startswith("capped at 4 replicas, its maximum: work needs ")


async def test_without_the_right_to_them_nothing_else_is_amiss(place, page, tidegate, keda):
    """Decisions go on; the log says once what right is missing."""
    place.fake.fail("Event", 403)
    try:
        llama = place.deployment("llama", page.vllm(waiting=0, running=5), pods=2)
        chat = place.scaled_object("chat", target="llama", minimum=1, maximum=4, engine="vllm")
        await keda.until((1, True), chat)
        llama.say(page.vllm(waiting=190, running=10))
        await keda.until((4, True), chat)
        await tidegate.until_metric('tidegate_events_dropped_total{why="refused"}', 1.0)
        [said] = tidegate.logged("event write failed")
        assert said["namespace"] == place.name
        assert 'apiGroups ["events.k8s.io"]' in said["problem"]
    finally:
        place.fake.mend()
