"""Whose a GPU is: from pods to workloads, and what of a page is wholly one workload's.

It knows how Kubernetes names the pods of a controller and nothing of any cluster: pods are names that a page printed.
It refuses to divide a shared GPU. A number that covers other tenants' work is nobody's, so such a GPU neither scales
a workload nor keeps it awake.

Worked example: for `WorkloadKey("ai", "chat")` without a pattern, `PodKey("ai", "chat-7d9f8b6c5d-x2k9q")` is its pod
and `PodKey("ai", "chat-canary-7d9f8b6c5d-x2k9q")` is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from .model import Attribution, Gpu, PodKey, Samples, WorkloadKey

# Kubernetes' random names use consonants and digits that spell no words (apimachinery util/rand). A ReplicaSet's hash
# is a 32-bit number written in that alphabet: up to 10 characters, under 8 for one template in 400. Deployment:
# NAME-hash-xxxxx; ReplicaSet: NAME-xxxxx; StatefulSet: NAME-0; LeaderWorkerSet: NAME-0, NAME-0-1. Names of more than
# 46 characters are cut before the hash is complete: such a workload needs a pattern.
_LETTER = "[bcdfghjklmnpqrstvwxz2456789]"
_SUFFIX = re.compile(rf"-(?:(?:{_LETTER}{{6,10}}-)?{_LETTER}{{5}}|\d+(?:-\d+)?)")


class Share(NamedTuple):
    """Rows of a Samples table that name a workload's pods.

    own:    GPUs that are wholly the workload's: their numbers speak of it alone.
    shared: GPUs that others may use too, or nobody can tell.
    """

    own: tuple[int, ...]
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


def _is_named(pod: str, name: str, pattern: str | None) -> bool:
    if pattern is not None:
        return fnmatchcase(pod, pattern)
    return pod.startswith(name) and _SUFFIX.fullmatch(pod, len(name)) is not None


def assign(samples: Samples, owner: Callable[[PodKey], WorkloadKey | None]) -> Mapping[WorkloadKey, Share]:
    """For each workload whose pods a page names, the rows of its GPUs."""
    own: dict[WorkloadKey, list[int]] = {}
    shared: dict[WorkloadKey, list[int]] = {}
    for row, subject in enumerate(samples.subjects):
        if not isinstance(subject, Gpu) or not subject.pods:
            continue
        owners = {owner(pod) for pod in subject.pods}
        whole = len(owners) == 1 and _all_named(subject)
        for workload in owners - {None}:
            if workload is not None:
                (own if whole else shared).setdefault(workload, []).append(row)
    return {key: Share(tuple(own.get(key, ())), tuple(shared.get(key, ()))) for key in own.keys() | shared.keys()}


def _all_named(gpu: Gpu) -> bool:
    """Whether a GPU's pods are all there are. One pod on a device known to be shared: its neighbours are not named."""
    return gpu.attribution is not Attribution.DEVICE or len(gpu.pods) > 1
