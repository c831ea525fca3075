"""The state of the cluster is exposed on /metrics."""

import pytest
from prometheus_client import CollectorRegistry

from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.objects import Ref
from exporter.kubernetes.resources import NODES, PODS
from scaler.api.http.collectors import ClusterCollector
from scaler.workloads import ObjectError
from tests.fakes import objects as api

NOW = 1000.0


@pytest.fixture
def sample_value():
    def make(cluster, *object_errors, now=NOW):
        registry = CollectorRegistry()
        registry.register(ClusterCollector(cluster, lambda: object_errors, lambda: now))
        return registry.get_sample_value

    return make


def test_resource_is_synced_while_the_api_server_answers(sample_value):
    cluster = Cluster(blind_s=60.0)
    cluster.replace(PODS, None, [], NOW)
    cluster.mark_lost(PODS, NOW)
    synced = [
        sample_value(cluster, now=now)("tidegate_kubernetes_synced", {"resource": "pods"}) for now in (NOW, NOW + 61)
    ]
    assert synced == [1.0, 0.0]
    assert sample_value(cluster)("tidegate_kubernetes_synced", {"resource": "nodes"}) == 0.0


def test_gpus_and_mig_instances_of_a_node_are_exposed_by_resource(sample_value):
    cluster = Cluster(blind_s=60.0)
    node = api.node("n1", gpus=8, status={"allocatable": {"nvidia.com/mig-1g.10gb": "7"}})
    cluster.replace(NODES, None, [node], NOW)
    value = sample_value(cluster)
    labels = {"node": "n1", "ready": "true"}
    assert value("tidegate_node_gpus_allocatable", {**labels, "resource": "nvidia.com/gpu"}) == 8.0
    assert value("tidegate_node_gpus_allocatable", {**labels, "resource": "nvidia.com/mig-1g.10gb"}) == 7.0


def test_problems_are_counted_by_object(sample_value):
    ref = Ref("ai", "ScaledObject", "chat")
    value = sample_value(
        Cluster(blind_s=60.0),
        ObjectError(ref, "a", "b"),
        ObjectError(ref, "c", "d"),
        ObjectError(ref, "e", "f", "warning"),
    )
    labels = {"namespace": "ai", "kind": "ScaledObject", "name": "chat"}
    assert value("tidegate_object_errors", {**labels, "severity": "error"}) == 2.0
    assert value("tidegate_object_errors", {**labels, "severity": "warning"}) == 1.0
