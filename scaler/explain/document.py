"""The whole explanation of one decision: `/api/v1/explain`. Pure.

It puts the steps in order and finds the moment; what each step says is in its own module.

Worked example: asked for 10:00 of a log that begins at 10:20, the story is of 10:20, and its summary begins with
"Nothing is kept of 10:00 …".

An entry of the log as JSON. Pure.

Numbers are exact: Python writes the shortest decimal that reads back as the same double. JSON has no NaN and no
infinity: what is unknown is null, and what is without an end is "inf". Codes are words.

What may be asked of the decider about the past: copies are made when it is asked, documents in whatever thread.

Worked example: `witness.history(board, now, 3600.0, 60)` copies the log's columns at once; what it returns makes the
document of `/api/v1/history` of them, and may do so beside the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from math import isinf, isnan
from typing import Any, TypeAlias

import numpy as np

from exporter.model import WorkloadKey
from scaler.engine.decider import Decider
from scaler.engine.decision_log import WIDTH, DecisionHistory, Entry, place
from scaler.model import Board, Decision
from scaler.policy.columns import REASONS, Signal, Spec
from scaler.signals.pods import PageRead
from scaler.signals.smoothing import Rings

from . import history
from .constraints import orders, told
from .history import HistorySpan
from .steps import clamp, cleaned, clock, objectives, raw, smoothed, winner
from .summary import summary
from .trace import Case

MOST_CHANGES = 50
_REPLICAS, _ACTIVE, _REASON = (place("verdicts", name) for name in ("replicas", "active", "reason"))


@dataclass(frozen=True, slots=True)
class Testimony:
    """All that is known where a decision is to be explained.

    now:       POSIX seconds.
    asked:     the moment to be explained, POSIX seconds; None is now.
    decision:  the Board's; None while there is none.
    follows:   HOST:PORT of the replica of Tidegate whose Board is repeated; None: our own is the Board.
    pages, rings: as they are now.
    controller: what KEDA and the HPA do with the Board's number, by those who know: the document of now's last step.
    """

    workload: WorkloadKey
    now: float
    asked: float | None
    past: DecisionHistory
    decision: Decision | None
    follows: str | None = None
    pages: Sequence[PageRead] = ()
    rings: Rings | None = None
    controller: dict[str, Any] | None = None


def document(said: Testimony) -> dict[str, Any]:
    """`/api/v1/explain/NAMESPACE/NAME`. Nothing decided yet: `at` and `inputs` are None, and the chain is empty."""
    entry = said.past.at(said.now if said.asked is None else said.asked)
    present = said.asked is None
    case = None if entry is None else Case.of(entry)
    begins = float(said.past.times[0]) if len(said.past) else None
    return {
        "workload": said.workload._asdict(),
        "now": said.now,
        "at": None if entry is None else entry.at,
        "log_begins_at": begins,
        "summary": _nothing(said) if case is None else _early(said, begins) + summary(case),
        "answer": None if said.decision is None else said.decision.to_document(),
        "follows": said.follows,
        "chain": [] if case is None else chain(case, said, present=present),
        "inputs": None if entry is None else inputs(entry),
        "changes": changes(said.past),
    }


def chain(case: Case, said: Testimony, *, present: bool) -> list[dict[str, Any]]:
    """The documents of its steps. present: the decision of now, of which more is known than what the log keeps."""
    decision = said.decision if present else None
    steps = [
        raw(case, said.pages if present else None),
        cleaned(case),
        smoothed(case, said.rings),
        objectives(case),
        winner(case),
        clamp(case),
        orders(case, decision),
        told(case, decision, said.follows if present else None),
    ]
    last = [said.controller] if present and said.controller is not None else []
    return [*(step.to_document() for step in steps), *last]


def _early(said: Testimony, begins: float | None) -> str:
    if said.asked is None or begins is None or said.asked >= begins:
        return ""
    return f"Nothing is kept of {clock(said.asked)}: the log begins at {clock(begins)}, with this. "


def _nothing(said: Testimony) -> str:
    if said.follows is not None:
        return f"This replica has decided nothing itself yet; it repeats the leader at {said.follows}"
    return "Nothing has been decided yet"


def changes(past: DecisionHistory) -> list[dict[str, Any]]:
    """When the answer changed, as far back as is kept; the beginning is one."""
    if not len(past):
        return []
    told = past.values[:, [_REPLICAS, _ACTIVE, _REASON]]
    same = (told[1:] == told[:-1]) | (np.isnan(told[1:]) & np.isnan(told[:-1]))
    places = np.flatnonzero(np.append(past.first == 0, ~same.all(axis=1)))[-MOST_CHANGES:]
    return [_change(past.values[place]) for place in places]


def _change(row: Any) -> dict[str, Any]:
    replicas = row[_REPLICAS]
    return {
        "at": float(row[place("when", "at")]),
        "replicas": None if isnan(replicas) else int(replicas),
        "active": bool(row[_ACTIVE]),
        "reason": str(REASONS[int(row[_REASON])]),
    }


VERSION = 1
_SIGNALS = {signal.name.lower(): signal for signal in Signal}
# Codes of reasons that are columns of numbers: below 0 is nobody's.
_REASONS = {("standing", "floor_reason"), ("memory", "reason"), ("verdicts", "reason")}


def inputs(entry: Entry) -> dict[str, Any]:
    """The entry as plain JSON-able data. What decided nothing (`aside`) is in it for people."""
    document: dict[str, Any] = {"version": VERSION, "spec": _spec(entry.plan.spec)}
    for part, columns in entry.given._asdict().items():
        document[part] = {name: _written(part, name, column) for name, column in columns._asdict().items()}
    return document


def _written(part: str, name: str, column: Any) -> Any:
    if column.ndim > 1:
        return {word: _number(column[0, signal]) for word, signal in _SIGNALS.items()}
    if (part, name) in _REASONS:
        return None if column[0] < 0 else str(REASONS[column[0]])
    return bool(column[0]) if column.dtype == np.bool_ else _number(column[0])


def _number(value: Any) -> float | str | None:
    if isnan(value):
        return None
    return ("inf" if value > 0 else "-inf") if isinf(value) else float(value)


def _spec(spec: Spec) -> dict[str, Any]:
    document = {each.name: getattr(spec, each.name) for each in fields(spec)}
    document = {name: _number(value) if isinstance(value, float) else value for name, value in document.items()}
    return document | {"targets": {signal.name.lower(): target for signal, target in spec.targets}}


Document: TypeAlias = dict[str, Any]


class DeciderWitness:
    """Of one decider: of the one that is there when something is asked."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider

    def history(self, board: Board, now: float, since: float, points: int) -> Callable[[], Document]:
        """Of every workload on the Board. since: seconds back from `now`, POSIX seconds."""
        known, charted = self._decider.charted(sorted(board.decisions))
        return partial(history.document, board, known, charted, now, HistorySpan(since, points))

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
            nothing = DecisionHistory(np.empty((0, WIDTH)), 0, ())
            return partial(document, Testimony(workload, now, at, nothing, decision, follows))
        pages, rings = self._decider.pages(workload, now), self._decider.rings(workload)
        said = Testimony(workload, now, at, past, decision, follows, pages, rings, controller)
        return partial(document, said)
