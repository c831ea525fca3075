"""Exposes the state of the Kubernetes API data, GPUs of nodes, and invalid objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.resources import RESOURCES
from scaler.workloads import ObjectError


class ClusterCollector:
    """troubles: of the census in force."""

    def __init__(
        self, cluster: Cluster, troubles: Callable[[], Sequence[ObjectError]], now: Callable[[], float]
    ) -> None:
        self._cluster, self._troubles, self._now = cluster, troubles, now

    def collect(self) -> Iterable[Metric]:
        known = GaugeMetricFamily(
            "tidegate_kubernetes_known",
            "1: its data is complete and current. 0: dependent decisions are held.",
            labels=("resource",),
        )
        malformed = CounterMetricFamily(
            "tidegate_kubernetes_malformed_objects", "Objects that could not be parsed.", labels=("resource",)
        )
        for resource in RESOURCES:
            known.add_metric((resource.name,), float(self._cluster.synced(resource, self._now())))
            malformed.add_metric((resource.name,), self._cluster.malformed[resource.name])
        yield from (known, malformed, self._allocatable(), self._wrong())

    def _allocatable(self) -> Metric:
        family = GaugeMetricFamily(
            "tidegate_node_gpus_allocatable",
            "Allocatable GPUs or MIG instances of a node, by resource name.",
            labels=("node", "resource", "ready"),
        )
        for node in self._cluster.nodes():
            usable = str(node.ready and node.schedulable).lower()
            for resource, count in sorted(node.gpus.items()):
                family.add_metric((node.name, resource, usable), float(count))
        return family

    def _wrong(self) -> Metric:
        family = GaugeMetricFamily(
            "tidegate_object_troubles",
            "Problems of an object; the log has the details. With severity error it defines no workload.",
            labels=("namespace", "kind", "name", "severity"),
        )
        troubles = Counter((*trouble.ref, trouble.severity) for trouble in self._troubles())
        for labels, several in sorted(troubles.items()):
            family.add_metric(labels, float(several))
        return family
