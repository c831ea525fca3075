"""The one Board everybody answers from, and how readers learn that an entry changed.

Publishing is one assignment; nobody ever waits for a lock. A reader that waits for a change compares the entry it has
seen with the present one, so a change can be late for nobody and lost for nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType

from exporter.model import WorkloadKey

from .board import EMPTY, Board, Decision, Reason


class Publisher:
    """Holds the present Board. One writer, the daemon's loop; any number of readers in the same loop."""

    def __init__(self, workloads: Iterable[WorkloadKey]) -> None:
        self._known = frozenset(workloads)
        self._board = EMPTY
        self._waiting: dict[WorkloadKey, asyncio.Event] = {}

    @property
    def board(self) -> Board:
        return self._board

    def knows(self, workload: WorkloadKey) -> bool:
        """Is it configured, whether or not anything is decided yet?"""
        return workload in self._known

    def get(self, workload: WorkloadKey) -> Decision | None:
        return self._board.decisions.get(workload)

    def publish(self, changed: Iterable[Decision], at: float) -> None:
        """Replace some entries. `at`: POSIX seconds of the decision.

        A page of the last configuration may land while the next one begins: whom it removed stays removed.
        """
        fresh = {decision.workload: decision for decision in changed if self.knows(decision.workload)}
        old = self._board
        decisions = MappingProxyType({**old.decisions, **fresh}) if fresh else old.decisions
        self._board = Board(version=old.version + bool(fresh), at=at, decisions=decisions)
        for workload in fresh:
            self._wake(workload)

    def give_up(self, at: float) -> None:
        """Nothing has been decided for too long: every answer becomes an error, and says so."""
        self.publish(
            [
                replace(decision, replicas=None, active=True, reason=Reason.UNKNOWN, decided_at=at)
                for decision in self._board.decisions.values()
                if decision.known
            ],
            self._board.at,
        )

    def keep_only(self, workloads: Iterable[WorkloadKey], at: float) -> None:
        """A new configuration: entries of workloads that are gone go with them, and their readers are told."""
        old, self._known = self._board, frozenset(workloads)
        kept = {key: decision for key, decision in old.decisions.items() if key in self._known}
        self._board = Board(version=old.version + 1, at=at, decisions=MappingProxyType(kept))
        for workload in set(self._waiting) - self._known:
            self._wake(workload)

    async def changed(self, workload: WorkloadKey, seen: Decision | None) -> Decision | None:
        """Wait until the entry is not `seen`; None is: the workload is no longer configured."""
        while self.knows(workload):
            present = self.get(workload)
            if present is not seen:
                return present
            await self._waiting.setdefault(workload, asyncio.Event()).wait()
        return None

    def _wake(self, workload: WorkloadKey) -> None:
        event = self._waiting.pop(workload, None)
        if event is not None:
            event.set()
