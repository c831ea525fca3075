"""Invariants 6 and 7: what counts as idle, what does not, and which source shows the next request."""

import pytest

IDLE_S = 30.0


@pytest.fixture
def stage(scene, plan, pod, gateway):
    """One awake replica of `chat` behind a gateway with flow control; it may sleep after 30 idle seconds."""
    stage = scene(plan(gateway=True, keep_warm=IDLE_S))
    stage.engine, stage.front = pod(), gateway()
    stage.has(pods=[stage.engine], gateway=stage.front, wanted=1)
    return stage


@pytest.fixture
def idle(stage, page):
    return {stage.engine: page.vllm(waiting=0, running=0, finished=100), stage.front: page.epp(held=0, ready=1)}


def test_workload_sleeps_after_the_keep_warm_time_and_not_earlier(stage, idle):
    assert stage.round(idle) == (1, True, "warm")
    assert stage.decision().idle_since == stage.now
    assert stage.rounds(IDLE_S - 5, idle) == [(1, True, "warm")]
    assert stage.round(idle) == (0, False, "asleep")


@pytest.mark.parametrize("work", [{"waiting": 1, "running": 0}, {"waiting": 0, "running": 1}])
def test_one_request_restarts_the_keep_warm_time(stage, idle, page, work):
    stage.rounds(25, idle)
    assert stage.round({**idle, stage.engine: page.vllm(**work, finished=100)})[1:] in (
        (True, "serving"), (True, "queued"),
    )  # fmt: skip
    assert stage.decision().idle_since is None
    assert stage.rounds(IDLE_S, idle) == [(1, True, "warm")]
    assert stage.round(idle) == (0, False, "asleep")


@pytest.mark.parametrize("counter", ["finished", "tokens"])
def test_request_between_two_scrapes_is_visible_in_a_counter(stage, idle, page, counter):
    def quiet(count):
        return {**idle, stage.engine: page.vllm(waiting=0, running=0, **{counter: count})}

    stage.rounds(25, quiet(100))
    assert stage.round(quiet(101)) == (1, True, "warm")
    risen = stage.now
    assert stage.decision().idle_since == risen
    assert stage.rounds(IDLE_S - 5, quiet(101)) == [(1, True, "warm")]
    assert stage.round(quiet(101)) == (0, False, "asleep")


def test_rising_counter_keeps_a_workload_awake(stage, idle, page):
    for finished in range(100, 160):
        outcome = stage.round({**idle, stage.engine: page.vllm(waiting=0, running=0, finished=finished)})
        assert outcome == (1, True, "warm")


def test_first_value_of_a_counter_is_a_baseline(stage, idle):
    # 100 requests were finished before the first scrape: none of them keeps the workload awake.
    assert stage.round(idle) == (1, True, "warm")
    begun = stage.now
    stage.rounds(IDLE_S, idle)
    assert stage.outcome() == (0, False, "asleep")
    assert stage.decision().idle_since == begun


@pytest.mark.parametrize(("after", "awake"), [(0, False), (3, True)])
def test_restarted_counter_counts_its_new_value(stage, idle, page, after, awake):
    stage.rounds(25, idle)
    reborn = {**idle, stage.engine: page.vllm(waiting=0, running=0, finished=after)}
    stage.round(reborn)
    assert stage.round(reborn) == ((1, True, "warm") if awake else (0, False, "asleep"))


def test_counter_of_another_pod_is_not_a_restart(scene, plan, pod, gateway, page):
    stage, pods, front = scene(plan(gateway=True, keep_warm=IDLE_S)), [pod(0), pod(1)], gateway()
    stage.has(pods=pods, gateway=front)
    quiet = {each: page.vllm(waiting=0, running=0, finished=n * 1000) for n, each in enumerate(pods)}
    assert stage.rounds(IDLE_S + 10, {**quiet, front: page.epp(held=0)})[-1] == (0, False, "asleep")


def test_request_in_an_unreadable_queue_is_not_idleness(stage, idle):
    # The worst case of one bad line: a request waits, its line is invalid, and no other series shows it.
    text = 'vllm:num_requests_waiting{model_name="m} 9\nvllm:num_requests_running{model_name="m"} 0\n'
    stage.rounds(10, idle)
    assert stage.rounds(120, {**idle, stage.engine: text}) == [(1, True, "incomplete")]


def test_workload_without_a_gateway_keeps_one_replica_with_a_note(scene, plan, pod, page):
    stage, engine = scene(plan(keep_warm=IDLE_S)), pod()
    stage.has(pods=[engine])
    assert stage.rounds(60, {engine: page.vllm(waiting=0, running=0)}) == [
        (1, True, "warm"),
        (1, True, "no_wake_source"),
    ]
    (note,) = stage.decision().evidence.notes
    assert note == "no gateway is configured, so nothing would see a request at zero replicas"


