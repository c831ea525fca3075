"""Counts the GPUs of nodes, of pods by scale target, and of quotas, and again only when one of them changes."""

import pytest

from exporter.kubernetes.gpu_use import GpuKind
from exporter.kubernetes.objects import Ref
from exporter.kubernetes.resources import NODES, QUOTAS
from tests.fakes import objects

T0 = 1000.0
T4 = GpuKind("nvidia.com/gpu", "Tesla-T4")
CHAT = Ref("ai", "Deployment", "chat")
TARGETS = frozenset({CHAT})


def node(name="node-1", model="Tesla-T4", **more):
    return objects.node(name, metadata={"labels": {"nvidia.com/gpu.product": model}}, **more)


def template(gpus=1, model=None, gpu="nvidia.com/gpu"):
    selector = {} if model is None else {"nodeSelector": {"nvidia.com/gpu.product": model}}
    return {"spec": {"containers": [{"name": "a", "resources": {"limits": {gpu: str(gpus)}}}], **selector}}


@pytest.fixture
def chat(apply):
    """Deployment `ai/chat` with two pods of one GPU each, on a node of 8."""
    owner = ("ReplicaSet", "chat-1")
    return apply(
        node(),
        objects.deployment("chat", replicas=2, spec={"template": template()}),
        objects.replicaset("chat-1", owner=("Deployment", "chat")),
        objects.pod("chat-1-a", owner=owner, gpus=1),
        objects.pod("chat-1-b", owner=owner, gpus=1),
    )


def unscheduled(reason):
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "lastTransitionTime": objects.CREATED}
    return {"status": {"conditions": [condition]}}


def test_gpus_of_a_target_and_of_other_pods_are_counted_by_kind(chat, apply):
    apply(objects.pod("alone", "other", gpus=3), objects.pod("done", "other", gpus=1, phase="Succeeded"))
    use = chat.gpu_use(TARGETS, T0)
    assert (use.allocatable, use.used) == ({T4: 8}, {T4: 5})
    assert use.by_target[CHAT].held == {T4: 2}
    assert use.requested == {("ai", "nvidia.com/gpu"): 2, ("other", "nvidia.com/gpu"): 3}


def test_terminating_pod_uses_its_gpu_and_does_not_stay(chat, apply):
    apply(objects.pod("chat-1-a", owner=("ReplicaSet", "chat-1"), gpus=1, leaving=True))
    mine = chat.gpu_use(TARGETS, T0).by_target[CHAT]
    assert (mine.held, mine.staying) == ({T4: 2}, {T4: 1})


def test_pod_without_a_node_waits_until_the_scheduler_finds_no_room(chat, apply):
    apply(objects.pod("alone", "other", node=None, gpus=3))
    assert chat.gpu_use(TARGETS, T0).waiting == {"nvidia.com/gpu": 3}
    apply(objects.pod("alone", "other", node=None, gpus=3, **unscheduled("Unschedulable")))
    assert chat.gpu_use(TARGETS, T0).waiting == {}


def test_cordoned_node_has_only_the_gpus_that_its_pods_use(chat, apply):
    apply(node(schedulable=False))
    assert chat.gpu_use(TARGETS, T0).allocatable == {T4: 2}


def test_mig_instances_and_models_are_kinds_of_their_own(apply):
    cluster = apply(node(), node("node-2", "NVIDIA-A100-SXM4-80GB", gpus=4, gpu="nvidia.com/mig-1g.10gb"))
    kinds = {T4: 8, GpuKind("nvidia.com/mig-1g.10gb", "NVIDIA-A100-SXM4-80GB"): 4}
    assert cluster.gpu_use(TARGETS, T0).allocatable == kinds


def test_lowest_quota_of_a_namespace_counts_and_one_for_some_pods_does_not(cluster):
    scoped = objects.resource_quota("scoped", gpus=1, spec={"scopes": ["BestEffort"]})
    quotas = [objects.resource_quota("a", gpus=8), objects.resource_quota("b", gpus=5), scoped]
    cluster.replace(QUOTAS, None, quotas, T0)
    assert cluster.gpu_use(TARGETS, T0).quotas == {("ai", "nvidia.com/gpu"): 5}


def test_nothing_is_counted_again_while_no_gpu_changes(chat, apply):
    before = chat.gpu_use(TARGETS, T0)
    apply(objects.pod("web", "other"), objects.pod("chat-1-a", owner=("ReplicaSet", "chat-1"), gpus=1, ready=False))
    assert chat.gpu_use(TARGETS, T0) is before
    apply(objects.pod("chat-1-a", owner=("ReplicaSet", "chat-1"), gpus=1, node=None))
    assert chat.gpu_use(TARGETS, T0) is not before


def test_use_is_unknown_while_nodes_are(cluster, apply):
    apply(node())
    cluster.mark_lost(NODES, T0)
    assert cluster.gpu_use(TARGETS, T0) is not None
    assert cluster.gpu_use(TARGETS, T0 + 61.0) is None


def test_template_has_the_gpus_of_a_replica_and_its_model(chat, apply):
    assert chat.template(CHAT).gpus == {"nvidia.com/gpu": 1}
    apply(objects.deployment("chat", spec={"template": template(2, "Tesla-T4")}))
    assert (chat.template(CHAT).gpus, chat.template(CHAT).gpu_model) == ({"nvidia.com/gpu": 2}, "Tesla-T4")
    group = objects.leader_worker_set("llama", size=3)
    group["spec"]["leaderWorkerTemplate"]["workerTemplate"] = template(8)
    apply(group)
    assert chat.template(Ref("ai", "LeaderWorkerSet", "llama")).gpus == {"nvidia.com/gpu": 24}


@pytest.mark.parametrize("odd", ["text", {"spec": {"containers": "none"}}, {"spec": 5}])
def test_template_of_another_shape_is_unknown_and_costs_nothing_else(apply, odd):
    cluster = apply(objects.rollout("chat", replicas=3, spec={"template": odd}))
    found = cluster.template(Ref("ai", "Rollout", "chat"))
    assert (found.wanted, found.gpus, found.gpu_model) == (3, {}, None)
