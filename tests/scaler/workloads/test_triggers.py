"""Tests the workloads made from the triggers of a ScaledObject."""

import pytest

from exporter.kubernetes.objects import Ref
from exporter.model import WorkloadKey
from scaler.config import Endpoint, Replicas, SharedGateway
from scaler.workloads import Doubt, RejectedCall
from tests.scaler.workloads.objects import ADDRESS, configured, deployment, errors, names, refusal, scaled, trigger

CHAT = WorkloadKey("ai", "chat")


def test_two_keys_are_enough_for_a_workload(cluster):
    registry = cluster().take(scaled("chat", trigger(engine="vllm")))
    (workload,) = registry.workloads
    assert (workload.key, workload.engine, workload.pods.target) == (CHAT, "vllm", "Deployment/chat")
    assert workload.replicas == Replicas(min=0, max=100)
    assert registry.targets == {CHAT: Ref("ai", "Deployment", "chat")}
    assert registry.authorize("ai", "chat", {"scalerAddress": ADDRESS, "engine": "vllm"}) == CHAT


def test_scale_target_is_that_of_the_scaled_object(cluster):
    target = Ref("ai", "StatefulSet", "chat-engine")
    registry = cluster().take(scaled("chat", trigger(engine="vllm"), target=target))
    assert registry.workloads[0].pods.target == "StatefulSet/chat-engine"
    assert registry.targets[CHAT] == target


def test_scaled_job_is_its_own_target_and_may_have_no_job(cluster):
    registry = cluster().take(scaled("batch", trigger(engine="vllm"), kind="ScaledJob", minimum=3, maximum=7))
    assert registry.targets == {WorkloadKey("ai", "batch"): Ref("ai", "ScaledJob", "batch")}
    assert registry.workloads[0].replicas == Replicas(min=0, max=7)


@pytest.mark.parametrize(
    ("counts", "replicas"),
    [
        ({}, Replicas(min=0, max=100)),
        ({"minimum": 2, "maximum": 8}, Replicas(min=2, max=8)),
        ({"minimum": 2, "maximum": 8, "idle": 0}, Replicas(min=2, max=8, idle=0)),
    ],
)
def test_bounds_are_those_of_the_scaled_object(cluster, counts, replicas):
    (workload,) = cluster().take(scaled("chat", trigger(engine="vllm"), **counts)).workloads
    assert workload.replicas == replicas


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"minimum": 9, "maximum": 8}, "spec.minReplicaCount: must be at most"),
        ({"minimum": -1}, "spec.minReplicaCount: must be from 0"),
        ({"maximum": 0}, "spec.maxReplicaCount: must be from 1"),
        ({"minimum": 2, "idle": 1}, "spec.idleReplicaCount: must be 0"),
    ],
)
def test_invalid_bounds_are_an_error_of_the_object_and_of_its_calls(cluster, counts, expected):
    registry = cluster().take(scaled("chat", trigger(engine="vllm"), **counts))
    assert names(registry) == []
    assert [problem.startswith(f"ai/ScaledObject/chat: {expected}") for problem in errors(registry)] == [True]
    doubt, sentence = refusal(registry, engine="vllm")
    assert doubt is Doubt.INVALID
    assert sentence.startswith(expected)


def test_every_trigger_is_a_workload_with_its_name_or_number(cluster):
    registry = cluster().take(
        scaled(
            "chat",
            trigger(engine="vllm"),
            trigger(name="decode", engine="sglang"),
            trigger(type="cpu", value="80"),
            trigger(engine="llamacpp"),
            trigger(type="external", engine="triton"),
        )
    )
    assert names(registry) == ["ai/chat", "ai/chat/1", "ai/chat/2", "ai/chat/decode"]
    keys = [
        str(registry.authorize("ai", "chat", {"engine": engine})) for engine in ("vllm", "sglang", "llamacpp", "triton")
    ]
    assert keys == ["ai/chat", "ai/chat/decode", "ai/chat/1", "ai/chat/2"]


