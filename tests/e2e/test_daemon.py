"""The daemon is killed, frozen and restarted under load: replicas stay, and afterwards they follow the load again."""

import pytest

from .tenant import QUICK

# KEDA polls every 5 s and the HPA syncs every 15 s by default: several rounds of both.
A_WHILE_S = 25.0


@pytest.fixture
def loaded(tenant, page):
    """70 requests, 5 replicas."""
    tenant.gateway("front", page.epp(held=0, ready=1))
    tenant.deployment("llama", page.vllm, requests=70, replicas=2)
    tenant.scaled_object("llama", minimum=0, maximum=9, cooldown=120, gateway="front", **QUICK)
    tenant.until_replicas("llama", 5)
    tenant.stays_at("llama", 5, 5)
    return tenant


def test_killed_daemon_scales_nothing_and_follows_after_a_start(loaded, tidegate):
    tidegate.kill()
    loaded.stays_at("llama", 5, A_WHILE_S)
    tidegate.start()
    loaded.stays_at("llama", 5, A_WHILE_S)
    loaded.set_load("llama", requests=100)
    loaded.until_replicas("llama", 7)


def test_frozen_daemon_scales_nothing_and_follows_after_a_thaw(loaded, tidegate):
    tidegate.freeze()
    loaded.stays_at("llama", 5, A_WHILE_S)
    tidegate.thaw()
    loaded.stays_at("llama", 5, A_WHILE_S)
    loaded.set_load("llama", requests=40)
    loaded.until_replicas("llama", 3)


def test_restarted_daemon_scales_nothing(loaded, tidegate):
    with loaded.history("llama") as history:
        for _ in range(2):
            tidegate.stop()
            tidegate.start()
        loaded.stays_at("llama", 5, A_WHILE_S)
    assert history == [5]
    loaded.set_load("llama", requests=100)
    loaded.until_replicas("llama", 7)
