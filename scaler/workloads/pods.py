"""Whose a pod is, where there is a cluster to ask: the workloads that scale what the pod belongs to. Pure.

It knows owner references and refuses to guess by names where the cluster can say. A pod that the cluster does not have
is nobody's, whatever a page prints: a series never outlives its pod.

Worked example: pod `ai/chat-7d9f8b6c5d-x2k9q` belongs to ReplicaSet `chat-7d9f8b6c5d`, and that to Deployment `chat`,
which ScaledObject `ai/llm` scales: it is `WorkloadKey("ai", "llm")`'s, though no name says so.

Who knows how many replicas a workload has: the cluster, the demo, or nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from exporter.attribution import Owners
from exporter.kubernetes.objects import Pod, Ref
from exporter.model import PodKey, ReplicaCount, WorkloadKey


class Pods(Protocol):
    """What of a cluster is asked here."""

    def owners_of(self, pod: PodKey) -> tuple[Ref, ...] | None: ...

    def pod(self, key: PodKey) -> Pod | None: ...


def cluster_owners(pods: Pods, targets: Mapping[WorkloadKey, Ref], by_name: Owners) -> Owners:
    """targets: what each workload scales. by_name: asked for pods of whose controllers no workload scales any."""
    scalers: dict[Ref, tuple[WorkloadKey, ...]] = {}
    for workload in sorted(targets):
        scalers[targets[workload]] = (*scalers.get(targets[workload], ()), workload)

    def owners(pod: PodKey, at: float) -> tuple[WorkloadKey, ...]:
        chain = pods.owners_of(pod)
        if chain is None:
            return ()
        found = next((scalers[ref] for ref in chain if ref in scalers), None)
        if found is None:
            return by_name(pod, at)
        known = pods.pod(pod)
        began = known.started_at if known is not None else None
        # dcgm-exporter looks up pods when its page is asked for: an older value may carry the name of a newer pod.
        return () if began is not None and at < began else found

    return owners


class ReplicaCounts(Protocol):
    """Answers from memory. The control loop asks a cluster for what has changed, anything else for every workload."""

    def count(self, workload: WorkloadKey, now: float) -> ReplicaCount | None:
        """None is: not known. `now`: POSIX seconds."""


class Scalables(Protocol):
    """Who counts the replicas of what can be scaled: a cluster in memory."""

    def count(self, target: Ref, now: float) -> ReplicaCount | None: ...

    def will_count(self, target: Ref, now: float) -> bool: ...

    def take_uncounted(self, now: float) -> frozenset[Ref] | None: ...


@dataclass(frozen=True, slots=True)
class ClusterReplicas:
    """The cluster's own counts of what each workload scales."""

    cluster: Scalables
    targets: Mapping[WorkloadKey, Ref]

    def count(self, workload: WorkloadKey, now: float) -> ReplicaCount | None:
        target = self.targets.get(workload)
        return None if target is None else self.cluster.count(target, now)


class CountListener(Protocol):
    """Who is told of counts: the decider."""

    @property
    def workloads(self) -> Sequence[WorkloadKey]: ...

    def counted(self, workload: WorkloadKey, count: ReplicaCount | None) -> None: ...

    def await_count(self, workload: WorkloadKey) -> None: ...


class Counting:
    """Counts the replicas of workloads where they may have changed.

    replicas: counts in place of the cluster, every workload at every tick; None is: the cluster counts.
    """

    def __init__(self, replicas: ReplicaCounts | None, cluster: Scalables | None) -> None:
        self._replicas, self._cluster = replicas, cluster
        self._whole = False  # is the count of every workload as of the last tick?

    def tick(
        self,
        counted: CountListener,
        scaled: Mapping[Ref, Collection[WorkloadKey]],
        targets: Mapping[WorkloadKey, Ref],
        now: float,
    ) -> None:
        """scaled: the workloads of each target. After a tick that failed, every workload is counted."""
        due, self._whole = self._due(counted, scaled, now), False
        self.count(due, counted, targets, now)
        self._whole = True

    def count(
        self, workloads: Collection[WorkloadKey], counted: CountListener, targets: Mapping[WorkloadKey, Ref], now: float
    ) -> None:
        """Count these workloads now."""
        cluster = self._cluster
        replicas = self._replicas
        if replicas is None:
            if cluster is None:
                return
            replicas = ClusterReplicas(cluster, targets)
        for workload in workloads:
            count, target = replicas.count(workload, now), targets.get(workload)
            if count is None and cluster is not None and target is not None and cluster.will_count(target, now):
                counted.await_count(workload)
            else:
                counted.counted(workload, count)

    def _due(
        self, counted: CountListener, scaled: Mapping[Ref, Collection[WorkloadKey]], now: float
    ) -> Collection[WorkloadKey]:
        if self._cluster is None or self._replicas is not None:
            return counted.workloads
        moved = self._cluster.take_uncounted(now)
        if moved is None or not self._whole:
            return counted.workloads
        return [workload for ref in moved & scaled.keys() for workload in scaled[ref]]
