"""Invariant 3: the published number is the decision, rounded out of the tolerance in which the HPA ignores a rise."""

import numpy as np
import pytest

from exporter.model import WorkloadKey
from scaler.columns import State
from scaler.config.overrides import Schedule as Written
from scaler.engine.decider import Decider
from scaler.policy.overrides import WorkloadOverrides


def stage_at(scene, plan, pod, page, *, tolerance, work, wanted, maximum=100):
    """One engine with `work` requests at one a replica, and `wanted` replicas in the cluster."""
    stage, engine = scene(plan(work=1.0, maximum=maximum, about={"tolerance": tolerance})), pod()
    stage.has(pods=[engine], wanted=wanted, ready=1)
    stage.round({engine: page.vllm(waiting=0, running=work)})
    return stage, engine


def numbers(stage):
    decision = stage.decision()
    return decision.replicas, decision.published


def test_step_up_within_the_tolerance_is_published_past_it_with_a_note(scene, plan, pod, page):
    stage, _ = stage_at(scene, plan, pod, page, tolerance=0.1, work=11, wanted=10)
    assert numbers(stage) == (11, 12)
    (note,) = stage.decision().evidence.notes
    assert note == (
        "published as 12: its HPA takes 11 for the 10 there are, within its tolerance of 0.1; "
        'behavior.scaleUp.tolerance: "0" (Kubernetes 1.35 and later) takes steps exactly'
    )


def test_decision_without_tolerance_is_published_unchanged(scene, plan, pod, page):
    stage, _ = stage_at(scene, plan, pod, page, tolerance=0.0, work=11, wanted=10)
    assert numbers(stage) == (11, 11)
    assert stage.decision().evidence.notes == ()


def test_published_number_may_exceed_the_maximum_and_the_decision_may_not(scene, plan, pod, page):
    stage, _ = stage_at(scene, plan, pod, page, tolerance=0.1, work=11, wanted=10, maximum=11)
    assert numbers(stage) == (11, 12)


def test_decision_is_not_rounded_if_replicas_are_unknown(scene, plan, pod, page):
    stage, _ = stage_at(scene, plan, pod, page, tolerance=0.1, work=11, wanted=None)
    assert numbers(stage) == (11, 11)


def test_decision_is_published_again_after_the_cluster_has_applied_the_step(scene, plan, pod, page):
    stage, _ = stage_at(scene, plan, pod, page, tolerance=0.1, work=11, wanted=10)
    stage.counted(12, ready=1)
    (news,) = stage.sweep(after=1)
    assert (news.replicas, news.published, news.decided_at) == (11, 11, stage.now)
    assert news.evidence.notes == ()
    assert stage.sweep(after=1) == []  # and nothing else has changed


def test_published_number_only_rises_between_ticks(scene, plan, pod, page):
    stage, engine = stage_at(scene, plan, pod, page, tolerance=0.1, work=11, wanted=10)
    stage.counted(12, ready=1)
    stage.land(engine, page.vllm(waiting=0, running=11))
    assert numbers(stage) == (11, 12)
    stage.land(engine, page.vllm(waiting=0, running=13))
    assert numbers(stage) == (13, 14)  # 13/12 is 1.083
    stage.sweep()
    assert numbers(stage) == (13, 14)


def test_step_down_is_published_unchanged(scene, plan, pod, page):
    stage, _ = stage_at(scene, plan, pod, page, tolerance=0.1, work=9, wanted=10)
    assert numbers(stage) == (9, 9)


def test_tolerance_of_one_workload_does_not_apply_to_another(scene, plan, pod, page):
    exact, wide = plan("chat", work=1.0, maximum=100), plan("code", work=1.0, maximum=100, about={"tolerance": 0.5})
    stage, engines = scene(exact, wide), {name: pod(number, name) for number, name in enumerate(("chat", "code"))}
    for name, engine in engines.items():
        stage.has(pods=[engine], wanted=10, ready=1, name=name)
    stage.round({engine: page.vllm(waiting=0, running=11) for engine in engines.values()})
    assert [stage.decision(name).published for name in engines] == [11, 16]


def test_checkpoint_without_published_numbers_is_restored(scene, plan, pod, page):
    before, engine = stage_at(scene, plan, pod, page, tolerance=0.1, work=11, wanted=10)
    kept = before.decider.state(before.now)
    columns = {name: column for name, column in kept.columns.items() if name != "published.number"}
    stage = scene(plan(work=1.0, maximum=100, about={"tolerance": 0.1}))
    stage.decider.restore(State(kept.at, kept.workloads, columns, kept.tables), stage.now)
    stage.has(pods=[engine], wanted=10, ready=1)
    stage.sweep(after=1)
    assert numbers(stage) == (11, 12)
    assert stage.decision().workload == WorkloadKey("ai", "chat")


