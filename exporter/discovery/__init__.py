"""Where to ask. A discovery lists targets; the scrape loop asks whatever is listed.

A list that cannot be had is not an empty list: `listing()` is None until the first answer and again when answers
stop, and whoever reads it must not take that for "no pods".
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from exporter.model import Target, WorkloadKey


class Listing(NamedTuple):
    """Where to ask.

    leaving: those of `targets` that are on their way out, or not ready any more: what they say is activity, they need
             not answer, and they are no capacity.
    """

    targets: tuple[Target, ...]
    leaving: frozenset[Target] = frozenset()

    @property
    def due(self) -> int:
        """How many must answer."""
        return len(self.targets) - len(self.leaving)


class Discovery(Protocol):
    """Somebody who knows where to ask for one purpose."""

    @property
    def owner(self) -> WorkloadKey | None:
        """The workload whose pods are listed; None for pages that belong to no single workload."""

    def listing(self) -> Listing | None:
        """The targets as last known; None while that is not known."""

    async def refresh(self, now: float) -> None:
        """Look again. Never raises: what cannot be looked up shows as a `listing()` of None in time."""
