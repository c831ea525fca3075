"""Invariant 1 from the response to the decision: stale is held, then an error; a missing value is not a zero."""

import pytest


@pytest.fixture
def busy(scene, plan, pod, gateway, page):
    """100 requests at 16 a replica: 6.25, so 7 replicas."""

    def begin(**spec):
        stage = scene(plan(gateway=True, hold=60.0, **spec))
        stage.engine, stage.front = pod(), gateway()
        stage.has(pods=[stage.engine], gateway=stage.front)
        pages = {stage.engine: page.vllm(waiting=84, running=16), stage.front: page.epp(held=0, ready=1)}
        assert stage.round(pages) == (7, True, "serving")
        return stage

    return begin


def test_decision_before_any_scrape_is_an_error(scene, pod):
    stage = scene()
    stage.has(pods=[pod()])
    stage.sweep()
    assert stage.outcome() == (None, True, "unknown")
    assert stage.decision().evidence.waiting is None
    assert stage.decision().evidence.stale == (pod().url,)


def test_stale_target_is_used_then_held_then_an_error(busy, page):
    stage = busy()
    pages = {stage.engine: None, stage.front: page.epp(held=0, ready=1)}
    # Fresh for 3 intervals of 5 s: at 15 s it still counts.
    assert stage.rounds(15, pages) == [(7, True, "serving")]
    assert stage.round(pages) == (7, True, "held")
    held_since = stage.now
    assert stage.decision().held_since == held_since
    assert stage.decision().evidence.stale == (stage.engine.url,)
    # Held for 60 s, and never lower.
    assert stage.rounds(60, pages) == [(7, True, "held")]
    assert stage.round(pages) == (None, True, "unknown")
    assert stage.now == held_since + 65.0
    assert stage.decision().evidence.waiting is None, "a stale value is not shown as a current one"


def test_returning_target_counts_at_once(busy, page):
    stage = busy()
    stage.rounds(90, {stage.engine: None, stage.front: page.epp(held=0, ready=1)})
    assert stage.outcome() == (None, True, "unknown")
    assert stage.round({stage.engine: page.vllm(running=20, waiting=0), stage.front: page.epp(held=0, ready=1)}) == (
        2, True, "serving",
    )  # fmt: skip
    assert stage.decision().held_since is None


@pytest.mark.parametrize(
    "silent", ["vllm:cache_config_info 1\n", 'vllm:request_success_total{model_name="m",finished_reason="stop"} 7\n']
)
def test_target_without_queue_gauges_counts_as_missing(busy, page, silent):
    # A fresh engine responds 200 without any gauge; the old pod's reading is gone with its target.
    stage = busy()
    pages = {stage.engine: silent, stage.front: page.epp(held=0, ready=1)}
    assert stage.round(pages) == (7, True, "held")
    assert stage.rounds(60, pages) == [(7, True, "held")]
    assert stage.round(pages) == (None, True, "unknown")


WAITING = 'vllm:num_requests_waiting{model_name="m",engine="0"}'
RUNNING = 'vllm:num_requests_running{model_name="m",engine="0"} 16\n'


@pytest.mark.parametrize(
    "partial",
    [
        RUNNING,
        WAITING + " NaN\n" + RUNNING,
        WAITING + " -5\n" + RUNNING,
        WAITING.replace('m"', "m") + " 84\n" + RUNNING,
    ],
    ids=["not on the page", "NaN", "negative", "a broken line"],
)
def test_queue_that_is_no_longer_exposed_does_not_become_empty(busy, page, partial):
    # 84 waited; now only the 16 running ones are exposed: 16/16 would be one replica instead of seven.
    stage = busy()
    pages = {stage.engine: partial, stage.front: page.epp(held=0, ready=1)}
    assert stage.rounds(600, pages) == [(7, True, "incomplete")]
    evidence = stage.decision().evidence
    assert (evidence.running, evidence.waiting, evidence.stale) == (16.0, None, ())
    assert any("vllm:num_requests_waiting" in text and stage.engine.url in text for text in evidence.incomplete)
    assert stage.round({**pages, stage.engine: page.vllm(waiting=0, running=10)}) == (1, True, "serving")


def test_restarting_engine_with_half_of_its_gauges_is_not_half_empty(busy, page):
    stage = busy()
    front = {stage.front: page.epp(held=0, ready=1)}
    assert stage.round({**front, stage.engine: page.vllm()}) == (7, True, "held")
    assert stage.round({**front, stage.engine: page.vllm(running=1)}) == (7, True, "incomplete")
    assert stage.round({**front, stage.engine: page.vllm(waiting=30, running=10)}) == (3, True, "serving")


def test_engine_without_a_gauge_of_running_requests_is_sized_by_waiting_ones(scene, plan, pod, page):
    # Triton's pending count is all it has.
    stage, engine = scene(plan(work=8.0)), pod(kind="triton")
    stage.has(pods=[engine])
    text = 'nv_inference_pending_request_count{model="m",version="1"} 20\n'
    assert stage.round({engine: text}) == (3, True, "queued")


