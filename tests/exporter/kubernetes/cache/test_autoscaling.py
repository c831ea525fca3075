"""What HPAs and ScaledObjects say of how they scale, as Kubernetes and KEDA write it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.kubernetes.decode import read
from exporter.kubernetes.decode_autoscaling import pauses
from exporter.kubernetes.objects import (
    Behavior,
    BehaviorPolicy,
    BehaviorRules,
    Condition,
    HpaMetricSpec,
    HpaStatus,
    Pace,
    Pauses,
    ScaledObjectFallback,
    ScaledStatus,
)
from exporter.kubernetes.resources import HPAS, SCALEDOBJECTS
from tests.fakes import objects as api

T = 1763805600.0  # 2025-11-22T10:00:00Z
BEHAVIOR = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}],
        "tolerance": "0",
    },
    "scaleDown": {
        "stabilizationWindowSeconds": 30,
        "policies": [{"type": "Percent", "value": 50, "periodSeconds": 30}],
        "tolerance": "50m",
    },
}
READ = Behavior(
    up=BehaviorRules(0.0, "Max", (BehaviorPolicy("Pods", 4, 15.0),), 0.0),
    down=BehaviorRules(30.0, None, (BehaviorPolicy("Percent", 50, 30.0),), 0.05),
)


def hpa(**more):
    return read(HPAS, api.hpa("h", target="chat", **more))


def scaled(**more):
    return read(SCALEDOBJECTS, api.scaled_object("chat", **more))


def test_an_hpa_says_how_fast_it_scales_and_by_what():
    external = {
        "type": "External",
        "external": {
            "metric": {
                "name": "s0-tidegate-replicas",
                "selector": {"matchLabels": {"scaledobject.keda.sh/name": "chat"}},
            },
            "target": {"type": "AverageValue", "averageValue": "1"},
        },
    }
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
    record = hpa(spec={"behavior": BEHAVIOR, "metrics": [external, cpu]})
    assert record.behavior == READ
    assert record.metrics == (
        HpaMetricSpec("External", "s0-tidegate-replicas", "AverageValue", 1.0),
        HpaMetricSpec("Resource", "cpu", "Utilization", None),
    )


def test_an_hpa_reports_what_it_did_and_what_ails_it():
    conditions = [
        {
            "type": "ScalingActive",
            "status": "False",
            "reason": "FailedGetExternalMetric",
            "message": "the HPA was unable to compute the replica count: " + "x" * 4000,
            "lastTransitionTime": "2025-11-22T10:00:00Z",
        }
    ]
    status = {
        "currentReplicas": 3,
        "desiredReplicas": 4,
        "lastScaleTime": "2025-11-22T10:00:00Z",
        "conditions": conditions,
    }
    record = hpa(status=status)
    (condition,) = record.status.conditions
    assert (record.status.current, record.status.desired, record.status.scaled_at) == (3, 4, T)
    assert condition[:3] == ("ScalingActive", "False", "FailedGetExternalMetric")
    assert (len(condition.message), condition.since) == (300, T)


def _active(status, reason):
    return {"type": "ScalingActive", "status": status, "reason": reason}


NO_TARGET = {"type": "AbleToScale", "status": "False", "reason": "FailedGetScale"}


# As Kubernetes 1.36 prints them: desiredReplicas always, currentReplicas unless it is 0.
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"currentMetrics": None, "desiredReplicas": 0}, (None, None)),
        ({"desiredReplicas": 0, "conditions": [NO_TARGET]}, (None, None)),
        (
            {"currentReplicas": 1, "desiredReplicas": 0, "conditions": [_active("False", "FailedGetExternalMetric")]},
            (1, None),
        ),
        ({"desiredReplicas": 0, "conditions": [_active("False", "ScalingDisabled")]}, (0, 0)),
        ({"desiredReplicas": 0, "conditions": [_active("True", "ValidMetricFound")]}, (0, 0)),
        ({"desiredReplicas": 2, "conditions": [_active("True", "ValidMetricFound")]}, (0, 2)),
        ({"currentReplicas": 2, "desiredReplicas": 2}, (2, 2)),
    ],
    ids=["not synced", "no target", "no metric yet", "asleep", "to zero", "from zero", "without conditions"],
)
def test_an_hpa_wants_no_zero_that_it_has_not_worked_out(status, expected):
    record = hpa(status=status)
    assert (record.status.current, record.status.desired) == expected


def test_a_scaled_object_says_how_keda_goes_about_it():
    spec = {
        "pollingInterval": 10,
        "cooldownPeriod": 30,
        "initialCooldownPeriod": 60,
        "fallback": {"failureThreshold": 3, "replicas": 2},
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": BEHAVIOR}},
    }
    status = {
        "lastActiveTime": "2025-11-22T10:00:00Z",
        "conditions": [{"type": "Ready", "status": "True", "reason": "ScaledObjectReady", "message": "ok"}],
    }
    metadata = {
        "annotations": {"autoscaling.keda.sh/paused-replicas": "2"},
        "creationTimestamp": "2025-11-22T10:00:00Z",
    }
    record = scaled(spec=spec, status=status, metadata=metadata)
    assert record.behavior == READ
    assert record.pace == Pace(10.0, 30.0, 60.0, ScaledObjectFallback(3, 2), Pauses(replicas=2))
    assert record.status == ScaledStatus(T, (Condition("Ready", "True", "ScaledObjectReady", "ok", None),))
    assert record.created_at == T


def test_a_trigger_says_whether_the_hpa_hears_of_it_from_a_cache():
    triggers = [api.trigger(engine="vllm"), {**api.trigger(engine="vllm"), "useCachedMetrics": True}]
    assert [each.cached for each in scaled(triggers=triggers).triggers] == [False, True]


def test_what_is_left_out_has_kedas_defaults():
    record = scaled()
    assert (record.behavior, record.pace) == (None, Pace(30.0, 300.0, 0.0, None, Pauses()))


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, Pauses()),
        ({"autoscaling.keda.sh/paused": "true"}, Pauses(paused=True)),
        ({"autoscaling.keda.sh/paused": "yes, please"}, Pauses(paused=True)),
        ({"autoscaling.keda.sh/paused": "false"}, Pauses()),
        ({"autoscaling.keda.sh/paused-scale-in": "true"}, Pauses(scale_in=True)),
        ({"autoscaling.keda.sh/paused-scale-out": "1"}, Pauses(scale_out=True)),
        ({"autoscaling.keda.sh/paused-replicas": "0"}, Pauses(replicas=0)),
        ({"autoscaling.keda.sh/paused-replicas": "two"}, Pauses()),
    ],
)
def test_kedas_annotations_pause_as_keda_takes_them(annotations, expected):
    assert pauses(annotations) == expected


def test_what_of_it_cannot_be_read_costs_nobody_the_object():
    record = hpa(spec={"behavior": {"scaleUp": {"tolerance": "a bit"}}}, status={"currentReplicas": "three"})
    assert (record.behavior, record.status, record.maximum) == (None, None, 10)
    other = scaled(spec={"advanced": {"horizontalPodAutoscalerConfig": []}, "pollingInterval": "often"}, status=None)
    assert (other.behavior, other.pace, other.target.name) == (None, None, "chat")


@pytest.mark.parametrize(
    ("written", "expected"),
    [("0", 0.0), ("0.1", 0.1), ("100m", 0.1), (0.05, 0.05), ("50m", 0.05), ("5e-2", 0.05), (1, 1.0), ("70m", 0.07)],
)
def test_a_tolerance_is_a_quantity(written, expected):
    assert hpa(spec={"behavior": {"scaleUp": {"tolerance": written}}}).behavior.up_tolerance == expected


def test_a_status_that_moves_counts_nobody_anew(told):
    cluster = told(api.hpa("h", target="chat"), api.scaled_object("chat"))
    assert cluster.take_changes().registry
    told(
        api.hpa("h", target="chat", status={"currentReplicas": 5}),
        api.scaled_object("chat", status={"lastActiveTime": "2025-11-22T10:00:00Z"}),
    )
    assert not cluster.take_changes().registry
    assert cluster.hpas()[0].status == HpaStatus(current=5)
    assert cluster.scaled_objects()[0].status.active_at == T


@pytest.mark.parametrize(
    "document",
    [
        api.hpa("h", target="chat", spec={"behavior": BEHAVIOR}),
        api.scaled_object("chat", spec={"advanced": {"horizontalPodAutoscalerConfig": {"behavior": BEHAVIOR}}}),
    ],
    ids=["hpa", "scaled object"],
)
def test_a_behavior_that_changes_counts_everybody_anew(told, document):
    cluster = told(api.hpa("h", target="chat"), api.scaled_object("chat"))
    cluster.take_changes()
    told(document)
    assert cluster.take_changes().registry


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([
        "behavior", "scaleUp", "scaleDown", "tolerance", "policies", "type", "value", "periodSeconds", "conditions",
        "currentReplicas", "metrics", "external", "target", "averageValue", "lastScaleTime", "status", "metric", "name",
    ]), inner, max_size=6),
    max_leaves=20,
)  # fmt: skip


@given(spec=st.dictionaries(st.sampled_from(["behavior", "metrics"]), JSON), status=JSON)
def test_nothing_that_anybody_writes_there_is_an_exception(spec, status):
    assert hpa(spec=spec, status=status).maximum == 10
