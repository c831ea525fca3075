"""Law 3: what is told is the decision, rounded outward past the band in which the HPA drops a step up."""

from exporter.model import WorkloadKey
from scaler.state import State


def stage_at(scene, plan, pod, page, *, tolerance, work, wanted, maximum=100):
    """One engine with so many requests at one a replica, and so many replicas in the cluster."""
    stage, engine = scene(plan(work=1.0, maximum=maximum, about={"tolerance": tolerance})), pod()
    stage.has(pods=[engine], wanted=wanted, ready=1)
    stage.round({engine: page.vllm(waiting=0, running=work)})
    return stage, engine


def told(stage):
    decision = stage.decision()
    return decision.replicas, decision.told


def test_a_step_up_inside_the_band_is_told_past_it_and_the_evidence_says_so(scene, plan, pod, page):
    stage, _ = stage_at(scene, plan, pod, page, tolerance=0.1, work=11, wanted=10)
    assert told(stage) == (11, 12)
    (note,) = stage.decision().evidence.notes
    assert note == (
        "told as 12: its HPA takes 11 for the 10 there are, within its tolerance of 0.1; "
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
    assert (news.replicas, news.told, news.decided_at) == (11, 11, stage.now)
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
    assert [stage.decision(name).told for name in engines] == [11, 16]


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
