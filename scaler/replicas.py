"""Who knows how many replicas a workload has: the cluster, the demo, or nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from exporter.cluster.objects import Ref
from exporter.model import ReplicaCount, WorkloadKey


class ReplicaCounts(Protocol):
    """Asked once per tick for every workload: answers from memory."""

    def count(self, workload: WorkloadKey, now: float) -> ReplicaCount | None:
        """None is: not known. `now`: POSIX seconds."""


@dataclass(frozen=True, slots=True)
class StaticReplicas:
    """Counts that never change; a workload that is not listed is not known."""

    counts: Mapping[WorkloadKey, ReplicaCount] = field(default_factory=lambda: MappingProxyType({}))

    def count(self, workload: WorkloadKey, now: float) -> ReplicaCount | None:  # noqa: ARG002 - always known
        return self.counts.get(workload)


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
