"""Counts the GPUs of nodes, of pods by scale target, and of quotas, and again only when one of them changes."""

import pytest

from exporter.kubernetes.gpu_use import GpuKind
from exporter.kubernetes.kueue import NO_QUEUES
from exporter.kubernetes.objects import Ref
from exporter.kubernetes.placement import PodTraits, QuotaScope, Taint, Toleration
from exporter.kubernetes.resources import KUEUE, NODES, QUOTAS
from tests.fakes import objects

T0 = 1000.0
GPU = "nvidia.com/gpu"
T4 = GpuKind(GPU, "Tesla-T4")
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
    assert {key[:2]: many for key, many in use.requested.items()} == {("ai", GPU): 2, ("other", GPU): 3}


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


def test_quotas_have_their_scopes_and_one_with_an_unknown_scope_limits_nothing(cluster):
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "NotIn", "values": ["low"]}]}
    quotas = [
        objects.resource_quota("a", gpus=8, spec={"scopes": ["NotTerminating"]}),
        objects.resource_quota("b", gpus=5, spec={"scopeSelector": selector}),
        objects.resource_quota("c", gpus=1, spec={"scopes": ["CrossNamespacePodAffinity"]}),
    ]
    cluster.replace(QUOTAS, None, quotas, T0)
    found = {quota.ref.name: (quota.gpus[GPU], quota.scopes) for quota in cluster.gpu_use(TARGETS, T0).quotas}
    expected = (QuotaScope("PriorityClass", "NotIn", ("low",)),)
    assert found == {"a": (8, (QuotaScope("NotTerminating"),)), "b": (5, expected)}


def test_tainted_nodes_are_kinds_of_their_own(apply):
    """Not those of a taint that only asks for another node, nor the taints of cordoned and failed nodes."""
    taints = [
        {"key": "team", "value": "a", "effect": "NoSchedule"},
        {"key": "spot", "effect": "PreferNoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
    ]
    cluster = apply(node(), node("node-2", spec={"taints": taints}), objects.pod("alone", node="node-2", gpus=3))
    tainted = T4._replace(taints=(Taint("team", "a", "NoSchedule"),))
    use = cluster.gpu_use(TARGETS, T0)
    assert (use.allocatable, use.used) == ({T4: 8, tainted: 8}, {tainted: 3})
    apply(node("node-2"))
    use = cluster.gpu_use(TARGETS, T0)
    assert (use.allocatable, use.used) == ({T4: 16}, {T4: 3})


def test_pod_that_a_queue_holds_is_not_admitted(chat, apply):
    gate = {"spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}}
    owner = ("ReplicaSet", "chat-1")
    apply(objects.pod("chat-1-c", owner=owner, node=None, gpus=1, **{**unscheduled("SchedulingGated"), **gate}))
    mine = chat.gpu_use(TARGETS, T0).by_target[CHAT]
    assert (sum(mine.requested.values()), mine.admitted) == (3, {GPU: 2})


def test_queues_of_kueue_are_known_while_all_of_them_are(cluster, apply):
    for resource in KUEUE:
        cluster.replace(resource, None, [], T0)
    apply(objects.cluster_queue("gpus", gpus=8, reserved=3), objects.local_queue("main", queue="gpus"))
    found = cluster.gpu_use(TARGETS, T0).kueue
    assert (found.local, found.queues["gpus"].flavors[GPU]["default"].reserved) == ({("ai", "main"): "gpus"}, 3)
    apply(objects.cluster_queue("gpus", gpus=8, reserved=5))
    assert cluster.gpu_use(TARGETS, T0).kueue.queues["gpus"].flavors[GPU]["default"].reserved == 5
    cluster.mark_lost(KUEUE[1], T0)
    assert cluster.gpu_use(TARGETS, T0 + 61.0).kueue == NO_QUEUES


def test_template_has_the_traits_that_taints_and_quotas_look_at(chat, apply):
    pod = template()
    pod["spec"] |= {"tolerations": [{"key": "a", "operator": "Exists"}], "priorityClassName": "low"}
    apply(objects.deployment("chat", spec={"template": pod}))
    assert chat.template(CHAT).traits == PodTraits((Toleration("a", "Exists", "", ""),), "low", best_effort=True)


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
