"""Lists the targets to scrape.

A list that cannot be obtained is not an empty list: `listing()` is None before the first answer, and again when answers
stop. Readers must not treat None as "no pods".
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from exporter.model import Target, WorkloadKey


class Listing(NamedTuple):
    """leaving: those of `targets` that are terminating or no longer ready. Their samples count as activity; they need
    not answer, and they are no capacity.
    """

    targets: tuple[Target, ...]
    leaving: frozenset[Target] = frozenset()

    @property
    def due(self) -> int:
        """How many must answer."""
        return len(self.targets) - len(self.leaving)


class Discovery(Protocol):
    """Lists the targets of one purpose."""

    @property
    def owner(self) -> WorkloadKey | None:
        """The workload of the listed pods; None if the targets belong to no single workload."""

    def listing(self) -> Listing | None:
        """The last targets; None while they are unknown."""

    async def refresh(self, now: float) -> None:
        """List again. Never raises: after repeated failures `listing()` is None."""
