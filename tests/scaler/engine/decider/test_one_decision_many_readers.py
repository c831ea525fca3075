"""Invariant 2 in the decider: scrapes only raise, and decisions depend on scrape times, not on reads."""

import pytest

from exporter.model import WorkloadKey
from scaler.engine.decider import Decider
from scaler.engine.publisher import Publisher
from scaler.policy.overrides import Brake, BrakeWord, WorkloadOverrides


def test_scrape_between_ticks_raises_and_never_lowers(scene, pod, page):
    stage, engine = scene(), pod()
    stage.has(pods=[engine])
    stage.round({engine: page.vllm(waiting=0, running=40)})
    assert stage.outcome() == (3, True, "serving")
    stage.land(engine, page.vllm(waiting=0, running=10))
    assert stage.outcome() == (3, True, "serving")
    stage.land(engine, page.vllm(waiting=0, running=60))
    assert stage.outcome() == (4, True, "serving")
    stage.sweep(after=1)
    assert stage.outcome() == (4, True, "serving")
    stage.now += 5
    stage.land(engine, page.vllm(waiting=0, running=10))
    assert stage.outcome() == (4, True, "serving")
    stage.sweep()
    assert stage.outcome() == (1, True, "serving")


def test_scrape_wakes_before_the_next_tick(scene, plan, pod, gateway, page):
    stage, engine, front = scene(plan(gateway=True, keep_warm=30.0)), pod(), gateway()
    stage.has(pods=[engine], gateway=front)
    stage.rounds(45, {engine: page.vllm(waiting=0, running=0), front: page.epp(held=0, ready=1)})
    assert stage.outcome() == (0, False, "asleep")
    (woken,) = stage.land(front, page.epp(held=1, ready=0))
    assert (woken.replicas, woken.active, woken.reason) == (1, True, "queued")


def test_hundred_sweeps_without_scrapes_change_nothing(scene, pod, page):
    stage, engine = scene(), pod()
    stage.has(pods=[engine])
    for second in range(6):
        stage.round({engine: page.vllm(waiting=3, running=10, finished=100 * second)})
    before = stage.decision()
    changes = [changed for _ in range(100) if (changed := stage.sweep())]
    assert changes == []
    assert stage.decision() is before


@pytest.mark.parametrize("sweeps", [1, 20])
def test_rates_come_from_scrape_times_for_any_number_of_sweeps(scene, pod, page, sweeps):
    # 100 requests in every 5 s are 20 a second, also while there are only a few scrapes.
    stage, engine = scene(), pod()
    stage.has(pods=[engine])
    stage.land(engine, page.vllm(waiting=0, running=1, finished=0))
    for round_ in range(1, 40):
        for _ in range(sweeps - 1):
            stage.sweep(after=5.0 / sweeps)
        stage.now = 1000.0 + 5.0 * round_
        stage.land(engine, page.vllm(waiting=0, running=1, finished=100 * round_))
        stage.sweep()
        assert stage.decision().evidence.requests_per_second == pytest.approx(20.0)


@pytest.mark.parametrize("sweeps", [1, 20])
def test_smoothing_comes_from_scrape_times_for_any_number_of_sweeps(scene, plan, pod, page, sweeps):
    # A fall from 100 to 0 with a half-life of 60 s: 50 of it are left a minute after the scrape with 0.
    stage, engine = scene(plan(down=60.0)), pod()
    stage.has(pods=[engine])
    stage.round({engine: page.vllm(waiting=0, running=100)})
    for round_ in range(1, 14):
        for _ in range(sweeps - 1):
            stage.sweep(after=5.0 / sweeps)
        stage.now = 1005.0 + 5.0 * round_
        stage.land(engine, page.vllm(waiting=0, running=0))
        stage.sweep()
    assert stage.now == 1010.0 + 60.0
    (work,) = stage.decision().evidence.objectives
    assert work.value == pytest.approx(50.0)
    assert stage.decision().replicas == 4  # 50/16 = 3.1


def test_late_processing_of_a_scrape_counts_no_request_twice(scene, pod, page):
    """Responses are parsed in threads: the time of receipt counts, not the time of processing."""
    stage, engine = scene(), pod()
    stage.has(pods=[engine])
    for second in range(0, 65, 5):
        stage.now = 1000.0 + second + (3.0 if second % 10 else 0.0)
        stage.land(engine, page.vllm(waiting=0, running=1, finished=20 * second), at=1000.0 + second)
    stage.sweep()
    assert stage.decision().evidence.requests_per_second == pytest.approx(20.0)


def test_published_decision_is_one_object_for_all_readers(scene, pod, page):
    stage, engine, key = scene(), pod(), WorkloadKey("ai", "chat")
    publisher = Publisher([key])
    stage.has(pods=[engine])
    for running in (10, 60, 200, 10):
        publisher.publish(stage.land(engine, page.vllm(waiting=0, running=running)), publisher.board.at)
        publisher.publish(stage.sweep(after=5), stage.now)
        publisher.publish(stage.renewed, stage.now)
        assert publisher.get(key) is stage.decision()
        assert publisher.board.get(key) is publisher.get(key)
    assert publisher.board.at == stage.now


