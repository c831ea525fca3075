"""What happens in clusters, scene by scene, and what is seen of it."""

import pytest

from exporter.discovery.kubernetes import PodTargets
from exporter.kubernetes.objects import Ref
from exporter.kubernetes.resources import PODS
from exporter.model import PodKey, ReplicaCount, Role, Target, WorkloadKey
from tests.fakes import objects as api

from .conftest import T0, forget

CHAT = Ref("ai", "Deployment", "chat")
OWNER = WorkloadKey("ai", "chat")


class Seen:
    """What the discovery of one target lists: names of pods that must answer, and of those that may."""

    def __init__(self, cluster, ref):
        self.cluster, self.ref = cluster, ref
        self.targets = PodTargets(cluster, ref, lambda a: Target(f"http://{a}:8000/metrics", "vllm", Role.PODS), OWNER)

    async def __call__(self):
        await self.targets.refresh(T0)
        listing = self.targets.listing()
        if listing is None:
            return None
        assert listing.leaving <= set(listing.targets)
        return (
            [target.pod.pod for target in listing.targets if target not in listing.leaving],
            [target.pod.pod for target in listing.targets if target in listing.leaving],
        )

    def count(self):
        return self.cluster.count(self.ref, T0)


@pytest.fixture
def seen(told):
    return Seen(told(api.deployment("chat", replicas=2)), CHAT)


def generation(name):
    return api.replicaset(name, owner=("Deployment", "chat"))


def member(name, number, **more):
    return api.pod(name, owner=("ReplicaSet", name.rpartition("-")[0]), address=f"10.0.0.{number}", **more)


async def test_a_rollout_with_max_surge_never_asks_the_one_that_loads_and_never_counts_the_one_that_leaves(told, seen):
    told(generation("chat-old"), member("chat-old-a", 1), member("chat-old-b", 2))
    assert await seen() == (["chat-old-a", "chat-old-b"], [])
    # The new ReplicaSet brings one more than is wanted, first without a node, then loading its model.
    told(generation("chat-new"), member("chat-new-a", 3, node=None))
    assert ReplicaCount(2, 2, T0, 1, 0, 3) == seen.count()
    told(member("chat-new-a", 3, ready=False))
    assert await seen() == (["chat-old-a", "chat-old-b"], [])
    assert ReplicaCount(2, 2, T0, 0, 0, 3) == seen.count()
    told(member("chat-new-a", 3))
    assert await seen() == (["chat-new-a", "chat-old-a", "chat-old-b"], [])
    assert ReplicaCount(2, 3, T0, 0, 0, 3) == seen.count()
    # An old one is asked to go: what it still works on is activity, and it is no capacity.
    told(member("chat-old-a", 1, leaving=True))
    assert await seen() == (["chat-new-a", "chat-old-b"], ["chat-old-a"])
    assert ReplicaCount(2, 2, T0, 0, 0, 2, leaving=1) == seen.count()
    told(member("chat-old-a", 1, leaving=True, ready=False))
    assert await seen() == (["chat-new-a", "chat-old-b"], ["chat-old-a"])
    told(member("chat-old-a", 1, leaving=True, ready=False, phase="Succeeded"))
    assert await seen() == (["chat-new-a", "chat-old-b"], [])
    forget(seen.cluster, member("chat-old-a", 1))
    assert await seen() == (["chat-new-a", "chat-old-b"], [])


