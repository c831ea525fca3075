"""Sequences of events in a cluster give the right targets and replica counts at every step."""

import pytest

from exporter.discovery.kubernetes import PodTargets
from exporter.kubernetes.objects import Ref
from exporter.kubernetes.resources import PODS
from exporter.model import PodKey, ReplicaCount, Role, Target, WorkloadKey
from tests.fakes import objects as api

from .conftest import T0, delete_from

CHAT = Ref("ai", "Deployment", "chat")
OWNER = WorkloadKey("ai", "chat")


class Discovery:
    """Runs the discovery of one scale target. A call returns the pods that must answer, and those that leave."""

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
def discovery(apply):
    return Discovery(apply(api.deployment("chat", replicas=2)), CHAT)


def generation(name):
    return api.replicaset(name, owner=("Deployment", "chat"))


def member(name, number, **more):
    return api.pod(name, owner=("ReplicaSet", name.rpartition("-")[0]), address=f"10.0.0.{number}", **more)


async def test_rollout_with_max_surge_skips_the_loading_pod_and_does_not_count_the_leaving_pod(apply, discovery):
    apply(generation("chat-old"), member("chat-old-a", 1), member("chat-old-b", 2))
    assert await discovery() == (["chat-old-a", "chat-old-b"], [])
    # The new ReplicaSet adds one pod more than desired, first without a node, then loading its model.
    apply(generation("chat-new"), member("chat-new-a", 3, node=None))
    assert ReplicaCount(2, 2, T0, 1, 0, 3) == discovery.count()
    apply(member("chat-new-a", 3, ready=False))
    assert await discovery() == (["chat-old-a", "chat-old-b"], [])
    assert ReplicaCount(2, 2, T0, 0, 0, 3) == discovery.count()
    apply(member("chat-new-a", 3))
    assert await discovery() == (["chat-new-a", "chat-old-a", "chat-old-b"], [])
    assert ReplicaCount(2, 3, T0, 0, 0, 3) == discovery.count()
    # An old pod terminates: its requests are activity, but it is no capacity.
    apply(member("chat-old-a", 1, leaving=True))
    assert await discovery() == (["chat-new-a", "chat-old-b"], ["chat-old-a"])
    assert ReplicaCount(2, 2, T0, 0, 0, 2, leaving=1) == discovery.count()
    apply(member("chat-old-a", 1, leaving=True, ready=False))
    assert await discovery() == (["chat-new-a", "chat-old-b"], ["chat-old-a"])
    apply(member("chat-old-a", 1, leaving=True, ready=False, phase="Succeeded"))
    assert await discovery() == (["chat-new-a", "chat-old-b"], [])
    delete_from(discovery.cluster, member("chat-old-a", 1))
    assert await discovery() == (["chat-new-a", "chat-old-b"], [])


async def test_pods_of_a_lost_node_must_answer_until_they_terminate_and_are_no_capacity(apply, discovery):
    apply(generation("chat-1"), member("chat-1-a", 1), member("chat-1-b", 2, node="lost"))
    # The node controller marks the pod as unready; it is not deleted yet and may still work.
    apply(member("chat-1-b", 2, node="lost", ready=False))
    assert await discovery() == (["chat-1-a", "chat-1-b"], [])
    assert ReplicaCount(2, 1, T0, 0, 0, 2) == discovery.count()
    # After five minutes it is deleted, which its kubelet cannot confirm. Its replacement starts on another node.
    apply(member("chat-1-b", 2, node="lost", ready=False, leaving=True), member("chat-1-c", 3))
    assert await discovery() == (["chat-1-a", "chat-1-c"], ["chat-1-b"])
    assert ReplicaCount(2, 2, T0, 0, 0, 2, leaving=1) == discovery.count()
    # A pod of another owner gets the address: it is not scraped as the lost pod.
    younger = {"creationTimestamp": "2026-11-01T10:30:00Z"}
    apply(api.pod("other", owner=("StatefulSet", "other"), address="10.0.0.2", ready=False, metadata=younger))
    assert await discovery() == (["chat-1-a", "chat-1-c"], [])
    discovery.cluster.replace(PODS, None, [member("chat-1-a", 1), member("chat-1-c", 3)], T0)
    assert await discovery() == (["chat-1-a", "chat-1-c"], [])


async def test_reversed_order_of_arrival_gives_the_same_result(apply, cluster):
    discovery = Discovery(cluster, CHAT)
    apply(member("chat-1-a", 1))
    assert await discovery() is None
    assert discovery.count() is None
    apply(api.deployment("chat", replicas=1))
    assert await discovery() == ([], [])
    assert ReplicaCount(1, 0, T0, 0, 0, 0) == discovery.count()
    apply(generation("chat-1"))
    assert await discovery() == (["chat-1-a"], [])
    assert ReplicaCount(1, 1, T0, 0, 0, 1) == discovery.count()


async def test_incomplete_group_is_scraped_at_its_leader_and_is_no_capacity(apply, cluster):
    discovery = Discovery(cluster, Ref("ai", "LeaderWorkerSet", "big"))

    def part(name, index, number, owner, **more):
        labels = {
            "leaderworkerset.sigs.k8s.io/group-index": "0",
            "leaderworkerset.sigs.k8s.io/worker-index": str(index),
        }
        metadata = {"annotations": {"leaderworkerset.sigs.k8s.io/size": "2"}}
        return api.pod(name, owner=owner, address=f"10.0.0.{number}", labels=labels, metadata=metadata, **more)

    apply(
        api.leader_worker_set("big", replicas=1, size=2),
        api.stateful_set("big", owner=("LeaderWorkerSet", "big")),
        part("big-0", 0, 1, ("StatefulSet", "big")),
    )
    assert await discovery() == (["big-0"], [])
    assert ReplicaCount(1, 0, T0, 0, 0, 1) == discovery.count()
    apply(
        api.stateful_set("big-0", owner=("Pod", "big-0")),
        part("big-0-1", 1, 2, ("StatefulSet", "big-0"), node=None),
    )
    assert await discovery() == (["big-0"], [])
    assert ReplicaCount(1, 0, T0, 1, 0, 1) == discovery.count()
    apply(part("big-0-1", 1, 2, ("StatefulSet", "big-0")))
    assert await discovery() == (["big-0"], [])
    assert ReplicaCount(1, 1, T0, 0, 0, 1) == discovery.count()


async def test_job_of_a_scaled_job_is_a_target_while_it_runs_and_is_never_counted(apply, cluster):
    discovery = Discovery(cluster, Ref("ai", "ScaledJob", "batch"))
    apply(api.scaled_job("batch"), api.job("batch-x", owner=("ScaledJob", "batch")))
    apply(api.pod("batch-x-a", owner=("Job", "batch-x"), ready=False))
    assert await discovery() == ([], [])
    apply(api.pod("batch-x-a", owner=("Job", "batch-x")))
    assert await discovery() == (["batch-x-a"], [])
    assert discovery.count() is None
    apply(api.pod("batch-x-a", owner=("Job", "batch-x"), ready=False, phase="Succeeded"))
    assert await discovery() == ([], [])
    # A finished Job is kept for its logs, so the owners of its pod stay known.
    assert Ref("ai", "ScaledJob", "batch") in cluster.owners_of(PodKey("ai", "batch-x-a"))
