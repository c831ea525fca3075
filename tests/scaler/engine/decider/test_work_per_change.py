"""A change of one workload costs only that workload: plans are replaced in place, and decisions built in parts."""

from dataclasses import replace

import numpy as np
import pytest

from exporter.model import WorkloadKey
from scaler.engine import published
from scaler.engine.checkpoint_format import pack, unpack
from scaler.engine.decider import Decider
from scaler.engine.prepare import replaceable
from scaler.policy.constraints import KeepWarmConfig
from scaler.policy.groups import Membership
from scaler.policy.overrides import WorkloadOverrides, read_brake

LOG = 2**22


def decider_of(plans):
    return Decider(plans, interval_s=5.0, fresh_intervals=3.0, log_bytes=LOG)


@pytest.fixture
def at_work(scene, plan, pod, page):
    """Three workloads; `chat` is busy."""

    def stage():
        stage, engine = scene(plan("code"), plan("chat", keep_warm=60.0, hold=60.0), plan("draw")), pod()
        stage.has(pods=[engine], wanted=2)
        stage.rounds(60, {engine: page.vllm(waiting=0, running=40, finished=7)})
        return stage

    return stage


def edited(plans, **changes):
    """The plans with another `chat`. changes: fields of Spec, or of WorkloadSpec if Spec has none of that name."""
    chat = plans[1]
    spec = {name: value for name, value in changes.items() if hasattr(chat.spec, name)}
    rest = {name: value for name, value in changes.items() if name not in spec}
    return (plans[0], replace(chat, spec=replace(chat.spec, **spec), **rest), plans[2])