def test_model_loaded_later_with_fewer_gauges_is_not_an_outage(scene, plan, pod, page):
    # Two models of one target may expose different gauges.
    stage, engine = scene(plan(work=8.0)), pod(kind="triton")
    stage.has(pods=[engine])
    one = 'nv_inference_pending_request_count{model="a",version="1"} 20\n'
    one += 'nv_trt_llm_request_metrics{model="a",version="1",request_type="scheduled"} 4\n'
    assert stage.round({engine: one}) == (3, True, "serving")
    both = one + 'nv_inference_pending_request_count{model="b",version="1"} 0\n'
    assert stage.round({engine: both}) == (3, True, "queued")


def test_fresh_demand_raises_a_held_decision_and_never_lowers_it(busy, page):
    stage = busy()
    gone = {stage.engine: None}
    for _ in range(4):
        stage.round({**gone, stage.front: page.epp(held=0, ready=1)})
    assert stage.outcome() == (7, True, "held")
    # 128 at the gateway: 8 replicas at least, whatever the silent engines hold.
    assert stage.round({**gone, stage.front: page.epp(held=128, ready=1)}) == (8, True, "held")
    assert stage.round({**gone, stage.front: page.epp(held=1, ready=1)}) == (8, True, "held")


@pytest.mark.parametrize("answering", [1, 2])
def test_responses_of_some_of_three_pods_never_scale_down(scene, pod, page, answering):
    stage, pods = scene(), [pod(0), pod(1), pod(2)]
    stage.has(pods=pods)
    # 3 pods of 40: 120/16 = 7.5, so 8. One at 10: 90/16 = 5.6, so 6. Two at 10: 60/16 = 3.75, so 4.
    assert stage.round({each: page.vllm(waiting=30, running=10) for each in pods}) == (8, True, "serving")
    some = {each: page.vllm(waiting=0, running=10) if n < answering else None for n, each in enumerate(pods)}
    # While the silent pods are fresh (15 s) they count with 40 each, then the last decision is held.
    assert stage.rounds(15, some)[-1] == (6 if answering == 1 else 4, True, "serving")
    assert stage.rounds(60, some) == [(6 if answering == 1 else 4, True, "held")]
    assert stage.decision().evidence.running == 10.0 * answering
    assert stage.decision().evidence.stale == tuple(each.url for each in pods[answering:])


def test_unknown_list_of_pods_is_not_an_empty_one(busy, page):
    stage = busy()
    stage.decider.listed(stage.decider.plans[0].workload, None)
    pages = {stage.engine: page.vllm(waiting=0, running=1), stage.front: page.epp(held=0, ready=1)}
    assert stage.round(pages) == (7, True, "held")
    assert "the list of its pods is not known" in stage.decision().evidence.notes


def test_workload_at_zero_sleeps_through_an_outage(scene, plan, pod, gateway, page):
    stage, engine, front = scene(plan(gateway=True, hold=60.0, keep_warm=30.0)), pod(), gateway()
    stage.has(pods=[engine], gateway=front, wanted=1)
    idle = {engine: page.vllm(waiting=0, running=0, finished=5), front: page.epp(held=0, ready=1)}
    assert stage.rounds(45, idle)[-1] == (0, False, "asleep")
    stage.decider.retire(engine)
    stage.has(pods=[], wanted=0)
    dark = {front: None}
    # An error here would let KEDA's fallback wake every sleeping workload.
    assert stage.rounds(600, dark)[-1] == (0, False, "held")
    assert stage.rounds(3600, dark) == [(0, False, "held")]


def test_restarted_daemon_holds_the_replicas_of_the_cluster(scene, pod):
    stage = scene()
    stage.has(pods=[pod(0), pod(1), pod(2)], wanted=3)
    stage.sweep()
    assert stage.outcome() == (3, True, "held")


def test_smoothed_value_does_not_outlive_its_source(scene, plan, pod, page):
    # Half-life of a fall: an hour. The smoothed value is left, its source is not: it sizes nothing.
    stage, engine = scene(plan(down=3600.0, hold=20.0)), pod()
    stage.has(pods=[engine])
    assert stage.round({engine: page.vllm(waiting=84, running=16)}) == (7, True, "serving")
    stage.rounds(60, {engine: None})
    assert stage.outcome() == (None, True, "unknown")
    (work,) = stage.decision().evidence.objectives
    assert (work.value, work.replicas) == (None, None)


def test_old_timestamp_of_an_exporter_makes_a_reading_stale(busy, page):
    # Scraped through a proxy that repeats a cached response: the timestamps in it are old.
    stage = busy()
    measured_ms = int((stage.now - 3600.0) * 1000)
    lines = page.vllm(waiting=0, running=0).splitlines()
    stamped = "".join(f"{line} {measured_ms}\n" for line in lines)
    assert stage.round({stage.engine: stamped, stage.front: page.epp(held=0, ready=1)}) == (7, True, "held")
