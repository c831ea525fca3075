"""Laws 6 and 7 from real pages: what counts as idle, what does not, and who could see the next request."""

import pytest

IDLE_S = 30.0


@pytest.fixture
def stage(scene, plan, pod, gateway):
    """One replica of `chat`, awake, behind a gateway with flow control; it may sleep after 30 idle seconds."""
    stage = scene(plan(gateway=True, keep_warm=IDLE_S))
    stage.engine, stage.front = pod(), gateway()
    stage.has(pods=[stage.engine], gateway=stage.front, wanted=1)
    return stage


@pytest.fixture
def idle(stage, page):
    return {stage.engine: page.vllm(waiting=0, running=0, finished=100), stage.front: page.epp(held=0, ready=1)}


def test_idle_for_the_keep_warm_time_and_not_an_interval_sooner(stage, idle):
    assert stage.round(idle) == (1, True, "warm")
    assert stage.decision().idle_since == stage.now
    assert stage.rounds(IDLE_S - 5, idle) == [(1, True, "warm")]
    assert stage.round(idle) == (0, False, "asleep")


@pytest.mark.parametrize("work", [{"waiting": 1, "running": 0}, {"waiting": 0, "running": 1}])
def test_one_request_anywhere_begins_the_time_anew(stage, idle, page, work):
    stage.rounds(25, idle)
    assert stage.round({**idle, stage.engine: page.vllm(**work, finished=100)})[1:] in (
        (True, "serving"), (True, "queued"),
    )  # fmt: skip
    assert stage.decision().idle_since is None
    assert stage.rounds(IDLE_S, idle) == [(1, True, "warm")]
    assert stage.round(idle) == (0, False, "asleep")


@pytest.mark.parametrize("counter", ["finished", "tokens"])
def test_a_request_between_two_scrapes_is_seen_by_a_counter_alone(stage, idle, page, counter):
    def quiet(count):
        return {**idle, stage.engine: page.vllm(waiting=0, running=0, **{counter: count})}

    stage.rounds(25, quiet(100))
    assert stage.round(quiet(101)) == (1, True, "warm")
    risen = stage.now
    assert stage.decision().idle_since == risen
    assert stage.rounds(IDLE_S - 5, quiet(101)) == [(1, True, "warm")]
    assert stage.round(quiet(101)) == (0, False, "asleep")


def test_a_counter_that_flows_keeps_a_workload_awake_for_good(stage, idle, page):
    for finished in range(100, 160):
        answer = stage.round({**idle, stage.engine: page.vllm(waiting=0, running=0, finished=finished)})
        assert answer == (1, True, "warm")


def test_the_first_sight_of_a_counter_is_a_baseline(stage, idle):
    # 100 requests finished before this process looked: none of them is a reason to stay awake.
    assert stage.round(idle) == (1, True, "warm")
    begun = stage.now
    stage.rounds(IDLE_S, idle)
    assert stage.answer() == (0, False, "asleep")
    assert stage.decision().idle_since == begun


@pytest.mark.parametrize(("after", "awake"), [(0, False), (3, True)])
def test_a_counter_that_begins_anew_counts_what_it_shows_since(stage, idle, page, after, awake):
    stage.rounds(25, idle)
    reborn = {**idle, stage.engine: page.vllm(waiting=0, running=0, finished=after)}
    stage.round(reborn)
    assert stage.round(reborn) == ((1, True, "warm") if awake else (0, False, "asleep"))


def test_the_counter_of_another_pod_is_not_a_restart_of_this_one(scene, plan, pod, gateway, page):
    stage, pods, front = scene(plan(gateway=True, keep_warm=IDLE_S)), [pod(0), pod(1)], gateway()
    stage.has(pods=pods, gateway=front)
    quiet = {each: page.vllm(waiting=0, running=0, finished=n * 1000) for n, each in enumerate(pods)}
    assert stage.rounds(IDLE_S + 10, {**quiet, front: page.epp(held=0)})[-1] == (0, False, "asleep")


def test_a_request_in_a_queue_that_is_not_known_is_not_idleness(stage, idle):
    # The worst of one bad line: a request waits, its line is broken, and nothing else is to be seen.
    text = 'vllm:num_requests_waiting{model_name="m} 9\nvllm:num_requests_running{model_name="m"} 0\n'
    stage.rounds(10, idle)
    assert stage.rounds(120, {**idle, stage.engine: text}) == [(1, True, "incomplete")]


def test_without_a_gateway_one_replica_is_kept_and_the_note_says_why(scene, plan, pod, page):
    stage, engine = scene(plan(keep_warm=IDLE_S)), pod()
    stage.has(pods=[engine])
    assert stage.rounds(60, {engine: page.vllm(waiting=0, running=0)}) == [
        (1, True, "warm"),
        (1, True, "no_wake_source"),
    ]
    (note,) = stage.decision().evidence.notes
    assert note == "no gateway is configured, so nothing would see a request at zero replicas"


