"""The daemon dies, freezes and comes back under load: replicas stay, and afterwards the load is followed again."""

import pytest

from .place import QUICK

# KEDA polls every 5 s and the HPA looks every 15 s by default: some rounds of both.
A_WHILE_S = 25.0


@pytest.fixture
def loaded(place, page):
    """70 requests, 5 replicas."""
    place.gateway("front", page.epp(held=0, ready=1))
    place.deployment("llama", page.vllm, requests=70, replicas=2)
    place.scaled_object("llama", minimum=0, maximum=9, gateway="front", **QUICK)
    place.until_replicas("llama", 5)
    place.stays_at("llama", 5, 5)
    return place


def test_killed_under_load_it_scales_nothing_and_started_again_it_follows(loaded, tidegate):
    tidegate.kill()
    loaded.stays_at("llama", 5, A_WHILE_S)
    tidegate.start()
    loaded.stays_at("llama", 5, A_WHILE_S)
    loaded.has("llama", requests=100)
    loaded.until_replicas("llama", 7)


def test_frozen_under_load_it_scales_nothing_and_thawed_it_follows(loaded, tidegate):
    tidegate.freeze()
    loaded.stays_at("llama", 5, A_WHILE_S)
    tidegate.thaw()
    loaded.stays_at("llama", 5, A_WHILE_S)
    loaded.has("llama", requests=40)
    loaded.until_replicas("llama", 3)


def test_restarted_under_load_it_scales_nothing(loaded, tidegate):
    with loaded.history("llama") as seen:
        for _ in range(2):
            tidegate.stop()
            tidegate.start()
        loaded.stays_at("llama", 5, A_WHILE_S)
    assert seen == [5]
    loaded.has("llama", requests=100)
    loaded.until_replicas("llama", 7)
