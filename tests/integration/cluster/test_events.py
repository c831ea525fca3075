"""Kubernetes events of a workload are on its scale target, where `kubectl describe` finds them."""

from tests.fakes import objects
from tests.fakes.waiting import until

QUICK = {"keep_warm": "1s", "objectives.work": "16", "smoothing.up": "0s", "smoothing.down": "0.3s"}


async def events_until(tenant, *reasons):
    """Wait for exactly these Events of the tenant's namespace, in any order; returns them."""

    async def events():
        return [document for (namespace, _), document in tenant.fake.events.items() if namespace == tenant.name]

    return await until(events, lambda found: sorted(each["reason"] for each in found) == sorted(reasons))


async def test_events_of_sleep_and_wake_are_on_the_deployment_and_name_the_scaled_object(tenant, page, tidegate, keda):
    front = tenant.service("front", page.epp(held=0, ready=0))
    llama = tenant.deployment("llama", page.vllm(waiting=0, running=1, finished=0), pods=1)
    chat = tenant.scaled_object("chat", target="llama", minimum=0, maximum=4, engine="vllm", gateway="front", **QUICK)
    await keda.until((1, True), chat)
    llama.serve(page.vllm(waiting=0, running=0, finished=1))
    await keda.until((0, False), chat)
    [asleep] = await events_until(tenant, "Asleep")
    assert asleep["regarding"] == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "namespace": tenant.name,
        "name": "llama",
        "uid": objects.uid("Deployment", "llama", tenant.name),
    }
    assert (asleep["related"]["kind"], asleep["related"]["name"]) == ("ScaledObject", "chat")
    assert asleep["note"].startswith("asleep: idle for ")
    assert "its wake source is the queue on http://" in asleep["note"]

    front.body = page.epp(held=3, ready=0)
    _, woken = await events_until(tenant, "Asleep", "Woken")
    assert woken["note"] == "awake, 1 replica wanted: requests: 3 waiting"
    assert (woken["type"], woken["reportingController"]) == ("Normal", "tidegate")


async def test_demand_above_the_maximum_has_a_warning(tenant, page, tidegate, keda):
    llama = tenant.deployment("llama", page.vllm(waiting=0, running=5), pods=2)
    chat = tenant.scaled_object("chat", target="llama", minimum=1, maximum=4, engine="vllm")
    await keda.until((1, True), chat)
    llama.serve(page.vllm(waiting=190, running=10))  # 400 requests need 25 replicas
    await keda.until((4, True), chat)
    [capped] = await events_until(tenant, "Capped")
    assert capped["type"] == "Warning"
    # The demand rises on the way.
    assert capped["note"].startswith("capped at 4 replicas, its maximum: work needs ")


async def test_missing_right_to_write_events_changes_nothing_else(tenant, page, tidegate, keda):
    """Decisions continue; the log names the missing right once."""
    tenant.fake.fail("Event", 403)
    try:
        llama = tenant.deployment("llama", page.vllm(waiting=0, running=5), pods=2)
        chat = tenant.scaled_object("chat", target="llama", minimum=1, maximum=4, engine="vllm")
        await keda.until((1, True), chat)
        llama.serve(page.vllm(waiting=190, running=10))
        await keda.until((4, True), chat)
        await tidegate.until_metric('tidegate_events_dropped_total{why="refused"}', 1.0)
        [failure] = tidegate.logged("event write failed")
        assert failure["namespace"] == tenant.name
        assert 'apiGroups ["events.k8s.io"]' in failure["problem"]
    finally:
        tenant.fake.mend()
