"""Counts the GPUs of a cluster by kind: what its nodes have, what pods use of it, and what quotas allow. Pure.

A kind is a resource name, the model that the node's label names, and the taints that keep pods away. A node that takes
no more pods (cordoned, or not ready) counts with what its pods hold. A pod without a node uses no GPU once the
scheduler has found no room for it; until then it may be placed at any moment, and waits.

`GpuCounter` adds and subtracts what changes: the cost is that of the changed pods, not of all.

Not considered: labels of nodes other than the model, and whether the free GPUs of a kind are on one node. A replica
that does not fit for such a reason is a pending pod, as it is without this count.

Worked example: a node with 8 `nvidia.com/gpu` and the label `Tesla-T4` has 8 of the kind (nvidia.com/gpu, Tesla-T4).
Pods of Deployment `ai/chat` hold 3 of them, a pod without a workload 1, and a new pod of `ai/chat` has no node yet:
`used` is 4, and `by_target` of `ai/chat` has 3 held and 1 waiting.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from .gpus import model_of
from .kueue import NO_QUEUES, KueueQuotas, quotas_of
from .objects import GpuQuota, Node, Pod, QueueRecord, Ref
from .placement import PodTraits, Taint

Key = TypeVar("Key", bound=Hashable)


class GpuKind(NamedTuple):
    """model: "" if no label names it. taints: of its nodes."""

    resource: str
    model: str = ""
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetGpus:
    """The GPUs of the pods of one scale target.

    held:    on nodes. staying: of these, without those of pods that terminate.
    waiting: by resource name, of pods that wait for the scheduler.
    requested: by resource name and traits, of all pods: what quotas count.
    admitted:  by resource name, of pods that no queue holds.
    """

    held: Mapping[GpuKind, int] = field(default_factory=dict)
    staying: Mapping[GpuKind, int] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)
    requested: Mapping[tuple[str, PodTraits], int] = field(default_factory=dict)
    admitted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterGpus:
    """allocatable: by kind. used: by pods on nodes. waiting: by resource name, as in `TargetGpus`.

    by_target: of the scale targets that have pods with GPUs; the same values where nothing has changed.
    quotas:    in order. requested: by namespace, resource name and traits, of all pods.
    kueue:     empty while its queues are unknown.
    templates: another number after a template may have changed.
    """

    allocatable: Mapping[GpuKind, int]
    used: Mapping[GpuKind, int]
    waiting: Mapping[str, int]
    by_target: Mapping[Ref, TargetGpus]
    quotas: tuple[GpuQuota, ...]
    requested: Mapping[tuple[str, str, PodTraits], int]
    kueue: KueueQuotas = NO_QUEUES
    templates: int = 0


class GpuCounter:
    """Counts the GPUs of the nodes, pods and quotas that it is given, in any order."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._claims: dict[Ref, _Claim] = {}
        self._on: dict[str, set[Ref]] = {}  # pods by node
        self._quotas: dict[Ref, GpuQuota] = {}
        self._queues: dict[Ref, QueueRecord] = {}
        self._all = _Counts()
        self._of_target: dict[Ref, _Counts] = {}
        self._of_node: dict[str, _Counts] = {}
        self._allocatable: dict[GpuKind, int] = {}
        self._by_node: dict[str, Mapping[GpuKind, int]] = {}  # the parts of `_allocatable`
        self._by_target: dict[Ref, TargetGpus] = {}
        self._touched_nodes: set[str] = set()
        self._touched: set[Ref] = set()
        self._templates, self._with_queues = 0, False
        self._counted: ClusterGpus | None = None

    def set_pod(self, ref: Ref, pod: Pod | None, target: Ref | None) -> None:
        """None: it does not exist, or requests no GPUs. target: its scale target, if it has one."""
        ends = pod is None or pod.done or not pod.gpus
        self._claim(ref, None if ends or pod is None else self._claim_of(pod, target))

    def set_node(self, name: str, node: Node | None) -> None:
        """None: it does not exist."""
        if node is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = node
        self._touched_nodes.add(name)
        self._counted = None
        nodes = _group(node)
        for ref in tuple(self._on.get(name, ())):
            if self._claims[ref].nodes != nodes:
                self._claim(ref, self._claims[ref]._replace(nodes=nodes))

    def set_quota(self, ref: Ref, quota: GpuQuota | None) -> None:
        """None: it does not exist."""
        self._quotas.pop(ref, None)
        if quota is not None and quota.gpus:
            self._quotas[ref] = quota
        self._counted = None

    def set_queue(self, ref: Ref, record: QueueRecord | None) -> None:
        """None: it does not exist."""
        self._queues.pop(ref, None)
        if record is not None:
            self._queues[ref] = record
        self._counted = None

    def note_template(self) -> None:
        """The template of a scale target may have changed."""
        self._templates += 1
        self._counted = None

    def settle(self, most: int) -> bool:
        """Does a part of the work of `counted`, of up to `most` scale targets; returns whether more are left."""
        for _ in range(min(most, len(self._touched))):
            target = self._touched.pop()
            counts = self._of_target[target]
            if counts.requested:
                self._by_target[target] = TargetGpus(
                    dict(counts.held),
                    dict(counts.staying),
                    dict(counts.waiting),
                    {(resource, traits): number for (_, resource, traits), number in counts.requested.items()},
                    dict(counts.admitted),
                )
            else:
                del self._of_target[target]
                self._by_target.pop(target, None)
        return bool(self._touched)

    def counted(self, *, queues: bool) -> ClusterGpus:
        """The same value while nothing has changed. queues: whether the queues of Kueue are known."""
        if self._counted is not None and queues == self._with_queues:
            return self._counted
        for name in self._touched_nodes:
            self._recount(name)
        self.settle(len(self._touched))
        self._touched_nodes, self._with_queues = set(), queues
        every = self._all
        self._counted = ClusterGpus(
            dict(self._allocatable),
            dict(every.held),
            dict(every.waiting),
            dict(self._by_target),
            tuple(self._quotas[ref] for ref in sorted(self._quotas)),
            dict(every.requested),
            quotas_of(self._queues.values()) if queues else NO_QUEUES,
            self._templates,
        )
        return self._counted

    def _claim_of(self, pod: Pod, target: Ref | None) -> _Claim:
        waits = pod.node is None and pod.unscheduled_since is None
        nodes = _group(None if pod.node is None else self._nodes.get(pod.node))
        return _Claim(pod.key.namespace, target, pod.gpus, pod.node, nodes, pod.leaving, waits, pod.gated, pod.traits)

    def _claim(self, ref: Ref, claim: _Claim | None) -> None:
        before = self._claims.get(ref)
        if before == claim:
            return
        self._counted = None
        if before is not None:
            del self._claims[ref]
            self._add(before, -1)
            if before.node is not None:
                self._on[before.node].discard(ref)
        if claim is not None:
            self._claims[ref] = claim
            self._add(claim, 1)
            if claim.node is not None:
                self._on.setdefault(claim.node, set()).add(ref)

    def _add(self, claim: _Claim, sign: int) -> None:
        """sign: 1 or -1."""
        self._all.add(claim, sign)
        if claim.target is not None:
            self._of_target.setdefault(claim.target, _Counts()).add(claim, sign)
            self._touched.add(claim.target)
        if claim.node is not None:
            self._of_node.setdefault(claim.node, _Counts()).add(claim, sign)
            self._touched_nodes.add(claim.node)

    def _recount(self, name: str) -> None:
        """Updates the allocatable GPUs of a node, by kind."""
        if not self._on.get(name, True):
            del self._on[name], self._of_node[name]
        node, counts = self._nodes.get(name), self._of_node.get(name)
        held = {} if counts is None else counts.held
        for kind, number in self._by_node.pop(name, {}).items():
            _add(self._allocatable, kind, -number)
        if node is None:
            return
        group = _group(node)
        kinds = {GpuKind(resource, *group): number for resource, number in node.gpus.items()}
        if not (node.ready and node.schedulable):
            kinds = {kind: min(number, held.get(kind, 0)) for kind, number in kinds.items()}
        self._by_node[name] = kinds
        for kind, number in kinds.items():
            _add(self._allocatable, kind, number)


