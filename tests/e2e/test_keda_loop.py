"""The whole loop with KEDA: a push wakes a workload, the HPA follows its load, and idleness scales it to zero."""

import time

from .tenant import QUICK

# For the push: with this interval a poll would come far too late.
POLLING_S = 120
PUSHED_WITHIN_S = 20.0


def test_request_wakes_a_workload_by_push_and_the_hpa_follows_the_load(tenant, page):
    front = tenant.gateway("front", page.epp(held=0, ready=0))
    tenant.deployment("llama", page.vllm, replicas=0)
    tenant.scaled_object("llama", minimum=0, maximum=9, polling=POLLING_S, gateway="front", **QUICK)
    tenant.stays_at("llama", 0, 10)

    begun = time.monotonic()
    front.body = page.epp(held=1, ready=0)
    tenant.until_replicas("llama", 1, within=PUSHED_WITHIN_S)
    assert time.monotonic() - begun < POLLING_S / 2

    # 70 requests at 16 per replica need 4.4 replicas.
    tenant.set_load("llama", requests=70)
    front.body = page.epp(held=0, ready=1)
    tenant.until_replicas("llama", 5)
    tenant.set_load("llama", requests=40)
    tenant.until_replicas("llama", 3)


def test_idle_workload_goes_to_zero_after_its_keep_warm_time(tenant, page):
    tenant.gateway("front", page.epp(held=0, ready=1))
    tenant.deployment("llama", page.vllm, requests=40, replicas=3)
    tenant.scaled_object("llama", minimum=0, maximum=9, gateway="front", **QUICK)
    tenant.stays_at("llama", 3, 15)
    with tenant.history("llama") as history:
        tenant.set_load("llama", requests=0)
        tenant.until_replicas("llama", 0)
    assert history[-1] == 0
    tenant.stays_at("llama", 0, 15)
