"""What a ScaledObject's triggers make."""

import pytest

from exporter.kubernetes.objects import Ref
from exporter.model import WorkloadKey
from scaler.config import Endpoint, Replicas, SharedGateway
from scaler.workloads import Doubt, RejectedCall
from tests.scaler.workloads.objects import ADDRESS, configured, deployment, names, refusal, said, scaled, trigger

CHAT = WorkloadKey("ai", "chat")


def test_two_lines_make_a_workload_of_everything_else_that_is_found(cluster):
    census = cluster().take(scaled("chat", trigger(engine="vllm")))
    (workload,) = census.workloads
    assert (workload.key, workload.engine, workload.pods.target) == (CHAT, "vllm", "Deployment/chat")
    assert workload.replicas == Replicas(min=0, max=100)
    assert census.targets == {CHAT: Ref("ai", "Deployment", "chat")}
    assert census.authorize("ai", "chat", {"scalerAddress": ADDRESS, "engine": "vllm"}) == CHAT


def test_the_target_is_what_the_scaled_object_says_whatever_its_own_name(cluster):
    target = Ref("ai", "StatefulSet", "chat-engine")
    census = cluster().take(scaled("chat", trigger(engine="vllm"), target=target))
    assert census.workloads[0].pods.target == "StatefulSet/chat-engine"
    assert census.targets[CHAT] == target


def test_a_scaled_job_is_its_own_target_and_may_rest_at_zero(cluster):
    census = cluster().take(scaled("batch", trigger(engine="vllm"), kind="ScaledJob", minimum=3, maximum=7))
    assert census.targets == {WorkloadKey("ai", "batch"): Ref("ai", "ScaledJob", "batch")}
    assert census.workloads[0].replicas == Replicas(min=0, max=7)


@pytest.mark.parametrize(
    ("counts", "replicas"),
    [
        ({}, Replicas(min=0, max=100)),
        ({"minimum": 2, "maximum": 8}, Replicas(min=2, max=8)),
        ({"minimum": 2, "maximum": 8, "idle": 0}, Replicas(min=2, max=8, idle=0)),
    ],
)
def test_the_bounds_are_the_scaled_objects(cluster, counts, replicas):
    (workload,) = cluster().take(scaled("chat", trigger(engine="vllm"), **counts)).workloads
    assert workload.replicas == replicas


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"minimum": 9, "maximum": 8}, "spec.minReplicaCount: must be at most"),
        ({"minimum": -1}, "spec.minReplicaCount: must be from 0"),
        ({"maximum": 0}, "spec.maxReplicaCount: must be from 1"),
        ({"minimum": 2, "idle": 1}, "spec.idleReplicaCount: must be 0"),
    ],
)
def test_bounds_that_cannot_be_are_that_objects_trouble_and_its_calls_hear_it(cluster, counts, words):
    census = cluster().take(scaled("chat", trigger(engine="vllm"), **counts))
    assert names(census) == []
    assert [trouble.startswith(f"ai/ScaledObject/chat: {words}") for trouble in said(census)] == [True]
    doubt, sentence = refusal(census, engine="vllm")
    assert doubt is Doubt.INVALID
    assert sentence.startswith(words)


def test_every_trigger_of_ours_is_a_workload_by_its_name_or_its_number(cluster):
    census = cluster().take(
        scaled(
            "chat",
            trigger(engine="vllm"),
            trigger(name="decode", engine="sglang"),
            trigger(type="cpu", value="80"),
            trigger(engine="llamacpp"),
            trigger(type="external", engine="triton"),
        )
    )
    assert names(census) == ["ai/chat", "ai/chat/1", "ai/chat/2", "ai/chat/decode"]
    keys = [
        str(census.authorize("ai", "chat", {"engine": engine})) for engine in ("vllm", "sglang", "llamacpp", "triton")
    ]
    assert keys == ["ai/chat", "ai/chat/decode", "ai/chat/1", "ai/chat/2"]


def test_two_triggers_with_the_same_words_are_one_because_a_call_does_not_say_which(cluster):
    census = cluster().take(scaled("chat", trigger(engine="vllm"), trigger(name="twin", engine="vllm")))
    assert names(census) == ["ai/chat"]
    assert said(census) == [
        (
            "ai/ScaledObject/chat: spec.triggers.1.metadata: must differ from that of spec.triggers.0: "
            "KEDA's calls would not tell them apart"
        )
    ]
    assert census.authorize("ai", "chat", {"engine": "vllm"}) == CHAT


def test_a_trigger_named_as_a_numbered_one_is_called_cannot_have_its_key(cluster):
    census = cluster().take(
        scaled("chat", trigger(engine="vllm"), trigger(engine="llamacpp"), trigger(name="1", engine="sglang"))
    )
    assert names(census) == ["ai/chat", "ai/chat/1"]
    assert said(census) == [
        (
            "ai/ScaledObject/chat: spec.triggers.2.name: must be another: "
            "ai/ScaledObject/chat has the workload ai/chat/1, got '1'"
        )
    ]
    assert refusal(census, engine="sglang")[0] is Doubt.INVALID