async def test_a_lost_nodes_pods_must_answer_until_they_are_told_to_go_and_are_no_capacity(told, seen):
    told(generation("chat-1"), member("chat-1-a", 1), member("chat-1-b", 2, node="lost"))
    # The node controller says of the pod that it is not ready; nobody has deleted it yet, and it may still work.
    told(member("chat-1-b", 2, node="lost", ready=False))
    assert await seen() == (["chat-1-a", "chat-1-b"], [])
    assert ReplicaCount(2, 1, T0, 0, 0, 2) == seen.count()
    # After five minutes it is to be deleted, which its kubelet would have to confirm. Its heir starts elsewhere.
    told(member("chat-1-b", 2, node="lost", ready=False, leaving=True), member("chat-1-c", 3))
    assert await seen() == (["chat-1-a", "chat-1-c"], ["chat-1-b"])
    assert ReplicaCount(2, 2, T0, 0, 0, 2, leaving=1) == seen.count()
    # The network gives the address away, to a pod of somebody else: it is not asked in the name of the dead one.
    younger = {"creationTimestamp": "2026-11-01T10:30:00Z"}
    told(api.pod("other", owner=("StatefulSet", "other"), address="10.0.0.2", ready=False, metadata=younger))
    assert await seen() == (["chat-1-a", "chat-1-c"], [])
    seen.cluster.replace(PODS, None, [member("chat-1-a", 1), member("chat-1-c", 3)], T0)
    assert await seen() == (["chat-1-a", "chat-1-c"], [])


async def test_everything_arrives_in_the_wrong_order_and_ends_the_same(told, cluster):
    seen = Seen(cluster, CHAT)
    told(member("chat-1-a", 1))
    assert await seen() is None
    assert seen.count() is None
    told(api.deployment("chat", replicas=1))
    assert await seen() == ([], [])
    assert ReplicaCount(1, 0, T0, 0, 0, 0) == seen.count()
    told(generation("chat-1"))
    assert await seen() == (["chat-1-a"], [])
    assert ReplicaCount(1, 1, T0, 0, 0, 1) == seen.count()


async def test_a_group_half_up_is_asked_at_its_leader_and_is_not_capacity(told, cluster):
    seen = Seen(cluster, Ref("ai", "LeaderWorkerSet", "big"))

    def part(name, index, number, owner, **more):
        labels = {
            "leaderworkerset.sigs.k8s.io/group-index": "0",
            "leaderworkerset.sigs.k8s.io/worker-index": str(index),
        }
        metadata = {"annotations": {"leaderworkerset.sigs.k8s.io/size": "2"}}
        return api.pod(name, owner=owner, address=f"10.0.0.{number}", labels=labels, metadata=metadata, **more)

    told(
        api.leader_worker_set("big", replicas=1, size=2),
        api.stateful_set("big", owner=("LeaderWorkerSet", "big")),
        part("big-0", 0, 1, ("StatefulSet", "big")),
    )
    assert await seen() == (["big-0"], [])
    assert ReplicaCount(1, 0, T0, 0, 0, 1) == seen.count()
    told(
        api.stateful_set("big-0", owner=("Pod", "big-0")),
        part("big-0-1", 1, 2, ("StatefulSet", "big-0"), node=None),
    )
    assert await seen() == (["big-0"], [])
    assert ReplicaCount(1, 0, T0, 1, 0, 1) == seen.count()
    told(part("big-0-1", 1, 2, ("StatefulSet", "big-0")))
    assert await seen() == (["big-0"], [])
    assert ReplicaCount(1, 1, T0, 0, 0, 1) == seen.count()


async def test_a_job_of_a_scaled_job_is_asked_while_it_runs_and_is_never_counted(told, cluster):
    seen = Seen(cluster, Ref("ai", "ScaledJob", "batch"))
    told(api.scaled_job("batch"), api.job("batch-x", owner=("ScaledJob", "batch")))
    told(api.pod("batch-x-a", owner=("Job", "batch-x"), ready=False))
    assert await seen() == ([], [])
    told(api.pod("batch-x-a", owner=("Job", "batch-x")))
    assert await seen() == (["batch-x-a"], [])
    assert seen.count() is None
    told(api.pod("batch-x-a", owner=("Job", "batch-x"), ready=False, phase="Succeeded"))
    assert await seen() == ([], [])
    # A finished Job is kept for its logs: whose pod it is stays known.
    assert Ref("ai", "ScaledJob", "batch") in cluster.owners_of(PodKey("ai", "batch-x-a"))
