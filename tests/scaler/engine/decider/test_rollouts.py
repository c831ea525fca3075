"""Pods come, go and fall silent; the demand does not change."""

from dataclasses import replace

import pytest

from exporter.model import PodKey, WorkloadKey
from scaler.engine.decider import Decider


def test_rollout_with_max_surge_changes_no_demand(scene, plan, pod, page):
    stage, old, new = scene(plan(settle=6.0)), [pod(0), pod(1)], [pod(10), pod(11)]
    works = {running: page.vllm(waiting=0, running=running) for running in (0, 6, 8, 14)}
    stage.has(pods=old, wanted=2)
    assert stage.round(dict.fromkeys(old, works[14])) == (2, True, "serving")  # 28/16
    outcomes = []
    # One more at a time: it starts, one of the old terminates and finishes its requests, new requests go to the other
    # pods, and the old one is gone. Clients hold 28 requests open all the while.
    for fresh, leaves, stays in ((new[0], old[0], old[1]), (new[1], old[1], new[0])):
        stage.has(pods=[leaves, stays, fresh], wanted=2, ready=2)
        stage.sweep(after=1)
        outcomes.append(stage.outcome())
        outcomes.append(stage.round({leaves: works[14], stays: works[14], fresh: works[0]}))
        stage.has(pods=[leaves, stays, fresh], wanted=2, leaving=[leaves])
        outcomes.append(stage.round({leaves: works[6], stays: works[14], fresh: works[8]}))
        outcomes.append(stage.round({leaves: works[0], stays: works[14], fresh: works[14]}))
        stage.decider.retire(leaves)
        stage.has(pods=[stays, fresh], wanted=2)
        outcomes.append(stage.round({stays: works[14], fresh: works[14]}))
    assert set(outcomes) == {(2, True, "serving")}


@pytest.mark.parametrize("gains", [0, 1])
def test_requests_that_moved_between_two_rounds_are_counted_once(scene, plan, pod, page, gains):
    """In either order of the responses nothing rises, and no ring stores a sum of two moments."""
    stage, pods = scene(plan(down=60.0)), [pod(0), pod(1)]
    busy, idle = page.vllm(waiting=0, running=32), page.vllm(waiting=0, running=0)
    stage.has(pods=pods, wanted=2)
    for _ in range(3):
        stage.land_together({pods[1 - gains]: busy, pods[gains]: idle})
        stage.sweep(after=5.0)
    assert stage.outcome() == (2, True, "serving")  # 32/16

    for first in (gains, 1 - gains):
        responses = {pods[gains]: busy, pods[1 - gains]: idle}
        changed = stage.land_together({pods[first]: responses[pods[first]], **responses})
        assert changed == []
        stage.sweep(after=5.0)
        assert stage.outcome() == (2, True, "serving")


def test_silent_one_of_four_pods_is_imputed_and_noted(scene, plan, pod, page):
    stage, pods = scene(plan(impute_after=60.0)), [pod(n) for n in range(4)]
    stage.has(pods=pods, wanted=4)
    busy = dict.fromkeys(pods, page.vllm(waiting=0, running=11))
    assert stage.round(busy) == (3, True, "serving")  # 44/16 = 2.75
    silent = {**busy, pods[3]: None}
    held = stage.rounds(60, silent)
    assert held[-1] == (3, True, "held")
    # 33 in three of four pods are 44 in all.
    assert stage.rounds(30, silent)[-1] == (3, True, "serving")
    evidence = stage.decision().evidence
    (note,) = evidence.notes
    assert note.startswith("3 of 4 ready pods respond; the others are assumed to be like them")
    assert evidence.stale == (pods[3].url,)
    assert evidence.objectives[0].value == 44.0


def test_new_list_of_workloads_between_scrapes_changes_no_decision(scene, plan, pod, page):
    stage, engine = scene(plan("gone"), plan("chat")), pod()
    stage.has(pods=[engine], wanted=7)
    assert stage.round({engine: page.vllm(waiting=0, running=100)}) == (7, True, "serving")
    decided_at = stage.decision().decided_at
    after = Decider([plan("new"), plan("chat")], interval_s=5.0, fresh_intervals=3.0)
    after.take_over(stage.decider)
    stage.decider = after
    changed = stage.sweep(after=1)
    assert [decision.workload for decision in changed] == [WorkloadKey("ai", "new")]
    assert stage.round({engine: page.vllm(waiting=0, running=120)}) == (8, True, "serving")
    assert decided_at < stage.decision().decided_at


def test_new_pod_with_the_address_of_an_old_one_inherits_nothing(scene, plan, pod, page):
    stage = scene(plan())
    old, new = (replace(pod(), pod=PodKey("ai", name)) for name in ("chat-0", "chat-1"))
    stage.has(pods=[old], wanted=1)
    stage.round({old: page.vllm(waiting=0, running=4, finished=1000)})
    stage.decider.retire(old)
    stage.has(pods=[new], wanted=1)
    # Were it the same counter, 1000 to 1005 would be five requests and activity.
    stage.round({new: page.vllm(waiting=0, running=4, finished=1005)})
    assert stage.decision().evidence.requests_per_second in (None, 0.0)