def test_two_triggers_with_the_same_metadata_are_one(cluster):
    registry = cluster().take(scaled("chat", trigger(engine="vllm"), trigger(name="twin", engine="vllm")))
    assert names(registry) == ["ai/chat"]
    assert errors(registry) == [
        (
            "ai/ScaledObject/chat: spec.triggers.1.metadata: must differ from that of spec.triggers.0: "
            "KEDA's calls would not tell them apart"
        )
    ]
    assert registry.authorize("ai", "chat", {"engine": "vllm"}) == CHAT


def test_trigger_name_that_equals_a_numbered_key_is_an_error(cluster):
    registry = cluster().take(
        scaled("chat", trigger(engine="vllm"), trigger(engine="llamacpp"), trigger(name="1", engine="sglang"))
    )
    assert names(registry) == ["ai/chat", "ai/chat/1"]
    assert errors(registry) == [
        (
            "ai/ScaledObject/chat: spec.triggers.2.name: must be another: "
            "ai/ScaledObject/chat has the workload ai/chat/1, got '1'"
        )
    ]
    assert refusal(registry, engine="sglang")[0] is Doubt.INVALID


@pytest.mark.parametrize("name", ["a/b", "-a", "a b", "ä", "a" * 64])
def test_trigger_name_that_is_no_label_is_refused(cluster, name):
    registry = cluster().take(scaled("chat", trigger(name=name, engine="vllm")))
    assert names(registry) == []
    assert errors(registry)[0].startswith("ai/ScaledObject/chat: spec.triggers.0.name: must be letters, digits")


def test_all_errors_are_in_the_log_and_in_the_rejection(cluster):
    keys = {"engine": "vlm", "kep_warm": "5m", "keep_warm": "soon"}
    registry = cluster().take(scaled("chat", trigger(**keys)))
    assert [problem.key for problem in registry.object_errors] == [
        "spec.triggers.0.metadata.engine",
        "spec.triggers.0.metadata.keep_warm",
        "spec.triggers.0.metadata.kep_warm",
    ]
    doubt, sentence = refusal(registry, **keys)
    assert doubt is Doubt.INVALID
    for part in ("metadata.engine: must be one of", "'vlm'", "metadata.kep_warm: unknown key", "got 'soon'"):
        assert part in sentence


def test_key_from_the_environment_is_refused_without_its_value(cluster):
    registry = cluster().take(scaled("chat", trigger(engineFromEnv="ENGINE")))
    assert errors(registry)[0].startswith(
        "ai/ScaledObject/chat: spec.triggers.0.metadata.engineFromEnv: is not resolved"
    )
    doubt, sentence = refusal(registry, engineFromEnv="hunter2")
    assert doubt is Doubt.INVALID
    assert "hunter2" not in sentence


@pytest.mark.parametrize(
    "foreign",
    [
        trigger(address="other.team.svc:8080", threshold="5"),
        trigger(address="other.team.svc:8080", engine="vllm", threshold="5"),
        trigger(address="other.team.svc:8080", mode="fast", path="/x"),
        trigger(address="other.team.svc:8080"),
        trigger(type="prometheus", engine="vlm"),
        trigger(address="scaler.tidegate.svc:6000", query="x"),
    ],
    ids=["foreign key", "one foreign key", "common keys", "no keys", "another type", "another host"],
)
def test_trigger_of_another_scaler_is_no_error(cluster, foreign):
    registry = cluster().take(scaled("chat", foreign, trigger(engine="vllm")))
    assert names(registry) == ["ai/chat"]
    assert errors(registry) == []


def test_call_for_an_unrecognised_trigger_gets_its_errors(cluster):
    keys = {"engine": "vllm", "thresold": "5"}
    registry = cluster().take(scaled("chat", trigger(address="scaler:6000", **keys)))
    assert errors(registry) == []
    assert refusal(registry, **keys) == (
        Doubt.INVALID,
        refusal(cluster().take(scaled("chat", trigger(**keys))), **keys)[1],
    )


