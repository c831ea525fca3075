"""Finds the GPUs with pod labels that match no workload, with the reason and the remedy. Pure.

Such a GPU scales nothing and is in no account, so an operator who expects otherwise must be shown why.

Worked example: dcgm-exporter names pod `ai/chat-7d9f8b6c5d-x2k9q` beside two GPUs, and nothing scales Deployment
`ai/chat`: the result is one entry of 2 GPUs with the reason "no_workload", "2 GPUs of ai/chat-7d9f8b6c5d-x2k9q match no
workload: no trigger or annotation scales Deployment ai/chat".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Any

from exporter.attribution import Owners
from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.index import is_gpu_exporter
from exporter.model import Gpu, PodKey, Samples, printable

MOST_NAMES = 3


class UnmatchedReason(StrEnum):
    """Why the pods of a GPU belong to no workload."""

    NO_WORKLOAD = "no_workload"
    EXPORTER = "exporter"
    NO_POD = "no_pod"
    NOT_WATCHED = "not_watched"
    OTHER_NAME = "other_name"


_REMEDIES = {
    UnmatchedReason.NO_WORKLOAD: "if Tidegate is to scale it, add a trigger to its ScaledObject; else nothing",
    UnmatchedReason.EXPORTER: "the scrape replaced the labels: set honorLabels: true in the ServiceMonitor",
    UnmatchedReason.NO_POD: "restart the exporter if the pod has ended; check that it belongs to this cluster",
    UnmatchedReason.NOT_WATCHED: "add the namespace to kubernetes.namespaces",
    UnmatchedReason.OTHER_NAME: "set pod_pattern of the workload to a glob of these names",
}


@dataclass(frozen=True, slots=True)
class UnmatchedGpus:
    """GPUs that match no workload for the same reason. pods: the first MOST_NAMES names. cause: ends the sentence."""

    reason: UnmatchedReason
    gpus: int
    pods: tuple[str, ...]
    pod_count: int
    cause: str

    @property
    def sentence(self) -> str:
        more = self.pod_count - len(self.pods)
        names = f"{', '.join(self.pods)}{f' and {more} more' if more else ''}"
        gpus = "1 GPU" if self.gpus == 1 else f"{self.gpus} GPUs"
        return f"{gpus} of {names} {'matches' if self.gpus == 1 else 'match'} no workload: {self.cause}"

    @property
    def remedy(self) -> str:
        return _REMEDIES[self.reason]

    def to_document(self) -> dict[str, Any]:
        return {
            "reason": str(self.reason),
            "gpus": self.gpus,
            "pods": list(self.pods),
            "pod_count": self.pod_count,
            "sentence": self.sentence,
            "remedy": self.remedy,
        }


def unmatched_gpus(responses: Iterable[Samples], owners: Owners, cluster: Cluster | None) -> tuple[UnmatchedGpus, ...]:
    """Most GPUs first. responses: the last one of each target. A GPU of which one pod matches is matched."""
    gpus: defaultdict[tuple[UnmatchedReason, str], set[tuple[str, str | None]]] = defaultdict(set)
    pods: defaultdict[tuple[UnmatchedReason, str], set[PodKey]] = defaultdict(set)
    for samples in responses:
        for gpu in samples.subjects:
            # A reading that is older than its pod is matched again with the next one.
            if not isinstance(gpu, Gpu) or not gpu.pods or any(owners(pod, inf) for pod in gpu.pods):
                continue
            why = _why(gpu.pods[0], cluster)
            gpus[why].add((gpu.uuid, gpu.instance))
            pods[why].update(gpu.pods)
    found = [
        UnmatchedGpus(reason, len(gpus[why]), tuple(map(_name, sorted(pods[why])[:MOST_NAMES])), len(pods[why]), cause)
        for why in gpus
        for reason, cause in [why]
    ]
    return tuple(sorted(found, key=lambda each: (-each.gpus, each.reason, each.cause)))


def _why(pod: PodKey, cluster: Cluster | None) -> tuple[UnmatchedReason, str]:
    """The reason, and the end of the sentence."""
    if cluster is None:
        return UnmatchedReason.OTHER_NAME, "no workload of the configuration has pods of this name"
    if pod.namespace and not cluster.watches(pod.namespace):
        return UnmatchedReason.NOT_WATCHED, f"namespace {printable(pod.namespace)} is not watched"
    chain = cluster.owners_of(pod)
    if chain is None:
        return UnmatchedReason.NO_POD, "the cluster has no such pod"
    listed = cluster.pod(pod)
    if listed is not None and is_gpu_exporter(listed):
        return UnmatchedReason.EXPORTER, "the label names the exporter's own pod"
    top = chain[-1] if chain else None
    what = "a pod without a controller" if top is None else f"{top.kind} {top.namespace}/{top.name}"
    return UnmatchedReason.NO_WORKLOAD, f"no trigger or annotation scales {what}"


def _name(pod: PodKey) -> str:
    return printable(f"{pod.namespace}/{pod.pod}" if pod.namespace else f"UID {pod.pod}")
