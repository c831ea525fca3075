"""Tests which workload owns a pod, according to the cluster."""

import pytest

from exporter.kubernetes.objects import Pod, Ref
from exporter.model import PodKey, WorkloadKey
from scaler.workloads.pods import cluster_owners

LLM, DECODE, NAMED = WorkloadKey("ai", "llm"), WorkloadKey("ai", "llm", "decode"), WorkloadKey("ai", "named")
CHAIN = (Ref("ai", "ReplicaSet", "chat-1"), Ref("ai", "Deployment", "chat"))
POD = PodKey("ai", "chat-1-a")


class Pods:
    """A cluster with one pod."""

    def __init__(self, chain=CHAIN, started_at=1000.0):
        self.chain, self.started_at = chain, started_at

    def owners_of(self, pod):
        return self.chain if pod == POD else None

    def pod(self, key):
        return Pod(key, "uid", started_at=self.started_at)


@pytest.fixture
def owners():
    def make(pods, *scaled):
        targets = dict.fromkeys(scaled, CHAIN[-1])
        return cluster_owners(pods, targets, lambda pod, at: (NAMED,))

    return make


def test_pod_belongs_to_the_workload_that_scales_its_owner(owners):
    assert owners(Pods(), LLM)(POD, 2000.0) == (LLM,)
    assert owners(Pods(), DECODE, LLM)(POD, 2000.0) == (LLM, DECODE)


def test_series_never_outlives_its_pod(owners):
    assert owners(Pods(), LLM)(PodKey("ai", "gone"), 2000.0) == ()


def test_reading_older_than_its_pod_does_not_belong_to_it(owners):
    owners_of = owners(Pods(started_at=1000.0), LLM)
    assert owners_of(POD, 999.9) == ()
    assert owners_of(POD, 1000.0) == (LLM,)


def test_pod_without_a_scaled_owner_is_matched_by_its_name(owners):
    assert owners(Pods(chain=(Ref("ai", "DaemonSet", "x"),)), LLM)(POD, 2000.0) == (NAMED,)
