"""Indexes the records of all objects, and collects which answers change with them.

All indexes are updated in one place, `Records.keep`. Objects may come in any order.

Worked example: `keep(ref, pod)` with a pod with the new address 10.0.0.7, formerly None, indexes it by that address and
adds its ReplicaSet and its Deployment to `changes`. `keep(ref, pod)` with an equal record does nothing: a kubelet's
heartbeat in the pod's status, which the record leaves out, is no change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar, assert_never

from .kueue import QUEUE_LABEL
from .objects import (
    ClusterQueue,
    Cohort,
    GpuQuota,
    Hpa,
    Link,
    LocalQueue,
    Node,
    Pod,
    Record,
    Ref,
    ResourceFlavor,
    Scalable,
    ScaledObject,
    Slice,
)

# A worker of a LeaderWorkerSet that another object created: Pod, StatefulSet, leader Pod, StatefulSet, LeaderWorkerSet,
# its creator, and that one's creator.
DEPTH = 8
MOST_GPU_CHANGES = 100_000  # ten times the pods of a large cluster

# NVIDIA's Helm chart and its GPU Operator label dcgm-exporter differently, and give its port different names.
_EXPORTER_LABELS = (("app.kubernetes.io/name", "dcgm-exporter"), ("app", "nvidia-dcgm-exporter"))
_EXPORTER_PORTS = ("metrics", "gpu-metrics")
_EXPORTER_DEFAULT_PORT = 9400

R = TypeVar("R", bound=Record)


class Changes(NamedTuple):
    """targets:  scale targets of which the pods or the replicas changed.
    services:  (namespace, name) of Services of which the endpoints changed.
    registry:  ScaledObjects, ScaledJobs, HPAs or `tidegate.dev/` annotations changed, or a resource was synced.
    exporters: dcgm-exporter pods changed.
    synced:    a resource was synced, so every answer may have changed.
    """

    targets: frozenset[Ref] = frozenset()
    services: frozenset[tuple[str, str]] = frozenset()
    registry: bool = False
    exporters: bool = False
    synced: bool = False


@dataclass(slots=True)
class ChangeCollector:
    """Collects Changes. Too many cost a lookup; too few cost a stale answer.

    nodes: the GPUs of some node may have changed. relabelled: those of a node that may have pods.
    gpus:  nodes, pods, quotas, owners and templates that may have changed the use of GPUs; None: all may have.
    """

    targets: set[Ref] = field(default_factory=set)
    services: set[tuple[str, str]] = field(default_factory=set)
    registry: bool = False
    exporters: bool = False
    synced: bool = False
    nodes: bool = False
    relabelled: bool = False
    gpus: set[Ref] | None = None
    _uncounted: set[Ref] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.targets or self.services or self.registry or self.exporters or self.synced)

    def add_targets(self, refs: Iterable[Ref]) -> None:
        changed = tuple(refs)
        self.targets.update(changed)
        self._uncounted.update(changed)

    def add_gpus(self, ref: Ref) -> None:
        """Forgets which they are if they are too many to keep: nothing counts them."""
        if self.gpus is not None:
            self.gpus.add(ref)
            if len(self.gpus) > MOST_GPU_CHANGES:
                self.gpus = None

    def take(self) -> Changes:
        """Everything since the last call."""
        changes = Changes(frozenset(self.targets), frozenset(self.services), self.registry, self.exporters, self.synced)
        self.targets, self.services = set(), set()
        self.registry = self.exporters = self.synced = False
        return changes

    def take_uncounted(self) -> frozenset[Ref]:
        """The changed targets since the last call of this method; independent of `take`."""
        uncounted, self._uncounted = frozenset(self._uncounted), set()
        return uncounted


class Chains:
    """Links objects to their controllers, upwards and downwards.

    An owner need not exist yet: a pod that arrives before its ReplicaSet belongs to the Deployment as soon as the
    ReplicaSet arrives. Anybody who may write an object may write its owner references: a cycle ends where it began, and
    a chain after DEPTH steps.

    Worked example: after `link(pod, replicaset)` and `link(replicaset, deployment)`, in either order, `up(pod)` is
    `(replicaset, deployment)` and `below(deployment)` has both.
    """

    def __init__(self) -> None:
        self._owner: dict[Ref, Ref] = {}
        self._owned: dict[Ref, set[Ref]] = {}

    def link(self, ref: Ref, owner: Ref | None) -> None:
        """owner: the controller of `ref`; None if it has none, or was deleted."""
        before = self._owner.pop(ref, None)
        if before is not None:
            siblings = self._owned[before]
            siblings.discard(ref)
            if not siblings:
                del self._owned[before]
        if owner is not None:
            self._owner[ref] = owner
            self._owned.setdefault(owner, set()).add(ref)

    def up(self, ref: Ref) -> tuple[Ref, ...]:
        """Its owner, the owner of that, and so on: nearest first."""
        chain: list[Ref] = []
        above = self._owner.get(ref)
        while above is not None and above != ref and above not in chain and len(chain) < DEPTH:
            chain.append(above)
            above = self._owner.get(above)
        return tuple(chain)

    def owned(self, ref: Ref) -> frozenset[Ref]:
        """The objects that it controls directly."""
        return frozenset(self._owned.get(ref, ()))

    def below(self, ref: Ref) -> Iterator[Ref]:
        """Everything with `ref` in its chain, each once, in no order."""
        visited = {ref}
        level = [ref]
        for _ in range(DEPTH):
            level = [owned for above in level for owned in self._owned.get(above, ()) if owned not in visited]
            visited.update(level)
            yield from level


class Records:
    def __init__(self) -> None:
        self.chains, self.changes = Chains(), ChangeCollector()
        self._tables: dict[str, dict[Ref, Record]] = {}  # by kind
        self._exporters: dict[Ref, Pod] = {}
        self._gpu_pods: dict[Ref, Pod] = {}  # that request GPUs
        self._slices: dict[tuple[str, str], dict[Ref, Slice]] = {}  # by namespace and service
        self._slices_at: dict[str, set[Ref]] = {}  # by address
        self._pods_at: dict[str, dict[Ref, Pod]] = {}  # running pods by address, without those of the host network
        self._once_ready: set[str] = set()  # uids
        self._by_uid: dict[str, Ref] = {}

    def get(self, ref: Ref, of: type[R]) -> R | None:
        return _as(of, self._tables.get(ref.kind, {}).get(ref))

    def all(self, of: type[R]) -> Iterator[R]:
        for table in self._tables.values():
            yield from (record for record in table.values() if isinstance(record, of))

    def of_kind(self, kind: str) -> Iterator[Ref]:
        yield from self._tables.get(kind, ())

    def refs(self, kind: str, namespace: str | None) -> set[Ref]:
        """Objects of one kind, in one namespace or (None) in all."""
        return {ref for ref in self._tables.get(kind, ()) if namespace is None or ref.namespace == namespace}

    def gpu_exporters(self) -> tuple[Pod, ...]:
        return tuple(self._exporters[ref] for ref in sorted(self._exporters))

    def gpu_pods(self) -> Mapping[Ref, Pod]:
        """Pods that request GPUs, also those that have ended."""
        return self._gpu_pods

    def slices(self, namespace: str, service: str) -> tuple[Slice, ...]:
        found = self._slices.get((namespace, service), {})
        return tuple(found[ref] for ref in sorted(found))

    def pods_at(self, address: str) -> tuple[Pod, ...]:
        """Running pods with this address in their status; of a pod on a lost node it may be reused by another."""
        return tuple(self._pods_at.get(address, {}).values())

    def was_ready(self, uid: str) -> bool:
        return uid in self._once_ready

    def pod_of_uid(self, uid: str) -> Ref | None:
        return self._by_uid.get(uid)

    def keep(self, ref: Ref, record: Record | None) -> None:
        """Store the record of `ref`; None deletes it."""
        table = self._tables.setdefault(ref.kind, {})
        before = table.get(ref)
        if before == record:
            return
        if record is None:
            del table[ref]
        else:
            table[ref] = record
        self._index(ref, before, record)

    def _index(self, ref: Ref, before: Record | None, now: Record | None) -> None:
        # Both are of one type, which follows from the kind of the ref.
        match now if now is not None else before:
            case Pod():
                self._index_pod(ref, _as(Pod, before), _as(Pod, now))
            case Scalable():
                self._index_scalable(ref, _as(Scalable, before), _as(Scalable, now))
            case Link():
                self._index_link(ref, _as(Link, now))
            case Slice():
                self._index_slice(ref, _as(Slice, before), _as(Slice, now))
            case ScaledObject() | Hpa():
                if _without_status(before) != _without_status(now):
                    self.changes.registry = True
            case Node():
                self.changes.nodes = True
                self.changes.add_gpus(ref)
                old, new = _as(Node, before), _as(Node, now)
                if old is not None and new is not None and (old.gpus, old.labels) != (new.gpus, new.labels):
                    self.changes.relabelled = True
            case GpuQuota() | ClusterQueue() | LocalQueue() | ResourceFlavor() | Cohort():
                self.changes.add_gpus(ref)
            case None:
                pass
            case unexpected:
                assert_never(unexpected)

    def _index_pod(self, ref: Ref, before: Pod | None, now: Pod | None) -> None:
        self.changes.add_targets(self.chains.up(ref))
        self.chains.link(ref, None if now is None else now.owner)
        self.changes.add_targets(self.chains.up(ref))
        if before is not None:
            self._by_uid.pop(before.uid, None)
            if now is None or now.uid != before.uid:
                self._once_ready.discard(before.uid)
        if now is not None:
            self._by_uid[now.uid] = ref
            if now.ready or now.was_ready:
                self._once_ready.add(now.uid)
        leads = self.chains.owned(ref) and (before and before.owner) != (now and now.owner)
        if leads or _gpu_claim(before) != _gpu_claim(now):
            self.changes.add_gpus(ref)
        if now is not None and now.gpus:
            self._gpu_pods[ref] = now
        else:
            self._gpu_pods.pop(ref, None)
        if ref in self._exporters or (now is not None and is_gpu_exporter(now)):
            self._exporters.pop(ref, None)
            if now is not None and is_gpu_exporter(now):
                self._exporters[ref] = now
            self.changes.exporters = True
        for pod in (before, now):
            if pod is not None and pod.address is not None:
                self._add_services_at(pod.address)
                if not pod.host_network:
                    self._index_address(ref, pod.address, now)

    def _add_services_at(self, address: str) -> None:
        """The Services with this address: a pod with it has changed."""
        for ref in self._slices_at.get(address, ()):
            slice_ = self.get(ref, Slice)
            if slice_ is not None and slice_.service is not None:
                self.changes.services.add((ref.namespace, slice_.service))

    def _index_address(self, ref: Ref, address: str, now: Pod | None) -> None:
        """Update the pods at an address. Of several pods with one address the youngest has it, so all may change."""
        pods = self._pods_at.setdefault(address, {})
        pods.pop(ref, None)
        for other in pods:
            self.changes.add_targets(self.chains.up(other))
        if now is not None and now.address == address and not now.done:
            pods[ref] = now
        if not pods:
            del self._pods_at[address]

    def _index_scalable(self, ref: Ref, before: Scalable | None, now: Scalable | None) -> None:
        above = self.chains.up(ref)
        self.chains.link(ref, None if now is None else now.owner)
        if _template(before) != _template(now):
            self.changes.add_gpus(ref)
        # `ready` is for display: replicas are counted by their pods.
        if before is None or now is None or (before.wanted, before.owner) != (now.wanted, now.owner):
            self.changes.add_targets((ref, *above, *self.chains.up(ref)))
        if (before.annotations if before else {}) != (now.annotations if now else {}):
            self.changes.registry = True

    def _index_link(self, ref: Ref, now: Link | None) -> None:
        above = self.chains.up(ref)
        self.chains.link(ref, None if now is None else now.owner)
        if self.chains.owned(ref):
            self.changes.add_gpus(ref)
            self.changes.add_targets((*above, *self.chains.up(ref)))

    def _index_slice(self, ref: Ref, before: Slice | None, now: Slice | None) -> None:
        for address in before.addresses if before is not None else ():
            self._slices_at[address].discard(ref)
            if not self._slices_at[address]:
                del self._slices_at[address]
        for address in now.addresses if now is not None else ():
            self._slices_at.setdefault(address, set()).add(ref)
        for slice_ in (before, now):
            if slice_ is not None and slice_.service is not None:
                slices = self._slices.setdefault((ref.namespace, slice_.service), {})
                slices.pop(ref, None)
                if slice_ is now:
                    slices[ref] = slice_
                if not slices:
                    del self._slices[ref.namespace, slice_.service]
                self.changes.services.add((ref.namespace, slice_.service))


def is_gpu_exporter(pod: Pod) -> bool:
    """Whether it is a dcgm-exporter, by its labels."""
    return any(pod.labels.get(name) == value for name, value in _EXPORTER_LABELS)


def page_port(pod: Pod) -> int:
    """The TCP port of a dcgm-exporter's metrics endpoint; the program's default if none is named as usual."""
    return next((pod.ports[name] for name in _EXPORTER_PORTS if name in pod.ports), _EXPORTER_DEFAULT_PORT)


def _gpu_claim(pod: Pod | None) -> object:
    """What of a pod decides which GPUs it uses."""
    if pod is None or not pod.gpus:
        return None
    return pod.gpus, pod.node, pod.owner, pod.done, pod.leaving, pod.unscheduled_since is None, pod.gated, pod.traits


def _template(scalable: Scalable | None) -> object:
    """What of an object decides which GPUs a new replica needs."""
    if scalable is None:
        return None
    return scalable.gpus, scalable.gpu_model, scalable.owner, scalable.traits, scalable.labels.get(QUEUE_LABEL)


def _without_status(record: Record | None) -> object:
    """Its controller updates the status every few seconds, and no answer depends on it."""
    return replace(record, status=None) if isinstance(record, ScaledObject | Hpa) else record


def _as(kind: type[R], record: Record | None) -> R | None:
    return record if isinstance(record, kind) else None
