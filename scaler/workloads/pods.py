"""Maps pods to workloads by owner references, and counts the replicas of workloads. Pure.

A pod that the cluster does not have belongs to no workload, whatever a target exposes: a series never outlives its pod.

Worked example: pod `ai/chat-7d9f8b6c5d-x2k9q` belongs to ReplicaSet `chat-7d9f8b6c5d`, and that to Deployment `chat`,
which ScaledObject `ai/llm` scales: the pod belongs to `WorkloadKey("ai", "llm")`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

from exporter.attribution import Owners
from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.objects import Ref
from exporter.model import GpuPart, PodKey, ReplicaCount, WorkloadKey


def cluster_owners(cluster: Cluster, targets: Mapping[WorkloadKey, Ref], by_name: Owners) -> Owners:
    """targets: the scale target of each workload. by_name: maps pods of controllers that no workload scales."""
    scalers: dict[Ref, tuple[WorkloadKey, ...]] = {}
    for workload in sorted(targets):
        scalers[targets[workload]] = (*scalers.get(targets[workload], ()), workload)

    def owners(pod: PodKey, at: float) -> tuple[WorkloadKey, ...]:
        chain = cluster.owners_of(pod)
        if chain is None:
            return ()
        found = next((scalers[ref] for ref in chain if ref in scalers), None)
        if found is None:
            return by_name(pod, at)
        listed = cluster.pod(pod)
        began = listed.started_at if listed is not None else None
        # dcgm-exporter looks up pods when its page is asked for: an older value may carry the name of a newer pod.
        return () if began is not None and at < began else found

    return owners


COUNTED_AT_ONCE = 100  # 3 ms with four pods each


class ReplicaCounts(Protocol):
    """Counts replicas from memory."""

    def count(self, workload: WorkloadKey, now: float) -> ReplicaCount | None:
        """Returns None if unknown. now: POSIX seconds."""


class CountListener(Protocol):
    """Takes counts: the decider."""

    @property
    def workloads(self) -> Sequence[WorkloadKey]: ...

    def counted(self, workload: WorkloadKey, count: ReplicaCount | None) -> None: ...

    def await_count(self, workload: WorkloadKey) -> None: ...


class Counting:
    """Counts the replicas of workloads with possible changes.

    replicas: counts in place of the cluster, all workloads at every tick; None: the cluster counts.
    """

    def __init__(self, replicas: ReplicaCounts | None, cluster: Cluster | None) -> None:
        self._replicas, self._cluster = replicas, cluster
        self._whole = False  # every workload was counted at the last tick
        self._later: dict[WorkloadKey, None] = {}  # to be counted, in this order

    @property
    def can_wait(self) -> bool:
        """Whether the cluster counts, which says what has changed since."""
        return self._cluster is not None and self._replicas is None

    def later(self, workloads: Collection[WorkloadKey], counted: CountListener) -> None:
        """Leaves the count of these workloads to `parts`, or to the next tick. Until then it is unknown."""
        for workload in workloads:
            counted.await_count(workload)
        self._later.update(dict.fromkeys(workloads))

    def parts(
        self,
        counted: CountListener,
        scaled: Mapping[Ref, Collection[WorkloadKey]],
        targets: Mapping[WorkloadKey, Ref],
        now: float,
    ) -> Iterator[None]:
        """Counts what the next tick would count, in parts; after each, others may run."""
        if not self.can_wait:
            return
        self._note_due(counted, scaled, now)
        while self._later:
            self.count(tuple(islice(self._later, COUNTED_AT_ONCE)), counted, scaled, targets, now)
            yield
        self._whole = True

    def tick(
        self,
        counted: CountListener,
        scaled: Mapping[Ref, Collection[WorkloadKey]],
        targets: Mapping[WorkloadKey, Ref],
        now: float,
    ) -> None:
        """scaled: the workloads of each target. After a tick that failed, every workload is counted."""
        self._note_due(counted, scaled, now)
        self.count(tuple(self._later), counted, scaled, targets, now)
        self._later.clear()  # also if nothing counts
        self._whole = True

    def count(
        self,
        workloads: Collection[WorkloadKey],
        counted: CountListener,
        scaled: Mapping[Ref, Collection[WorkloadKey]],
        targets: Mapping[WorkloadKey, Ref],
        now: float,
    ) -> None:
        """Counts these workloads now. Those of one scale target have equal parts of its GPUs, each GPU counted once."""
        cluster, replicas = self._cluster, self._replicas
        if cluster is None and replicas is None:
            return
        for workload in workloads:
            target, count = targets.get(workload), None
            if replicas is not None:
                count = replicas.count(workload, now)
            elif cluster is not None and target is not None:
                count = cluster.count(target, now)
                sharers = len(scaled.get(target, ()))
                if count is not None and sharers > 1:
                    count = count._replace(parts=tuple(GpuPart(m, whole / sharers) for m, whole in count.parts))
            if count is None and cluster is not None and target is not None and cluster.will_count(target, now):
                counted.await_count(workload)
            else:
                counted.counted(workload, count)
            self._later.pop(workload, None)

    def _note_due(self, counted: CountListener, scaled: Mapping[Ref, Collection[WorkloadKey]], now: float) -> None:
        """Adds what has to be counted to `_later`. Not `_whole` until that is done."""
        due, self._whole = self._due(counted, scaled, now), False
        self._later.update(dict.fromkeys(due))

    def _due(
        self, counted: CountListener, scaled: Mapping[Ref, Collection[WorkloadKey]], now: float
    ) -> Collection[WorkloadKey]:
        if self._cluster is None or self._replicas is not None:
            return counted.workloads
        moved = self._cluster.take_uncounted(now)
        if moved is None or not self._whole:
            return counted.workloads
        return [workload for ref in moved & scaled.keys() for workload in scaled[ref]]
