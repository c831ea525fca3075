"""The records of all objects, and the indexes over them: one way in, `keep`, so that no index is ever behind.

It knows how a change of one object moves what is asked of others, and names those in `news`. It refuses to know what a
list or a watch is, and whether what it holds is all there is.

Worked example: `keep(ref, pod)` with a pod whose address was None and is now 10.0.0.7 puts it under that address and
names its ReplicaSet and its Deployment in `news`; `keep(ref, pod)` with an equal record does nothing.

Who belongs to whom: each object's controller, upwards and downwards.

It knows names and nothing of what they name. An owner need not be there yet: the link to it is kept, so a pod that
arrives before its ReplicaSet belongs to the Deployment from the moment the ReplicaSet does. Owner references are
written by whoever may write the object: a circle of them ends where it began, and a chain after DEPTH steps.

Worked example: after `link(pod, replicaset)` and `link(replicaset, deployment)`, in either order, `up(pod)` is
`(replicaset, deployment)` and `below(deployment)` has both.

What has moved since somebody last looked.

It knows names of things that are to be looked at again and nothing of what became of them. Naming too many costs a
look; naming too few costs a stale answer.

Worked example: pod `chat-7d9f8b6c5d-x2k9q` becomes ready: `targets` has its ReplicaSet and its Deployment. Its kubelet
writes a new heartbeat into its status, of which nothing is kept: nothing has moved.

Which pods are dcgm-exporters, and where they listen.

It knows the two ways in which people install it. NVIDIA's Helm chart and its GPU Operator call the same program by
different labels and its port by different names.

Worked example: a pod with the label `app: nvidia-dcgm-exporter` whose container names port 9400 `gpu-metrics` is one,
at 9400; so is one with `app.kubernetes.io/name: dcgm-exporter` whose port `metrics` is 9401, at 9401.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, TypeVar, assert_never

from .objects import Hpa, Link, Node, Pod, Record, Ref, Scalable, ScaledObject, Slice

R = TypeVar("R", bound=Record)


class Records:
    def __init__(self) -> None:
        self.chains, self.news = Chains(), News()
        self._kinds: dict[str, dict[Ref, Record]] = {}
        self._exporters: dict[Ref, Pod] = {}
        self._slices: dict[tuple[str, str], dict[Ref, Slice]] = {}
        self._behind: dict[str, set[Ref]] = {}  # slices by an address in them
        self._at: dict[str, dict[Ref, Pod]] = {}  # living pods by address, those with their node's left out
        self._once_ready: set[str] = set()  # uids
        self._by_uid: dict[str, Ref] = {}

    def get(self, ref: Ref, of: type[R]) -> R | None:
        record = self._kinds.get(ref.kind, {}).get(ref)
        return record if isinstance(record, of) else None

    def all(self, of: type[R]) -> Iterator[R]:
        for table in self._kinds.values():
            yield from (record for record in table.values() if isinstance(record, of))

    def refs(self, kind: str, namespace: str | None) -> set[Ref]:
        """Those of one kind, in one namespace or (None) in all."""
        return {ref for ref in self._kinds.get(kind, ()) if namespace is None or ref.namespace == namespace}

    def gpu_exporters(self) -> tuple[Pod, ...]:
        return tuple(self._exporters[ref] for ref in sorted(self._exporters))

    def slices(self, namespace: str, service: str) -> tuple[Slice, ...]:
        found = self._slices.get((namespace, service), {})
        return tuple(found[ref] for ref in sorted(found))

    def at(self, address: str) -> tuple[Pod, ...]:
        """Living pods that say they have this address. One that lost its node may have one that was given away."""
        return tuple(self._at.get(address, {}).values())

    def was_ready(self, uid: str) -> bool:
        return uid in self._once_ready

    def named(self, uid: str) -> Ref | None:
        """The pod with this UID."""
        return self._by_uid.get(uid)

    def keep(self, ref: Ref, record: Record | None) -> None:
        """What `ref` is now; None: it is no more."""
        table = self._kinds.setdefault(ref.kind, {})
        before = table.get(ref)
        if before == record:
            return
        if record is None:
            del table[ref]
        else:
            table[ref] = record
        self._index(ref, before, record)

    def _index(self, ref: Ref, before: Record | None, now: Record | None) -> None:
        # Of one ref both are of one type: its kind says which.
        match now if now is not None else before:
            case Pod():
                self._index_pod(ref, _as(Pod, before), _as(Pod, now))
            case Scalable():
                self._index_scalable(ref, _as(Scalable, before), _as(Scalable, now))
            case Link():
                self._index_link(ref, _as(Link, now))
            case Slice():
                self._index_slice(ref, _as(Slice, before), _as(Slice, now))
            case ScaledObject():
                if _told(_as(ScaledObject, before)) != _told(_as(ScaledObject, now)):
                    self.news.of_census()
            case Hpa():
                if _told(_as(Hpa, before)) != _told(_as(Hpa, now)):
                    self.news.of_census()
            case Node() | None:
                pass
            case unexpected:
                assert_never(unexpected)

    def _index_pod(self, ref: Ref, before: Pod | None, now: Pod | None) -> None:
        self.news.of_targets(self.chains.up(ref))
        self.chains.link(ref, None if now is None else now.owner)
        self.news.of_targets(self.chains.up(ref))
        self._remember_readiness(before, now)
        if before is not None:
            self._by_uid.pop(before.uid, None)
        if now is not None:
            self._by_uid[now.uid] = ref
        if ref in self._exporters or (now is not None and is_gpu_exporter(now)):
            self._exporters.pop(ref, None)
            if now is not None and is_gpu_exporter(now):
                self._exporters[ref] = now
            self.news.of_exporters()
        for pod in (before, now):
            if pod is not None and pod.address is not None:
                self._announce_services(pod.address)
                if not pod.host_network:
                    self._readdress(ref, pod.address, now)

    def _announce_services(self, address: str) -> None:
        """Services that have this address: whose it is has changed."""
        for ref in self._behind.get(address, ()):
            piece = self.get(ref, Slice)
            if piece is not None and piece.service is not None:
                self.news.of_service(ref.namespace, piece.service)

    def _remember_readiness(self, before: Pod | None, now: Pod | None) -> None:
        if before is not None and (now is None or now.uid != before.uid):
            self._once_ready.discard(before.uid)
        if now is not None and (now.ready or now.was_ready):
            self._once_ready.add(now.uid)

    def _readdress(self, ref: Ref, address: str, now: Pod | None) -> None:
        """Whether `ref` has this address; who else says so has it only as long as nobody younger does."""
        here = self._at.setdefault(address, {})
        here.pop(ref, None)
        for other in here:
            self.news.of_targets(self.chains.up(other))
        if now is not None and now.address == address and not now.done:
            here[ref] = now
        if not here:
            del self._at[address]

    def _index_scalable(self, ref: Ref, before: Scalable | None, now: Scalable | None) -> None:
        above = self.chains.up(ref)
        self.chains.link(ref, None if now is None else now.owner)
        # What `ready` says is kept for people: replicas are counted by their pods.
        if before is None or now is None or (before.wanted, before.owner) != (now.wanted, now.owner):
            self.news.of_targets((ref, *above, *self.chains.up(ref)))
        if (before.annotations if before else {}) != (now.annotations if now else {}):
            self.news.of_census()

    def _index_link(self, ref: Ref, now: Link | None) -> None:
        above = self.chains.up(ref)
        self.chains.link(ref, None if now is None else now.owner)
        if self.chains.owned(ref):
            self.news.of_targets((*above, *self.chains.up(ref)))

    def _index_slice(self, ref: Ref, before: Slice | None, now: Slice | None) -> None:
        for address in before.addresses if before is not None else ():
            self._behind[address].discard(ref)
            if not self._behind[address]:
                del self._behind[address]
        for address in now.addresses if now is not None else ():
            self._behind.setdefault(address, set()).add(ref)
        for piece in (before, now):
            if piece is not None and piece.service is not None:
                pieces = self._slices.setdefault((ref.namespace, piece.service), {})
                pieces.pop(ref, None)
                if piece is now:
                    pieces[ref] = piece
                if not pieces:
                    del self._slices[ref.namespace, piece.service]
                self.news.of_service(ref.namespace, piece.service)


def _told(record: ScaledObject | Hpa | None) -> object:
    """Without what its controller reports every few seconds: nobody is counted by that."""
    return None if record is None else replace(record, status=None)


def _as(kind: type[R], record: Record | None) -> R | None:
    return record if isinstance(record, kind) else None


# A worker of a LeaderWorkerSet made by something else: Pod, StatefulSet, leader Pod, StatefulSet, LeaderWorkerSet, it,
# and its own maker.
DEPTH = 8


class Chains:
    def __init__(self) -> None:
        self._owner: dict[Ref, Ref] = {}
        self._owned: dict[Ref, set[Ref]] = {}

    def link(self, ref: Ref, owner: Ref | None) -> None:
        """`owner` is the controller of `ref`; None: it has none, or is no more."""
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
        """What it controls directly."""
        return frozenset(self._owned.get(ref, ()))

    def below(self, ref: Ref) -> Iterator[Ref]:
        """Everything whose chain has `ref` in it, each once, in no order."""
        seen = {ref}
        level = [ref]
        for _ in range(DEPTH):
            level = [owned for above in level for owned in self._owned.get(above, ()) if owned not in seen]
            seen.update(level)
            yield from level


class Changes(NamedTuple):
    """targets: those whose pods, or whose replicas, are not what they were. services: (namespace, name) of those whose
    endpoints are not. census: ScaledObjects, ScaledJobs, HPAs or `tidegate.dev/` annotations moved, or a resource has
    become known. exporters: dcgm-exporter pods moved. known: a resource has become known, so that everything is to be
    looked at.
    """

    targets: frozenset[Ref] = frozenset()
    services: frozenset[tuple[str, str]] = frozenset()
    census: bool = False
    exporters: bool = False
    known: bool = False


class News:
    """Changes, while they come."""

    def __init__(self) -> None:
        self._clear()
        self._uncounted: set[Ref] = set()

    def _clear(self) -> None:
        self._targets: set[Ref] = set()
        self._services: set[tuple[str, str]] = set()
        self._census = self._exporters = self._known = False

    def __bool__(self) -> bool:
        return bool(self._targets or self._services or self._census or self._exporters or self._known)

    def of_targets(self, refs: Iterable[Ref]) -> None:
        moved = tuple(refs)
        self._targets.update(moved)
        self._uncounted.update(moved)

    def of_service(self, namespace: str, service: str) -> None:
        self._services.add((namespace, service))

    def of_census(self) -> None:
        self._census = True

    def of_knowledge(self) -> None:
        self._census = self._known = True

    def of_exporters(self) -> None:
        self._exporters = True

    def take(self) -> Changes:
        """All so far; from here on it is empty."""
        taken = Changes(frozenset(self._targets), frozenset(self._services), self._census, self._exporters, self._known)
        self._clear()
        return taken

    def take_uncounted(self) -> frozenset[Ref]:
        """The targets that have moved since the last call, whoever has called `take` meanwhile."""
        uncounted, self._uncounted = frozenset(self._uncounted), set()
        return uncounted


_LABELS = (("app.kubernetes.io/name", "dcgm-exporter"), ("app", "nvidia-dcgm-exporter"))
_PORTS = ("metrics", "gpu-metrics")
_DEFAULT_PORT = 9400


def is_gpu_exporter(pod: Pod) -> bool:
    return any(pod.labels.get(name) == value for name, value in _LABELS)


def page_port(pod: Pod) -> int:
    """The TCP port of its page; the program's own default if none is named as either installation does."""
    return next((pod.ports[name] for name in _PORTS if name in pod.ports), _DEFAULT_PORT)
