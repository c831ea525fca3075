"""Obstacles of a decision: no scaler, an unknown one, several, or one that reports an error."""

from dataclasses import replace

import pytest

from exporter.kubernetes.objects import Pod, Ref
from exporter.model import PodKey
from scaler.explain.outcome import controller_outcome, controller_step
from scaler.explain.outcome_inputs import Facts, OutcomeCode
from tests.docs.pages import ROOT

from .conftest import NOW, condition, decision, facts, hpa, scaled

EXACT = {"up": {"tolerance": 0.0}, "down": {"tolerance": 0.0}}


def code(decided, around):
    return str(controller_outcome(decided, around, NOW).code)


def test_without_a_kubernetes_api_the_outcome_is_unseen():
    assert code(decision(3), Facts()) == "unknown_scaler"
    assert "no Kubernetes API is configured" in controller_outcome(decision(3), Facts(), NOW).sentences[0]


def test_missing_scaler_is_reported_only_with_complete_lists():
    assert code(decision(3), facts(3)) == "no_scaler"
    assert code(decision(3), facts(3, hpas_complete=False)) == "unknown_scaler"
    assert code(decision(3), facts(3, scaled_complete=False)) == "unknown_scaler"
    assert code(decision(3), facts(None, target=None)) == "unknown_scaler"


def test_unknown_replicas_are_no_zero():
    assert code(decision(3), facts(None, scaled_object=scaled(), hpas=[hpa(**EXACT)])) == "unknown_scaler"
    # The evidence may have a count that the watched objects lack, and so may the HPA.
    assert code(decision(3, wanted=3), facts(None, scaled_object=scaled(), hpas=[hpa(**EXACT)])) == "settled"
    assert code(decision(3), facts(None, scaled_object=scaled(), hpas=[hpa(current=2, **EXACT)])) == "up"


def test_two_hpas_for_one_object_are_an_obstacle():
    around = facts(3, hpas=[hpa(name="a", owner=False), hpa(name="b", owner=False)])
    assert code(decision(3), around) == "two_hpas"


def test_hpa_alone_never_scales_up_from_zero():
    around = facts(0, hpas=[hpa(owner=False, **EXACT)])
    assert [code(decision(replicas), around) for replicas in (0, 1)] == ["asleep", "no_wake_source"]


def test_scaled_object_of_another_scaler_is_an_obstacle():
    around = facts(3, scaled_object=scaled(triggers=("prometheus",)), speaks=False, hpas=[hpa()])
    assert code(decision(3), around) == "other_metrics"


def test_missing_hpa_differs_from_an_unreadable_one():
    exact = replace(scaled(minimum=1), behavior=hpa(**EXACT).behavior)
    assert code(decision(5), facts(4, scaled_object=exact)) == "no_hpa"
    unseen = controller_outcome(decision(5), facts(4, scaled_object=exact, hpas_complete=False), NOW)
    assert unseen.code == "up"
    assert "its HPA cannot be read: this is for the one that KEDA makes of the ScaledObject" in unseen.sentences


def test_observed_workload_is_refused():
    assert code(decision(5, observed=True), facts(4, scaled_object=scaled(), hpas=[hpa()])) == "observed"


def test_scaled_job_makes_jobs():
    assert code(decision(5), facts(None, target=Ref("ai", "ScaledJob", "batch"))) == "jobs"


def test_hpa_that_cannot_scale_is_a_controller_error():
    failed = condition("ScalingActive", "False", "FailedGetExternalMetric", "no such host")
    found = controller_outcome(
        decision(5), facts(4, scaled_object=scaled(), hpas=[hpa(conditions=(failed,), **EXACT)]), NOW
    )
    assert found.code == "controller_error"
    assert found.sentences[0] == (
        "the HPA keda-hpa-chat reports ScalingActive=False FailedGetExternalMetric: no such host"
    )
    assert "in at most 15 s the HPA sets 5: 4 -> 5" in found.sentences


@pytest.mark.parametrize(
    ("replicas", "current", "expected"), [(0, 0, "asleep"), (3, 0, "wakes")], ids=["asleep", "waking"]
)
def test_at_zero_an_hpa_is_not_active_and_that_is_no_error(replicas, current, expected):
    idle = condition("ScalingActive", "False", "ScalingDisabled", "scaling is disabled since the replica count is zero")
    assert code(decision(replicas), facts(current, scaled_object=scaled(), hpas=[hpa(conditions=(idle,))])) == expected


def test_scaled_object_that_is_not_ready_is_a_controller_error():
    not_ready = {"conditions": (condition("Ready", "False", "TriggerError", "unable to get the scaler"),)}
    found = controller_outcome(decision(4), facts(4, scaled_object=scaled(status=not_ready), hpas=[hpa(**EXACT)]), NOW)
    assert found.code == "controller_error"
    assert found.sentences[0] == "the ScaledObject chat reports Ready=False TriggerError: unable to get the scaler"


def test_error_of_tidegate_is_no_controller_error():
    not_ready = {"conditions": (condition("Ready", "False", "TriggerError", "unknown for 40 s"),)}
    around = facts(4, scaled_object=scaled(status=not_ready), hpas=[hpa(**EXACT)])
    assert code(decision(None), around) == "unknown"


def test_controller_step_has_sentences_and_a_table():
    found = controller_outcome(decision(5), facts(4, scaled_object=scaled(), hpas=[hpa(**EXACT)]), NOW)
    assert controller_step(found) == {
        "step": "controller",
        "title": "What KEDA and the HPA do",
        "sentences": ["up: in at most 15 s the HPA sets 5: 4 -> 5"],
        "table": {"columns": ["within s", "replicas", "why"], "rows": [[15, 5, "follows its metrics: 5"]]},
    }
    settled = controller_outcome(decision(4), facts(4, scaled_object=scaled(), hpas=[hpa(**EXACT)]), NOW)
    assert controller_step(settled)["table"] is None


def test_every_code_has_its_row_in_the_docs():
    text = (ROOT / "docs/explanation/controller-outcome.md").read_text(encoding="utf-8").partition("## The codes")[2]
    rows = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    assert rows == [str(code) for code in OutcomeCode]


def test_message_of_the_scheduler_is_quoted_with_the_pod():
    full = "0/5 nodes are available: 5 Insufficient nvidia.com/gpu."
    pod = Pod(PodKey("ai", "chat-1-a"), "uid", unscheduled_since=NOW - 60.0, unscheduled_why=full)
    outcome = controller_outcome(decision(3), facts(3, hpas=[hpa(owner=False, **EXACT)], unscheduled=pod), NOW)
    assert f"pod chat-1-a waits for a node: {full}" in outcome.sentences[1:]
