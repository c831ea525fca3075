"""Tests overrides: they apply from the next tick, are shown, and end at their time."""

import pytest

from scaler.engine.decider import Decider
from scaler.policy.overrides import WorkloadOverrides, moment, read_brake, read_schedules

ASLEEP = (0, False, "asleep")
BEGIN = moment("2026-11-23T08:00Z")


@pytest.fixture
def ordered(scene, plan, pod, gateway, page):
    """`ordered("brake", "schedules")`: a workload at three replicas with these overrides."""

    def stage_of(brake="", schedules=""):
        overrides = WorkloadOverrides(
            (read_brake(brake, "ai/Deployment/chat"),) if brake else (),
            read_schedules(schedules, lambda text: float(text.removesuffix("s"))) if schedules else (),
        )
        stage = scene(plan(gateway=True, keep_warm=60.0, about={"ordered": overrides}))
        stage.engine, stage.front = pod(), gateway()
        stage.now = BEGIN
        stage.has(pods=[stage.engine], gateway=stage.front, wanted=3, ready=3)
        stage.busy = {stage.engine: page.vllm(waiting=0, running=40), stage.front: page.epp(0)}
        stage.idle = {stage.engine: page.vllm(waiting=0, running=0), stage.front: page.epp(0)}
        return stage

    return stage_of


def test_brake_of_an_annotation_applies_and_is_shown_until_it_ends(ordered):
    stage = ordered(brake="freeze until 2026-11-23T08:04Z because of the sale")

    assert stage.round(stage.busy) == (3, True, "frozen")
    assert stage.decision().evidence.brake == "freeze until 2026-11-23T08:04Z because of the sale (ai/Deployment/chat)"
    assert stage.decision().evidence.brake_until == BEGIN + 240.0
    assert stage.rounds(230, stage.idle) == [(3, True, "frozen")]
    assert stage.decider.ended_brakes() == []

    assert stage.round(stage.idle) == ASLEEP
    assert stage.decision().evidence.brake is None
    [(workload, brake)] = stage.decider.ended_brakes()
    assert (str(workload), str(brake.word)) == ("ai/chat", "freeze")
    assert stage.decider.ended_brakes() == []


def test_schedule_wakes_a_sleeping_workload_its_prewarm_time_early(ordered):
    stage = ordered(schedules="10 8 * * * for 600s floor 2 prewarm 100s")  # the floor holds from 08:08:20 on
    stage.rounds(100, stage.idle)
    assert stage.outcome() == ASLEEP
    stage.has(pods=[], gateway=stage.front, wanted=0)

    stage.now = BEGIN + 490.0
    assert stage.round(stage.idle) == ASLEEP
    assert stage.round(stage.idle) == (2, True, "scheduled")
    assert stage.decision().evidence.schedule_floor == 2


def test_freeze_applies_to_the_first_scrape_after_a_new_list_of_workloads(ordered, page):
    """A raise before the first sweep would become the last decision, and a freeze keeps the last decision."""
    stage = ordered(brake="freeze")
    stage.round(stage.busy)
    assert stage.round(stage.busy) == (3, True, "frozen")

    before, stage.decider = stage.decider, Decider(stage.decider.plans, interval_s=5.0, fresh_intervals=3.0)
    stage.decider.take_over(before)
    stage.now += 5.0
    assert stage.land(stage.engine, page.vllm(waiting=60, running=40)) == []
    stage.sweep()
    assert stage.outcome() == (3, True, "frozen")


def test_brake_that_ends_between_two_lists_of_workloads_is_reported(ordered):
    stage = ordered(brake="freeze until 2026-11-23T08:04Z")
    stage.round(stage.busy)

    after = Decider(stage.decider.plans, interval_s=5.0, fresh_intervals=3.0)
    after.take_over(stage.decider)
    after.sweep(BEGIN + 241.0)
    assert [(str(workload), str(brake.word)) for workload, brake in after.ended_brakes()] == [("ai/chat", "freeze")]


def test_new_list_of_workloads_replaces_the_overrides(ordered, plan):
    stage = ordered(brake="freeze")
    stage.round(stage.busy)
    stage.round(stage.idle)
    assert stage.outcome() == (3, True, "frozen")

    after = Decider([plan(gateway=True, keep_warm=60.0)], interval_s=5.0, fresh_intervals=3.0)
    after.take_over(stage.decider)
    [decision] = after.sweep(stage.now + 1.0)
    assert (str(decision.reason), decision.evidence.brake) == ("warm", None)
