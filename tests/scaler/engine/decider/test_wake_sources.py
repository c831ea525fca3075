"""Tests the wake sources: a queue that exists at zero, requests in flight of a proxy, or refused requests."""

from __future__ import annotations

import pytest

from scaler.explain.event_text import news, sentence

ASLEEP, AWAKE = (0, False, "asleep"), (1, True, "queued")


def envoy(refused, active=0, pending=0):
    cluster = '{envoy_cluster_name="chat"}'
    return (
        f"envoy_cluster_upstream_rq_active{cluster} {active}\n"
        f"envoy_cluster_upstream_rq_pending_active{cluster} {pending}\n"
        f"envoy_cluster_upstream_cx_none_healthy{cluster} {refused}\n"
    )


def interceptor(in_flight):
    return f'interceptor_request_concurrency{{route_name="chat",route_namespace="ai"}} {in_flight}\n'


@pytest.fixture
def asleep(scene, plan, gateway):
    """`asleep(kind, page)`: a workload with scraped pods, at zero, behind a gateway with that response."""

    def make(kind, page):
        stage, front = scene(plan(gateway=True, keep_warm=60.0)), gateway(kind)
        stage.has(pods=[], gateway=front, wanted=0)
        stage.rounds(20, {front: page})
        return stage, front

    return make


def test_proxy_without_a_queue_wakes_by_its_counter_of_refusals(asleep):
    stage, front = asleep("envoy", envoy(refused=7))
    assert stage.outcome() == ASLEEP
    assert stage.decision().evidence.wake_source == "refused requests on http://gateway:9090/metrics"
    stage.now += 5

    # On the scrape that shows it, not at the next tick.
    [decision] = stage.land(front, envoy(refused=8))
    assert (decision.replicas, decision.active, str(decision.reason)) == AWAKE


def test_workload_woken_by_a_refusal_stays_awake_until_it_is_ready_or_its_grace_ends(asleep):
    stage, front = asleep("envoy", envoy(refused=7))
    stage.round({front: envoy(refused=8)})

    assert stage.rounds(55, {front: envoy(refused=8)}) == [AWAKE]
    assert stage.rounds(1740, {front: envoy(refused=8)}) == [(1, True, "loading")]  # no replica comes: 30 min in all
    assert stage.round({front: envoy(refused=8)}) == ASLEEP


def test_first_value_of_a_refusal_counter_is_no_refusal(asleep):
    stage, _ = asleep("envoy", envoy(refused=1_000_000))
    assert stage.outcome() == ASLEEP


def test_refusals_while_awake_wake_nothing_later(asleep, pod, page):
    stage, front = asleep("envoy", envoy(refused=7))
    engine = pod()
    stage.has(pods=[engine], wanted=1)
    quiet = page.vllm(waiting=0, running=0)
    assert stage.round({engine: quiet, front: envoy(refused=9)}) == (1, True, "warm")
    assert stage.rounds(55, {engine: quiet, front: envoy(refused=9)}) == [(1, True, "warm")]

    assert stage.round({engine: quiet, front: envoy(refused=9)}) == ASLEEP
    stage.has(pods=[], wanted=0)
    assert stage.rounds(120, {front: envoy(refused=9)}) == [ASLEEP]


def test_requests_in_a_proxy_are_queued_while_nothing_is_ready(asleep):
    stage, front = asleep("http_addon", interceptor(0))
    assert stage.outcome() == ASLEEP
    assert stage.decision().evidence.wake_source == "the queue on http://gateway:9090/metrics"
    # 40 requests at 16 a replica.
    assert stage.round({front: interceptor(40)}) == (3, True, "queued")
    assert stage.decision().evidence.held_by_gateway == 40.0


def test_requests_in_a_proxy_are_not_added_to_those_of_ready_pods(asleep, pod, page):
    stage, front = asleep("http_addon", interceptor(0))
    engine = pod()
    stage.has(pods=[engine], wanted=1)

    assert stage.round({engine: page.vllm(waiting=4, running=8), front: interceptor(12)}) == (1, True, "serving")
    assert stage.decision().evidence.held_by_gateway is None