def restarted(stage, spec, changed=lambda columns: columns):
    """Killed and restarted at once with its checkpoint; replicas are not counted yet."""
    kept = stage.decider.state(stage.now)
    stage.decider = Decider([spec], interval_s=5.0, fresh_intervals=3.0)
    stage.decider.restore(State(kept.at, kept.workloads, changed(dict(kept.columns)), kept.tables), stage.now)
    stage.decisions = {}


def test_published_number_is_kept_after_a_restart_until_replicas_are_counted(scene, plan, pod, page):
    stage, engine = stage_at(scene, plan, pod, page, tolerance=0.1, work=11, wanted=10)
    assert numbers(stage) == (11, 12)
    restarted(stage, plan(work=1.0, maximum=100, about={"tolerance": 0.1}))
    stage.sweep(after=1)
    assert numbers(stage) == (11, 12)
    assert stage.decision().evidence.notes[0] == (
        "published as 12, as before: how many replicas there are is not known now"
    )
    stage.has(pods=[engine], wanted=10, ready=1)
    stage.round({engine: page.vllm(waiting=0, running=11)})
    assert numbers(stage) == (11, 12)


def test_unreachable_cluster_lowers_no_published_number(scene, plan, pod, page):
    stage, engine = stage_at(scene, plan, pod, page, tolerance=0.1, work=11, wanted=10)
    stage.counted(None)
    (decision,) = stage.sweep(after=1)
    assert (decision.replicas, decision.published, decision.evidence.replicas_wanted) == (11, 12, None)
    stage.rounds(10, {engine: page.vllm(waiting=0, running=2)})
    assert numbers(stage) == (3, 3)  # another decision does not keep the published number of the last one


@pytest.mark.parametrize("number", [np.inf, 12.5, 10.0, -1.0, np.nan])
def test_impossible_published_number_is_not_restored(scene, plan, pod, page, number):
    stage, engine = stage_at(scene, plan, pod, page, tolerance=0.1, work=11, wanted=12)
    restarted(
        stage, plan(work=1.0, maximum=100, about={"tolerance": 0.1}),
        lambda columns: columns | {"published.number": np.array([number])},
    )  # fmt: skip
    stage.sweep(after=1)  # replicas are not counted yet, so a plausible published number would be kept
    assert numbers(stage) == (11, 11)
    stage.has(pods=[engine], wanted=12, ready=1)
    stage.round({engine: page.vllm(waiting=0, running=11)})
    assert numbers(stage) == (11, 11)


def test_leader_without_published_numbers_publishes_its_replicas(scene, plan, pod, page):
    stage, engine = stage_at(scene, plan, pod, page, tolerance=0.1, work=11, wanted=10)
    leader, _ = stage_at(scene, plan, pod, page, tolerance=0.1, work=3, wanted=3)
    shared = leader.decider.share(None, leader.now)
    old = {name: column for name, column in shared.columns.items() if name != "published.number"}
    stage.decider.follow_state(State(shared.at, shared.workloads, old), stage.now)
    stage.counted(3, ready=1)
    stage.now += 1
    stage.land(engine, page.vllm(waiting=0, running=4))
    assert numbers(stage) == (4, 4)


@pytest.mark.parametrize(("floor", "expected"), [(None, (11, 11)), (11, (11, 12))])
def test_published_number_never_exceeds_a_ceiling_but_a_floor_wins(scene, plan, pod, page, floor, expected):
    window = {"start": "0 0 * * *", "duration": "20h", "zone": "UTC", "ceiling": 11, "floor": floor, "prewarm": "0s"}
    about = {"tolerance": 0.1, "ordered": WorkloadOverrides(schedules=(Written.model_validate(window).order,))}
    stage, engine = scene(plan(work=1.0, maximum=100, about=about)), pod()
    stage.has(pods=[engine], wanted=10, ready=1)
    stage.round({engine: page.vllm(waiting=0, running=40)})
    assert numbers(stage) == expected


def test_note_explains_a_step_that_is_being_applied(scene, plan, pod, page):
    stage, engine = stage_at(scene, plan, pod, page, tolerance=0.1, work=21, wanted=20)
    stage.counted(23, ready=1)
    stage.land(engine, page.vllm(waiting=0, running=22))
    assert numbers(stage) == (22, 23)
    assert stage.decision().evidence.notes[0] == (
        "published as 23 until the next tick: the step past 22 has just been taken"
    )
