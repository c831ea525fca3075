"""What a real API server keeps of an Event, and what `kubectl describe` finds: it asks core/v1 by the object's UID."""

from .place import DEPLOYMENTS, QUICK
from .waiting import until


def described(place, name):
    """As kubectl does (client-go's `events.Search`)."""
    uid = place.api.get(f"{DEPLOYMENTS.format(place.name)}/{name}")["metadata"]["uid"]
    selector = f"involvedObject.name={name},involvedObject.namespace={place.name},involvedObject.kind=Deployment"
    found = place.api.items(
        f"/api/v1/namespaces/{place.name}/events", fieldSelector=f"{selector},involvedObject.uid={uid}"
    )
    return [event for event in found if event.get("reportingComponent") == "tidegate"]


def test_sleeping_and_waking_are_found_on_the_deployment(place, page):
    front = place.gateway("front", page.epp(held=0, ready=1))
    place.deployment("llama", page.vllm, requests=10, replicas=1)
    place.scaled_object("llama", minimum=0, maximum=9, gateway="front", **QUICK)
    place.has("llama", requests=0)
    place.until_replicas("llama", 0)
    [asleep] = until(lambda: described(place, "llama"), lambda found: len(found) == 1)
    assert (asleep["reason"], asleep["type"]) == ("Asleep", "Normal")
    assert asleep["message"].startswith("asleep: idle for ")
    assert asleep["related"]["kind"] == "ScaledObject"
    front.text = page.epp(held=1, ready=0)
    place.until_replicas("llama", 1)
    found = until(lambda: described(place, "llama"), lambda found: len(found) == 2)
    assert {event["reason"] for event in found} == {"Asleep", "Woken"}
