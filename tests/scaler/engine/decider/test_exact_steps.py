"""Law 3: what is told is the decision, rounded outward past the band in which the HPA drops a step up."""

import numpy as np
import pytest

from exporter.model import WorkloadKey
from scaler.columns import State
from scaler.config.overrides import Schedule as Written
from scaler.engine.decider import Decider
from scaler.policy.overrides import WorkloadOverrides


def stage_at(scene, plan, pod, page, *, tolerance, work, wanted, maximum=100):
    """One engine with so many requests at one a replica, and so many replicas in the cluster."""
    stage, engine = scene(plan(work=1.0, maximum=maximum, about={"tolerance": tolerance})), pod()
    stage.has(pods=[engine], wanted=wanted, ready=1)
    stage.round({engine: page.vllm(waiting=0, running=work)})
    return stage, engine


def told(stage):
    decision = stage.decision()
    return decision.replicas, decision.published


def test_a_step_up_inside_the_band_is_told_past_it_and_the_evidence_says_so(scene, plan, pod, page):
    stage, _ = stage_at(scene, plan, pod, page, tolerance=0.1, work=11, wanted=10)
    assert told(stage) == (11, 12)
    (note,) = stage.decision().evidence.notes
    assert note == (
        "published as 12: its HPA takes 11 for the 10 there are, within its tolerance of 0.1; "
        'behavior.scaleUp.tolerance: "0" (Kubernetes 1.35 and later) takes steps exactly'
    )


def test_without_tolerance_it_is_told_as_it_is(scene, plan, pod, page):
    stage, _ = stage_at(scene, plan, pod, page, tolerance=0.0, work=11, wanted=10)
    assert told(stage) == (11, 11)
    assert stage.decision().evidence.notes == ()


def test_what_is_told_may_pass_the_maximum_and_what_is_decided_may_not(scene, plan, pod, page):
    stage, _ = stage_at(scene, plan, pod, page, tolerance=0.1, work=11, wanted=10, maximum=11)
    assert told(stage) == (11, 12)


def test_replicas_that_nobody_counts_are_not_rounded_past(scene, plan, pod, page):
    stage, _ = stage_at(scene, plan, pod, page, tolerance=0.1, work=11, wanted=None)
    assert told(stage) == (11, 11)


def test_once_the_cluster_has_taken_the_step_the_decision_is_told_again(scene, plan, pod, page):
    stage, _ = stage_at(scene, plan, pod, page, tolerance=0.1, work=11, wanted=10)
    stage.counted(12, ready=1)
    (news,) = stage.sweep(after=1)
    assert (news.replicas, news.published, news.decided_at) == (11, 11, stage.now)
    assert news.evidence.notes == ()
    assert stage.sweep(after=1) == []  # and that was all of the news


def test_between_ticks_what_is_told_only_rises(scene, plan, pod, page):
    stage, engine = stage_at(scene, plan, pod, page, tolerance=0.1, work=11, wanted=10)
    stage.counted(12, ready=1)
    stage.land(engine, page.vllm(waiting=0, running=11))
    assert told(stage) == (11, 12)
    stage.land(engine, page.vllm(waiting=0, running=13))
    assert told(stage) == (13, 14)  # 13/12 is 1.083
    stage.sweep()
    assert told(stage) == (13, 14)


def test_a_step_down_is_told_as_it_is(scene, plan, pod, page):
    stage, _ = stage_at(scene, plan, pod, page, tolerance=0.1, work=9, wanted=10)
    assert told(stage) == (9, 9)


def test_one_workloads_band_is_nobody_elses(scene, plan, pod, page):
    exact, wide = plan("chat", work=1.0, maximum=100), plan("code", work=1.0, maximum=100, about={"tolerance": 0.5})
    stage, engines = scene(exact, wide), {name: pod(number, name) for number, name in enumerate(("chat", "code"))}
    for name, engine in engines.items():
        stage.has(pods=[engine], wanted=10, ready=1, name=name)
    stage.round({engine: page.vllm(waiting=0, running=11) for engine in engines.values()})
    assert [stage.decision(name).published for name in engines] == [11, 16]


def test_a_snapshot_of_before_there_was_a_band_is_gone_on_from(scene, plan, pod, page):
    before, engine = stage_at(scene, plan, pod, page, tolerance=0.1, work=11, wanted=10)
    kept = before.decider.state(before.now)
    columns = {name: column for name, column in kept.columns.items() if name != "told.number"}
    stage = scene(plan(work=1.0, maximum=100, about={"tolerance": 0.1}))
    stage.decider.restore(State(kept.at, kept.workloads, columns, kept.tables), stage.now)
    stage.has(pods=[engine], wanted=10, ready=1)
    stage.sweep(after=1)
    assert told(stage) == (11, 12)
    assert stage.decision().workload == WorkloadKey("ai", "chat")


