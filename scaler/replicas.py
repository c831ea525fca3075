"""Who knows how many replicas a workload has: the cluster, the demo, or nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from exporter.cluster.objects import Ref
from exporter.model import ReplicaCount, WorkloadKey


class ReplicaCounts(Protocol):
    """Answers from memory. The control loop asks a cluster for what has changed, anything else for every workload."""

    def count(self, workload: WorkloadKey, now: float) -> ReplicaCount | None:
        """None is: not known. `now`: POSIX seconds."""


class Counting(Protocol):
    """Who counts the replicas of what can be scaled: a cluster in memory."""

    def count(self, target: Ref, now: float) -> ReplicaCount | None: ...


@dataclass(frozen=True, slots=True)
class ClusterReplicas:
    """The cluster's own counts of what each workload scales."""

    cluster: Counting
    targets: Mapping[WorkloadKey, Ref]

    def count(self, workload: WorkloadKey, now: float) -> ReplicaCount | None:
        target = self.targets.get(workload)
        return None if target is None else self.cluster.count(target, now)
