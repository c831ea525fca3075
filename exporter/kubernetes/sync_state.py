"""Tracks which resources of which namespaces are listed in full and up to date. Pure.

Each watched namespace is listed on its own, so that one that is deleted, or takes its Role away, costs only itself.

Worked example: of the namespaces `ai` and `web`, both listed, `web` is lost at 1000. With `blind_s` 60,
`synced(PODS, 1100.0, "ai")` is True, `synced(PODS, 1100.0, "web")` is False, and so is `synced(PODS, 1100.0)`.
"""

from __future__ import annotations

from collections.abc import Iterable

from .resources import Resource


class SyncState:
    """namespaces: those that are watched; empty is all at once.
    blind_s:    seconds without updates after which a resource is unknown.
    """

    def __init__(self, namespaces: Iterable[str], blind_s: float) -> None:
        self._all: tuple[str | None, ...] = tuple(sorted(set(namespaces))) or (None,)
        self._is_split = self._all != (None,)
        self._blind_s = blind_s
        # By resource, and by namespace; None is all, as of what is not namespaced.
        self._current_at: dict[tuple[Resource, str | None], float] = {}
        self._listed: set[tuple[Resource, str | None]] = set()
        self._lost_at: dict[tuple[Resource, str | None], float] = {}
        self._refused: set[tuple[Resource, str | None]] = set()

    def mark_listed(self, resource: Resource, namespace: str | None, now: float) -> None:
        """Listed in full, in one namespace or (None) in all."""
        for part in self._parts(resource, namespace):
            self._listed.add(part)
            self._current_at[part] = now

    def mark_absent(self, resource: Resource, now: float) -> None:
        self.mark_listed(resource, None, now)
        self.mark_current(resource, None, now)

    def mark_current(self, resource: Resource, namespace: str | None, now: float) -> None:
        for part in self._parts(resource, namespace):
            self._current_at[part] = now
            self._lost_at.pop(part, None)
            self._refused.discard(part)

    def mark_lost(self, resource: Resource, namespace: str | None, now: float) -> None:
        for part in self._parts(resource, namespace):
            self._lost_at.setdefault(part, now)

    def mark_refused(self, resource: Resource, namespace: str | None, now: float) -> None:
        """RBAC does not allow it, as in a namespace that was deleted together with its Role."""
        self.mark_lost(resource, namespace, now)
        self._refused.update(self._parts(resource, namespace))

    def synced(self, resource: Resource, now: float, namespace: str | None = None) -> bool:
        """Whether it was listed in full, and was not lost for too long. namespace: None is every watched one."""
        return all(self._is_synced(part, now) for part in self._parts(resource, namespace))

    def synced_parts(self, resources: Iterable[Resource], now: float) -> frozenset[tuple[Resource, str | None]]:
        """The resources that are synced, by namespace."""
        parts = (part for resource in resources for part in self._parts(resource, None))
        return frozenset(part for part in parts if self._is_synced(part, now))

    def settled(self, resource: Resource, now: float) -> bool:
        """Whether it is synced in every namespace but those that refuse, and in at least one."""
        parts = self._parts(resource, None)
        missing = [part for part in parts if not self._is_synced(part, now)]
        return len(missing) < len(parts) and self._refused.issuperset(missing)

    def current_at(self, resources: Iterable[Resource], namespace: str) -> float:
        """POSIX seconds when all of these were last up to date. Each must have been listed."""
        return min(self._current_at[part] for resource in resources for part in self._parts(resource, namespace))

    def _is_synced(self, part: tuple[Resource, str | None], now: float) -> bool:
        return part in self._listed and now - self._lost_at.get(part, now) <= self._blind_s

    def _parts(self, resource: Resource, namespace: str | None) -> tuple[tuple[Resource, str | None], ...]:
        if not (self._is_split and resource.namespaced):
            return ((resource, None),)
        return tuple((resource, each) for each in self._all) if namespace is None else ((resource, namespace),)