def test_gateway_without_flow_control_is_no_wake_source(stage, idle, page):
    mute = {**idle, stage.front: page.epp(average_waiting=0, average_running=0, ready=1)}
    assert stage.rounds(60, mute)[-1] == (1, True, "no_wake_source")
    (note,) = stage.decision().evidence.notes
    assert "shows no queue of its own" in note
    # The demand is known nevertheless: 40 in the engine are 3 replicas.
    assert stage.round({**mute, stage.engine: stage_page(page, running=40)}) == (3, True, "serving")


def stage_page(page, **work):
    return page.vllm(**{"waiting": 0, "finished": 100, **work})


def test_missing_gateway_is_an_outage_and_not_idleness(stage, idle):
    stage.round(idle)
    assert stage.rounds(120, {**idle, stage.front: None})[-1] == (1, True, "held")


def test_workload_with_a_minimum_does_not_sleep(scene, plan, pod, gateway, page):
    stage, pods, front = scene(plan(gateway=True, keep_warm=IDLE_S, minimum=2)), [pod(0), pod(1)], gateway()
    stage.has(pods=pods, gateway=front)
    quiet = {**{each: page.vllm(waiting=0, running=0) for each in pods}, front: page.epp(held=0)}
    assert stage.rounds(120, quiet) == [(2, True, "warm")]


def test_workload_goes_to_zero_and_is_woken_by_the_gateway(stage, idle, page):
    stage.rounds(45, idle)
    assert stage.outcome() == (0, False, "asleep")
    # KEDA applies it: the pod is removed, and its target with it.
    stage.decider.retire(stage.engine)
    stage.has(pods=[], wanted=0)
    alone = {stage.front: page.epp(held=0, ready=0)}
    assert stage.rounds(600, alone) == [(0, False, "asleep")]
    # 40 requests arrive: 40/16 = 2.5, so 3, though nothing runs yet.
    assert stage.round({stage.front: page.epp(held=40, ready=0)}) == (3, True, "queued")
    stage.counted(3, ready=0)
    assert stage.round({stage.front: page.epp(held=40, ready=0)}) == (3, True, "loading")
    # The client cancels while the replica loads: a loading replica is not idle.
    assert stage.rounds(120, alone) == [(1, True, "loading")]
    stage.has(pods=[stage.engine], wanted=3, ready=3)
    assert stage.round({**alone, stage.engine: stage_page(page, running=1, finished=0)}) == (1, True, "serving")


def test_loading_replica_is_not_a_missing_target(stage, idle, page):
    # A second replica starts: it is wanted, not ready, and not in the list of pods that must respond.
    busy = {**idle, stage.engine: stage_page(page, running=20)}
    assert stage.round(busy) == (2, True, "serving")
    stage.counted(2, ready=1)
    assert stage.rounds(300, busy) == [(2, True, "serving")]


def test_missing_target_of_a_new_pod_is_held_and_not_idle(stage, idle, pod, page):
    stage.round(idle)
    stage.has(pods=[stage.engine, pod(1)], wanted=2, ready=2)
    # Held for a minute, then imputed from the other pod: that proves nothing.
    assert stage.rounds(600, {**idle, pod(1): None}) == [(1, True, "held"), (1, True, "warm")]


class TestQueueWorkers:
    """Workers behind a Redis list: they have no targets, only the queue is visible."""

    @pytest.fixture
    def workers(self, scene, plan, gateway):
        stage = scene(plan(work=1.0, pods=False, gateway=True, keep_warm=IDLE_S, queue="jobs"))
        stage.redis = gateway(kind="redis_exporter")
        stage.has(gateway=stage.redis)
        return stage

    def test_queue_scales_workers_from_zero_and_back(self, workers, page):
        stage = workers
        assert stage.rounds(45, {stage.redis: page.redis(0)})[-1] == (0, False, "asleep")
        assert stage.round({stage.redis: page.redis(3)}) == (3, True, "queued")
        assert stage.round({stage.redis: page.redis(20)}) == (8, True, "capped")
        # Empty: workers may still process the last jobs, so the keep-warm time runs first.
        assert stage.round({stage.redis: page.redis(0)}) == (1, True, "warm")
        assert stage.rounds(IDLE_S, {stage.redis: page.redis(0)})[-1] == (0, False, "asleep")

    def test_missing_key_is_unknown_and_not_empty(self, workers, page):
        # redis_exporter exposes 0 for a key named in --check-single-keys, and nothing for one found by a pattern.
        stage = workers
        assert stage.round({stage.redis: page.redis(3)}) == (3, True, "queued")
        gone = {stage.redis: "redis_up 1\n"}
        assert stage.rounds(900, gone) == [(3, True, "incomplete")]
        assert stage.round({stage.redis: page.redis(0)}) == (1, True, "warm")

    def test_other_key_does_not_count(self, workers, page):
        stage = workers
        both = page.redis(2) + page.redis(500, key="mail").replace("redis_up 1\n", "")
        assert stage.round({stage.redis: both}) == (2, True, "queued")
