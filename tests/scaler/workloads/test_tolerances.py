"""Tests which HPA tolerance applies: of the HPA, of the ScaledObject, or of the configuration."""

from dataclasses import replace

from exporter.kubernetes.objects import Behavior, BehaviorRules, Ref
from exporter.model import WorkloadKey
from scaler.workloads.targets import Plans
from tests.scaler.workloads.objects import configured, deployment, hpa, scaled, trigger

CHAT = WorkloadKey("ai", "chat")
OURS = Ref("ai", "ScaledObject", "chat")


def behavior_of(tolerance):
    return Behavior(up=BehaviorRules(tolerance=tolerance), down=BehaviorRules(window_s=30.0))


def object_(tolerance, **more):
    return replace(scaled("chat", trigger(engine="vllm", **more)), behavior=behavior_of(tolerance))


def hpa_of_keda(tolerance=None):
    result = hpa("chat", owner=OURS)
    return result if tolerance is None else replace(result, behavior=behavior_of(tolerance))


def test_tolerance_of_the_scaled_object_applies_without_its_hpa(cluster):
    assert dict(cluster().take(object_(0.05)).tolerances) == {CHAT: 0.05}


def test_tolerance_of_the_hpa_takes_precedence(cluster):
    assert dict(cluster().take(object_(0.05), hpa_of_keda(0.0)).tolerances) == {CHAT: 0.0}


def test_tolerance_dropped_by_the_api_server_does_not_apply(cluster):
    # Before Kubernetes 1.35 KEDA passes it on and the API server drops it: the HPA has the cluster's 10 %.
    assert dict(cluster().take(object_(0.0), hpa_of_keda()).tolerances) == {}


def test_tolerance_of_an_hpa_without_keda_applies(cluster):
    registry = cluster().take(deployment(engine="vllm"), replace(hpa(), behavior=behavior_of(0.02)))
    assert dict(registry.tolerances) == {CHAT: 0.02}


def test_configured_workload_has_the_tolerance_of_its_hpa(cluster):
    world = cluster(configured())
    named = replace(
        scaled("s", trigger(workload="chat"), target=Ref("ai", "Deployment", "chat")), behavior=behavior_of(0.03)
    )
    assert dict(world.take(named).tolerances) == {CHAT: 0.03}
    assert dict(cluster(configured()).take(replace(hpa("other"), behavior=behavior_of(0.5))).tolerances) == {}


def test_tolerance_of_the_configuration_is_the_default(cluster):
    world = cluster(configured("static", hpa_tolerance=0.3))
    exact = replace(scaled("exact", trigger(engine="vllm", hpa_tolerance="0.2")), behavior=behavior_of(0.0))
    registry = world.take(scaled("code", trigger(engine="vllm", hpa_tolerance="0.2")), object_(None), exact)
    result = Plans(world.config).take(registry.workloads, tolerances=registry.tolerances)
    assert {plan.workload.name: plan.tolerance for plan in result} == {
        "static": 0.3,
        "code": 0.2,
        "chat": 0.1,
        "exact": 0.0,
    }
