"""Who knows how many replicas a workload has: the cluster, the demo, or nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from exporter.model import ReplicaCount, WorkloadKey


class ReplicaCounts(Protocol):
    """Asked once per tick for every workload: answers from memory."""

    def count(self, workload: WorkloadKey) -> ReplicaCount | None:
        """None is: not known."""


@dataclass(frozen=True, slots=True)
class StaticReplicas:
    """Counts that never change; a workload that is not listed is not known."""

    counts: Mapping[WorkloadKey, ReplicaCount] = field(default_factory=lambda: MappingProxyType({}))

    def count(self, workload: WorkloadKey) -> ReplicaCount | None:
        return self.counts.get(workload)
