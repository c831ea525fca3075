"""Keeps the objects of a cluster in memory and answers questions about them without I/O and without a clock.

The reflector feeds it. Answers are indexed: none visits more than the pods it is about. None means unknown; empty means
that there are none. A resource that was not listed in full, or was lost for longer than `blind_s`, is unknown.

Worked example: given pod `ai/chat-7d9f8b6c5d-x2k9q` and then its owners ReplicaSet `ai/chat-7d9f8b6c5d` and Deployment
`ai/chat`, `pods_of(Ref("ai", "Deployment", "chat"), now)` has the pod as soon as pods and ReplicaSets have each been
listed in full; before that it is None. With `blind_s` 60, pods that are listed at 1000 and lost at 1100 are known until
1160, and again as soon as the reflector receives them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from exporter.model import GpuPart, PodKey, ReplicaCount

from .decode import GROUP_INDEX, WORKER_INDEX, Malformed, decode, identify
from .events import Subject
from .gpu_use import ClusterGpus, GpuCounter
from .gpus import capacity, parts_of
from .index import Changes, Records
from .objects import (
    ClusterQueue,
    Cohort,
    GpuQuota,
    Hpa,
    LocalQueue,
    Node,
    Pod,
    QueueRecord,
    Record,
    Ref,
    ResourceFlavor,
    Scalable,
    ScaledObject,
)
from .resources import (
    DEPLOYMENTS,
    INFERENCESERVICES,
    INFERENCESETS,
    JOBS,
    KUEUE,
    LEADERWORKERSETS,
    NODES,
    PODS,
    REPLICASETS,
    RESOURCES,
    ROLLOUTS,
    SHARED,
    SLICES,
    STATEFULSETS,
    WORKSPACES,
    Resource,
)
from .sync_state import SyncState

# The resources between a pod and each kind of target: which pods a target has is known only if all of them are.
_BELOW: Mapping[str, tuple[Resource, ...]] = {
    "Deployment": (PODS, REPLICASETS),
    "Rollout": (PODS, REPLICASETS),
    "InferenceService": (PODS, REPLICASETS, DEPLOYMENTS),
    "InferenceSet": (PODS, STATEFULSETS, WORKSPACES),
    "StatefulSet": (PODS, STATEFULSETS),
    "LeaderWorkerSet": (PODS, STATEFULSETS),
    "ReplicaSet": (PODS,),
    "Job": (PODS,),
    "ScaledJob": (PODS, JOBS),
}
_BELOW_OTHER_KINDS = (PODS, REPLICASETS, DEPLOYMENTS, STATEFULSETS, JOBS)
_SCALABLE: Mapping[str, Resource] = {
    resource.kind: resource
    for resource in (DEPLOYMENTS, STATEFULSETS, LEADERWORKERSETS, ROLLOUTS, INFERENCESERVICES, INFERENCESETS)
}
MANY = 300  # objects that are counted in about 5 ms
_BY_KIND = {resource.kind: resource for resource in RESOURCES}


class ServiceEndpoint(NamedTuple):
    """A ready address of a Service. ports: by name, "" for the unnamed one."""

    address: str
    ports: Mapping[str, int]


class ParsedObject(NamedTuple):
    """ref: None if the document has no name. record: None if it is malformed."""

    ref: Ref | None
    record: Record | None


class ReplicaTally(NamedTuple):
    """ready: replicas that take requests. pending: replicas with a pod that no node runs yet. existing: all but the
    terminating ones. leaving: terminating ones that still run.
    """

    ready: int
    pending: int
    existing: int
    leaving: int


class Cluster:
    """malformed: documents that could not be decoded, by resource name.
    on_change: called at the first change after `take_changes`.
    """

    def __init__(
        self, namespaces: Iterable[str] = (), *, blind_s: float, on_change: Callable[[], None] | None = None
    ) -> None:
        """namespaces: those that are watched; empty is all. blind_s: seconds after which a lost resource is unknown."""
        self.malformed: Counter[str] = Counter()
        self.on_change = on_change
        self._namespaces = frozenset(namespaces)
        self._sync_state = SyncState(self._namespaces, blind_s)
        self._synced_when_counted: frozenset[tuple[Resource, str | None]] | None = None
        self._records = Records()
        self._node_gpus: tuple[GpuPart, ...] | None = None
        self._gpu_counter = GpuCounter()
        self._gpu_targets: frozenset[Ref] = frozenset()
        self._to_count: list[Ref] = []  # what may have changed the use of GPUs, and pods below it
        self._to_claim: list[Ref] = []

    # Updates, by the reflector. `now`: POSIX seconds.

    def parse(self, resource: Resource, documents: Sequence[Mapping[str, Any]]) -> list[ParsedObject]:
        """The records of a part of a list, for `replacing`. Changes nothing yet."""
        return [_parsed(resource, document) for document in documents]

    def replace(
        self, resource: Resource, namespace: str | None, documents: Sequence[Mapping[str, Any]], now: float
    ) -> None:
        """Make these the only objects in that namespace (None: in all). A malformed one keeps its last record."""
        for _ in self.replacing(resource, namespace, self.parse(resource, documents), now):
            pass

    def replacing(
        self, resource: Resource, namespace: str | None, objects: Sequence[ParsedObject], now: float
    ) -> Iterator[None]:
        """As `replace`, in parts of MANY objects: 10,000 pods take 0.3 s. What is gone is removed last.

        Between two parts some objects are of the list and some older, as between two events of a watch; a resource that
        is listed for the first time is not synced before the end.
        """
        gone = self._records.refs(resource.kind, namespace)
        for begin in range(0, len(objects), MANY):
            with self._updating(resource, namespace, now):
                for ref, record in objects[begin : begin + MANY]:
                    if ref is not None:
                        gone.discard(ref)
                    if ref is None or record is None:
                        self.malformed[resource.name] += 1
                    else:
                        self._records.keep(ref, record)
            yield
        with self._updating(resource, namespace, now):
            for ref in gone:
                self._records.keep(ref, None)
            self._sync_state.mark_listed(resource, namespace, now)

    def apply(self, resource: Resource, type: str, document: Mapping[str, Any], now: float) -> None:  # noqa: A002
        """One object was ADDED, MODIFIED or DELETED. A malformed one keeps its last record."""
        try:
            ref = identify(resource, document)
            record = None if type == "DELETED" else decode(ref, document)
        except Malformed:
            self.malformed[resource.name] += 1
            return
        with self._updating(resource, ref.namespace, now):
            self._records.keep(ref, record)
            self._sync_state.mark_current(resource, ref.namespace, now)

    def mark_current(self, resource: Resource, now: float, namespace: str | None = None) -> None:
        """The stored objects are up to date, in one namespace or (None) in all."""
        with self._updating(resource, namespace, now):
            self._sync_state.mark_current(resource, namespace, now)

    def mark_lost(self, resource: Resource, now: float, namespace: str | None = None) -> None:
        """No updates come from now on, until the next `mark_current`."""
        self._sync_state.mark_lost(resource, namespace, now)

    def mark_refused(self, resource: Resource, now: float, namespace: str | None = None) -> None:
        """As lost, because RBAC does not allow it."""
        self._sync_state.mark_refused(resource, namespace, now)

    def mark_absent(self, resource: Resource, now: float) -> None:
        """The cluster does not have the resource: it is known that there are no objects."""
        with self._updating(resource, None, now):
            for ref in self._records.refs(resource.kind, None):
                self._records.keep(ref, None)
            self._sync_state.mark_absent(resource, now)

    @contextmanager
    def _updating(self, resource: Resource, namespace: str | None, now: float) -> Iterator[None]:
        """Calls `on_change` for the first change, and notices that a resource was synced."""
        changes = self._records.changes
        unchanged, synced = not changes, self.synced(resource, now, namespace)
        yield
        if not synced and self.synced(resource, now, namespace):
            changes.registry = changes.synced = True
        if unchanged and changes and self.on_change is not None:
            self.on_change()

    # Queries.

    def take_changes(self) -> Changes:
        """The changes since the last call."""
        return self._records.changes.take()

    def watches(self, namespace: str) -> bool:
        return not self._namespaces or namespace in self._namespaces

    def synced(self, resource: Resource, now: float, namespace: str | None = None) -> bool:
        """Whether it was listed in full, and was not lost for too long. namespace: None is every watched one."""
        return self._sync_state.synced(resource, now, namespace)

    def settled(self, resource: Resource, now: float) -> bool:
        """Whether it is synced in every watched namespace but those that refuse."""
        return self._sync_state.settled(resource, now)

    def pods_of(self, target: Ref, now: float) -> tuple[Pod, ...] | None:
        """All pods of `target` that have not ended, by name; None while unknown."""
        if not self._all_synced(target.namespace, _BELOW.get(target.kind, _BELOW_OTHER_KINDS), now):
            return None
        return self._below(target)

    def lacks(self, target: Ref) -> bool:
        """Whether a target of a watched kind does not exist, or is not listed yet."""
        return target.kind in _SCALABLE and self._records.get(target, Scalable) is None

    def subject(self, ref: Ref) -> Subject | None:
        """An object as the subject of an Event; None if it does not exist or its kind is not watched."""
        resource = _BY_KIND.get(ref.kind)
        found = self._records.get(ref, Scalable) or self._records.get(ref, ScaledObject)
        return None if resource is None or found is None else Subject(resource.version, ref, found.uid)

    def leaders_of(self, target: Ref, now: float) -> tuple[Pod, ...] | None:
        """Those of `pods_of` that take requests: the leader of each group of a LeaderWorkerSet, the first pod of each
        replica of an InferenceSet, the predictors of an InferenceService.
        """
        pods = self.pods_of(target, now)
        if pods is None or target.kind not in {"LeaderWorkerSet", "InferenceService", "InferenceSet"}:
            return pods
        if target.kind == "InferenceSet":
            return tuple(pod for pod in pods if pod.key.pod.endswith("-0"))  # of a StatefulSet: the first node
        if target.kind == "LeaderWorkerSet":
            return tuple(filter(_is_leader, pods))
        return tuple(pod for predictor in self._predictors(target) for pod in self._below(predictor.ref))

    def count(self, target: Ref, now: float) -> ReplicaCount | None:
        """None while unknown, and for a target that does not exist or has no replicas (a ScaledJob)."""
        scalable, resource = self._records.get(target, Scalable), _SCALABLE.get(target.kind)
        if scalable is None or resource is None:
            return None
        resources = (resource, *_BELOW[target.kind])
        leaders = self.leaders_of(target, now)
        if leaders is None or not self._all_synced(target.namespace, resources, now):
            return None
        pods = self._below(target)
        held = [pod for pod in pods if pod.gpus and pod.phase == "Running"]
        tally = count_groups(pods) if target.kind == "LeaderWorkerSet" else count_pods(leaders)
        wanted = scalable.wanted or 0
        if target.kind == "InferenceService":
            predictors = self._predictors(target)
            if not predictors:
                return None
            wanted = sum(predictor.wanted or 0 for predictor in predictors)
        return ReplicaCount(
            wanted,
            tally.ready,
            self._sync_state.current_at(resources, target.namespace),
            tally.pending,
            sum(sum(pod.gpus.values()) for pod in held),
            existing=tally.existing,
            leaving=tally.leaving,
            parts=parts_of(held, self._node),
        )

    def will_count(self, target: Ref, now: float) -> bool:
        """Whether `count` is None only until its resources are synced: the target has replicas, and may exist."""
        resource = _SCALABLE.get(target.kind)
        resources = () if resource is None else (resource, *_BELOW[target.kind])
        return bool(resources) and not all(self.synced(each, now, target.namespace) for each in resources)

    def take_uncounted(self, now: float) -> frozenset[Ref] | None:
        """The targets of which `count` may have changed since the last call; None: all, because a resource was synced
        or lost. Only `ReplicaCount.at` advances by itself.
        """
        before, synced = self._synced_when_counted, self._sync_state.synced_parts(RESOURCES, now)
        self._synced_when_counted, changed = synced, self._records.changes.take_uncounted()
        relabelled, self._records.changes.relabelled = self._records.changes.relabelled, False
        return changed if synced == before and not relabelled else None

    def owners_of(self, pod: PodKey) -> tuple[Ref, ...] | None:
        """Its controller, the controller of that, and so on, as far as known; None if there is no such pod."""
        ref = _ref(pod)
        return None if self._records.get(ref, Pod) is None else self._records.chains.up(ref)

    def named(self, pod: PodKey) -> PodKey:
        """The key of a pod that is given by its UID (no namespace); unchanged if no pod has that UID."""
        found = self._records.pod_of_uid(pod.pod) if not pod.namespace else None
        return pod if found is None else PodKey(found.namespace, found.name)

    def node_of(self, pod: PodKey) -> str | None:
        """The node of a pod; None if the pod is unknown or has none yet."""
        found = self.pod(pod)
        return None if found is None else found.node

    def unscheduled(self) -> dict[Ref, Pod]:
        """By each of its owners, the pod that has waited longest for a node."""
        waiting = [pod for pod in self._records.all(Pod) if pod.unscheduled_since is not None and not pod.leaving]
        waiting.sort(key=lambda pod: (-(pod.unscheduled_since or 0.0), pod.key))
        return {ref: pod for pod in waiting for ref in self._records.chains.up(_ref(pod.key))}

    def pod(self, key: PodKey) -> Pod | None:
        return self._records.get(_ref(key), Pod)

    def may_have_requests(self, pod: Pod) -> bool:
        """Whether it is or was ready, and its containers have not restarted since."""
        return self._records.was_ready(pod.uid) and not pod.fresh_start

    def is_pod_of(self, namespace: str, address: str) -> bool:
        """Whether a running pod of that namespace has this address."""
        if any(pod.key.namespace == namespace for pod in self._records.pods_at(address)):
            return True
        # Rare: pods of the host network share an address, so they are not indexed by it.
        return any(
            pod.address == address and pod.host_network and pod.key.namespace == namespace and not pod.done
            for pod in self._records.all(Pod)
        )

    def has_its_address(self, pod: Pod) -> bool:
        """Whether `pod` still has the address in its status: that of a pod on a lost node may have been reused."""
        if pod.address is None or pod.host_network:
            return pod.address is not None
        return all(other.key == pod.key or _claim(other) < _claim(pod) for other in self._records.pods_at(pod.address))

    def scaled_objects(self) -> tuple[ScaledObject, ...]:
        """ScaledObjects and ScaledJobs, in order."""
        return tuple(sorted(self._records.all(ScaledObject), key=lambda scaled: scaled.ref))

    def hpas(self) -> tuple[Hpa, ...]:
        return tuple(sorted(self._records.all(Hpa), key=lambda hpa: hpa.ref))

    def scalables(self) -> tuple[Scalable, ...]:
        return tuple(sorted(self._records.all(Scalable), key=lambda scalable: scalable.ref))

    def nodes(self) -> tuple[Node, ...]:
        return tuple(sorted(self._records.all(Node), key=lambda node: node.name))

    def node_gpus(self, now: float) -> tuple[GpuPart, ...] | None:
        """All GPUs of all nodes; None while unknown, and where only some namespaces are watched."""
        if self._namespaces or not self.synced(NODES, now):
            return None
        if self._records.changes.nodes or self._node_gpus is None:
            self._records.changes.nodes = False
            self._node_gpus = tuple(part for node in self.nodes() if (part := capacity(node)).whole)
        return self._node_gpus

    def gpu_use(self, targets: frozenset[Ref], now: float) -> ClusterGpus | None:
        """The GPUs of the cluster and what each of these scale targets holds of them; the same value while nothing
        changes. None while unknown, and where only some namespaces are watched.
        """
        if self._namespaces or not all(self.synced(each, now) for each in (NODES, *_BELOW_OTHER_KINDS)):
            return None
        while self.count_gpus(targets, MANY):
            pass
        return self._gpu_counter.counted(queues=all(self.synced(each, now) for each in KUEUE))

    def count_gpus(self, targets: frozenset[Ref], most: int) -> bool:
        """Counts up to `most` changed objects for `gpu_use`, about 10 us each; returns whether more are to be counted.

        So a caller can answer others in between.
        """
        changes = self._records.changes
        if self._namespaces:
            return False
        if changes.gpus is None:
            self._gpu_counter, self._gpu_targets = GpuCounter(), targets
            self._to_count = [ref for each in (*SHARED, NODES) for ref in self._records.of_kind(each.kind)]
            self._to_claim = [*self._records.gpu_pods()]
        elif targets != self._gpu_targets:
            self._to_count += targets ^ self._gpu_targets
            self._gpu_targets = targets
        self._to_count += changes.gpus or ()
        changes.gpus = set()
        for _ in range(most):
            if self._to_count:
                self._count_gpus_of(self._to_count.pop())
            elif self._to_claim:
                self._claim_gpus_of(self._to_claim.pop())
        return bool(self._to_count or self._to_claim) or self._gpu_counter.settle(most)

    def _count_gpus_of(self, ref: Ref) -> None:
        match ref.kind:
            case "Node":
                self._gpu_counter.set_node(ref.name, self._records.get(ref, Node))
                return
            case "ResourceQuota":
                self._gpu_counter.set_quota(ref, self._records.get(ref, GpuQuota))
                return
            case "ClusterQueue" | "LocalQueue" | "ResourceFlavor" | "Cohort":
                self._gpu_counter.set_queue(ref, self._queue_record(ref))
                return
            case "Pod":
                self._claim_gpus_of(ref)
            case _:
                self._gpu_counter.note_template()
        self._to_claim += (below for below in self._records.chains.below(ref) if below.kind == "Pod")

    def _queue_record(self, ref: Ref) -> QueueRecord | None:
        get = self._records.get
        return get(ref, ClusterQueue) or get(ref, LocalQueue) or get(ref, ResourceFlavor) or get(ref, Cohort)

    def _claim_gpus_of(self, ref: Ref) -> None:
        """Counts a pod for the nearest target above it."""
        target = next((above for above in self._records.chains.up(ref) if above in self._gpu_targets), None)
        self._gpu_counter.set_pod(ref, self._records.get(ref, Pod), target)

    def template(self, target: Ref) -> Scalable | None:
        """The record of a scale target, with the GPUs of one replica; None if it is unknown."""
        return self._records.get(target, Scalable)

    def labels_of(self, target: Ref) -> Mapping[str, str]:
        """The labels of a scale target; none if it is unknown."""
        found = self._records.get(target, Scalable)
        return {} if found is None else found.labels

    def _node(self, name: str) -> Node | None:
        return self._records.get(Ref("", NODES.kind, name), Node)

    def gpu_exporters(self, now: float) -> tuple[Pod, ...] | None:
        """All pods of dcgm-exporter that have not ended, ready or not; None while unknown."""
        if not self.settled(PODS, now):
            return None
        return tuple(pod for pod in self._records.gpu_exporters() if not pod.done)

    def endpoints(self, namespace: str, service: str, now: float) -> tuple[ServiceEndpoint, ...] | None:
        """The ready addresses of a Service, each once; None while unknown."""
        if not self._all_synced(namespace, (SLICES,), now):
            return None
        ports = {
            address: slice_.ports for slice_ in self._records.slices(namespace, service) for address in slice_.addresses
        }
        return tuple(ServiceEndpoint(address, ports[address]) for address in sorted(ports))

    def _all_synced(self, namespace: str, resources: Iterable[Resource], now: float) -> bool:
        return self.watches(namespace) and all(self.synced(resource, now, namespace) for resource in resources)

    def _below(self, target: Ref) -> tuple[Pod, ...]:
        refs = sorted(ref for ref in self._records.chains.below(target) if ref.kind == "Pod")
        pods = (self._records.get(ref, Pod) for ref in refs)
        return tuple(pod for pod in pods if pod is not None and not pod.done)

    def _predictors(self, target: Ref) -> list[Scalable]:
        """The Deployments that serve the requests of an InferenceService: not its transformer's or explainer's,
        and not the workers of a model that is spread over several nodes ("-predictor-worker").
        """
        names = {f"{target.name}-predictor", f"{target.name}-predictor-default"}
        refs = sorted(ref for ref in self._records.chains.owned(target) if ref.name in names)
        return [found for ref in refs if (found := self._records.get(ref, Scalable)) is not None]


def count_pods(pods: Iterable[Pod]) -> ReplicaTally:
    """Each pod is a replica, unless it is terminating."""
    every = list(pods)
    staying = [pod for pod in every if not pod.leaving]
    leaving = sum(map(_still_runs, every))
    return ReplicaTally(sum(pod.ready for pod in staying), sum(map(_is_pending, staying)), len(staying), leaving)


def count_groups(pods: Iterable[Pod]) -> ReplicaTally:
    """Each group of a LeaderWorkerSet is a replica: ready if its leader is ready and the group is complete.

    Worked example: of two groups of 2, one has both pods ready, the other a ready leader and a pending worker: of 2
    replicas 1 is ready and 1 pending.
    """
    groups: dict[str | None, list[Pod]] = {}
    leaving: set[str | None] = set()
    for pod in pods:
        if not pod.leaving:
            groups.setdefault(pod.labels.get(GROUP_INDEX), []).append(pod)
        elif _still_runs(pod):
            leaving.add(pod.labels.get(GROUP_INDEX))
    groups.pop(None, None)  # pods without a group cannot complete one
    going = len(leaving - groups.keys() - {None})
    pending = sum(any(map(_is_pending, group)) for group in groups.values())
    return ReplicaTally(sum(map(_is_ready_group, groups.values())), pending, len(groups), going)


def _is_leader(pod: Pod) -> bool:
    return pod.labels.get(WORKER_INDEX) == "0"


def _is_ready_group(group: Sequence[Pod]) -> bool:
    # With startupPolicy LeaderReady the workers are created after their leader is ready, so the size must be compared.
    size = max((pod.group_size or 1 for pod in group), default=1)
    return len(group) >= size and any(map(_is_leader, group)) and all(pod.ready for pod in group)


def _is_pending(pod: Pod) -> bool:
    return pod.phase == "Pending"


def _still_runs(pod: Pod) -> bool:
    return pod.leaving and pod.phase == "Running"


def _parsed(resource: Resource, document: Mapping[str, Any]) -> ParsedObject:
    try:
        ref = identify(resource, document)
        return ParsedObject(ref, decode(ref, document))
    except Malformed as malformed:
        return ParsedObject(malformed.ref, None)


def _ref(pod: PodKey) -> Ref:
    return Ref(pod.namespace, "Pod", pod.pod)


def _claim(pod: Pod) -> tuple[bool, float, PodKey]:
    """Orders pods with one address: the ready one has it, else the youngest."""
    return pod.ready and not pod.leaving, pod.created_at or 0.0, pod.key
