"""Pods come and go under a steady load, and replicas go up and down one by one, each of them exactly."""

import pytest

from .place import QUICK

# As shipped: half of a rise is believed after 5 s, so that a page that was read before another does not count twice.
STEADY = {"smoothing.up": "5s", "smoothing.down": "10s"}
A_WHILE_S = 20.0


def test_a_rollout_with_max_surge_2_changes_no_replicas(place, page):
    # 88 requests are 5.5 replicas' worth.
    place.deployment("llama", page.vllm, requests=88, replicas=6, surge=2)
    place.scaled_object("llama", minimum=1, maximum=12, **STEADY)
    place.stays_at("llama", 6, A_WHILE_S)
    with place.history("llama") as seen:
        place.change_template("llama")
        place.until_settled("llama", 6)
        place.stays_at("llama", 6, A_WHILE_S)
    assert seen == [6], place.seen("llama")


def test_a_third_of_the_pods_deleted_changes_no_replicas(place, page):
    place.deployment("llama", page.vllm, requests=88, replicas=6)
    place.scaled_object("llama", minimum=1, maximum=12, **STEADY)
    place.stays_at("llama", 6, A_WHILE_S)
    with place.history("llama") as seen:
        for pod in place.pods("llama")[:2]:
            place.delete_pod(pod)
        place.stays_at("llama", 6, 5)
        place.until_settled("llama", 6)
        place.stays_at("llama", 6, A_WHILE_S)
    assert seen == [6], place.seen("llama")


def test_replicas_follow_one_by_one_from_1_to_30_and_back_and_never_overshoot(place, page):
    place.deployment("llama", page.vllm, requests=8)
    place.scaled_object("llama", minimum=1, maximum=40, **{**QUICK, "smoothing.up": "1s"})
    place.until_replicas("llama", 1)
    behavior = place.hpa("keda-hpa-llama")["spec"]["behavior"]
    if any("tolerance" not in behavior[way] for way in ("scaleUp", "scaleDown")):
        pytest.skip("this cluster's HPA has no tolerance to set (Kubernetes 1.35 and later have one)")
    wanted = [*range(2, 31), *range(29, 0, -1)]
    with place.history("llama") as seen:
        for replicas in wanted:
            # Half a replica below the step: 8 requests of 16.
            place.has("llama", requests=16 * replicas - 8)
            place.until_replicas("llama", replicas)
    assert seen == [1, *wanted]
