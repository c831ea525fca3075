"""Tests the invariants of the registry for arbitrary objects of a cluster."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.kubernetes.objects import Hpa, Ref, Scalable, ScaledObject, ScaledObjectTrigger
from exporter.model import WorkloadKey
from scaler.config import Config, Kubernetes, SharedGateway
from scaler.config.trigger import TRIGGER_KEYS
from scaler.workloads import RejectedCall, take
from tests.scaler.workloads.objects import ADDRESS, configured, deployment, scaled, trigger

CONFIG = Config(
    kubernetes=Kubernetes(),
    workloads=(configured("llama"), configured("watched", mode="observe")),
    gateways=(SharedGateway(name="llm-d", namespaces=("ai",), page={"url": "http://llm-d.infra.svc:9090/metrics"}),),
)
GOOD = [scaled(f"good-{i}", trigger(engine="vllm", keep_warm=f"{i + 60}s")) for i in range(1000)]
NAMES = st.sampled_from(["chat", "llama", "watched", "a" * 100]) | st.text(max_size=20)
KEYS = st.sampled_from([*TRIGGER_KEYS, "scalerAddress", "engineFromEnv", "enigne"]) | st.text(max_size=10)
VALUES = st.sampled_from(["vllm", "llm-d", "16", "null", "5m", "0.5", "llama", "watched", "-1", "true", "[", ADDRESS])
TRIGGERS = st.builds(
    ScaledObjectTrigger,
    st.sampled_from(["external", "external-push", "cpu"]),
    st.none() | NAMES,
    st.dictionaries(KEYS, VALUES | st.text(max_size=20), max_size=5),
)
REFS = st.builds(Ref, st.sampled_from(["ai", "other"]), st.sampled_from(["Deployment", "Rollout", "Foo", ""]), NAMES)
COUNTS = st.integers(-1, 20_000)
SCALED = st.builds(
    ScaledObject,
    st.builds(Ref, st.sampled_from(["ai", "other"]), st.sampled_from(["ScaledObject", "ScaledJob"]), NAMES),
    REFS,
    COUNTS,
    COUNTS,
    st.none() | COUNTS,
    st.lists(TRIGGERS, max_size=4).map(tuple),
)
SCALABLES = st.builds(
    Scalable, REFS, st.none() | REFS, annotations=st.dictionaries(KEYS, VALUES | st.text(max_size=20), max_size=4)
)
HPAS = st.builds(Hpa, REFS, REFS, COUNTS, COUNTS, st.none() | REFS)


@settings(max_examples=15)
@given(bad=SCALED, note=SCALABLES, where=st.integers(0, 1000))
def test_invalid_object_of_one_tenant_affects_no_other(bad, note, where):
    before = take(CONFIG, GOOD, (), ())
    after = take(CONFIG, [*GOOD[:where], bad, *GOOD[where:]], (note,), ())
    workloads = {workload.key: workload for workload in after.workloads}
    assert all(workloads[workload.key] == workload for workload in before.workloads)
    assert all(after.about(each.ref.namespace, each.ref.name) is not None for each in GOOD)


@settings(max_examples=300)
@given(
    objects=st.lists(SCALED, max_size=5, unique_by=lambda each: each.ref),
    notes=st.lists(SCALABLES, max_size=5, unique_by=lambda each: each.ref),
    hpas=st.lists(HPAS, max_size=3, unique_by=lambda each: each.ref),
)
def test_every_key_of_an_arbitrary_cluster_belongs_to_one_workload(objects, notes, hpas):
    registry = take(CONFIG, objects, notes, hpas)
    keys = [workload.key for workload in registry.workloads]
    assert len(keys) == len(set(keys))
    assert registry.workloads[:2] == CONFIG.workloads
    assert set(registry.targets) <= set(keys)
    assert all(problem.message.isascii() and len(problem.message) < 1000 for problem in registry.object_errors)
    for each in objects:
        for one in (one for one in each.triggers if one.type != "cpu"):
            outcome = _outcome(registry, each.ref, one.metadata)
            if isinstance(outcome, WorkloadKey):
                assert outcome in keys
                assert outcome.namespace == each.ref.namespace
            else:
                assert 0 < len(outcome) < 8000


def _outcome(registry, ref, metadata):
    """The workload of a call with the metadata of the object, or the sentence of its rejection."""
    try:
        return registry.authorize(ref.namespace, ref.name, metadata)
    except RejectedCall as rejected:
        return rejected.refused.sentence


@given(
    objects=st.lists(SCALED, max_size=5, unique_by=lambda each: each.ref),
    notes=st.lists(SCALABLES, max_size=5, unique_by=lambda each: each.ref),
    order=st.randoms(use_true_random=False),
)
def test_order_of_objects_changes_nothing(objects, notes, order: random.Random):
    registry = take(CONFIG, objects, notes, ())
    order.shuffle(objects)
    order.shuffle(notes)
    again = take(CONFIG, objects, notes, ())
    assert again == registry
    assert list(again.objects.items()) == list(registry.objects.items())


@settings(max_examples=300)
@given(
    call=st.dictionaries(KEYS, VALUES | st.text(max_size=20), max_size=5),
    namespace=st.just("ai") | st.text(),
    name=NAMES,
)
def test_call_is_authorized_only_with_the_metadata_of_a_trigger(call, namespace, name):
    registry = take(
        CONFIG, [scaled("chat", trigger(engine="vllm", model="m"))], [deployment("notes", engine="vllm")], ()
    )
    outcome = _outcome(registry, Ref(namespace, "ScaledObject", name), call)
    if isinstance(outcome, WorkloadKey):
        assert (namespace, name, str(outcome)) == ("ai", "chat", "ai/chat")
        assert (call["engine"], call["model"]) == ("vllm", "m")
