"""The owners of a pod are found through chains of references, in whatever order the objects arrive."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.kubernetes.index import DEPTH, Chains
from exporter.kubernetes.objects import Ref
from exporter.model import PodKey
from tests.fakes import objects as api

from .conftest import T0, apply_to, delete_from, empty

# By kind of target: the target, the objects between it and its pods, and its pods.
FAMILIES = {
    "Deployment": (
        "Deployment/chat",
        [api.deployment("chat"), api.replicaset("chat-7d", owner=("Deployment", "chat"))],
        [api.pod("chat-7d-a", owner=("ReplicaSet", "chat-7d"))],
    ),
    "InferenceService": (
        "InferenceService/llm",
        [
            api.inference_service("llm"),
            api.deployment("llm-predictor", owner=("InferenceService", "llm")),
            api.replicaset("llm-predictor-7d", owner=("Deployment", "llm-predictor")),
        ],
        [api.pod("llm-predictor-7d-a", owner=("ReplicaSet", "llm-predictor-7d"))],
    ),
    "InferenceSet": (
        "InferenceSet/llm",
        [
            api.inference_set("llm"),
            api.workspace("llm-x7f2", owner=("InferenceSet", "llm")),
            api.stateful_set("llm-x7f2", owner=("Workspace", "llm-x7f2")),
        ],
        [api.pod("llm-x7f2-0", owner=("StatefulSet", "llm-x7f2"))],
    ),
    "Rollout": (
        "Rollout/chat",
        [api.rollout("chat"), api.replicaset("chat-7d", owner=("Rollout", "chat"))],
        [api.pod("chat-7d-a", owner=("ReplicaSet", "chat-7d"))],
    ),
    "StatefulSet": (
        "StatefulSet/chat",
        [api.stateful_set("chat")],
        [api.pod("chat-0", owner=("StatefulSet", "chat"))],
    ),
    "LeaderWorkerSet": (
        "LeaderWorkerSet/big",
        [
            api.leader_worker_set("big"),
            api.stateful_set("big", owner=("LeaderWorkerSet", "big")),
            api.stateful_set("big-0", owner=("Pod", "big-0")),
        ],
        [api.pod("big-0", owner=("StatefulSet", "big")), api.pod("big-0-1", owner=("StatefulSet", "big-0"))],
    ),
    "ScaledJob": (
        "ScaledJob/batch",
        [api.scaled_job("batch"), api.job("batch-x", owner=("ScaledJob", "batch"))],
        [api.pod("batch-x-a", owner=("Job", "batch-x"))],
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
@given(chance=st.randoms())
def test_pods_belong_to_their_target_in_any_order_of_arrival(family, chance):
    target, between, pods = FAMILIES[family]
    cluster = empty()
    documents = [*between, *pods, api.pod("stranger", owner=("ReplicaSet", "other-7d"))]
    chance.shuffle(documents)
    apply_to(cluster, *documents)
    target = Ref("ai", *target.split("/"))
    assert [pod["metadata"]["name"] for pod in pods] == [pod.key.pod for pod in cluster.pods_of(target, T0)]
    for pod in pods:
        assert cluster.owners_of(PodKey("ai", pod["metadata"]["name"]))[-1] == target


def test_owners_are_ordered_nearest_first(apply, ref):
    _, between, pods = FAMILIES["InferenceService"]
    expected = (
        ref("ReplicaSet", "llm-predictor-7d"),
        ref("Deployment", "llm-predictor"),
        ref("InferenceService", "llm"),
    )
    assert expected == apply(*between, *pods).owners_of(PodKey("ai", "llm-predictor-7d-a"))


def test_worker_belongs_to_its_leader_and_to_the_owners_of_the_leader(apply, ref):
    _, between, pods = FAMILIES["LeaderWorkerSet"]
    expected = (
        ref("StatefulSet", "big-0"),
        ref("Pod", "big-0"),
        ref("StatefulSet", "big"),
        ref("LeaderWorkerSet", "big"),
    )
    assert expected == apply(*between, *pods).owners_of(PodKey("ai", "big-0-1"))


def test_owners_are_empty_for_an_unowned_pod_and_unknown_for_a_missing_pod(apply):
    cluster = apply(api.pod("alone"))
    assert cluster.owners_of(PodKey("ai", "alone")) == ()
    assert cluster.owners_of(PodKey("ai", "ghost")) is None


def test_pod_has_no_target_until_its_owner_arrives(apply, ref, names):
    target = ref("Deployment", "chat")
    cluster = apply(api.deployment("chat"), api.pod("chat-7d-a", owner=("ReplicaSet", "chat-7d")))
    assert cluster.pods_of(target, T0) == ()
    assert (ref("ReplicaSet", "chat-7d"),) == cluster.owners_of(PodKey("ai", "chat-7d-a"))
    cluster.take_changes()
    apply(api.replicaset("chat-7d", owner=("Deployment", "chat")))
    assert names(cluster.pods_of(target, T0)) == ["chat-7d-a"]
    assert target in cluster.take_changes().targets


def test_pod_has_no_target_after_its_replica_set_is_deleted(apply, ref):
    _, between, pods = FAMILIES["Deployment"]
    cluster = apply(*between, *pods)
    cluster.take_changes()
    delete_from(cluster, between[1])
    assert cluster.pods_of(ref("Deployment", "chat"), T0) == ()
    assert ref("Deployment", "chat") in cluster.take_changes().targets


def test_same_name_in_two_namespaces_is_two_objects(apply, ref, names):
    cluster = apply(
        api.pod("s-0", owner=("StatefulSet", "s")),
        api.pod("s-0", "ml", owner=("StatefulSet", "s")),
        api.stateful_set("s"),
    )
    assert [PodKey("ai", "s-0")] == [pod.key for pod in cluster.pods_of(ref("StatefulSet", "s"), T0)]


def test_finished_pods_are_ignored(apply, ref, names):
    cluster = apply(
        api.pod("s-0", owner=("StatefulSet", "s"), phase="Failed", ready=False),
        api.pod("s-1", owner=("StatefulSet", "s"), phase="Succeeded", ready=False),
        api.pod("s-2", owner=("StatefulSet", "s")),
    )
    assert names(cluster.pods_of(ref("StatefulSet", "s"), T0)) == ["s-2"]


def test_circle_of_owners_ends(apply, ref, names):
    cluster = apply(
        api.replicaset("a", owner=("ReplicaSet", "b")),
        api.replicaset("b", owner=("ReplicaSet", "a")),
        api.replicaset("self", owner=("ReplicaSet", "self")),
        api.pod("p", owner=("ReplicaSet", "a")),
        api.pod("q", owner=("ReplicaSet", "self")),
    )
    assert (ref("ReplicaSet", "a"), ref("ReplicaSet", "b")) == cluster.owners_of(PodKey("ai", "p"))
    assert names(cluster.pods_of(ref("ReplicaSet", "b"), T0)) == ["p"]
    assert (ref("ReplicaSet", "self"),) == cluster.owners_of(PodKey("ai", "q"))


def test_depth_of_a_chain_is_bounded(ref):
    chains = Chains()
    things = [ref("Thing", str(number)) for number in range(DEPTH + 3)]
    for lower, upper in itertools.pairwise(things):
        chains.link(lower, upper)
    assert tuple(things[1 : DEPTH + 1]) == chains.up(things[0])
    assert set(things[2 : DEPTH + 2]) == set(chains.below(things[DEPTH + 2]))


REFS = st.integers(0, 12).map(lambda number: Ref("ai", "Thing", str(number)))


@given(st.lists(st.tuples(REFS, st.none() | REFS), max_size=40))
def test_owners_and_owned_objects_agree(links):
    chains, owner = Chains(), {}
    for ref, above in links:
        chains.link(ref, above)
        owner[ref] = above
    for ref in owner:
        expected, above = [], owner.get(ref)
        while above is not None and above != ref and above not in expected and len(expected) < DEPTH:
            expected.append(above)
            above = owner.get(above)
        assert tuple(expected) == chains.up(ref)
    for top in {*owner, *owner.values()} - {None}:
        below = list(chains.below(top))
        assert len(below) == len(set(below))
        assert {ref for ref in owner if top in chains.up(ref)} == set(below)
    for ref in owner:
        chains.link(ref, None)
    assert not chains._owned


def test_pod_is_found_by_its_uid_until_it_is_deleted(apply):
    chat = api.pod("chat-0")
    by_uid, stranger = PodKey("", chat["metadata"]["uid"]), PodKey("", "uid-of-another")
    cluster = apply(chat)
    assert cluster.named(by_uid) == PodKey("ai", "chat-0")
    assert cluster.named(stranger) == stranger
    assert cluster.named(PodKey("ai", "chat-0")) == PodKey("ai", "chat-0")

    # Another pod with the same name.
    new = api.pod("chat-0")
    new["metadata"] = {**new["metadata"], "uid": "uid-of-the-second"}
    apply_to(cluster, new)
    assert cluster.named(by_uid) == by_uid
    assert cluster.named(PodKey("", "uid-of-the-second")) == PodKey("ai", "chat-0")
    delete_from(cluster, new)
    assert cluster.named(PodKey("", "uid-of-the-second")) == PodKey("", "uid-of-the-second")


FULL = "0/5 nodes are available: 5 Insufficient nvidia.com/gpu."


def waiting(name, *, since, message=FULL, owner=("ReplicaSet", "chat-1")):
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": since}
    return api.pod(name, node=None, owner=owner, status={"conditions": [{**condition, "message": message}]})


def test_owner_has_its_longest_unscheduled_pod_with_the_message_of_the_scheduler(cluster, apply):
    apply(
        api.deployment("chat"),
        api.replicaset("chat-1", owner=("Deployment", "chat")),
        waiting("chat-1-b", since="2026-11-01T10:00:09Z"),
        waiting("chat-1-a", since="2026-11-01T10:00:05Z"),
        api.pod("chat-1-c", owner=("ReplicaSet", "chat-1")),
    )
    found = cluster.unscheduled()
    assert {ref.kind: (pod.key.pod, pod.unscheduled_why) for ref, pod in found.items()} == {
        "ReplicaSet": ("chat-1-a", FULL), "Deployment": ("chat-1-a", FULL),
    }  # fmt: skip


def test_scheduled_pod_has_no_message_of_the_scheduler(cluster, apply):
    apply(waiting("chat-1-a", since="2026-11-01T10:00:05Z", owner=None), api.pod("chat-1-a"))
    assert cluster.unscheduled() == {}
    assert cluster.pod(PodKey("ai", "chat-1-a")).unscheduled_why == ""


def test_message_of_the_scheduler_is_bounded(cluster, apply):
    apply(waiting("chat-1-a", since="2026-11-01T10:00:05Z", message="x" * 10_000))
    assert len(cluster.pod(PodKey("ai", "chat-1-a")).unscheduled_why) == 400