@pytest.mark.parametrize("name", ["a/b", "-a", "a b", "ä", "a" * 64])
def test_a_trigger_name_that_is_no_label_is_refused(cluster, name):
    census = cluster().take(scaled("chat", trigger(name=name, engine="vllm")))
    assert names(census) == []
    assert said(census)[0].startswith("ai/ScaledObject/chat: spec.triggers.0.name: must be letters, digits")


def test_all_that_is_wrong_with_the_words_is_said_to_the_log_and_to_the_call(cluster):
    words = {"engine": "vlm", "kep_warm": "5m", "keep_warm": "soon"}
    census = cluster().take(scaled("chat", trigger(**words)))
    assert [trouble.key for trouble in census.object_errors] == [
        "spec.triggers.0.metadata.engine",
        "spec.triggers.0.metadata.keep_warm",
        "spec.triggers.0.metadata.kep_warm",
    ]
    doubt, sentence = refusal(census, **words)
    assert doubt is Doubt.INVALID
    for part in ("metadata.engine: must be one of", "'vlm'", "metadata.kep_warm: unknown key", "got 'soon'"):
        assert part in sentence


def test_a_word_from_the_environment_is_refused_without_its_value(cluster):
    census = cluster().take(scaled("chat", trigger(engineFromEnv="ENGINE")))
    assert said(census)[0].startswith("ai/ScaledObject/chat: spec.triggers.0.metadata.engineFromEnv: is not resolved")
    doubt, sentence = refusal(census, engineFromEnv="hunter2")
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
    ids=["foreign word", "one foreign word", "common words", "no words", "another type", "another host"],
)
def test_somebody_elses_trigger_is_nobodys_trouble(cluster, foreign):
    census = cluster().take(scaled("chat", foreign, trigger(engine="vllm")))
    assert names(census) == ["ai/chat"]
    assert said(census) == []


def test_a_call_for_a_trigger_that_seemed_somebody_elses_hears_what_is_wrong_with_it(cluster):
    words = {"engine": "vllm", "thresold": "5"}
    census = cluster().take(scaled("chat", trigger(address="scaler:6000", **words)))
    assert said(census) == []
    assert refusal(census, **words) == (
        Doubt.INVALID,
        refusal(cluster().take(scaled("chat", trigger(**words))), **words)[1],
    )


@pytest.mark.parametrize(
    "address", ["tidegate:6000", "tidegate-blue.ops.svc.cluster.local:6000", "dns:///tidegate.ops:6000"]
)
def test_a_trigger_at_an_address_that_begins_with_tidegate_is_ours_whatever_its_words(cluster, address):
    census = cluster().take(scaled("chat", trigger(address=address, enigne="vllm")))
    assert "did you mean engine?" in said(census)[0]


def test_a_trigger_at_any_address_is_ours_by_its_words(cluster):
    assert names(cluster().take(scaled("chat", trigger(address="gpu-scaler:6000", engine="vllm")))) == ["ai/chat"]


def test_a_trigger_that_names_a_configured_workload_makes_none_and_shows_what_it_scales(cluster):
    llama = configured("llama")
    census = cluster(llama).take(scaled("chat", trigger(workload="llama")))
    assert census.workloads == (llama,)
    assert census.targets == {llama.key: Ref("ai", "Deployment", "chat")}
    assert census.authorize("ai", "chat", {"workload": "llama"}) == llama.key


def test_a_trigger_without_words_is_the_configured_workload_of_its_objects_name(cluster):
    census = cluster(configured("chat")).take(scaled("chat", trigger(address="gpu-scaler:6000")))
    assert census.workloads == (configured("chat"),)
    assert census.authorize("ai", "chat", {"scalerAddress": "gpu-scaler:6000"}) == CHAT
    assert census.object_errors == ()


def test_a_configured_workload_of_another_namespace_cannot_be_named(cluster):
    census = cluster(configured("llama", namespace="other")).take(scaled("chat", trigger(workload="llama")))
    doubt, sentence = refusal(census, workload="llama")
    assert doubt is Doubt.NOT_CONFIGURED
    assert sentence.startswith("ai/llama: no such workload. Add it to Tidegate's configuration")
    assert said(census) == [
        (
            "ai/ScaledObject/chat: spec.triggers.0.metadata.workload: "
            "must be a workload of this namespace in Tidegate's configuration, got 'llama'"
        )
    ]


def test_the_configurations_word_holds_against_a_triggers_words(cluster):
    census = cluster(configured("chat")).take(scaled("chat", trigger(engine="sglang")))
    assert census.workloads == (configured("chat"),)
    doubt, sentence = refusal(census, engine="sglang")
    assert doubt is Doubt.INVALID
    assert "the workload ai/chat is in Tidegate's configuration, which wins" in sentence


def test_an_observed_workload_is_told_to_nobody_and_that_is_no_trouble(cluster):
    census = cluster(configured("llama", mode="observe")).take(scaled("chat", trigger(workload="llama")))
    assert census.object_errors == ()
    assert refusal(census, workload="llama")[0] is Doubt.OBSERVED


