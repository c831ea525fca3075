"""Tests the authorization of callers."""

import pytest

from exporter.model import WorkloadKey
from scaler.workloads import Doubt
from tests.scaler.workloads.objects import ADDRESS, detail, refusal, scaled, trigger

CHAT = WorkloadKey("ai", "chat")
NOT_YOURS = (
    "{}: no watched ScaledObject or ScaledJob has an external trigger with this metadata. Changed a moment ago? The "
    "next call is checked again. What differs is in Tidegate's log"
)


@pytest.fixture
def registry(cluster):
    return cluster().take(scaled("chat", trigger(engine="vllm", keep_warm="10m")), scaled("cpu", trigger(type="cpu")))


def test_keys_and_references_of_keda_are_not_compared(registry):
    metadata = {
        "keep_warm": "10m",
        "engine": "vllm",
        "scalerAddress": "elsewhere:1",
        "enableTLS": "true",
        "xFromEnv": "?",
    }
    assert registry.authorize("ai", "chat", metadata) == CHAT


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (
            {"engine": "sglang", "keep_warm": "10m"},
            "metadata.engine: the ScaledObject says 'vllm', the call says 'sglang'",
        ),
        ({"engine": "vllm"}, "metadata.keep_warm: the ScaledObject says '10m', the call does not say it"),
        (
            {"engine": "vllm", "keep_warm": "10m", "model": "m"},
            "metadata.model: the ScaledObject does not say it, the call says 'm'",
        ),
        (
            {"workload": "chat"},
            "metadata.engine: the ScaledObject says 'vllm', the call does not say it; metadata.keep_warm:",
        ),
        ({"engine": "VLLM", "keep_warm": "10m"}, "metadata.engine:"),
        ({"engine": "vllm", "keep_warm": "600s"}, "metadata.keep_warm:"),
    ],
)
def test_mismatch_is_explained_to_the_operator_only(registry, metadata, expected):
    assert detail(registry, **metadata).startswith(expected)
    assert refusal(registry, **metadata) == (Doubt.MISMATCH, NOT_YOURS.format("ai/chat"))


@pytest.mark.parametrize("metadata", [{}, {"engine": "sglang"}, {"engine": "v" * 4_000_000}, {"k" * 2000: "v"}])
def test_rejection_does_not_reveal_whether_an_object_exists(registry, metadata):
    exists = refusal(registry, "chat", **metadata)
    for name in ("cpu", "made-up"):
        doubt, sentence = refusal(registry, name, **metadata)
        assert (doubt, sentence.replace(name, "chat")) == exists


def test_mismatch_is_explained_against_the_most_similar_trigger(cluster):
    registry = cluster().take(scaled("chat", trigger(engine="sglang", model="b"), trigger(engine="vllm", model="a")))
    assert detail(registry, engine="vllm", model="c") == "metadata.model: the ScaledObject says 'a', the call says 'c'"


@pytest.mark.parametrize("name", [("made-up", "ai"), ("chat", "other"), ("", ""), ("Ünknown/" * 100_000, "x y")])
def test_unwatched_object_is_rejected_and_its_name_is_cut(registry, name):
    doubt, sentence = refusal(registry, *name, engine="vllm", keep_warm="10m")
    assert doubt is Doubt.MISMATCH
    assert "no ScaledObject of that name is known" in detail(registry, *name, engine="vllm", keep_warm="10m")
    assert sentence.isascii()
    assert len(sentence) < 400


def test_object_without_external_triggers_is_rejected(registry):
    assert refusal(registry, "cpu") == (Doubt.MISMATCH, NOT_YOURS.format("ai/cpu"))
    assert "has no trigger of type external or external-push" in detail(registry, "cpu")


def test_metadata_of_four_mebibytes_is_rejected_with_a_short_message(registry):
    for heap in ({f"k{i}": "v" * 40 for i in range(80_000)}, {"engine": "v" * 4_000_000}):
        doubt, sentence = refusal(registry, **heap)
        assert doubt is Doubt.INVALID
        assert len(sentence) < 300


@pytest.mark.parametrize(
    "keys",
    [
        {f"word-{i}": "x" for i in range(50_000)},
        {"engine": "x" * 1_000_000},
        {"x" * 1_000_000: "engine"},
        {f"enigne{i}": "\x00🦑" * 50 for i in range(60)},
        {f"enigne{i}": "ü" * 1000 for i in range(17)},  # 34 kB
    ],
    ids=["many", "long", "long key", "odd", "long together"],
)
def test_oversized_object_is_rejected_with_a_short_message(cluster, keys):
    registry = cluster().take(scaled("chat", trigger(**keys)), scaled("good", trigger(engine="vllm")))
    assert [str(workload.key) for workload in registry.workloads] == ["ai/good"]
    doubt, sentence = refusal(registry, **keys)
    assert doubt is Doubt.INVALID
    assert sentence.isascii()
    assert len(sentence) < 4000
    assert all(len(str(problem)) < 1000 for problem in registry.object_errors)


def test_at_most_64_triggers_are_read_with_an_error(cluster):
    registry = cluster().take(scaled("chat", *(trigger(engine="vllm", model=f"m{i}") for i in range(1000))))
    assert len(registry.workloads) == 64
    assert any(
        "spec.triggers: must be at most 64: the rest is not read" in str(each) for each in registry.object_errors
    )
    assert refusal(registry, engine="vllm", model="m999")[0] is Doubt.MISMATCH


def test_key_of_keda_may_be_long(cluster):
    metadata = {"scalerAddress": ADDRESS, "caCert": "PEM" * 1000, "engine": "vllm"}
    registry = cluster().take(scaled("chat", trigger(caCert="PEM" * 1000, engine="vllm")))
    assert registry.authorize("ai", "chat", metadata) == CHAT
