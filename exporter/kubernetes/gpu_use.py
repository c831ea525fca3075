"""Counts the GPUs of a cluster by kind: what its nodes have, what pods use of it, and what quotas allow. Pure.

A kind is a resource name and the model that the node's label names. A node that takes no more pods (cordoned, or not
ready) counts with what its pods hold. A pod without a node uses no GPU once the scheduler has found no room for it;
until then it may be placed at any moment, and waits.

Not considered: taints, labels of nodes other than the model, and whether the free GPUs of a kind are on one node. A
replica that does not fit for such a reason is a pending pod, as it is without this count.

Worked example: a node with 8 `nvidia.com/gpu` and the label `Tesla-T4` has 8 of the kind (nvidia.com/gpu, Tesla-T4).
Pods of Deployment `ai/chat` hold 3 of them, a pod without a workload 1, and a new pod of `ai/chat` has no node yet:
`used` is 4, and `by_target` of `ai/chat` has 3 held and 1 waiting.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from .gpus import model_of
from .objects import GpuQuota, Node, Pod, Ref

Key = TypeVar("Key")


class GpuKind(NamedTuple):
    """model: "" if no label names it."""

    resource: str
    model: str = ""


@dataclass(frozen=True, slots=True)
class TargetGpus:
    """The GPUs of the pods of one scale target.

    held:    on nodes. staying: of these, without those of pods that terminate.
    waiting: by resource name, of pods that wait for the scheduler.
    requested: by resource name, of all pods: what a quota counts.
    """

    held: dict[GpuKind, int] = field(default_factory=dict)
    staying: dict[GpuKind, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    requested: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterGpus:
    """allocatable: by kind. used: by pods on nodes. waiting: by resource name, as in `TargetGpus`.

    by_target: of the scale targets that have pods with GPUs.
    quotas:    the most GPUs by namespace and resource name. requested: by the same, of all pods.
    """

    allocatable: Mapping[GpuKind, int]
    used: Mapping[GpuKind, int]
    waiting: Mapping[str, int]
    by_target: Mapping[Ref, TargetGpus]
    quotas: Mapping[tuple[str, str], int]
    requested: Mapping[tuple[str, str], int]


def gpu_use(nodes: Sequence[Node], pods: Iterable[tuple[Pod, Ref | None]], quotas: Iterable[GpuQuota]) -> ClusterGpus:
    """pods: those that request GPUs, each with its scale target; None: it has none."""
    models = {node.name: model_of(node) or "" for node in nodes}
    used, waiting = Counter[GpuKind](), Counter[str]()
    on_node, requested = Counter[tuple[str, GpuKind]](), Counter[tuple[str, str]]()
    by_target: defaultdict[Ref, TargetGpus] = defaultdict(TargetGpus)
    for pod, target in pods:
        if pod.done:
            continue
        mine = TargetGpus() if target is None else by_target[target]
        for resource, number in pod.gpus.items():
            requested[pod.key.namespace, resource] += number
            _add(mine.requested, resource, number)
            if pod.node is not None:
                kind = GpuKind(resource, models.get(pod.node, ""))
                used[kind] += number
                on_node[pod.node, kind] += number
                _add(mine.held, kind, number)
                if not pod.leaving:
                    _add(mine.staying, kind, number)
            elif pod.unscheduled_since is None:
                waiting[resource] += number
                _add(mine.waiting, resource, number)
    limits: dict[tuple[str, str], int] = {}
    for quota in quotas:
        for resource, most in quota.gpus.items():
            key = quota.ref.namespace, resource
            limits[key] = min(most, limits.get(key, most))
    return ClusterGpus(_allocatable(nodes, models, on_node), used, waiting, dict(by_target), limits, requested)


def _add(counts: dict[Key, int], key: Key, number: int) -> None:
    """As `Counter`, which takes twenty times as long to make: each scale target has four."""
    counts[key] = counts.get(key, 0) + number


def _allocatable(
    nodes: Iterable[Node], models: Mapping[str, str], on_node: Counter[tuple[str, GpuKind]]
) -> Counter[GpuKind]:
    found = Counter[GpuKind]()
    for node in nodes:
        for resource, number in node.gpus.items():
            kind = GpuKind(resource, models[node.name])
            found[kind] += number if node.ready and node.schedulable else min(number, on_node[node.name, kind])
    return found
