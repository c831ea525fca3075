"""The cluster as it was last heard of, in memory: what there is, whose it is, and what has changed.

It is told by a reflector (`trim`, `replace_with`, `apply`, `heard`, `lost`, `absent`) and answers without waiting:
indexes are kept up to date with every object, and no answer looks at more than the pods it speaks of. It knows no
socket and no clock. What is not known is None; what is known to be nothing is empty. Objects may come in any order.

Worked example: told of pod `ai/chat-7d9f8b6c5d-x2k9q`, then of ReplicaSet `ai/chat-7d9f8b6c5d` that controls it and is
controlled by Deployment `ai/chat`, `pods_of(Ref("ai", "Deployment", "chat"), now)` has the pod once pods and
ReplicaSets have each been listed in full; before that it is None, not empty.

What is known of each resource: whether it was ever listed in full, and for how long it has not been heard of.

It knows resources and times and no objects. A list of a resource in one of several namespaces is a part of it; it is
known once every part has been listed. An API server that restarts takes the knowledge with it only if it stays away.

Worked example: with `blind_s` 60, pods listed at 1000 and lost at 1100 are known until 1160 and not from then on, until
they are heard of again.

How many replicas there are, from the pods that there are.

It knows what makes a replica: a pod, or of a LeaderWorkerSet a group of pods with a leader. It refuses to know whose
pods they are and whether the cluster has been heard of lately.

Worked example: a LeaderWorkerSet of groups of 2 has group 0 with both pods ready and group 1 with its leader ready and
its worker still pending: of 2 replicas 1 is ready and 1 pending.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from exporter.model import PodKey, ReplicaCount

from .decode import GROUP_INDEX, WORKER_INDEX, Malformed, identify, read
from .events import Subject
from .index import Changes, Records
from .objects import Hpa, Node, Pod, Record, Ref, Scalable, ScaledObject
from .resources import (
    DEPLOYMENTS,
    INFERENCESERVICES,
    JOBS,
    LEADERWORKERSETS,
    PODS,
    REPLICASETS,
    RESOURCES,
    ROLLOUTS,
    SLICES,
    STATEFULSETS,
    Resource,
)

# What stands on the way from a pod up to each kind of target: a pod belongs to it for sure only if all of these are
# known. Of a kind that is not ours to know anything may.
_ON_THE_WAY: Mapping[str, tuple[Resource, ...]] = {
    "Deployment": (PODS, REPLICASETS),
    "Rollout": (PODS, REPLICASETS),
    "InferenceService": (PODS, REPLICASETS, DEPLOYMENTS),
    "StatefulSet": (PODS, STATEFULSETS),
    "LeaderWorkerSet": (PODS, STATEFULSETS),
    "ReplicaSet": (PODS,),
    "Job": (PODS,),
    "ScaledJob": (PODS, JOBS),
}
_ANYTHING = (PODS, REPLICASETS, DEPLOYMENTS, STATEFULSETS, JOBS)
_SCALABLE: Mapping[str, Resource] = {
    resource.kind: resource for resource in (DEPLOYMENTS, STATEFULSETS, LEADERWORKERSETS, ROLLOUTS, INFERENCESERVICES)
}
_NAMED = {resource.kind: resource for resource in RESOURCES}


class ServiceEndpoint(NamedTuple):
    """A ready address of a Service. ports: by name, "" for the unnamed one."""

    address: str
    ports: Mapping[str, int]


class ParsedObject(NamedTuple):
    """What is kept of a document. ref: None if it does not say what it is. record: None if it cannot be read."""

    ref: Ref | None
    record: Record | None


class Cluster:
    """malformed: documents that could not be read, by resource name.
    on_change: told when something has changed and nothing had since the last `take_changes`.
    """

    def __init__(
        self,
        namespaces: Iterable[str] = (),
        *,
        blind_s: float,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        """namespaces: those that are watched; none is: all. blind_s: seconds of silence that end all knowledge."""
        self.malformed: Counter[str] = Counter()
        self.on_change = on_change
        self._namespaces = frozenset(namespaces)
        self._hearing = Hearing(self._namespaces, blind_s)
        self._known_when_counted: frozenset[Resource] | None = None
        self._records = Records()

    # What the reflector says. `now`: POSIX seconds.

    def trim(self, resource: Resource, documents: Sequence[Mapping[str, Any]]) -> list[ParsedObject]:
        """What is kept of each of these, for `replace_with`."""
        return [_trimmed(resource, document) for document in documents]

    def replace(
        self, resource: Resource, namespace: str | None, documents: Sequence[Mapping[str, Any]], now: float
    ) -> None:
        """These are all there are in that namespace (None: anywhere). One that cannot be read stays what it was."""
        self.replace_with(resource, namespace, self.trim(resource, documents), now)

    def replace_with(self, resource: Resource, namespace: str | None, kept: Sequence[ParsedObject], now: float) -> None:
        """As `replace`, of documents that are trimmed already."""
        quiet, known = not self._records.news, self.known(resource, now)
        gone = self._records.refs(resource.kind, namespace)
        for ref, record in kept:
            if ref is not None:
                gone.discard(ref)
            if ref is None or record is None:
                self.malformed[resource.name] += 1
            else:
                self._records.keep(ref, record)
        for ref in gone:
            self._records.keep(ref, None)
        self._hearing.listed(resource, namespace, now)
        self._announce(resource, quiet=quiet, known=known, now=now)

    def apply(self, resource: Resource, type: str, document: Mapping[str, Any], now: float) -> None:  # noqa: A002
        """One was ADDED, MODIFIED or DELETED. One that cannot be read stays what it was."""
        quiet, known = not self._records.news, self.known(resource, now)
        try:
            if type == "DELETED":
                self._records.keep(identify(resource, document), None)
            else:
                self._records.keep(identify(resource, document), read(resource, document))
        except Malformed:
            self.malformed[resource.name] += 1
        self._hearing.heard(resource, now)
        self._announce(resource, quiet=quiet, known=known, now=now)

    def heard(self, resource: Resource, now: float) -> None:
        """What is kept of it is up to date."""
        quiet, known = not self._records.news, self.known(resource, now)
        self._hearing.heard(resource, now)
        self._announce(resource, quiet=quiet, known=known, now=now)

    def lost(self, resource: Resource, now: float) -> None:
        """From here on nothing is heard of it, until the next `heard`."""
        self._hearing.lost(resource, now)

    def absent(self, resource: Resource, now: float) -> None:
        """The cluster does not have such a thing: there are none, and that is known."""
        quiet, known = not self._records.news, self.known(resource, now)
        for ref in self._records.refs(resource.kind, None):
            self._records.keep(ref, None)
        self._hearing.absent(resource, now)
        self._announce(resource, quiet=quiet, known=known, now=now)

    def _announce(self, resource: Resource, *, quiet: bool, known: bool, now: float) -> None:
        if not known and self.known(resource, now):
            self._records.news.of_knowledge()
        if quiet and self._records.news and self.on_change is not None:
            self.on_change()

    # What is asked.

    def take_changes(self) -> Changes:
        """What has moved since the last call."""
        return self._records.news.take()

    def known(self, resource: Resource, now: float) -> bool:
        """Whether it was listed in full once, and has not been unheard of for too long."""
        return self._hearing.known(resource, now)

    def pods_of(self, target: Ref, now: float) -> tuple[Pod, ...] | None:
        """All pods that belong to `target` and may still run, by name; None while it is not known which do."""
        if not self._all_known(target.namespace, _ON_THE_WAY.get(target.kind, _ANYTHING), now):
            return None
        return self._below(target)

    def lacks(self, target: Ref) -> bool:
        """Whether a target of a kind that is watched is not there, or not yet."""
        return target.kind in _SCALABLE and self._records.get(target, Scalable) is None

    def subject(self, ref: Ref) -> Subject | None:
        """What an Event is to say that it is on; None if there is no such thing, or of a kind that is not watched."""
        resource = _NAMED.get(ref.kind)
        found = self._records.get(ref, Scalable) or self._records.get(ref, ScaledObject)
        return None if resource is None or found is None else Subject(resource.version, ref, found.uid)

    def leaders_of(self, target: Ref, now: float) -> tuple[Pod, ...] | None:
        """Those of `pods_of` that take the requests: of each LeaderWorkerSet's group one, of an InferenceService its
        predictor.
        """
        pods = self.pods_of(target, now)
        if pods is None or target.kind not in {"LeaderWorkerSet", "InferenceService"}:
            return pods
        if target.kind == "LeaderWorkerSet":
            return tuple(filter(leads, pods))
        return tuple(pod for predictor in self._predictors(target) for pod in self._below(predictor.ref))

    def count(self, target: Ref, now: float) -> ReplicaCount | None:
        """None while it is not known, or for what is not there or has no replicas (a ScaledJob)."""
        scalable, resource = self._records.get(target, Scalable), _SCALABLE.get(target.kind)
        if scalable is None or resource is None:
            return None
        resources = (resource, *_ON_THE_WAY[target.kind])
        leaders = self.leaders_of(target, now)
        if leaders is None or not self._all_known(target.namespace, resources, now):
            return None
        tally = by_group(self._below(target)) if target.kind == "LeaderWorkerSet" else by_pod(leaders)
        if target.kind == "InferenceService":
            predictors = self._predictors(target)
            if not predictors:
                return None
            wanted = sum(predictor.wanted or 0 for predictor in predictors)
        else:
            wanted = scalable.wanted or 0
        heard_at = self._hearing.heard_at(resources)
        return ReplicaCount(
            wanted,
            tally.ready,
            heard_at,
            tally.pending,
            held_by(self._below(target)),
            existing=tally.existing,
            leaving=tally.leaving,
        )

    def will_count(self, target: Ref, now: float) -> bool:
        """Whether `count` of it is None only until its resources are listed: it has replicas, and may be there."""
        resource = _SCALABLE.get(target.kind)
        resources = () if resource is None else (resource, *_ON_THE_WAY[target.kind])
        return bool(resources) and not all(self.known(each, now) for each in resources)

    def take_uncounted(self, now: float) -> frozenset[Ref] | None:
        """The targets whose `count` may be another than at the last call; None: any, because what is known has changed.

        So counting costs as much as what has changed. Only `ReplicaCount.at` goes on by itself.
        """
        before, known = self._known_when_counted, frozenset(each for each in RESOURCES if self.known(each, now))
        self._known_when_counted, moved = known, self._records.news.take_uncounted()
        return moved if known == before else None

    def owners_of(self, pod: PodKey) -> tuple[Ref, ...] | None:
        """Its controller, the controller of that, and so on, as far as they are known; None if there is no such pod."""
        ref = _ref(pod)
        return None if self._records.get(ref, Pod) is None else self._records.chains.up(ref)

    def named(self, pod: PodKey) -> PodKey:
        """A pod that is known by its UID alone, by its name; as it was if there is none with that UID."""
        found = self._records.named(pod.pod) if not pod.namespace else None
        return pod if found is None else PodKey(found.namespace, found.name)

    def pod(self, key: PodKey) -> Pod | None:
        return self._records.get(_ref(key), Pod)

    def may_have_requests(self, pod: Pod) -> bool:
        """Whether it is ready, or has been and still runs what it ran then."""
        return self._records.was_ready(pod.uid) and not pod.fresh_start

    def is_pod_of(self, namespace: str, address: str) -> bool:
        """Whether a living pod of that namespace has this address."""
        if any(pod.key.namespace == namespace for pod in self._records.at(address)):
            return True
        # Rare: pods on their node's network are not kept by address, because they share it.
        return any(
            pod.address == address and pod.host_network and pod.key.namespace == namespace and not pod.done
            for pod in self._records.all(Pod)
        )

    def has_its_address(self, pod: Pod) -> bool:
        """Whether `pod` still has the address it says: that of a pod on a lost node may have been given to another."""
        if pod.address is None or pod.host_network:
            return pod.address is not None
        return all(other.key == pod.key or _claim(other) < _claim(pod) for other in self._records.at(pod.address))

    def scaled_objects(self) -> tuple[ScaledObject, ...]:
        """ScaledObjects and ScaledJobs, in order."""
        return tuple(sorted(self._records.all(ScaledObject), key=lambda scaled: scaled.ref))

    def hpas(self) -> tuple[Hpa, ...]:
        return tuple(sorted(self._records.all(Hpa), key=lambda hpa: hpa.ref))

    def scalables(self) -> tuple[Scalable, ...]:
        return tuple(sorted(self._records.all(Scalable), key=lambda scalable: scalable.ref))

    def nodes(self) -> tuple[Node, ...]:
        return tuple(sorted(self._records.all(Node), key=lambda node: node.name))

    def gpu_exporters(self, now: float) -> tuple[Pod, ...] | None:
        """All pods of dcgm-exporter that may still run, ready or not; None while pods are not known."""
        if not self.known(PODS, now):
            return None
        return tuple(pod for pod in self._records.gpu_exporters() if not pod.done)

    def endpoints(self, namespace: str, service: str, now: float) -> tuple[ServiceEndpoint, ...] | None:
        """The ready addresses of a Service, each once; None while they are not known."""
        if not self._all_known(namespace, (SLICES,), now):
            return None
        ports = {
            address: piece.ports for piece in self._records.slices(namespace, service) for address in piece.addresses
        }
        return tuple(ServiceEndpoint(address, ports[address]) for address in sorted(ports))

    def _all_known(self, namespace: str, resources: Iterable[Resource], now: float) -> bool:
        watched = not self._namespaces or namespace in self._namespaces
        return watched and all(self.known(resource, now) for resource in resources)

    def _below(self, target: Ref) -> tuple[Pod, ...]:
        refs = sorted(ref for ref in self._records.chains.below(target) if ref.kind == "Pod")
        pods = (self._records.get(ref, Pod) for ref in refs)
        return tuple(pod for pod in pods if pod is not None and not pod.done)

    def _predictors(self, target: Ref) -> list[Scalable]:
        """The Deployments whose pods an InferenceService's requests end at: not its transformer's or explainer's, and
        not those with the workers of a model that is spread over several nodes ("-predictor-worker").
        """
        names = {f"{target.name}-predictor", f"{target.name}-predictor-default"}
        refs = sorted(ref for ref in self._records.chains.owned(target) if ref.name in names)
        return [found for ref in refs if (found := self._records.get(ref, Scalable)) is not None]


def _trimmed(resource: Resource, document: Mapping[str, Any]) -> ParsedObject:
    try:
        return ParsedObject(identify(resource, document), read(resource, document))
    except Malformed as malformed:
        return ParsedObject(malformed.ref, None)


def _ref(pod: PodKey) -> Ref:
    return Ref(pod.namespace, "Pod", pod.pod)


def _claim(pod: Pod) -> tuple[bool, float, PodKey]:
    """Of two pods that say they have one address, the ready one has it, else the younger."""
    return pod.ready and not pod.leaving, pod.created_at or 0.0, pod.key


class Hearing:
    """namespaces: those that are watched; none is: all of them. blind_s: seconds of silence that change nothing yet."""

    def __init__(self, namespaces: Iterable[str], blind_s: float) -> None:
        self._parts: frozenset[str | None] = frozenset(namespaces) or frozenset({None})
        self._blind_s = blind_s
        self._listed: dict[Resource, set[str | None]] = {}
        self._heard_at: dict[Resource, float] = {}
        self._lost_at: dict[Resource, float] = {}

    def listed(self, resource: Resource, namespace: str | None, now: float) -> None:
        """One part of it has been listed in full."""
        self._listed.setdefault(resource, set()).add(namespace if resource.namespaced else None)
        self._heard_at[resource] = now

    def absent(self, resource: Resource, now: float) -> None:
        """The cluster has no such thing: all of it is known."""
        self._listed[resource] = {None, *self._parts}
        self.heard(resource, now)

    def heard(self, resource: Resource, now: float) -> None:
        self._heard_at[resource] = now
        self._lost_at.pop(resource, None)

    def lost(self, resource: Resource, now: float) -> None:
        self._lost_at.setdefault(resource, now)

    def known(self, resource: Resource, now: float) -> bool:
        listed = self._listed.get(resource, set())
        whole = None in listed or (resource.namespaced and self._parts <= listed)
        return whole and now - self._lost_at.get(resource, now) <= self._blind_s

    def heard_at(self, resources: Iterable[Resource]) -> float:
        """When all of these were known to be so: POSIX seconds. Each must have been heard of."""
        return min(self._heard_at[resource] for resource in resources)


class ReplicaTally(NamedTuple):
    """ready: replicas that take requests. pending: replicas that no node runs in full yet. existing: all there are but
    those on their way out. leaving: those of them that still run.
    """

    ready: int
    pending: int
    existing: int
    leaving: int


def leads(pod: Pod) -> bool:
    """Whether it is the pod of its group that takes the requests."""
    return pod.labels.get(WORKER_INDEX) == "0"


def by_pod(pods: Iterable[Pod]) -> ReplicaTally:
    """Each pod is a replica. One that has been asked to go is none any more."""
    every = list(pods)
    staying = [pod for pod in every if not pod.leaving]
    leaving = sum(map(_still_runs, every))
    return ReplicaTally(sum(pod.ready for pod in staying), sum(map(_is_pending, staying)), len(staying), leaving)


def by_group(pods: Iterable[Pod]) -> ReplicaTally:
    """Each group of a LeaderWorkerSet is a replica: ready if its leader is ready and the group is complete."""
    groups: dict[str | None, list[Pod]] = {}
    leaving: set[str | None] = set()
    for pod in pods:
        if not pod.leaving:
            groups.setdefault(pod.labels.get(GROUP_INDEX), []).append(pod)
        elif _still_runs(pod):
            leaving.add(pod.labels.get(GROUP_INDEX))
    groups.pop(None, None)  # of no group: it cannot make one complete
    going = len(leaving - groups.keys() - {None})
    pending = sum(any(map(_is_pending, group)) for group in groups.values())
    return ReplicaTally(sum(map(_is_ready, groups.values())), pending, len(groups), going)


def _is_ready(group: Sequence[Pod]) -> bool:
    # The workers of a group may only be made when its leader is ready (startupPolicy): that all are ready does not say
    # that all are there.
    size = max((pod.group_size or 1 for pod in group), default=1)
    return len(group) >= size and any(map(leads, group)) and all(pod.ready for pod in group)


def _is_pending(pod: Pod) -> bool:
    return pod.phase == "Pending"


def _still_runs(pod: Pod) -> bool:
    return pod.leaving and pod.phase == "Running"


def held_by(pods: Iterable[Pod]) -> int:
    """GPUs and MIG instances that these pods asked for and have, because a node runs them."""
    return sum(sum(pod.gpus.values()) for pod in pods if pod.phase == "Running")
