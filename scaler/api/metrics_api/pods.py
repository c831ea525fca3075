"""custom.metrics.k8s.io on pods: what one pod's engine and its own GPUs say, as they were measured. Pure.

    tidegate-queue               requests waiting and running
    tidegate-waiting             requests waiting
    tidegate-running             requests running
    tidegate-gpu-engine-active   a ratio, the mean over the GPUs that are its alone

These are readings and no decisions: nothing is smoothed, held or filled in. Of a list a pod without a fresh number is
left out, which an autoscaler takes conservatively (it neither scales up nor down because of it); a list in which nobody
is left is an error. A pod of several workloads has the largest of its numbers, and none while one of them is missing.

Worked example: `values(known, board, sources, AskedPods("ai", "*", parse("app=chat")), "tidegate-queue", (), now)` is
`[Value(PODS, "ai", "chat-0", Number(8, ...))]` while the page of `chat-1` is stale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from http import HTTPStatus
from operator import attrgetter
from typing import NamedTuple, Protocol

from exporter.kubernetes.objects import Pod, Ref
from exporter.kubernetes.resources import PODS
from exporter.model import PodKey
from scaler.config.errors import shown
from scaler.model import Board
from scaler.signals.pods import Chosen, Gauge, PodNumbers

from . import values
from .errors import ApiError
from .selectors import Selector, matches
from .values import ALL, Known, Number, ObjectValue


class PodMetric(NamedTuple):
    """stale: URLs of the pages that should say it. unsaid: what else keeps it from being known."""

    read: Callable[[PodNumbers], Gauge | None]
    stale: Callable[[PodNumbers], tuple[str, ...]]
    unsaid: str


_ENGINES, _GPUS = attrgetter("stale_engines"), attrgetter("stale_gpus")

PER_POD: Mapping[str, PodMetric] = {
    "tidegate-queue": PodMetric(attrgetter("queue"), _ENGINES, "no page of an engine says it"),
    "tidegate-waiting": PodMetric(attrgetter("waiting"), _ENGINES, "no page of an engine says it"),
    "tidegate-running": PodMetric(attrgetter("running"), _ENGINES, "no page of an engine says it"),
    "tidegate-gpu-engine-active": PodMetric(
        attrgetter("gpu_engine_active"), _GPUS, "no page says it of a GPU that no other pod may use"
    ),
}


class PodIndex(Protocol):
    """What of a cluster is asked here."""

    def pod(self, key: PodKey) -> Pod | None: ...

    def pods_of(self, target: Ref, now: float) -> tuple[Pod, ...] | None: ...


class PodReader(Protocol):
    """Who reads the pages."""

    def __call__(self, namespace: str, chosen: Chosen, now: float) -> Mapping[PodKey, tuple[PodNumbers, ...]]: ...


class Sources(NamedTuple):
    cluster: PodIndex
    readings: PodReader


class AskedPods(NamedTuple):
    """name: of a pod, or ALL. labels: what the pods' own labels must be."""

    namespace: str
    name: str
    labels: Selector

    def names(self, pod: PodKey) -> bool:
        return pod.namespace == self.namespace and self.name in (ALL, pod.pod)


def pod_values(
    known: Known, board: Board, sources: Sources, asked: AskedPods, metric: str, selector: Selector, now: float
) -> list[ObjectValue]:
    """Ordered by pod. metric: one of PER_POD. selector: of the workload's labels. Raises Refusal."""

    @cache  # a pod has a page of its own and GPUs
    def chosen(key: PodKey) -> bool:
        # Whom the cluster does not have is nobody, whatever a page prints.
        return asked.names(key) and (pod := sources.cluster.pod(key)) is not None and matches(asked.labels, pod.labels)

    read = sources.readings(asked.namespace, chosen, now)
    ours = {
        key: found
        for key, several in sorted(read.items())
        if (found := tuple(each for each in several if matches(selector, values.labels(each.workload))))
    }
    if not ours:
        raise _nobody(known, sources.cluster, asked, chosen, selector, now)
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
    whose = f"{first.namespace}/{first.pod}" + (f" and {len(more)} more pods" if more else "")
    about = PER_POD[metric]
    stale = sorted({url for several in ours.values() for each in several for url in about.stale(each)})
    why = values.nothing_fresh(stale) or f"; {about.unsaid}"
    return ApiError(HTTPStatus.SERVICE_UNAVAILABLE, f"{whose}: {metric} is unknown{why}")


def _nobody(
    known: Known, cluster: PodIndex, asked: AskedPods, chosen: Chosen, selector: Selector, now: float
) -> ApiError:
    """No page speaks of a chosen pod: is one ours all the same?"""
    below = [
        cluster.pods_of(ref, now)
        for ref, workloads in known.scalers.items()
        if ref.namespace == asked.namespace and values.selected(workloads, selector)
    ]
    awaited = [pod.key for pods in below if pods is not None for pod in pods if chosen(pod.key)]
    if awaited:
        words = f"{awaited[0].namespace}/{awaited[0].pod}: no page of it or of its GPUs has been read"
        return ApiError(HTTPStatus.SERVICE_UNAVAILABLE, words)
    which = "that the selector chooses" if asked.name == ALL else shown(asked.name)
    words = f"namespace {shown(asked.namespace)} has no pod {which} of a workload of Tidegate"
    return values.nobody(known._replace(whole=known.whole and None not in below), words)
