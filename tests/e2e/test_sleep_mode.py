"""An idle engine with sleep mode sleeps before its workload goes to zero, and Events on the Deployment show both."""

from .tenant import QUICK
from .test_events import events_of
from .waiting import until

USES = ("external-metrics", "keda", "events")

# Zero long after sleep, also where every step takes its time.
SLEEP = {"keep_warm": "30s", "sleep_mode.calls": "true", "sleep_mode.after": "3s", "sleep_mode.gpu_share": "0.1"}


def test_idle_engine_sleeps_wakes_for_a_request_and_goes_to_zero_and_events_show_it(tenant, page):
    front = tenant.gateway("front", page.epp(held=0, ready=1, passed_on=0))
    tenant.deployment("llama", page.vllm, requests=10, sleeps=True)
    tenant.scaled_object("llama", minimum=0, maximum=9, gateway="front", **{**QUICK, **SLEEP})
    until(lambda: decision(tenant), lambda entry: entry["reason"] == "serving")

    tenant.set_load("llama", requests=0)
    until_reasons(tenant, "EnginesAsleep")
    assert tenant.replicas("llama") == 1

    # A request waits in the engine, which no series of the engine shows.
    front.body = page.epp(held=0, ready=1, passed_on=1)
    until_reasons(tenant, "EnginesAsleep", "EnginesWoken")
    front.body = page.epp(held=0, ready=1, passed_on=0)
    tenant.until_replicas("llama", 0)
    found = until_reasons(tenant, "EnginesAsleep", "EnginesWoken", "Asleep")
    assert {event["type"] for event in found} == {"Normal"}


def decision(tenant):
    return tenant.tidegate.decision(tenant.name, "llama") or {"reason": None}


def until_reasons(tenant, *wanted):
    return until(
        lambda: events_of(tenant, "llama"),
        lambda found: {event["reason"] for event in found} == set(wanted),
        describe=lambda: tenant.describe("llama"),
    )
