"""KEDA's whole loop: a push wakes, the HPA follows the load, and idleness goes to zero again."""

import time

from .place import QUICK

# Of the push: with this interval a poll would come too late by far.
POLLING_S = 120
PUSHED_WITHIN_S = 20.0


def test_a_request_wakes_it_by_push_and_the_hpa_follows_the_load(place, page):
    front = place.gateway("front", page.epp(held=0, ready=0))
    place.deployment("llama", page.vllm, replicas=0)
    place.scaled_object("llama", minimum=0, maximum=9, polling=POLLING_S, gateway="front", **QUICK)
    place.stays_at("llama", 0, 10)

    begun = time.monotonic()
    front.text = page.epp(held=1, ready=0)
    place.until_replicas("llama", 1, within=PUSHED_WITHIN_S)
    assert time.monotonic() - begun < POLLING_S / 2

    # 70 requests at 16 a replica are 4.4 replicas' worth.
    place.has("llama", requests=70)
    front.text = page.epp(held=0, ready=1)
    place.until_replicas("llama", 5)
    place.has("llama", requests=40)
    place.until_replicas("llama", 3)


def test_idle_for_its_keep_warm_time_it_goes_to_zero(place, page):
    place.gateway("front", page.epp(held=0, ready=1))
    place.deployment("llama", page.vllm, requests=40, replicas=3)
    place.scaled_object("llama", minimum=0, maximum=9, gateway="front", **QUICK)
    place.stays_at("llama", 3, 15)
    with place.history("llama") as seen:
        place.has("llama", requests=0)
        place.until_replicas("llama", 0)
    assert seen[-1] == 0
    place.stays_at("llama", 0, 15)
