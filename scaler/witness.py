"""What may be asked of the decider about the past: copies are made when it is asked, documents in whatever thread.

Worked example: `witness.history(board, now, 3600.0, 60)` copies the log's columns at once; what it returns makes the
document of `/api/v1/history` of them, and may do so beside the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from .board import Board
from .decider import Decider
from .explain import history
from .explain.history import Span

Document: TypeAlias = dict[str, Any]


class Witness:
    """Of one decider: of the one that is there when something is asked."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider

    def history(self, board: Board, now: float, since: float, points: int) -> Callable[[], Document]:
        """Of every workload on the Board. since: seconds back from `now`, POSIX seconds."""
        known, charted = self._decider.charted(sorted(board.decisions))
        return lambda: history.document(board, known, charted, now, Span(since, points))
