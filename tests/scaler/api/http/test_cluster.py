"""What is known of the cluster, on /metrics."""

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
def shown():
    def make(cluster, *object_errors, now=NOW):
        registry = CollectorRegistry()
        registry.register(ClusterCollector(cluster, lambda: object_errors, lambda: now))
        return registry.get_sample_value

    return make


def test_a_resource_is_current_while_the_api_server_answers(shown):
    cluster = Cluster(blind_s=60.0)
    cluster.replace(PODS, None, [], NOW)
    cluster.mark_lost(PODS, NOW)
    known = [shown(cluster, now=now)("tidegate_kubernetes_synced", {"resource": "pods"}) for now in (NOW, NOW + 61)]
    assert known == [1.0, 0.0]
    assert shown(cluster)("tidegate_kubernetes_synced", {"resource": "nodes"}) == 0.0


def test_a_nodes_gpus_and_mig_instances_are_shown_by_resource(shown):
    cluster = Cluster(blind_s=60.0)
    node = api.node("n1", gpus=8, status={"allocatable": {"nvidia.com/mig-1g.10gb": "7"}})
    cluster.replace(NODES, None, [node], NOW)
    value = shown(cluster)
    labels = {"node": "n1", "ready": "true"}
    assert value("tidegate_node_gpus_allocatable", {**labels, "resource": "nvidia.com/gpu"}) == 8.0
    assert value("tidegate_node_gpus_allocatable", {**labels, "resource": "nvidia.com/mig-1g.10gb"}) == 7.0


def test_problems_are_counted_by_object(shown):
    ref = Ref("ai", "ScaledObject", "chat")
    value = shown(
        Cluster(blind_s=60.0),
        ObjectError(ref, "a", "b"),
        ObjectError(ref, "c", "d"),
        ObjectError(ref, "e", "f", "warning"),
    )
    labels = {"namespace": "ai", "kind": "ScaledObject", "name": "chat"}
    assert value("tidegate_object_errors", {**labels, "severity": "error"}) == 2.0
    assert value("tidegate_object_errors", {**labels, "severity": "warning"}) == 1.0
