"""What may be asked of the decider about the past: copies are made when it is asked, documents in whatever thread.

Worked example: `witness.history(board, now, 3600.0, 60)` copies the log's columns at once; what it returns makes the
document of `/api/v1/history` of them, and may do so beside the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from exporter.model import WorkloadKey

from .board import Board
from .decider import Decider
from .explain import history, story
from .explain.entry import WIDTH
from .explain.history import Span
from .explain.log import Past
from .explain.story import Testimony

Document: TypeAlias = dict[str, Any]


class Witness:
    """Of one decider: of the one that is there when something is asked."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider

    def history(self, board: Board, now: float, since: float, points: int) -> Callable[[], Document]:
        """Of every workload on the Board. since: seconds back from `now`, POSIX seconds."""
        known, charted = self._decider.charted(sorted(board.decisions))
        return partial(history.document, board, known, charted, now, Span(since, points))

    def explain(
        self,
        workload: WorkloadKey,
        board: Board,
        now: float,
        at: float | None,
        follows: str | None,
        controller: Document | None,
    ) -> Callable[[], Document] | None:
        """None: there is no such workload, neither here nor on the Board. at: as `Testimony.asked`."""
        past, decision = self._decider.past(workload), board.get(workload)
        if past is None:
            if decision is None:
                return None
            # The leader knows it, and this replica has not heard of it yet.
            nothing = Past(np.empty((0, WIDTH)), 0, ())
            return partial(story.document, Testimony(workload, now, at, nothing, decision, follows))
        pages, rings = self._decider.pages(workload, now), self._decider.rings(workload)
        said = Testimony(workload, now, at, past, decision, follows, pages, rings, controller)
        return partial(story.document, said)
