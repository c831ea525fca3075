"""Events in a real API server, found as by `kubectl describe`, which queries core/v1 by the object's UID."""

from .tenant import DEPLOYMENTS, QUICK
from .waiting import until

USES = ("external-metrics", "keda", "events")


def events_of(tenant, name):
    """As kubectl does (client-go's `events.Search`)."""
    uid = tenant.api.get(f"{DEPLOYMENTS.format(tenant.name)}/{name}")["metadata"]["uid"]
    selector = f"involvedObject.name={name},involvedObject.namespace={tenant.name},involvedObject.kind=Deployment"
    found = tenant.api.items(
        f"/api/v1/namespaces/{tenant.name}/events", fieldSelector=f"{selector},involvedObject.uid={uid}"
    )
    return [event for event in found if event.get("reportingComponent") == "tidegate"]


def test_sleep_and_wake_events_are_found_on_the_deployment(tenant, page):
    front = tenant.gateway("front", page.epp(held=0, ready=1))
    tenant.deployment("llama", page.vllm, requests=10, replicas=1)
    tenant.scaled_object("llama", minimum=0, maximum=9, gateway="front", **QUICK)
    tenant.set_load("llama", requests=0)
    tenant.until_replicas("llama", 0)
    [asleep] = until(lambda: events_of(tenant, "llama"), lambda found: len(found) == 1)
    assert (asleep["reason"], asleep["type"]) == ("Asleep", "Normal")
    assert asleep["message"].startswith("asleep: idle for ")
    assert asleep["related"]["kind"] == "ScaledObject"
    front.body = page.epp(held=1, ready=0)
    tenant.until_replicas("llama", 1)
    found = until(lambda: events_of(tenant, "llama"), lambda found: len(found) == 2)
    assert {event["reason"] for event in found} == {"Asleep", "Woken"}
