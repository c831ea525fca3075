"""Who belongs to whom: each object's controller, upwards and downwards.

It knows names and nothing of what they name. An owner need not be there yet: the link to it is kept, so a pod that
arrives before its ReplicaSet belongs to the Deployment from the moment the ReplicaSet does. Owner references are
written by whoever may write the object: a circle of them ends where it began, and a chain after DEPTH steps.

Worked example: after `link(pod, replicaset)` and `link(replicaset, deployment)`, in either order, `up(pod)` is
`(replicaset, deployment)` and `below(deployment)` has both.
"""

from __future__ import annotations

from collections.abc import Iterator

from .objects import Ref

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
