"""Tests the workloads made from `tidegate.dev/…` annotations."""

import pytest

from exporter.kubernetes.objects import Ref
from exporter.model import WorkloadKey
from scaler.config import Replicas, SharedGateway
from tests.scaler.workloads.objects import configured, deployment, detail, errors, hpa, names, scaled, trigger

CHAT = WorkloadKey("ai", "chat")


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "LeaderWorkerSet", "Rollout"])
def test_annotations_make_a_workload_of_their_object(cluster, kind):
    registry = cluster().take(deployment(kind=kind, engine="vllm", replicas__min="1", replicas__max="4"))
    (workload,) = registry.workloads
    assert (workload.key, workload.pods.target, workload.replicas) == (CHAT, f"{kind}/chat", Replicas(min=1, max=4))
    assert registry.targets == {CHAT: Ref("ai", kind, "chat")}
    assert registry.object_errors == ()


def test_object_without_annotations_makes_no_workload(cluster):
    assert cluster().take(deployment(), hpa()).workloads == ()


def test_annotation_for_the_linter_makes_no_workload_and_no_error(cluster):
    ignore = {"check-ignore": "TG061 because the gateway drains"}
    assert cluster().take(deployment(**ignore)) == cluster().take(deployment())
    registry = cluster().take(deployment(engine="vllm", replicas__min="1", replicas__max="4", **ignore))
    assert (names(registry), registry.object_errors) == (["ai/chat"], ())
    assert errors(cluster().take(scaled("chat", trigger(engine="vllm"), annotations=ignore))) == []


def test_bounds_are_those_of_the_hpa(cluster):
    registry = cluster().take(deployment(engine="vllm", replicas__min="1"), hpa(minimum=2, maximum=8))
    assert registry.workloads[0].replicas == Replicas(min=2, max=8)
    (problem,) = registry.object_errors
    assert (problem.key, problem.severity) == ("tidegate.dev/replicas.min", "warning")
    assert problem.message == "is not used: ai/HorizontalPodAutoscaler/chat has the bounds"


def test_hpa_of_keda_sets_no_bounds(cluster):
    kedas = hpa(minimum=2, maximum=8, owner=Ref("ai", "ScaledObject", "chat"))
    registry = cluster().take(deployment(engine="vllm", replicas__min="1", replicas__max="4"), kedas)
    assert registry.workloads[0].replicas == Replicas(min=1, max=4)


def test_hpa_of_another_object_sets_no_bounds(cluster):
    other_hpas = hpa(of="llama"), hpa(namespace="other")
    registry = cluster().take(deployment(engine="vllm", replicas__min="3", replicas__max="4"), *other_hpas)
    assert registry.workloads[0].replicas == Replicas(min=3, max=4)


def test_default_bounds_apply_with_a_warning(cluster):
    registry = cluster().take(deployment(engine="vllm"))
    assert registry.workloads[0].replicas == Replicas()
    assert errors(registry) == []
    assert any(
        "no HorizontalPodAutoscaler scales it: from 0 to 10 replicas" in str(each) for each in registry.object_errors
    )


def test_invalid_bounds_are_an_error_of_the_hpa(cluster):
    registry = cluster().take(deployment(engine="vllm"), hpa(maximum=20_000))
    assert registry.workloads == ()
    assert errors(registry) == [
        "ai/Deployment/chat: spec.maxReplicas: of ai/HorizontalPodAutoscaler/chat must be from 1 to 10000, got '20000'"
    ]


def test_every_invalid_annotation_is_reported(cluster):
    registry = cluster().take(deployment(engine="vlm", keep_warm="soon", workload="x", replicas__min="5"))
    assert [problem.key for problem in registry.object_errors if problem.severity == "error"] == [
        "tidegate.dev/engine",
        "tidegate.dev/keep_warm",
        "tidegate.dev/workload",
    ]


def test_configuration_takes_precedence_over_annotations(cluster):
    registry = cluster(configured("chat")).take(deployment(engine="sglang"))
    assert registry.workloads == (configured("chat"),)
    assert errors(registry) == [
        "ai/Deployment/chat: tidegate.dev/: are ignored: Tidegate's configuration configures ai/chat"
    ]


def test_scaled_object_with_a_trigger_of_tidegate_takes_precedence_over_annotations(cluster):
    registry = cluster().take(
        scaled("scaler", trigger(engine="vllm"), target=Ref("ai", "Deployment", "chat")), deployment(engine="sglang")
    )
    assert names(registry) == ["ai/scaler"]
    assert errors(registry) == [
        "ai/Deployment/chat: tidegate.dev/: are ignored: ai/ScaledObject/scaler configures ai/chat"
    ]


def test_scaled_object_with_a_refused_trigger_takes_precedence_over_annotations(cluster):
    registry = cluster().take(scaled("chat", trigger(engine="vlm")), deployment(engine="sglang"))
    assert names(registry) == []


def test_scaled_object_of_another_scaler_does_not_affect_annotations(cluster):
    registry = cluster().take(scaled("chat", trigger(address="x:1", query="q")), deployment(engine="sglang"))
    assert names(registry) == ["ai/chat"]


def test_call_is_not_authorized_by_annotations(cluster):
    registry = cluster().take(deployment(engine="vllm"))
    assert detail(registry, engine="vllm").startswith("no ScaledObject of that name is known")


def test_annotations_inherited_from_an_owner_make_one_workload(cluster):
    rollout = deployment(kind="Rollout", engine="vllm", replicas__min="1")
    registry = cluster().take(rollout, deployment("chat-7d9f", owner=rollout.ref, engine="vllm", replicas__min="1"))
    assert names(registry) == ["ai/chat"]
    assert errors(registry) == []


def test_inference_service_is_scaled_through_its_deployments(cluster):
    service = deployment(kind="InferenceService", engine="vllm")
    registry = cluster().take(service, deployment("chat-predictor", owner=service.ref, engine="vllm"))
    assert names(registry) == ["ai/chat-predictor"]


def test_only_one_of_two_kinds_with_one_name_has_the_key(cluster):
    registry = cluster().take(deployment(kind="StatefulSet", engine="vllm"), deployment(engine="vllm"))
    assert [str(target) for target in registry.targets.values()] == ["ai/Deployment/chat"]
    assert errors(registry) == [
        "ai/StatefulSet/chat: tidegate.dev/: are ignored: ai/Deployment/chat configures ai/chat"
    ]


def test_mode_observe_makes_an_observed_workload(cluster):
    (workload,) = cluster().take(deployment(engine="vllm", mode="observe")).workloads
    assert workload.mode == "observe"


def test_annotations_use_shared_gateways_like_triggers(cluster):
    shared = SharedGateway(name="llm-d", namespaces=("ai",), page={"url": "http://llm-d.infra.svc:9090/metrics"})
    registry = cluster(gateways=(shared,)).take(
        deployment("a", engine="vllm", gateway="llm-d", model="m"),
        deployment("b", "other", engine="vllm", gateway="llm-d", model="m"),
    )
    assert [workload.gateway.url for workload in registry.workloads] == [shared.page.url, None]


def test_disabled_annotations_are_not_read(cluster):
    registry = cluster(kubernetes={"annotations": False}).take(
        deployment(engine="vllm"), scaled("x", trigger(engine="vllm"))
    )
    assert names(registry) == ["ai/x"]
