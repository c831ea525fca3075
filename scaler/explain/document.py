"""Builds the documents of `/api/v1/explain` and `/api/v1/history`. Pure.

Copies are made when a document is requested, and it can be built in a thread.

The inputs of a decision are exact: Python writes the shortest decimal that reads back as the same double. JSON has no
NaN and no infinity: unknown is null, and infinity is "inf".

Worked example: for 10:00 and a log that begins at 10:20, the explanation is of 10:20, and its summary begins with
"The log does not have 10:00 …".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from math import isinf, isnan
from typing import Any, TypeAlias

import numpy as np

from exporter.model import Floats, WorkloadKey
from scaler.engine.decider import Decider
from scaler.engine.decision_log import WIDTH, DecisionHistory, Entry, column_index
from scaler.model import Board, Decision
from scaler.policy.columns import OBJECTIVES, REASONS, Spec
from scaler.policy.estimators.further_hour import FurtherHour
from scaler.signals.pods import TargetReading
from scaler.signals.smoothing import Rings

from . import further_hour, history, rows
from .constraints import overrides, published
from .formats import clock
from .history import HistorySpan
from .outcome import controller_step
from .outcome_inputs import ControllerOutcome
from .rows import NextOutcome
from .steps import clamp, cleaned, objectives, raw, smoothed, winner
from .trace import Case, summary

Document: TypeAlias = dict[str, Any]

VERSION = 1
MOST_CHANGES = 50
_REPLICAS, _ACTIVE, _REASON = (column_index("verdicts", name) for name in ("replicas", "active", "reason"))
# Columns that hold the number of a reason; below 0 is none.
_REASON_COLUMNS = {("standing", "floor_reason"), ("memory", "reason"), ("verdicts", "reason")}


@dataclass(frozen=True, slots=True)
class ExplainInput:
    """All that an explanation is made of.

    now:        POSIX seconds.
    at:         the moment to explain, POSIX seconds; None is now.
    decision:   of the Board; None if there is none.
    follows:    HOST:PORT of the leader whose Board this replica repeats; None if the Board is its own.
    reads, rings: the latest samples of its targets, and its windows.
    controller: what KEDA and the HPA do with the current decision; None if unknown.
    further_hour: computes what one more hour of keep-warm would cost and save, at present.
    """

    workload: WorkloadKey
    now: float
    at: float | None
    past: DecisionHistory
    decision: Decision | None
    follows: str | None = None
    reads: Sequence[TargetReading] = ()
    rings: Rings | None = None
    controller: ControllerOutcome | None = None
    further_hour: Callable[[], FurtherHour] | None = None


class DecisionExplainer:
    """Explains the decisions of one decider."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider

    def history(self, board: Board, now: float, since: float, points: int) -> Callable[[], Document]:
        """The history of every workload of the Board. since: seconds back from `now`, POSIX seconds."""
        listed, charts = self._decider.charted(sorted(board.decisions))
        return partial(history.document, board, listed, charts, now, HistorySpan(since, points))

    def explain(
        self,
        workload: WorkloadKey,
        board: Board,
        now: float,
        at: float | None,
        follows: str | None,
        controller: ControllerOutcome | None,
    ) -> Callable[[], Document] | None:
        """None if neither the decider nor the Board has the workload. at: as in `ExplainInput`."""
        past, decision = self._decider.past(workload), board.get(workload)
        if past is None:
            if decision is None:
                return None
            # The leader has it, and this replica not yet.
            empty = DecisionHistory(np.empty((0, WIDTH)), 0, ())
            return partial(document, ExplainInput(workload, now, at, empty, decision, follows))
        reads, rings = self._decider.latest.pages(workload, now), self._decider.rings(workload)
        hour = self._decider.further_hour([workload], now)
        about = ExplainInput(workload, now, at, past, decision, follows, reads, rings, controller, hour)
        return partial(document, about)