EDITS = {
    "a lower maximum": {"maximum": 2},
    "bounds": {"minimum": 4, "maximum": 6},
    "times": {"keep_warm": 90.0, "hold": 5.0, "young": 30.0},
    "a tolerance": {"tolerance": 0.25},
    "an observed workload": {"observed": True},
    "a learned keep-warm time": {"teaching": KeepWarmConfig(learns=True, lowest=5.0, highest=900.0)},
    "a brake": {"ordered": WorkloadOverrides(brakes=(read_brake("floor 5", "here"),))},
    "no pods": {"pods": False, "gateway": True},
    "probes": {"probe_period": 60.0},
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_replaced_plan_yields_the_same_state_and_decisions_as_a_new_decider(at_work, pod, page, edit):
    rebuilt, replaced = at_work(), at_work()
    plans = edited(replaced.decider.plans, **edit)
    other = decider_of(plans)
    other.take_over(rebuilt.decider)
    rebuilt.decider = other
    rows = replaceable(replaced.decider.plans, plans)
    assert rows.tolist() == [1]
    replaced.decider.replan(plans, rows, replaced.decider.of_plans(rows, plans))
    assert replaced.decider.plans == plans
    for stage in (rebuilt, replaced):
        stage.rounds(30, {pod(): page.vllm(waiting=0, running=40, finished=9)})
        stage.rounds(60, {pod(): page.vllm(waiting=0, running=8, finished=9)})
    columns = rebuilt.decider.columns()
    for name, column in replaced.decider.columns().items():
        np.testing.assert_array_equal(column, columns[name], err_msg=name)
    assert replaced.decision() == rebuilt.decision()
    assert replaced.decision("code") == rebuilt.decision("code")


def test_decision_after_a_replaced_plan_is_explained_by_the_new_plan(at_work):
    stage = at_work()
    plans = edited(stage.decider.plans, maximum=2)
    rows = replaceable(stage.decider.plans, plans)
    stage.decider.replan(plans, rows, stage.decider.of_plans(rows, plans))
    past = stage.decider.past(plans[1].workload)
    assert past.entry(-1).plan.spec.maximum == 8
    stage.sweep(after=1.0)
    assert stage.outcome() == (2, True, "capped")
    assert stage.decider.past(plans[1].workload).entry(-1).plan.spec.maximum == 2


def test_plan_with_other_connections_is_not_replaced_in_place(plan):
    plans = (plan("code"), plan("chat"), plan("draw"))
    chat = plans[1]
    assert replaceable(plans, plans).tolist() == []
    assert replaceable(plans, (*plans, plan("new"))) is None
    assert replaceable(plans, plans[::-1]) is None
    for other in (
        replace(chat, target="Deployment/other"),
        replace(chat, pod_pattern="c-*"),
        replace(chat, member=Membership("ai", "pair", "decode")),
    ):
        assert replaceable(plans, (plans[0], other, plans[2])) is None


@pytest.fixture
def two_at_once(monkeypatch):
    """A sweep builds two decisions with a new reason alone."""
    monkeypatch.setattr(published, "MOST_BUILT", 2)


@pytest.fixture
def fleet(two_at_once, scene, plan, pod, page):
    """Six workloads at 3 replicas each; all are published."""

    def stage(**spec):
        stage = scene(*(plan(f"w{number}", hold=600.0, **spec) for number in range(6)))
        for number in range(6):
            stage.has(pods=[pod(number, f"w{number}")], wanted=3, name=f"w{number}")
            stage.land(pod(number, f"w{number}"), page.vllm(waiting=0, running=40))
        stage.sweep()
        return stage

    return stage


def reload(stage, **spec):
    plans = [replace(each, spec=replace(each.spec, **spec)) for each in stage.decider.plans]
    after = decider_of(plans)
    after.adopt(stage.decider)
    stage.decider = after


def names(decisions):
    return [decision.workload.name for decision in decisions]


def test_first_sweep_publishes_every_workload(fleet):
    assert {decision.replicas for decision in fleet().decisions.values()} == {3}


def test_reload_that_changes_no_number_is_published_in_parts(fleet):
    stage = fleet()
    reload(stage)
    swept = [names(stage.sweep(after=1.0)) for _ in range(4)]
    assert swept == [["w0", "w1"], ["w2", "w3"], ["w4", "w5"], []]
    assert {stage.outcome(f"w{number}") for number in range(6)} == {(3, True, "held")}


def test_reload_that_changes_every_number_is_published_in_the_first_sweep(fleet, pod, page):
    stage = fleet()
    reload(stage, minimum=5)
    for number in range(6):
        stage.has(pods=[pod(number, f"w{number}")], wanted=3, name=f"w{number}")
        stage.land(pod(number, f"w{number}"), page.vllm(waiting=0, running=40))
    stage.sweep(after=1.0)
    assert {stage.outcome(f"w{number}")[0] for number in range(6)} == {5}


def test_restored_state_is_published_in_the_first_sweep(fleet):
    stage = fleet()
    (state,) = (unpack(pack(stage.decider.state(stage.now))),)
    stage.decider = decider_of(stage.decider.plans)
    stage.decider.restore(state, stage.now)
    assert len(stage.sweep(after=1.0)) == 6


def test_every_workload_is_published_again_after_its_decisions_are_forgotten(fleet):
    stage = fleet()
    stage.decider.forget_answers()
    assert len(stage.sweep(after=1.0)) == 6


def test_replica_counts_are_kept_through_a_reload(fleet):
    stage = fleet()
    reload(stage)
    readings = stage.decider._latest.totals(np.arange(6), stage.now).readings
    assert readings.wanted.tolist() == [3.0] * 6
    assert stage.decider.plan(WorkloadKey("ai", "w3")) is stage.decider.plans[3]


def expire(stage):
    """Until the next sweep, when what was not scraped is held no longer: every decision becomes an error."""
    for _ in range(3):
        stage.sweep(after=60.0)
    stage.now += 601.0


def same_evidence(decisions):
    return {decision.workload.name: (decision.replicas, decision.reason, decision.evidence) for decision in decisions}


def test_decisions_of_a_sweep_in_parts_are_those_of_a_sweep_at_once(fleet, pod, page):
    parts, whole = fleet(), fleet()
    for stage in (parts, whole):
        for number in range(5):
            stage.land(pod(number, f"w{number}"), page.vllm(waiting=0, running=10 * number))
        expire(stage)
    first = parts.decider.sweep(parts.now, most=2)
    rest = [parts.decider.rest(3), parts.decider.rest(3)]
    at_once = whole.decider.sweep(whole.now)
    assert [len(part) for part in (first, *rest)] == [2, 3, 1]
    assert same_evidence([*first, *rest[0], *rest[1]]) == same_evidence(at_once)
    assert parts.decider.rest(3) == []
    for name, column in parts.decider.columns().items():
        np.testing.assert_array_equal(column, whole.decider.columns()[name], err_msg=name)
    assert parts.decider.sweep(parts.now + 1.0) == whole.decider.sweep(whole.now + 1.0)


def test_landing_between_the_parts_of_a_sweep_is_not_undone_by_a_later_part(fleet, pod, page):
    stage = fleet()
    expire(stage)
    assert len(stage.decider.sweep(stage.now, most=1)) == 1
    landed = stage.land(pod(5, "w5"), page.vllm(waiting=0, running=40))
    assert [(each.workload.name, each.replicas) for each in landed] == [("w5", 3)]
    assert names(stage.decider.rest(9)) == ["w1", "w2", "w3", "w4"]
    assert stage.decider.rest(9) == []


def test_restored_state_replaces_the_rest_of_a_sweep(fleet):
    stage = fleet()
    state = stage.decider.state(stage.now)
    expire(stage)
    assert len(stage.decider.sweep(stage.now, most=1)) == 1
    stage.decider.follow_state(state, stage.now)
    assert stage.decider.rest(9) == []
    assert all(decision.replicas == 3 for decision in stage.decider.sweep(stage.now + 1.0))
