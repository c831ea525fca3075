"""What `tidegate.dev/…` annotations make."""

import pytest

from exporter.kubernetes.objects import Ref
from exporter.model import WorkloadKey
from scaler.config import Replicas, SharedGateway
from tests.scaler.workloads.objects import configured, deployment, detail, hpa, names, said, scaled, trigger

CHAT = WorkloadKey("ai", "chat")


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "LeaderWorkerSet", "Rollout"])
def test_annotations_make_a_workload_of_what_they_stand_on(cluster, kind):
    census = cluster().take(deployment(kind=kind, engine="vllm", replicas__min="1", replicas__max="4"))
    (workload,) = census.workloads
    assert (workload.key, workload.pods.target, workload.replicas) == (CHAT, f"{kind}/chat", Replicas(min=1, max=4))
    assert census.targets == {CHAT: Ref("ai", kind, "chat")}
    assert census.object_errors == ()


def test_an_object_without_annotations_is_nobodys_workload(cluster):
    assert cluster().take(deployment(), hpa()).workloads == ()


def test_what_is_said_to_the_linter_makes_no_workload_and_is_no_unknown_word(cluster):
    ignore = {"check-ignore": "TG061 because the gateway drains"}
    assert cluster().take(deployment(**ignore)) == cluster().take(deployment())
    census = cluster().take(deployment(engine="vllm", replicas__min="1", replicas__max="4", **ignore))
    assert (names(census), census.object_errors) == (["ai/chat"], ())
    assert said(cluster().take(scaled("chat", trigger(engine="vllm"), annotations=ignore))) == []


def test_the_bounds_are_those_of_its_horizontal_pod_autoscaler(cluster):
    census = cluster().take(deployment(engine="vllm", replicas__min="1"), hpa(minimum=2, maximum=8))
    assert census.workloads[0].replicas == Replicas(min=2, max=8)
    (trouble,) = census.object_errors
    assert (trouble.key, trouble.severity) == ("tidegate.dev/replicas.min", "warning")
    assert trouble.message == "is not used: ai/HorizontalPodAutoscaler/chat has the bounds"


def test_an_autoscaler_that_keda_made_has_no_bounds_of_its_own(cluster):
    kedas = hpa(minimum=2, maximum=8, owner=Ref("ai", "ScaledObject", "chat"))
    census = cluster().take(deployment(engine="vllm", replicas__min="1", replicas__max="4"), kedas)
    assert census.workloads[0].replicas == Replicas(min=1, max=4)


def test_another_objects_autoscaler_is_not_its_own(cluster):
    others = hpa(of="llama"), hpa(namespace="other")
    census = cluster().take(deployment(engine="vllm", replicas__min="3", replicas__max="4"), *others)
    assert census.workloads[0].replicas == Replicas(min=3, max=4)


def test_without_any_bounds_the_default_holds_and_it_is_said(cluster):
    census = cluster().take(deployment(engine="vllm"))
    assert census.workloads[0].replicas == Replicas()
    assert said(census) == []
    assert any(
        "no HorizontalPodAutoscaler scales it: from 0 to 10 replicas" in str(each) for each in census.object_errors
    )


def test_bounds_that_no_workload_can_have_are_the_autoscalers_trouble(cluster):
    census = cluster().take(deployment(engine="vllm"), hpa(maximum=20_000))
    assert census.workloads == ()
    assert said(census) == [
        "ai/Deployment/chat: spec.maxReplicas: of ai/HorizontalPodAutoscaler/chat must be from 1 to 10000, got '20000'"
    ]


def test_every_wrong_annotation_is_said(cluster):
    census = cluster().take(deployment(engine="vlm", keep_warm="soon", workload="x", replicas__min="5"))
    assert [trouble.key for trouble in census.object_errors if trouble.severity == "error"] == [
        "tidegate.dev/engine",
        "tidegate.dev/keep_warm",
        "tidegate.dev/workload",
    ]


def test_the_configuration_speaks_before_annotations(cluster):
    census = cluster(configured("chat")).take(deployment(engine="sglang"))
    assert census.workloads == (configured("chat"),)
    assert said(census) == [
        "ai/Deployment/chat: tidegate.dev/: are ignored: Tidegate's configuration configures ai/chat"
    ]


def test_a_scaled_object_with_a_trigger_of_ours_speaks_before_annotations(cluster):
    census = cluster().take(
        scaled("scaler", trigger(engine="vllm"), target=Ref("ai", "Deployment", "chat")), deployment(engine="sglang")
    )
    assert names(census) == ["ai/scaler"]
    assert said(census) == ["ai/Deployment/chat: tidegate.dev/: are ignored: ai/ScaledObject/scaler configures ai/chat"]


def test_a_scaled_object_whose_trigger_is_refused_still_speaks_before_annotations(cluster):
    census = cluster().take(scaled("chat", trigger(engine="vlm")), deployment(engine="sglang"))
    assert names(census) == []


def test_a_scaled_object_of_somebody_elses_scaler_silences_nobody(cluster):
    census = cluster().take(scaled("chat", trigger(address="x:1", query="q")), deployment(engine="sglang"))
    assert names(census) == ["ai/chat"]


def test_a_call_cannot_speak_for_annotations(cluster):
    census = cluster().take(deployment(engine="vllm"))
    assert detail(census, engine="vllm").startswith("no ScaledObject of that name is known")


def test_annotations_that_an_owner_handed_down_make_one_workload(cluster):
    rollout = deployment(kind="Rollout", engine="vllm", replicas__min="1")
    census = cluster().take(rollout, deployment("chat-7d9f", owner=rollout.ref, engine="vllm", replicas__min="1"))
    assert names(census) == ["ai/chat"]
    assert said(census) == []


def test_an_inference_service_is_scaled_through_the_deployments_that_it_makes(cluster):
    service = deployment(kind="InferenceService", engine="vllm")
    census = cluster().take(service, deployment("chat-predictor", owner=service.ref, engine="vllm"))
    assert names(census) == ["ai/chat-predictor"]


def test_of_two_kinds_with_one_name_one_has_the_key(cluster):
    census = cluster().take(deployment(kind="StatefulSet", engine="vllm"), deployment(engine="vllm"))
    assert [str(target) for target in census.targets.values()] == ["ai/Deployment/chat"]
    assert said(census) == ["ai/StatefulSet/chat: tidegate.dev/: are ignored: ai/Deployment/chat configures ai/chat"]


def test_an_observed_workload_is_decided_like_any_other(cluster):
    (workload,) = cluster().take(deployment(engine="vllm", mode="observe")).workloads
    assert workload.mode == "observe"


def test_annotations_share_gateways_as_triggers_do(cluster):
    shared = SharedGateway(name="llm-d", namespaces=("ai",), page={"url": "http://llm-d.infra.svc:9090/metrics"})
    census = cluster(gateways=(shared,)).take(
        deployment("a", engine="vllm", gateway="llm-d", model="m"),
        deployment("b", "other", engine="vllm", gateway="llm-d", model="m"),
    )
    assert [workload.gateway.url for workload in census.workloads] == [shared.page.url, None]


def test_annotations_turned_off_are_not_looked_at(cluster):
    census = cluster(kubernetes={"annotations": False}).take(
        deployment(engine="vllm"), scaled("x", trigger(engine="vllm"))
    )
    assert names(census) == ["ai/x"]
