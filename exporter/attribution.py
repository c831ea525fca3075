"""Whose a GPU is: from pods to workloads, and what of a page is wholly one workload's.

It knows how Kubernetes names the pods of a controller and nothing of any cluster: pods are names that a page printed,
and who owns one is a question to somebody else. A GPU is its (UUID, MIG instance); the pod beside it is a label, which
exporters lose now and then and change late. It refuses to divide a shared GPU. A number that covers other tenants'
work is nobody's, so such a GPU neither scales a workload nor keeps it awake.

Worked example: for `WorkloadKey("ai", "chat")` without a pattern, `PodKey("ai", "chat-7d9f8b6c5d-x2k9q")` is its pod
and `PodKey("ai", "chat-canary-7d9f8b6c5d-x2k9q")` is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeAlias

from .model import Attribution, Gpu, PodKey, Samples, WorkloadKey

# Kubernetes' random names use consonants and digits that spell no words (apimachinery util/rand). A ReplicaSet's hash
# is a 32-bit number written in that alphabet: up to 10 characters, under 8 for one template in 400. Deployment:
# NAME-hash-xxxxx; ReplicaSet: NAME-xxxxx; StatefulSet: NAME-0; LeaderWorkerSet: NAME-0, NAME-0-1. Names of more than
# 46 characters are cut before the hash is complete: such a workload needs a pattern.
_LETTER = "[bcdfghjklmnpqrstvwxz2456789]"
_SUFFIX = re.compile(rf"-(?:(?:{_LETTER}{{6,10}}-)?{_LETTER}{{5}}|\d+(?:-\d+)?)")


# A GPU without a label still counts as its last pod's for so long, where no cluster knows whether that pod lives: two
# of dcgm-exporter's collect intervals (30 s), within which a lost connection to the kubelet is made again. Where a
# cluster knows the pod, the GPU is the pod's while the pod lives: a device plugin takes no GPU from a container.
LABEL_MEMORY_S = 60.0
# Names of GPUs that are not in a response any more are forgotten after a day, so that memory stays bounded.
NAMES_FORGOTTEN_AFTER_S = 86_400.0
# A label that went back and forth may stand still for a while before it does so again.
SHARING_MEMORY_S = 600.0


class Owners(Protocol):
    def __call__(self, pod: PodKey, at: float) -> tuple[WorkloadKey, ...]:
        """The workloads whose pod it is; none if it is a stranger's, or if it is no more.

        at: POSIX seconds before which the reading cannot have been measured. A reading may be older than the pod whose
        name it carries: then it is none's.
        Two triggers of one ScaledObject are two workloads with the same pods.
        """


Names: TypeAlias = Callable[[PodKey], PodKey]
"""The name of a pod that is known by its UID; any other as it is."""


def named(samples: Samples, names: Names) -> Samples:
    """The samples, with every pod that a page knows by its UID alone under its name."""
    unnamed = [subject for subject in samples.subjects if isinstance(subject, Gpu) and not _are_named(subject)]
    if not unnamed:
        return samples
    subjects = tuple(
        replace(
            subject,
            pods=tuple(names(pod) for pod in subject.pods),
            parts=tuple(part._replace(pod=names(part.pod)) for part in subject.parts),
        )
        if isinstance(subject, Gpu) and not _are_named(subject)
        else subject
        for subject in samples.subjects
    )
    return replace(samples, subjects=subjects)


def _are_named(gpu: Gpu) -> bool:
    return all(pod.namespace for pod in gpu.pods)


# Pods come and go: whose they are is forgotten for all of them now and then rather than never.
PODS_REMEMBERED = 100_000


class Share(NamedTuple):
    """Rows of a Samples table that name a workload's pods.

    exclusive: GPUs that are wholly the workload's: their numbers speak of it alone.
    shared: GPUs that others may use too, or nobody can tell.
    """

    exclusive: tuple[int, ...]
    shared: tuple[int, ...]


def owner_of(pod: PodKey, workloads: Sequence[tuple[WorkloadKey, str | None]]) -> WorkloadKey | None:
    """The workload a pod belongs to. A pattern is a glob of pod names; None is what its controller would name them.

    If several match, the longest pattern or name is the most specific one: pod `chat-0-1` is of the StatefulSet
    `chat-0` rather than of the LeaderWorkerSet `chat`, if there are both.
    """
    matches = [
        (len(pattern or workload.name), workload)
        for workload, pattern in workloads
        if workload.namespace == pod.namespace and _is_named(pod.pod, workload.name, pattern)
    ]
    return max(matches, key=lambda match: match[0])[1] if matches else None


def owners_by_name(patterns: Mapping[WorkloadKey, str | None]) -> Owners:
    """Which workload a pod belongs to by its name, remembered per pod: pods are few and asked about on every page."""
    workloads = list(patterns.items())
    known: dict[PodKey, tuple[WorkloadKey, ...]] = {}

    def lookup(pod: PodKey, at: float) -> tuple[WorkloadKey, ...]:  # noqa: ARG001 - a name says nothing of times
        if pod not in known:
            if len(known) > PODS_REMEMBERED:
                known.clear()
            owner = owner_of(pod, workloads)
            known[pod] = () if owner is None else (owner,)
        return known[pod]

    return lookup


def _is_named(pod: str, name: str, pattern: str | None) -> bool:
    if pattern is not None:
        return fnmatchcase(pod, pattern)
    return pod.startswith(name) and _SUFFIX.fullmatch(pod, len(name)) is not None


def assign(samples: Samples, owners: Owners) -> Mapping[WorkloadKey, Share]:
    """For each workload whose pods a page names, the rows of its GPUs."""
    own: dict[WorkloadKey, list[int]] = {}
    shared: dict[WorkloadKey, list[int]] = {}
    for row, subject in enumerate(samples.subjects):
        if not isinstance(subject, Gpu) or not subject.pods:
            continue
        at = float(samples.at[row])
        found = {owners(pod, at) for pod in subject.pods}
        whole = len(found) == 1 and _all_named(subject)
        for workload in {workload for several in found for workload in several}:
            (own if whole else shared).setdefault(workload, []).append(row)
    return {key: Share(tuple(own.get(key, ())), tuple(shared.get(key, ()))) for key in own.keys() | shared.keys()}


def _all_named(gpu: Gpu) -> bool:
    """Whether a GPU's pods are all there are. One pod on a device known to be shared: its neighbours are not named."""
    return gpu.attribution is not Attribution.DEVICE or len(gpu.pods) > 1


