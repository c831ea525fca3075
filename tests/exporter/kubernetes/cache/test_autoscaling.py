"""HPAs and ScaledObjects are decoded with their behavior, status and pauses, as Kubernetes and KEDA write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.kubernetes.decode import decode, identify
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
    document = api.hpa("h", target="chat", **more)
    return decode(identify(HPAS, document), document)


def scaled(**more):
    document = api.scaled_object("chat", **more)
    return decode(identify(SCALEDOBJECTS, document), document)


def test_hpa_has_its_behavior_and_metrics():
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


def test_hpa_has_its_status_and_conditions():
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
def test_desired_zero_of_an_hpa_counts_only_if_it_was_computed(status, expected):
    record = hpa(status=status)
    assert (record.status.current, record.status.desired) == expected


def test_scaled_object_has_its_intervals_fallback_and_status():
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


def test_trigger_has_use_cached_metrics():
    triggers = [api.trigger(engine="vllm"), {**api.trigger(engine="vllm"), "useCachedMetrics": True}]
    assert [each.cached for each in scaled(triggers=triggers).triggers] == [False, True]


def test_missing_fields_have_kedas_defaults():
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
def test_pause_annotations_are_read_as_by_keda(annotations, expected):
    assert pauses(annotations) == expected


def test_unreadable_fields_are_dropped_and_the_object_is_kept():
    record = hpa(spec={"behavior": {"scaleUp": {"tolerance": "a bit"}}}, status={"currentReplicas": "three"})
    assert (record.behavior, record.status, record.maximum) == (None, None, 10)
    other = scaled(spec={"advanced": {"horizontalPodAutoscalerConfig": []}, "pollingInterval": "often"}, status=None)
    assert (other.behavior, other.pace, other.target.name) == (None, None, "chat")


@pytest.mark.parametrize(
    ("written", "expected"),
    [("0", 0.0), ("0.1", 0.1), ("100m", 0.1), (0.05, 0.05), ("50m", 0.05), ("5e-2", 0.05), (1, 1.0), ("70m", 0.07)],
)
def test_tolerance_is_a_quantity(written, expected):
    assert hpa(spec={"behavior": {"scaleUp": {"tolerance": written}}}).behavior.up_tolerance == expected


def test_changed_status_does_not_change_the_registry(apply):
    cluster = apply(api.hpa("h", target="chat"), api.scaled_object("chat"))
    assert cluster.take_changes().registry
    apply(
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
def test_changed_behavior_changes_the_registry(apply, document):
    cluster = apply(api.hpa("h", target="chat"), api.scaled_object("chat"))
    cluster.take_changes()
    apply(document)
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
def test_no_field_value_raises_an_exception(spec, status):
    assert hpa(spec=spec, status=status).maximum == 10
