"""Whose a pod is, where there is a cluster to ask: the workloads that scale what the pod belongs to. Pure.

It knows owner references and refuses to guess by names where the cluster can say. A pod that the cluster does not have
is nobody's, whatever a page prints: a series never outlives its pod.

Worked example: pod `ai/chat-7d9f8b6c5d-x2k9q` belongs to ReplicaSet `chat-7d9f8b6c5d`, and that to Deployment `chat`,
which ScaledObject `ai/llm` scales: it is `WorkloadKey("ai", "llm")`'s, though no name says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from exporter.attribution import Owners
from exporter.cluster.objects import Pod, Ref
from exporter.model import PodKey, WorkloadKey


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