@pytest.mark.parametrize(
    "address", ["tidegate:6000", "tidegate-blue.ops.svc.cluster.local:6000", "dns:///tidegate.ops:6000"]
)
def test_trigger_at_an_address_of_tidegate_is_ours_with_any_metadata(cluster, address):
    registry = cluster().take(scaled("chat", trigger(address=address, enigne="vllm")))
    assert "did you mean engine?" in errors(registry)[0]


def test_trigger_at_any_address_is_ours_by_its_metadata(cluster):
    assert names(cluster().take(scaled("chat", trigger(address="gpu-scaler:6000", engine="vllm")))) == ["ai/chat"]


def test_trigger_that_names_a_configured_workload_sets_only_its_target(cluster):
    llama = configured("llama")
    registry = cluster(llama).take(scaled("chat", trigger(workload="llama")))
    assert registry.workloads == (llama,)
    assert registry.targets == {llama.key: Ref("ai", "Deployment", "chat")}
    assert registry.authorize("ai", "chat", {"workload": "llama"}) == llama.key


def test_trigger_without_keys_is_the_configured_workload_of_its_name(cluster):
    registry = cluster(configured("chat")).take(scaled("chat", trigger(address="gpu-scaler:6000")))
    assert registry.workloads == (configured("chat"),)
    assert registry.authorize("ai", "chat", {"scalerAddress": "gpu-scaler:6000"}) == CHAT
    assert registry.object_errors == ()


def test_configured_workload_of_another_namespace_cannot_be_named(cluster):
    registry = cluster(configured("llama", namespace="other")).take(scaled("chat", trigger(workload="llama")))
    doubt, sentence = refusal(registry, workload="llama")
    assert doubt is Doubt.NOT_CONFIGURED
    assert sentence.startswith("ai/llama: no such workload. Add it to Tidegate's configuration")
    assert errors(registry) == [
        (
            "ai/ScaledObject/chat: spec.triggers.0.metadata.workload: "
            "must be a workload of this namespace in Tidegate's configuration, got 'llama'"
        )
    ]


def test_configuration_takes_precedence_over_a_trigger(cluster):
    registry = cluster(configured("chat")).take(scaled("chat", trigger(engine="sglang")))
    assert registry.workloads == (configured("chat"),)
    doubt, sentence = refusal(registry, engine="sglang")
    assert doubt is Doubt.INVALID
    assert "the workload ai/chat is in Tidegate's configuration, which takes precedence" in sentence


def test_call_for_an_observed_workload_is_rejected_without_an_error(cluster):
    registry = cluster(configured("llama", mode="observe")).take(scaled("chat", trigger(workload="llama")))
    assert registry.object_errors == ()
    assert refusal(registry, workload="llama")[0] is Doubt.OBSERVED


def test_observe_mode_of_the_configuration_applies_to_triggers(cluster):
    registry = cluster(mode="observe").take(scaled("chat", trigger(engine="vllm")))
    assert [str(workload.key) for workload in registry.workloads] == ["ai/chat"]
    assert refusal(registry, engine="vllm")[0] is Doubt.OBSERVED


def test_workload_with_mode_act_acts_in_observe_mode(cluster):
    registry = cluster(configured("llama", mode="act"), configured("chat"), mode="observe").take(
        scaled("a", trigger(workload="llama")), scaled("b", trigger(workload="chat"))
    )
    assert registry.authorize("ai", "a", {"workload": "llama"}) == configured("llama").key
    with pytest.raises(RejectedCall, match="only observed"):
        registry.authorize("ai", "b", {"workload": "chat"})


def test_mode_of_a_trigger_takes_precedence(cluster):
    acts, observes = {"engine": "vllm", "mode": "act"}, {"engine": "vllm", "mode": "observe"}
    assert cluster(mode="observe").take(scaled("chat", trigger(**acts))).authorize("ai", "chat", acts).name == "chat"
    assert refusal(cluster().take(scaled("chat", trigger(**observes))), **observes)[0] is Doubt.OBSERVED


