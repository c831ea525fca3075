"""Invariant 11: each entry of the log, decided again by itself, is equal to the last bit.

Groups, overrides, failed scrapes and stopped clocks: the entry alone must be enough. `Scene` decides again all its
entries; here hypothesis draws the history.
"""

import io
import json
import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from scaler.cli.explain import explain_tables
from scaler.engine.decider import Decider
from scaler.explain.document import DecisionExplainer
from scaler.explain.steps import clamp
from scaler.explain.trace import Case, summary
from scaler.model import Board
from scaler.policy.groups import Membership
from scaler.policy.overrides import Brake, BrakeWord, WorkloadOverrides
from tests.budget import examples

NOW = (None, None, None)
NAMES = ("prefill", "decode", "lone")
BRAKES = [(), (Brake(BrakeWord.FREEZE, until=1200.0),), (Brake(BrakeWord.NEVER_DOWN),), (Brake(BrakeWord.FLOOR, 3),)]

moments = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.one_of(st.none(), st.integers(0, 60)),  # requests that run there; None: the scrape fails
        st.sampled_from([None, 0, 1, 4]),  # spec.replicas
        st.sampled_from([0.0, 0.4, 5.0, 31.0, 400.0]),  # seconds
        st.booleans(),  # sweep after it
    ),
    max_size=40,
)


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(moments=moments, brakes=st.lists(st.sampled_from(BRAKES), min_size=3, max_size=3), held=st.integers(0, 5))
def test_every_decision_can_be_explained_and_decided_again(scene, plan, pod, gateway, page, moments, brakes, held):
    bounds = {"to": "prefill", "least": 0.5, "most": 3.0}
    members = [Membership("ai", "pd", "prefill"), Membership("ai", "pd", "decode", **bounds), None]
    stage = scene(*(
        plan(name, gateway=name == "prefill", keep_warm=30.0, up=5.0, down=20.0, kv=0.9,
             about={"member": member, "ordered": WorkloadOverrides(brakes=overrides)})
        for name, member, overrides in zip(NAMES, members, brakes, strict=True)
    ))  # fmt: skip
    front, pods = gateway(name="prefill"), {name: pod(number, name) for number, name in enumerate(NAMES)}
    for name, target in pods.items():
        stage.has(pods=[target], gateway=front if name == "prefill" else None, wanted=1, name=name)
    for name, running, wanted, after, sweeps in moments:
        stage.now += after
        stage.counted(wanted, None if wanted is None else min(wanted, 1), name)
        if running is None:
            stage.decider.missed(pods[name])
        else:
            stage.land(pods[name], page.vllm(waiting=0, running=running))
            stage.land(front, page.epp(held=held, ready=1))
        if sweeps:
            stage.sweep()
    stage.sweep()
    assert stage.decide_again() >= len(NAMES)
    for each in stage.decider.plans:
        past = stage.decider.past(each.workload)
        for index in range(len(past)):
            assert_explanation_names_the_decision(past.entry(index))
        document = DecisionExplainer(stage.decider).explain(
            each.workload, Board(1, stage.now, stage.decisions), stage.now, *NOW
        )()
        assert "nan" not in json.dumps(document, allow_nan=False)
        explain_tables(document, Console(file=io.StringIO()))


def assert_explanation_names_the_decision(entry):
    """The replicas of the clamp step equal those that the policy decides if no override is active."""
    case = Case.of(entry)
    assert summary(case).startswith(f"{entry.given.verdicts.replicas[0]:.0f} " if is_decided(case) else "no answer")
    if not case.held and not math.isnan(case.trace.replicas) and case.trace.replicas > 0.0:
        assert clamp(case).table.rows[-1][1] == case.trace.replicas


def is_decided(case):
    return not math.isnan(case.verdict.replicas)


def test_log_survives_a_reload_and_a_new_list_of_workloads(scene, plan, pod, page):
    stage = scene(plan("chat"), plan("code"))
    target = pod(0)
    stage.has(pods=[target], wanted=1)
    stage.round({target: page.vllm(waiting=0, running=40)})
    assert stage.outcome() == (3, True, "serving")
    reloaded = Decider([plan("chat", work=8.0)], interval_s=5.0, fresh_intervals=3.0, log_bytes=2**22)
    reloaded.adopt(stage.decider)
    stage.decider = reloaded
    stage.has(pods=[target], wanted=3)
    stage.round({target: page.vllm(waiting=0, running=40)})
    listed = Decider([plan("new"), plan("chat", work=8.0)], interval_s=5.0, fresh_intervals=3.0, log_bytes=2**22)
    listed.take_over(stage.decider)
    stage.decider = listed
    stage.round({target: page.vllm(waiting=0, running=64)})
    past = listed.past(listed.plans[1].workload)
    # With 16 per replica, and since the reload with 8; each is decided again with the plan of its time.
    assert [past.entry(index).plan.spec.targets[0][1] for index in (0, -1)] == [16.0, 8.0]
    assert stage.decide_again() == len(past) + len(listed.past(listed.plans[0].workload))
    assert stage.outcome() == (8, True, "serving")


def test_scrape_between_ticks_is_logged_as_raise_only(scene, plan, pod, page):
    stage = scene(plan("chat"))
    target = pod(0)
    stage.has(pods=[target], wanted=3)
    stage.round({target: page.vllm(waiting=0, running=40)})
    stage.decider.forget_answers()  # after this the next decision counts as changed, whatever it is
    stage.now += 5.0
    stage.land(target, page.vllm(waiting=0, running=1))
    assert stage.outcome() == (3, True, "serving")
    entry = stage.decider.past(stage.decider.plans[0].workload).entry(-1)
    assert (entry.at, bool(entry.given.when.raise_only[0]), entry.given.readings.running[0]) == (stage.now, True, 1.0)
