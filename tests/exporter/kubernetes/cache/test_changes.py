"""The cache reports every object whose results changed, and no other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.discovery.kubernetes import GpuExporterTargets, PodTargets, ServiceTargets
from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.index import Changes
from exporter.kubernetes.objects import Ref
from exporter.kubernetes.resources import PODS, RESOURCES
from exporter.model import Role, Target
from tests.fakes import objects as api

from .conftest import BLIND_S, BY_KIND, T0, apply_to, delete_from, empty


@pytest.fixture
def chat(apply):
    """A Deployment with one pod, without pending changes."""
    cluster = apply(
        api.deployment("chat"),
        api.replicaset("chat-7d", owner=("Deployment", "chat")),
        api.pod("chat-7d-a", owner=("ReplicaSet", "chat-7d")),
    )
    cluster.take_changes()
    return cluster


def test_changed_pod_changes_all_its_owners(chat, ref):
    apply_to(chat, api.pod("chat-7d-a", owner=("ReplicaSet", "chat-7d"), ready=False))
    assert Changes(targets=frozenset({ref("ReplicaSet", "chat-7d"), ref("Deployment", "chat")})) == chat.take_changes()
    assert Changes() == chat.take_changes()


def test_unused_status_fields_change_nothing(chat):
    apply_to(
        chat,
        api.pod(
            "chat-7d-a", owner=("ReplicaSet", "chat-7d"), metadata={"resourceVersion": "9"}, status={"qosClass": "x"}
        ),
        api.deployment("chat", ready=0, status={"conditions": []}),
        api.node(),
    )
    assert Changes() == chat.take_changes()


def test_deleted_pod_changes_its_owners(chat, ref):
    delete_from(chat, api.pod("chat-7d-a"))
    assert ref("Deployment", "chat") in chat.take_changes().targets


def test_adopted_pod_changes_both_owners(chat, ref):
    apply_to(chat, api.pod("chat-7d-a", owner=("StatefulSet", "s")))
    assert {ref("Deployment", "chat"), ref("StatefulSet", "s")} <= chat.take_changes().targets


def test_pod_that_takes_over_an_address_changes_the_owner_of_the_previous_pod(chat, ref):
    apply_to(chat, api.pod("other", address="10.0.0.7"))
    assert ref("Deployment", "chat") in chat.take_changes().targets
    delete_from(chat, api.pod("other"))
    assert ref("Deployment", "chat") in chat.take_changes().targets


def test_replicas_of_a_deployment_change_its_owner(apply, ref):
    cluster = apply(api.deployment("llm-predictor", owner=("InferenceService", "llm")))
    cluster.take_changes()
    apply_to(cluster, api.deployment("llm-predictor", owner=("InferenceService", "llm"), replicas=0))
    assert ref("InferenceService", "llm") in cluster.take_changes().targets
    apply_to(cluster, api.deployment("llm-predictor", owner=("InferenceService", "other"), replicas=0))
    assert {ref("InferenceService", "llm"), ref("InferenceService", "other")} <= cluster.take_changes().targets


def test_desired_replicas_change_the_target_and_its_owner(chat, ref):
    apply_to(chat, api.deployment("chat", replicas=3, owner=("InferenceService", "llm")))
    assert {ref("Deployment", "chat"), ref("InferenceService", "llm")} <= chat.take_changes().targets
    delete_from(chat, api.deployment("chat"))
    assert ref("Deployment", "chat") in chat.take_changes().targets


@pytest.mark.parametrize(
    "document",
    [
        api.scaled_object("chat"),
        api.scaled_job("batch"),
        api.hpa("chat", target="chat"),
        api.deployment("other", annotations={"tidegate.dev/engine": "vllm"}),
    ],
    ids=lambda document: document["kind"],
)
def test_object_that_defines_workloads_changes_the_registry_when_created_and_deleted(cluster, document):
    apply_to(cluster, document)
    assert cluster.take_changes().registry
    apply_to(cluster, document)
    assert not cluster.take_changes().registry
    delete_from(cluster, document)
    assert cluster.take_changes().registry


def test_deployment_without_our_annotations_does_not_change_the_registry(cluster):
    apply_to(cluster, api.deployment("other"))
    assert not cluster.take_changes().registry


def test_moved_slice_changes_the_old_and_the_new_service(cluster):
    apply_to(cluster, api.endpoint_slice("x", service="a", addresses=["10.0.0.1"]))
    assert {("ai", "a")} == cluster.take_changes().services
    apply_to(cluster, api.endpoint_slice("x", service="b", addresses=["10.0.0.1"]))
    assert {("ai", "a"), ("ai", "b")} == cluster.take_changes().services
    assert cluster.endpoints("ai", "a", T0) == ()


def test_exporter_changes_only_the_exporters(cluster):
    apply_to(cluster, api.pod("dcgm-x", owner=("DaemonSet", "dcgm"), labels={"app": "nvidia-dcgm-exporter"}))
    assert cluster.take_changes().exporters
    apply_to(cluster, api.pod("dcgm-x", owner=("DaemonSet", "dcgm"), labels={"app": "something-else"}))
    assert cluster.take_changes().exporters
    assert cluster.gpu_exporters(T0) == ()
    delete_from(cluster, api.pod("dcgm-x"))
    assert not cluster.take_changes().exporters


def test_listener_is_called_once_per_batch_of_complete_changes():
    calls = []
    cluster = Cluster(blind_s=BLIND_S)
    cluster.on_change = lambda: calls.append(cluster.pods_of(Ref("ai", "StatefulSet", "s"), T0))
    for resource in RESOURCES:
        cluster.replace(resource, None, [], T0)
    assert len(calls) == 1
    cluster.take_changes()
    cluster.replace(PODS, None, [api.pod(f"s-{n}", owner=("StatefulSet", "s")) for n in range(3)], T0)
    assert [len(pods or ()) for pods in calls] == [0, 3]
    apply_to(cluster, api.pod("s-3", owner=("StatefulSet", "s")))
    assert len(calls) == 2
    cluster.take_changes()
    apply_to(cluster, api.pod("s-3", owner=("StatefulSet", "s")))
    assert len(calls) == 2


# A small cluster with many collisions: few names, few addresses, owners of all kinds, circles.
NUMBERS = st.integers(0, 3).map(str)
OWNERS = st.none() | st.tuples(
    st.sampled_from(["ReplicaSet", "StatefulSet", "Deployment", "LeaderWorkerSet", "InferenceService", "Pod"]), NUMBERS
)
ANY_POD = st.builds(
    lambda number, state, kind, labels, **more: api.pod(
        number,
        labels=labels,
        **more,
        **state,
        spec={"hostNetwork": True} if kind == "host" else {},
        metadata={"uid": f"{number}-{kind}", "creationTimestamp": f"2026-11-01T10:00:0{len(kind)}Z"},
    ),
    number=NUMBERS,
    owner=OWNERS,
    address=st.sampled_from([None, "10.0.0.1", "10.0.0.2"]),
    node=st.sampled_from(["node-1", "node-2"]),
    leaving=st.booleans(),
    state=st.sampled_from(
        [{}, {"ready": False}, {"ready": False, "phase": "Failed"}, {"ready": False, "phase": "Pending"}]
    ),
    kind=st.sampled_from(["pod", "host", "other"]),
    labels=st.sampled_from(
        [
            {},
            {"app": "nvidia-dcgm-exporter"},
            {"leaderworkerset.sigs.k8s.io/worker-index": "0", "leaderworkerset.sigs.k8s.io/group-index": "0"},
        ]
    ),
)
DOCUMENTS = (
    ANY_POD
    | st.builds(api.replicaset, NUMBERS, owner=OWNERS)
    | st.builds(api.stateful_set, NUMBERS, owner=OWNERS, replicas=st.integers(0, 2))
    | st.builds(api.leader_worker_set, NUMBERS, owner=OWNERS, replicas=st.integers(0, 2))
    | st.builds(
        lambda number, suffix, **more: api.deployment(number + suffix, **more),
        NUMBERS,
        st.sampled_from(["", "-predictor"]),
        owner=OWNERS,
        replicas=st.integers(0, 2),
    )
    | st.builds(api.inference_service, NUMBERS)
    | st.builds(
        api.endpoint_slice, NUMBERS, service=NUMBERS, addresses=st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2"]))
    )
)
CHANGES = st.lists(st.tuples(st.booleans(), DOCUMENTS), max_size=25)
TARGETS = [
    Ref("ai", kind, name)
    for kind in ("Deployment", "StatefulSet", "LeaderWorkerSet", "InferenceService", "ReplicaSet")
    for name in "0123"
]
SERVICES = [("ai", name) for name in "0123"]


def page_at(address, *_):
    return Target(f"http://{address}/metrics", "auto", Role.PODS)


def listing_of(discovery):
    with pytest.raises(StopIteration):  # refresh ends without awaiting anything
        discovery.refresh(T0).send(None)
    return discovery.listing()


def results(cluster):
    """Returns the results of all queries, by their subject."""
    found = {
        ref: (
            cluster.pods_of(ref, T0),
            cluster.leaders_of(ref, T0),
            cluster.count(ref, T0),
            listing_of(PodTargets(cluster, ref, page_at, None)),
        )
        for ref in TARGETS
    }
    found |= {
        key: (cluster.endpoints(*key, T0), listing_of(ServiceTargets(cluster, *key, page_at))) for key in SERVICES
    }
    found["exporters"] = (cluster.gpu_exporters(T0), listing_of(GpuExporterTargets(cluster, page_at)))
    return found


@given(CHANGES)
def test_every_changed_result_is_reported(changes_applied):
    cluster = empty()
    before = results(cluster)
    cluster.take_uncounted(T0)
    for gone, document in changes_applied:
        (delete_from if gone else apply_to)(cluster, document)
        changes, after = cluster.take_changes(), results(cluster)
        moved = {key for key in after if after[key] != before[key]}
        counted = {key for key in moved if isinstance(key, Ref) and after[key][2] != before[key][2]}
        assert counted <= cluster.take_uncounted(T0)
        reported = changes.targets | changes.services | ({"exporters"} if changes.exporters else set())
        assert moved <= reported
        before = after


@given(CHANGES, st.randoms())
def test_results_depend_on_the_objects_and_not_on_their_order(changes_applied, chance):
    cluster, there = empty(), {}
    for gone, document in changes_applied:
        (delete_from if gone else apply_to)(cluster, document)
        key = (document["kind"], document["metadata"]["name"])
        there.pop(key, None)
        if not gone:
            there[key] = document
    listed = Cluster(blind_s=BLIND_S)
    for resource in chance.sample(RESOURCES, len(RESOURCES)):
        documents = [document for document in there.values() if BY_KIND[document["kind"]] == resource]
        listed.replace(resource, None, chance.sample(documents, len(documents)), T0)
        # A list that equals the cache changes nothing; any other list replaces the cache.
        cluster.take_changes()
        cluster.replace(resource, None, documents, T0)
        assert Changes() == cluster.take_changes()
        cluster.replace(resource, None, documents[:1], T0)
        cluster.replace(resource, None, documents, T0)
    incremental, found = results(cluster), results(listed)
    for key, answer in found.items():
        # Only the cache that received the readiness stores it, so the listings may differ.
        assert answer[:-1] == incremental[key][:-1]
