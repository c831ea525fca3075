"""What is known of each resource: whether it was ever listed in full, and for how long it has not been heard of.

It knows resources and times and no objects. A list of a resource in one of several namespaces is a part of it; it is
known once every part has been listed. An API server that restarts takes the knowledge with it only if it stays away.

Worked example: with `blind_s` 60, pods listed at 1000 and lost at 1100 are known until 1160 and not from then on, until
they are heard of again.
"""

from __future__ import annotations

from collections.abc import Iterable

from .resources import Resource


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