class _Claim(NamedTuple):
    """What a pod adds to the counts. nodes: the model and the taints of its node. waits: for the scheduler."""

    namespace: str
    target: Ref | None
    gpus: Mapping[str, int]
    node: str | None
    nodes: tuple[str, tuple[Taint, ...]]
    leaving: bool
    waits: bool
    gated: bool
    traits: PodTraits


@dataclass(frozen=True, slots=True)
class _Counts:
    """As `TargetGpus`, and changes; requested: by namespace, resource name and traits. No count is 0."""

    held: dict[GpuKind, int] = field(default_factory=dict)
    staying: dict[GpuKind, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    requested: dict[tuple[str, str, PodTraits], int] = field(default_factory=dict)
    admitted: dict[str, int] = field(default_factory=dict)

    def add(self, claim: _Claim, sign: int) -> None:
        for resource, number in claim.gpus.items():
            change = sign * number
            _add(self.requested, (claim.namespace, resource, claim.traits), change)
            if not claim.gated:
                _add(self.admitted, resource, change)
            if claim.node is not None:
                kind = GpuKind(resource, *claim.nodes)
                _add(self.held, kind, change)
                if not claim.leaving:
                    _add(self.staying, kind, change)
            elif claim.waits:
                _add(self.waiting, resource, change)


def _group(node: Node | None) -> tuple[str, tuple[Taint, ...]]:
    """What nodes of one kind have in common."""
    return ("", ()) if node is None else (model_of(node) or "", node.taints)


def _add(counts: dict[Key, int], key: Key, number: int) -> None:
    total = counts.get(key, 0) + number
    if total:
        counts[key] = total
    else:
        counts.pop(key, None)
