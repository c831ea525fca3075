"""Targets written down in the configuration: always known, never changing."""

from __future__ import annotations

from collections.abc import Iterable

from exporter.model import Target, WorkloadKey

from . import Listing


class StaticTargets:
    def __init__(self, targets: Iterable[Target], owner: WorkloadKey | None = None) -> None:
        self._listing = Listing(tuple(targets))
        self.owner = owner

    def listing(self) -> Listing | None:
        return self._listing

    async def refresh(self, now: float) -> None:
        """Nothing to look up."""
