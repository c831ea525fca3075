"""Tests gateways together with engines: no request is counted twice, and models on one target are separated."""

import pytest


def test_averages_of_the_gateway_are_not_added_to_the_engines(scene, plan, pod, gateway, page):
    stage, pods, front = scene(plan(gateway=True)), [pod(n) for n in range(3)], gateway()
    stage.has(pods=pods, gateway=front)
    pages = {each: page.vllm(waiting=6, running=10) for each in pods}
    # The engines: 3 x 16 = 48. EPP repeats 6 and 10 as averages over 3 and holds 20 itself: 68/16 = 4.25, so 5.
    pages[front] = page.epp(held=20, ready=3, average_waiting=6, average_running=10)
    assert stage.round(pages) == (5, True, "serving")
    evidence = stage.decision().evidence
    assert (evidence.waiting, evidence.running, evidence.held_by_gateway) == (18.0, 30.0, 20.0)
    assert evidence.replicas_ready == 3


def test_gateway_counts_for_engines_that_are_not_scraped(scene, plan, gateway, page):
    stage, front = scene(plan(gateway=True, pods=False)), gateway()
    stage.has(gateway=front)
    text = page.epp(held=20, ready=3, average_waiting=6, average_running=10)
    assert stage.round({front: text}) == (5, True, "serving")
    assert stage.decision().evidence.waiting == 18.0


def test_requests_of_three_pods_are_summed(scene, pod, page):
    stage, pods = scene(), [pod(n) for n in range(3)]
    stage.has(pods=pods)
    assert stage.round({each: page.vllm(waiting=n, running=10) for n, each in enumerate(pods)}) == (3, True, "serving")
    assert stage.decision().evidence.waiting == 0 + 1 + 2
    assert stage.decision().evidence.running == 30.0


def test_kv_cache_is_the_mean_over_the_pods_that_expose_it(scene, plan, pod, page):
    stage, pods = scene(plan(kv=0.6)), [pod(n) for n in range(3)]
    stage.has(pods=pods, wanted=3)
    pages = {each: page.vllm(waiting=0, running=1, kv=kv) for each, kv in zip(pods, (1.0, 0.8, None), strict=True)}
    # 0.9 on average in 3 replicas, against 0.6: 3 x 0.9 / 0.6 = 4.5, so 5.
    assert stage.round(pages) == (5, True, "serving")
    assert stage.decision().evidence.kv_cache_used == pytest.approx(0.9)
    work, kv = stage.decision().evidence.objectives
    assert (work.name, work.value, work.replicas) == ("work", 3.0, 3 / 16)
    assert (kv.name, kv.replicas) == ("kv_cache", pytest.approx(4.5))


@pytest.mark.parametrize(("queue", "replicas"), [("a", 2), ("b", 4), (None, 5)])
def test_workload_counts_only_its_model_on_a_target_of_two(scene, plan, pod, page, queue, replicas):
    stage, engine = scene(plan(queue=queue)), pod()
    stage.has(pods=[engine])
    text = page.vllm(waiting=0, running=20, model="a") + page.vllm(waiting=30, running=20, model="b")
    assert stage.round({engine: text}) == (replicas, True, "serving")


def test_missing_model_is_unknown_and_not_idle(scene, plan, pod, page):
    stage, engine = scene(plan(queue="b")), pod()
    stage.has(pods=[engine])
    assert stage.round({engine: page.vllm(waiting=0, running=20, model="a")}) == (None, True, "unknown")


def test_two_workloads_share_one_gateway_target_by_their_pools(scene, plan, gateway, page):
    stage = scene(plan("chat", pods=False, gateway=True, queue="p"), plan("code", pods=False, gateway=True, queue="q"))
    chats, codes = gateway(), gateway(name="code")
    stage.has(gateway=chats)
    stage.has(gateway=codes, name="code")
    text = page.epp(held=20, ready=1) + page.epp(held=100, ready=1, pool="q")
    for target in (chats, codes):
        stage.land(target, text)
    stage.sweep()
    assert (stage.outcome("chat")[0], stage.outcome("code")[0]) == (2, 7)


def test_replica_count_of_the_cluster_precedes_that_of_a_gateway(scene, plan, gateway, page):
    stage, front = scene(plan(gateway=True, pods=False)), gateway()
    stage.has(gateway=front, wanted=4)
    stage.round({front: page.epp(held=20, ready=3)})
    assert stage.decision().evidence.replicas_ready == 4
    stage.counted(None)
    stage.round({front: page.epp(held=20, ready=3)})
    assert stage.decision().evidence.replicas_ready == 3
    assert stage.decision().evidence.replicas_wanted is None