def test_epp_without_flow_control_wakes_by_its_errors(asleep):
    text = 'inference_pool_ready_pods{name="p"} 0\n'
    stage, front = asleep("epp", text)
    assert stage.outcome() == (0, False, "no_wake_source")
    assert stage.decision().evidence.wake_source is None
    errors = 'inference_objective_request_error_total{model_name="m",error_code="ServiceUnavailable"} %d\n'
    stage.round({front: text + errors % 3})
    assert stage.outcome() == ASLEEP

    assert stage.round({front: text + errors % 4}) == AWAKE


def test_zero_needs_a_source_that_shows_the_next_request(scene, plan, gateway, page):
    stage, front = scene(plan(gateway=True, pods=False, keep_warm=60.0)), gateway("vllm")
    stage.has(gateway=front, wanted=1)
    stage.rounds(60, {front: page.vllm(waiting=0, running=0)})

    assert stage.round({front: page.vllm(waiting=0, running=0)}) == (1, True, "no_wake_source")


def test_most_reliable_of_several_gateways_is_named(scene, plan, gateway, page):
    sure, unsure = gateway(), gateway("envoy", url="http://envoy:9901/stats/prometheus")
    stage = scene(plan(gateway=True))
    stage.has(gateway=sure, wanted=0)
    stage.has(gateway=unsure, wanted=0)
    stage.round({sure: page.epp(held=0), unsure: envoy(refused=1)})

    assert stage.decision().evidence.wake_source == "the queue on http://gateway:9090/metrics"


def router(received, running=None):
    sent = "" if running is None else f'vllm:num_requests_running{{server="s"}} {running}\n'
    return f'vllm:num_incoming_requests_total{{model="m"}} {received}\n{sent}router_cpu_usage_percent 1\n'


def test_router_that_counts_received_requests_wakes_by_that_count(asleep):
    """production-stack's router responds 503 and has no counter of refusals."""
    stage, front = asleep("production_stack", router(received=7))
    assert stage.outcome() == ASLEEP
    assert stage.decision().evidence.wake_source == "refused requests on http://gateway:9090/metrics"
    stage.now += 5

    [decision] = stage.land(front, router(received=8))
    assert (decision.replicas, decision.active, str(decision.reason)) == AWAKE


def test_requests_in_flight_of_a_router_are_not_added_to_those_of_its_engines(scene, plan, pod, gateway, page):
    stage, engine, front = scene(plan(gateway=True)), pod(), gateway("production_stack")
    stage.has(pods=[engine], gateway=front, wanted=1)
    pages = {engine: page.vllm(waiting=10, running=6), front: router(received=100, running=16)}
    assert stage.round(pages) == (1, True, "serving")
    assert (stage.decision().evidence.waiting, stage.decision().evidence.running) == (10.0, 6.0)


def test_probe_behind_a_router_keeps_nothing_awake_and_wakes_nothing(scene, plan, pod, gateway, page):
    """The router counts it as a received request; its regularity identifies it."""
    stage, engine, front = (
        scene(plan(gateway=True, keep_warm=60.0, about={"probe_period": 60.0})),
        pod(),
        gateway("production_stack"),
    )
    stage.has(pods=[engine], gateway=front, wanted=1)
    quiet, received = page.vllm(waiting=0, running=0), 0
    while stage.round({engine: quiet, front: router(received=received, running=0)})[1] and received < 200:
        stage.now += 5.0
        received += 1
    assert stage.outcome() == ASLEEP
    stage.has(pods=[], wanted=0)
    for _ in range(20):
        received += 1
        stage.now += 5.0
        assert stage.round({front: router(received=received)}) == ASLEEP
    assert stage.round({front: router(received=received + 5)})[1]


GONE = "stays at zero; nothing would see the next request: the queue on http://gateway:9090/metrics is gone"
SILENT = (
    "held at zero, as decided last; nothing would see the next request: no fresh readings from "
    "http://gateway:9090/metrics"
)


@pytest.mark.parametrize(("page", "expected"), [("other 1\n", ("WakeSourceLost", GONE)), (None, ("Held", SILENT))])
def test_workload_at_zero_that_loses_its_wake_source_is_reported(asleep, page, expected):
    """It sleeps for a long time: nothing keeps it awake, and nothing would wake it."""
    stage, front = asleep("http_addon", interceptor(0))
    events, before = [], stage.decision()
    for _ in range(6):
        stage.round({front: page})
        after = stage.decision()
        events += [(kind.value, sentence(kind, before, after)) for kind in news(before, after, stage.now)]
        before = after
    assert (events, stage.outcome()[:2]) == ([expected], (0, False))