def test_where_all_are_observed_what_a_trigger_makes_is_decided_and_told_to_nobody(cluster):
    census = cluster(mode="observe").take(scaled("chat", trigger(engine="vllm")))
    assert [str(workload.key) for workload in census.workloads] == ["ai/chat"]
    assert refusal(census, engine="vllm")[0] is Doubt.OBSERVED


def test_where_all_are_observed_the_one_that_says_so_acts(cluster):
    census = cluster(configured("llama", mode="act"), configured("chat"), mode="observe").take(
        scaled("a", trigger(workload="llama")), scaled("b", trigger(workload="chat"))
    )
    assert census.authorize("ai", "a", {"workload": "llama"}) == configured("llama").key
    with pytest.raises(RejectedCall, match="only observed"):
        census.authorize("ai", "b", {"workload": "chat"})


def test_a_triggers_own_word_on_looking_on_holds_against_that_of_all(cluster):
    acts, looks_on = {"engine": "vllm", "mode": "act"}, {"engine": "vllm", "mode": "observe"}
    assert cluster(mode="observe").take(scaled("chat", trigger(**acts))).authorize("ai", "chat", acts).name == "chat"
    assert refusal(cluster().take(scaled("chat", trigger(**looks_on))), **looks_on)[0] is Doubt.OBSERVED


def test_a_configured_workloads_own_target_is_its_target(cluster):
    llama = configured("llama").model_copy(update={"pods": Endpoint(target="StatefulSet/llama-engine")})
    census = cluster(llama).take(scaled("chat", trigger(workload="llama")))
    assert census.targets == {llama.key: Ref("ai", "StatefulSet", "llama-engine")}


def test_a_workload_that_two_objects_scale_differently_has_no_known_target(cluster):
    census = cluster(configured("llama")).take(
        scaled("a", trigger(workload="llama")), scaled("b", trigger(workload="llama"))
    )
    assert census.targets == {}
    assert said(census) == [
        (
            "ai/ScaledObject/b: spec.scaleTargetRef: must be Deployment/a, which ai/ScaledObject/a scales: "
            "both name ai/llama, and so its replicas are unknown, got 'Deployment/b'"
        )
    ]


def test_a_scaled_object_and_a_scaled_job_of_one_name_are_two_and_one_has_the_key(cluster):
    census = cluster().take(
        scaled("chat", trigger(engine="vllm")), scaled("chat", trigger(engine="llamacpp"), kind="ScaledJob")
    )
    assert [workload.engine for workload in census.workloads] == ["llamacpp"]
    assert census.authorize("ai", "chat", {"engine": "llamacpp"}) == CHAT
    assert refusal(census, engine="vllm")[0] is Doubt.INVALID


SHARED = SharedGateway(name="llm-d", namespaces=("ai",), page=Endpoint(url="http://llm-d.infra.svc:9090/metrics"))


def test_a_shared_gateway_is_named_where_it_is_allowed(cluster):
    census = cluster(gateways=(SHARED,)).take(scaled("chat", trigger(engine="vllm", gateway="llm-d", model="m")))
    assert census.workloads[0].gateway == SHARED.page
    assert census.object_errors == ()


def test_a_shared_gateway_does_not_exist_where_it_is_not_allowed(cluster):
    census = cluster(gateways=(SHARED,)).take(
        scaled("chat", trigger(engine="vllm", gateway="llm-d", model="m"), namespace="other")
    )
    assert census.workloads[0].gateway.service == "llm-d"
    assert census.object_errors == ()


def test_a_gateway_for_everybody_is_for_everybody(cluster):
    shared = SHARED.model_copy(update={"namespaces": ("*",)})
    census = cluster(gateways=(shared,)).take(
        scaled("chat", trigger(engine="vllm", gateway="llm-d", model="m"), namespace="other")
    )
    assert census.workloads[0].gateway == shared.page


def test_a_kind_whose_pods_cannot_be_found_is_said_of_the_scale_target(cluster):
    census = cluster().take(scaled("chat", trigger(engine="vllm"), target=Ref("ai", "Deploy", "chat")))
    assert names(census) == []
    assert said(census)[0].startswith("ai/ScaledObject/chat: spec.scaleTargetRef: must be KIND/NAME, KIND one of")


def test_a_name_that_kubernetes_allows_and_dns_does_not_is_that_objects_trouble(cluster):
    name = "a" * 100
    target = Ref("ai", "Deployment", "chat")
    census = cluster().take(scaled(name, trigger(engine="vllm"), target=target), scaled("good", trigger(engine="vllm")))
    assert names(census) == ["ai/good"]
    assert [trouble.key for trouble in census.object_errors if trouble.severity == "error"] == ["object.name"]
    assert "must be the name of a Kubernetes workload" in refusal(census, name, engine="vllm")[1]


def test_triggers_turned_off_are_not_looked_at(cluster):
    off = cluster(configured("chat"), kubernetes={"triggers": False})
    census = off.take(scaled("chat", trigger(engine="vllm")), deployment("notes", engine="vllm"))
    assert names(census) == ["ai/chat", "ai/notes"]
    assert census.objects == {}
