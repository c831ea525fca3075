"""Replicas go up and down with the load, without overshoot. The longest test: a file of its own."""

import pytest

from .tenant import QUICK

FIRST = True


def test_replicas_follow_a_staircase_to_30_and_back_and_never_overshoot(tenant, page):
    tenant.deployment("llama", page.vllm, requests=8)
    tenant.scaled_object("llama", minimum=1, maximum=40, **{**QUICK, "smoothing.up": "1s"})
    tenant.until_replicas("llama", 1)
    behavior = tenant.hpa("keda-hpa-llama")["spec"]["behavior"]
    if any("tolerance" not in behavior[way] for way in ("scaleUp", "scaleDown")):
        pytest.skip("this cluster's HPA has no tolerance to set (Kubernetes 1.35 and later have one)")
    # One by one near both ends, where a wrong step is the smallest and the largest part.
    wanted = [2, 3, 4, 5, 6, 12, 20, 28, 29, 30, 29, 28, 20, 12, 6, 5, 4, 3, 2, 1]
    with tenant.history("llama") as history:
        for replicas in wanted:
            # Half a replica below the step: 8 requests of 16.
            tenant.set_load("llama", requests=16 * replicas - 8)
            tenant.until_replicas("llama", replicas)
    assert set(wanted) <= set(history)
    top = history.index(30)
    assert history[: top + 1] == sorted(set(history[: top + 1]))
    assert history[top:] == sorted(set(history[top:]), reverse=True)
