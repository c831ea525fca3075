"""What has moved since somebody last looked.

It knows names of things that are to be looked at again and nothing of what became of them. Naming too many costs a
look; naming too few costs a stale answer.

Worked example: pod `chat-7d9f8b6c5d-x2k9q` becomes ready: `targets` has its ReplicaSet and its Deployment. Its kubelet
writes a new heartbeat into its status, of which nothing is kept: nothing has moved.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .objects import Ref


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
