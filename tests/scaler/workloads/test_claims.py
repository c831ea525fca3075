"""Whom a call is believed to be."""

import pytest

from exporter.model import WorkloadKey
from scaler.workloads import Doubt
from tests.scaler.workloads.objects import ADDRESS, detail, refusal, scaled, trigger

CHAT = WorkloadKey("ai", "chat")
NOT_YOURS = (
    "{}: no watched ScaledObject or ScaledJob has an external trigger with this metadata. Changed a moment ago? The "
    "next call is answered anew. What differs is in Tidegate's log"
)


@pytest.fixture
def census(cluster):
    return cluster().take(scaled("chat", trigger(engine="vllm", keep_warm="10m")), scaled("cpu", trigger(type="cpu")))


def test_kedas_own_keys_and_what_it_resolves_are_not_compared(census):
    said = {"keep_warm": "10m", "engine": "vllm", "scalerAddress": "elsewhere:1", "enableTLS": "true", "xFromEnv": "?"}
    assert census.authorize("ai", "chat", said) == CHAT


@pytest.mark.parametrize(
    ("metadata", "words"),
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
def test_a_call_that_differs_from_its_object_is_explained_to_the_operator_alone(census, metadata, words):
    assert detail(census, **metadata).startswith(words)
    assert refusal(census, **metadata) == (Doubt.MISMATCH, NOT_YOURS.format("ai/chat"))


@pytest.mark.parametrize("metadata", [{}, {"engine": "sglang"}, {"engine": "v" * 4_000_000}, {"k" * 2000: "v"}])
def test_a_call_does_not_reveal_whether_its_object_exists(census, metadata):
    exists = refusal(census, "chat", **metadata)
    for name in ("cpu", "made-up"):
        doubt, sentence = refusal(census, name, **metadata)
        assert (doubt, sentence.replace(name, "chat")) == exists


def test_the_difference_is_that_to_the_trigger_that_is_most_alike(cluster):
    census = cluster().take(scaled("chat", trigger(engine="sglang", model="b"), trigger(engine="vllm", model="a")))
    assert detail(census, engine="vllm", model="c") == "metadata.model: the ScaledObject says 'a', the call says 'c'"


@pytest.mark.parametrize("name", [("made-up", "ai"), ("chat", "other"), ("", ""), ("Ünknown/" * 100_000, "x y")])
def test_an_object_that_is_not_watched_is_refused_and_its_name_is_cut(census, name):
    doubt, sentence = refusal(census, *name, engine="vllm", keep_warm="10m")
    assert doubt is Doubt.MISMATCH
    assert "no ScaledObject of that name is known" in detail(census, *name, engine="vllm", keep_warm="10m")
    assert sentence.isascii()
    assert len(sentence) < 400


def test_an_object_without_external_triggers_is_refused(census):
    assert refusal(census, "cpu") == (Doubt.MISMATCH, NOT_YOURS.format("ai/cpu"))
    assert "has no trigger of type external or external-push" in detail(census, "cpu")


def test_metadata_of_four_mebibytes_is_refused_in_few_words(census):
    for heap in ({f"k{i}": "v" * 40 for i in range(80_000)}, {"engine": "v" * 4_000_000}):
        doubt, sentence = refusal(census, **heap)
        assert doubt is Doubt.INVALID
        assert len(sentence) < 300


@pytest.mark.parametrize(
    "words",
    [
        {f"word-{i}": "x" for i in range(50_000)},
        {"engine": "x" * 1_000_000},
        {"x" * 1_000_000: "engine"},
        {f"enigne{i}": "\x00🦑" * 50 for i in range(60)},
        {f"enigne{i}": "ü" * 1000 for i in range(17)},  # 34 kB
    ],
    ids=["many", "long", "long key", "odd", "long together"],
)
def test_an_object_without_measure_is_refused_and_its_calls_hear_it_in_few_words(cluster, words):
    census = cluster().take(scaled("chat", trigger(**words)), scaled("good", trigger(engine="vllm")))
    assert [str(workload.key) for workload in census.workloads] == ["ai/good"]
    doubt, sentence = refusal(census, **words)
    assert doubt is Doubt.INVALID
    assert sentence.isascii()
    assert len(sentence) < 4000
    assert all(len(str(trouble)) < 1000 for trouble in census.object_errors)


def test_of_a_thousand_triggers_some_are_read_and_it_is_said(cluster):
    census = cluster().take(scaled("chat", *(trigger(engine="vllm", model=f"m{i}") for i in range(1000))))
    assert len(census.workloads) == 64
    assert any("spec.triggers: must be at most 64: the rest is not read" in str(each) for each in census.object_errors)
    assert refusal(census, engine="vllm", model="m999")[0] is Doubt.MISMATCH


def test_a_key_that_keda_knows_may_be_long(cluster):
    metadata = {"scalerAddress": ADDRESS, "caCert": "PEM" * 1000, "engine": "vllm"}
    census = cluster().take(scaled("chat", trigger(caCert="PEM" * 1000, engine="vllm")))
    assert census.authorize("ai", "chat", metadata) == CHAT
