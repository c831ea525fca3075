"""What changed on a Board since a version that somebody has: the leader's side of "changes only". Pure.

Entries of a Board are replaced, never changed, so one that is the same object says the same. A workload that is gone
leaves a note behind for those who were told of it. Who comes with a version of another epoch, or from before the notes
begin, is told all of it.

Worked example: a Board of versions 7, then 8 with another entry of `ai/chat`; `journal.since(7)` is that entry, and
`journal.since(3)`, where the journal began at 7, is None: tell everything.
"""

from __future__ import annotations

from typing import NamedTuple

from exporter.model import WorkloadKey

from ..board import EMPTY, Board, Decision

# So many who are gone are remembered. More at once is a new configuration, and a follower is then told everything.
NOTES = 1000


class Change(NamedTuple):
    """changed: entries that are new or other. gone: workloads that have no entry any more."""

    changed: tuple[Decision, ...]
    gone: tuple[WorkloadKey, ...]


class Journal:
    """Of one time in office, from its first Board on."""

    def __init__(self) -> None:
        self.board = EMPTY
        self._begin: int | None = None  # the oldest version that changes can be told from
        self._changed: dict[WorkloadKey, int] = {}  # in which version it became what it is
        self._gone: dict[WorkloadKey, int] = {}  # in which version it went; in that order

    def take(self, board: Board) -> None:
        """The Board as it is now."""
        before, self.board = self.board.decisions, board
        if self._begin is None:
            self._begin = board.version
        for key, decision in board.decisions.items():
            if before.get(key) is not decision:
                self._changed[key] = board.version
                self._gone.pop(key, None)
        for key in before.keys() - board.decisions.keys():
            del self._changed[key]
            self._gone[key] = board.version
        while len(self._gone) > NOTES:
            self._begin = self._gone.pop(next(iter(self._gone)))

    def since(self, version: int) -> Change | None:
        """What is other than in that version; None: that is not known any more."""
        if self._begin is None or not self._begin <= version <= self.board.version:
            return None
        return Change(
            tuple(self.board.decisions[key] for key, at in self._changed.items() if at > version),
            tuple(key for key, at in self._gone.items() if at > version),
        )
