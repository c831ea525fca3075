"""Computes the pod metrics of custom.metrics.k8s.io: readings of a pod's engine and of its own GPUs. Pure.

    tidegate-queue               requests waiting and running
    tidegate-waiting             requests waiting
    tidegate-running             requests running
    tidegate-gpu-engine-active   mean over the GPUs that only it may use, 0 to 1

These are readings, not decisions: nothing is smoothed, held or imputed. A list leaves out pods without a fresh number,
which an HPA handles conservatively; an empty list is an error. A pod of several workloads has the largest of its
numbers, and none while one of them is missing.

Worked example: `pod_values(index, board, sources, PodRequest("ai", "*", parse("app=chat")), "tidegate-queue", (), now)`
is `[ObjectValue(PODS, "ai", "chat-0", Number(8, ...))]` while the readings of `chat-1` are stale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from http import HTTPStatus
from operator import attrgetter
from typing import NamedTuple

from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.resources import PODS
from exporter.model import PodKey
from scaler.config.errors import shown
from scaler.model import Board
from scaler.signals.pods import Chosen, Gauge, PodNumbers

from . import values
from .errors import ApiError
from .selectors import Selector, matches
from .values import ALL, Number, ObjectValue, WorkloadIndex

_ENGINES, _GPUS = attrgetter("stale_engines"), attrgetter("stale_gpus")


class PodMetric(NamedTuple):
    """stale: URLs of targets that should have it. missing: the cause if none is stale."""

    read: Callable[[PodNumbers], Gauge | None]
    stale: Callable[[PodNumbers], tuple[str, ...]]
    missing: str


PER_POD: Mapping[str, PodMetric] = {
    "tidegate-queue": PodMetric(attrgetter("queue"), _ENGINES, "no engine target has it"),
    "tidegate-waiting": PodMetric(attrgetter("waiting"), _ENGINES, "no engine target has it"),
    "tidegate-running": PodMetric(attrgetter("running"), _ENGINES, "no engine target has it"),
    "tidegate-gpu-engine-active": PodMetric(
        attrgetter("gpu_engine_active"), _GPUS, "no target has it for a GPU that only this pod may use"
    ),
}


PodReader = Callable[[str, Chosen, float], Mapping[PodKey, tuple[PodNumbers, ...]]]  # namespace, pods, now


class Sources(NamedTuple):
    """Where pods and their numbers come from."""

    cluster: Cluster
    readings: PodReader


class PodRequest(NamedTuple):
    """name: of a pod, or ALL. labels: a selector of the pods' labels."""

    namespace: str
    name: str
    labels: Selector

    def matches(self, pod: PodKey) -> bool:
        return pod.namespace == self.namespace and self.name in (ALL, pod.pod)


def pod_values(
    index: WorkloadIndex,
    board: Board,
    sources: Sources,
    request: PodRequest,
    metric: str,
    selector: Selector,
    now: float,
) -> list[ObjectValue]:
    """Ordered by pod. metric: one of PER_POD. selector: of the workload's labels. Raises ApiError."""

    @cache  # called for its engine and for its GPUs
    def chosen(key: PodKey) -> bool:
        # A pod that the cluster does not have does not exist, whatever a target exposes.
        pod = sources.cluster.pod(key) if request.matches(key) else None
        return pod is not None and matches(request.labels, pod.labels)

    read = sources.readings(request.namespace, chosen, now)
    ours = {
        key: found
        for key, several in sorted(read.items())
        if (found := tuple(each for each in several if matches(selector, values.labels(each.workload))))
    }
    if not ours:
        raise _not_found(index, sources.cluster, request, chosen, selector, now)
    for workload in sorted({each.workload for several in ours.values() for each in several}):
        if (decision := board.get(workload)) is not None:
            values.refuse_observed(decision)
    gauges = {key: _largest(PER_POD[metric].read, several) for key, several in ours.items()}
    listed = [
        ObjectValue(PODS, key.namespace, key.pod, Number(*gauge)) for key, gauge in gauges.items() if gauge is not None
    ]
    if not listed:
        raise _unknown(metric, ours)
    return listed


def _largest(read: Callable[[PodNumbers], Gauge | None], several: tuple[PodNumbers, ...]) -> Gauge | None:
    gauges = [gauge for each in several if (gauge := read(each)) is not None]
    return max(gauges) if len(gauges) == len(several) else None


def _unknown(metric: str, ours: Mapping[PodKey, tuple[PodNumbers, ...]]) -> ApiError:
    first, *more = ours
    names = f"{first.namespace}/{first.pod}" + (f" and {len(more)} more pods" if more else "")
    about = PER_POD[metric]
    stale = sorted({url for several in ours.values() for each in several for url in about.stale(each)})
    why = values.nothing_fresh(stale) or f"; {about.missing}"
    return ApiError(HTTPStatus.SERVICE_UNAVAILABLE, f"{names}: {metric} is unknown{why}")


def _not_found(
    index: WorkloadIndex, cluster: Cluster, request: PodRequest, chosen: Chosen, selector: Selector, now: float
) -> ApiError:
    """No target has a requested pod. If a workload has one, its readings are missing; else there is none."""
    below = [
        cluster.pods_of(ref, now)
        for ref, workloads in index.scalers.items()
        if ref.namespace == request.namespace and values.selected(workloads, selector)
    ]
    awaited = [pod.key for pods in below if pods is not None for pod in pods if chosen(pod.key)]
    if awaited:
        message = f"{awaited[0].namespace}/{awaited[0].pod}: no response of it or of its GPUs has been read"
        return ApiError(HTTPStatus.SERVICE_UNAVAILABLE, message)
    which = "that the selector matches" if request.name == ALL else shown(request.name)
    message = f"namespace {shown(request.namespace)} has no pod {which} of a workload"
    return values.not_found(index._replace(complete=index.complete and None not in below), message)