def test_two_queues_of_one_workload_are_summed(scene, plan, gateway, page):
    stage = scene(plan(gateway=True, pods=False))
    first, second = gateway(), gateway(url="http://other:9090/metrics")
    stage.has(gateway=first)
    stage.decider.expect(second)
    assert stage.round({first: page.epp(held=20, ready=1), second: page.epp(held=20, ready=1)}) == (3, True, "queued")


def test_silent_one_of_two_gateways_makes_the_work_incomplete(scene, plan, pod, gateway, page):
    stage, engine = scene(plan(gateway=True, keep_warm=30.0)), pod()
    first, second = gateway(), gateway(url="http://other:9090/metrics")
    stage.has(pods=[engine], gateway=first)
    stage.decider.expect(second)
    quiet = {engine: page.vllm(waiting=0, running=0), first: page.epp(held=0, ready=1)}
    assert stage.round({**quiet, second: page.epp(held=40, ready=1)}) == (3, True, "queued")
    stage.rounds(15, {**quiet, second: None})
    assert stage.rounds(120, {**quiet, second: None}) == [(3, True, "held")]
    stage.decider.retire(second)
    assert stage.rounds(45, quiet)[-1] == (0, False, "asleep")


def test_queue_before_the_engines_is_added_unless_it_repeats_theirs(scene, plan, pod, gateway, page):
    stage, engine, front = scene(plan(gateway=True)), pod(), gateway(kind="redis_exporter")
    stage.has(pods=[engine], gateway=front)
    assert stage.round({engine: page.vllm(waiting=0, running=10), front: page.redis(30)}) == (3, True, "serving")


def test_invalid_line_of_the_gateway_does_not_empty_its_queue(scene, plan, pod, gateway, page):
    stage, engine, front = scene(plan(gateway=True)), pod(), gateway()
    stage.has(pods=[engine], gateway=front)
    quiet = page.vllm(waiting=0, running=10)
    assert stage.round({engine: quiet, front: page.epp(held=60, ready=1)}) == (5, True, "serving")
    for broken in ("NaN", "sixty"):
        assert stage.round({engine: quiet, front: page.epp(held=broken, ready=1)}) == (5, True, "incomplete")
    assert stage.round({engine: quiet, front: page.epp(held=0, ready=1)}) == (1, True, "serving")


def test_restarted_gateway_has_no_queue_until_its_first_request(scene, plan, pod, gateway, page):
    # EPP exposes its flow-control queue from the first request on: without it the target is valid, but no wake source.
    stage, engine, front = scene(plan(gateway=True, keep_warm=30.0)), pod(), gateway()
    stage.has(pods=[engine], gateway=front)
    quiet = page.vllm(waiting=0, running=0)
    started = "process_start_time_seconds {}\n".format
    stage.round({engine: quiet, front: page.epp(held=0, ready=1) + started(100)})
    restarted = page.epp(ready=1) + started(900)
    assert stage.rounds(60, {engine: quiet, front: restarted})[-1] == (1, True, "no_wake_source")
    # A line of another family that does not parse takes nothing from it.
    assert stage.rounds(60, {engine: quiet, front: restarted + "oops\n"}) == [(1, True, "no_wake_source")]


def test_gateway_that_loses_its_queue_without_a_restart_is_incomplete(scene, plan, pod, gateway, page):
    stage, engine, front = scene(plan(gateway=True, keep_warm=30.0)), pod(), gateway()
    stage.has(pods=[engine], gateway=front)
    quiet = page.vllm(waiting=0, running=0)
    stage.round({engine: quiet, front: page.epp(held=0, ready=1)})
    lost = {engine: quiet, front: page.epp(ready=1)}
    assert stage.rounds(300, lost)[-1] == (1, True, "incomplete")
    # It was empty, and no other series refers to it: it was deleted. No request would be visible, so one replica stays.
    assert stage.rounds(60, lost)[-1] == (1, True, "no_wake_source")


def test_gateway_that_loses_a_queue_with_requests_stays_incomplete(scene, plan, pod, gateway, page):
    stage, engine, front = scene(plan(gateway=True, keep_warm=30.0)), pod(), gateway()
    stage.has(pods=[engine], gateway=front)
    quiet = page.vllm(waiting=0, running=0)
    stage.round({engine: quiet, front: page.epp(held=3, ready=1)})
    assert stage.rounds(3600, {engine: quiet, front: page.epp(ready=1)})[-1] == (1, True, "incomplete")


def test_gateway_without_a_ready_address_is_noted(scene, plan, pod, gateway, page):
    stage, engine, front = scene(plan(gateway=True)), pod(), gateway()
    stage.has(pods=[engine])
    stage.round({engine: page.vllm(waiting=0, running=1)})
    assert stage.decision().evidence.notes == ("its gateway has no ready address to ask",)
    stage.has(gateway=front)
    stage.round({engine: page.vllm(waiting=0, running=1), front: None})
    assert (stage.decision().evidence.notes, stage.decision().evidence.stale) == ((), (front.url,))
