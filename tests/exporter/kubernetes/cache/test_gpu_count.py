"""GPUs are counted by adding and subtracting what changes. Whatever changes, in any order, the counts are those of a
cluster in which the same objects were there from the beginning.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.objects import Ref
from exporter.kubernetes.resources import NODES, PODS
from tests.exporter.kubernetes.cache.conftest import apply_to, delete_from, empty
from tests.fakes import objects

T0 = 1000.0
TARGETS = [Ref("ai", "Deployment", "chat"), Ref("ai", "Deployment", "batch"), Ref("ai", "ReplicaSet", "chat-1")]
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastTransitionTime": objects.CREATED}


@st.composite
def pods(draw):
    owner = draw(st.sampled_from([None, ("ReplicaSet", "chat-1"), ("ReplicaSet", "batch-1"), ("Pod", "pod-0")]))
    node = draw(st.sampled_from([None, "node-0", "node-1"]))
    gated = {"status": {"conditions": [GATED]}} if node is None and draw(st.booleans()) else {}
    return objects.pod(
        f"pod-{draw(st.integers(0, 4))}",
        owner=owner,
        node=node,
        gpus=draw(st.sampled_from([1, 2, 0])),
        gpu=draw(st.sampled_from(["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"])),
        leaving=draw(st.booleans()),
        phase=draw(st.sampled_from(["Running", "Running", "Succeeded"])),
        **gated,
    )


@st.composite
def others(draw):
    number = draw(st.integers(0, 1))
    match draw(st.sampled_from(["Node", "ReplicaSet", "ResourceQuota"])):
        case "Node":
            labels = draw(st.sampled_from([{}, {"nvidia.com/gpu.product": "L4"}, {"nvidia.com/gpu.product": "H100"}]))
            free = draw(st.booleans())
            tainted = {"spec": {"taints": draw(st.sampled_from([[], [TAINT]]))}}
            return objects.node(
                f"node-{number}", metadata={"labels": labels}, ready=draw(st.booleans()), schedulable=free, **tainted
            )
        case "ReplicaSet":
            owner = draw(st.sampled_from([None, ("Deployment", "chat"), ("Deployment", "batch")]))
            return objects.replicaset(["chat-1", "batch-1"][number], owner=owner)
        case _:
            return objects.resource_quota(f"q{number}", gpus=draw(st.integers(0, 9)))


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["MODIFIED", "DELETED"]), st.one_of(pods(), others())),
        st.sets(st.sampled_from(TARGETS)),
    ),
    min_size=10,
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(EVENTS, st.integers(1, 4))
def test_count_after_any_changes_is_the_count_of_what_is_there(events, part):
    cluster, present, targets = empty(), {}, frozenset()
    for event in events:
        if isinstance(event, set):
            targets = frozenset(event)
        else:
            kind, document = event
            (apply_to if kind == "MODIFIED" else delete_from)(cluster, document)
            present[document["kind"], document["metadata"]["name"]] = document if kind == "MODIFIED" else None
        cluster.count_gpus(targets, part)  # a part is counted, and more may change meanwhile
    fresh = empty()
    for document in present.values():
        if document is not None:
            apply_to(fresh, document)
    expected = fresh.gpu_use(targets, T0)
    assert replace(cluster.gpu_use(targets, T0), templates=expected.templates) == expected


def test_targets_without_changes_keep_their_value(apply):
    cluster = apply(
        *(objects.replicaset(f"{name}-1", owner=("Deployment", name)) for name in ("chat", "batch")),
        *(objects.pod(f"{name}-1-a", owner=("ReplicaSet", f"{name}-1"), gpus=1) for name in ("chat", "batch")),
    )
    targets = frozenset(TARGETS[:2])
    before = cluster.gpu_use(targets, T0)
    apply(objects.pod("batch-1-b", owner=("ReplicaSet", "batch-1"), gpus=1))
    after = cluster.gpu_use(targets, T0)
    assert after.by_target[TARGETS[0]] is before.by_target[TARGETS[0]]
    assert before.by_target[TARGETS[1]].admitted == {"nvidia.com/gpu": 1}  # what was returned does not change
    assert after.by_target[TARGETS[1]].admitted == {"nvidia.com/gpu": 2}


def test_each_part_counts_no_more_than_it_is_to(cluster):
    cluster.replace(PODS, None, [objects.pod(f"pod-{n}", gpus=1, address=f"10.0.0.{n}") for n in range(100)], T0)
    parts = 1
    while cluster.count_gpus(frozenset(), 10):
        parts += 1
    assert parts >= 10
    assert sum(cluster.gpu_use(frozenset(), T0).used.values()) == 100


def test_cluster_of_some_namespaces_counts_nothing():
    cluster = Cluster(["ai"], blind_s=60.0)
    cluster.replace(NODES, None, [objects.node()], T0)
    assert not cluster.count_gpus(frozenset(), 1)
    assert cluster.gpu_use(frozenset(), T0) is None


@pytest.mark.parametrize("late", [("ReplicaSet", "sts"), ("Pod", "leader")])
def test_owner_that_arrives_after_its_pods_gives_them_their_target(cluster, late):
    """Whether it is between the pod and the target, or a pod itself, as in a LeaderWorkerSet."""
    targets = frozenset([TARGETS[0]])
    chain = [
        objects.replicaset("chat-1", owner=("Deployment", "chat")),
        objects.pod("leader", owner=("ReplicaSet", "chat-1")),
    ]
    chain.append(objects.replicaset("sts", owner=("Pod", "leader")))
    last = [each for each in chain if (each["kind"], each["metadata"]["name"]) == late]
    apply_to(
        cluster,
        *(each for each in chain if each not in last),
        objects.pod("worker", owner=("ReplicaSet", "sts"), gpus=8),
    )
    assert cluster.gpu_use(targets, T0).by_target == {}
    apply_to(cluster, *last)
    assert cluster.gpu_use(targets, T0).by_target[TARGETS[0]].admitted == {"nvidia.com/gpu": 8}
