"""JSON of the API is decoded to records: defaults, ignored fields, and errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.kubernetes.decode import Malformed, decode, identify
from exporter.kubernetes.objects import Link, Pod, Ref, ScaledObjectTrigger
from exporter.kubernetes.placement import PodTraits
from exporter.kubernetes.resources import (
    DEPLOYMENTS,
    HPAS,
    INFERENCESERVICES,
    NODES,
    PODS,
    REPLICASETS,
    RESOURCES,
    SCALEDJOBS,
    SCALEDOBJECTS,
    SLICES,
    STATEFULSETS,
)
from exporter.model import PodKey
from tests.fakes import objects as api


def read(resource, document):
    return decode(identify(resource, document), document)


CREATED_AT = 1793527200.0  # 2026-11-01T10:00:00Z


def test_pod_is_decoded_with_all_fields():
    document = api.pod(
        "chat-1",
        owner=("ReplicaSet", "chat-7d"),
        gpus=2,
        ports={"http": 8000},
        labels={"app": "chat", "pod-template-hash": "7d"},
    )
    assert Pod(
        PodKey("ai", "chat-1"),
        uid="uid-pod-ai-chat-1",
        owner=Ref("ai", "ReplicaSet", "chat-7d"),
        node="node-1",
        address="10.0.0.7",
        phase="Running",
        ready=True,
        was_ready=True,
        created_at=CREATED_AT,
        scheduled_at=CREATED_AT,
        started_at=CREATED_AT,
        ready_at=CREATED_AT,
        labels={"app": "chat", "pod-template-hash": "7d"},
        ports={"http": 8000},
        gpus={"nvidia.com/gpu": 2},
        traits=PodTraits(best_effort=True),
    ) == read(PODS, document)


def test_pod_without_a_status_is_pending_with_defaults():
    document = {"metadata": {"namespace": "ai", "name": "chat-0", "uid": "u"}, "spec": None}
    assert Pod(PodKey("ai", "chat-0"), uid="u") == read(PODS, document)


def scheduled(status, reason=None):
    condition = {"type": "PodScheduled", "status": status, "lastTransitionTime": "2026-11-01T10:00:05Z"}
    return {"status": {"conditions": [{**condition, **({"reason": reason} if reason else {})}]}}


@pytest.mark.parametrize(
    ("status", "at", "since"),
    [
        (scheduled("True"), CREATED_AT + 5, None),
        (scheduled("False", "Unschedulable"), None, CREATED_AT + 5),
        (scheduled("False", "SchedulingGated"), None, CREATED_AT + 5),
        (scheduled("False", "SchedulerError"), None, None),
        (scheduled("False"), None, None),
        ({"status": {"conditions": []}}, None, None),
    ],
)
def test_time_of_scheduling_and_of_being_unschedulable_are_distinct(status, at, since):
    pod = read(PODS, api.pod("chat-0", node=None, **status))
    assert (at, since) == (pod.scheduled_at, pod.unscheduled_since)


def test_unready_pod_has_no_ready_time_and_keeps_its_restart():
    counts = [{"name": "server", "restartCount": n} for n in (0, 2)]
    status = {"containerStatuses": counts}
    assert ((pod := read(PODS, api.pod("a", ready=False, status=status))).ready_at, pod.restarted) == (None, True)
    status = {"containerStatuses": counts[:1]}
    assert ((pod := read(PODS, api.pod("a", status=status))).ready_at, pod.restarted) == (CREATED_AT, False)


def test_only_a_controller_is_an_owner():
    document = api.pod("chat-1", owner=("ReplicaSet", "chat-7d"))
    document["metadata"]["ownerReferences"][0]["controller"] = False
    assert read(PODS, document).owner is None
    document["metadata"]["ownerReferences"].append({"kind": "Job", "name": "j", "controller": True})
    assert Ref("ai", "Job", "j") == read(PODS, document).owner


@pytest.mark.parametrize(
    ("since", "was_ready"),
    [
        ("2026-11-01T10:00:00Z", False),  # unready since its start: it was never ready
        ("2026-11-01T10:00:01Z", False),  # times are whole seconds: one may be the rounding
        ("2026-11-01T10:00:02Z", True),
        (None, False),
    ],
)
def test_pod_that_became_unready_after_its_start_was_ready_before(since, was_ready):
    document = api.pod("chat-1", ready=False)
    document["status"]["conditions"][-1]["lastTransitionTime"] = since
    assert was_ready == read(PODS, document).was_ready


def test_unknown_ready_condition_is_not_ready():
    document = api.pod("chat-1")
    document["status"]["conditions"][-1]["status"] = "Unknown"
    assert not read(PODS, document).ready


def test_first_of_each_named_container_port_is_kept():
    document = api.pod("chat-1", ports={"http": 8000})
    document["spec"]["containers"] += [{"ports": [{"containerPort": 9}, {"name": "http", "containerPort": 1}]}]
    assert read(PODS, document).ports == {"http": 8000}


def test_replica_set_is_decoded_as_a_link_to_its_owner():
    document = api.replicaset("chat-7d", owner=("Deployment", "chat"))
    expected = Link(Ref("ai", "ReplicaSet", "chat-7d"), Ref("ai", "Deployment", "chat"))
    assert expected == read(REPLICASETS, document)


def test_missing_replicas_are_one_and_zero_is_zero():
    document = api.deployment("chat", replicas=0)
    assert read(DEPLOYMENTS, document).wanted == 0
    del document["spec"]["replicas"]
    assert read(DEPLOYMENTS, document).wanted == 1
    assert read(DEPLOYMENTS, document).ready == 0


def test_inference_service_has_no_desired_replicas():
    record = read(INFERENCESERVICES, {"metadata": {"namespace": "ai", "name": "llm"}})
    assert (record.wanted, record.ready) == (None, None)


def test_only_tidegates_annotations_are_kept_without_their_prefix():
    document = api.deployment("chat", annotations={"tidegate.dev/engine": "vllm", "kubectl.kubernetes.io/x": "{}"})
    assert read(DEPLOYMENTS, document).annotations == {"engine": "vllm"}


def test_scaled_object_keeps_tidegates_annotations():
    more = {"tidegate.dev/brake": "freeze", "autoscaling.keda.sh/paused": "true"}
    document = api.scaled_object("chat", triggers=[api.trigger(engine="vllm")], metadata={"annotations": more})
    assert read(SCALEDOBJECTS, document).annotations == {"brake": "freeze"}


def test_scaled_object_has_kedas_defaults():
    record = read(SCALEDOBJECTS, api.scaled_object("chat", triggers=[api.trigger(engine="vllm")]))
    assert Ref("ai", "Deployment", "chat") == record.target
    assert (record.minimum, record.maximum, record.idle) == (0, 100, None)
    metadata = {"scalerAddress": "tidegate.tidegate.svc:6000", "engine": "vllm"}
    assert (ScaledObjectTrigger("external-push", None, metadata),) == record.triggers


def test_scaled_object_is_decoded_with_all_fields():
    document = api.scaled_object(
        "chat", target="c", kind="StatefulSet", minimum=1, maximum=0, spec={"idleReplicaCount": 0}
    )
    record = read(SCALEDOBJECTS, document)
    assert Ref("ai", "StatefulSet", "c") == record.target
    assert (record.minimum, record.maximum, record.idle) == (1, 0, 0)


def test_scaled_job_scales_itself():
    record = read(SCALEDJOBS, api.scaled_job("batch", maximum=7))
    assert record.ref == record.target == Ref("ai", "ScaledJob", "batch")
    assert record.maximum == 7


def test_hpa_has_its_target_bounds_and_scaled_object():
    document = api.hpa("keda-hpa-chat", target="chat", maximum=5, owner=("ScaledObject", "chat"))
    del document["spec"]["minReplicas"]
    record = read(HPAS, document)
    assert (record.minimum, record.maximum) == (1, 5)
    assert Ref("ai", "ScaledObject", "chat") == record.owner


def test_node_has_its_allocatable_resources():
    record = read(NODES, api.node("n", gpus=8, ready=False, schedulable=False))
    assert (record.name, record.ready, record.schedulable, record.gpus) == ("n", False, False, {"nvidia.com/gpu": 8})


def test_slice_has_its_ready_addresses():
    document = api.endpoint_slice("g-1", service="g", addresses=["10.0.0.2", "10.0.0.1"], unready=["10.0.0.3"])
    document["endpoints"].append(
        {"addresses": ["10.0.0.4", "10.0.0.5"]}
    )  # without conditions an endpoint counts as ready
    document["ports"].append({"port": None, "name": "all"})
    record = read(SLICES, document)
    assert (record.service, record.addresses, record.ports) == ("g", ("10.0.0.1", "10.0.0.2", "10.0.0.4"), {"": 8000})


def test_slice_of_names_has_no_addresses():
    document = api.endpoint_slice("g-1", service="g", addresses=["example.com"], family="FQDN")
    assert read(SLICES, document).addresses == ()


@pytest.mark.parametrize(
    ("resource", "document", "why"),
    [
        (PODS, [], "pods: document: must be an object, got a list"),
        (PODS, {}, "pods: metadata.namespace: must be text, and not empty, got nothing"),
        (PODS, api.pod("p", metadata={"uid": 7}), "ai/Pod/p: metadata.uid: must be text, got 7"),
        (PODS, api.pod("p", spec={"containers": "none"}), "spec.containers: must be a list of objects, got 'none'"),
        (
            PODS,
            api.pod("p", metadata={"creationTimestamp": "2026-11-01T10:00:00"}),
            "metadata.creationTimestamp: must be a time like 2025-01-31T23:59:59Z, got '2026-11-01T10:00:00'",
        ),
        (
            PODS,
            api.pod("p", metadata={"annotations": {"leaderworkerset.sigs.k8s.io/size": "many"}}),
            "metadata.annotations.leaderworkerset.sigs.k8s.io/size: must be a whole number, got 'many'",
        ),
        (
            STATEFULSETS,
            api.stateful_set("s", replicas="three"),
            "ai/StatefulSet/s: spec.replicas: must be a whole number of at least 0, got 'three'",
        ),
        (DEPLOYMENTS, api.deployment("d", replicas=-1), "spec.replicas: must be a whole number of at least 0, got -1"),
        (DEPLOYMENTS, api.deployment("d", replicas=True), "got True"),
        (
            SCALEDOBJECTS,
            api.scaled_object("s", triggers=[{"type": "external", "metadata": {"model": 7}}]),
            "ai/ScaledObject/s: spec.triggers.metadata.model: must be text, got 7",
        ),
        (HPAS, api.hpa("h", target="c", maximum=None), "spec.maxReplicas: must be a whole number, got nothing"),
        (PODS, api.pod("p", spec={"nodeName": {"a" * 90: 1}}), "spec.nodeName: must be text, got an object"),
        (NODES, api.node("n", gpus=8, gpu="nvidia.com/gpu", status={"allocatable": {"nvidia.com/gpu": "8.5"}}), "8.5"),
    ],
)
def test_invalid_value_is_refused_with_its_path_bound_and_value(resource, document, why):
    with pytest.raises(Malformed) as refused:
        read(resource, document)
    assert why in str(refused.value)


def test_long_value_is_truncated_in_the_error():
    with pytest.raises(Malformed) as refused:
        read(DEPLOYMENTS, api.deployment("d", replicas="9" * 1_000_000))
    assert len(str(refused.value)) < 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=8,
)
REAL = {
    "Pod": api.pod("p", owner=("ReplicaSet", "r"), gpus=1, ports={"http": 1}, labels={"app": "a"}),
    "Node": api.node(),
    "ReplicaSet": api.replicaset("r", owner=("Deployment", "d")),
    "Job": api.job("j", owner=("ScaledJob", "s")),
    "Deployment": api.deployment("d", annotations={"tidegate.dev/engine": "vllm"}),
    "StatefulSet": api.stateful_set("s"),
    "LeaderWorkerSet": api.leader_worker_set("l"),
    "Rollout": api.rollout("r"),
    "InferenceService": api.inference_service("i"),
    "InferenceSet": api.inference_set("i"),
    "Workspace": api.workspace("i-x7f2", owner=("InferenceSet", "i")),
    "EndpointSlice": api.endpoint_slice("e", service="g", addresses=["10.0.0.1"]),
    "HorizontalPodAutoscaler": api.hpa("h", target="d"),
    "ScaledObject": api.scaled_object("s", triggers=[api.trigger(name="a", engine="vllm")]),
    "ScaledJob": api.scaled_job("s", triggers=[api.trigger()]),
}


def paths(document, path=()):
    """Yields the path of every value in the document."""
    yield path
    for key, value in (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    ):
        yield from paths(value, (*path, key))


def with_value(document, path, value):
    """Returns the document with another value at `path`."""
    if not path:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = with_value(document[path[0]], path[1:], value)
    return copy


@st.composite
def odd_documents(draw):
    resource = draw(st.sampled_from(RESOURCES))
    document = REAL[resource.kind]
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(sorted(paths(document), key=str)))
        document = with_value(document, path, draw(JSON))
    return resource, document


@given(odd_documents())
def test_any_object_is_read_or_malformed(odd):
    resource, document = odd
    try:
        record = read(resource, document)
    except Malformed:
        return
    assert record == read(resource, document)
    assert identify(resource, document).kind == resource.kind


def test_every_watched_resource_can_be_read():
    for resource in RESOURCES:
        record = read(resource, REAL[resource.kind])
        assert type(record).__name__ in {
            "Pod", "Node", "Link", "Scalable", "Slice", "Hpa", "ScaledObject",
        }, resource  # fmt: skip
        assert record == read(resource, REAL[resource.kind])
