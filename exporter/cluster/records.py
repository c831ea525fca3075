"""The records of all objects, and the indexes over them: one way in, `keep`, so that no index is ever behind.

It knows how a change of one object moves what is asked of others, and names those in `news`. It refuses to know what a
list or a watch is, and whether what it holds is all there is.

Worked example: `keep(ref, pod)` with a pod whose address was None and is now 10.0.0.7 puts it under that address and
names its ReplicaSet and its Deployment in `news`; `keep(ref, pod)` with an equal record does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar, assert_never

from .chains import Chains
from .changes import News
from .exporters import is_gpu_exporter
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
