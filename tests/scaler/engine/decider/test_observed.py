"""Observe mode changes nothing: no other decision, and no learned value. Its scores use the real replicas."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.model import WorkloadKey
from scaler.engine.decider import Decider
from scaler.policy.groups import Membership
from tests.budget import examples

OBSERVED = {"observed": True}


def members(plan, *, observed):
    """A group of two roles, two of whose workloads share a queue, and one workload without a group."""

    def member(role, *, observed=observed, **more):
        return {"member": Membership("ai", "pd", role, observed=observed, **more), "observed": observed}

    return {
        "prefill": plan("prefill", gateway=True, keep_warm=20.0, about=member("prefill", observed=False)),
        "stable": plan("stable", gateway=True, keep_warm=20.0, about=member("decode", observed=False)),
        "canary": plan("canary", gateway=True, keep_warm=20.0, about=member("decode")),
        "aside": plan("aside", gateway=True, keep_warm=20.0, about={"observed": observed}),
    }


NAMES = ("prefill", "stable", "canary", "aside")
ROUND = st.tuples(
    st.sampled_from(NAMES),
    st.one_of(st.none(), st.integers(0, 60)),  # requests in its pod; None: the scrape fails
    st.integers(0, 40),  # held at the gateways
    st.integers(0, 3),  # spec.replicas of it
)


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(story=st.lists(ROUND, min_size=1, max_size=25))
def test_observed_workload_changes_no_other_decision(scene, plan, pod, gateway, page, story):
    plans = members(plan, observed=True)
    acting = ("prefill", "stable")
    with_them, without = scene(*plans.values()), scene(*(plans[name] for name in acting))
    for stage, names in ((with_them, NAMES), (without, acting)):
        for number, name in enumerate(names):
            stage.has(pods=[pod(number, name)], gateway=gateway(name=name), wanted=1, name=name)
    for name, running, held, wanted in story:
        for stage, names in ((with_them, NAMES), (without, acting)):
            stage.now += 5.0
            for number, each in enumerate(names):
                if each == name and running is None:
                    stage.decider.missed(pod(number, each))
                else:
                    work = running if each == name else 0
                    stage.land(pod(number, each), page.vllm(waiting=0, running=work, kv=0.5))
                stage.land(gateway(name=each), page.epp(held=held, ready=1))
            if name in names:
                stage.counted(wanted, wanted, name=name)
            stage.sweep()
        for other in acting:
            assert with_them.decision(other) == without.decision(other)


def test_observed_members_are_decided_as_a_group_of_their_own(scene, plan, pod, gateway, page):
    def both(*, observed):
        about = {"observed": observed}
        prefill, decode = (Membership("ai", "pd", role, observed=observed) for role in ("prefill", "decode"))
        stage = scene(
            plan("prefill", gateway=True, about={**about, "member": prefill}),
            plan("decode", about={**about, "member": decode}),
        )
        stage.has(pods=[pod(0, "prefill")], gateway=gateway(name="prefill"), wanted=1, name="prefill")
        stage.has(pods=[pod(1, "decode")], wanted=1, name="decode")
        stage.now += 5.0
        stage.land(pod(0, "prefill"), page.vllm(waiting=0, running=0))
        stage.land(pod(1, "decode"), page.vllm(waiting=0, running=40))
        stage.land(gateway(name="prefill"), page.epp(held=0, ready=1))
        stage.sweep()
        return stage.outcome("prefill"), stage.outcome("decode")

    assert both(observed=True) == both(observed=False) == ((1, True, "warm"), (3, True, "serving"))


def test_observed_workload_is_decided_like_an_active_one(scene, plan, pod, page):
    stages = [scene(plan(about=about)) for about in ({}, OBSERVED)]
    for stage in stages:
        stage.has(pods=[pod()], wanted=2)
        stage.rounds(20, {pod(): page.vllm(waiting=0, running=40)})
        stage.rounds(60, {pod(): page.vllm(waiting=0, running=0)})
    acting, observed = (stage.decision() for stage in stages)
    assert replace(observed, observed=False) == acting


def test_scores_compare_with_spec_replicas(scene, plan, pod, page):
    stage, engine = scene(plan(about=OBSERVED)), pod()
    stage.has(pods=[engine])
    sums = stage.decider.books.kept

    def scores(wanted, waiting, seconds):
        stage.counted(wanted, wanted)
        before = {name: float(column[0]) for name, column in sums._asdict().items() if column.ndim == 1}
        stage.rounds(seconds, {engine: page.vllm(waiting=waiting, running=16)})
        return {name: float(getattr(sums, name)[0]) - before[name] for name in ("shadow", "more", "fewer")}

    scores(1, 0, 5)  # from here on the previous moment is known
    assert scores(1, 0, 20) == {"shadow": 20.0, "more": 0.0, "fewer": 0.0}
    # 16 + 20 requests at 16 are 3 replicas. A change counts from the sweep that reads it.
    assert scores(1, 20, 20) == {"shadow": 20.0, "more": 15.0, "fewer": 0.0}
    assert sums.queued[0] == 15.0 * 20
    assert scores(3, 20, 20) == {"shadow": 20.0, "more": 5.0, "fewer": 0.0}
    assert scores(8, 20, 20) == {"shadow": 20.0, "more": 0.0, "fewer": 15.0}


def test_active_workload_has_no_scores(scene, plan, pod, page):
    stage, engine = scene(), pod()
    stage.has(pods=[engine], wanted=5)
    stage.rounds(30, {engine: page.vllm(waiting=9, running=16)})
    sums = stage.decider.books.kept
    assert (sums.shadow[0], sums.more[0], sums.fewer[0]) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("way", ["adopt", "take_over"])
def test_change_of_mode_loses_no_state(scene, plan, pod, gateway, page, way):
    """Only the mode changes; the decision, idle times, learned pauses and the scores are kept."""
    stage, engine, front = scene(plan(gateway=True, about=OBSERVED)), pod(), gateway()
    for _ in range(6):
        stage.has(pods=[engine], gateway=front, wanted=3)
        stage.rounds(60, {engine: page.vllm(waiting=0, running=20), front: page.epp(held=0, ready=1)})
        stage.rounds(120, {engine: page.vllm(waiting=0, running=0), front: page.epp(held=0, ready=1)})
    learned = {name: column.copy() for name, column in stage.decider.columns().items()}
    assert learned["accounts.kept.shadow"][0] > 0.0
    for about in ({}, OBSERVED):
        decider = Decider([plan(gateway=True, about=about)], interval_s=5.0, fresh_intervals=3.0)
        getattr(decider, way)(stage.decider)
        stage.decider = decider
        same = {name: column for name, column in decider.columns().items() if name != "memory.idle_since"}
        for name, column in same.items():
            assert column.tobytes() == learned[name].tobytes(), name
    assert stage.decider.workloads == (WorkloadKey("ai", "chat"),)