def restarted(stage, spec, changed=lambda columns: columns):
    """Killed and back at once, with what was kept; nothing has been counted yet."""
    kept = stage.decider.state(stage.now)
    stage.decider = Decider([spec], interval_s=5.0, fresh_intervals=3.0)
    stage.decider.restore(State(kept.at, kept.workloads, changed(dict(kept.columns)), kept.tables), stage.now)
    stage.answers = {}


def test_after_a_restart_what_was_told_stands_until_the_cluster_has_counted_again(scene, plan, pod, page):
    stage, engine = stage_at(scene, plan, pod, page, tolerance=0.1, work=11, wanted=10)
    assert told(stage) == (11, 12)
    restarted(stage, plan(work=1.0, maximum=100, about={"tolerance": 0.1}))
    stage.sweep(after=1)
    assert told(stage) == (11, 12)
    assert stage.decision().evidence.notes[0] == (
        "published as 12, as before: how many replicas there are is not known now"
    )
    stage.has(pods=[engine], wanted=10, ready=1)
    stage.round({engine: page.vllm(waiting=0, running=11)})
    assert told(stage) == (11, 12)


def test_a_cluster_that_is_not_heard_for_a_while_lowers_nothing_that_was_told(scene, plan, pod, page):
    stage, engine = stage_at(scene, plan, pod, page, tolerance=0.1, work=11, wanted=10)
    stage.counted(None)
    assert stage.sweep(after=1) == []
    assert told(stage) == (11, 12)
    stage.rounds(10, {engine: page.vllm(waiting=0, running=2)})
    assert told(stage) == (3, 3)  # another answer has nothing to do with what was told of the last


@pytest.mark.parametrize("number", [np.inf, 12.5, 10.0, -1.0, np.nan])
def test_a_number_that_nobody_can_have_told_is_not_gone_on_from(scene, plan, pod, page, number):
    stage, engine = stage_at(scene, plan, pod, page, tolerance=0.1, work=11, wanted=12)
    restarted(
        stage, plan(work=1.0, maximum=100, about={"tolerance": 0.1}),
        lambda columns: columns | {"told.number": np.array([number])},
    )  # fmt: skip
    stage.sweep(after=1)  # nothing is counted yet, so what was told would stand
    assert told(stage) == (11, 11)
    stage.has(pods=[engine], wanted=12, ready=1)
    stage.round({engine: page.vllm(waiting=0, running=11)})
    assert told(stage) == (11, 11)


def test_what_a_leader_of_before_the_band_tells_is_its_replicas(scene, plan, pod, page):
    stage, engine = stage_at(scene, plan, pod, page, tolerance=0.1, work=11, wanted=10)
    leader, _ = stage_at(scene, plan, pod, page, tolerance=0.1, work=3, wanted=3)
    shared = leader.decider.share(None, leader.now)
    old = {name: column for name, column in shared.columns.items() if name != "told.number"}
    stage.decider.follow_state(State(shared.at, shared.workloads, old), stage.now)
    stage.counted(3, ready=1)
    stage.now += 1
    stage.land(engine, page.vllm(waiting=0, running=4))
    assert told(stage) == (4, 4)


@pytest.mark.parametrize(("floor", "expected"), [(None, (11, 11)), (11, (11, 12))])
def test_nobody_is_told_more_than_a_schedule_allows_but_a_floor_wins(scene, plan, pod, page, floor, expected):
    window = {"start": "0 0 * * *", "duration": "20h", "zone": "UTC", "ceiling": 11, "floor": floor, "prewarm": "0s"}
    about = {"tolerance": 0.1, "ordered": WorkloadOverrides(schedules=(Written.model_validate(window).order,))}
    stage, engine = scene(plan(work=1.0, maximum=100, about=about)), pod()
    stage.has(pods=[engine], wanted=10, ready=1)
    stage.round({engine: page.vllm(waiting=0, running=40)})
    assert told(stage) == expected


def test_while_a_step_is_being_taken_the_note_says_so(scene, plan, pod, page):
    stage, engine = stage_at(scene, plan, pod, page, tolerance=0.1, work=21, wanted=20)
    stage.counted(23, ready=1)
    stage.land(engine, page.vllm(waiting=0, running=22))
    assert told(stage) == (22, 23)
    assert stage.decision().evidence.notes[0] == (
        "published as 23 until the next tick: the step past 22 has just been taken"
    )