def test_a_gateway_without_flow_control_wakes_nobody_though_it_answers(stage, idle, page):
    mute = {**idle, stage.front: page.epp(average_waiting=0, average_running=0, ready=1)}
    assert stage.rounds(60, mute)[-1] == (1, True, "no_wake_source")
    (note,) = stage.decision().evidence.notes
    assert "shows no queue of its own" in note
    # Demand is known all the same: 40 in the engine are 3 replicas.
    assert stage.round({**mute, stage.engine: stage_page(page, running=40)}) == (3, True, "serving")


def stage_page(page, **work):
    return page.vllm(**{"waiting": 0, "finished": 100, **work})


def test_a_gateway_that_does_not_answer_is_an_outage_and_no_idleness(stage, idle):
    stage.round(idle)
    assert stage.rounds(120, {**idle, stage.front: None})[-1] == (1, True, "held")


def test_a_workload_with_a_minimum_stays(scene, plan, pod, gateway, page):
    stage, pods, front = scene(plan(gateway=True, keep_warm=IDLE_S, minimum=2)), [pod(0), pod(1)], gateway()
    stage.has(pods=pods, gateway=front)
    quiet = {**{each: page.vllm(waiting=0, running=0) for each in pods}, front: page.epp(held=0)}
    assert stage.rounds(120, quiet) == [(2, True, "warm")]


def test_from_asleep_to_zero_pods_to_awake_by_the_gateway(stage, idle, page):
    stage.rounds(45, idle)
    assert stage.answer() == (0, False, "asleep")
    # KEDA follows: the pod goes, its page with it.
    stage.decider.retire(stage.engine)
    stage.has(pods=[], wanted=0)
    alone = {stage.front: page.epp(held=0, ready=0)}
    assert stage.rounds(600, alone) == [(0, False, "asleep")]
    # 40 requests arrive: 40/16 = 2.5, so 3, though nothing runs yet.
    assert stage.round({stage.front: page.epp(held=40, ready=0)}) == (3, True, "queued")
    stage.counted(3, ready=0)
    assert stage.round({stage.front: page.epp(held=40, ready=0)}) == (3, True, "loading")
    # The caller gives up while it loads: a loading replica is not idle.
    assert stage.rounds(120, alone) == [(1, True, "loading")]
    stage.has(pods=[stage.engine], wanted=3, ready=3)
    assert stage.round({**alone, stage.engine: stage_page(page, running=1, finished=0)}) == (1, True, "serving")


def test_a_loading_replica_is_not_capacity_that_falls_silent(stage, idle, page):
    # A second replica starts: it is wanted, not ready, and not on the list of those that should answer.
    busy = {**idle, stage.engine: stage_page(page, running=20)}
    assert stage.round(busy) == (2, True, "serving")
    stage.counted(2, ready=1)
    assert stage.rounds(300, busy) == [(2, True, "serving")]


def test_a_new_pods_page_that_does_not_come_holds_and_does_not_count_as_idle(stage, idle, pod, page):
    stage.round(idle)
    stage.has(pods=[stage.engine, pod(1)], wanted=2, ready=2)
    # Held for a minute, then taken to be like the other: which proves nothing.
    assert stage.rounds(600, {**idle, pod(1): None}) == [(1, True, "held"), (1, True, "warm")]


class TestQueueWorkers:
    """Workers behind a Redis list: no pages of their own, the queue is all there is."""

    @pytest.fixture
    def workers(self, scene, plan, gateway):
        stage = scene(plan(work=1.0, pods=False, gateway=True, keep_warm=IDLE_S, queue="jobs"))
        stage.redis = gateway(kind="redis_exporter")
        stage.has(gateway=stage.redis)
        return stage

    def test_a_queue_takes_workers_from_zero_and_back(self, workers, page):
        stage = workers
        assert stage.rounds(45, {stage.redis: page.redis(0)})[-1] == (0, False, "asleep")
        assert stage.round({stage.redis: page.redis(3)}) == (3, True, "queued")
        assert stage.round({stage.redis: page.redis(20)}) == (8, True, "capped")
        # Empty: the last jobs may still be in the workers' hands, so the keep-warm time runs first.
        assert stage.round({stage.redis: page.redis(0)}) == (1, True, "warm")
        assert stage.rounds(IDLE_S, {stage.redis: page.redis(0)})[-1] == (0, False, "asleep")

    def test_a_key_that_is_not_on_the_page_is_unknown_and_not_empty(self, workers, page):
        # redis_exporter prints 0 for a key named in --check-single-keys, and nothing for one found by a pattern.
        stage = workers
        assert stage.round({stage.redis: page.redis(3)}) == (3, True, "queued")
        gone = {stage.redis: "redis_up 1\n"}
        assert stage.rounds(900, gone) == [(3, True, "incomplete")]
        assert stage.round({stage.redis: page.redis(0)}) == (1, True, "warm")

    def test_another_key_is_somebody_elses(self, workers, page):
        stage = workers
        both = page.redis(2) + page.redis(500, key="mail").replace("redis_up 1\n", "")
        assert stage.round({stage.redis: both}) == (2, True, "queued")