class _Named(NamedTuple):
    """A GPU as it was last named, POSIX seconds of that page, and when it was last named for other pods."""

    gpu: Gpu
    at: float
    earlier: Mapping[tuple[PodKey, ...], float] = MappingProxyType({})


class Labels:
    """Which pods one page has named beside each of its GPUs: for the moments in which it names none, and for the GPUs
    that it names another pod of every other time.
    """

    def __init__(self) -> None:
        """lost_at: GPUs that the last response showed without a label, and POSIX seconds when they last had one."""
        self.lost_at: dict[tuple[str, str | None], float] = {}
        self._named: dict[tuple[str, str | None], _Named] = {}
        self._sharers: dict[tuple[str, str | None], tuple[tuple[PodKey, ...], float]] = {}

    def lost(self) -> list[tuple[Gpu, float]]:
        """The GPUs of `lost_at` as they were last labelled, and POSIX seconds of that."""
        return [(self._named[identity].gpu, at) for identity, at in self.lost_at.items()]

    def restore(self, gpu: Gpu, at: float) -> None:
        """A GPU that had this label at `at` (POSIX seconds), when another process read it; unless it is known here."""
        self._named.setdefault((gpu.uuid, gpu.instance), _Named(gpu, at))

    def resolve(self, samples: Samples, owners: Owners, at: float) -> Samples:
        """The samples, with each GPU as its page means it. `at`: POSIX seconds of receipt.

        One that has lost its label is as it was last named, but not once its pod is no more, because a series never
        outlives its pod. One whose label goes back to a pod that it had before
        another is time-sliced between them, though it looks like one pod's: without --kubernetes-virtual-gpus
        dcgm-exporter names whichever pod it finds last (dcgm-exporter#307).
        """
        self._forget_old(at)
        self.lost_at = {}
        subjects = tuple(
            self._recalled(subject, owners, at) if isinstance(subject, Gpu) else subject for subject in samples.subjects
        )
        same = all(new is old for new, old in zip(subjects, samples.subjects, strict=True))
        return samples if same else replace(samples, subjects=subjects)

    def _recalled(self, gpu: Gpu, owners: Owners, at: float) -> Gpu:
        identity = (gpu.uuid, gpu.instance)
        named = self._named.get(identity)
        if gpu.pods:
            self._named[identity] = self._renamed(named, gpu, at)
            sharers, _ = self._sharers.get(identity, ((), at))
            return replace(gpu, attribution=Attribution.DEVICE, pods=sharers) if gpu.pods[0] in sharers else gpu
        if named is None or not _any_is_somebodys(named.gpu.pods, owners, at):
            return gpu
        self.lost_at[identity] = named.at
        return replace(named.gpu, parts=()) if named.gpu.parts else named.gpu

    def _renamed(self, named: _Named | None, gpu: Gpu, at: float) -> _Named:
        if named is None:
            return _Named(gpu, at)
        if named.gpu.pods == gpu.pods:
            return _Named(gpu, at, named.earlier)
        others = {pods: seen_at for pods, seen_at in named.earlier.items() if at - seen_at <= LABEL_MEMORY_S}
        others[named.gpu.pods] = named.at
        if others.pop(gpu.pods, None) is not None:
            everybody = {pod for pods in (*others, gpu.pods) for pod in pods}
            self._sharers[gpu.uuid, gpu.instance] = tuple(sorted(everybody)), at
        return _Named(gpu, at, others)

    def _forget_old(self, at: float) -> None:
        for identity in [key for key, named in self._named.items() if at - named.at > NAMES_FORGOTTEN_AFTER_S]:
            del self._named[identity]
        for identity in [key for key, (_, flipped_at) in self._sharers.items() if at - flipped_at > SHARING_MEMORY_S]:
            del self._sharers[identity]


def _any_is_somebodys(pods: Iterable[PodKey], owners: Owners, at: float) -> bool:
    return any(owners(pod, at) for pod in pods)
