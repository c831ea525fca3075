"""Pods start and end under a steady load, and replicas go up and down without overshoot."""

import pytest

from .tenant import QUICK

# As shipped: half of a rise counts after 5 s, so that a target that was scraped earlier does not count twice.
STEADY = {"smoothing.up": "5s", "smoothing.down": "10s"}
A_WHILE_S = 20.0


def test_rollout_with_max_surge_2_changes_no_replicas(tenant, page):
    # 88 requests need 5.5 replicas.
    tenant.deployment("llama", page.vllm, requests=88, replicas=6, surge=2)
    tenant.scaled_object("llama", minimum=1, maximum=12, **STEADY)
    tenant.stays_at("llama", 6, A_WHILE_S)
    with tenant.history("llama") as history:
        tenant.change_template("llama")
        tenant.until_settled("llama", 6)
        tenant.stays_at("llama", 6, A_WHILE_S)
    assert history == [6], tenant.describe("llama")


def test_deletion_of_a_third_of_the_pods_changes_no_replicas(tenant, page):
    tenant.deployment("llama", page.vllm, requests=88, replicas=6)
    tenant.scaled_object("llama", minimum=1, maximum=12, **STEADY)
    tenant.stays_at("llama", 6, A_WHILE_S)
    with tenant.history("llama") as history:
        for pod in tenant.pods("llama")[:2]:
            tenant.delete_pod(pod)
        tenant.stays_at("llama", 6, 5)
        tenant.until_settled("llama", 6)
        tenant.stays_at("llama", 6, A_WHILE_S)
    assert history == [6], tenant.describe("llama")


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