def test_new_evidence_alone_is_built_for_its_readers_once_per_tick(scene, plan, pod, page):
    stage = scene(plan("chat"), plan("other"))
    engine, other = pod(), pod(1, name="other")
    stage.has(pods=[engine])
    stage.has(pods=[other], name="other")
    stage.land(engine, page.vllm(waiting=0, running=10))
    stage.land(other, page.vllm(waiting=0, running=10))
    stage.sweep()
    assert (stage.sweep(after=1), stage.renewed) == ([], [])
    assert stage.land(engine, page.vllm(waiting=0, running=11)) == []
    assert stage.decider.renew(9) == [], "the evidence is that of the last sweep"
    assert stage.sweep(after=1) == []
    (changed,) = stage.renewed
    assert (changed.workload.name, changed.evidence.running) == ("chat", 11.0)
    assert changed.decided_at == 1000.0, "the decision keeps its age"
    assert stage.decider.renew(9) == []


def test_evidence_of_the_last_sweep_replaces_no_later_answer(scene, plan, pod, page):
    stage, engine = scene(plan("chat")), pod()
    stage.has(pods=[engine])
    stage.round({engine: page.vllm(waiting=0, running=10)})
    stage.land(engine, page.vllm(waiting=0, running=11))
    stage.decider.sweep(stage.now + 1)
    (raised,) = stage.land(engine, page.vllm(waiting=0, running=300), at=stage.now + 1)
    assert raised.replicas > 1
    assert stage.decider.renew(9) == []


def test_reader_of_evidence_gets_it_in_parts(scene, plan, pod, page):
    stage = scene(*(plan(f"w{number}") for number in range(3)))
    engines = [pod(0, f"w{number}") for number in range(3)]
    for number, engine in enumerate(engines):
        stage.has(pods=[engine], name=f"w{number}")
    stage.land_together({engine: page.vllm(waiting=0, running=10) for engine in engines})
    stage.sweep()
    stage.now += 5
    stage.land_together({engine: page.vllm(waiting=0, running=11) for engine in engines})
    assert stage.decider.sweep(stage.now) == []  # the scene would renew it
    parts = [[(each.workload.name, each.evidence.running) for each in stage.decider.renew(2)] for _ in range(3)]
    assert parts == [[("w0", 11.0), ("w1", 11.0)], [("w2", 11.0)], []]


def test_removed_pod_leaves_the_evidence_at_the_next_tick(scene, pod, page):
    stage, pods = scene(), [pod(0), pod(1)]
    stage.has(pods=pods)
    stage.round({each: page.vllm(waiting=0, running=5) for each in pods})
    stage.decider.retire(pods[1])
    stage.decider.listed(WorkloadKey("ai", "chat"), 1)
    stage.sweep(after=1)
    (changed,) = stage.renewed
    assert (changed.replicas, changed.evidence.running) == (1, 5.0)


def test_scrape_of_an_unconfigured_workload_decides_nothing(scene, pod, gateway, node, page):
    stage = scene()
    stage.has(pods=[pod()])
    stage.sweep()
    assert stage.land(pod(7, name="stranger"), page.vllm(waiting=99, running=99)) == []
    assert stage.land(gateway(name="stranger"), page.epp(held=99)) == []
    assert stage.land(node(), page.gpu("GPU-1", ["stranger-0"], engine=1.0)) == []
    assert stage.outcome() == (None, True, "unknown")


def test_brake_that_ends_is_published_by_the_next_sweep(scene, plan, pod, page):
    brakes = (Brake(BrakeWord.FLOOR, floor=1, until=1200.0),)
    stage, engine = scene(plan("chat", about={"ordered": WorkloadOverrides(brakes=brakes)})), pod()
    stage.has(pods=[engine], wanted=3)
    stage.rounds(195, {engine: page.vllm(waiting=0, running=40)})
    assert stage.decision().evidence.brake_until == 1200.0
    assert stage.sweep(after=1) == []
    (changed,) = stage.sweep(after=1200 - stage.now)
    assert (changed.replicas, str(changed.reason), changed.evidence.brake) == (3, "serving", None)


def test_answer_of_a_followed_leader_is_published_by_the_next_sweep(scene, pod, page):
    leader, follower, engine = scene(), scene(), pod()
    for stage, running in ((leader, 40), (follower, 10)):
        stage.has(pods=[engine], wanted=3)
        stage.round({engine: page.vllm(waiting=0, running=running)})
    follower.decider.follow_state(leader.decider.share(None, leader.now), follower.now)
    assert follower.land(engine, page.vllm(waiting=0, running=40)) == []  # it is the published one already
    (decision,) = follower.decider.sweep(follower.now + 1)
    assert decision.replicas == 3


@pytest.mark.parametrize("change", ["adopt", "take_over"])
def test_workload_that_is_observed_from_now_on_is_published_by_the_next_sweep(scene, plan, pod, page, change):
    stage, engine = scene(plan("chat")), pod()
    stage.has(pods=[engine], wanted=1)
    stage.round({engine: page.vllm(waiting=0, running=10)})
    after = Decider([plan("chat", about={"observed": True})], interval_s=5.0, fresh_intervals=3.0)
    getattr(after, change)(stage.decider)
    (decision,) = after.sweep(stage.now + 1)
    assert decision.observed
