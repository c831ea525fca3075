"""GPUs with pod labels that match no workload are reported with the reason and the remedy."""

import numpy as np
import pytest

from exporter.attribution import owners_by_name
from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.objects import Ref
from exporter.kubernetes.resources import RESOURCES
from exporter.model import Attribution, Gpu, PodKey, Quantity, Samples, WorkloadKey
from scaler.workloads.pods import cluster_owners
from scaler.workloads.unmatched import UnmatchedReason, unmatched_gpus
from tests.fakes import objects

CHAT = WorkloadKey("ai", "chat")


def response(*gpus):
    return Samples("dcgm", gpus, (Quantity.GPU_ENGINE_ACTIVE,), np.full((len(gpus), 1), 0.5), np.zeros(len(gpus)))


def gpu(number, *pods):
    return Gpu(f"GPU-{number}", attribution=Attribution.DEVICE, pods=tuple(PodKey(*pod.split("/")) for pod in pods))


@pytest.fixture
def cluster():
    filled = Cluster(["ai", "monitoring"], blind_s=1e9)
    documents = [
        objects.deployment("chat"),
        objects.replicaset("chat-1", owner=("Deployment", "chat")),
        objects.pod("chat-1-x", owner=("ReplicaSet", "chat-1")),
        objects.deployment("lab"),
        objects.replicaset("lab-1", owner=("Deployment", "lab")),
        objects.pod("lab-1-x", owner=("ReplicaSet", "lab-1")),
        objects.pod("alone"),
        objects.pod("dcgm-exporter-x", "monitoring", labels={"app.kubernetes.io/name": "dcgm-exporter"}),
    ]
    for resource in RESOURCES:
        for namespace in ("ai", "monitoring"):
            matching = [
                each
                for each in documents
                if each["kind"] == resource.kind and each["metadata"]["namespace"] == namespace
            ]
            filled.replace(resource, namespace, matching, 0.0)
    return filled


def found(cluster, *gpus):
    owners = cluster_owners(cluster, {CHAT: Ref("ai", "Deployment", "chat")}, owners_by_name({}))
    return unmatched_gpus([response(*gpus)], owners, cluster)


@pytest.mark.parametrize(
    ("pod", "reason", "cause"),
    [
        ("ai/lab-1-x", "no_workload", "no trigger or annotation scales Deployment ai/lab"),
        ("ai/alone", "no_workload", "no trigger or annotation scales a pod without a controller"),
        ("ai/gone", "no_pod", "the cluster has no such pod"),
        ("team/lab-1-x", "not_watched", "namespace team is not watched"),
        ("monitoring/dcgm-exporter-x", "exporter", "the label names the exporter's own pod"),
    ],
)
def test_reason_is_that_of_the_cluster(cluster, pod, reason, cause):
    [only] = found(cluster, gpu(0, pod), gpu(1, "ai/chat-1-x"))
    assert (only.reason, only.gpus, only.pods, only.cause) == (reason, 1, (pod,), cause)
    assert only.sentence == f"1 GPU of {pod} matches no workload: {cause}"
    assert only.remedy


def test_gpus_with_the_same_reason_are_one_sentence(cluster):
    seventeen = [gpu(number, f"ai/gone-{number % 5}") for number in range(17)]
    [only] = found(cluster, *seventeen)
    assert only.sentence == (
        "17 GPUs of ai/gone-0, ai/gone-1, ai/gone-2 and 2 more match no workload: the cluster has no such pod"
    )
    assert only.to_document()["gpus"] == 17


def test_gpus_of_workloads_and_gpus_without_a_label_are_not_reported(cluster):
    assert found(cluster, gpu(0, "ai/chat-1-x"), gpu(1), gpu(2, "ai/gone", "ai/chat-1-x")) == ()


def test_gpu_of_two_responses_counts_once(cluster):
    owners = owners_by_name({})
    [only] = unmatched_gpus([response(gpu(0, "ai/a")), response(gpu(0, "ai/a"))], owners, None)
    assert only.gpus == 1


def test_without_a_cluster_the_remedy_is_a_pattern():
    [only] = unmatched_gpus([response(gpu(0, "ai/llm-x"))], owners_by_name({CHAT: None}), None)
    assert (only.reason, "pod_pattern" in only.remedy) == (UnmatchedReason.OTHER_NAME, True)


def test_label_cannot_move_the_cursor(cluster):
    [only] = found(cluster, gpu(0, "ai/\x1b[2J"))
    assert only.sentence.isprintable()
