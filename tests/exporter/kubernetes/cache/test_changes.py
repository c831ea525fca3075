"""What is said to have moved: all that did, and nothing that did not."""

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

from .conftest import BLIND_S, BY_KIND, T0, empty, forget, tell


@pytest.fixture
def chat(told):
    """A Deployment with one pod, of which all is old news."""
    cluster = told(
        api.deployment("chat"),
        api.replicaset("chat-7d", owner=("Deployment", "chat")),
        api.pod("chat-7d-a", owner=("ReplicaSet", "chat-7d")),
    )
    cluster.take_changes()
    return cluster


def test_a_pod_that_changes_moves_everything_above_it(chat, ref):
    tell(chat, api.pod("chat-7d-a", owner=("ReplicaSet", "chat-7d"), ready=False))
    assert Changes(targets=frozenset({ref("ReplicaSet", "chat-7d"), ref("Deployment", "chat")})) == chat.take_changes()
    assert Changes() == chat.take_changes()


def test_a_status_of_which_nothing_is_kept_moves_nothing(chat):
    tell(
        chat,
        api.pod(
            "chat-7d-a", owner=("ReplicaSet", "chat-7d"), metadata={"resourceVersion": "9"}, status={"qosClass": "x"}
        ),
        api.deployment("chat", ready=0, status={"conditions": []}),
        api.node(),
    )
    assert Changes() == chat.take_changes()


def test_a_pod_that_goes_moves_those_it_belonged_to(chat, ref):
    forget(chat, api.pod("chat-7d-a"))
    assert ref("Deployment", "chat") in chat.take_changes().targets


def test_a_pod_that_is_adopted_moves_both(chat, ref):
    tell(chat, api.pod("chat-7d-a", owner=("StatefulSet", "s")))
    assert {ref("Deployment", "chat"), ref("StatefulSet", "s")} <= chat.take_changes().targets


def test_a_pod_that_takes_over_an_address_moves_those_who_lose_it(chat, ref):
    tell(chat, api.pod("other", address="10.0.0.7"))
    assert ref("Deployment", "chat") in chat.take_changes().targets
    forget(chat, api.pod("other"))
    assert ref("Deployment", "chat") in chat.take_changes().targets


def test_what_makes_a_deployment_moves_with_its_replicas(told, ref):
    cluster = told(api.deployment("llm-predictor", owner=("InferenceService", "llm")))
    cluster.take_changes()
    tell(cluster, api.deployment("llm-predictor", owner=("InferenceService", "llm"), replicas=0))
    assert ref("InferenceService", "llm") in cluster.take_changes().targets
    tell(cluster, api.deployment("llm-predictor", owner=("InferenceService", "other"), replicas=0))
    assert {ref("InferenceService", "llm"), ref("InferenceService", "other")} <= cluster.take_changes().targets


def test_replicas_that_are_wanted_move_the_target_and_what_made_it(chat, ref):
    tell(chat, api.deployment("chat", replicas=3, owner=("InferenceService", "llm")))
    assert {ref("Deployment", "chat"), ref("InferenceService", "llm")} <= chat.take_changes().targets
    forget(chat, api.deployment("chat"))
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
def test_what_makes_workloads_moves_the_census_when_it_comes_and_when_it_goes(cluster, document):
    tell(cluster, document)
    assert cluster.take_changes().registry
    tell(cluster, document)
    assert not cluster.take_changes().registry
    forget(cluster, document)
    assert cluster.take_changes().registry


def test_a_deployment_without_words_of_ours_moves_no_census(cluster):
    tell(cluster, api.deployment("other"))
    assert not cluster.take_changes().registry


def test_a_slice_moves_the_service_it_was_of_and_the_one_it_is_of(cluster):
    tell(cluster, api.endpoint_slice("x", service="a", addresses=["10.0.0.1"]))
    assert {("ai", "a")} == cluster.take_changes().services
    tell(cluster, api.endpoint_slice("x", service="b", addresses=["10.0.0.1"]))
    assert {("ai", "a"), ("ai", "b")} == cluster.take_changes().services
    assert cluster.endpoints("ai", "a", T0) == ()


def test_exporters_move_alone(cluster):
    tell(cluster, api.pod("dcgm-x", owner=("DaemonSet", "dcgm"), labels={"app": "nvidia-dcgm-exporter"}))
    assert cluster.take_changes().exporters
    tell(cluster, api.pod("dcgm-x", owner=("DaemonSet", "dcgm"), labels={"app": "something-else"}))
    assert cluster.take_changes().exporters
    assert cluster.gpu_exporters(T0) == ()
    forget(cluster, api.pod("dcgm-x"))
    assert not cluster.take_changes().exporters


