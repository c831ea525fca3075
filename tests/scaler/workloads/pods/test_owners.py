"""Whose a pod is, where there is a cluster to ask."""

import pytest

from exporter.kubernetes.objects import Pod, Ref
from exporter.model import PodKey, WorkloadKey
from scaler.workloads.pods import cluster_owners

LLM, DECODE, NAMED = WorkloadKey("ai", "llm"), WorkloadKey("ai", "llm", "decode"), WorkloadKey("ai", "named")
CHAIN = (Ref("ai", "ReplicaSet", "chat-1"), Ref("ai", "Deployment", "chat"))
POD = PodKey("ai", "chat-1-a")


class Pods:
    """What a cluster says of one pod."""

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


def test_a_pod_is_whoever_scales_what_it_belongs_to(owners):
    assert owners(Pods(), LLM)(POD, 2000.0) == (LLM,)
    assert owners(Pods(), DECODE, LLM)(POD, 2000.0) == (LLM, DECODE)


def test_a_series_never_outlives_its_pod(owners):
    assert owners(Pods(), LLM)(PodKey("ai", "gone"), 2000.0) == ()


def test_a_reading_from_before_a_pod_began_is_not_the_pods(owners):
    whose = owners(Pods(started_at=1000.0), LLM)
    assert whose(POD, 999.9) == ()
    assert whose(POD, 1000.0) == (LLM,)


def test_a_pod_of_nothing_that_is_scaled_is_asked_for_by_its_name(owners):
    assert owners(Pods(chain=(Ref("ai", "DaemonSet", "x"),)), LLM)(POD, 2000.0) == (NAMED,)
