"""Attributes GPUs to workloads by the pods that exporters name beside them.

A GPU is its (UUID, MIG instance). The pod beside it is a label, which exporters lose now and then and change late. A
shared GPU is never divided: a value that includes the work of other tenants neither scales a workload nor keeps it
awake. Pods are mapped to workloads by `Owners`: by names (`owners_by_name`), or by the cluster's owner references.

Worked example: for `WorkloadKey("ai", "chat")` without a pattern, `PodKey("ai", "chat-7d9f8b6c5d-x2k9q")` is its pod
and `PodKey("ai", "chat-canary-7d9f8b6c5d-x2k9q")` is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from operator import is_
from types import MappingProxyType
from typing import NamedTuple, Protocol

from .model import Attribution, Gpu, PodKey, Samples, Subject, WorkloadKey

# Kubernetes' random names use consonants and digits that make no words (apimachinery util/rand). A ReplicaSet's hash
# is a 32-bit number written in that alphabet: up to 10 characters, under 8 for one template in 400. Deployment:
# NAME-hash-xxxxx; ReplicaSet: NAME-xxxxx; StatefulSet: NAME-0; LeaderWorkerSet: NAME-0, NAME-0-1. Names of more than
# 46 characters are cut before the hash is complete: such a workload needs a pattern.
_CHARACTER = "[bcdfghjklmnpqrstvwxz2456789]"
_POD_SUFFIX = re.compile(rf"-(?:(?:{_CHARACTER}{{6,10}}-)?{_CHARACTER}{{5}}|\d+(?:-\d+)?)")

# Without the cluster's pods, a GPU without a label still belongs to its last pod for so long: two of dcgm-exporter's
# collect intervals (30 s), within which it reconnects to the kubelet. With the cluster's pods, the GPU belongs to its
# pod while the pod lives: a device plugin takes no GPU from a container.
LABEL_MEMORY_S = 60.0
# Labels of GPUs that are not in the responses any more are forgotten after a day, so that memory stays bounded.
LABELS_FORGOTTEN_AFTER_S = 86_400.0
# A label that alternates may be constant for a while before it alternates again.
SHARING_MEMORY_S = 600.0
# Owners are cached for so many pods, then the cache is cleared: pods come and go.
MAX_CACHED_PODS = 100_000


class Owners(Protocol):
    def __call__(self, pod: PodKey, at: float) -> tuple[WorkloadKey, ...]:
        """The workloads of a pod; empty if it belongs to none, or is deleted. Triggers of one ScaledObject share pods.

        at: POSIX seconds before which the reading cannot have been measured. A reading that may be older than the pod
        belongs to no workload.
        """


class KnownPods(Protocol):
    """The pods of a cluster."""

    def named(self, pod: PodKey) -> PodKey:
        """The name of a pod that has a UID as its name; any other pod unchanged."""

    def node_of(self, pod: PodKey) -> str | None:
        """The node of a pod; None if the pod is unknown or has none yet."""


def named(samples: Samples, pods: KnownPods) -> Samples:
    """The samples, with the name of every pod that has only a UID."""

    def with_names(gpu: Gpu) -> Gpu:
        if all(pod.namespace for pod in gpu.pods):
            return gpu
        parts = tuple(part._replace(pod=pods.named(part.pod)) for part in gpu.parts)
        return replace(gpu, pods=tuple(map(pods.named, gpu.pods)), parts=parts)

    return _with_gpus(samples, with_names)


def on_node(samples: Samples, node: str, pods: KnownPods) -> Samples:
    """The samples of a node's exporter, without the pods that run on other nodes. Otherwise anybody who may label a pod
    as an exporter could show every pod of the cluster as idle or busy. A GPU that had such a pod is exclusive to none.
    """

    def is_here(pod: PodKey) -> bool:
        return pods.node_of(pod) in (node, None)

    def with_pods_of_the_node(gpu: Gpu) -> Gpu:
        if all(map(is_here, gpu.pods)):
            return gpu
        here, parts = filter(is_here, gpu.pods), (part for part in gpu.parts if is_here(part.pod))
        return replace(gpu, pods=tuple(here), parts=tuple(parts), attribution=Attribution.DEVICE)

    return _with_gpus(samples, with_pods_of_the_node)


def _with_gpus(samples: Samples, change: Callable[[Gpu], Gpu]) -> Samples:
    """The samples with changed GPUs; the same object if no GPU changes."""
    subjects = [change(each) if isinstance(each, Gpu) else each for each in samples.subjects]
    same = all(map(is_, subjects, samples.subjects))
    return samples if same else replace(samples, subjects=tuple(subjects))


class Share(NamedTuple):
    """Rows of `Samples` that name a workload's pods.

    exclusive: GPUs that only this workload uses.
    shared:    GPUs that other workloads may use too.
    """

    exclusive: tuple[int, ...]
    shared: tuple[int, ...]


def owner_of(pod: PodKey, workloads: Sequence[tuple[WorkloadKey, str | None]]) -> WorkloadKey | None:
    """The workload of a pod. A pattern is a glob of pod names; None stands for the names that its controller gives.

    If several match, the longest pattern or name counts: pod `chat-0-1` belongs to the StatefulSet `chat-0` rather than
    to the LeaderWorkerSet `chat`, if both exist.
    """
    matches = [
        (len(pattern or workload.name), workload)
        for workload, pattern in workloads
        if workload.namespace == pod.namespace and _is_named(pod.pod, workload.name, pattern)
    ]
    return max(matches, key=lambda match: match[0])[1] if matches else None


def owners_by_name(patterns: Mapping[WorkloadKey, str | None]) -> Owners:
    """The owners of pods by their names, cached per pod, because every response names the same ones."""
    workloads = list(patterns.items())
    cache: dict[PodKey, tuple[WorkloadKey, ...]] = {}

    def lookup(pod: PodKey, at: float) -> tuple[WorkloadKey, ...]:  # noqa: ARG001 - a name has no time
        if pod not in cache:
            if len(cache) > MAX_CACHED_PODS:
                cache.clear()
            owner = owner_of(pod, workloads)
            cache[pod] = () if owner is None else (owner,)
        return cache[pod]

    return lookup


def _is_named(pod: str, name: str, pattern: str | None) -> bool:
    if pattern is not None:
        return fnmatchcase(pod, pattern)
    return pod.startswith(name) and _POD_SUFFIX.fullmatch(pod, len(name)) is not None


def assign(subjects: Sequence[Subject], at: Sequence[float], owners: Owners) -> Mapping[WorkloadKey, Share]:
    """The rows of the GPUs of each workload. at: POSIX seconds of each row, see `Owners`."""
    exclusive: dict[WorkloadKey, list[int]] = {}
    shared: dict[WorkloadKey, list[int]] = {}
    last, last_whole, into = None, False, list[list[int]]()
    for row, subject in enumerate(subjects):
        if not isinstance(subject, Gpu) or not subject.pods:
            continue
        first, *further = [owners(pod, at[row]) for pod in subject.pods]
        found = {first, *further} if further else {first}
        whole = len(found) == 1 and _is_complete(subject)
        if further or whole is not last_whole or first is not last:  # the GPUs of a node are often of one workload
            workloads = {workload for several in found for workload in several}
            into = [(exclusive if whole else shared).setdefault(workload, []) for workload in workloads]
            last, last_whole = None if further else first, whole
        for rows in into:
            rows.append(row)
    keys = exclusive.keys() | shared.keys()
    return {key: Share(tuple(exclusive.get(key, ())), tuple(shared.get(key, ()))) for key in keys}


def _is_complete(gpu: Gpu) -> bool:
    """Whether all pods of a GPU are named. With one pod on a shared device the others are missing."""
    return gpu.attribution is not Attribution.DEVICE or len(gpu.pods) > 1


class _LabelledGpu(NamedTuple):
    """A GPU with its last pods, POSIX seconds of that response, and when it last had other pods."""

    gpu: Gpu
    at: float
    earlier: Mapping[tuple[PodKey, ...], float] = MappingProxyType({})


class Labels:
    """Follows the pod labels of one target's GPUs: a GPU that loses its label, and one with alternating labels."""

    def __init__(self) -> None:
        """lost_at: GPUs without a label in the last response, and POSIX seconds when they last had one."""
        self.lost_at: dict[tuple[str, str | None], float] = {}
        self._labelled: dict[tuple[str, str | None], _LabelledGpu] = {}
        self._sharers: dict[tuple[str, str | None], tuple[tuple[PodKey, ...], float]] = {}
        # The subjects of the last response, if each GPU is there once, has a label, and none is shared. The same ones
        # change nothing but `at`, which `_labelled` takes from `_steady_at` when others come.
        self._steady: tuple[Subject, ...] | None = None
        self._steady_at = 0.0

    def lost(self) -> list[tuple[Gpu, float]]:
        """The GPUs of `lost_at` with their last label, and POSIX seconds of it."""
        return [(self._labelled[identity].gpu, at) for identity, at in self.lost_at.items()]

    def restore(self, gpu: Gpu, at: float) -> None:
        """Restores the label that a GPU had at `at` (POSIX seconds), unless it has a newer one."""
        self._labelled.setdefault((gpu.uuid, gpu.instance), _LabelledGpu(gpu, at))

    def resolve(self, samples: Samples, owners: Owners, at: float) -> Samples:
        """The samples with corrected labels. `at`: POSIX seconds of receipt.

        A GPU that has lost its label keeps the last one while its pod exists, because a series never outlives its pod.
        A GPU with a label that returns to an earlier pod is time-sliced, though it looks exclusive: without
        --kubernetes-virtual-gpus dcgm-exporter names the pod that it finds last (dcgm-exporter#307).
        """
        if samples.subjects is self._steady:
            self._steady_at = at
            return samples
        self._end_steady()
        self._forget_old(at)
        self.lost_at = {}
        resolved = _with_gpus(samples, lambda gpu: self._resolved(gpu, owners, at))
        gpus = [each for each in samples.subjects if isinstance(each, Gpu)]
        distinct = len({(gpu.uuid, gpu.instance) for gpu in gpus}) == len(gpus)
        if distinct and not self._sharers and all(gpu.pods for gpu in gpus):
            self._steady, self._steady_at = samples.subjects, at
        return resolved

    def _end_steady(self) -> None:
        for each in self._steady or ():
            if isinstance(each, Gpu):
                identity = (each.uuid, each.instance)
                self._labelled[identity] = self._labelled[identity]._replace(at=self._steady_at)
        self._steady = None

    def _resolved(self, gpu: Gpu, owners: Owners, at: float) -> Gpu:
        identity = (gpu.uuid, gpu.instance)
        last = self._labelled.get(identity)
        if gpu.pods:
            self._labelled[identity] = self._relabelled(last, gpu, at)
            sharers, _ = self._sharers.get(identity, ((), at))
            return replace(gpu, attribution=Attribution.DEVICE, pods=sharers) if gpu.pods[0] in sharers else gpu
        if last is None or not any(owners(pod, at) for pod in last.gpu.pods):
            return gpu
        self.lost_at[identity] = last.at
        return replace(last.gpu, parts=()) if last.gpu.parts else last.gpu

    def _relabelled(self, last: _LabelledGpu | None, gpu: Gpu, at: float) -> _LabelledGpu:
        if last is None:
            return _LabelledGpu(gpu, at)
        if last.gpu.pods == gpu.pods:
            return _LabelledGpu(gpu, at, last.earlier)
        earlier = {pods: last_at for pods, last_at in last.earlier.items() if at - last_at <= LABEL_MEMORY_S}
        earlier[last.gpu.pods] = last.at
        if earlier.pop(gpu.pods, None) is not None:
            sharers = {pod for pods in (*earlier, gpu.pods) for pod in pods}
            self._sharers[gpu.uuid, gpu.instance] = tuple(sorted(sharers)), at
        return _LabelledGpu(gpu, at, earlier)

    def _forget_old(self, at: float) -> None:
        for identity in [
            key for key, labelled in self._labelled.items() if at - labelled.at > LABELS_FORGOTTEN_AFTER_S
        ]:
            del self._labelled[identity]
        for identity in [key for key, (_, flipped_at) in self._sharers.items() if at - flipped_at > SHARING_MEMORY_S]:
            del self._sharers[identity]