def document(about: ExplainInput) -> Document:
    """`/api/v1/explain/NAMESPACE/NAME`. Without a decision `at` and `inputs` are None, and the chain is empty."""
    entry = about.past.at(about.now if about.at is None else about.at)
    case = None if entry is None else Case.of(entry)
    begins = float(about.past.times[0]) if len(about.past) else None
    hour = (
        None if about.further_hour is None or about.at is not None else further_hour.documents(about.further_hour())[0]
    )
    return {
        "workload": about.workload._asdict(),
        "now": about.now,
        "at": None if entry is None else entry.at,
        "log_begins_at": begins,
        "summary": _undecided(about) if case is None else _before_log(about.at, begins) + summary(case),
        "answer": None if about.decision is None else about.decision.to_document(),
        "row": None if about.decision is None else _row(about.decision, about),
        "follows": about.follows,
        "chain": [] if case is None else _chain(case, about, hour),
        "further_hour": hour,
        "inputs": None if entry is None else inputs(entry),
        "changes": _changes(about.past),
    }


def _chain(case: Case, about: ExplainInput, hour: further_hour.Document | None) -> list[Document]:
    """The documents of the steps. Of the past only what the log has is known."""
    present = about.at is None
    decision = about.decision if present else None
    steps = [
        raw(case, about.reads if present else None, about.now),
        cleaned(case),
        smoothed(case, about.rings),
        objectives(case, decision),
        winner(case),
        clamp(case),
        overrides(case, decision, hour),
        published(case, decision, about.follows if present else None),
    ]
    last = [controller_step(about.controller)] if present and about.controller is not None else []
    return [*(step.to_document() for step in steps), *last]


def _row(decision: Decision, about: ExplainInput) -> Document:
    """The row of `/api/v1/rows`, so that a reader has the head and the steps of one decision."""
    outcome = about.controller
    ahead = None if outcome is None else NextOutcome(str(outcome.code), outcome.sentences[0])
    return rows.row(decision, about.now, ahead).to_document()


def _before_log(at: float | None, begins: float | None) -> str:
    if at is None or begins is None or at >= begins:
        return ""
    return f"The log does not have {clock(at)}: it begins at {clock(begins)}, with this. "


def _undecided(about: ExplainInput) -> str:
    if about.follows is not None:
        return f"This replica has no decision of its own yet; it repeats the leader at {about.follows}"
    return "No decision yet"


def _changes(past: DecisionHistory) -> list[Document]:
    """When the decision changed, as far as the log goes; its begin is one."""
    if not len(past):
        return []
    decisions = past.values[:, [_REPLICAS, _ACTIVE, _REASON]]
    same = (decisions[1:] == decisions[:-1]) | (np.isnan(decisions[1:]) & np.isnan(decisions[:-1]))
    changed = np.flatnonzero(np.append(past.first == 0, ~same.all(axis=1)))[-MOST_CHANGES:]
    return [_change(past.values[index]) for index in changed]


def _change(row: Floats) -> Document:
    replicas = row[_REPLICAS]
    return {
        "at": float(row[column_index("when", "at")]),
        "replicas": None if isnan(replicas) else int(replicas),
        "active": bool(row[_ACTIVE]),
        "reason": str(REASONS[int(row[_REASON])]),
    }


def inputs(entry: Entry) -> Document:
    """An entry of the log as JSON-able data. `aside` is for people; it decided nothing."""
    document: Document = {"version": VERSION, "spec": _spec(entry.plan.spec)}
    for part, columns in entry.given._asdict().items():
        document[part] = {name: _cell(part, name, column) for name, column in columns._asdict().items()}
    return document


def _cell(part: str, name: str, column: Any) -> Any:
    if column.ndim > 1:
        return {name: _number(column[0, signal]) for signal, name in OBJECTIVES.items()}
    if (part, name) in _REASON_COLUMNS:
        return None if column[0] < 0 else str(REASONS[column[0]])
    return bool(column[0]) if column.dtype == np.bool_ else _number(column[0])


def _number(value: Any) -> float | str | None:
    if isnan(value):
        return None
    return ("inf" if value > 0 else "-inf") if isinf(value) else float(value)


def _spec(spec: Spec) -> Document:
    document = {each.name: getattr(spec, each.name) for each in fields(spec)}
    document = {name: _number(value) if isinstance(value, float) else value for name, value in document.items()}
    return document | {"targets": {OBJECTIVES[signal]: target for signal, target in spec.targets}}
