"""Tests a new configuration: a remaining workload keeps its state, and no workload inherits that of another."""

import pytest

from scaler.engine.decider import Decider


@pytest.fixture
def reloaded():
    """`reloaded(stage, *plans)`: the stage continues with a decider of these plans that adopts the state."""

    def reload(stage, *plans):
        after = Decider(plans, interval_s=5.0, fresh_intervals=3.0)
        after.adopt(stage.decider)
        stage.decider = after
        stage.decisions = {}
        return stage

    return reload


def test_decision_is_kept_through_a_reload_until_the_next_scrape(scene, plan, pod, page, reloaded):
    stage, engine = scene(plan("chat", hold=60.0)), pod()
    stage.has(pods=[engine])
    assert stage.round({engine: page.vllm(waiting=0, running=100)}) == (7, True, "serving")
    stage = reloaded(stage, plan("new"), plan("chat", hold=60.0))
    stage.has(pods=[engine])
    stage.sweep(after=1)
    assert stage.outcome() == (7, True, "held")
    assert stage.outcome("new") == (None, True, "unknown")
    assert stage.round({engine: page.vllm(waiting=0, running=100)}) == (7, True, "serving")


def test_smoothing_continues_after_a_reload(scene, plan, pod, page, reloaded):
    slow = plan("chat", down=60.0)
    stage, engine = scene(plan("gone", down=60.0), slow), pod()
    stage.has(pods=[engine])
    stage.rounds(10, {engine: page.vllm(waiting=0, running=100)})
    stage = reloaded(stage, slow)
    stage.has(pods=[engine])
    assert stage.round({engine: page.vllm(waiting=0, running=0)})[0] == 7
    # A minute after the scrape with 0: 50 of 100 are left, 50/16 = 3.1.
    stage.rounds(60, {engine: page.vllm(waiting=0, running=0)})
    assert stage.outcome()[0] == 4


def test_sleeping_workload_stays_asleep_through_a_reload(scene, plan, pod, gateway, page, reloaded):
    sleepy = plan(gateway=True, keep_warm=30.0)
    stage, engine, front = scene(sleepy), pod(), gateway()
    stage.has(pods=[engine], gateway=front, wanted=1)
    stage.rounds(45, {engine: page.vllm(waiting=0, running=0), front: page.epp(held=0, ready=1)})
    stage = reloaded(stage, sleepy)
    stage.has(pods=[], gateway=front, wanted=0)
    stage.sweep(after=1)
    assert stage.outcome() == (0, False, "held")
    assert stage.round({front: page.epp(held=0, ready=0)}) == (0, False, "asleep")


def test_keep_warm_time_restarts_after_a_reload_with_missing_readings(scene, plan, pod, gateway, page, reloaded):
    sleepy = plan(gateway=True, keep_warm=30.0)
    stage, engine, front = scene(sleepy), pod(), gateway()
    idle = {engine: page.vllm(waiting=0, running=0), front: page.epp(held=0, ready=1)}
    stage.has(pods=[engine], gateway=front)
    stage.rounds(20, idle)
    stage = reloaded(stage, sleepy)
    stage.has(pods=[engine], gateway=front)
    assert stage.rounds(30, idle) == [(1, True, "warm")]
    assert stage.round(idle) == (0, False, "asleep")


def test_request_rate_continues_after_a_reload(scene, plan, pod, page, reloaded):
    stage, engine = scene(), pod()
    stage.has(pods=[engine])
    for turn in range(6):
        stage.round({engine: page.vllm(waiting=0, running=1, finished=100 * turn)})
    stage = reloaded(stage, plan())
    stage.has(pods=[engine])
    for turn in range(6, 12):
        stage.round({engine: page.vllm(waiting=0, running=1, finished=100 * turn)})
        # Its count begins again, like a counter after a restart: never a negative rate, never a jump.
        assert 0.0 <= stage.decision().evidence.requests_per_second <= 20.0
    assert stage.decision().evidence.requests_per_second > 15.0
