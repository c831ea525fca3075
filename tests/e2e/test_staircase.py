"""Replicas go up and down with the load, without overshoot. The longest tests."""

import pytest

from .tenant import QUICK

# One by one near both ends, where a wrong step is the smallest and the largest part.
UP = [1, 2, 3, 4, 5, 6, 12, 20, 28, 29, 30]


def test_replicas_follow_a_staircase_up_to_30_and_never_overshoot(tenant, page):
    history = climbed(tenant, page, UP)
    assert set(UP) <= set(history)
    assert history == sorted(set(history))


def test_replicas_follow_a_staircase_down_from_30_and_never_undershoot(tenant, page):
    history = climbed(tenant, page, UP[::-1])
    assert set(UP) <= set(history)
    assert history == sorted(set(history), reverse=True)


def climbed(tenant, page, wanted):
    """Each replica count while the load follows `wanted`."""
    tenant.deployment("llama", page.vllm, requests=requests_for(wanted[0]), replicas=wanted[0])
    tenant.scaled_object("llama", minimum=1, maximum=40, **{**QUICK, "smoothing.up": "1s"})
    tenant.until_replicas("llama", wanted[0])
    behavior = tenant.hpa("keda-hpa-llama")["spec"]["behavior"]
    if any("tolerance" not in behavior[way] for way in ("scaleUp", "scaleDown")):
        pytest.skip("this cluster's HPA has no tolerance to set (Kubernetes 1.35 and later have one)")
    with tenant.history("llama") as history:
        for replicas in wanted[1:]:
            tenant.set_load("llama", requests=requests_for(replicas))
            tenant.until_replicas("llama", replicas)
    return history


def requests_for(replicas):
    """Half a replica below the step: 8 requests of 16."""
    return 16 * replicas - 8