def test_who_waits_is_told_once_until_the_changes_are_taken_and_only_when_they_are_complete():
    seen = []
    cluster = Cluster(blind_s=BLIND_S)
    cluster.on_change = lambda: seen.append(cluster.pods_of(Ref("ai", "StatefulSet", "s"), T0))
    for resource in RESOURCES:
        cluster.replace(resource, None, [], T0)
    assert len(seen) == 1
    cluster.take_changes()
    cluster.replace(PODS, None, [api.pod(f"s-{n}", owner=("StatefulSet", "s")) for n in range(3)], T0)
    assert [len(pods or ()) for pods in seen] == [0, 3]
    tell(cluster, api.pod("s-3", owner=("StatefulSet", "s")))
    assert len(seen) == 2
    cluster.take_changes()
    tell(cluster, api.pod("s-3", owner=("StatefulSet", "s")))
    assert len(seen) == 2


# A small world in which everything collides: few names, few addresses, owners of all kinds, circles.
NUMBERS = st.integers(0, 3).map(str)
OWNERS = st.none() | st.tuples(
    st.sampled_from(["ReplicaSet", "StatefulSet", "Deployment", "LeaderWorkerSet", "InferenceService", "Pod"]), NUMBERS
)
PODS_OF_ALL_SORTS = st.builds(
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
    PODS_OF_ALL_SORTS
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
HAPPENINGS = st.lists(st.tuples(st.booleans(), DOCUMENTS), max_size=25)
TARGETS = [
    Ref("ai", kind, name)
    for kind in ("Deployment", "StatefulSet", "LeaderWorkerSet", "InferenceService", "ReplicaSet")
    for name in "0123"
]
SERVICES = [("ai", name) for name in "0123"]


def page_at(address, *_):
    return Target(f"http://{address}/metrics", "auto", Role.PODS)


def looked(discovery):
    with pytest.raises(StopIteration):  # it ends without having waited for anything
        discovery.refresh(T0).send(None)
    return discovery.listing()


def answers(cluster):
    """Everything that can be asked, by what it is asked of."""
    found = {
        ref: (
            cluster.pods_of(ref, T0),
            cluster.leaders_of(ref, T0),
            cluster.count(ref, T0),
            looked(PodTargets(cluster, ref, page_at, None)),
        )
        for ref in TARGETS
    }
    found |= {key: (cluster.endpoints(*key, T0), looked(ServiceTargets(cluster, *key, page_at))) for key in SERVICES}
    found["exporters"] = (cluster.gpu_exporters(T0), looked(GpuExporterTargets(cluster, page_at)))
    return found


@given(HAPPENINGS)
def test_whoever_looks_only_at_what_has_moved_misses_nothing(happenings):
    cluster = empty()
    before = answers(cluster)
    cluster.take_uncounted(T0)
    for gone, document in happenings:
        (forget if gone else tell)(cluster, document)
        changes, after = cluster.take_changes(), answers(cluster)
        moved = {key for key in after if after[key] != before[key]}
        counted = {key for key in moved if isinstance(key, Ref) and after[key][2] != before[key][2]}
        assert counted <= cluster.take_uncounted(T0)
        told = changes.targets | changes.services | ({"exporters"} if changes.exporters else set())
        assert moved <= told
        before = after


@given(HAPPENINGS, st.randoms())
def test_however_it_came_about_the_same_objects_give_the_same_answers(happenings, chance):
    cluster, there = empty(), {}
    for gone, document in happenings:
        (forget if gone else tell)(cluster, document)
        key = (document["kind"], document["metadata"]["name"])
        there.pop(key, None)
        if not gone:
            there[key] = document
    listed = Cluster(blind_s=BLIND_S)
    for resource in chance.sample(RESOURCES, len(RESOURCES)):
        documents = [document for document in there.values() if BY_KIND[document["kind"]] == resource]
        listed.replace(resource, None, chance.sample(documents, len(documents)), T0)
        # A list over what is known already changes nothing; one over something else leaves only itself.
        cluster.take_changes()
        cluster.replace(resource, None, documents, T0)
        assert Changes() == cluster.take_changes()
        cluster.replace(resource, None, documents[:1], T0)
        cluster.replace(resource, None, documents, T0)
    told, found = answers(cluster), answers(listed)
    for key, answer in found.items():
        # Readiness that has passed is remembered by who saw it: only the listings may differ by that.
        assert answer[:-1] == told[key][:-1]