def test_configured_target_takes_precedence(cluster):
    llama = configured("llama").model_copy(update={"pods": Endpoint(target="StatefulSet/llama-engine")})
    registry = cluster(llama).take(scaled("chat", trigger(workload="llama")))
    assert registry.targets == {llama.key: Ref("ai", "StatefulSet", "llama-engine")}


def test_workload_with_two_scale_targets_has_no_known_target(cluster):
    registry = cluster(configured("llama")).take(
        scaled("a", trigger(workload="llama")), scaled("b", trigger(workload="llama"))
    )
    assert registry.targets == {}
    assert errors(registry) == [
        (
            "ai/ScaledObject/b: spec.scaleTargetRef: must be Deployment/a, which ai/ScaledObject/a scales: "
            "both name ai/llama, and so its replicas are unknown, got 'Deployment/b'"
        )
    ]


def test_only_one_of_a_scaled_object_and_a_scaled_job_of_one_name_has_the_key(cluster):
    registry = cluster().take(
        scaled("chat", trigger(engine="vllm")), scaled("chat", trigger(engine="llamacpp"), kind="ScaledJob")
    )
    assert [workload.engine for workload in registry.workloads] == ["llamacpp"]
    assert registry.authorize("ai", "chat", {"engine": "llamacpp"}) == CHAT
    assert refusal(registry, engine="vllm")[0] is Doubt.INVALID


SHARED = SharedGateway(name="llm-d", namespaces=("ai",), page=Endpoint(url="http://llm-d.infra.svc:9090/metrics"))


def test_shared_gateway_is_used_in_its_namespaces(cluster):
    registry = cluster(gateways=(SHARED,)).take(scaled("chat", trigger(engine="vllm", gateway="llm-d", model="m")))
    assert registry.workloads[0].gateway == SHARED.page
    assert registry.object_errors == ()


def test_shared_gateway_is_not_visible_in_other_namespaces(cluster):
    registry = cluster(gateways=(SHARED,)).take(
        scaled("chat", trigger(engine="vllm", gateway="llm-d", model="m"), namespace="other")
    )
    assert registry.workloads[0].gateway.service == "llm-d"
    assert registry.object_errors == ()


def test_gateway_for_all_namespaces_is_visible_in_all(cluster):
    shared = SHARED.model_copy(update={"namespaces": ("*",)})
    registry = cluster(gateways=(shared,)).take(
        scaled("chat", trigger(engine="vllm", gateway="llm-d", model="m"), namespace="other")
    )
    assert registry.workloads[0].gateway == shared.page


def test_unsupported_kind_is_an_error_of_the_scale_target(cluster):
    registry = cluster().take(scaled("chat", trigger(engine="vllm"), target=Ref("ai", "Deploy", "chat")))
    assert names(registry) == []
    assert errors(registry)[0].startswith("ai/ScaledObject/chat: spec.scaleTargetRef: must be KIND/NAME, KIND one of")


def test_name_that_is_no_dns_label_is_an_error_of_its_object(cluster):
    name = "a" * 100
    target = Ref("ai", "Deployment", "chat")
    registry = cluster().take(
        scaled(name, trigger(engine="vllm"), target=target), scaled("good", trigger(engine="vllm"))
    )
    assert names(registry) == ["ai/good"]
    assert [problem.key for problem in registry.object_errors if problem.severity == "error"] == ["object.name"]
    assert "must be the name of a Kubernetes workload" in refusal(registry, name, engine="vllm")[1]


def test_disabled_triggers_are_not_read(cluster):
    off = cluster(configured("chat"), kubernetes={"triggers": False})
    registry = off.take(scaled("chat", trigger(engine="vllm")), deployment("notes", engine="vllm"))
    assert names(registry) == ["ai/chat", "ai/notes"]
    assert registry.objects == {}
